"""Notes what is said on connections, for runs whose wire is recorded. While none is, no message passes here.

A message belongs to the runs that the work around it concerns: a `NotedWork` in the work's context knows them.

    a run's own task            all that it says to an agent is the run's, and so are the answers
    a client's message          the runs that are started or named while it is handled
    what a run's client is told the run whose watcher tells it
    an agent's message          the run whose request it answers, or that has said the same id on this connection
                                (a session's, a task's, a progress token); else the only run that waits for an answer

HTTP is noted by `HttpClient` and by the doors (`Exchange`), JSON-RPC by `Peer` (`PeerTap`), whatever carries it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias
from weakref import WeakSet

import msgspec

from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id, MessageBatch, Notification, Request, Response
from gateway.wire.ndjson import Unreadable

WHOLE_BYTES: Final = 64 * 1024
"""The largest body or message that is kept until it is whole. Of a larger one its size is noted."""
HELD: Final = 16
"""Messages that wait until it is known which run they concern."""
REMEMBERED: Final = 10_000
"""Requests without an answer, and ids, that are known of one connection."""
EVENTS: Final = "text/event-stream"
_ENDS: Final[Mapping[str, bytes]] = {EVENTS: b"\n\n", "application/x-ndjson": b"\n"}
"""What ends each message of a stream, by content type."""

Side: TypeAlias = Literal["client", "agent"]
Pairs: TypeAlias = Sequence[tuple[str, str]]


class Said(NamedTuple):
    """One message as it was on the wire. `at` is in seconds since the epoch; `size` of `data`, which is b"" if larger
    than WHOLE_BYTES; `media` its content type.

    side: whose wire it was on. None for one that was received: that is known when it is known which run it concerns.
    """

    at: float
    sent: bool
    form: Literal["request", "response", "event", "message"]
    title: str
    data: bytes
    size: int
    media: str
    headers: Pairs = ()
    side: Side | None = None


class WireNotes(Protocol):
    """Takes the messages of one run."""

    def note(self, said: Said, side: Side) -> None:
        """Called once for each message. Must not raise."""


class NotedWork:
    """The runs that some work concerns, and what was said in it before that was known."""

    __slots__ = ("_fixed", "_held", "_notes", "calls")

    def __init__(self, notes: WireNotes | None = None, *, calls: bool = False) -> None:
        """With `notes` it is known to concern that run alone. `calls`: it is the run's own work, which calls agents."""
        self.calls = calls
        self._fixed = notes is not None
        self._notes: list[tuple[WireNotes, Side]] = [(notes, "agent" if calls else "client")] if notes else []
        self._held: list[Said] = []

    @property
    def known(self) -> bool:
        """Whether a run is known that it concerns."""
        return bool(self._notes)

    def concerns(self, notes: WireNotes, side: Side) -> None:
        """It concerns this run, too."""
        if self._fixed or any(known is notes for known, _ in self._notes):
            return
        self._notes.append((notes, side))
        for said in self._held:
            notes.note(said, said.side or side)

    def note(self, said: Said) -> None:
        """Note a message for all the runs that it concerns, be they known now or later."""
        if not self._fixed and len(self._held) < HELD:
            self._held.append(said)
        for notes, side in self._notes:
            notes.note(said, said.side or side)

    def like(self, other: NotedWork) -> None:
        """It is an agent's, and concerns what the other one does."""
        for notes, _ in other._notes:
            self.concerns(notes, "agent")


_SUBJECT: ContextVar[NotedWork | None] = ContextVar("what is said here concerns these runs", default=None)


def current() -> NotedWork | None:
    """The subject of the work at hand."""
    return _SUBJECT.get()


def enter(subject: NotedWork | None) -> None:
    """All that the current task does from now on is about that."""
    _SUBJECT.set(subject)


@contextlib.contextmanager
def about(subject: NotedWork | None) -> Iterator[None]:
    """What is done in the block, and in tasks that begin there, is about that. None: about no run."""
    if subject is _SUBJECT.get():  # a context in which nothing is set takes no memory
        yield
        return
    token = _SUBJECT.set(subject)
    try:
        yield
    finally:
        _SUBJECT.reset(token)


class Tapped(Protocol):
    """A connection that can be noted."""

    def tap(self, on: bool) -> None:
        """Begin to note, or stop."""


class Tap:
    """Whether anything is noted in this process. `on` is read before each request and each message."""

    def __init__(self) -> None:
        self.on = False
        self._users: set[object] = set()
        self._connections: WeakSet[Tapped] = WeakSet()

    def use(self, user: object, on: bool) -> None:
        """`user` has something noted from now on, or nothing any more."""
        (self._users.add if on else self._users.discard)(user)
        if self.on is not (on := bool(self._users)):
            self.on = on
            for connection in list(self._connections):
                connection.tap(on)

    def made(self, connection: Tapped) -> None:
        """There is one more connection."""
        self._connections.add(connection)
        if self.on:
            connection.tap(True)


