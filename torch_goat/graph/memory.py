"""What was derived from a graph, kept for as long as the graph is there.

Training reads one graph many times, and every layer of a network reads it again. What depends on the edges alone is
computed for the first of them and kept beside the tensor that it came from, and goes when that tensor does.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

T = TypeVar("T")


class _Derived(NamedTuple):
    version: int  # of the tensor, which grows when somebody writes to it
    values: dict[Hashable, Any]


_derived: WeakIdKeyDictionary = WeakIdKeyDictionary()


def own(*tensors: Tensor) -> None:
    """Says that nobody but PyTorch's operators, which count it, can write to these tensors."""
    for tensor in tensors:
        _derived[tensor] = _Derived(tensor._version, {})


def unchanged(tensor: Tensor) -> bool:
    """Whether nobody has written to a tensor since :func:`own`."""
    known = _derived.get(tensor)
    return known is not None and known.version == tensor._version


def derived(tensor: Tensor, name: str, compute: Callable[..., T], *arguments: Hashable) -> T:
    """``compute(tensor, *arguments)``, kept under a name if :func:`own` was called for the tensor."""
    if torch.compiler.is_compiling() or not unchanged(tensor):
        return compute(tensor, *arguments)
    values, key = _derived[tensor].values, (name, stream(tensor), *arguments)
    if key in values:
        return values[key]
    value = compute(tensor, *arguments)
    if not torch.is_inference_mode_enabled():  # tensors made there are of no use to a backward pass
        values[key] = value
    return value


def stream(tensor: Tensor) -> int:
    """The stream that a call would run on now: what another stream has computed may not be there yet."""
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0
