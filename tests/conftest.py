import os
import signal
from contextlib import suppress
from types import SimpleNamespace

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the suite runs one process per core
os.environ.setdefault("TORCH_GOAT_QUIET", "1")  # what is printed does not depend on what was compiled before

import pytest
import torch
from hypothesis import settings

from tests.postgres import database, postgres  # noqa: F401 (fixtures)
from tests.processes import server

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script; some tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # without a GPU, the Triton kernels run in Python
    with suppress(ImportError):
        from triton import language
        from triton.runtime import interpreter

        # It replaces the functions of its language in every call of a function: a third of the time. Once for a kernel
        # is enough, if it replaces those that the language itself calls as well.
        patch, both = interpreter._patch_lang, SimpleNamespace(__globals__={"tl": language, "core": language.core})
        interpreter._patch_lang = lambda kernel: patch(both)
        interpreter.InterpretedFunction.__call__ = lambda self, *args, **kwargs: self.rewrite()(*args, **kwargs)

settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("suite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files that would be last come first, so that no core waits for the other one's last file."""
    items.sort(key=lambda item: item.path.name not in ("test_page_examples.py", "test_tables.py", "test_wheel.py"))


@pytest.fixture(autouse=True)
def _same_draws_every_time() -> None:
    torch.manual_seed(12345)


@pytest.fixture
def quick_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of a search that begin with everything imported, instead of whole new interpreters."""
    from torch_goat.experiments import pool

    context, other = server(), pool.multiprocessing.get_context  # which scikit-learn calls, too
    monkeypatch.setattr(pool.multiprocessing, "get_context", lambda kind=None: context if kind else other())


@pytest.fixture
def torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun would say of the second of two processes on one machine."""
    values = {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, "GROUP_WORLD_SIZE": 1}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
