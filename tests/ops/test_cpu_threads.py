"""Tasks of compiled code on the threads of OpenMP, and on threads of our own where there is no OpenMP."""

import os
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch

from torch_goat.ops import threads

MANY = 10**6  # places, which are worth any number of threads


@pytest.fixture(params=["OpenMP", "our own"])
def three_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "our own":
        monkeypatch.setattr(threads, "_openmp", lambda: None)
    elif threads._openmp() is None:
        pytest.skip("PyTorch comes without OpenMP here")
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_every_task_is_run_once() -> None:
    done: list[tuple[int, int]] = []
    threads.run_all(lambda begin, end: done.append((begin, end)), 500, MANY)
    assert sorted(done) == [*pairwise(range(501))]
    done.clear()
    threads.run_parts(lambda begin, end: done.append((begin, end)), 10, MANY)
    assert sorted(done) == [(0, 3), (3, 6), (6, 10)]


@pytest.mark.usefixtures("three_threads")
def test_tasks_run_side_by_side() -> None:
    """Each of three tasks waits for the other two."""
    begun: set[int] = set()

    def meet(begin: int, _: int) -> None:
        begun.add(begin)
        end = time.monotonic() + 60
        while len(begun) < 3 and time.monotonic() < end:
            time.sleep(0.001)

    start = time.monotonic()
    threads.run_all(meet, 3, MANY)
    assert time.monotonic() - start < 50


@pytest.mark.usefixtures("three_threads")
def test_the_error_of_a_task_ends_the_others() -> None:
    begun: list[int] = []

    def fail(begin: int, _: int) -> None:
        begun.append(begin)
        if begin == 30:
            raise ValueError(f"task {begin} failed")
        time.sleep(0.001)

    with pytest.raises(ValueError, match="task 30 failed"):
        threads.run_all(fail, 1000, MANY)
    assert len(begun) < 1000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.usefixtures("three_threads")
def test_a_forked_process_has_threads_of_its_own() -> None:
    done: list[int] = []
    threads.run_all(lambda begin, _: done.append(begin), 9, MANY)
    child = os.fork()
    if not child:
        done.clear()
        threads.run_all(lambda begin, _: done.append(begin), 9, MANY)
        os._exit(0 if sorted(done) == [*range(9)] else 1)
    end = time.monotonic() + 60
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended and time.monotonic() < end:
        time.sleep(0.01)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert (ended, status) == (child, 0)
