"""The data of the neighbourhood viewer: orders and coefficients of all nodes in little space."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch

from torch_goat.app.explain import Effect, Graph
from torch_goat.app.explain.explanation import in_units, truths
from torch_goat.app.report.measures import degrees
from torch_goat.experiments import NamedGraph
from torch_goat.nn import Ordering
from torch_goat.ops.neighborhoods import neighborhoods

LIMIT: Final = 9_500_000  # bytes; where all nodes would take more, some are left out
SCALE: Final = 2048  # steps of the logarithm of a neighbourhood's largest coefficient, per e-fold


class Arrays:
    """Named arrays in one compressed text."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._places: dict[str, list[Any]] = {}
        self._size = 0

    def add(self, name: str, values: np.ndarray) -> None:
        """Adds an array; the browser reads it by its name as a typed array of the same kind."""
        values = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<")))
        gap = -self._size % 8  # typed arrays begin at a multiple of their width
        self._places[name] = [values.dtype.name, self._size + gap, int(values.size)]
        self._parts.append(bytes(gap) + values.tobytes())
        self._size += gap + values.nbytes

    def add_planes(self, name: str, values: np.ndarray, largest: int) -> None:
        """Adds whole numbers, their low bytes first and then the higher ones, as many as the largest needs."""
        for byte in range(max(1, (int(largest).bit_length() + 7) // 8)):
            self.add(f"{name}.{byte}", (values >> (8 * byte) & 255).astype(np.uint8))

    def add_text(self, name: str, value: Any) -> None:
        """Adds anything that JSON can say."""
        self.add(name, np.frombuffer(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), np.uint8))

    def pack(self) -> dict[str, Any]:
        """The places of the arrays, and all of them, compressed, as text of letters, digits, ``+``, ``/`` and ``=``."""
        packed = zlib.compress(b"".join(self._parts), 9)
        return {"arrays": self._places, "packed": base64.b64encode(packed).decode("ascii")}


def viewer_data(
    named: NamedGraph, out: torch.Tensor, orderings: Sequence[Ordering], effects: Mapping[int, Sequence[Effect]]
) -> dict[str, Any]:
    """All that the viewer shows, for JSON.

    Orders are exact. Coefficients are rounded to 1/255 of the largest one in their neighbourhood. Where this is too
    much, neighbourhoods are left out, but not those of nodes with contributions.

    Args:
        named: The graph.
        out: The network's output ``[N, C]``.
        orderings: The orders of the network's GOAT layers.
        effects: What neighbours contribute, by node.
    """
    graph = Graph.of(named.data)
    nodes = torch.ones(graph.x.size(0), dtype=torch.bool)
    asked = torch.zeros_like(nodes)
    asked[list(effects)] = True
    drawn = torch.rand(graph.x.size(0), generator=torch.Generator().manual_seed(0))
    share = 1.0
    while True:
        packed = _pack(named, graph, out, orderings, effects, nodes)
        size = len(packed["packed"])
        if size <= LIMIT or not bool((nodes & ~asked).any()):  # names and classes may be too much alone
            return packed
        share *= 0.95 * LIMIT / size
        nodes = (drawn < share) | asked


def _pack(
    named: NamedGraph,
    graph: Graph,
    out: torch.Tensor,
    orderings: Sequence[Ordering],
    effects: Mapping[int, Sequence[Effect]],
    nodes: torch.Tensor,
) -> dict[str, Any]:
    arrays = Arrays()
    _add_nodes(arrays, named, out)
    heads = []
    if orderings:
        for number, ordering in enumerate(orderings):
            _add_order(arrays, number, ordering, nodes)
            heads.append(ordering.heads)
    else:
        hood = neighborhoods(graph.edge_index, None, graph.x.size(0), graph.x.size(0), add_self_loops=False)
        kept = nodes[hood.target]
        _add_lists(arrays, 0, hood.target[kept].numpy(), hood.source[kept].numpy(), graph.x.size(0))
    chosen = sorted(effects)
    sizes = [len(effects[node]) for node in chosen]
    arrays.add("chosen", np.array(chosen, np.uint32))
    arrays.add("effect.ptr", np.cumsum([0, *sizes]).astype(np.uint32))
    arrays.add("effect.source", np.array([one.neighbor for node in chosen for one in effects[node]], np.uint32))
    arrays.add("effect.value", np.array([one.contribution for node in chosen for one in effects[node]], np.float32))
    unit = "log-odds" if named.classes else f"units of {named.target or 'the target'}"
    about = {"heads": heads, "unit": unit, "classification": bool(named.classes), "included": int(nodes.sum())}
    return about | {"scale": SCALE} | arrays.pack()


def _add_nodes(arrays: Arrays, named: NamedGraph, out: torch.Tensor) -> None:
    """Names, what the nodes are, what they are predicted to be, and which part of the split they are in."""
    data = named.data
    if any(name != str(number) for number, name in enumerate(named.ids)):
        arrays.add_text("names", named.ids)
    arrays.add_text("classes", named.classes)
    truth = truths(named)
    if named.classes:
        arrays.add("truth", truth.numpy().astype(np.int32))
        arrays.add("predicted", out.argmax(dim=-1).numpy().astype(np.int32))
        arrays.add("probability", (1000 * out.softmax(dim=-1).amax(dim=-1)).round().numpy().astype(np.uint16))
    else:
        arrays.add("truth", truth.numpy().astype(np.float32))
        arrays.add("predicted", in_units(named, out[:, 0]).numpy().astype(np.float32))
    part = torch.stack([data.train_mask, data.val_mask, data.test_mask]).to(torch.uint8)  # [3, N]
    arrays.add("split", (part * torch.tensor([[1], [2], [3]])).sum(dim=0).numpy().astype(np.uint8))
    arrays.add("degree", degrees(data).numpy().astype(np.uint32))


def _add_lists(arrays: Arrays, number: int, target: np.ndarray, source: np.ndarray, num_nodes: int) -> None:
    """Every node's neighbours, ascending; stored as steps from one to the next."""
    arrays.add(f"list{number}.count", np.bincount(target, minlength=num_nodes).astype(np.uint32))
    step = np.diff(source, prepend=0)
    first = np.diff(target, prepend=-1) != 0
    step[first] = source[first]
    arrays.add_planes(f"list{number}.step", step, num_nodes)


def _add_order(arrays: Arrays, number: int, ordering: Ordering, nodes: torch.Tensor) -> None:
    """The order of every head as places in the node's list, and its coefficients."""
    target = torch.repeat_interleave(ordering.ptr.diff(), output_size=ordering.token.size(1))
    kept = nodes[target]
    target, token = target[kept], ordering.token[:, kept]
    weight = ordering.weight[:, kept].float().numpy()  # [K, e]
    known, place = token.unique(return_inverse=True)  # tokens go up with the target, and with the source within one
    source = torch.empty_like(known)
    source[place.view(-1)] = ordering.source[:, kept].reshape(-1)
    owner = torch.empty_like(known)
    owner[place.view(-1)] = target.expand_as(token).reshape(-1)
    _add_lists(arrays, number, owner.numpy(), source.numpy(), ordering.num_nodes)
    begin = torch.searchsorted(owner, torch.arange(ordering.num_nodes))
    place = (place - begin[target]).numpy()  # [K, e]
    run = np.flatnonzero(np.diff(target.numpy(), prepend=-1))
    arrays.add(f"order{number}.count", np.bincount(target.numpy(), minlength=ordering.num_nodes).astype(np.uint32))
    largest = weight[:, run]  # [K, n], the first of every neighbourhood, where there is one
    rounded = -np.log(np.maximum(largest, np.exp(-65535 / SCALE))) * SCALE
    level = np.rint(np.clip(weight / np.repeat(largest, np.diff([*run, weight.shape[1]]), axis=1), 0, 1) * 255)
    for head in range(ordering.heads):
        arrays.add_planes(f"order{number}.{head}", place[head], int(place.max(initial=0)))
        arrays.add(f"weight{number}.{head}", np.diff(level[head].astype(np.uint8), prepend=np.uint8(0)))
        arrays.add(f"largest{number}.{head}", np.rint(rounded[head]).astype(np.uint16))
