"""Maps SQLite's errors to the gateway's."""

from __future__ import annotations

import sqlite3

from gateway.core.errors import Conflict, InterlinguaError, Unavailable


class CannotBegin(sqlite3.OperationalError):
    """The transaction did not start (locked for too long, disk gone), so trying piece by piece would not help."""


class NotWhole(Exception):
    """The batch has to be written piece by piece."""


def is_engines(error: sqlite3.Error) -> bool:
    """True if another try may succeed (locked, full, broken disk). False if the values are at fault."""
    values = sqlite3.IntegrityError | sqlite3.DataError | sqlite3.InterfaceError | sqlite3.ProgrammingError
    return not isinstance(error, values)


def unavailable(error: BaseException) -> InterlinguaError:
    """Map a failure to the error that the caller gets. SQLite's message goes into `detail`, which is only logged."""
    if isinstance(error, InterlinguaError):
        return error
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict("this id exists already", detail=str(error))
    return Unavailable("the store failed", detail=f"{type(error).__name__}: {error}")
