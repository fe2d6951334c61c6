"""Connections to the server: what a URL says, how one is made, and what its errors mean.

A pooler in front of the server (PgBouncer in transaction mode) may hand every transaction to another connection, which
knows no statement that was prepared on the one before. It shows by its process id, which is not the server's: then no
statement is kept prepared.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import asyncpg

from gateway.core.errors import Conflict, InterlinguaError, Invalid, Unavailable

T = TypeVar("T")
Connection: TypeAlias = Any
"""One of asyncpg, which says nothing of its types."""

OLDEST = 15
"""The oldest version of the server that is tested."""
CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
"""How long a read may take, and how long one waits for a connection."""
PARTS = 10
"""Of a time for which an answer of the server is waited for."""
READERS = 4
PREPARED = 200
BY_INDEX = {"enable_seqscan": "off", "jit": "off"}
"""Where statements are kept prepared. The server keeps a plan with each, perhaps one that it made when a table was
empty: to read it from its start to its end. Every statement of ours has an index.
"""


def shown(url: str) -> str:
    """The URL as it may be shown: without the password, and without parameters, which may have one as well."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{hosts}{parts.path}"


def is_lost(error: BaseException) -> bool:
    """Whether another connection may do what this one could not."""
    return isinstance(
        error,
        OSError  # TimeoutError is one
        | asyncpg.InterfaceError
        | asyncpg.InternalClientError
        | asyncpg.PostgresConnectionError
        | asyncpg.OperatorInterventionError  # the server ends
        | asyncpg.ReadOnlySQLTransactionError  # it has become a standby
        | asyncpg.IdleInTransactionSessionTimeoutError
        | asyncpg.TooManyConnectionsError,
    ) and not isinstance(error, asyncpg.QueryCanceledError | asyncpg.DataError)


def is_engines(error: BaseException) -> bool:
    """Whether another try may succeed (locked, disk full). False if the values are at fault."""
    values = asyncpg.IntegrityConstraintViolationError | asyncpg.DataError | asyncpg.InterfaceError
    return isinstance(error, asyncpg.PostgresError | OSError) and not isinstance(error, values)


def unavailable(error: BaseException) -> InterlinguaError:
    """Map a failure to the error that the caller gets. The server's message goes into `detail`, for the log alone."""
    if isinstance(error, InterlinguaError):
        return error
    if isinstance(error, asyncpg.UniqueViolationError):
        return Conflict("this id exists already", detail=str(error))
    if isinstance(error, asyncpg.DataError):
        return Invalid("the store cannot keep this value", detail=str(error))
    why = ": no space is left on its disk" if isinstance(error, asyncpg.DiskFullError) else ""
    return Unavailable(f"the store failed{why}", detail=f"{type(error).__name__}: {error}")


def text(value: str) -> str:
    """A string as PostgreSQL keeps it, which cannot keep every one: NUL and lone surrogates are escaped, one to one."""
    if value.isascii() and "\0" not in value and "\x01" not in value:
        return value
    escaped = value.replace("\x01", "\x01\x01").replace("\0", "\x010")
    return "".join(f"\x01{ord(one):x};" if "\ud800" <= one <= "\udfff" else one for one in escaped)


class Patience:
    """Raises TimeoutError, as `asyncio.timeout` does, after so many seconds in which this process ran: they are counted
    in parts, and a stop of it (SIGSTOP, a machine that sleeps) costs one part.
    """

    def __init__(self, seconds: float) -> None:
        self._part, self._left = seconds / PARTS, PARTS
        self._bound = asyncio.timeout(None)
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> None:
        await self._bound.__aenter__()
        self._alarm = self._loop.call_later(self._part, self._over)

    def _over(self) -> None:
        self._left -= 1
        if self._left:
            self._alarm = self._loop.call_later(self._part, self._over)
        else:
            self._bound.reschedule(self._loop.time())

    async def __aexit__(self, *raised: Any) -> None:
        self._alarm.cancel()
        await self._bound.__aexit__(*raised)


