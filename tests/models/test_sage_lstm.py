import torch

from tests.compare import relative_error
from tests.graphs import small_graph
from torch_goat.models import GraphSAGELSTM


def test_does_not_depend_on_the_degrees_of_others() -> None:
    model = GraphSAGELSTM(5, 6, num_layers=2, out_channels=3).double().eval()
    x = torch.randn(12, 5, dtype=torch.double)
    path = torch.tensor([[1, 2, 3], [0, 1, 2]])
    hub = torch.stack([torch.arange(5, 11), torch.full((6,), 4)])  # node 4 is not within two steps of node 0
    assert relative_error(model(x, torch.cat([path, hub], dim=1))[0], model(x, path)[0]) < 1e-12


def test_order_is_drawn_anew_in_training() -> None:
    model = GraphSAGELSTM(5, 6, num_layers=1)
    x, edge_index = torch.randn(10, 5), small_graph()
    assert not torch.equal(model(x, edge_index), model(x, edge_index))
    model.eval()
    assert torch.equal(model(x, edge_index), model(x, edge_index))
