"""Launches of Triton kernels: which of them use what an earlier one has compiled."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from torch_goat.ops import launching
from torch_goat.ops.launching import Kernel


class Compiled:
    """What Triton compiles: it notes its launches."""

    def __init__(self, launches: list[Any]) -> None:
        self.launches = launches

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        return lambda *arguments: self.launches.append((grid, arguments))


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A kernel ``f(a, n, BLOCK)``, the launches that Triton prepares, and those of what it has compiled."""
    prepared, launches = [], []

    class Jit:
        arg_names = ("a", "n", "BLOCK")

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            def prepare(*arguments: Any, **constants: Any) -> Compiled:
                prepared.append((grid, arguments, constants))
                return Compiled(launches)

            return prepare

    monkeypatch.setattr(launching.triton, "jit", lambda function, **options: Jit())
    return SimpleNamespace(kernel=Kernel(print), prepared=prepared, launches=launches)


def test_a_launch_like_an_earlier_one_is_not_prepared_again(noted: SimpleNamespace) -> None:
    first, second = torch.zeros(4), torch.ones(8)
    noted.kernel[(3,)](first, 5, BLOCK=32, num_warps=2)
    noted.kernel[(7, 2)](second, 9, BLOCK=32, num_warps=2)
    assert noted.prepared == [((3,), (first, 5), {"BLOCK": 32, "num_warps": 2})]
    assert noted.launches == [((7, 2, 1), (second, 9, 32))]  # options are no arguments


@pytest.mark.parametrize(
    ("array", "number", "constants"),
    [
        (torch.zeros(4, dtype=torch.double), 5, {"BLOCK": 32}),
        (None, 5, {"BLOCK": 32}),
        (torch.zeros(4), 1, {"BLOCK": 32}),  # Triton compiles for a number that is 1,
        (torch.zeros(4), 48, {"BLOCK": 32}),  # a multiple of 16,
        (torch.zeros(4), 2**31 + 1, {"BLOCK": 32}),  # of 64 bits,
        (torch.zeros(4), 5.0, {"BLOCK": 32}),
        (torch.zeros(4), 5, {"BLOCK": 64}),
        (torch.zeros(4), 5, {"BLOCK": 32, "num_warps": 8}),
        (torch.zeros(5)[1:], 5, {"BLOCK": 32}),  # and for memory that is not aligned
    ],
)
def test_whatever_triton_may_compile_differently_is_prepared(
    array: torch.Tensor | None, number: float, constants: dict[str, int], noted: SimpleNamespace
) -> None:
    noted.kernel[(1,)](torch.zeros(4), 5, BLOCK=32)
    noted.kernel[(1,)](array, number, **constants)
    assert len(noted.prepared) == 2
    noted.kernel[(1,)](torch.zeros(4), 7, BLOCK=32)
    assert (len(noted.prepared), len(noted.launches)) == (2, 1)