class Server:
    """The server of a URL. Makes one connection that writes, and a few that read."""

    def __init__(self, url: str) -> None:
        self.name = shown(url)
        self._url = _with_defaults(url)
        self._pooled = True
        self._pool: Any = None

    @property
    def pooled(self) -> bool:
        """Whether `connect` has seen a pooler in front of the server: nothing may be left in a session."""
        return self._pooled

    async def connect(self) -> Connection:
        """A connection to a server that can be written. Raises what `opening_error` explains."""
        connection = await self._one(prepared=0)
        try:
            await _require_version(connection)
            self._pooled = connection.get_server_pid() != await connection.fetchval("SELECT pg_backend_pid()")
            if self._pooled:
                return connection
        except BaseException:
            connection.terminate()
            raise
        await connection.close(timeout=CONNECT_SECONDS)
        return await self._one(prepared=PREPARED)

    async def _one(self, *, prepared: int) -> Connection:
        async with Patience(CONNECT_SECONDS):
            return await asyncpg.connect(
                self._url,
                statement_cache_size=prepared,
                server_settings=BY_INDEX if prepared else None,
                target_session_attrs="read-write",
                timeout=None,
            )

    async def listener(self) -> Connection | None:
        """A connection to listen with; None behind a pooler, where nothing would be heard. Raises as `connect` does."""
        return None if self._pooled else await self._one(prepared=0)

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do `work`, which reads, with one of a few connections. Raises Unavailable."""
        pool = self._pool
        if pool is None:
            pool = self._pool = asyncpg.create_pool(
                connect=self._reader, reset=_keep, min_size=0, max_size=READERS, max_inactive_connection_lifetime=60.0
            )
            await pool
        try:
            async with Patience(READ_SECONDS), pool.acquire() as connection:
                return await work(connection)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise unavailable(error) from error

    async def _reader(self, *_: Any, **__: Any) -> Connection:
        return await self._one(prepared=0 if self._pooled else PREPARED)

    async def renew(self) -> None:
        """Have the connections that read made anew: the server may be another now."""
        if self._pool is not None:
            await self._pool.expire_connections()

    async def close(self) -> None:
        """Wait for running reads, then disconnect."""
        if self._pool is not None:
            try:
                async with asyncio.timeout(READ_SECONDS):
                    await self._pool.close()
            except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                self._pool.terminate()

    def opening_error(self, error: BaseException) -> Unavailable:
        """Why the store cannot be opened, in one line."""
        if isinstance(error, Unavailable):
            return error
        if isinstance(error, TimeoutError):
            why = f"no answer within {CONNECT_SECONDS:g} s"
        elif isinstance(error, asyncpg.TargetServerAttributeNotMatched):
            why = "none of its servers takes writes (standbys, or read-only)"
        elif isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        else:
            why = str(error)
        return Unavailable(f"cannot open the store {self.name}: {' '.join(why.split())}")


async def _keep(_: Connection) -> None:
    """Reset nothing on a connection that goes back to the pool: a read leaves nothing behind."""


async def _require_version(connection: Connection) -> None:
    version = connection.get_server_version()
    if version.major < OLDEST:
        raise Unavailable(f"the store needs PostgreSQL {OLDEST} or newer, this server is {version.major}")
    encoding = connection.get_settings().server_encoding
    if encoding != "UTF8":
        raise Unavailable(f"the store needs a database whose encoding is UTF8, this one's is {encoding}")


def _with_defaults(url: str) -> str:
    """The URL with the name that administrators see the connections by, unless it gives one."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "application_name" in given:
        return url
    query = urlencode({**given, "application_name": "interlingua"}, quote_via=quote)
    return parts._replace(query=query).geturl()


async def fetch(connection: Connection, sql: str, *arguments: Any) -> Sequence[Any]:
    """The rows of a statement. Strings are passed as `text` makes them."""
    return await connection.fetch(sql, *[_clean(one) for one in arguments])  # type: ignore[no-any-return]


def _clean(value: Any) -> Any:
    if type(value) is str:
        return text(value)
    if type(value) in (list, tuple) and value and type(value[0]) in (str, type(None)):
        return [text(one) if type(one) is str else one for one in value]
    return value
