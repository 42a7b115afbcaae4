"""The layers that ``layer.py`` measures, by name, in each configuration of heads and channels."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from graphs import Graph
from torch.nn import LSTM, Module
from torch_geometric.nn import GATConv, GATv2Conv, PNAConv, SAGEConv, TransformerConv

from torch_goat.nn import GOATConv

CONFIGURATIONS = ("8x8", "8x16", "4x64", "1x256", "1x512")
BASE, OURS = "GATConv", "GOATConv"
NEW_GRAPH = "new graph"
# Above these, a layer takes minutes or does not fit, and is left out.
PACKED_STEPS = {"cpu": 2e5, "cuda": 1e6}  # of all heads, of PyTorch's LSTM over packed sequences
PACKED_LONGEST = 5000  # of one sequence
PADDED_OPERATIONS = {"cpu": 1e12, "cuda": 1e15}  # of PyG's LSTM aggregation, forward and backward
PADDED_GIGABYTES = {"cpu": 4, "cuda": 40}
CPU_OPERATIONS = 2e12  # of a recurrence, forward and backward


class Configuration(NamedTuple):
    heads: int
    channels: int

    @classmethod
    def parse(cls, name: str) -> "Configuration":
        heads, channels = name.split("x")
        return cls(int(heads), int(channels))

    @property
    def name(self) -> str:
        return f"{self.heads}x{self.channels}"

    @property
    def width(self) -> int:
        """Of the input and of the output."""
        return self.heads * self.channels


def packed(in_channels: int, out_channels: int) -> Module:
    """What one would write by hand: PyTorch's own LSTM over a packed sequence, one head after the other."""
    return LSTM(in_channels, out_channels // 2, bidirectional=True)


def subjects(graph: Graph, configuration: Configuration, device: torch.device) -> dict[str, Callable[[], Module] | str]:
    """The layers to measure by name, or why one is left out. GOATConv comes first, then its variants."""
    heads, channels = configuration
    width = configuration.width
    goat = partial(GOATConv, width, channels, heads)
    found: dict[str, Callable[[], Module] | str] = {
        BASE: partial(GATConv, width, channels, heads),
        OURS: goat,
        f"{OURS}.paper": partial(GOATConv.paper, width, channels, heads),
        f"{OURS}, {NEW_GRAPH} each call": goat,
        f"{OURS}, order_noise": partial(goat, order_noise=0.2),
        **{f"{OURS}, {cell}": partial(goat, rnn=cell) for cell in ("gru", "mingru", "minlstm")},
        f"{BASE}, compiled": partial(_compiled_gat, configuration),
        "GATv2Conv": partial(GATv2Conv, width, channels, heads),
        "TransformerConv": partial(TransformerConv, width, channels, heads),
        "PNAConv": partial(_pna, graph, width),
        "SAGEConv, lstm": partial(SAGEConv, width, width, aggr="lstm"),
        f"{OURS}, packed nn.LSTM": partial(goat, rnn=packed),
    }
    return found | _left_out(graph, configuration, device)


def _compiled_gat(configuration: Configuration) -> Module:
    torch.compiler.reset()  # else the compiler gives up after a few layers of the same class
    return torch.compile(GATConv(configuration.width, configuration.channels, configuration.heads))


def _pna(graph: Graph, width: int) -> Module:
    degree = torch.bincount(torch.bincount(graph.edge_index[1], minlength=graph.num_nodes))
    scalers = ["identity", "amplification", "attenuation"]
    return PNAConv(width, width, ["mean", "min", "max", "std"], scalers, degree)


def _left_out(graph: Graph, configuration: Configuration, device: torch.device) -> dict[str, str]:
    """Why layers that would take minutes are not measured, by name."""
    kind, reasons = device.type, {}
    num_edges, longest, width = graph.edge_index.size(1), graph.largest_degree, configuration.width
    padded = graph.num_nodes * longest
    operations, gigabytes = padded * 3 * 16 * width**2, padded * 6 * width * 4 / 1e9
    if gigabytes > PADDED_GIGABYTES[kind] or operations > PADDED_OPERATIONS[kind]:
        reasons["SAGEConv, lstm"] = f"its padded sequences have {padded:.0e} steps of width {width}"
    steps = num_edges * configuration.heads
    if longest > PACKED_LONGEST or steps > PACKED_STEPS[kind]:
        reasons[f"{OURS}, packed nn.LSTM"] = f"{steps:.0e} steps, the longest sequence {longest + 1}, take minutes"
    recurrence = num_edges * configuration.heads * 3 * 16 * (configuration.channels // 2) ** 2
    if kind == "cpu" and recurrence > CPU_OPERATIONS:
        variants = (".paper", f", {NEW_GRAPH} each call", ", order_noise", ", gru")
        for variant in variants:
            reasons[OURS + variant] = f"{recurrence:.0e} operations take minutes"
    return reasons
