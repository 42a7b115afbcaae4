from inspect import signature

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import to_hetero
from torch_geometric.nn.models.basic_gnn import BasicGNN

from tests.compare import relative_error
from tests.graphs import small_graph
from torch_goat.nn import GOAT

N = 10


def test_positional_arguments_are_those_of_basic_gnn() -> None:
    ours, theirs = (
        [(p.name, p.kind, p.default) for p in signature(model.__init__).parameters.values()]
        for model in (GOAT, BasicGNN)
    )
    assert ours == theirs
    assert isinstance(GOAT(5, 8, 2, 3, 0.1, "elu").act, torch.nn.ELU)


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
    with pytest.raises(ValueError, match="heads must be at least 1, got 8 and 0"):
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


def one_hop_batches(edge_index: torch.Tensor, edge_attr: torch.Tensor | None, parts: list[list[int]]) -> list[Data]:
    """Each part with all edges into it: what a loader of full one-hop neighbourhoods yields."""
    batches = []
    for part in parts:
        own = torch.tensor(part)
        into = torch.isin(edge_index[1], own)
        sources = edge_index[0, into].unique()
        n_id = torch.cat([own, sources[~torch.isin(sources, own)]])
        local = torch.full((N,), -1).scatter(0, n_id, torch.arange(n_id.numel()))
        batch = Data(edge_index=local[edge_index[:, into]], n_id=n_id, batch_size=len(part))
        if edge_attr is not None:
            batch.edge_attr = edge_attr[into]
        batches.append(batch)
    return batches


@pytest.mark.parametrize("jk", [None, "cat"])
@pytest.mark.parametrize("edge_dim", [None, 2])
@pytest.mark.parametrize("out_channels", [None, 3])
def test_inference_layer_by_layer_equals_the_whole(out_channels, edge_dim, jk) -> None:
    model = GOAT(5, 8, 2, out_channels, jk=jk, heads=2, edge_dim=edge_dim, norm="layer_norm").double().eval()
    x, edge_index = torch.randn(N, 5, dtype=torch.double), small_graph()
    edge_attr = torch.randn(edge_index.size(1), 2, dtype=torch.double) if edge_dim else None
    loader = one_hop_batches(edge_index, edge_attr, [[3, 1, 8], [0, 2], [9, 7, 6, 5, 4]])
    assert relative_error(model.inference(loader, x), model(x, edge_index, edge_attr)) < 1e-12


def test_inference_selects_the_random_neighbours_of_the_whole_graph() -> None:
    model = GOAT(5, 8, num_layers=2, out_channels=3, heads=2, max_neighbors=2).double().eval()
    x, edge_index = torch.randn(N, 5, dtype=torch.double), small_graph()
    loader = one_hop_batches(edge_index, None, [[3, 1, 8], [0, 2], [9, 7, 6, 5, 4]])
    assert relative_error(model.inference(loader, x), model(x, edge_index)) < 1e-12


def test_inference_refuses_a_loader_that_leaves_nodes_out() -> None:
    model = GOAT(5, 8, num_layers=2).eval()
    loader = one_hop_batches(small_graph(), None, [[0, 1, 2, 3, 4], [5, 6, 7, 9]])
    with pytest.raises(ValueError, match="node 8 0 times"):
        model.inference(loader, torch.randn(N, 5))
    with pytest.raises(ValueError, match=r"call model\.eval\(\) first"):
        model.train().inference(loader, torch.randn(N, 5))


def test_trimming_leaves_the_seeds_as_they_are() -> None:
    # Two hops around node 0, in the order in which PyG's loaders number them: seeds, first hop, second hop.
    edge_index = torch.tensor([[1, 2, 3, 4], [0, 0, 1, 2]])
    model = GOAT(5, 8, num_layers=2, out_channels=3).double().eval()
    x = torch.randn(5, 5, dtype=torch.double)
    trimmed = model(x, edge_index, num_sampled_nodes_per_hop=[1, 2, 2], num_sampled_edges_per_hop=[2, 2])
    assert relative_error(trimmed[0], model(x, edge_index)[0]) < 1e-12
