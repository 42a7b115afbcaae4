import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """Training was stopped between two epochs; the message says what was kept."""


class Interrupts:
    """Notes Ctrl-C in :attr:`wanted`, to stop at the next opportunity; pressed twice, it stops at once."""

    wanted = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handles the signal."""
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True


@contextmanager
def handling(handler: Any) -> Iterator[None]:
    """Sets the handler of Ctrl-C, as only the main thread can; processes start with Ctrl-C ignored if this does."""
    main, before = threading.current_thread() is threading.main_thread(), signal.getsignal(signal.SIGINT)
    if main:
        signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, before)


@contextmanager
def noting() -> Iterator[Interrupts]:
    """Notes Ctrl-C in the enclosed code, unless the program handles the signal itself."""
    interrupts, free = Interrupts(), signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with handling(interrupts.note) if free else nullcontext():
        yield interrupts


@contextmanager
def stopping_after(seconds: float | None) -> Iterator[None]:
    """Sends Ctrl-C to this process if the enclosed code takes longer than this, unless ``None``."""
    if seconds is None:
        yield
        return
    now, over = signal.getsignal(signal.SIGINT), threading.Event()

    def press() -> None:
        late = not over.wait(seconds)
        while late and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # while a process is being started
            late = not over.wait(0.01)
        if late:
            os.kill(os.getpid(), signal.SIGINT)

    with handling(signal.default_int_handler if now is signal.SIG_IGN else now):  # a shell ignores it in the background
        threading.Thread(target=press, daemon=True).start()
        try:
            yield
        finally:
            over.set()
