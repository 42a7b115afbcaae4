"""The storage of a search's trials: a file that any number of processes share, or a database."""

import io
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from sqlalchemy.exc import SQLAlchemyError

from torch_goat.experiments import RunError
from torch_goat.files import fcntl, hold
from torch_goat.settings import SettingsError

JOURNAL_START = b'{"op_code":'  # of every line
CONNECT_SECONDS = 10  # timeout of a connection to a database
_PASSWORD_BEFORE_HOST = re.compile(r"(://[^:/@?]*):(.*)@")  # up to the last @: an unescaped one is part of the password
_PASSWORD_PARAMETER = re.compile(r"([?&\s]password=)([^&\s]*)")


class JournalLock(JournalFileOpenLock):
    """Locks a journal while a process appends to it.

    The lock ends with the process, so that no process waits for a killed one. An incomplete line, left by a full disk,
    is cut off before the next one is written.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path
        self._file: io.BufferedRandom | None = None

    def acquire(self) -> bool:
        self._file = open(self._path, "r+b")  # noqa: SIM115 (closed by release)
        hold(self._file, wait=True)
        self._file.truncate(_whole_lines(self._file))
        return True

    def release(self) -> None:
        if self._file is not None:
            self._file.close()


class Journal(JournalFileBackend):
    """A journal that names the line that cannot be read."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), JournalLock(path) if fcntl is not None else None)
        self.path, self.line = path, 0

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        self.line = log_number_from
        try:
            for entry in super().read_logs(log_number_from):
                self.line += 1
                yield entry
        except ValueError as error:
            self.line += 1
            raise self.damaged() from error

    def damaged(self) -> RunError:
        return RunError(
            f"{self.path}, line {self.line}: the list of the trials is damaged; restore an intact copy of the file, or "
            "start a new search in another folder."
        )


def open_storage(place: str) -> BaseStorage:
    """Opens a storage of Optuna's, given the path of a journal or the address of a database.

    Addresses are ``sqlite:///trials.db`` or ``postgresql://host/name``. A journal that does not exist is created.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions call journals experimental
        if "://" in place:
            return _database(place)
        path = Path(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not JOURNAL_START.startswith(path.read_bytes()[: len(JOURNAL_START)]):
            raise SettingsError(f"the storage {path} is not a journal of trials; choose another file.")
        journal = Journal(path)
        try:
            return JournalStorage(journal)
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:  # from replaying a line
            raise journal.damaged() from error


def _database(address: str) -> BaseStorage:
    driven = re.sub("^postgres(ql)?://", "postgresql+psycopg://", address)
    try:
        if driven == address:
            return RDBStorage(address)
        return _postgres(driven)
    except ModuleNotFoundError as error:
        reason = f"{error.name} is not installed; install it with: pip install 'torch-goat[postgres]'"
        raise SettingsError(f"the storage {masked(address)} cannot be opened: {reason}.") from error
    except Exception as error:  # of any driver
        raise SettingsError(f"the storage {masked(address)} cannot be opened: {one_line(error, address)}.") from error


def _postgres(address: str) -> BaseStorage:
    """A PostgreSQL database; the lock lets one of several processes create the tables."""
    # Without a pool no connection is held, or can be lost, while a trial trains.
    options = {"poolclass": sqlalchemy.NullPool, "connect_args": {"connect_timeout": CONNECT_SECONDS}}
    with sqlalchemy.create_engine(address, **options).begin() as connection:
        connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(602)"))
        return RDBStorage(address, engine_kwargs=options)


@contextmanager
def answering(place: str) -> Iterator[None]:
    """Turns errors of a lost database into one that names it."""
    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        reason = one_line(error.__cause__ or error, place)
        raise RunError(
            f"the storage {masked(place)} no longer answers: {reason}; run the same command again once it does."
        ) from error


def _whole_lines(file: io.BufferedRandom) -> int:
    """The length of a file up to the end of its last complete line."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 4096)
        file.seek(start)
        last = file.read(end - start).rfind(b"\n")
        if last >= 0:
            return start + last + 1
        end = start
    return 0


def masked(address: str) -> str:
    """The address of a database with its password replaced by ``***``, for messages."""
    return _PASSWORD_PARAMETER.sub(r"\1***", _PASSWORD_BEFORE_HOST.sub(r"\1:***@", address))


def one_line(error: BaseException, address: str) -> str:
    """The first line of a database driver's error, without the password of the address."""
    lines = str(error).strip().splitlines()
    text = lines[0].strip().rstrip(".") if lines else type(error).__name__
    patterns = (_PASSWORD_BEFORE_HOST, _PASSWORD_PARAMETER)
    secrets = {match[2] for pattern in patterns for match in pattern.finditer(address) if match[2]}
    for secret in sorted(secrets | set(map(unquote, secrets)), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
