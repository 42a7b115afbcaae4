"""Networks on parts of a graph: exact inference block by block, and sampled batches."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import remove_self_loops

from tests.experiments.models import cases
from torch_goat.data.loader import CSC, neighbor_loader
from torch_goat.data.loader.blocks import Blocks
from torch_goat.experiments.models import MODELS, Network, degree_histogram
from torch_goat.experiments.models.inference import Inference
from torch_goat.experiments.models.layers import Sampled

NODES = 60


def graph(edge_dim: int = 0) -> tuple[Tensor, Tensor, Tensor | None]:
    """A graph with a hub, an isolated node, self loops and multi-edges, its edges in no order."""
    ends = (torch.rand(2, 400) ** 2 * (NODES - 1)).long()
    loops = torch.arange(5).expand(2, -1)
    edge_index = torch.cat([ends, loops, ends[:, :20]], dim=1)
    edge_index = edge_index[:, torch.randperm(edge_index.size(1))]
    x = torch.randn(NODES, 6)
    x[10:20] = x[10]  # ties
    return x, edge_index, torch.randn(edge_index.size(1), edge_dim) if edge_dim else None


def network(edge_index: Tensor, edge_dim: int = 0, **options: Any) -> Network:
    degree = degree_histogram(edge_index, NODES)
    made = Network(cases.options(**options), 6, 3, degree=degree, edge_dim=edge_dim)
    for module in made.modules():  # as after some training
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return made.double().eval()


def blocks(edge_index: Tensor, max_edges: int = 50) -> Blocks:
    return Blocks(CSC.of(Data(edge_index=edge_index, num_nodes=NODES)), max_edges)


@pytest.mark.parametrize("name", [*MODELS, "random", "top", "scaled", "wide", "separate"])
def test_equals_the_whole_graph(name: str) -> None:
    options: dict[str, Any] = {
        "random": {"name": "goat", "heads": 2, "max_neighbors": 3, "last": "gcn"},
        "top": {"name": "goat", "heads": 2, "max_neighbors": 3, "neighbor_selection": "top", "last": "goat"},
        "separate": {"name": "goat", "heads": 2, "separate_self": True, "num_layers": 3},
        "scaled": {"name": "goat", "input_gain": 3.0},
        "wide": {"name": "sage-mean", "input_channels": 5, "norm": "batch", "residual": True, "last_channels": 4},
    }.get(name, {"name": name, "num_layers": 3})
    x, edge_index, _ = graph()
    net = network(edge_index, **options)
    whole = net(x.double(), edge_index)
    out = Inference(net, blocks(edge_index), x.double())()
    assert torch.allclose(out, whole, atol=1e-10)
    some = torch.tensor([3, 59, 17])
    again = Inference(net, blocks(edge_index, 10), x.double())(some)
    assert torch.allclose(again[some], whole[some], atol=1e-10)


TOP = {"max_neighbors": 4, "neighbor_selection": "top"}


@pytest.mark.parametrize("closed", [True, False])
def test_orderings_of_a_random_selection_are_given(closed: bool) -> None:
    x, edge_index, _ = graph()
    net = network(edge_index, name="goat", heads=2, max_neighbors=2, add_self_loops=closed)
    record: list = []
    Inference(net, blocks(edge_index, 10), x.double())(record=record)
    assert record == net(x.double(), edge_index, return_orderings=True)[1]


@pytest.mark.parametrize("selection", [{}, TOP, {"add_self_loops": False}, {"add_self_loops": False} | TOP])
def test_orderings_of_the_whole_graph_are_replayed_and_given(selection: dict[str, Any]) -> None:
    x, edge_index, edge_attr = graph(edge_dim=2)
    options = {"name": "goat", "heads": 2, "num_layers": 3, "last": "goat"} | selection
    net, other = (network(edge_index, edge_dim=2, **options) for _ in range(2))
    inputs = x.double(), edge_index, edge_attr.double()
    _, orderings = other(*inputs, return_orderings=True)  # those of another network, so that replaying shows
    whole = net(*inputs, orderings=orderings)
    assert not torch.allclose(whole, net(*inputs), atol=1e-3)
    infer = Inference(net, blocks(edge_index), inputs[0], inputs[2])
    assert torch.allclose(infer(orderings=orderings), whole, atol=1e-10)
    record: list = []
    infer(record=record)
    for one, wanted in zip(record, net(*inputs, return_orderings=True)[1], strict=True):
        assert one == wanted
        assert torch.allclose(one.weight, wanted.weight, atol=1e-10)


def test_processes_share_the_work() -> None:
    x, edge_index, _ = graph()
    net = network(edge_index, name="goat", heads=2)
    whole = net(x.double(), edge_index)
    states: list[list[Tensor]] = []

    def layer_of(part: int, before: list[Tensor]) -> Tensor:
        """What a process adds to the first layer that is not known yet."""
        seen: list[Tensor] = []

        def join(mine: Tensor) -> Tensor:
            seen.append(mine)
            return before[len(seen) - 1] if len(seen) <= len(before) else mine

        Inference(net, blocks(edge_index), x.double(), part=(part, 3), join=join)()
        return seen[len(before)]

    for _ in range(2):
        known = [sum(parts) for parts in states]
        states.append([layer_of(part, known) for part in range(3)])
    joined = [sum(parts) for parts in states]
    rows = [sum((part != 0).any(dim=1).long() for part in parts) for parts in states]
    assert all(int(count.max()) == 1 for count in rows)  # each node by one process
    assert torch.allclose(joined[1], whole, atol=1e-10)


def test_a_process_without_blocks_adds_nothing() -> None:
    x, edge_index, _ = graph()
    net = network(edge_index, name="gcn")
    out = Inference(net, blocks(edge_index, 10_000), x.double(), part=(1, 2))()
    assert out.shape == (NODES, 3)
    assert not bool(out.any())


def test_bad_input() -> None:
    x, edge_index, _ = graph()
    net = network(edge_index, name="gat")
    with pytest.raises(ValueError, match="max_edges"):
        blocks(edge_index, 0)
    with pytest.raises(ValueError, match="by one process"):
        Inference(net, blocks(edge_index), x.double())(torch.tensor([1]), record=[])
    with pytest.raises(ValueError, match=r"x must have shape \[60, 6\], got \[120, 6\]"):
        Inference(net, blocks(edge_index), torch.cat([x, x]).double())
    with pytest.raises(ValueError, match=r"edge_attr has shape \[425, 3\], but the network reads None"):
        Inference(net, blocks(edge_index), x.double(), torch.randn(edge_index.size(1), 3))
    with pytest.raises(ValueError, match=r"edge_attr has shape None, but the network reads \[425, 3\]"):
        Inference(network(edge_index, edge_dim=3, name="gat"), blocks(edge_index), x.double())
    for given, key in ((True, None), (True, torch.ones(3)), (False, torch.ones(edge_index.size(1)))):
        net = network(edge_index, name="goat", given_order=given)
        with pytest.raises(ValueError, match="order_by must be given for the 425 edges exactly if"):
            Inference(net, blocks(edge_index), x.double(), order_by=key)
    with pytest.raises(ValueError, match="orderings has 0 entries, but there are 1 GOAT layers"):
        Inference(network(edge_index, name="goat"), blocks(edge_index), x.double())(orderings=[])
    net.train()
    with pytest.raises(ValueError, match="for evaluation"):
        Inference(net, blocks(edge_index), x.double())()


def sampled(batch: Data, degree: Tensor) -> Sampled:
    return Sampled(batch.n_id, degree[batch.n_id], batch.num_sampled_nodes, batch.num_sampled_edges)


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_with_all_neighbours_computes_what_the_whole_graph_does(name: str) -> None:
    """What is left out of the deeper layers is nothing that the batch's own nodes depend on."""
    x, edge_index, edge_attr = graph(edge_dim=2 if name in ("goat", "gat") else 0)
    edge_dim = 0 if edge_attr is None else 2
    net = network(edge_index, name=name, num_layers=3, edge_dim=edge_dim, norm="batch", residual=True)
    data = Data(x=x.double(), edge_index=edge_index, edge_attr=None if edge_attr is None else edge_attr.double())
    whole = net(data.x, edge_index, data.edge_attr)
    degree = blocks(edge_index).degree
    for batch in neighbor_loader(data, [-1, -1, -1], batch_size=13):
        out = net(batch.x, batch.edge_index, batch.edge_attr, sampled=sampled(batch, degree))
        assert torch.allclose(out, whole[batch.n_id[: batch.batch_size]], atol=1e-10)


