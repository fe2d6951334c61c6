"""Restores from an audit log what earlier processes left: budgets spent, states of sessions, unfinished tool calls."""

from __future__ import annotations

import contextlib
import heapq
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec

from gateway.core.types import JsonObject
from gateway.governance.audit import AuditEvent, aip44
from gateway.governance.audit.aip44 import AUTO, State
from gateway.governance.audit.files import LogFiles
from gateway.governance.budgets import DAY, Spent

READ_BYTES: Final = 16 * 1024 * 1024
"""The least to read back; whole files, and all of today."""
TRIES: Final = 10
"""How often the files of a log that is being written are opened anew, because one was closed or removed."""
AT_WORK: Final = frozenset({"running", "suspended", "resumed"})
"""States of a session that has a run."""
CODE: Final = "outcome_unknown"
UNKNOWN: Final[JsonObject] = {"code": CODE, "message": "the gateway stopped before the end was known"}


class _Record(msgspec.Struct, rename="kebab"):
    operator: str = ""
    session: str = ""
    tool: str = ""
    call: str = ""
    approval: str | None = None
    enough: bool = True
    to: State | None = None
    budgets: list[str] = []


class _Vendor(msgspec.Struct):
    audit: _Record


class _Metadata(msgspec.Struct):
    aip44: _Vendor


class _Line(msgspec.Struct):
    ts: Annotated[datetime, msgspec.Meta(tz=True)]
    action: str
    input: msgspec.Raw = msgspec.Raw(b"null")
    metadata: _Metadata | None = None


class _Head(msgspec.Struct):
    ts: Annotated[datetime, msgspec.Meta(tz=True)]


@dataclass(frozen=True)
class UnfinishedCall:
    """A tool call without an end. Without `approval` it waited for one, and was not shown."""

    operator: str
    tool: str
    approval: str | None
    input: bytes

    def end(self, session: str, call: str) -> AuditEvent:
        """Make the event that ends it, when no run goes on with it."""
        about: JsonObject = {"operator": self.operator, "session": session, "tool": self.tool, "call": call}
        if self.approval is not None:
            return aip44.tool_result(**about, error=UNKNOWN, approval=self.approval)
        return aip44.tool_call(
            **about,
            arguments=msgspec.json.decode(self.input),
            approval=None,
            refused=True,
            why="the gateway stopped before it was approved",
        )


@dataclass
class UnfinishedSession:
    """A session as an earlier process left it: unfinished calls, and the operator's state."""

    operator: str = ""
    state: State | None = None
    calls: dict[str, UnfinishedCall] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    """Calls of the session's last run whose end is recorded. That of the run itself may be recorded and not stored."""
    last: Path = Path()
    """The log that has the last line about it."""

    def __bool__(self) -> bool:
        return bool(self.calls) or self.state in AT_WORK

    def told(self, path: Path) -> None:
        """Note that the log at `path` has a line about it."""
        self.last = path

    def moved(self, operator: str, state: State) -> None:
        self.operator, self.state = operator, state

    def closed(self) -> None:
        """Note that nothing of it needs an end but its calls."""
        self.state = None

    def go_on(self, calls: Collection[str]) -> None:
        """Leave these calls, and the operator's state, to a run that goes on."""
        self.state = None
        self.calls = {name: begun for name, begun in self.calls.items() if name not in calls}

    def ends(self, session: str) -> Iterator[AuditEvent]:
        """Make the events that end it, when no run goes on with it."""
        for call, begun in self.calls.items():
            yield begun.end(session, call)
        if self.state in AT_WORK:
            why: JsonObject = {"error": UNKNOWN}
            yield aip44.transition(
                operator=self.operator, session=session, before=self.state, after="interrupted", why=why
            )


