import math
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from torch_goat.data.stores.address import masked, one_line
from torch_goat.data.stores.errors import StoreError

if TYPE_CHECKING:
    from psycopg import Connection

GRACE = 0.5  # seconds in which a server that keeps the timeout can say so, before the connection is broken off


class Server:
    """A PostgreSQL server and what can be asked of it.

    There is one connection per process, made with the first question, so that a server may be handed to the workers of
    a loader. A connection that was lost is made anew with the next question.

    Args:
        address: The address of the database, as ``postgresql://user:password@host:5432/name``.
        timeout: How many seconds an answer may take.
    """

    def __init__(self, address: str, timeout: float) -> None:
        if not address.startswith(("postgresql://", "postgres://")):
            raise ValueError(f"the address of a store begins with postgresql://, got {masked(address)!r}.")
        if not (math.isfinite(timeout) and timeout > 0):
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout}.")
        self.address, self.timeout = address, timeout
        self._connections: dict[int, Connection] = {}  # by process: one that was inherited is another's to close

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address, "timeout": self.timeout, "_connections": {}}

    def __str__(self) -> str:
        return masked(self.address)

    def ask(self, what: str, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows that answer a query; none where its table is not there yet.

        Args:
            what: What is asked for, in the words of an error.
            query: The query, with ``%s`` for every value.
            values: The values.
        """
        connection = self._connect(what)
        with self._answers(connection, what):
            try:
                return connection.execute(query, values, binary=True).fetchall()
            except _psycopg().errors.UndefinedTable:
                return []

    def write(self, what: str, works: Iterable[Callable[["Connection"], object]]) -> None:
        """Does pieces of work in one transaction, which is done whole, or not at all if anything goes wrong.

        Args:
            what: What is written, in the words of an error.
            works: The pieces, each of which is done in time; all of them may take any time.
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
        """Closes this process's connection, if there is one."""
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
                connect_timeout=max(2, math.ceil(self.timeout)),  # 2 is the least that libpq takes
                options=f"-c statement_timeout={math.ceil(1000 * self.timeout)}",
                application_name="torch-goat",
                autocommit=True,
            )
        except psycopg.Error as error:
            reason = one_line(error, self.address)
            raise StoreError(f"the store {self} cannot be reached for {what}: {reason}.") from error
        self._connections[os.getpid()] = connection
        return connection

    @contextmanager
    def _answers(self, connection: "Connection", what: str) -> Iterator[None]:
        """Raises what goes wrong with a question as an error that names it."""
        psycopg = _psycopg()
        with _deadline(connection, self.timeout + GRACE) as late:
            try:
                yield
            except psycopg.Error as error:
                reason = one_line(error, self.address)
                if late.is_set() or isinstance(error, psycopg.errors.QueryCanceled):
                    message = f"did not answer for {what} within {self.timeout:g} s; allow it more time with timeout="
                elif connection.closed:
                    message = f"broke off the connection when it was asked for {what}: {reason}"
                else:
                    message = f"refused {what}: {reason}"
                raise StoreError(f"the store {self} {message}.") from error


class OnServer:
    """What is kept on a PostgreSQL server, to be mixed into a store of PyG's.

    Args:
        address: The address of the database, as ``postgresql://user:password@host:5432/name``.
        timeout: How many seconds an answer may take.
    """

    def __init__(self, address: str, timeout: float = 30.0) -> None:
        super().__init__()
        self.server = Server(address, timeout)

    def close(self) -> None:
        """Closes the connection to the server; the next question opens another."""
        self.server.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.server)!r})"


@contextmanager
def _deadline(connection: "Connection", seconds: float) -> Iterator[threading.Event]:
    """Breaks the connection off if the block takes too long: a server that hangs keeps no timeout of its own."""
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
        raise ImportError("stores need psycopg; install it with: pip install 'torch-goat[postgres]'.") from error
    return psycopg


def prepare(tables: str) -> Callable[["Connection"], object]:
    """The piece of work that makes tables where they are missing; two processes that begin at once take turns."""
    return lambda connection: connection.execute(f"SELECT pg_advisory_xact_lock(601); {tables}")


def _begin(connection: "Connection") -> None:
    connection.execute("BEGIN")


def _commit(connection: "Connection") -> None:
    connection.execute("COMMIT")
