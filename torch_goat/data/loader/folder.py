"""A graph as a folder of arrays, which may be larger than memory."""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, EdgeAttr, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from torch_goat.data.loader.arrays import map_arrays
from torch_goat.data.loader.csc import CSC
from torch_goat.settings import SettingsError, nearest

MASKS: Final = ("train_mask", "val_mask", "test_mask")
NAMES: Final = ("x", "y", *MASKS, "edge_index", "indptr", "indices", "edge_attr")
FILE: Final = "graph.safetensors"  # what has all arrays in one
_PIECE, _PIECES = 1 << 16, 1 << 10  # bytes of a file that are read at a time for its digest, and how often at most


class GroupedData(Data):
    """A graph whose edges are grouped by target, as files hold them; it has no ``edge_index``.

    It is a ``GraphStore`` and a ``FeatureStore``, as every ``Data`` is, and PyG's loaders read it as the pair
    ``(data, data)``.

    Args:
        ptr: The edges into node ``t`` are those from ``ptr[t]`` to ``ptr[t + 1]`` ``[N + 1]``.
        source: Their sources ``[E]``.
        **arrays: What else a ``Data`` has.
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
            return self[attr.attr_name].index_select(0, attr.index)  # in half the time of an index in brackets
        return super()._get_tensor(attr)

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        ptr, source = self.__dict__["_grouped"]
        return (source, ptr) if edge_attr.layout == EdgeLayout.CSC else None


def is_graph_folder(path: str | Path) -> bool:
    """Whether there is a folder of arrays."""
    return any((Path(path) / name).is_file() for name in ("x.npy", FILE))


def digest(folder: str | Path) -> str:
    """A SHA-256 by which a change of a folder's arrays is noticed.

    Files up to 64 MiB are read whole. Of larger ones it is their size and 1,024 pieces spread over them evenly, so that
    a graph larger than memory is not read for it; a few numbers changed in such a file may go unnoticed.

    Args:
        folder: The folder.
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
    """Opens a folder of arrays; they stay in their files until they are looked at.

    The arrays are ``x``, ``y``, ``train_mask``, ``val_mask`` and ``test_mask``, the edges as ``edge_index`` (best
    sorted by target) or as ``indptr`` and ``indices`` (the sources of the edges into node ``t`` are ``indices`` from
    ``indptr[t]`` to ``indptr[t + 1]``), and ``edge_attr``. Each is a ``.npy`` file, or all are in
    ``graph.safetensors``. Only ``x`` and the edges must be there.

    Args:
        folder: The folder.
        unchanged: The digest that it must still have; ``None`` opens it as it is.
    """
    folder = Path(folder)
    if not is_graph_folder(folder):
        raise SettingsError(f"{folder} is no folder of arrays: it has neither x.npy nor {FILE}.")
    if unchanged is not None and digest(folder) != unchanged:
        raise SettingsError(
            f"the arrays in {folder} changed since the run was started; put the old ones back or train anew."
        )
    arrays: dict[str, Tensor] = {}
    for path in _files(folder):
        for name, value in map_arrays(path):
            if name not in NAMES:
                raise SettingsError(f"{path} has an array {name!r}, which nothing reads{nearest(name, NAMES)}")
            if name in arrays:
                raise SettingsError(f"{folder} has the array {name!r} twice; remove one of them.")
            arrays[name] = value
    _check(folder, arrays)
    if "edge_index" in arrays:
        return Data(**arrays)
    return GroupedData(arrays.pop("indptr"), arrays.pop("indices"), **arrays)


def write_graph(data: Data, folder: str | Path, *, force: bool = False) -> None:
    """Writes a graph as a folder of arrays, its edges grouped by target.

    Args:
        data: The graph; what :func:`open_graph` reads is written.
        folder: The folder, made if it is not there.
        force: Whether files that are there are replaced.
    """
    folder, csc = Path(folder), CSC.of(data)
    arrays = {"indptr": csc.ptr, "indices": csc.source}
    for name in ("x", "y", *MASKS):
        if data.get(name) is not None:
            arrays[name] = data[name]
    if data.get("edge_attr") is not None:
        arrays["edge_attr"] = data.edge_attr if csc.edge is None else data.edge_attr[csc.edge]
    _check(folder, arrays)
    if wrong := [name for name, value in arrays.items() if value.dtype == torch.bfloat16]:
        raise SettingsError(f"{wrong[0]} is of bfloat16, which .npy files do not have; convert it with .float().")
    there = [name for name in (*(f"{name}.npy" for name in NAMES), FILE) if (folder / name).exists()]
    if there and not force:
        raise SettingsError(f"{folder / there[0]} is there already; choose another folder or write over it (force).")
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Path] = {}
    try:
        for name, value in arrays.items():
            _save(folder, name, value, parts)
        for name, part in parts.items():
            os.replace(part, folder / name)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)  # there, if something went wrong
    for name in {*there} - {*parts}:
        (folder / name).unlink()


def _save(folder: Path, name: str, value: Tensor, parts: dict[str, Path]) -> None:
    """Writes an array beside its place, which is noted first, without a second copy in memory."""
    handle, part = tempfile.mkstemp(dir=folder, prefix=f".{name}.", suffix=".part")
    parts[f"{name}.npy"] = Path(part)
    with os.fdopen(handle, "wb") as file:
        np.lib.format.write_array(file, value.detach().cpu().contiguous().numpy(), allow_pickle=False)
    os.chmod(part, 0o644)


def _check(folder: Path, arrays: dict[str, Tensor]) -> None:
    """Refuses arrays that do not make a graph, by their shapes and types."""
    if "x" not in arrays or not ("edge_index" in arrays or {"indptr", "indices"} <= arrays.keys()):
        raise SettingsError(
            f"{folder} must have the arrays x, and edge_index or indptr and indices; it has {[*arrays]}."
        )
    if "edge_index" in arrays and ("indptr" in arrays or "indices" in arrays):
        raise SettingsError(
            f"{folder} has its edges twice, as edge_index and as indptr and indices; remove one of them."
        )
    nodes = arrays["x"].size(0) if arrays["x"].dim() else 0
    edges = arrays["edge_index"].size(-1) if "edge_index" in arrays else arrays["indices"].numel()
    whole, real, mask = (
        (torch.int64, torch.int32),
        (torch.float32, torch.float64, torch.float16, torch.bfloat16),
        (torch.bool,),
    )
    wanted = {
        "x": ((nodes, -1), real),
        "y": ((nodes,), whole + real),
        **dict.fromkeys(MASKS, ((nodes,), mask)),
        "edge_index": ((2, edges), whole),
        "indptr": ((nodes + 1,), (torch.int64,)),
        "indices": ((edges,), whole),
        "edge_attr": ((edges, -1), real),
    }
    for name, value in arrays.items():
        shape, kinds = wanted[name]
        fits = value.dim() == len(shape) and all(b in (a, -1) for a, b in zip(value.shape, shape, strict=True))
        if not fits or value.dtype not in kinds:
            names = " or ".join(str(kind).removeprefix("torch.") for kind in kinds)
            shown = [size if size >= 0 else "any" for size in shape]
            raise SettingsError(
                f"{folder}: {name} has the shape {list(value.shape)} and the type {value.dtype}, expected {shown} of "
                f"{names}."
            )
