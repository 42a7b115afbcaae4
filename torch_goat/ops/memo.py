from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

from torch_goat.ops.checks import capturing

T = TypeVar("T")


class Memo:
    """Values derived from the tensors of one object, each computed once.

    Values are kept per CUDA stream, since another stream may not have computed its own yet; a CUDA graph, which runs
    after it was captured, takes the latest value of any stream. Values computed in inference mode, which a backward
    pass cannot use, are not kept, nor are those computed during a capture unless the object belongs to it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._captured = device, capturing()
        self._values: dict[Hashable, dict[int, Any]] = {}  # by key, then by stream, the latest last

    def get(self, key: Hashable) -> Any:
        by_stream = self._values.get(key, {})
        return next(reversed(by_stream.values()), None) if capturing() else by_stream.get(self._stream())

    def put(self, key: Hashable, value: object) -> None:
        if not torch.is_inference_mode_enabled() and capturing() == self._captured:
            by_stream = self._values.setdefault(key, {})
            by_stream.pop(self._stream(), None)
            by_stream[self._stream()] = value

    def compute(self, key: Hashable, function: Callable[[], T]) -> T:
        """The value of a key, computed by ``function`` if it is not known."""
        if torch.compiler.is_compiling():
            return function()
        value = self.get(key)
        if value is None:
            value = function()
            self.put(key, value)
        return value

    def _stream(self) -> int:
        return torch.cuda.current_stream(self._device).cuda_stream if self._device.type == "cuda" else 0
