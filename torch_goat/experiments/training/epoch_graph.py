"""An epoch on a GPU as one CUDA graph.

On a small graph the hundreds of kernels of an epoch take less time than Python takes to launch them. If every epoch
launches the same kernels, they are captured once and then launched together. The numbers are the same.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class EpochGraph:
    """Calls a function that launches the same work every time, and captures that work in the third call.

    The first call fills caches. The second is watched: a function that waits for the device may launch work that
    depends on what it read there, which cannot be captured; it is then always called normally.
    The function steps the optimiser.
    """

    def __init__(self, optimizer: Any, device: torch.device) -> None:
        self._optimizer, self._device = optimizer, device
        self._calls, self._possible = 0, True
        self._stream = torch.cuda.Stream(device)  # the default stream cannot be captured
        self._graph: torch.cuda.CUDAGraph | None = None
        self._values = torch.empty(0)

    @property
    def recorded(self) -> bool:
        """Whether the work has been captured."""
        return self._graph is not None

    def forget(self) -> None:
        """Captures the work again in the next call, since a number that Python passes to it has changed."""
        self._graph = None

    def __call__(self, epoch: Callable[[], Tensor]) -> Tensor:
        """Returns the result of the function, the same in every call; the next call overwrites it."""
        if self._possible and self._graph is None:
            self._calls += 1
            if self._calls > 2:
                self._record(epoch)
            else:
                with self._aside():
                    return self._watched(epoch) if self._calls == 2 else epoch()
        if self._graph is None:
            return epoch()
        self._graph.replay()
        return self._values

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Runs on the stream of the capture, so that cached tensors belong to it."""
        here = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            yield
        here.wait_stream(self._stream)

    def _watched(self, epoch: Callable[[], Tensor]) -> Tensor:
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")  # which itself warns that it may miss some
            try:
                values = epoch()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        self._possible = not any("called a synchronizing CUDA operation" in str(one.message) for one in seen)
        return values

    def _record(self, epoch: Callable[[], Tensor]) -> None:
        for group in self._optimizer.param_groups:
            group["capturable"] = True  # keeps its step counters on the device
        graph, index = torch.cuda.CUDAGraph(), self._device.index
        generator = torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]
        state = generator.clone_state()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._values = epoch()
        except RuntimeError:  # nothing has run, but the generator is still registered with the failed capture
            generator.graphsafe_set_state(state)
            self._possible = False
        else:
            self._graph = graph
            # The capture resets a counter of random numbers on its stream, where the replay is about to set it here.
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