TAP: Final = Tap()
"""One per process, as connections are: gateways in it share them."""


# --- JSON-RPC ---------------------------------------------------------------------------------------------------------


class _Asked(NamedTuple):
    method: str
    subject: NotedWork | None
    side: Side


class PeerTap:
    """Notes the messages of one connection. `agent`: an agent is at its other end, whoever has connected."""

    def __init__(self, *, agent: bool) -> None:
        self._agent = agent
        self._ours: dict[Id, _Asked] = {}
        self._theirs: dict[Id, str] = {}
        self._ids: dict[tuple[str, str | int], NotedWork] = {}

    def sent(self, messages: Sequence[bytes]) -> None:
        """Messages of ours, as they are queued."""
        subject = current()
        side: Side = "agent" if self._agent or (subject is not None and subject.calls) else "client"
        for data in messages:
            message, asked = jsonrpc.decode(data), None
            if isinstance(message, Request):
                _remember(self._ours, message.id, _Asked(message.method, subject, side))
            if isinstance(message, Request | Notification) and side == "agent":
                self._named(message, subject)
            if isinstance(message, Response):
                asked = self._theirs.pop(message.id, None)
            if subject is not None:
                subject.note(_rpc(data, True, _title(message, asked), side))

    def _named(self, message: Request | Notification, subject: NotedWork | None) -> None:
        """What we said to an agent: its ids are those of the work that said it."""
        for key in _ids(message.params):
            if subject is not None:
                _remember(self._ids, key, subject)
            elif isinstance(message, Request):
                self._ids.pop(key, None)

    def heard(self, data: bytes | Unreadable) -> NotedWork:
        """A message of the other end. The subject to handle it with."""
        if isinstance(data, Unreadable):
            (subject := NotedWork()).note(Said(time.time(), False, "message", data.reason, b"", data.size, ""))
            return subject
        message = jsonrpc.decode(data)
        asked = self._ours.pop(message.id, None) if isinstance(message, Response) else None
        said = _rpc(data, False, _title(message, None if asked is None else asked.method), None)
        if asked is not None and asked.subject is not None:
            asked.subject.note(said._replace(side=asked.side))
            return asked.subject
        if isinstance(message, Request):
            _remember(self._theirs, message.id, message.method)
        subject = NotedWork()
        subject.note(said)
        for other in self._others(message):
            subject.like(other)
        return subject

    def _others(self, message: jsonrpc.Message) -> Sequence[NotedWork]:
        """What an agent's message is about: the work that has named its ids, or all that waits for an answer."""
        if isinstance(message, MessageBatch):
            found = [self._ours.pop(one.id, None) for one in message.messages if isinstance(one, Response)]
            return [one.subject for one in found if one is not None and one.subject is not None]
        if not isinstance(message, Request | Notification):
            return ()
        for key in _ids(message.params):
            if (subject := self._ids.get(key)) is not None:
                return [subject]
            asked = self._ours.get(key[1]) if key[0] == "requestid" else None
            if asked is not None and asked.subject is not None and asked.side == "agent":
                return [asked.subject]
        waiting = {id(one.subject): one.subject for one in self._ours.values() if one.subject and one.side == "agent"}
        return list(waiting.values()) if self._agent and len(waiting) == 1 else ()


def _title(message: jsonrpc.Message, asked: str | None) -> str:
    """What a list calls a message. `asked`: the method of the request that it answers."""
    if isinstance(message, Request | Notification):
        return message.method
    if isinstance(message, Response):
        return f"{'answer' if message.error is None else 'error'} to {asked or message.id}"
    return f"{len(message.messages)} messages" if isinstance(message, MessageBatch) else "no message"


def _rpc(data: bytes, sent: bool, title: str, side: Side | None) -> Said:
    return Said(time.time(), sent, "message", title, _kept(data), len(data), "application/json", side=side)


def _ids(params: msgspec.Raw) -> Iterator[tuple[str, str | int]]:
    """The ids that a message names: its members, and those of its `_meta`, that are called an id or a token."""
    try:
        found = msgspec.json.decode(params) if params else None
    except (ValueError, RecursionError):
        return
    for members in (found, found.get("_meta") if isinstance(found, dict) else None):
        for member, value in members.items() if isinstance(members, dict) else ():
            name = member.lower().replace("_", "")
            if name.endswith(("id", "token")) and isinstance(value, str | int) and not isinstance(value, bool):
                yield name, value


def _remember(table: dict[Any, Any], key: Any, value: Any) -> None:
    table.pop(key, None)
    table[key] = value
    if len(table) > REMEMBERED:
        del table[next(iter(table))]


