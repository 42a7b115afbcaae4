"""The minGRU and the minLSTM, whose gates depend on the input alone."""

import math

import pytest
import torch
from torch import Tensor

from tests.backends import AVAILABLE, COMPILED, check, evaluate, segments
from tests.compare import relative_error
from torch_goat.nn import GOATConv, RNNAggregation
from torch_goat.nn.ragged_rnn import RaggedRNN
from torch_goat.ops import Places

SCANS = ["mingru", "minlstm"]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def by_hand(rnn: RaggedRNN, direction: int, unit: int, sequence: Tensor) -> float:
    """The equations of the paper for one unit, number by number."""
    weight, bias = rnn.weight_ih[0, direction].tolist(), rnn.bias_ih[0, direction].tolist()
    h = 0.0
    for x in sequence.tolist():
        gates = [
            sum(w * x_c for w, x_c in zip(weight[row], x, strict=True)) + bias[row]
            for row in range(unit, len(bias), rnn.hidden)
        ]
        if rnn.kind == "mingru":
            z, new = sigmoid(gates[0]), gates[1]
            h = (1 - z) * h + z * new
        else:
            i, f, new = sigmoid(gates[0]), sigmoid(gates[1]), gates[2]
            h = f / (f + i) * h + i / (f + i) * new
    return h


@pytest.mark.parametrize("kind", SCANS)
def test_the_equations_by_hand(kind: str) -> None:
    rnn = RNNAggregation(3, 5, rnn=kind, bidirectional=True, backend="reference").double()
    x = torch.randn(7, 3, dtype=torch.double)
    out = rnn(x, ptr=torch.tensor([0, 4, 4, 7]))
    for group, elements in enumerate([x[:4], x[:0], x[4:]]):
        read = [(0, unit, elements) for unit in range(3)] + [(1, unit, elements.flip(0)) for unit in range(2)]
        expected = torch.tensor([by_hand(rnn.rnn, *given) for given in read], dtype=torch.double)
        assert torch.allclose(out[group], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("kind", SCANS)
@pytest.mark.parametrize("memory", [0.0, 4.0], ids=["short", "long"])
def test_segments_of_any_length(memory: float, kind: str, backend: str) -> None:
    """From 1 to 100,000 places; the longer its memory, the further a segment's gradient goes back."""
    lengths = [1, 2, 31, 32, 33, 0, 100_000, 7, 1000, 64]
    rnn = RaggedRNN(kind, 3, 4)
    with torch.no_grad():
        rnn.bias_ih[..., :2] -= memory  # z of a minGRU, i of a minLSTM
    inputs = segments(1, 3, lengths, num_sources=50)
    other = "torch" if backend != "torch" else "cpu"
    check(rnn, backend, inputs, 1e-10, other=other)
    check(rnn, backend, inputs, 1e-5, torch.float, other=other)


@pytest.mark.parametrize("kind", SCANS)
def test_the_reference_reads_a_long_segment_as_the_scan_does(kind: str) -> None:
    check(RaggedRNN(kind, 3, 4), "torch", segments(1, 3, [2000, 1]), 1e-10)


@pytest.mark.filterwarnings("ignore:overflow")  # of NumPy in Triton's interpreter
@pytest.mark.parametrize("backend", ["reference", *AVAILABLE])
@pytest.mark.parametrize("kind", SCANS)
def test_extreme_preactivations(kind: str, backend: str) -> None:
    """Gates far beyond where the logistic function underflows: no NaN, and a minLSTM still compares both."""
    rnn = RaggedRNN(kind, 2, 1, bidirectional=False)
    with torch.no_grad():
        rnn.weight_ih.zero_()
        rnn.weight_ih[..., 0] = 1.0  # the same in all gates
        rnn.weight_ih[:, :, -1] = torch.tensor([0.0, 1.0])
        rnn.bias_ih.zero_()
        if kind == "minlstm":
            rnn.bias_ih[..., 0] = 1.0  # i is e times as large as f where both are small, and as large where both are 1
    far = [1e4, -1e4, -1e4, 200.0, -100.0, -1e4]
    z = torch.tensor([[[at, 1.0 + number]] for number, at in enumerate(far)])
    source, ptr = torch.arange(6).view(1, -1), torch.tensor([0, 1, 3, 6])
    for dtype in (torch.float, torch.double):
        results = evaluate(rnn.to(dtype), backend, z.to(dtype), source, None, ptr)
        assert all(value.isfinite().all() for value in results.values())
        small, large = (0.0, 1.0) if kind == "mingru" else (math.e / (1 + math.e), 0.5)  # z far below and above zero
        h = [large * 1, small * 2]
        h[1] += small * (3 - h[1])
        last = large * 4
        for new in (5, 6):
            last += small * (new - last)
        limit = 1e-3 if dtype == torch.float else 1e-10  # -1e4 and a bit has three digits after the point in float32
        assert relative_error(results["output"].flatten(), torch.tensor([*h, last], dtype=torch.double)) < limit


@pytest.mark.parametrize("kind", SCANS)
def test_no_recurrent_weights(kind: str) -> None:
    rnn = GOATConv(5, 4, heads=2, rnn=kind).rnn
    assert list(rnn.state_dict()) == ["weight_ih", "bias_ih"]
    with pytest.raises(ValueError, match=rf"as_torch needs one of \['gru', 'lstm', 'rnn'\], got '{kind}'"):
        rnn.as_torch()


@pytest.mark.parametrize("kind", SCANS)
def test_a_state_keeps_as_much_of_itself_as_that_of_an_lstm_at_the_start(kind: str) -> None:
    rnn = GOATConv(5, 4, rnn=kind).rnn
    with torch.no_grad():
        rnn.bias_ih[..., -2:] = 1.0  # n is 1 if the input is zero
    out = rnn(torch.zeros(1, 1, 4), Places.from_ptr(torch.zeros(1, 3).long(), torch.tensor([0, 3])), None)
    assert torch.allclose(out, torch.full_like(out, 1 - sigmoid(1.0) ** 3))
