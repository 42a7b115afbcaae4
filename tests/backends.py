"""The backends that the tests run over: every kernel that works on this machine, its device, and their comparison."""

import torch
from torch import Tensor

from tests.compare import assert_close, with_gradients
from torch_goat import backends
from torch_goat.nn.ragged_rnn import RaggedRNN
from torch_goat.ops import Places

AVAILABLE = [name for name, status in backends().items() if status.available and name != "reference"]
# Without a GPU the Triton kernels run in an interpreter, a thousand times slower: enough for small graphs.
COMPILED = [name for name in AVAILABLE if name != "triton" or torch.cuda.is_available()]


def device_of(backend: str) -> torch.device:
    return torch.device("cuda" if backend == "triton" and torch.cuda.is_available() else "cpu")


LENGTHS = [2, 0, 4, 1]
Inputs = tuple[Tensor, Tensor, Tensor | None, Tensor]


def segments(heads: int, channels: int, lengths: list[int] = LENGTHS, num_sources: int = 9) -> Inputs:
    ptr = torch.tensor([0, *lengths]).cumsum(0)
    num_places = int(ptr[-1])
    z = torch.randn(num_sources, heads, channels, dtype=torch.double)
    source = torch.randint(num_sources, (heads, num_places))
    return z, source, torch.rand(heads, num_places, dtype=torch.double), ptr


def evaluate(rnn: RaggedRNN, backend: str, z: Tensor, source: Tensor, weight: Tensor | None, ptr: Tensor):
    """Output and all gradients by one backend, on its device, brought back."""
    device = device_of(backend)
    rnn.to(device).backend = backend
    z = z.to(device).requires_grad_()
    weight = None if weight is None else weight.to(device).requires_grad_()
    out = rnn(z, Places.from_ptr(source.to(device), ptr.to(device)), weight)
    results = with_gradients(rnn, out.cpu(), z, *([] if weight is None else [weight]))
    return {name: value.cpu() for name, value in results.items()}


def check(rnn: RaggedRNN, backend: str, inputs: Inputs, limit: float, dtype=torch.double, other="reference") -> None:
    """Values and gradients of a backend are those of another one in float64."""
    expected = evaluate(rnn.double(), other, *inputs)
    z, source, weight, ptr = inputs
    found = evaluate(rnn.to(dtype), backend, z.to(dtype), source, None if weight is None else weight.to(dtype), ptr)
    assert_close(found, expected, limit)
