"""The kernels of the ragged RNN. A new backend is one module here and one entry below, and nothing else."""

from torch_goat.sequence.kernels import cpu, fused_triton, steps
from torch_goat.sequence.kernels.interface import Gradients, Inputs, Kernel

KERNELS: dict[str, Kernel] = {"torch": steps, "cpu": cpu, "triton": fused_triton}
# What `backend="auto"` takes on each type of device, if it can run; `torch` comes last everywhere.
FASTEST_FIRST = {"cuda": ("triton",), "cpu": ("cpu",)}

__all__ = ["FASTEST_FIRST", "KERNELS", "Gradients", "Inputs", "Kernel"]
