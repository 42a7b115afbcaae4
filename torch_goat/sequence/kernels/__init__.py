"""The kernels of the ragged RNN. A new backend is one module here and one entry below, and nothing else."""

from torch_goat.sequence.kernels import fused_triton, steps
from torch_goat.sequence.kernels.interface import Kernel

KERNELS: dict[str, Kernel] = {"torch": steps, "triton": fused_triton}

__all__ = ["KERNELS", "Kernel"]
