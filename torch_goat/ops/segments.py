"""Segments: consecutive places of a list, one segment per target, the same for every head; and sums over them."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

from torch_goat.ops.checks import capturing, transforming

T = TypeVar("T")


class Memo:
    """Values derived from the tensors of one object, each computed once.

    Values are kept per CUDA stream, since another stream may not have computed its own yet; a CUDA graph, which runs
    after it was captured, takes the latest value of any stream. Values computed during a capture are only kept if the
    object belongs to it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._captured = device, capturing()
        self._values: dict[Hashable, dict[int, Any]] = {}  # by key, then by stream, the latest last

    def get(self, key: Hashable) -> Any:
        by_stream = self._values.get(key, {})
        return next(reversed(by_stream.values()), None) if capturing() else by_stream.get(self._stream())

    def put(self, key: Hashable, value: object) -> None:
        if capturing() == self._captured:
            by_stream = self._values.setdefault(key, {})
            by_stream.pop(self._stream(), None)
            by_stream[self._stream()] = value

    def compute(self, key: Hashable, function: Callable[[], T]) -> T:
        """The value of a key, computed by ``function`` if it is not known."""
        if torch.compiler.is_compiling():
            return function()
        value = self.get(key)
        if value is None:
            with torch.inference_mode(False):  # a backward pass can use it, too
                value = function()
            self.put(key, value)
        return value

    def _stream(self) -> int:
        # The public torch.cuda.current_stream builds an object, which takes longer than all else here.
        return torch._C._cuda_getCurrentRawStream(self._device.index) if self._device.type == "cuda" else 0


class Segments:
    """The bounds of consecutive segments, and what kernels derive from them, computed once.

    Segment ``t`` owns the places ``ptr[t]`` to ``ptr[t + 1]``, of ``num_places`` E; ``ptr`` is ``[T + 1]``.
    """

    def __init__(self, ptr: Tensor, num_places: int) -> None:
        self.ptr, self.num_places = ptr, num_places
        self.memo = Memo(ptr.device)

    @property
    def num_segments(self) -> int:
        """The number of segments T."""
        return self.ptr.numel() - 1

    @property
    def index(self) -> Tensor:
        """The segment of each place ``[E]``."""
        return self.memo.compute("index", lambda: self._repeat(torch.arange(self.num_segments, device=self.ptr.device)))

    @property
    def index_int32(self) -> Tensor:
        """:attr:`index` for kernels that read it at random: half the memory traffic."""
        return self.memo.compute("index_int32", lambda: self.index.int())

    @property
    def sizes(self) -> Tensor:
        """The size of the segment of each place ``[E]``."""
        return self.memo.compute("sizes", lambda: self._repeat(self.ptr.diff()))

    @property
    def by_length(self) -> Tensor:
        """The segments from longest to shortest ``[T]``."""
        return self.memo.compute("by_length", self._by_length)

    def offsets(self, heads: int) -> Tensor:
        """Where each segment of ``[K, E]`` starts, one head after the other ``[K * T + 1]``."""
        return self.memo.compute(("offsets", heads), lambda: segment_offsets(self.ptr, heads, self.num_places))

    def _repeat(self, value: Tensor) -> Tensor:
        return value.repeat_interleave(self.ptr.diff(), output_size=self.num_places)

    def _by_length(self) -> Tensor:
        length = self.ptr.new_empty(self.num_segments, dtype=torch.int32)  # sorted in half the passes of int64
        torch.sub(self.ptr[1:], self.ptr[:-1], out=length)
        return torch.sort(length, descending=True, stable=True)[1]


def segment_sum(value: Tensor, segments: Segments) -> Tensor:
    """The sum of each segment of ``value`` ``[K, E]``, ``[K, T]``; can be differentiated any number of times."""
    if transforming():
        return value.new_zeros(value.size(0), segments.num_segments).index_add(1, segments.index, value)
    return _Sum.apply(value, segments.index, segments.offsets(value.size(0)))


