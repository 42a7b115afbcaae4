"""What is special to the Triton kernel, on a GPU or, without one, in Triton's interpreter."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torch_goat.nn.ragged_rnn import RaggedRNN
from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.backends import backends
from torch_goat.ops.ragged_rnn.interface import Inputs
from torch_goat.ops.ragged_rnn.operator import KERNELS

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

runs_here = pytest.mark.skipif(not backends()["triton"].available, reason=backends()["triton"].note)


Override = Callable[..., None]


@pytest.fixture
def override(monkeypatch: pytest.MonkeyPatch) -> Override:
    """Sets sizes of the kernels' launches."""
    from torch_goat.ops.ragged_rnn.triton import launch

    sizes = launch.sizes

    def replace(**fields: int) -> None:
        monkeypatch.setattr(launch, "sizes", lambda *values, **named: sizes(*values, **named)._replace(**fields))

    replace(chunk=4)  # the interpreter is slow, and walks a chunk to its end
    return replace


def _gradients(
    backend: str, kind: str, hidden: int, source: Tensor, weighted: bool, lengths: list[int], directions: int
) -> list[Tensor]:
    heads, num_places = source.shape
    torch.manual_seed(0)
    rnn = RaggedRNN(kind, 3, hidden * directions, heads, directions == 2, backend=backend).to(DEVICE, torch.float64)
    z = torch.randn(5, heads, 3, dtype=torch.float64, device=DEVICE, requires_grad=True)
    weight = torch.rand(heads, num_places, dtype=torch.float64, device=DEVICE, requires_grad=True)
    ptr = torch.tensor([0, *lengths]).cumsum(0).to(DEVICE)
    out = rnn(z, Places.from_ptr(source.to(DEVICE), ptr), weight if weighted else None)
    inputs = [z, *rnn.parameters(), *([weight] if weighted else [])]
    return [out, *torch.autograd.grad(out, inputs, torch.randn_like(out))]


def _check(
    kind: str, hidden: int, source: Tensor, lengths: list[int], weighted: bool = True, directions: int = 2
) -> None:
    case = (kind, hidden, source, weighted, lengths, directions)
    for value, expected in zip(_gradients("triton", *case), _gradients("reference", *case), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)


@runs_here
@pytest.mark.parametrize(("kind", "hidden"), [("lstm", 3), ("gru", 3), ("rnn", 3), ("lstm", 17), ("gru", 17)])
def test_equals_reference(kind: str, hidden: int, override: Override) -> None:
    """Both in registers, with a padded width, and through ``tl.dot``."""
    source = torch.randint(5, (2, 7), generator=torch.Generator().manual_seed(1))
    _check(kind, hidden, source, [0, 2, 0, 4, 1])
    _check(kind, hidden, source[:1, :3], [1, 0, 2], weighted=False, directions=1)


@runs_here
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("hidden", [3, 17, 65])
def test_evaluation_equals_reference(hidden: int, weighted: bool) -> None:
    """Which keeps no states, and beyond a width of 64 goes another way than training.

    The reference counts in double precision, since cuDNN's LSTM takes TF32 for single.
    """
    z, weight = torch.randn(5, 1, 3, device=DEVICE), torch.rand(1, 7, device=DEVICE)
    source, ptr = torch.randint(5, (1, 7), device=DEVICE), torch.tensor([0, 0, 2, 2, 6, 7], device=DEVICE)
    rnn = RaggedRNN("lstm", 3, hidden, 1, False, backend="triton").to(DEVICE)
    reference = RaggedRNN("lstm", 3, hidden, 1, False, backend="reference").to(DEVICE, torch.float64)
    reference.load_state_dict(rnn.state_dict())
    with torch.no_grad():
        found = rnn(z, Places.from_ptr(source, ptr), weight if weighted else None)
        expected = reference(z.double(), Places.from_ptr(source, ptr), weight.double() if weighted else None)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@runs_here
