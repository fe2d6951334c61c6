"""What SQLite's errors mean to those who asked."""

from __future__ import annotations

import sqlite3

from gateway.core.errors import Conflict, InterlinguaError, Unavailable


class CannotBegin(sqlite3.OperationalError):
    """The transaction did not start (locked by others for too long, disk gone): no use in trying piece by piece."""


class NotWhole(Exception):
    """The batch is to be written piece by piece."""


def is_engines(error: sqlite3.Error) -> bool:
    """True where another try may work: locked, full, broken disk. False where the values are at fault."""
    values = sqlite3.IntegrityError | sqlite3.DataError | sqlite3.InterfaceError | sqlite3.ProgrammingError
    return not isinstance(error, values)


def unavailable(error: BaseException) -> InterlinguaError:
    """What a failure is to a caller. What SQLite said is for the log."""
    if isinstance(error, InterlinguaError):
        return error
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict("this id exists already", detail=str(error))
    return Unavailable("the store failed", detail=f"{type(error).__name__}: {error}")


def closed() -> Unavailable:
    """What who comes before `open` or after `close` is told."""
    return Unavailable("the store is closed")
