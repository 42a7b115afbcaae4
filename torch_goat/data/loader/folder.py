"""Graphs stored as folders of arrays, which are mapped into memory and may be larger than it."""

import hashlib
import json
import math
import mmap
import os
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch_geometric.data import Data, EdgeAttr, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from torch_goat.data.loader.csc import CSC
from torch_goat.settings import SettingsError, nearest

MASKS: Final = ("train_mask", "val_mask", "test_mask")
NAMES: Final = ("x", "y", *MASKS, "edge_index", "indptr", "indices", "edge_attr")
FILE: Final = "graph.safetensors"  # holds all arrays of a folder
_INTEGER: Final = {"I64": torch.int64, "I32": torch.int32}
_REAL: Final = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16}
_DTYPES: Final = _INTEGER | _REAL | {"BOOL": torch.bool}  # by their names in safetensors
_PIECE, _PIECES = 1 << 16, 1 << 10  # size in bytes and maximum number of the samples that make up a file's digest
_NO_RESERVE: Final = 0x4000  # MAP_NORESERVE: without it, Linux refuses writable mappings larger than memory


class GroupedData(Data):
    """A graph whose edges are grouped by target (see :class:`CSC`) instead of listed in ``edge_index``.

    Like every ``Data`` it is both a ``GraphStore`` and a ``FeatureStore``; PyG's loaders accept it as ``(data, data)``.
    """

    def __init__(self, ptr: Tensor | None = None, source: Tensor | None = None, **arrays: Any) -> None:
        super().__init__(**arrays)
        empty = torch.zeros(1, dtype=torch.long)
        self.__dict__["_grouped"] = empty if ptr is None else ptr, empty[:0] if source is None else source

    @property
    def num_edges(self) -> int:
        return self.__dict__["_grouped"][1].numel()

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        size = (self.num_nodes, self.num_nodes)
        return [EdgeAttr(edge_type=None, layout=EdgeLayout.CSC, is_sorted=True, size=size)]

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        names = (name for name in self._store.keys() if self._store.is_node_attr(name))  # noqa: SIM118
        return [TensorAttr(group_name=None, attr_name=name) for name in names]

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        if isinstance(attr.index, Tensor) and attr.index.dtype == torch.long:
            return self[attr.attr_name].index_select(0, attr.index)  # twice as fast as indexing with brackets
        return super()._get_tensor(attr)

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        ptr, source = self.__dict__["_grouped"]
        return (source, ptr) if edge_attr.layout == EdgeLayout.CSC else None


def is_graph_folder(path: str | Path) -> bool:
    """Whether a path is a folder that :func:`open_graph` can open."""
    return any((Path(path) / name).is_file() for name in ("x.npy", FILE))


