"""Input checks that read the data, which takes a pass over it or a device synchronisation, and their default.

Every check takes ``checks``: ``True`` or ``False``, or ``None`` for the user's default. Checks of shapes and dtypes are
free and always on. Under ``torch.compile``, where values cannot be read, checks of indices become operators; callers
must use what they return, or they are removed as dead code.
"""

import math
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

_default = True


def set_checks(enabled: bool) -> None:
    """Sets whether layers check input data (default: ``True``). A layer's own ``checks`` attribute takes precedence.

    Args:
        enabled: ``False`` skips the range check of indices, the search for non-finite features, the check that a
            replayed ordering fits the graph and, on a GPU, the comparison of the edges with those of the cached layout.
            Invalid input then gives wrong results or an error inside PyTorch, and indices that are out of range can
            crash the process. Code compiled by ``torch.compile`` checks indices only.
    """
    if not isinstance(enabled, bool):
        raise TypeError(f"set_checks expects True or False, got {enabled!r}.")
    global _default
    _default = enabled


def checks_enabled(checks: bool | None = None) -> bool:
    """Whether to check data; never under ``torch.compile`` or in a CUDA graph capture, where values cannot be read."""
    return _wanted(checks) and not torch.compiler.is_compiling() and not capturing()


def _wanted(checks: bool | None) -> bool:
    return _default if checks is None else checks


def capturing() -> bool:
    """Whether a CUDA graph is being captured: kernels run later, and nothing can be read before."""
    return (
        not torch.compiler.is_compiling() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    )


def transforming() -> bool:
    """Whether a transform of ``torch.func`` is active, which cannot see into our own autograd functions."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def check_count(name: str, value: Any, least: int = 1, otherwise: str = "") -> int:
    """A whole number of at least ``least``; the error for other values also says what is allowed ``otherwise``."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not least <= value < 2**63:
        bound = "below 2**63" if whole and value > least else f"of at least {least}"
        raise ValueError(f"{name} must be a whole number {bound}{otherwise}, got {value!r}.")
    return int(value)


def check_choice(name: str, value: object, *choices: str) -> None:
    """Raises an error unless ``value`` is one of the choices."""
    if value not in choices:
        *others, last = map(repr, choices)
        raise ValueError(f"{name} must be {', '.join(others)} or {last}, got {value!r}.")


def check_number(name: str, value: Any, least: float = -math.inf) -> float:
    """A finite number of at least ``least``."""
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not (abs(number) < math.inf and number >= least):
        bound = "" if least == -math.inf else f" of at least {least:g}"
        raise ValueError(f"{name} must be a finite number{bound}, got {value!r}.")
    return number


def check_fraction(name: str, value: Any) -> float:
    """A number between 0 and 1."""
    if not 0 <= check_number(name, value) <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}.")
    return float(value)


def check_finite(name: str, value: Tensor, checks: bool | None = None) -> None:
    """Raises an error if features contain NaN or infinity, which cannot be ordered."""
    # A finite sum has finite terms. If it is not finite, finite terms may have overflowed.
    if not checks_enabled(checks) or math.isfinite(float(value.detach().sum())):
        return
    wrong = (~torch.isfinite(value.to_dense())).any(dim=1).nonzero()
    if wrong.numel() > 0:
        raise ValueError(
            f"{name} has a non-finite value in row {int(wrong[0])}; replace NaN and infinity before the layer."
        )


def check_range(name: str, index: Tensor, size: int, checks: bool | None = None) -> Tensor:
    """Raises an error unless node indices are integers in ``0 .. size - 1``; returns them."""
    if index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"{name} must hold whole numbers, got {index.dtype}.")
    if torch.compiler.is_compiling() and _wanted(checks):
        return _check_range(name, index, size)
    if not checks_enabled(checks) or index.numel() == 0:
        return index
    low, high = torch.stack(torch.aminmax(index)).tolist()
    if low < 0 or high >= size:
        wrong = low if low < 0 else high
        known = f"there are {size} nodes (0 to {size - 1})" if size else "there are no nodes; indices start at 0"
        raise IndexError(f"{name} has node {wrong}, but {known}.")
    return index


def check_ptr(ptr: Tensor, num_places: int, checks: bool | None = None) -> Tensor:
    """Raises an error unless ``ptr`` holds the bounds of consecutive segments of ``num_places`` places; returns it."""
    if ptr.dim() != 1 or ptr.is_floating_point() or ptr.dtype == torch.bool or ptr.numel() == 0:
        raise ValueError(f"ptr must be a vector of integers, got {ptr.dtype} of shape {list(ptr.shape)}.")
    if torch.compiler.is_compiling() and _wanted(checks):
        return _check_ptr(ptr, num_places)
    if checks_enabled(checks) and not (ptr[0] == 0 and ptr[-1] == num_places and (ptr.diff() >= 0).all()):
        values = [str(value) for value in ptr.tolist()]
        shown = ", ".join([*values[:3], "...", *values[-3:]] if len(values) > 6 else values)
        raise ValueError(
            f"ptr must start at 0, never decrease and end at {num_places}, the number of elements; got [{shown}]."
        )
    return ptr


# An operator runs on real values, and returns a copy since it must not return its input.
@torch.library.custom_op("torch_goat::check_range", mutates_args=())
def _check_range(name: str, index: Tensor, size: int) -> Tensor:
    return check_range(name, index, size, True).clone()


@torch.library.custom_op("torch_goat::check_ptr", mutates_args=())
def _check_ptr(ptr: Tensor, num_places: int) -> Tensor:
    return check_ptr(ptr, num_places, True).clone()


_check_range.register_fake(lambda name, index, size: torch.empty_like(index))
_check_ptr.register_fake(lambda ptr, num_places: torch.empty_like(ptr))


def check_dtype(name: str, value: Tensor, weights: torch.dtype) -> None:
    """Raises an error unless a value has the dtype of the weights or autocast, which skips float64, converts both."""
    converts = torch.is_autocast_enabled(value.device.type) and torch.float64 not in (value.dtype, weights)
    if value.dtype != weights and not converts:
        raise TypeError(f"{name} is {value.dtype}, but the weights are {weights}; convert one of them.")


def check_features(name: str, value: Tensor, channels: int, checks: bool | None = None) -> None:
    """Raises an error unless ``value`` is a floating-point matrix with ``channels`` columns (``-1``: any number)."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}.")
    if not value.is_floating_point():
        raise TypeError(f"{name} must have a floating point dtype, got {value.dtype}; convert it with .float().")
    if value.dim() != 2:
        raise ValueError(f"{name} must have two dimensions [rows, channels], got shape {list(value.shape)}.")
    if channels != -1 and value.size(1) != channels:
        raise ValueError(f"{name} has {value.size(1)} channels, but the layer was built for {channels}.")
    check_finite(name, value, checks)
