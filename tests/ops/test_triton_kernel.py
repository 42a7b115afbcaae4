"""What is special to the Triton kernel, on a GPU or, without one, in Triton's interpreter."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.backends import check, segments
from tests.compare import assert_close, with_gradients
from torch_goat.nn import GOATConv, Neighborhoods
from torch_goat.nn.ragged_rnn import RaggedRNN
from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.backends import backends
from torch_goat.ops.ragged_rnn.interface import GATES, Inputs
from torch_goat.ops.ragged_rnn.operator import KERNELS

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytestmark = pytest.mark.skipif(not backends()["triton"].available, reason=backends()["triton"].note)

Override = Callable[..., None]
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="programs that wait for each other need a GPU")


@pytest.fixture
def override(monkeypatch: pytest.MonkeyPatch) -> Override:
    from torch_goat.ops.ragged_rnn.triton import launch, scan

    chosen = {module: module.sizes for module in (launch, scan)}

    def replace(**fields: int) -> None:
        for module, sizes in chosen.items():
            known = {name: value for name, value in fields.items() if name in module.Sizes._fields}
            monkeypatch.setattr(module, "sizes", lambda *a, s=sizes, k=known, **named: s(*a, **named)._replace(**k))

    replace(chunk=4)  # the interpreter is slow, and walks a chunk to its end
    return replace


def _check(
    kind: str, hidden: int, source: Tensor, lengths: list[int], weighted: bool = True, directions: int = 2
) -> None:
    """Values and gradients equal the reference."""
    heads = source.size(0)
    z, _, weight, ptr = segments(heads, 3, lengths, num_sources=5)
    rnn = RaggedRNN(kind, 3, hidden * directions, heads, directions == 2)
    check(rnn, "triton", (z, source, weight if weighted else None, ptr), 1e-10)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_width_through_tl_dot(kind: str, override: Override) -> None:
    source = torch.randint(5, (2, 7), generator=torch.Generator().manual_seed(1))
    _check(kind, 17, source, [0, 2, 0, 4, 1])
    _check(kind, 17, source[:1, :3], [1, 0, 2], weighted=False, directions=1)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("hidden", [3, 17, 64, pytest.param(65, marks=needs_gpu)])
def test_evaluation_equals_reference(hidden: int, weighted: bool) -> None:
    """Evaluation keeps no states.

    The reference computes in float64, since cuDNN's LSTM uses TF32 for float32.
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


def test_a_source_of_many_chunks(override: Override) -> None:
    override(chunk=4, chunks=2)
    source = torch.randint(5, (2, 40), generator=torch.Generator().manual_seed(1))
    source[:, 5:30] = 2  # more chunks than are looked back over at once
    _check("rnn", 2, source, [16, 4, 20])


