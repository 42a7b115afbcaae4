import shutil
from inspect import Parameter, signature

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import to_hetero
from torch_geometric.nn.models.basic_gnn import BasicGNN

from tests.compare import relative_error
from tests.graphs import small_graph
from torch_goat.data import neighbor_loader, open_graph, write_graph
from torch_goat.nn import GOAT
from torch_goat.nn.attention import GATv2Attention

N = 10


@pytest.mark.parametrize("method", ["__init__", "forward", "inference"])
def test_positional_arguments_are_those_of_basic_gnn(method: str) -> None:
    ours, theirs = (
        [(p.name, p.kind, p.default) for p in signature(getattr(model, method)).parameters.values()]
        for model in (GOAT, BasicGNN)
    )
    assert ours[: len(theirs)] == theirs
    assert all(kind is Parameter.KEYWORD_ONLY for _, kind, _ in ours[len(theirs) :])
    assert isinstance(GOAT(5, 8, 2, 3, 0.1, "elu").act, torch.nn.ELU)


def test_edge_weights_are_refused() -> None:
    x, edge_index = torch.randn(N, 5), small_graph()
    model = GOAT(5, 8, 2, edge_dim=1)
    weight = torch.rand(edge_index.size(1))
    with pytest.raises(
        ValueError, match=r"reads no edge weights.*pass them as edge_attr= to a network with edge_dim=1"
    ):
        model(x, edge_index, weight)
    assert model(x, edge_index, None, weight).shape == (N, 8)


def test_v2_is_the_attention_of_gatv2() -> None:
    model = GOAT(5, 8, 2, heads=2, v2=True, concat=False)
    assert all(type(conv.attention) is GATv2Attention and conv.out_channels == 8 for conv in model.convs)
    with pytest.raises(ValueError, match="v2=True cannot be combined with attention='gat'"):
        GOAT(5, 8, 2, v2=True, attention="gat")


@pytest.mark.parametrize("jk", [None, "last", "cat", "max", "lstm"])
@pytest.mark.parametrize("out_channels", [None, 3])
@pytest.mark.parametrize("norm", [None, "batch_norm", "graph_norm"])
def test_options_of_basic_gnn(jk, out_channels, norm) -> None:
    model = GOAT(5, 8, num_layers=3, out_channels=out_channels, jk=jk, norm=norm, heads=2, dropout=0.3)
    out = model(torch.randn(N, 5), small_graph())
    assert out.shape == (N, out_channels or 8)
    assert hasattr(model, "lin") == (out_channels is not None or jk is not None)
    out.sum().backward()


def test_ends_in_a_linear_layer() -> None:
    model = GOAT(5, 8, num_layers=2, out_channels=3, act=None).eval()
    x, edge_index = torch.randn(N, 5), small_graph()
    expected = model.lin(model.convs[1](model.convs[0](x, edge_index), edge_index))
    assert torch.equal(model(x, edge_index), expected)


@pytest.mark.parametrize("pooling", ["cat", "sum", "mean"])
def test_heads_share_the_hidden_width_only_if_concatenated(pooling: str) -> None:
    model = GOAT(5, 8, num_layers=2, heads=2, head_pooling=pooling)
    assert model.convs[1].out_channels == (4 if pooling == "cat" else 8)
    assert model(torch.randn(N, 5), small_graph()).shape == (N, 8)


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="hidden_channels=8 is not divisible by heads=3"):
        GOAT(5, 8, num_layers=2, heads=3)
    with pytest.raises(ValueError, match="heads must be a whole number of at least 1, got 0"):
        GOAT(5, 8, num_layers=2, heads=0)


def test_to_hetero_gives_every_kind_of_edge_its_layers() -> None:
    x = {"paper": torch.randn(6, 5), "author": torch.randn(3, 4)}
    writes = torch.tensor([[0, 1, 2, 2], [0, 0, 3, 5]])
    edges = {("author", "writes", "paper"): writes, ("paper", "has", "author"): writes.flip(0)}
    model = GOAT((-1, -1), 8, num_layers=2, out_channels=3, heads=2, act=None, add_self_loops=False)
    model = to_hetero(model, (list(x), list(edges)))
    out = model(x, edges)
    paper, author = x.values()
    for conv in model.convs:
        paper, author = (
            conv["author__writes__paper"]((author, paper), writes),
            conv["paper__has__author"]((paper, author), writes.flip(0)),
        )
    assert torch.equal(out["paper"], model.lin["paper"](paper))
    assert torch.equal(out["author"], model.lin["author"](author))


def test_orderings_come_out_and_go_in() -> None:
    model = GOAT(5, 8, num_layers=2, out_channels=3, heads=2).eval()
    x, edge_index = torch.randn(N, 5), small_graph()
    out, orderings = model(x, edge_index, return_orderings=True)
    assert len(orderings) == 2
    assert torch.equal(model(x, edge_index, orderings=orderings), out)
    model.reset_parameters()
    _, replayed = model(x, edge_index, orderings=orderings, return_orderings=True)
    assert replayed == orderings
    with pytest.raises(ValueError, match="orderings has 3 entries"):
        model(x, edge_index, orderings=[orderings[0]] * 3)


