import torch

from torch_goat.ops.take import _Take, take


def test_takes_columns() -> None:
    value, index = torch.randn(3, 5), torch.tensor([4, 0, 0, 2])
    assert torch.equal(take(value, index), value[:, index])


def test_the_gradient_for_gpus_is_that_of_finite_differences() -> None:
    value = torch.randn(3, 7, dtype=torch.double, requires_grad=True)
    index = torch.randint(6, (20,))  # column 6 is never taken
    assert torch.autograd.gradcheck(lambda value: _Take.apply(value, index, False), value)
    assert torch.autograd.gradcheck(lambda value: _Take.apply(value, index.sort().values, True), value)
