"""The ragged RNN by the name of its backend."""

import functools
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from torch_goat.ops.checks import transforming
from torch_goat.ops.compiling import watch_triton
from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.interface import RNNWeights
from torch_goat.ops.ragged_rnn.operator import KERNELS, project_and_run
from torch_goat.ops.ragged_rnn.reference import reference

BACKENDS = ("auto", "reference", *KERNELS)
# What `backend="auto"` uses on each device type if available; otherwise `torch`.
_FASTEST = {"cuda": "triton", "cpu": "cpu"}


class BackendStatus(NamedTuple):
    """Whether a backend can run on this machine, with a description or the reason why it cannot."""

    available: bool
    note: str


def backends() -> dict[str, BackendStatus]:
    """The backends of the RNN by name: whether each can run on this machine and, if not, why."""
    status = {
        "reference": BackendStatus(True, "a loop over nodes and heads, with torch.nn's modules if it has the cell")
    }
    for name, kernel in KERNELS.items():
        reason = kernel.unavailable()
        status[name] = BackendStatus(reason is None, reason or kernel.DESCRIPTION)
    return status


def check_backend(backend: str) -> str:
    """Raises an error for a backend that is unknown or cannot run on this machine."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {list(BACKENDS)}, got {backend!r}.")
    if backend != "auto" and not (status := backends()[backend]).available:
        raise ValueError(f"backend {backend!r} cannot run here: {status.note}.")
    return backend


def segment_rnn(
    kind: str, backend: str, z: Tensor, places: Places, weight: Tensor | None, weights: RNNWeights
) -> Tensor:
    r"""Eq. 3: reads the neighbours of each target, in order and scaled by their coefficients, with an RNN.

    For target ``t`` and head ``k``, the result is the final state of ``RNN_k`` over the inputs
    ``weight[k, p] * z[source[k, p], k]`` at the places ``p = ptr[t] .. ptr[t + 1] - 1``; zeros for an empty segment.

    Args:
        kind: ``"lstm"``, ``"gru"``, ``"rnn"``, ``"mingru"`` or ``"minlstm"``.
        backend: A name in :data:`BACKENDS`; ``"auto"`` uses the fastest that supports these tensors.
        z: The states of the source nodes, per head ``[S, K, C]``.
        places: The source at each place ``[K, E]``, in one segment per target.
        weight: The coefficient of each place ``[K, E]``; ``None``: all are one.
        weights: The weights of the RNNs.

    Returns:
        The final states ``[T, K, D * H]``.
    """
    kernel = choose(backend, z, weights.recurrent_width)
    if kernel == "reference":
        return reference(kind, z, places, weight, weights)
    return project_and_run(kind, kernel, z, places, weight, weights)


def choose(backend: str, z: Tensor, hidden: int) -> str:
    """The kernel (or ``"reference"``) that a backend uses for states ``z`` and recurrent matrices of this width."""
    if backend == "reference":
        return backend
    if transforming():
        raise RuntimeError(f"torch.func cannot transform backend {backend!r}; use backend='reference'.")
    return _kernel(backend, z.device.type, torch.promote_types(z.dtype, torch.float32), hidden)


@torch.compiler.assume_constant_result
def _kernel(backend: str, device: str, arithmetic: torch.dtype, hidden: int) -> str:
    return _choose(backend, device, arithmetic, hidden)


@functools.cache
def _choose(backend: str, device: str, arithmetic: torch.dtype, hidden: int) -> str:
    name = backend
    if backend == "auto":
        name = _FASTEST.get(device, "torch")
        name = name if KERNELS[name].unavailable() is None else "torch"
    elif device not in KERNELS[name].devices():
        raise ValueError(f"backend {name!r} reads tensors on {' or '.join(KERNELS[name].devices())}, got {device}.")
    widest = KERNELS[name].max_hidden(arithmetic)
    if hidden > widest:
        warn_of_width(hidden, widest)
        return "torch"
    if name == "triton":
        watch_triton()
    return name


_warned = False  # of a width


def warn_of_width(hidden: int, widest: int) -> None:
    """Warns, once per process, of an RNN that is too wide for the kernel of its device."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"hidden width {hidden} per direction exceeds {widest}, the widest that the fused kernels support; the "
            "layer uses backend 'torch', which is several times slower; use more heads of smaller width or "
            "rnn='mingru'.",
            stacklevel=2,
        )
