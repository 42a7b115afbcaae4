import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType


class Interrupted(KeyboardInterrupt):
    """Training was stopped between two epochs; its message says what was kept."""


class Interrupts:
    """Ctrl-C as a wish to stop at the next good moment; pressed twice, it stops at once.

    A program that handles the signal itself keeps its own way, and so does a thread that is not the main one.
    """

    def __init__(self) -> None:
        self.wanted = False

    def __enter__(self) -> "Interrupts":
        main = threading.current_thread() is threading.main_thread()
        self._mine = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._mine:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Around code that may stop training by a KeyboardInterrupt of its own."""
        try:
            yield
        except KeyboardInterrupt:
            self.wanted = True


@contextmanager
def stopping_after(seconds: float | None) -> Iterator[None]:
    """Presses Ctrl-C after some time, unless what is done here is done before; never without a time."""
    if seconds is None:
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:  # a shell starts what is to run in the background like this
        signal.signal(signal.SIGINT, signal.default_int_handler)
    over = threading.Event()
    threading.Thread(target=_press, args=(seconds, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)


def _press(seconds: float, over: threading.Event) -> None:
    """Presses Ctrl-C after some time and as soon as it is heard, which it is not while a process is being started."""
    if over.wait(seconds):
        return
    while signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        if over.wait(0.01):
            return
    os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def deaf() -> Iterator[None]:
    """Around the start of a process that Ctrl-C is not for: it does not hear it from its first moment on."""
    mine = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if mine:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if mine:
            signal.signal(signal.SIGINT, before)