@pytest.mark.parametrize("jk", [None, "cat"])
@pytest.mark.parametrize("edge_dim", [None, 2])
@pytest.mark.parametrize("out_channels", [None, 3])
def test_inference_layer_by_layer_equals_the_whole(out_channels, edge_dim, jk) -> None:
    model = GOAT(5, 8, 2, out_channels, jk=jk, heads=2, edge_dim=edge_dim, norm="layer_norm", max_neighbors=3)
    model = model.double().eval()
    data = Data(torch.randn(N, 5, dtype=torch.double), small_graph())
    if edge_dim:
        data.edge_attr = torch.randn(data.num_edges, 2, dtype=torch.double)
    expected = model(data.x, data.edge_index, edge_attr=data.edge_attr)
    for cache in (False, True):
        loader = neighbor_loader(data, [-1], batch_size=4, shuffle=True)
        assert relative_error(model.inference(loader, cache=cache), expected) < 1e-12


def test_inference_of_a_graph_in_a_folder_with_a_progress_bar(tmp_path, capsys) -> None:
    model, data = GOAT(5, 8, 2).eval(), Data(torch.randn(N, 5), small_graph())
    write_graph(data, tmp_path / "graph")
    loader = neighbor_loader(open_graph(tmp_path / "graph"), [-1], batch_size=4)
    assert relative_error(model.inference(loader, progress_bar=True), model(data.x, data.edge_index)) < 1e-6
    assert "Inference: 100%" in capsys.readouterr().err


def test_inference_refuses_a_loader_that_leaves_nodes_out() -> None:
    model, data = GOAT(5, 8, num_layers=2).eval(), Data(torch.randn(N, 5), small_graph())
    loader = neighbor_loader(data, [-1], input_nodes=torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 9]))
    with pytest.raises(ValueError, match="node 8 0 times"):
        model.inference(loader)
    with pytest.raises(ValueError, match=r"from loader\.data\.x, which \[\] does not have"):
        model.inference([])
    with pytest.raises(ValueError, match=r"call model\.eval\(\) first"):
        model.train().inference(loader)


@pytest.mark.skipif(shutil.which("c++") is None, reason="PyTorch's compiler needs a C++ compiler")
def test_compiles_for_training_with_pytorchs_own_backend() -> None:
    """Two layers that read the same edges: equal calls, which the compiler merges."""
    x, edge_index, model = torch.randn(N, 5), small_graph(), GOAT(5, 8, num_layers=2, out_channels=3)
    compiled = torch.compile(model, dynamic=True, fullgraph=True)
    for nodes in (N, N - 1):
        inputs = x[:nodes], edge_index[:, (edge_index < nodes).all(dim=0)]
        outs = [network(*inputs) for network in (compiled, model)]
        grads = [torch.autograd.grad(out.square().sum(), list(model.parameters())) for out in outs]
        assert relative_error(*outs) < 1e-5
        assert all(relative_error(*pair) < 1e-4 for pair in zip(*grads, strict=True))


def test_inference_names_what_the_batches_lack() -> None:
    loader = neighbor_loader(Data(torch.randn(N, 5), small_graph()), [-1])
    with pytest.raises(ValueError, match="inference reads 'edge_attr' of every batch, but"):
        GOAT(5, 8, 2, edge_dim=2).eval().inference(loader)
    with pytest.raises(ValueError, match="inference reads 'time' of every batch, but"):
        GOAT(5, 8, 2).eval().inference(loader, order_by="time")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 0}, "num_layers must be a whole number of at least 1, got 0"),
        ({"num_layers": 1.5}, r"num_layers must be a whole number of at least 1, got 1\.5"),
        ({"out_channels": 0}, "out_channels must be a whole number of at least 1 or None, got 0"),
        ({"jk": "sum"}, "jk must be 'last', 'cat', 'max' or 'lstm', got 'sum'"),
    ],
)
def test_bad_options_are_refused(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GOAT(**({"in_channels": 5, "hidden_channels": 8, "num_layers": 2} | options))


def test_trimming_leaves_the_seeds_as_they_are() -> None:
    # Two hops around node 0, in the order in which PyG's loaders number them: seeds, first hop, second hop.
    edge_index = torch.tensor([[1, 2, 3, 4], [0, 0, 1, 2]])
    model = GOAT(5, 8, num_layers=2, out_channels=3).double().eval()
    x = torch.randn(5, 5, dtype=torch.double)
    trimmed = model(x, edge_index, num_sampled_nodes_per_hop=[1, 2, 2], num_sampled_edges_per_hop=[2, 2])
    assert relative_error(trimmed[0], model(x, edge_index)[0]) < 1e-12


def test_every_layer_has_an_attention_of_its_own() -> None:
    weights = [conv.attention.module.weight for conv in GOAT(5, 8, 3, heads=2, attention=torch.nn.Linear(4, 1)).convs]
    assert len({weight.data_ptr() for weight in weights}) == 3


def test_the_noise_of_the_order_is_that_of_all_layers() -> None:
    model = GOAT(5, 8, 2, order_noise=0.3)
    assert model.order_noise == 0.3
    model.order_noise = 0.1
    assert [conv.order_noise for conv in model.convs] == [0.1, 0.1]


def test_a_graph_in_a_batch_selects_the_same_neighbors_as_alone() -> None:
    x, edge_index, node = torch.randn(N, 5), small_graph(), torch.arange(N)
    model = GOAT(5, 8, 2, max_neighbors=2).eval()
    alone, both = model(x, edge_index), (torch.cat([x, x]), torch.cat([edge_index, edge_index + N], dim=1))
    for dtype in (torch.int64, torch.int32):
        assert relative_error(model(*both, n_id=node.repeat(2).to(dtype))[N:], alone) < 1e-6
    assert relative_error(model(*both)[N:], alone) > 1e-3  # by its place in the batch
