import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import remove_self_loops

from tests.experiments.models.test_inference import NODES, blocks, graph, network
from torch_goat.data.loader import neighbor_loader
from torch_goat.experiments.models import MODELS
from torch_goat.experiments.models.layers import Sampled


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