def test_a_source_of_many_chunks(override: Override) -> None:
    override(chunk=4, chunks=2)
    source = torch.randint(5, (2, 40), generator=torch.Generator().manual_seed(1))
    source[:, 5:30] = 2  # more chunks than are looked back over at once
    _check("rnn", 2, source, [16, 4, 20])


@runs_here
def test_programs_share_the_short_segments(override: Override) -> None:
    override(chunk=4, single=1, segments=2)
    _check("gru", 2, torch.randint(5, (1, 12)), [1, 0, 3, 2, 1, 2, 1, 2])


@runs_here
@pytest.mark.parametrize("num_targets", [0, 3])
def test_nothing_to_read(num_targets: int) -> None:
    source = torch.zeros(2, 0, dtype=torch.int64)
    for value in _gradients("triton", "lstm", 2, source, True, [0] * num_targets, 2):
        assert not value.any()


@runs_here
def test_half_precision_and_strides(override: Override) -> None:
    dtype = torch.bfloat16
    random = torch.Generator().manual_seed(0)
    projected = torch.randn(2, 2, 5, 12, generator=random).transpose(1, 2).to(DEVICE, dtype)  # [K, S, D, G * H]
    source = torch.randint(5, (9, 2), generator=random).t().to(DEVICE)
    weight = torch.rand(9, 2, generator=random).t().to(DEVICE)
    ptr = torch.tensor([0, 4, 4, 9, 9], device=DEVICE)
    weight_hh = torch.randn(2, 2, 3, 12, generator=random).transpose(2, 3).to(DEVICE)
    biases = [torch.randn(2, 2, 12, generator=random).to(DEVICE) for _ in range(2)]
    grad = torch.randn(4, 2, 6, generator=random).to(DEVICE, dtype)

    given = (Places.from_ptr(source, ptr), weight, weight_hh, *biases)
    out, saved = KERNELS["triton"].forward("lstm", Inputs(projected, *given), True)
    values = [out, *KERNELS["triton"].backward("lstm", grad, Inputs(projected, *given), saved)]
    exact, saved = KERNELS["torch"].forward("lstm", Inputs(projected.float(), *given), True)
    expected = [exact, *KERNELS["torch"].backward("lstm", grad.float(), Inputs(projected.float(), *given), saved)]
    for value, other, kept in zip(values, expected, [dtype] * 2 + [torch.float32] * 4, strict=True):
        assert value.dtype == kept
        rounding = torch.finfo(dtype).eps if kept == dtype else 1e-5
        torch.testing.assert_close(value.float(), other, rtol=rounding, atol=1e-5)


@runs_here
def test_tiny_values_keep_their_digits() -> None:
    projected = 1e-4 * torch.rand(1, 5, 1, 4, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    source, ptr = torch.arange(5, device=DEVICE).unsqueeze(0), torch.tensor([0, 5], device=DEVICE)
    recurrent = (torch.eye(4, device=DEVICE)[None, None], *torch.zeros(2, 1, 1, 4, device=DEVICE))
    out, _ = KERNELS["triton"].forward("rnn", Inputs(projected, Places.from_ptr(source, ptr), None, *recurrent), False)
    exact = [value.double() for value in (projected, *recurrent)]
    expected, _ = KERNELS["torch"].forward(
        "rnn", Inputs(exact[0], Places.from_ptr(source, ptr), None, *exact[1:]), False
    )
    torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=0)


@runs_here
def test_the_operator_is_sound(override: Override) -> None:
    def random(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, device=DEVICE, requires_grad=True)

    source, ptr = torch.randint(5, (1, 6), device=DEVICE), torch.tensor([0, 4, 4, 6], device=DEVICE)
    recurrent = (random(1, 2, 3, 3), random(1, 2, 3), random(1, 2, 3))
    args = (random(1, 5, 2, 3), source, random(1, 6), ptr, *recurrent, "rnn", "triton", True)
    torch.library.opcheck(torch.ops.torch_goat.ragged_rnn, args)