def digest(folder: str | Path) -> str:
    """A SHA-256 of a folder's arrays, to detect changes.

    Files up to 64 MiB are read completely. Of larger files, the size and 1,024 evenly spaced samples of 64 KiB are
    read, so that small changes in a large file may go unnoticed.
    """
    found = hashlib.sha256()
    for path in _files(Path(folder)):
        size = path.stat().st_size
        found.update(f"{path.name} {size}\n".encode())
        with open(path, "rb") as file:
            for number in range(min(_PIECES, -(-size // _PIECE))):
                spread = number * (size - _PIECE) // (_PIECES - 1) if size > _PIECES * _PIECE else number * _PIECE
                file.seek(spread)
                found.update(file.read(_PIECE))
    return found.hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.npy"), *folder.glob(FILE)])


def open_graph(folder: str | Path, *, unchanged: str | None = None) -> Data:
    """Opens a folder of arrays as a graph; pages are read from disk on access.

    The arrays are ``x``, ``y``, ``train_mask``, ``val_mask``, ``test_mask``, ``edge_attr``, and the edges as
    ``edge_index`` (preferably sorted by target) or as ``indptr`` and ``indices`` (the sources of the edges into node
    ``t`` are ``indices[indptr[t] : indptr[t + 1]]``). Each is a ``.npy`` file, or all are in ``graph.safetensors``.
    Only ``x`` and the edges are required. In-place changes to a tensor are never written to the file, and no file is
    unpickled.

    Args:
        folder: The folder.
        unchanged: The digest that the folder must have; ``None`` accepts any.
    """
    folder = Path(folder)
    if not is_graph_folder(folder):
        raise SettingsError(f"{folder} is not a folder of arrays: it has neither x.npy nor {FILE}.")
    if unchanged is not None and digest(folder) != unchanged:
        raise SettingsError(
            f"the arrays in {folder} changed since the run was started; restore them or start a new run."
        )
    arrays: dict[str, Tensor] = {}
    for path in _files(folder):
        for name, value in [(path.stem, _open_npy(path))] if path.suffix == ".npy" else _open_safetensors(path):
            if name not in NAMES:
                raise SettingsError(f"{path} contains the unknown array {name!r}{nearest(name, NAMES)}")
            if name in arrays:
                raise SettingsError(f"{folder} contains the array {name!r} twice; remove one of them.")
            arrays[name] = value
    _check(folder, arrays)
    if "edge_index" in arrays:
        return Data(**arrays)
    return GroupedData(arrays.pop("indptr"), arrays.pop("indices"), **arrays)


def write_graph(data: Data, folder: str | Path, *, force: bool = False) -> None:
    """Writes a graph as a folder of arrays for :func:`open_graph`, with its edges grouped by target; ``force`` replaces
    existing files."""
    folder, csc = Path(folder), CSC.of(data)
    arrays = {"indptr": csc.ptr, "indices": csc.source}
    arrays |= {name: data[name] for name in ("x", "y", *MASKS) if data.get(name) is not None}
    if data.get("edge_attr") is not None:
        arrays["edge_attr"] = data.edge_attr if csc.edge is None else data.edge_attr[csc.edge]
    _check(folder, arrays)
    if wrong := [name for name, value in arrays.items() if value.dtype == torch.bfloat16]:
        raise SettingsError(f"{wrong[0]} is bfloat16, which .npy files do not support; convert it with .float().")
    existing = [name for name in (*(f"{name}.npy" for name in NAMES), FILE) if (folder / name).exists()]
    if existing and not force:
        raise SettingsError(f"{folder / existing[0]} already exists; choose another folder or overwrite it (force).")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as part:
        for name, value in arrays.items():
            np.save(Path(part, f"{name}.npy"), value.detach().cpu().contiguous().numpy(), allow_pickle=False)
        for name in arrays:
            os.replace(Path(part, f"{name}.npy"), folder / f"{name}.npy")
    for name in {*existing} - {f"{name}.npy" for name in arrays}:
        (folder / name).unlink()


def _check(folder: Path, arrays: dict[str, Tensor]) -> None:
    """Raises an error unless the arrays have the names, shapes and types of a graph."""
    if "x" not in arrays or not ("edge_index" in arrays or {"indptr", "indices"} <= arrays.keys()):
        raise SettingsError(f"{folder} must contain x, and edge_index or indptr and indices; found {[*arrays]}.")
    if "edge_index" in arrays and ("indptr" in arrays or "indices" in arrays):
        raise SettingsError(
            f"{folder} contains its edges twice, as edge_index and as indptr and indices; remove one of them."
        )
    nodes = arrays["x"].size(0) if arrays["x"].dim() else 0
    edges = arrays["edge_index"].numel() // 2 if "edge_index" in arrays else arrays["indices"].numel()
    integer, real = tuple(_INTEGER.values()), tuple(_REAL.values())
    expected = {
        "x": ((nodes, -1), real),
        "y": ((nodes,), integer + real),
        **dict.fromkeys(MASKS, ((nodes,), (torch.bool,))),
        "edge_index": ((2, edges), integer),
        "indptr": ((nodes + 1,), (torch.int64,)),
        "indices": ((edges,), integer),
        "edge_attr": ((edges, -1), real),
    }
    for name, value in arrays.items():
        shape, dtypes = expected[name]
        fits = value.dim() == len(shape) and all(b in (a, -1) for a, b in zip(value.shape, shape, strict=True))
        if not fits or value.dtype not in dtypes:
            names = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            shown = [size if size >= 0 else "any" for size in shape]
            raise SettingsError(
                f"{folder}: {name} has shape {list(value.shape)} and type {value.dtype}, expected {shown} of {names}."
            )


def _open_npy(path: Path) -> Tensor:
    try:
        array = np.lib.format.open_memmap(path, mode="r")  # reads and checks the header, never unpickles
        dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
    except (ValueError, TypeError, OverflowError, SyntaxError, tokenize.TokenError) as error:
        raise SettingsError(f"{path} is not an intact array of numbers ({error}); write it with numpy.save.") from None
    if not array.flags.c_contiguous:
        raise SettingsError(f"{path} is stored column by column; save numpy.ascontiguousarray of it.")
    return _map(path, dtype, array.shape, array.offset)


def _open_safetensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(path, framework="np"):  # checks the header against the size of the file
            pass
    except SafetensorError as error:
        raise SettingsError(f"{path} is not an intact safetensors file ({error}); write it with safetensors.") from None
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    for name, entry in header.items():
        if name != "__metadata__":
            if entry["dtype"] not in _DTYPES:
                raise SettingsError(f"{path}: {name} has the unsupported type {entry['dtype']}.")
            yield name, _map(path, _DTYPES[entry["dtype"]], entry["shape"], 8 + size + entry["data_offsets"][0])


def _map(path: Path, dtype: torch.dtype, shape: tuple[int, ...], offset: int) -> Tensor:
    """Maps a part of a file copy-on-write: neither NumPy nor safetensors can do so for files larger than memory."""
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    access = {"access": mmap.ACCESS_COPY}
    if sys.platform == "linux":
        access = {"flags": mmap.MAP_PRIVATE | _NO_RESERVE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
    with open(path, "rb") as file:
        buffer = mmap.mmap(file.fileno(), 0, **access)
    return torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset).view(shape)
