"""Shapes that break kernels: hubs, leaves, many tiny segments, many heads. Checked against the kernel ``torch``."""

import pytest
import torch

from tests.backends import COMPILED, device_of
from tests.compare import assert_close, with_gradients
from torch_goat.nn.ragged_rnn import RaggedRNN
from torch_goat.ops import Places

GPU = torch.cuda.is_available()
CASES = {
    "a hub of 20,000 beside leaves": [20_000, *[1] * (100_000 if GPU else 5_000)],
    "all equal": [7] * 3_000,
    "one node": [1],
    "segments of 0 to 3": [0, 1, 2, 3] * (250_000 if GPU else 10_000),
}


@pytest.mark.parametrize("backend", [name for name in COMPILED if name != "torch"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("heads", [1, 16])
def test_shape(case: str, heads: int, backend: str) -> None:
    lengths = CASES[case]
    if heads > 1 and not GPU and "hub" in case:
        lengths = [2_000, *lengths[1:]]
    ptr = torch.tensor([0, *lengths]).cumsum(0)
    num_places, num_sources = int(ptr[-1]), 50
    source = torch.randint(num_sources, (heads, num_places))
    weight = torch.rand(heads, num_places)
    z = torch.randn(num_sources, heads, 3)
    rnn = RaggedRNN("lstm", 3, 6, heads=heads)
    results = []
    # The judge runs in float64, so that what differs is the rounding of the other.
    for name, dtype in (("torch", torch.double), (backend, torch.float)):
        device = device_of(backend)
        rnn = rnn.to(device, dtype)
        rnn.backend = name
        inputs = [value.to(device, dtype).requires_grad_() for value in (z, weight)]
        out = rnn(inputs[0], Places.from_ptr(source.to(device), ptr.to(device)), inputs[1])
        found = with_gradients(rnn, out.cpu(), *inputs)
        results.append({key: value.cpu() for key, value in found.items()})
    assert_close(results[1], results[0], 1e-5)