def segment_softmax(score: Tensor, segments: Segments) -> Tensor:
    r"""The coefficients :math:`\alpha_{ij}` of Eq. 3: the softmax of the scores ``[K, E]`` within each neighbourhood.

    Segments are summed in the order of their places: with sorted scores, the result does not depend on the order in
    which edges were given, to the last bit.
    """
    if transforming():
        index = segments.index.expand_as(score)
        peak = score.new_zeros(score.size(0), segments.num_segments)
        peak = peak.scatter_reduce(1, index, score.detach(), "amax", include_self=False)
        alpha = (score - peak.gather(1, index)).exp()
        return alpha / segment_sum(alpha, segments).gather(1, index)
    return _Softmax.apply(score, segments.index.expand_as(score), segments.offsets(score.size(0)))


def gather_columns(value: Tensor, index: Tensor, columns: Callable[[], tuple[Tensor | None, Tensor]]) -> Tensor:
    """Columns of ``value`` ``[K, N]`` by index ``[E]``, with a deterministic gradient on GPUs as well.

    PyTorch's own gradient adds with atomics there; this one sums segments of places with equal columns. ``columns``
    gives the places sorted by column ``[E]`` (``None`` if they are) and the :meth:`Segments.offsets` of the columns.
    """
    if value.is_cuda and value.requires_grad and not transforming():
        return _GatherColumns.apply(value, index, *columns())
    return value.gather(1, index.expand(value.size(0), -1))


def sorted_columns(index: Tensor, num_columns: int, rows: int) -> tuple[Tensor, Tensor]:
    """What :func:`gather_columns` needs of an index ``[E]``."""
    index, order = index.sort(stable=True)
    ptr = torch.searchsorted(index, torch.arange(num_columns + 1, device=index.device, dtype=index.dtype))
    return order, segment_offsets(ptr, rows, index.numel())


def segment_offsets(ptr: Tensor, heads: int, num_places: int) -> Tensor:
    """:meth:`Segments.offsets` of segments with the bounds ``ptr`` ``[T + 1]``."""
    head = torch.arange(heads, device=ptr.device).view(-1, 1) * num_places
    starts = (ptr[:-1] + head).view(-1)
    return torch.cat([starts, starts.new_full((1,), heads * num_places)])


def segment_reduce(how: str, value: Tensor, offsets: Tensor) -> Tensor:
    """Reduces each segment of ``value`` ``[K, E]`` to one number ``[K, T]``, in a fixed order."""
    # "unsafe" skips a check of the offsets that would synchronise with the device.
    return torch.segment_reduce(value.reshape(-1), how, offsets=offsets, unsafe=True).view(value.size(0), -1)


class _Sum(torch.autograd.Function):
    # The gradient of torch.segment_reduce cannot be differentiated again; this one is a plain gather.
    @staticmethod
    def forward(ctx: Any, value: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        return segment_reduce("sum", value, offsets)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad.index_select(1, ctx.saved_tensors[0]), None, None


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, score: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        peak = segment_reduce("max", score, offsets)  # [K, T]
        alpha = (score - peak.gather(1, index)).exp_()
        # Not in place: the compiler of PyTorch 2.11 loses the gradient of an output that was written to.
        alpha = alpha / segment_reduce("sum", alpha, offsets).gather(1, index)
        ctx.save_for_backward(alpha, index, offsets)
        return alpha

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        alpha, index, offsets = ctx.saved_tensors
        flow = grad * alpha
        total = segment_reduce("sum", flow, offsets).gather(1, index)
        return torch.addcmul(flow, alpha, total, value=-1), None, None


class _GatherColumns(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, index: Tensor, order: Tensor | None, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(order, offsets)
        return value.gather(1, index.expand(value.size(0), -1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        order, offsets = ctx.saved_tensors
        grad = grad if order is None else grad.index_select(1, order)
        return segment_reduce("sum", grad, offsets), None, None, None
