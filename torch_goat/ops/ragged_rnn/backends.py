"""The backends of the ragged RNN by name.

Every backend computes ``out[t, k] = RNN_k(weight[k, p] * z[source[k, p], k] for p in ptr[t] .. ptr[t + 1])`` and gives
the final states ``[T, K, D * H]``. ``reference`` says so with PyTorch's modules; the others are kernels behind one
operator.
"""

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from torch_goat.ops.ragged_rnn.cells import RNNWeights
from torch_goat.ops.ragged_rnn.kernels import FASTEST_FIRST, KERNELS
from torch_goat.ops.ragged_rnn.operator import project_and_run
from torch_goat.ops.ragged_rnn.reference import reference

BACKENDS = ("auto", "reference", *KERNELS)


class BackendStatus(NamedTuple):
    """Whether a backend can run here, and in a sentence what it is or why it cannot."""

    available: bool
    note: str


def backends() -> dict[str, BackendStatus]:
    """The backends of the ragged RNN by name, with whether each can run on this machine and why not."""
    status = {"reference": BackendStatus(True, "a loop over nodes and heads with torch.nn's own modules: the oracle")}
    for name, kernel in KERNELS.items():
        reason = kernel.unavailable()
        status[name] = BackendStatus(reason is None, reason or kernel.DESCRIPTION)
    return status


def check_backend(backend: str) -> str:
    """Refuses a backend that is unknown or cannot run on this machine."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {list(BACKENDS)}, got {backend!r}.")
    if backend != "auto" and not (status := backends()[backend]).available:
        raise ValueError(f"backend {backend!r} cannot run here: {status.note}.")
    return backend


def run(
    kind: str, backend: str, z: Tensor, source: Tensor, weight: Tensor | None, ptr: Tensor, weights: RNNWeights
) -> Tensor:
    """Reads every run with the given backend.

    Args:
        kind: ``"lstm"``, ``"gru"`` or ``"rnn"``.
        backend: A name of :data:`BACKENDS`; ``"auto"`` takes the fastest one that can read these tensors.
        z: The states of the source nodes, per head ``[S, K, C]``.
        source: Which of them stands at each place, per head ``[K, E]``.
        weight: The coefficient that scales it ``[K, E]``; ``None`` is one everywhere.
        ptr: The runs of the targets ``[T + 1]``.
        weights: The weights of the RNNs.
    """
    kernel = choose(backend, z, weights.weight_hh.size(-1))
    if kernel == "reference":
        return reference(kind, z, source, weight, ptr, weights)
    return project_and_run(kind, kernel, z, source, weight, ptr, weights)


def choose(backend: str, z: Tensor, hidden: int) -> str:
    """What stands behind a backend for states ``z`` and a hidden width per direction: ``"reference"`` or a kernel."""
    if backend == "reference":
        return backend
    return _kernel(backend, z.device.type, torch.promote_types(z.dtype, torch.float32), hidden)


@torch.compiler.assume_constant_result
def _kernel(backend: str, device: str, arithmetic: torch.dtype, hidden: int) -> str:
    return _choose(backend, device, arithmetic, hidden)


@functools.cache
def _choose(backend: str, device: str, arithmetic: torch.dtype, hidden: int) -> str:
    """The kernel that stands behind a backend for tensors on a device and a hidden width per direction."""
    if backend == "auto":
        wanted = [name for name in FASTEST_FIRST.get(device, ()) if KERNELS[name].unavailable() is None]
    else:
        wanted = [backend]
        if device not in KERNELS[backend].devices():
            raise ValueError(
                f"backend {backend!r} reads tensors on {' or '.join(KERNELS[backend].devices())}, got {device}."
            )
    return next((name for name in wanted if hidden <= KERNELS[name].max_hidden(arithmetic)), "torch")
