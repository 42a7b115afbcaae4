import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import Module, ModuleList, RNNBase
from torch.nn.utils.rnn import pack_sequence

from tests.backends import AVAILABLE, COMPILED, LENGTHS, check, device_of, evaluate, segments
from tests.compare import assert_close, relative_error, with_gradients
from torch_goat.nn.packed_rnn import PackedRNN
from torch_goat.nn.ragged_rnn import RaggedRNN
from torch_goat.ops import Places
from torch_goat.ops.ragged_rnn import backends
from torch_goat.ops.ragged_rnn.interface import GATES, SCANS

GPU = torch.cuda.is_available()
RECURRENT = ["lstm", "gru", "rnn"]
KINDS = [*RECURRENT, *SCANS]


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_equal_the_reference(kind, bidirectional, weighted, backend) -> None:
    rnn = RaggedRNN(kind, 5, 4, heads=2, bidirectional=bidirectional)
    z, source, weight, ptr = segments(2, 5)
    inputs = (z, source, weight if weighted else None, ptr)
    check(rnn, backend, inputs, 1e-10)
    check(rnn, backend, inputs, 1e-5, torch.float)


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize(
    ("kind", "hidden"),
    [("lstm", 1), ("gru", 5), ("gru", 17), ("lstm", 17), ("rnn", 128), ("mingru", 3), ("minlstm", 17), ("mingru", 512)],
)
def test_every_width(kind: str, hidden: int, backend: str) -> None:
    # The CPU kernel reads several segments side by side, in stretches of 32 steps.
    lengths = [0, 3, 1, 70, 2, 0, 33, 32, 64, 65, 5, 1, 1, 7, 2, 0] if backend in COMPILED else [2, 0, 3]
    if kind in RECURRENT and hidden > backends.KERNELS[backend].max_hidden(torch.double):
        pytest.skip(f"{hidden} units are too many for {backend} here")
    check(RaggedRNN(kind, 4, 2 * hidden), backend, segments(1, 4, lengths), 1e-10)


LARGE = {
    "a hub beside leaves": [20_000, *[1] * (100_000 if GPU else 5_000)],
    "all equal": [7] * 3_000,
    "one node": [1],
    "segments of 0 to 3": [0, 1, 2, 3] * (250_000 if GPU else 10_000),
}


@pytest.mark.parametrize("backend", [name for name in COMPILED if name != "torch"])
@pytest.mark.parametrize("case", LARGE)
@pytest.mark.parametrize("heads", [1, 16])
def test_shapes_that_break_kernels(case: str, heads: int, backend: str) -> None:
    longest = 20_000 if GPU or heads == 1 else 2_000
    inputs = segments(heads, 3, [min(length, longest) for length in LARGE[case]], num_sources=50)
    check(RaggedRNN("lstm", 3, 4, heads=heads), backend, inputs, 1e-5, torch.float, other="torch")


def by_direction(module: RNNBase) -> ModuleList:
    """The two directions of a module, each as a module that reads forwards."""
    both = ModuleList(type(module)(module.input_size, module.hidden_size) for _ in range(2))
    names = [name for name, _ in both[0].named_parameters()]
    for one, ending in zip(both, ("", "_reverse"), strict=True):
        one.load_state_dict({name: getattr(module, name + ending) for name in names})
    return both


def last_state(module: Module, rows: Tensor) -> Tensor:
    """The state ``[hidden]`` after all rows, read in pieces since cuDNN refuses 100,000 steps in one call."""
    state = None
    for piece in rows.split(10_000):
        state = module(piece, state)[1]
    return (state[0] if isinstance(state, tuple) else state)[0]