def _kept(data: bytes) -> bytes:
    return data if len(data) <= WHOLE_BYTES else b""


# --- HTTP -------------------------------------------------------------------------------------------------------------


class BodyNotes:
    """Notes the body of one response: the events of a stream one by one, anything else when it is whole."""

    def __init__(self, subject: NotedWork, status: int, headers: Pairs, *, sent: bool, side: Side | None) -> None:
        self._subject = subject
        self._headers = headers
        self._sent = sent
        self._side: Side | None = side
        self._media = media_type(headers)
        self._title = f"{status} {self._media}".rstrip()
        self._pieces: list[bytes] = []
        self._size = 0
        self._ended = False
        self._end = _ENDS.get(self._media)
        if self._end is not None:
            self._note("response", self._title, b"", 0, headers)

    def feed(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._size += len(piece)
        if self._size <= WHOLE_BYTES:
            self._pieces.append(piece)
        if self._end is not None and b"\n" in piece:
            self._cut(b"".join(self._pieces).replace(b"\r\n", b"\n") if self._size <= WHOLE_BYTES else b"", self._end)

    def _cut(self, text: bytes, end: bytes) -> None:
        *frames, rest = text.split(end)
        for frame in frames:
            self._frame(frame)
        if self._size > WHOLE_BYTES:
            self._note("event", "an event", b"", self._size)
        self._pieces, self._size = [rest] if rest else [], len(rest)

    def _frame(self, frame: bytes) -> None:
        if self._media != EVENTS:
            self._note("event", "line", frame, len(frame))
            return
        lines = [line.partition(b":") for line in frame.split(b"\n") if line and not line.startswith(b":")]
        if not lines:  # a comment, which keeps the connection alive
            return
        fields = [(name, value.removeprefix(b" ")) for name, _, value in lines]
        data = b"\n".join(value for name, value in fields if name == b"data")
        named = " ".join(f"{name.decode('latin-1')}: {value.decode('utf-8', 'replace')[:200]}"
                         for name, value in fields if name in (b"event", b"id"))  # fmt: skip
        self._note("event", named or "event", data, len(data))

    def end(self) -> None:
        """That was all of it, or all that will come. Again: no effect."""
        if self._ended:
            return
        self._ended = True
        if self._end is None:
            whole = b"".join(self._pieces) if self._size <= WHOLE_BYTES else b""
            self._note("response", self._title, whole, self._size, self._headers)
        elif self._pieces:
            self._frame(b"".join(self._pieces))

    def _note(self, form: Any, title: str, data: bytes, size: int, headers: Pairs = ()) -> None:
        media = "application/json" if form == "event" else self._media
        self._subject.note(Said(time.time(), self._sent, form, title, data, size, media, headers, self._side))


class Exchange:
    """One request of a client's to a door, and its answer. Give `receive` and `send` to the application."""

    def __init__(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        """What the current task does from now on is about it."""
        self._subject = NotedWork()
        self._scope = scope
        self._receive = receive
        self._send = send
        self._body: list[bytes] | None = []
        self._size = 0
        self._answer: BodyNotes | None = None
        enter(self._subject)

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.request" and self._body is not None:
            self._size += len(piece := message.get("body", b""))
            if self._size <= WHOLE_BYTES:
                self._body.append(piece)
            if not message.get("more_body", False):
                self._asked()
        return message

    def _asked(self) -> None:
        """Note the request, once."""
        if self._body is None:
            return
        pieces, self._body = self._body, None
        headers = _pairs(self._scope["headers"])
        query = self._scope["query_string"].decode("latin-1")
        path = self._scope["path"] + (f"?{query}" if query else "")
        data = b"".join(pieces) if self._size <= WHOLE_BYTES else b""
        title = f"{self._scope['method']} {path}"
        said = Said(time.time(), False, "request", title, data, self._size, media_type(headers), headers)
        self._subject.note(said)

    def send(self, message: Any) -> Awaitable[None]:
        kind = message["type"]
        if kind == "http.response.start":
            self._asked()
            headers = _pairs(message["headers"])
            self._answer = BodyNotes(self._subject, message["status"], headers, sent=True, side="client")
        elif kind == "http.response.body" and self._answer is not None:
            if piece := message.get("body", b""):
                self._answer.feed(piece)
            if not message.get("more_body", False):
                self._answer.end()
        return self._send(message)


def _pairs(headers: Sequence[tuple[bytes, bytes]]) -> Pairs:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]


def media_type(headers: Pairs) -> str:
    """The content type in lower case without its parameters, "" if there is none."""
    found = next((value for name, value in headers if name.lower() == "content-type"), "")
    return found.partition(";")[0].strip().lower()
