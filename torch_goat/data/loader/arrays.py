"""Arrays in files, mapped into memory: a page is read when somebody looks at it, and nothing in a file is executed."""

import json
import math
import mmap
import operator
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from torch_goat.settings import SettingsError

_DTYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NO_RESERVE: Final = 0x4000  # Linux then sets no memory aside for pages that might be written to


def map_arrays(path: Path) -> Iterator[tuple[str, Tensor]]:
    """The arrays of a file by name: the one of a ``.npy`` file, or all of a ``.safetensors`` file.

    Writing to a tensor changes this process's copy of a page, never the file.
    """
    if path.suffix == ".npy":
        yield path.stem, _npy(path)
    else:
        yield from _safetensors(path)


def _npy(path: Path) -> Tensor:
    with open(path, "rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read: Any = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[
                version
            ]
            shape, by_column, dtype = read(file)
            kind = torch.from_numpy(np.empty(0, dtype)).dtype
            if min(shape, default=0) < 0:
                raise ValueError
        except (ValueError, KeyError, TypeError, EOFError, SyntaxError, tokenize.TokenError):
            raise SettingsError(f"{path} is no array of numbers that NumPy wrote; write it with numpy.save.") from None
        if by_column and len(shape) > 1:
            raise SettingsError(f"{path} is stored column by column; write numpy.ascontiguousarray of it.")
        return _tensor(path, kind, shape, file.tell())


def _safetensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        try:
            if size > path.stat().st_size:
                raise ValueError
            header = json.loads(file.read(size))
            entries = [(name, entry) for name, entry in header.items() if name != "__metadata__"]
            found = [(name, _DTYPES[entry["dtype"]], *_place(entry)) for name, entry in entries]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise SettingsError(f"{path} is no safetensors file of numbers; write it with safetensors.") from None
    for name, kind, shape, start in found:
        yield name, _tensor(path, kind, shape, 8 + size + start)


def _place(entry: dict[str, Any]) -> tuple[tuple[int, ...], int]:
    """The shape of an array and where its bytes begin, if they are as many as it takes."""
    shape, (start, end) = tuple(map(operator.index, entry["shape"])), map(operator.index, entry["data_offsets"])
    if min(*shape, start) < 0 or end - start != math.prod(shape) * _DTYPES[entry["dtype"]].itemsize:
        raise ValueError
    return shape, start


def _tensor(path: Path, kind: torch.dtype, shape: tuple[int, ...], start: int) -> Tensor:
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return torch.empty(shape, dtype=kind)
    if path.stat().st_size < start + count * kind.itemsize:
        raise SettingsError(f"{path} ends before its last number; copy it again.")
    with open(path, "rb") as file:
        if sys.platform == "linux":
            access: dict[str, int] = {
                "flags": mmap.MAP_PRIVATE | _NO_RESERVE, "prot": mmap.PROT_READ | mmap.PROT_WRITE
            }  # fmt: skip
        else:
            access = {"access": mmap.ACCESS_COPY}
        buffer = mmap.mmap(file.fileno(), 0, **access)
    return torch.frombuffer(buffer, dtype=kind, count=count, offset=start).view(shape)
