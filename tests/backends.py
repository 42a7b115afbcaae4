"""The backends that the tests run over: every kernel that works on this machine, and the device that it reads."""

import torch

from torch_goat import backends

AVAILABLE = [name for name, status in backends().items() if status.available and name != "reference"]
# Without a GPU the Triton kernels run in an interpreter, a thousand times slower: enough for small graphs.
COMPILED = [name for name in AVAILABLE if name != "triton" or torch.cuda.is_available()]


def device_of(backend: str) -> torch.device:
    return torch.device("cuda" if backend == "triton" and torch.cuda.is_available() else "cpu")
