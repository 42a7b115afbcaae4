"""The layers are PyG's own, given the same weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.nn import GIN, MLP, GATConv, GATv2Conv, GCNConv, PNAConv, SAGEConv

from tests.experiments.models.cases import DEGREE, IN, OUT, N, graph, network
from torch_goat.experiments.models import ModelOptions, Network, degree_histogram, paper_network
from torch_goat.experiments.models.layers import SumOfHeads
from torch_goat.nn import GOATConv, RNNAggregation, goat_conv
from torch_goat.ops.neighborhoods import Neighborhoods
from torch_goat.ops.selection import random_order

WIDTH, HEADS, EDGE_DIM = 6, 4, 2
PNA: dict[str, Any] = {"aggregators": ["sum", "max"], "scalers": ["identity", "linear"], "deg": DEGREE}

STACKS: dict[str, tuple[dict[str, Any], Callable[[], list[Module]]]] = {
    "gcn": ({}, lambda: [GCNConv(IN, WIDTH), GCNConv(WIDTH, OUT)]),
    "sage-mean": ({}, lambda: [SAGEConv(IN, WIDTH), SAGEConv(WIDTH, OUT)]),
    "sage-max": ({}, lambda: [SAGEConv(IN, WIDTH, aggr="max"), SAGEConv(WIDTH, OUT, aggr="max")]),
    "gat": (
        {"heads": HEADS, "attention_dropout": 0.3},
        lambda: [
            GATConv(IN, WIDTH, HEADS, dropout=0.3, edge_dim=EDGE_DIM),
            GATConv(HEADS * WIDTH, OUT, dropout=0.3, edge_dim=EDGE_DIM),
        ],
    ),
    "gatv2": (
        {"heads": HEADS, "head_pooling": "mean", "attention_dropout": 0.3},
        lambda: [GATv2Conv(IN, WIDTH, HEADS, concat=False, dropout=0.3), GATv2Conv(WIDTH, OUT, dropout=0.3)],
    ),
    "pna": (
        {"aggregators": ("sum", "max"), "scalers": ("identity", "linear")},
        lambda: [PNAConv(IN, WIDTH, **PNA), PNAConv(WIDTH, OUT, **PNA)],
    ),
}


def chain(layers: list[Module], x: Tensor, *edges: Tensor, dropout: float, training: bool) -> Tensor:
    first, second = layers
    x = F.elu(first(F.dropout(x, dropout, training), *edges))
    return second(F.dropout(x, dropout, training), *edges)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", STACKS)
def test_baselines_are_pygs_layers(name: str, training: bool) -> None:
    values, stack = STACKS[name]
    x, *edges = graph()
    edges += [torch.randn(edges[0].size(1), EDGE_DIM)] if name == "gat" else []
    edge_dim = EDGE_DIM if name == "gat" else 0
    model, layers = network(name, edge_dim, hidden_channels=WIDTH, **values).train(training), stack()
    for ours, theirs in zip(model.layers, layers, strict=True):
        assert all(map(torch.equal, ours.buffers(), theirs.buffers()))  # the mean degrees of pna
        theirs.load_state_dict(ours.state_dict())
        theirs.train(training)
    torch.manual_seed(7)
    out = model(x, *edges)
    torch.manual_seed(7)
    expected = chain(layers, x, *edges, dropout=0.5, training=training)
    exact = {"rtol": 0.0, "atol": 0.0} if name != "sage-mean" else {}  # which projects before it averages
    torch.testing.assert_close(out, expected, **exact)


@pytest.mark.parametrize("edge_dim", [0, EDGE_DIM])
@pytest.mark.parametrize("pooling", ["cat", "sum"])
def test_gat_with_the_nodes_own_state_next_to_its_neighbours(pooling: str, edge_dim: int) -> None:
    model = network("gat", edge_dim, hidden_channels=WIDTH, heads=HEADS, head_pooling=pooling, separate_self=True)
    x, edge_index = graph()
    edge_attr = (torch.randn(edge_index.size(1), edge_dim),) if edge_dim else ()
    out, states = model.eval()(x, edge_index, *edge_attr), x
    for number, (layer, join) in enumerate(zip(model.layers, model.joins, strict=True)):
        conv = layer.conv if isinstance(layer, SumOfHeads) else layer
        read = []
        for node in range(N):  # one softmax over the sources of each node's edges, by hand
            into = (edge_index[1] == node).nonzero().view(-1)
            projected = conv.lin(states).view(N, conv.heads, -1)
            source = (projected[edge_index[0, into]] * conv.att_src).sum(-1)
            score = source + (projected[node] * conv.att_dst).sum(-1)  # [edges, heads]
            if edge_dim:
                read_edges = conv.lin_edge(edge_attr[0][into]).view(len(into), conv.heads, conv.out_channels)
                score = score + (read_edges * conv.att_edge).sum(-1)
            weight = F.leaky_relu(score, 0.2).softmax(dim=0).unsqueeze(-1)
            mean = (weight * projected[edge_index[0, into]]).sum(dim=0)  # [heads, width]; zeros without edges
            read.append((mean.sum(dim=0) if pooling == "sum" and not number else mean.flatten()) + layer.bias)
        states = torch.cat([states, torch.stack(read)], dim=1) @ join.weight.t() + join.bias
        states = states if number else F.elu(states)
    torch.testing.assert_close(out, states)


def test_goat_with_the_nodes_own_state_next_to_its_neighbours() -> None:
    model = network("goat", hidden_channels=WIDTH, heads=2, last="gcn", separate_self=True).eval()
    x, edge_index = graph()
    conv = GOATConv(IN, WIDTH, heads=2, add_self_loops=False, backend="torch").eval()
    conv.load_state_dict(model.layers[0].state_dict())
    join = model.joins[0]
    states = F.elu(F.linear(torch.cat([x, conv(x, edge_index)], dim=1), join.weight, join.bias))
    torch.testing.assert_close(model(x, edge_index), model.layers[1](states, edge_index))  # gcn has no self to separate


def test_the_residual_is_pygs() -> None:
    model = network("gat", num_layers=1, residual=True)
    theirs = GATConv(IN, OUT, residual=True)
    theirs.load_state_dict(model.layers[0].state_dict() | {"res.weight": model.residuals[0].weight})
    x, edge_index = graph()
    torch.manual_seed(7)
    out = model(x, edge_index)
    torch.manual_seed(7)
    torch.testing.assert_close(out, theirs(F.dropout(x, 0.5), edge_index))


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_gin_is_pygs(norm: str) -> None:
    model = network("gin", hidden_channels=WIDTH, norm=norm, dropout=0.0)
    names = {"none": (None, {}), "batch": ("batch_norm", {}), "layer": ("layer_norm", {"mode": "node"})}
    theirs = GIN(IN, WIDTH, 2, OUT, act="elu", norm=names[norm][0], norm_kwargs=names[norm][1])
    theirs.convs.load_state_dict(model.layers.state_dict())
    theirs.norms.load_state_dict(model.norms.state_dict() if norm != "none" else {})
    x, edge_index = graph()
    for training in (True, False):  # the first moves the running statistics of both
        assert torch.equal(model.train(training)(x, edge_index), theirs.train(training)(x, edge_index))


def test_mlp_is_pygs_and_reads_no_edges() -> None:
    model = network("mlp", hidden_channels=WIDTH, num_layers=3).eval()
    theirs = MLP([IN, WIDTH, WIDTH, OUT], act="elu", norm=None)
    theirs.lins.load_state_dict(model.layers.state_dict())
    x, edge_index = graph()
    assert torch.equal(model(x, edge_index), theirs(x))
    assert torch.equal(model(x, edge_index), model(x, edge_index[:, :3]))


@pytest.mark.parametrize("rnn", ["lstm", "gru", "minlstm"])
def test_sage_lstm_is_pygs_layer_with_our_aggregation(rnn: str) -> None:
    model = network("sage-lstm", hidden_channels=WIDTH, rnn=rnn).eval()
    x, edge_index = graph()
    hood = Neighborhoods.from_edge_index(edge_index, N, add_self_loops=False)
    ordered = edge_index[:, hood.edge[random_order(hood, fresh=False)]]  # SAGEConv reads edges as they come
    layers = []
    for ours, width, out in zip(model.layers, (IN, WIDTH), (WIDTH, OUT), strict=True):
        layers.append(SAGEConv(width, out, aggr=RNNAggregation(width, width, rnn, backend="torch")))
        layers[-1].load_state_dict(ours.state_dict())
    torch.testing.assert_close(model(x, edge_index), chain(layers, x, ordered, dropout=0.0, training=False))


@pytest.mark.parametrize("conv", [GATConv, GATv2Conv])
def test_summed_heads(conv: type[Module]) -> None:
    layer = SumOfHeads(conv(IN, WIDTH, HEADS, concat=False, bias=False))
    torch.nn.init.normal_(layer.bias)
    apart = conv(IN, WIDTH, HEADS, concat=True, bias=False)
    apart.load_state_dict(layer.conv.state_dict())
    x, edge_index = graph()
    expected = apart(x, edge_index).view(N, HEADS, WIDTH).sum(dim=1) + layer.bias
    torch.testing.assert_close(layer(x, edge_index), expected)
    model = network("gat", heads=HEADS, head_pooling="sum")
    assert isinstance(model.layers[0], SumOfHeads)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("second", ["gat", "gcn"])
@pytest.mark.parametrize("regression", [False, True])
def test_the_papers_network_is_the_papers_chain(second: str, regression: bool, training: bool) -> None:
    shared: dict[str, Any] = {"head_pooling": "sum", "rnn": "gru", "attention": "gatv2", "backend": "torch"}
    wide = {"input_channels": 7, "second_channels": 4} if regression else {}
    model = paper_network(IN, 8, OUT, heads=2, second=second, dropout=0.4, **wide, **shared).train(training)
    goat = GOATConv(7 if regression else IN, 8, heads=2, dropout=0.4, **shared)
    width = 4 if regression else OUT
    last = GATConv(8, width, dropout=0.4) if second == "gat" else GCNConv(8, width)
    for ours, theirs in zip(model.layers, (goat, last), strict=True):
        theirs.load_state_dict(ours.state_dict())
        theirs.train(training)
    x, edge_index = graph()
    torch.manual_seed(7)
    out, orderings = model(x, edge_index, return_orderings=True)
    torch.manual_seed(7)
    x = model.encoder(x) if regression else x
    x, ordering = goat(F.dropout(x, 0.4, training), edge_index, return_ordering=True)
    x = last(F.dropout(F.elu(x), 0.4, training), edge_index)
    torch.testing.assert_close(out, model.output(F.elu(x)) if regression else x)
    assert orderings == [ordering]


def test_the_papers_network_refuses_what_it_cannot_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="'gat' or 'gcn', got 'gin'"):
        paper_network(IN, 8, OUT, second="gin")
    with pytest.raises(ValueError, match="last_channels must be at least 0, got -1"):
        paper_network(IN, 8, OUT, second_channels=-1)
    made: list = []  # making an ordering waits for the device
    monkeypatch.setattr(goat_conv, "Ordering", lambda *tensors: made.append(tensors))
    paper_network(IN, 8, OUT)(*graph())
    assert not made


def test_goat_paper_is_the_layer_of_the_equations() -> None:
    model = network("goat-paper", heads=2, max_neighbors=3, neighbor_selection="top", residual=True).eval()
    layer = model.layers[0]
    assert isinstance(layer, GOATConv)
    theirs = GOATConv.paper(IN, 8, heads=2, max_neighbors=3, neighbor_selection="top", backend="torch")
    theirs.load_state_dict(layer.state_dict())  # strictly equal keys: no bias and no residual in the layer
    x, edge_index = graph()
    assert torch.equal(layer(x, edge_index), theirs(x, edge_index))
    assert (layer.heads, layer.max_neighbors, layer.neighbor_selection) == (2, 3, "top")
    assert "bias" in dict(network("goat").layers[0].named_parameters())


def test_degree_histogram_is_pygs() -> None:
    _, edge_index = graph()
    expected = PNAConv.get_degree_histogram([Data(edge_index=edge_index, num_nodes=N)])
    assert torch.equal(degree_histogram(edge_index, N), expected)
    assert degree_histogram(torch.tensor([[0, 1, 2], [3, 3, 0]]), 5).tolist() == [3, 1, 1]


def test_pna_asks_for_degrees() -> None:
    with pytest.raises(ValueError, match="a pna layer needs the degrees of the training graph"):
        Network(ModelOptions(name="pna"), IN, OUT)
    with pytest.raises(ValueError, match="has no edges"):
        Network(ModelOptions(name="pna"), IN, OUT, degree=torch.tensor([4]))
