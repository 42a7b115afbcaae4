"""What was derived from a graph, kept for as long as the graph is there.

Training reads one graph many times, and every layer of a network reads it again. What depends on the edges alone is
computed for the first of them and kept beside the tensor that it came from, and goes when that tensor does.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from torch_goat.ops.checks import capturing

T = TypeVar("T")


class _Derived(NamedTuple):
    version: int  # of the tensor, which grows when somebody writes to it
    values: dict[Hashable, Any]  # by key and stream
    captured: bool  # whether it is a tensor of a CUDA graph


_derived: WeakIdKeyDictionary = WeakIdKeyDictionary()


def own(*tensors: Tensor) -> None:
    """Says that nobody but PyTorch's operators, which count it, can write to these tensors."""
    for tensor in tensors:
        _derived[tensor] = _Derived(tensor._version, {}, capturing())


def unchanged(tensor: Tensor) -> bool:
    """Whether nobody has written to a tensor since :func:`own`."""
    known = _derived.get(tensor)
    return known is not None and known.version == tensor._version


def derived(tensor: Tensor, name: str, compute: Callable[..., T], *arguments: Hashable) -> T:
    """``compute(tensor, *arguments)``, kept under a name if :func:`own` was called for the tensor."""
    if torch.compiler.is_compiling() or not unchanged(tensor):
        return compute(tensor, *arguments)
    _, values, captured = _derived[tensor]
    key = (name, *arguments)
    value = recall(values, key, tensor)
    if value is None:
        value = compute(tensor, *arguments)
        keep(values, key, tensor, value, captured)
    return value


def recall(values: dict[Hashable, Any], key: Hashable, tensor: Tensor) -> Any:
    """What :func:`keep` has kept for a tensor's device under a key, or ``None``.

    What another stream has computed may not be there yet. A CUDA graph, which runs later, takes the latest of any.
    """
    by_stream = values.get(key, {})
    return next(reversed(by_stream.values()), None) if capturing() else by_stream.get(_stream(tensor))


def keep(values: dict[Hashable, Any], key: Hashable, tensor: Tensor, value: object, captured: bool = False) -> None:
    """Keeps what was computed on a tensor's device, for calls on the same stream."""
    # Tensors made in inference mode are of no use to a backward pass, and those of a CUDA graph to nothing outside it.
    if not torch.is_inference_mode_enabled() and capturing() == captured:
        by_stream = values.setdefault(key, {})
        by_stream.pop(_stream(tensor), None)  # the latest stands last
        by_stream[_stream(tensor)] = value


def _stream(tensor: Tensor) -> int:
    """The stream that a call would run on now."""
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0
