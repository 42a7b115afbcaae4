"""How a command ends: exit code 2 for wrong usage, 1 for a failure, 130 after Ctrl-C, always with one sentence."""

import errno
import functools
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from torch.distributed import is_torchelastic_launched

from torch_goat.data.datasets import DataError
from torch_goat.experiments import RunError
from torch_goat.files import Busy
from torch_goat.settings import SettingsError

EXPECTED = (Busy, DataError, ImportError, RunError)  # their messages say it all


class Stopped(Exception):
    """Ctrl-C, as an error that passes through the parser of the command line."""


def stoppable(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that Ctrl-C ends with a sentence."""

    @functools.wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except KeyboardInterrupt as error:
            raise Stopped(str(error) or "stopped.") from error

    return wrapped


def report(error: Exception) -> NoReturn:
    """Ends the process with a sentence on what went wrong."""
    if isinstance(error, Stopped):
        _end(str(error), 130)
    if isinstance(error, SettingsError):
        _end(str(error), 2)
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror.lower()
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            reason += "; change its permissions or choose another place"
        _end(f"{error.filename}: {reason}." if error.filename else f"{reason}.", 1)
    if isinstance(error, EXPECTED):
        _end(str(error), 1)
    _end(f"{str(error) or type(error).__name__} (--debug shows the traceback)", 1)


def _end(message: str, code: int) -> NoReturn:
    rank = os.environ.get("RANK", "0") if is_torchelastic_launched() else "0"
    who = "goat" if rank == "0" else f"goat (process {rank})"
    print(f"{who}: {message}", file=sys.stderr)
    sys.exit(code)
