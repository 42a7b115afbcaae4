"""The backends that the tests run over: every kernel that works on this machine, and the device that it reads."""

import torch

from torch_goat import backends

AVAILABLE = [name for name, status in backends().items() if status.available and name != "reference"]


def device_of(backend: str) -> torch.device:
    return torch.device("cuda" if backend == "triton" and torch.cuda.is_available() else "cpu")
