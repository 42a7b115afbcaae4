import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the suite runs one process per core

import pytest
import torch
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # the Triton kernels run in Python where there is no GPU

settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("suite")


@pytest.fixture(autouse=True)
def _same_draws_every_time() -> None:
    torch.manual_seed(12345)