@dataclass
class RestoredLog:
    """`sessions` are in the order of their last transition; one that was closed is there only if a call is open.
    `places`: the logs that tell of each session, that of the last line last. `newest`: by log, when its last line was
    recorded, in seconds since the epoch.
    """

    spent: list[Spent] = field(default_factory=list)
    sessions: dict[str, UnfinishedSession] = field(default_factory=dict)
    places: dict[str, list[Path]] = field(default_factory=dict)
    newest: dict[Path, float] = field(default_factory=dict)

    def take(self, line: _Line, since: float, path: Path) -> None:
        """Take in a line of the log at `path`. Budgets count from `since`."""
        self.newest[path] = at = line.ts.timestamp()
        if line.metadata is None:
            return
        audit = line.metadata.aip44.audit
        places = self.places.setdefault(audit.session, [])
        if path in places[:-1]:
            places.remove(path)
        if path not in places:
            places.append(path)
        if line.action == "tool.call" and audit.budgets and at >= since:
            self.spent += [Spent(policy=slug, at=at) for slug in audit.budgets]
        if audit.to is not None:
            before = self.sessions.pop(audit.session, None)
            self.sessions[audit.session] = before or UnfinishedSession()
        left = self.sessions.setdefault(audit.session, UnfinishedSession())
        left.told(path)
        match line.action:
            case _ if audit.to is not None:
                if audit.to in AT_WORK and left.state not in AT_WORK:
                    left.ended.clear()
                left.moved(audit.operator, audit.to)
            case "tool.call":
                left.calls[audit.call] = _begun(audit, line.input)
                left.ended.discard(audit.call)
            case "approval.granted" if audit.enough and (begun := left.calls.get(audit.call)) is not None:
                left.calls[audit.call] = replace(begun, approval=audit.approval or AUTO)
            case "tool.result" | "tool.refused":
                left.calls.pop(audit.call, None)
                left.ended.add(audit.call)
            case "audit.closed":
                left.closed()
                left.ended.clear()
                if not left.calls:
                    del self.sessions[audit.session]


def read(paths: Sequence[Path], now: float) -> RestoredLog:
    """Read the logs at `paths` (see `AuditLog`) as one, which other processes may be writing. `now`: seconds since the
    epoch. Who goes on with what another log tells dates its lines after that one's (`AuditLog.follow`); of lines of one
    moment those of the last path are the last.

    Raises OSError.
    """
    since = now // DAY * DAY
    past = RestoredLog()
    with contextlib.ExitStack() as stack:
        logs = [_lines(path, _opened(LogFiles(path), since, stack)) for path in paths]
        for path, line in heapq.merge(*logs, key=lambda each: each[1].ts):
            past.take(line, since, path)
    return past


def _lines(path: Path, files: list[BinaryIO]) -> Iterator[tuple[Path, _Line]]:
    for file in files:
        for raw in file:
            try:
                yield path, _decode(raw)
            except msgspec.MsgspecError:  # another program's, or what was too large is left out
                continue


def _opened(place: LogFiles, since: float, stack: contextlib.ExitStack) -> list[BinaryIO]:
    """Open the files to read, oldest first, so that none is missed that is closed or removed meanwhile."""
    for _ in range(TRIES):
        closed = place.closed()
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as opened:
            found = _newest(place, since, opened)
            if place.closed() == closed:
                stack.push(opened.pop_all())
                return found
    raise OSError(f"{place.active}: its files change faster than they are opened")


def _newest(place: LogFiles, since: float, stack: contextlib.ExitStack) -> list[BinaryIO]:
    found: list[BinaryIO] = []
    size = 0
    for path in reversed(place.files()):
        file = stack.enter_context(path.open("rb"))
        found.insert(0, file)
        size += os.fstat(file.fileno()).st_size
        first = file.readline()
        file.seek(0)
        if size >= READ_BYTES and first and _head(first).ts.timestamp() < since:
            break
    return found


def _begun(audit: _Record, given: msgspec.Raw) -> UnfinishedCall:
    return UnfinishedCall(
        audit.operator, audit.tool, audit.approval, bytes(given) if audit.approval is None else b"null"
    )


_decode = msgspec.json.Decoder(_Line).decode
_head = msgspec.json.Decoder(_Head).decode
