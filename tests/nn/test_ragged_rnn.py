import itertools

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

from tests.backends import AVAILABLE, COMPILED, device_of
from tests.compare import assert_close, relative_error, with_gradients
from torch_goat.nn.packed_rnn import PackedRNN
from torch_goat.nn.ragged_rnn import RaggedRNN
from torch_goat.ops import Places

KINDS = ["lstm", "gru", "rnn"]
LENGTHS = [2, 0, 4, 1]


def segments(heads: int, channels: int, lengths: list[int] = LENGTHS, num_sources: int = 9) -> tuple[Tensor, ...]:
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


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_equal_the_reference(kind, bidirectional, weighted, backend) -> None:
    rnn = RaggedRNN(kind, 5, 6, heads=2, bidirectional=bidirectional).double()
    z, source, weight, ptr = segments(2, 5)
    weight = weight if weighted else None
    expected = evaluate(rnn, "reference", z, source, weight, ptr)
    assert_close(evaluate(rnn, backend, z, source, weight, ptr), expected, 1e-10)
    narrow = evaluate(rnn.float(), backend, z.float(), source, weight.float() if weighted else None, ptr)
    assert_close(narrow, expected, 1e-5)


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize(
    ("kind", "hidden"), [("lstm", 1), ("rnn", 3), ("gru", 3), ("lstm", 17), ("gru", 64), ("rnn", 128), ("lstm", 128)]
)
def test_every_width(kind: str, hidden: int, backend: str) -> None:
    rnn = RaggedRNN(kind, 4, 2 * hidden).double()
    inputs = segments(1, 4, [2, 0, 3])
    expected = evaluate(rnn, "reference", *inputs)
    assert_close(evaluate(rnn, backend, *inputs), expected, 1e-10)


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("lengths", [[1], [40], [4] * 6, [25, *[0, 1, 2] * 30]])
def test_every_mix_of_lengths(lengths: list[int], backend: str) -> None:
    rnn = RaggedRNN("lstm", 3, 4, heads=2).double()
    inputs = segments(2, 3, lengths)
    expected = evaluate(rnn, "reference", *inputs)
    assert_close(evaluate(rnn, backend, *inputs), expected, 1e-10)


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("kind", KINDS)
def test_a_short_segment_beside_a_long_one_keeps_its_gradient(kind: str, backend: str) -> None:
    # Past the end of a segment, where nothing is read, this matrix would let a gradient grow 2.5-fold in a step:
    # beyond float32 in 100 of them.
    rnn = RaggedRNN(kind, 3, 4, bidirectional=False).double()
    with torch.no_grad():
        rnn.bias_ih.zero_()
        rnn.bias_hh.zero_()
        rnn.weight_hh.copy_(8 * torch.eye(4).repeat(rnn.weight_hh.size(2) // 4, 1))
    z, source, weight, ptr = segments(1, 3, [150, 1, 0, 2])
    expected = evaluate(rnn, "reference", z, source, weight, ptr)
    narrow = evaluate(rnn.float(), backend, z.float(), source, weight.float(), ptr)
    assert_close(narrow, expected, 1e-4)


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
@pytest.mark.parametrize("kind", KINDS)
def test_empty_segments_give_zeros(kind: str, lengths: list[int], backend: str) -> None:
    rnn = RaggedRNN(kind, 3, 4, heads=2).double()
    inputs = segments(2, 3, lengths)
    results, expected = evaluate(rnn, backend, *inputs), evaluate(rnn, "reference", *inputs)
    assert results["output"].shape == expected["output"].shape == (len(lengths), 2, 4)
    assert not any(value.any() for value in (*results.values(), *expected.values()))
    if lengths:
        assert {"weight_ih", "weight_hh"} <= expected.keys()  # gradients too


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("kind", KINDS)
def test_small_inputs_keep_their_digits(kind: str, backend: str) -> None:
    # The inputs of a GOAT layer are a thousandth of one at the start of training.
    rnn = RaggedRNN(kind, 5, 16, heads=2).double()
    with torch.no_grad():
        rnn.bias_ih.zero_()
        rnn.bias_hh.zero_()
    z, source, weight, ptr = segments(2, 5, [4, 9])
    expected = evaluate(rnn, "reference", z * 0.002, source, weight, ptr)
    narrow = evaluate(rnn.float(), backend, z.float() * 0.002, source, weight.float(), ptr)
    assert_close(narrow, expected, 1e-5)


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_equal_from_run_to_run(kind: str, backend: str) -> None:
    rnn = RaggedRNN(kind, 5, 8, heads=2)
    z, source, weight, ptr = segments(2, 5, [9, 1, 0, 4], num_sources=3)
    first, second = (evaluate(rnn, backend, z.float(), source, weight.float(), ptr) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("backend", AVAILABLE)
def test_inputs_need_not_be_contiguous(backend: str) -> None:
    rnn = RaggedRNN("lstm", 5, 6, heads=2).double()
    z, source, weight, ptr = segments(2, 5)
    expected = evaluate(rnn, "reference", z, source, weight, ptr)
    strided = [torch.stack([value, value], dim=-1)[..., 0] for value in (z, source, weight)]
    assert not any(value.is_contiguous() for value in strided)
    assert_close(evaluate(rnn, backend, *strided, ptr), expected, 1e-10)


@pytest.mark.parametrize("backend", AVAILABLE)
def test_gradients_of_only_what_needs_them(backend: str) -> None:
    rnn = RaggedRNN("gru", 5, 6, heads=2, backend=backend).double().to(device_of(backend))
    z, source, weight, ptr = (value.to(device_of(backend)) for value in segments(2, 5))
    rnn.requires_grad_(False)
    assert not rnn(z, Places.from_ptr(source, ptr), weight).requires_grad
    weight.requires_grad_()
    rnn(z, Places.from_ptr(source, ptr), weight).sum().backward()
    assert weight.grad is not None
    assert z.grad is None


@pytest.mark.parametrize("backend", AVAILABLE)
def test_double_backward_is_refused_in_words(backend: str) -> None:
    rnn = RaggedRNN("lstm", 5, 6, heads=2, backend=backend).double().to(device_of(backend))
    z, source, weight, ptr = (value.to(device_of(backend)) for value in segments(2, 5))
    z.requires_grad_()
    (grad,) = torch.autograd.grad(rnn(z, Places.from_ptr(source, ptr), weight).sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        grad.sum().backward()


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_states_are_computed_in_float32(dtype: torch.dtype, backend: str) -> None:
    rnn = RaggedRNN("lstm", 5, 6, heads=2).to(dtype)
    z, source, weight, ptr = segments(2, 5)
    expected = evaluate(rnn.double(), "reference", z.to(dtype).double(), source, weight, ptr)
    out = evaluate(rnn.to(dtype), backend, z.to(dtype), source, weight.float(), ptr)["output"]
    assert out.dtype == dtype
    assert relative_error(out, expected["output"]) < 1e-2


@pytest.mark.parametrize("backend", AVAILABLE)
def test_compiles_without_a_graph_break(backend: str) -> None:
    device = device_of(backend)
    rnn = RaggedRNN("lstm", 5, 6, heads=2, backend=backend).double().to(device)
    z, source, weight, ptr = (value.to(device) for value in segments(2, 5))
    compiled = torch.compile(rnn, fullgraph=True, backend="aot_eager")
    expected = with_gradients(rnn, rnn(z, Places.from_ptr(source, ptr), weight).cpu())
    assert_close(with_gradients(rnn, compiled(z, Places.from_ptr(source, ptr), weight).cpu()), expected, 1e-12)


@pytest.mark.parametrize("backend", AVAILABLE)
def test_operator_is_well_formed(backend: str) -> None:
    device = device_of(backend)
    projected = torch.randn(2, 9, 2, 12, dtype=torch.double, device=device, requires_grad=True)
    _, source, weight, ptr = (value.to(device) for value in segments(2, 5))
    recurrent = [torch.randn(2, 2, 12, *last, dtype=torch.double, device=device) for last in ((3,), (), ())]
    arguments = (projected, source, weight, ptr, *recurrent, "lstm", backend, True)
    torch.library.opcheck(torch.ops.torch_goat.ragged_rnn, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_as_torch_is_equivalent(kind: str, bidirectional: bool) -> None:
    rnn = RaggedRNN(kind, 5, 6, heads=2, bidirectional=bidirectional).double()
    z, source, weight, ptr = segments(2, 5, [3, 1, 4])
    out = rnn(z, Places.from_ptr(source, ptr), weight)
    for head in range(2):
        sequences = [
            weight[head, start:end, None] * z[source[head, start:end], head] for start, end in itertools.pairwise(ptr)
        ]
        module = rnn.as_torch(head)
        state = module(pack_sequence(sequences, enforce_sorted=False))[1]
        state = state[0] if kind == "lstm" else state
        assert relative_error(out[:, head], state.transpose(0, 1).flatten(1)) < 1e-12
        with torch.no_grad():
            next(module.parameters()).zero_()
        assert rnn.weight_ih.abs().min() > 0  # a copy, not a view
    with pytest.raises(IndexError, match="head 2"):
        rnn.as_torch(2)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_factory_of_the_users(layers: int) -> None:
    def factory(in_channels: int, out_channels: int) -> torch.nn.Module:
        return torch.nn.LSTM(in_channels, out_channels // 2, num_layers=layers, bidirectional=True)

    packed = PackedRNN(factory, 5, 6, heads=2).double()
    z, source, weight, ptr = segments(2, 5)
    out = packed(z, Places.from_ptr(source, ptr), weight)
    for head in range(2):
        for target, (start, end) in enumerate(itertools.pairwise(ptr)):
            if start == end:
                assert not out[target, head].any()
                continue
            sequence = weight[head, start:end, None] * z[source[head, start:end], head]
            expected = packed.as_torch(head)(sequence)[1][0][-2:].flatten()
            assert relative_error(out[target, head], expected) < 1e-12


def test_bad_factories_are_refused() -> None:
    with pytest.raises(TypeError, match="must return a module, got int"):
        PackedRNN(lambda a, b: 3, 5, 6)
    z, source, weight, ptr = segments(1, 5)
    with pytest.raises(ValueError, match=r"\[3, 4\], expected \[3, 6\]"):
        PackedRNN(lambda a, b: torch.nn.LSTM(a, 4), 5, 6).double()(z, Places.from_ptr(source, ptr), weight)
    with pytest.raises(ValueError, match=r"final states of shape \[\d+, 3\]"):  # two layers are not two directions
        PackedRNN(lambda a, b: torch.nn.LSTM(a, b // 2, num_layers=2), 5, 6).double()(
            z, Places.from_ptr(source, ptr), weight
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("elman", 5, 6), r"\['gru', 'lstm', 'rnn'\] or a factory, got 'elman'"),
        (("lstm", 5, 7), "out_channels=7 is odd"),
        (("lstm", 5, 0), "at least 1, got 0"),
        (("lstm", 5, 6, 1, True, "cuda"), "'reference', 'torch'.*got 'cuda'"),
    ],
)
def test_bad_arguments_are_refused(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RaggedRNN(*arguments)


def test_auto_takes_the_fastest_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_goat.ops.ragged_rnn.backends import _choose
    from torch_goat.ops.ragged_rnn.operator import KERNELS

    assert _choose("auto", "cpu", torch.float32, 8) == "cpu"
    assert _choose("auto", "cpu", torch.float32, 129) == "torch"
    assert _choose("triton", "cuda", torch.float32, 129) == "torch"
    assert _choose("auto", "meta", torch.float32, 8) == "torch"
    with pytest.raises(ValueError, match="backend 'cpu' reads tensors on cpu, got cuda"):
        _choose("cpu", "cuda", torch.float32, 8)
    _choose.cache_clear()
    monkeypatch.setattr(KERNELS["cpu"], "unavailable", lambda: "numba is not installed")
    assert _choose("auto", "cpu", torch.float32, 8) == "torch"
    with pytest.raises(ValueError, match="backend 'cpu' cannot run here: numba is not installed"):
        RaggedRNN("lstm", 3, 4, backend="cpu")
    _choose.cache_clear()


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_wide_layers_fall_back(backend: str) -> None:
    rnn = RaggedRNN("rnn", 3, 2 * 130).double()
    inputs = segments(1, 3, [2, 3])
    assert_close(evaluate(rnn, backend, *inputs), evaluate(rnn, "reference", *inputs), 1e-10)
