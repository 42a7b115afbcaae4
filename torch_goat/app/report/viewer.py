"""The data of the neighbourhood viewer: orders and coefficients of all nodes, compressed."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch_geometric.utils import sort_edge_index

from torch_goat.app.explain import Effect, Feature, Interaction
from torch_goat.app.report.measures import degrees
from torch_goat.experiments import NamedGraph
from torch_goat.nn import Ordering

LIMIT: Final = 9_500_000  # bytes; neighbourhoods beyond it are left out
MAX_VALUES: Final = 1_000_000  # values of columns that are shown with the nodes
SCALE: Final = 2048  # resolution of the logarithm of the largest coefficient of a neighbourhood, in steps per e-fold


class Arrays:
    """Named arrays in one compressed text."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._places: dict[str, list[Any]] = {}
        self._size = 0

    def add(self, name: str, values: np.ndarray, kind: type[np.generic] | None = None) -> None:
        """Adds an array, which the browser reads as a typed array of the same type."""
        values = values if kind is None else values.astype(kind)
        values = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<")))
        gap = -self._size % 8  # typed arrays must be aligned
        self._places[name] = [values.dtype.name, self._size + gap, int(values.size)]
        self._parts.append(bytes(gap) + values.tobytes())
        self._size += gap + values.nbytes

    def add_planes(self, name: str, values: np.ndarray, largest: int) -> None:
        """Adds nonnegative integers as one array per byte, the lowest bytes first, which compresses better."""
        for byte in range(max(1, (int(largest).bit_length() + 7) // 8)):
            self.add(f"{name}.{byte}", values >> (8 * byte) & 255, np.uint8)

    def add_text(self, name: str, value: Any) -> None:
        """Adds a JSON value."""
        self.add(name, np.frombuffer(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), np.uint8))

    def pack(self) -> dict[str, Any]:
        """The places of the arrays, and all arrays compressed as base64."""
        packed = zlib.compress(b"".join(self._parts), 9)
        return {"arrays": self._places, "packed": base64.b64encode(packed).decode("ascii")}


def viewer_data(
    graph: NamedGraph,
    out: torch.Tensor,
    orderings: Sequence[Ordering],
    effects: Mapping[int, Sequence[Effect]],
    interactions: Mapping[int, Sequence[Interaction]] | None = None,
    columns: Sequence[Feature] = (),
) -> dict[str, Any]:
    """The data of the viewer, for JSON.

    Orders are exact; coefficients are rounded to 1/255 of the largest one in their neighbourhood. If the data exceed
    the limit, some neighbourhoods are left out, but never those of nodes with contributions (``effects``). The values
    of ``columns`` are those of the tables.
    """
    num_nodes = graph.data.num_nodes
    included = torch.ones(num_nodes, dtype=torch.bool)
    required = torch.zeros_like(included)
    required[list(effects)] = True
    drawn = torch.rand(num_nodes, generator=torch.Generator().manual_seed(0))
    share = 1.0
    while True:
        packed = _pack(graph, out, orderings, effects, interactions or {}, columns, included)
        size = len(packed["packed"])
        if size <= LIMIT or not bool((included & ~required).any()):  # names and classes alone may exceed it
            return packed
        share *= 0.95 * LIMIT / size
        included = (drawn < share) | required


def _pack(
    graph: NamedGraph,
    out: torch.Tensor,
    orderings: Sequence[Ordering],
    effects: Mapping[int, Sequence[Effect]],
    interactions: Mapping[int, Sequence[Interaction]],
    columns: Sequence[Feature],
    included: torch.Tensor,
) -> dict[str, Any]:
    arrays = Arrays()
    _add_nodes(arrays, graph, out)
    _add_values(arrays, graph, columns[: MAX_VALUES // max(1, graph.data.num_nodes)])
    for number, ordering in enumerate(orderings):
        _add_order(arrays, number, ordering, included)
    if not orderings:
        num_nodes = graph.data.num_nodes
        source, target = sort_edge_index(graph.data.edge_index, num_nodes=num_nodes, sort_by_row=False)
        kept = included[target]
        _add_lists(arrays, 0, target[kept].numpy(), source[kept].numpy(), num_nodes)
    chosen = sorted(effects)
    flat = [one for node in chosen for one in effects[node]]
    arrays.add("chosen", np.array(chosen), np.uint32)
    arrays.add("effect.ptr", np.cumsum([0, *(len(effects[node]) for node in chosen)]), np.uint32)
    arrays.add("effect.source", np.array([one.neighbor for one in flat]), np.uint32)
    arrays.add("effect.value", np.array([one.contribution for one in flat]), np.float32)
    pairs = [one for node in chosen for one in interactions.get(node, ())]
    arrays.add("pair.ptr", np.cumsum([0, *(len(interactions.get(node, ())) for node in chosen)]), np.uint32)
    arrays.add("pair.first", np.array([one.first for one in pairs]), np.uint32)
    arrays.add("pair.second", np.array([one.second for one in pairs]), np.uint32)
    arrays.add("pair.value", np.array([one.value for one in pairs]), np.float32)
    about = {
        "heads": [ordering.heads for ordering in orderings],
        "unit": "log-odds" if graph.classes else f"units of {graph.target or 'the target'}",
        "classification": bool(graph.classes),
        "digits": graph.digits,
        "included": int(included.sum()),
        "scale": SCALE,
    }
    return about | arrays.pack()


def _add_nodes(arrays: Arrays, graph: NamedGraph, out: torch.Tensor) -> None:
    """Names, labels, predictions, split and degree of all nodes."""
    data = graph.data
    if any(name != str(number) for number, name in enumerate(graph.ids)):
        arrays.add_text("names", graph.ids)
    arrays.add_text("classes", graph.classes)
    kind = np.int32 if graph.classes else np.float32 if graph.digits < 7 else np.float64
    arrays.add("truth", graph.truth.numpy(), kind)
    if graph.classes:
        predicted = graph.decision.classes(out)
        share = graph.decision.probabilities(out).gather(1, predicted.view(-1, 1)).view(-1)
        arrays.add("predicted", predicted.numpy(), kind)
        arrays.add("probability", (1000 * share).round().numpy(), np.uint16)
    else:
        arrays.add("predicted", graph.in_units(out[:, 0]).numpy(), kind)
    split = 1 * data.train_mask + 2 * data.val_mask + 3 * data.test_mask
    arrays.add("split", split.numpy(), np.uint8)
    arrays.add("degree", degrees(data).numpy(), np.uint32)


def _add_values(arrays: Arrays, graph: NamedGraph, columns: Sequence[Feature]) -> None:
    """The values of columns of all nodes: numbers, or the places of categories in a list; missing ones are NaN."""
    described = []
    for number, feature in enumerate(columns):
        part, column = graph.data.x[:, feature.start : feature.end].double(), feature.column
        kind = "number" if column is None else column.kind
        if column is not None and kind == "category":
            part = part[:, : len(column.categories)]
            values = torch.where(part.any(dim=1), part.argmax(dim=1) if part.size(1) else 0, torch.nan)
        else:
            values = part[:, 0]
            if column is not None and kind != "flag":
                values = values * column.scale + column.mean
            if column is not None and column.missing:
                values = values.masked_fill(part[:, -1] == 1, torch.nan)
        described.append({"name": feature.name, "kind": kind, "categories": column.categories if column else ()})
        arrays.add(f"value{number}", values.numpy(), np.float32)
    arrays.add_text("columns", described)


def _add_lists(arrays: Arrays, number: int, target: np.ndarray, source: np.ndarray, num_nodes: int) -> None:
    """The neighbours of every node in ascending order, as differences."""
    arrays.add(f"list{number}.count", np.bincount(target, minlength=num_nodes), np.uint32)
    step = np.diff(source, prepend=0)
    first = np.diff(target, prepend=-1) != 0
    step[first] = source[first]
    arrays.add_planes(f"list{number}.step", step, num_nodes)


def _add_order(arrays: Arrays, number: int, ordering: Ordering, included: torch.Tensor) -> None:
    """The order of every head as positions in the node's list of neighbours, and the coefficients."""
    target = torch.repeat_interleave(ordering.ptr.diff(), output_size=ordering.token.size(1))
    kept = included[target]
    target, token = target[kept], ordering.token[:, kept]
    weight = ordering.weight[:, kept].float().numpy()  # [K, e]
    known, place = token.unique(return_inverse=True)  # tokens are sorted by target, then by source
    source = torch.empty_like(known)
    source[place.view(-1)] = ordering.source[:, kept].reshape(-1)
    owner = torch.empty_like(known)
    owner[place.view(-1)] = target.expand_as(token).reshape(-1)
    _add_lists(arrays, number, owner.numpy(), source.numpy(), ordering.num_nodes)
    begin = torch.searchsorted(owner, torch.arange(ordering.num_nodes))
    place = (place - begin[target]).numpy()  # [K, e]
    start = np.flatnonzero(np.diff(target.numpy(), prepend=-1))  # of every nonempty neighbourhood
    arrays.add(f"order{number}.count", np.bincount(target.numpy(), minlength=ordering.num_nodes), np.uint32)
    largest = weight[:, start]  # [K, n]
    exponent = np.rint(-np.log(np.maximum(largest, np.exp(-65535 / SCALE))) * SCALE)
    level = np.rint(np.clip(weight / np.repeat(largest, np.diff([*start, weight.shape[1]]), axis=1), 0, 1) * 255)
    for head in range(ordering.heads):
        arrays.add_planes(f"order{number}.{head}", place[head], int(place.max(initial=0)))
        arrays.add(f"weight{number}.{head}", np.diff(level[head].astype(np.uint8), prepend=np.uint8(0)))
        arrays.add(f"largest{number}.{head}", exponent[head], np.uint16)
