import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.app.explain import removals as module
from torch_goat.app.explain.removals import Removal, forward, neighbors, outputs_without
from torch_goat.experiments.models import ModelOptions, Network, degree_histogram

NAMES = ["mlp", "gcn", "sage-mean", "sage-max", "sage-lstm", "gin", "gat", "gatv2", "pna", "janossy", "goat"]


def graph(nodes: int = 25, edges: int = 90) -> Data:
    """Random directed edges, with duplicates, self loops and reverse edges."""
    edge_index = torch.randint(nodes, (2, edges))
    edge_index = torch.cat([edge_index, edge_index[:, :30].flip(0), edge_index[:, :4]], dim=1)
    keys = torch.randperm(edge_index.size(1))
    return Data(x=torch.randn(nodes, 4, dtype=torch.double), edge_index=edge_index, edge_key=keys)


def network(over: Data, **options) -> Network:
    degree = degree_histogram(over.edge_index, over.x.size(0))
    if options.get("num_layers") != 1 or options["name"] == "goat":
        options["hidden_channels"] = 4
    return Network(ModelOptions(**options), 4, 3, degree=degree).double().eval()


def by_hand(net: Network, over: Data, node: int, sources: tuple[int, ...]) -> Tensor:
    """One forward pass on the graph without the edges."""
    rows = torch.cat([over.edge_index, over.edge_key.view(1, -1)]).t().tolist()
    rows = [row for row in rows if not (row[1] == node and row[0] in sources)]
    *ends, keys = torch.tensor(rows).view(-1, 3).t()
    return net(over.x, torch.stack(ends), order_by=keys if net.options.given_order else None)[node].detach()


@pytest.mark.parametrize(
    "options",
    [
        *({"name": name, "num_layers": layers} for name in NAMES for layers in (1, 2, 3)),
        {"name": "goat", "heads": 2, "last": "gcn", "mean_residual": True, "scaling": "size"},
        {"name": "goat", "heads": 2, "last": "goat", "max_neighbors": 2, "neighbor_selection": "top"},
        {"name": "goat", "max_neighbors": 2},
        {"name": "goat", "num_layers": 3, "given_order": True},
        {"name": "goat", "max_neighbors": 2, "given_order": True},
        {"name": "goat", "heads": 2, "last": "goat", "add_self_loops": False, "residual": True},
        {"name": "gat", "heads": 2, "last": "gcn", "residual": True, "norm": "batch", "input_channels": 5},
    ],
    ids=str,
)
def test_batched_removals_equal_one_graph_per_removal(options: dict) -> None:
    over = graph()
    net = network(over, **options)
    wanted = [Removal(node, (source,)) for node in (3, 7, 11) for source in neighbors(over, node).tolist()]
    wanted += [Removal(3, tuple(neighbors(over, 3)[:2].tolist())), Removal(7, tuple(neighbors(over, 7).tolist()))]
    expected = torch.stack([by_hand(net, over, *removal) for removal in wanted])
    torch.testing.assert_close(outputs_without(net, over, wanted), expected, rtol=1e-9, atol=1e-11)
    if options["name"] != "mlp":
        whole = forward(net, over)[0][[removal.node for removal in wanted]]
        assert (whole - expected).abs().max() > 1e-6  # the removals have an effect


def test_the_batch_size_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    over = graph()
    net = network(over, name="gcn", num_layers=3)
    wanted = [Removal(node, (source,)) for node in (4, 3, 4) for source in neighbors(over, node).tolist()]
    at_once = outputs_without(net, over, wanted)
    monkeypatch.setattr(module, "EDGES_AT_ONCE", 100)
    torch.testing.assert_close(outputs_without(net, over, wanted), at_once, rtol=1e-9, atol=1e-11)
    assert outputs_without(net, over, []).shape == (0, 3)


def test_neighbors_are_listed_once_and_without_the_node() -> None:
    over = Data(x=torch.zeros(4, 1), edge_index=torch.tensor([[2, 0, 2, 1, 0], [1, 1, 1, 1, 3]]))
    assert neighbors(over, 1).tolist() == [0, 2]
    assert neighbors(over, 2).tolist() == []