@pytest.mark.parametrize("length", [2_000, pytest.param(100_000, marks=[] if GPU else pytest.mark.slow)])
@pytest.mark.parametrize("hidden", [4, 64])  # on a GPU kept in registers, and shared by several programs
@pytest.mark.parametrize("backend", [name for name in COMPILED if name != "torch"])
@pytest.mark.parametrize("kind", RECURRENT)
def test_a_long_segment_equals_pytorch(kind: str, backend: str, hidden: int, length: int) -> None:
    rnn = RaggedRNN(kind, 3, 2 * hidden)
    z, source, weight, ptr = segments(1, 3, [1, length, 2, 33])
    found = evaluate(rnn, backend, z.float(), source, weight.float(), ptr)
    # On the same device: on a GPU, cuDNN reads a long segment in seconds.
    device = device_of(backend)
    both, z = by_direction(rnn.as_torch(0)).to(device, torch.double), z.to(device).requires_grad_()
    rows = weight[0, :, None].to(device) * z[source[0].to(device), 0]  # [places, 3]
    # One segment at a time: the time of a packed sequence is quadratic in the length.
    own = rows.split(ptr.diff().tolist())
    out = torch.stack([torch.cat([last_state(both[0], one), last_state(both[1], one.flip(0))]) for one in own])
    expected = {name: value.cpu() for name, value in with_gradients(both, out[:, None], z).items()}
    weights = torch.stack([expected[f"{direction}.weight_hh_l0"] for direction in (0, 1)])
    assert relative_error(found["output"], expected["output"]) < 1e-5
    assert relative_error(found["input 0"], expected["input 0"]) < 1e-5
    assert relative_error(found["weight_hh"], weights.view_as(found["weight_hh"])) < 1e-5


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("kind", RECURRENT)
def test_a_short_segment_beside_a_long_one_keeps_its_gradient(kind: str, backend: str) -> None:
    # Past the end of a segment, where nothing is read, this matrix would let a gradient grow 2.5-fold in a step:
    # beyond float32 in 100 of them.
    rnn = RaggedRNN(kind, 3, 4, bidirectional=False)
    with torch.no_grad():
        rnn.bias_ih.zero_()
        rnn.bias_hh.zero_()
        rnn.weight_hh.copy_(8 * torch.eye(4).repeat(rnn.weight_hh.size(2) // 4, 1))
    check(rnn, backend, segments(1, 3, [150, 1, 0, 2]), 1e-4, torch.float)


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
        assert dict(rnn.named_parameters()).keys() <= expected.keys()  # gradients too


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("scale", [0.002, 1e-6])  # the first is that of a GOAT layer at the start of training
@pytest.mark.parametrize("kind", KINDS)
def test_small_inputs_keep_their_digits(kind: str, scale: float, backend: str) -> None:
    rnn = RaggedRNN(kind, 5, 8, heads=2)
    with torch.no_grad():
        for bias in (rnn.bias_ih, rnn.bias_hh):
            if bias is not None:
                bias.zero_()
    z, *others = segments(2, 5, [4, 9])
    check(rnn, backend, (z * scale, *others), 1e-5, torch.float)


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_equal_from_run_to_run(kind: str, backend: str) -> None:
    rnn = RaggedRNN(kind, 5, 8, heads=2)
    z, source, weight, ptr = segments(2, 5, [9, 1, 0, 4], num_sources=3)
    first, second = (evaluate(rnn, backend, z.float(), source, weight.float(), ptr) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("backend", AVAILABLE)
def test_inputs_need_not_be_contiguous(backend: str) -> None:
    *inputs, ptr = segments(2, 5)
    strided = [torch.stack([value, value], dim=-1)[..., 0] for value in inputs]
    assert not any(value.is_contiguous() for value in strided)
    check(RaggedRNN("lstm", 5, 4, heads=2), backend, (*strided, ptr), 1e-10)


@pytest.mark.parametrize("backend", AVAILABLE)
def test_gradients_of_only_what_needs_them(backend: str) -> None:
    rnn = RaggedRNN("gru", 5, 4, heads=2, backend=backend).double().to(device_of(backend))
    z, source, weight, ptr = (value.to(device_of(backend)) for value in segments(2, 5))
    rnn.requires_grad_(False)
    assert not rnn(z, Places.from_ptr(source, ptr), weight).requires_grad
    weight.requires_grad_()
    rnn(z, Places.from_ptr(source, ptr), weight).sum().backward()
    assert weight.grad is not None
    assert z.grad is None


@pytest.mark.parametrize("backend", AVAILABLE)
def test_double_backward_is_refused_in_words(backend: str) -> None:
    rnn = RaggedRNN("lstm", 5, 4, heads=2, backend=backend).double().to(device_of(backend))
    z, source, weight, ptr = (value.to(device_of(backend)) for value in segments(2, 5))
    z.requires_grad_()
    (grad,) = torch.autograd.grad(rnn(z, Places.from_ptr(source, ptr), weight).sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative; use backend='reference'"):
        grad.sum().backward()


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["lstm", "minlstm"])
def test_half_precision_states_are_computed_in_float32(kind: str, dtype: torch.dtype, backend: str) -> None:
    rnn = RaggedRNN(kind, 5, 4, heads=2).to(dtype)
    z, source, weight, ptr = segments(2, 5)
    expected = evaluate(rnn.double(), "reference", z.to(dtype).double(), source, weight, ptr)
    out = evaluate(rnn.to(dtype), backend, z.to(dtype), source, weight.float(), ptr)["output"]
    assert out.dtype == dtype
    assert relative_error(out, expected["output"]) < 1e-2


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("kind", ["lstm", "mingru"])
def test_compiles_without_a_graph_break(kind: str, backend: str) -> None:
    device = device_of(backend)
    rnn = RaggedRNN(kind, 5, 4, heads=2, backend=backend).double().to(device)
    z, source, weight, ptr = (value.to(device) for value in segments(2, 5))
    compiled = torch.compile(rnn, fullgraph=True, backend="aot_eager")
    expected = with_gradients(rnn, rnn(z, Places.from_ptr(source, ptr), weight).cpu())
    assert_close(with_gradients(rnn, compiled(z, Places.from_ptr(source, ptr), weight).cpu()), expected, 1e-12)


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("kind", KINDS)
def test_operator_is_well_formed(kind: str, backend: str) -> None:
    device, gates, lengths = device_of(backend), GATES[kind] * 2, [70, 0, 1] if backend in COMPILED else LENGTHS
    projected = torch.randn(2, 9, 2, gates, dtype=torch.double, device=device, requires_grad=True)
    _, source, weight, ptr = (value.to(device) for value in segments(2, 5, lengths))
    recurrent = [torch.randn(2, 2, gates, *last, dtype=torch.double, device=device) for last in ((2,), (), ())]
    if kind in SCANS:
        recurrent[0] = recurrent[2] = projected.new_empty(0)
    arguments = (projected, source, weight, ptr, *recurrent, kind, backend, True)
    torch.library.opcheck(torch.ops.torch_goat.ragged_rnn, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("kind", RECURRENT)
def test_as_torch_is_equivalent(kind: str, bidirectional: bool) -> None:
    rnn = RaggedRNN(kind, 5, 4, heads=2, bidirectional=bidirectional).double()
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
    with pytest.raises(TypeError, match="rnn must be a factory of modules, got a LSTM; pass a function"):
        PackedRNN(torch.nn.LSTM(5, 6), 5, 6)
    z, source, weight, ptr = segments(1, 5)
    with pytest.raises(ValueError, match=r"\[3, 4\], expected \[3, 6\]"):
        PackedRNN(lambda a, b: torch.nn.LSTM(a, 4), 5, 6).double()(z, Places.from_ptr(source, ptr), weight)
    with pytest.raises(ValueError, match=r"final states of shape \[\d+, 3\]"):  # two layers are not two directions
        PackedRNN(lambda a, b: torch.nn.LSTM(a, b // 2, num_layers=2), 5, 6).double()(
            z, Places.from_ptr(source, ptr), weight
        )


def test_no_output_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="out_channels must be a whole number of at least 1, got 0"):
        RaggedRNN("lstm", 5, 0)


def test_auto_takes_the_fastest_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_goat.ops.ragged_rnn.backends import _choose
    from torch_goat.ops.ragged_rnn.operator import KERNELS

    assert _choose("auto", "cpu", torch.float32, 8) == "cpu"
    assert _choose("auto", "cpu", torch.float32, 1024) == "cpu"
    assert _choose("auto", "meta", torch.float32, 8) == "torch"
    assert _choose("auto", "cuda", torch.float32, 8) == ("triton" if "triton" in AVAILABLE else "torch")
    with pytest.raises(ValueError, match="backend 'cpu' reads tensors on cpu, got cuda"):
        _choose("cpu", "cuda", torch.float32, 8)
    _choose.cache_clear()
    monkeypatch.setattr(KERNELS["cpu"], "unavailable", lambda: "numba is not installed")
    assert _choose("auto", "cpu", torch.float32, 8) == "torch"
    with pytest.raises(ValueError, match="backend 'cpu' cannot run here: numba is not installed"):
        RaggedRNN("lstm", 3, 4, backend="cpu")
    _choose.cache_clear()


def test_a_width_without_a_fast_kernel_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends.KERNELS["cpu"], "max_hidden", lambda arithmetic: 40)
    monkeypatch.setattr(backends, "_warned", False)
    monkeypatch.setattr(backends, "_choose", backends._choose.__wrapped__)
    z, source, weight, ptr = segments(1, 3)
    with pytest.warns(
        UserWarning, match=r"hidden width 41 per direction exceeds 40, .* several times slower; use more"
    ):
        expected = RaggedRNN("lstm", 3, 41, bidirectional=False).double()(z, Places.from_ptr(source, ptr), weight)
    assert expected.shape == (len(LENGTHS), 1, 41)
    assert RaggedRNN("lstm", 3, 43, bidirectional=False).kernel(z) == "torch"  # no second warning, which is an error