@pytest.mark.parametrize(("rnn", "hidden"), [("lstm", 3), ("gru", 3), ("rnn", 17), ("gru", 17)])
def test_gradients_of_a_large_graph_come_in_portions(
    rnn: str, hidden: int, override: Override, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_goat.ops.ragged_rnn.triton import portions

    override(chunk=8, chunks=2)
    monkeypatch.setattr(portions, "LARGE_IF_WIDE" if hidden > 16 else "LARGE", 0)
    hub = torch.stack([torch.arange(36), torch.full((36,), 7)])
    edge_index = torch.cat([hub, hub.flip(0), torch.tensor([[3, 5, 3, 9], [9, 9, 30, 3]])], dim=1)
    hood = Neighborhoods.from_edge_index(edge_index.to(DEVICE), 36)
    x, results = torch.randn(36, 4, dtype=torch.double, device=DEVICE, requires_grad=True), []
    for backend in ("triton", "reference"):
        torch.manual_seed(0)
        conv = GOATConv(4, 2 * hidden, heads=2, rnn=rnn, backend=backend).double().to(DEVICE)
        results.append(with_gradients(conv, conv(x, hood).cpu(), x))
    found, expected = ({name: value.cpu() for name, value in result.items()} for result in results)
    assert_close(found, expected, 1e-10)
    found = hood.memo.get("portions")
    assert [len(portion.order) for portion in found] == [32, 4]
    assert [portion.num_rows for portion in found] == [len(portion.place) for portion in found]
    assert torch.equal(torch.cat([portion.place for portion in found]).sort()[0].cpu(), torch.arange(hood.num_places))


def test_programs_share_the_short_segments(override: Override) -> None:
    override(chunk=4, single=1, segments=2)
    _check("gru", 2, torch.randint(5, (1, 12)), [1, 0, 3, 2, 1, 2, 1, 2])


@pytest.mark.parametrize("kind", ["mingru", "minlstm"])
def test_segments_across_many_chunks_of_a_scan(kind: str, override: Override) -> None:
    override(chunk=4, ahead=2, chunks=2, carries=2, source_chunks=2)
    source = torch.randint(5, (2, 50), generator=torch.Generator().manual_seed(1))
    _check(kind, 3, source, [1, 21, 0, 4, 4, 1, 2, 17])  # several chunks, whole chunks, several segments in one
    _check(kind, 3, source[:1, :25], [25], weighted=False, directions=1)


def test_heads_of_a_scan_in_groups(override: Override) -> None:
    override(chunk=4, ahead=2, groups=2)
    _check("mingru", 2, torch.randint(5, (3, 12)), [9, 3])


@pytest.mark.parametrize("kind", ["lstm", "minlstm"])
def test_half_precision_and_strides(kind: str, override: Override) -> None:
    dtype = torch.bfloat16
    random = torch.Generator().manual_seed(0)
    projected = torch.randn(2, 2, 5, 12, generator=random).transpose(1, 2).to(DEVICE, dtype)  # [K, S, D, G * H]
    source = torch.randint(5, (9, 2), generator=random).t().to(DEVICE)
    weight = torch.rand(9, 2, generator=random).t().to(DEVICE)
    ptr = torch.tensor([0, 4, 4, 9, 9], device=DEVICE)
    weight_hh = torch.randn(2, 2, 3, 12, generator=random).transpose(2, 3).to(DEVICE)
    biases = [torch.randn(2, 2, 12, generator=random).to(DEVICE) for _ in range(2)]
    grad = torch.randn(4, 2, 2 * (12 // GATES[kind]), generator=random).to(DEVICE, dtype)

    given = (Places.from_ptr(source, ptr), weight, weight_hh, *biases)
    out, saved = KERNELS["triton"].forward(kind, Inputs(projected, *given), True)
    values = [out, *KERNELS["triton"].backward(kind, grad, Inputs(projected, *given), saved)]
    exact, saved = KERNELS["torch"].forward(kind, Inputs(projected.float(), *given), True)
    expected = [exact, *KERNELS["torch"].backward(kind, grad.float(), Inputs(projected.float(), *given), saved)]
    for value, other, kept in zip(values, expected, [dtype] * 2 + [torch.float32] * 4, strict=True):
        assert value.dtype == kept
        rounding = torch.finfo(dtype).eps if kept == dtype else 1e-5
        torch.testing.assert_close(value.float(), other, rtol=rounding, atol=1e-5)


def test_the_operator_is_sound(override: Override) -> None:
    def random(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, device=DEVICE, requires_grad=True)

    source, ptr = torch.randint(5, (1, 6), device=DEVICE), torch.tensor([0, 4, 4, 6], device=DEVICE)
    recurrent = (random(1, 2, 3, 3), random(1, 2, 3), random(1, 2, 3))
    args = (random(1, 5, 2, 3), source, random(1, 6), ptr, *recurrent, "rnn", "triton", True)
    torch.library.opcheck(torch.ops.torch_goat.ragged_rnn, args)


@needs_gpu
@pytest.mark.parametrize(
    ("kind", "hidden", "directions"),
    [("lstm", 65, 2), ("lstm", 128, 1), ("gru", 200, 2), ("rnn", 256, 2), ("lstm", 256, 2), ("gru", 512, 1)],
)
def test_programs_that_share_the_units_of_a_cell(kind: str, hidden: int, directions: int) -> None:
    lengths = [0, 1, 700, 3, 33, *[5] * 100]  # a hub, and more blocks than one group has
    z, source, weight, ptr = segments(2, 8, lengths, num_sources=40)
    rnn = RaggedRNN(kind, 8, hidden * directions, 2, directions == 2, init="orthogonal")
    check(rnn, "triton", (z, source, weight, ptr), 1e-5, torch.float32, "torch")
    places = Places.from_ptr(source.to(DEVICE), ptr.to(DEVICE))
    out, again = (rnn(z.float().to(DEVICE), places, weight.float().to(DEVICE)) for _ in range(2))
    assert torch.equal(out, again)
