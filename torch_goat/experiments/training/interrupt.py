import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType


class Interrupted(KeyboardInterrupt):
    """Training was stopped between two epochs; the message says what was kept."""


class Interrupts:
    """Notes Ctrl-C in :attr:`wanted`, to stop at the next opportunity; pressed twice, it stops at once.

    It does nothing in a program that handles the signal itself, or outside the main thread.
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
        """Notes a KeyboardInterrupt that the enclosed code raises."""
        try:
            yield
        except KeyboardInterrupt:
            self.wanted = True


@contextmanager
def stopping_after(seconds: float | None) -> Iterator[None]:
    """Sends Ctrl-C to this process if the enclosed code takes longer than this, unless ``None``."""
    if seconds is None:
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:  # a shell does this for a background process
        signal.signal(signal.SIGINT, signal.default_int_handler)
    over = threading.Event()
    threading.Thread(target=_press, args=(seconds, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)


def _press(seconds: float, over: threading.Event) -> None:
    """Sends Ctrl-C after some time, as soon as it is not ignored, as it is while a process is being started."""
    if over.wait(seconds):
        return
    while signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        if over.wait(0.01):
            return
    os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def deaf() -> Iterator[None]:
    """Starts the processes of the enclosed code with Ctrl-C ignored from the beginning."""
    mine = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if mine:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if mine:
            signal.signal(signal.SIGINT, before)
