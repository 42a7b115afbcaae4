"""The kernels of the ragged RNN. A new backend is one module here and one entry below, and nothing else."""

from torch_goat.ops.ragged_rnn import cpu
from torch_goat.ops.ragged_rnn import torch as steps
from torch_goat.ops.ragged_rnn import triton as fused_triton
from torch_goat.ops.ragged_rnn.interface import Gradients, Inputs, Kernel

KERNELS: dict[str, Kernel] = {"torch": steps, "cpu": cpu, "triton": fused_triton}
# What `backend="auto"` takes on each type of device, if it can run; `torch` comes last everywhere.
FASTEST_FIRST = {"cuda": ("triton",), "cpu": ("cpu",)}

__all__ = ["FASTEST_FIRST", "KERNELS", "Gradients", "Inputs", "Kernel"]
