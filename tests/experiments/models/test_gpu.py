"""What holds on a GPU, for every network."""

import pytest
import torch

from tests.compare import relative_error
from tests.experiments.models.cases import RANDOM, graph, network
from torch_goat.experiments.models import MODELS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.mark.parametrize("name", MODELS)
def test_equals_the_cpu_in_evaluation(name: str) -> None:
    x, edge_index = graph(torch.double)
    model = network(name, norm="batch", residual=True).double().eval()
    expected = model(x, edge_index)
    assert relative_error(model.cuda()(x.cuda(), edge_index.cuda()).cpu(), expected) < 1e-10


@pytest.mark.parametrize("name", RANDOM)
def test_training_draws_on_the_device(name: str) -> None:
    x, edge_index = (value.cuda() for value in graph())
    model = network(name, backend="auto").cuda()
    before, host = torch.cuda.get_rng_state(), torch.get_rng_state()
    out = model(x, edge_index)
    out.sum().backward()
    assert not torch.equal(model(x, edge_index), out)
    torch.cuda.set_rng_state(before)
    assert torch.equal(model(x, edge_index), out)
    assert torch.equal(torch.get_rng_state(), host)
