"""Triton kernels whose launches take less work on the host.

On a small graph, a step takes the time of its launches, and Triton spends most of a launch on inspecting the arguments
and looking up what it has compiled for such.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor

_TAKES_CONSTANTS = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 3)  # the launch of what was compiled


class Kernel:
    """A Triton kernel, launched by ``kernel[grid](...)`` with names for compile-time constants and options only.

    A launch that resembles an earlier one uses what Triton has compiled for that.
    """

    def __init__(self, function: Callable, **options: Any) -> None:
        self.jit = triton.jit(function, **options)
        self._compiled: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}  # and all constants, in order

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return partial(self._launch, grid)

    def _launch(self, grid: tuple[int, ...], *arguments: Tensor | float | None, **constants: Any) -> None:
        kinds: list[Any] = []  # all that Triton may compile differently
        addresses = 0
        for value in arguments:
            if isinstance(value, Tensor):
                addresses |= value.data_ptr()
                kinds.append(value.dtype)
            elif isinstance(value, int):  # 1, multiples of 16, and numbers of more than 32 bits
                kinds.append(value if value == 1 else (value & 15 == 0, value >> 31 == 0))
            else:
                kinds.append(value if value is None else type(value))
        if addresses & 15:  # only some views are not aligned
            self.jit[grid](*arguments, **constants)
            return
        device = torch.cuda.current_device() if torch.cuda.is_available() else -1
        key = (device, *kinds, *constants, *constants.values())
        if (known := self._compiled.get(key)) is not None:
            compiled, ordered = known
            compiled[grid + (1,) * (3 - len(grid))](*arguments, *ordered)
            return
        compiled = self.jit[grid](*arguments, **constants)
        if compiled is not None and _TAKES_CONSTANTS:  # the interpreter returns nothing
            ordered = tuple(constants[name] for name in self.jit.arg_names[len(arguments) :])
            self._compiled[key] = compiled, ordered


def kernel(**options: Any) -> Callable[[Callable], Kernel]:
    """``triton.jit`` of a kernel that is launched from the host."""
    return partial(Kernel, **options)
