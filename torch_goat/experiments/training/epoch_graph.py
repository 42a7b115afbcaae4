"""An epoch on a GPU as one CUDA graph.

On a small graph the hundreds of kernels of an epoch take less time than Python takes to launch them. When every epoch
launches the same ones, they are recorded once and then launched at a stroke. The numbers are the same.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class EpochGraph:
    """Calls a function that launches the same work again and again, and records that work with the third call.

    The first call makes what later ones keep. The second is watched: a function that waits for the device launches work
    that depends on what it saw there, and such work cannot be recorded; it is then called as it is for ever.

    Args:
        optimizer: The optimiser that the function steps.
        device: The GPU.
    """

    def __init__(self, optimizer: Any, device: torch.device) -> None:
        self._optimizer, self._device = optimizer, device
        self._calls, self._possible = 0, True
        self._stream = torch.cuda.Stream(device)  # kernels are never recorded on the default stream
        self._graph: torch.cuda.CUDAGraph | None = None
        self._values = torch.empty(0)

    @property
    def recorded(self) -> bool:
        """Whether the work has been recorded."""
        return self._graph is not None

    def __call__(self, epoch: Callable[[], Tensor]) -> Tensor:
        """What the function gives; the next call writes over it.

        Args:
            epoch: The function, the same in every call.
        """
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
        """On the stream that records, for which what is kept of a graph is kept."""
        here = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            yield
        here.wait_stream(self._stream)

    def _watched(self, epoch: Callable[[], Tensor]) -> Tensor:
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")  # it warns that it may not see everything
            try:
                values = epoch()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        self._possible = not any("called a synchronizing CUDA operation" in str(one.message) for one in seen)
        return values

    def _record(self, epoch: Callable[[], Tensor]) -> None:
        for group in self._optimizer.param_groups:
            group["capturable"] = True  # its counters are on the device
        graph, index = torch.cuda.CUDAGraph(), self._device.index
        generator = torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]
        state = generator.clone_state()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._values = epoch()
        except RuntimeError:  # nothing has run; the generator is still in the recording that failed
            generator.graphsafe_set_state(state)
            self._possible = False
        else:
            self._graph = graph
