import torch

from tests.compare import relative_error
from torch_goat.ops import Segments, segment_softmax
from torch_goat.ops.segments import _GatherColumns, segment_offsets, sorted_columns


def test_softmax_of_each_segment() -> None:
    score = 30 * torch.randn(2, 9, dtype=torch.double, requires_grad=True)
    found = segment_softmax(score, Segments(torch.tensor([0, 4, 4, 5, 9]), 9))
    for start, end in [(0, 4), (4, 5), (5, 9)]:
        assert relative_error(found[:, start:end], score[:, start:end].softmax(dim=-1)) < 1e-12


def test_softmax_of_nothing() -> None:
    assert segment_softmax(torch.zeros(3, 0), Segments(torch.zeros(5, dtype=torch.long), 0)).shape == (3, 0)


def test_softmax_differentiates_twice() -> None:
    score = torch.randn(2, 6, dtype=torch.double, requires_grad=True)
    segments = Segments(torch.tensor([0, 4, 4, 6]), 6)
    assert torch.autograd.gradcheck(lambda s: segment_softmax(s, segments), score)
    assert torch.autograd.gradgradcheck(lambda s: segment_softmax(s, segments), score)


def test_the_gradient_of_columns_for_gpus_is_that_of_finite_differences() -> None:
    value = torch.randn(3, 7, dtype=torch.double, requires_grad=True)
    index = torch.randint(6, (20,))  # column 6 is never taken
    columns = sorted_columns(index, 7, 3)
    assert torch.equal(_GatherColumns.apply(value, index, *columns), value[:, index])
    assert torch.autograd.gradcheck(lambda value: _GatherColumns.apply(value, index, *columns), value)
    index = index.sort().values
    offsets = segment_offsets(torch.searchsorted(index, torch.arange(8)), 3, 20)
    assert torch.autograd.gradcheck(lambda value: _GatherColumns.apply(value, index, None, offsets), value)
