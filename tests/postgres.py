"""A PostgreSQL server of the tests' own, on loopback, with a password."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PASSWORD = "no%one's-business"  # with a character that an address must escape


class Postgres(NamedTuple):
    """A server that runs."""

    port: int
    process: int

    @property
    def address(self) -> str:
        return f"postgresql://goat:{PASSWORD.replace('%', '%25')}@127.0.0.1:{self.port}/postgres"

    def pause(self) -> None:
        """Stops the server and all that serves its connections, which stay open."""
        for process in self._family():
            os.kill(process, signal.SIGSTOP)

    def resume(self) -> None:
        for process in self._family():
            os.kill(process, signal.SIGCONT)

    def _family(self) -> list[int]:
        children = Path(f"/proc/{self.process}/task/{self.process}/children").read_text()
        return [self.process, *map(int, children.split())]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def programs() -> Path | None:
    """Where the server's programs are; Debian does not put them into the path."""
    found = shutil.which("initdb")
    folders = (
        [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    )
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'torch-goat[postgres]'")
    where = programs()
    if where is None:
        pytest.skip("there is no PostgreSQL server: apt-get install postgresql")
    user: dict[str, str] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}  # it refuses root
    with tempfile.TemporaryDirectory() as name:
        folder, data = Path(name), Path(name) / "data"
        (folder / "password").write_text(PASSWORD)
        if user:
            for path in (folder, folder / "password"):
                shutil.chown(path, **user)
        create = [where / "initdb", "--auth=scram-sha-256", "--username=goat", f"--pwfile={folder / 'password'}", data]
        subprocess.run(create, check=True, capture_output=True, cwd=folder, **user)
        port = free_port()
        options = ["-c", f"port={port}", "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}"]
        options += ["-c", "fsync=off"]
        server = subprocess.Popen(
            [where / "postgres", "-D", data, *options], cwd=folder, stderr=subprocess.PIPE, **user
        )
        assert server.stderr is not None
        try:
            for line in server.stderr:
                if b"ready to accept connections" in line:
                    break
            else:
                pytest.fail(f"the server ended with exit code {server.wait()}")
            yield Postgres(port, server.pid)
        finally:
            server.send_signal(signal.SIGINT)  # ends the connections too
            server.communicate(timeout=60)


@pytest.fixture
def database(postgres: Postgres) -> str:
    """The address of a new, empty database."""
    name = f"goat_{uuid.uuid4().hex}"
    tell(postgres.address, f"CREATE DATABASE {name}")
    return postgres.address.replace("/postgres", f"/{name}")


def tell(address: str, query: str) -> None:
    """Does something to a database, behind the back of whoever uses it."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(query)