def test_graph_convolution_of_sampled_edges_is_right_on_average() -> None:
    x, edge_index, _ = graph()
    edge_index, _ = remove_self_loops(edge_index)
    net = network(edge_index, name="gcn", num_layers=1).requires_grad_(False)
    data, degree, outs = Data(x=x.double(), edge_index=edge_index), blocks(edge_index).degree, []
    for seed in range(400):
        batch = next(iter(neighbor_loader(data, [3], batch_size=NODES, seed=seed)))
        outs.append(net(batch.x, batch.edge_index, sampled=sampled(batch, degree)))
    drawn = torch.stack(outs)  # [draws, N, 3]
    error = drawn.std(dim=0) / len(outs) ** 0.5
    assert float(error.max()) > 0.01
    assert bool(((drawn.mean(dim=0) - net(data.x, edge_index)).abs() < 5 * error + 1e-9).all())


def test_every_weight_gets_a_gradient() -> None:
    """Processes that average their gradients wait for each of them."""
    x, edge_index, _ = graph()
    for name in MODELS:
        net = network(edge_index, name=name, residual=True, input_channels=4).train()
        batch = next(iter(neighbor_loader(Data(x=x.double(), edge_index=edge_index), [2, 2], batch_size=8)))
        net(batch.x, batch.edge_index, sampled=sampled(batch, blocks(edge_index).degree)).sum().backward()
        assert [key for key, weight in net.named_parameters() if weight.grad is None] == []


def test_as_many_hops_as_layers() -> None:
    x, edge_index, _ = graph()
    batch = next(iter(neighbor_loader(Data(x=x.double(), edge_index=edge_index), [2], batch_size=8)))
    hops = sampled(batch, blocks(edge_index).degree)
    with pytest.raises(ValueError, match="1 hops were sampled, but the network has 2 layers"):
        network(edge_index, name="gat")(batch.x, batch.edge_index, sampled=hops)
