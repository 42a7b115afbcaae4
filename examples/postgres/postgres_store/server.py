import math
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from torch_goat.experiments.search.storage import masked, one_line

if TYPE_CHECKING:
    from psycopg import Connection

GRACE = 0.5  # seconds: a server that honours statement_timeout reports it before the socket is shut down


class StoreError(RuntimeError):
    """The server could not be reached, timed out, or returned something other than what was requested."""


class Server:
    """Runs queries on a PostgreSQL server and turns driver errors into :class:`StoreError`.

    Each process opens its own connection on its first query, so that a server can be passed to the workers of a
    ``DataLoader``. After a lost connection, the next query opens a new one.

    Args:
        address: The address of the database, e.g. ``postgresql://user:password@host:5432/name``.
        timeout: The maximum number of seconds per query.
    """

    def __init__(self, address: str, timeout: float) -> None:
        if not address.startswith(("postgresql://", "postgres://")):
            raise ValueError(f"address must start with postgresql://, got {masked(address)!r}.")
        if not (math.isfinite(timeout) and timeout > 0):
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout}.")
        self.address, self.timeout = address, timeout
        self._connections: dict[int, Connection] = {}  # by process id: a forked process must not close its parent's

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address, "timeout": self.timeout, "_connections": {}}

    def __str__(self) -> str:
        return masked(self.address)

    def ask(self, what: str, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Returns the rows of a query, or no rows if its table does not exist yet.

        Args:
            what: A description of the request for error messages.
            query: The query, with a ``%s`` placeholder per value.
            values: The values.
        """
        connection = self._connect(what)
        with self._answers(connection, what):
            try:
                return connection.execute(query, values, binary=True).fetchall()
            except _psycopg().errors.UndefinedTable:
                return []

    def write(self, what: str, works: Iterable[Callable[["Connection"], object]]) -> None:
        """Executes several steps in one transaction, which is rolled back if any of them fails.

        Args:
            what: A description of the request for error messages.
            works: The steps; the timeout applies to each of them, not to the transaction.
        """
        connection = self._connect(what)
        try:
            for work in (_begin, *works, _commit):
                with self._answers(connection, what):
                    work(connection)
        except BaseException:
            with suppress(_psycopg().Error):
                connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Closes the connection of this process, if any."""
        connection = self._connections.pop(os.getpid(), None)
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_connections"):
            self.close()

    def _connect(self, what: str) -> "Connection":
        found = self._connections.get(os.getpid())
        if found is not None and not found.closed:
            return found
        psycopg = _psycopg()
        try:
            connection = psycopg.connect(
                self.address,
                connect_timeout=max(2, math.ceil(self.timeout)),  # libpq's minimum is 2
                options=f"-c statement_timeout={math.ceil(1000 * self.timeout)}",
                application_name="torch-goat",
                autocommit=True,
            )
        except psycopg.Error as error:
            reason = one_line(error, self.address)
            raise StoreError(f"the store {self} cannot be reached to request {what}: {reason}.") from error
        self._connections[os.getpid()] = connection
        return connection

    @contextmanager
    def _answers(self, connection: "Connection", what: str) -> Iterator[None]:
        """Converts driver errors into a :class:`StoreError` that names the request."""
        psycopg = _psycopg()
        with _deadline(connection, self.timeout + GRACE) as late:
            try:
                yield
            except psycopg.Error as error:
                reason = one_line(error, self.address)
                if late.is_set() or isinstance(error, psycopg.errors.QueryCanceled):
                    message = f"did not return {what} within {self.timeout:g} s; increase timeout"
                elif connection.closed:
                    message = f"closed the connection during the request for {what}: {reason}"
                else:
                    message = f"rejected the request for {what}: {reason}"
                raise StoreError(f"the store {self} {message}.") from error


class OnServer:
    """A mixin for PyG's stores that holds the connection to the server.

    Args:
        address: The address of the database, e.g. ``postgresql://user:password@host:5432/name``.
        timeout: The maximum number of seconds per query.
    """

    def __init__(self, address: str, timeout: float = 30.0) -> None:
        super().__init__()
        self.server = Server(address, timeout)

    def close(self) -> None:
        """Closes the connection to the server; the next query opens a new one."""
        self.server.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.server)!r})"


@contextmanager
def _deadline(connection: "Connection", seconds: float) -> Iterator[threading.Event]:
    """Shuts the socket down if the block takes too long: a server that hangs does not apply its own timeout."""
    late = threading.Event()

    def break_off() -> None:
        late.set()
        with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, break_off)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise ImportError("psycopg is not installed; install it with: pip install 'torch-goat[postgres]'.") from error
    return psycopg


def prepare(tables: str) -> Callable[["Connection"], object]:
    """The step that creates missing tables; concurrent processes take turns through an advisory lock."""
    return lambda connection: connection.execute(f"SELECT pg_advisory_xact_lock(601); {tables}")


def _begin(connection: "Connection") -> None:
    connection.execute("BEGIN")


def _commit(connection: "Connection") -> None:
    connection.execute("COMMIT")
