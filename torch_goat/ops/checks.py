"""Input checks that cost a pass over the data or a device synchronisation, and the switch that turns them off.

Checks that look at shapes and types only are free and always on; they stand where the value is used.
"""

import math

import torch
from torch import Tensor

_enabled = True


def set_checks(enabled: bool) -> None:
    """Turns the checks that read the data on (the default) or off, for every layer of the process.

    Args:
        enabled: ``False`` skips the range check of edge indices, the search for non-finite features, the comparison of
            a replayed ordering with its graph and, on a GPU, of edges with those whose grouping was kept. Bad input
            then ends in a wrong result or in an error of PyTorch's.
    """
    if not isinstance(enabled, bool):
        raise TypeError(f"set_checks expects True or False, got {enabled!r}.")
    global _enabled
    _enabled = enabled


def checks_enabled() -> bool:
    """Whether data are checked; by ``torch.compile`` and in a CUDA graph they never are, since a check reads values."""
    return _enabled and not torch.compiler.is_compiling() and not capturing()


def capturing() -> bool:
    """Whether a CUDA graph is being captured: what is called now runs later, and nothing can be read before."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def check_finite(name: str, value: Tensor) -> None:
    """Refuses features with NaN or infinity: a score that is not a number has no place in an order."""
    # A finite sum has finite terms; the terms are looked at only if it is not, since finite ones may overflow.
    if not checks_enabled() or math.isfinite(float(value.detach().sum())):
        return
    wrong = (~torch.isfinite(value)).any(dim=1).nonzero()
    if wrong.numel() > 0:
        raise ValueError(
            f"{name} has a non-finite value in row {int(wrong[0])}; replace NaN and infinity before the layer."
        )


def check_range(name: str, index: Tensor, size: int) -> None:
    """Refuses node numbers outside ``0 .. size - 1``."""
    if not checks_enabled() or index.numel() == 0:
        return
    low, high = torch.stack(torch.aminmax(index)).tolist()
    if low < 0 or high >= size:
        wrong = low if low < 0 else high
        known = f"there are {size} nodes (0 to {size - 1})" if size else "there are no nodes; numbers begin at 0"
        raise IndexError(f"{name} has node {wrong}, but {known}.")


def check_ptr(ptr: Tensor, places: int) -> None:
    """Refuses anything but the bounds of groups that share so many places, one group after the other."""
    if ptr.dim() != 1 or ptr.is_floating_point() or ptr.numel() == 0:
        raise ValueError(f"ptr must be a vector of whole numbers, got {ptr.dtype} of shape {list(ptr.shape)}.")
    if checks_enabled() and not (ptr[0] == 0 and ptr[-1] == places and (ptr.diff() >= 0).all()):
        raise ValueError(
            f"ptr must begin at 0, never fall and end at {places}, the number of elements; got {_shown(ptr)}."
        )


def _shown(values: Tensor) -> str:
    """A vector in a message: its beginning and its end if it is long."""
    listed = [*map(str, values[:3].tolist()), "...", *map(str, values[-3:].tolist())]
    return f"[{', '.join(listed)}]" if values.numel() > 6 else str(values.tolist())


def check_features(name: str, value: Tensor, channels: int) -> None:
    """Refuses anything but a matrix of real numbers with ``channels`` columns (``-1``: any)."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}.")
    if not value.is_floating_point():
        raise TypeError(f"{name} must have a floating point dtype, got {value.dtype}; convert it with .float().")
    if value.dim() != 2:
        raise ValueError(f"{name} must have two dimensions [rows, channels], got shape {list(value.shape)}.")
    if channels != -1 and value.size(1) != channels:
        raise ValueError(f"{name} has {value.size(1)} channels, but the layer was built for {channels}.")
    check_finite(name, value)
