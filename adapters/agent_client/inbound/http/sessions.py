"""The sessions of one connection, as far as its streams go."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from adapters.agent_client.streamable import ENDING, NAMING, SERVED, session_in
from gateway.transport.streamable_http.server import MessageStream
from gateway.wire import sse
from gateway.wire.jsonrpc import Response

_OUTSIDE = re.compile(r"[^\x00-\x7f]+")


class StreamedSession:
    """One session of a connection. `own`: its messages go on its own stream, open or not; else on the connection's.

    A client opens a session's stream once it has seen the session's id: in the answer that made it, or (the Python SDK
    0.12) in any message. So messages about a session that it merely asked for, without opening the stream first, go on
    the connection's, until the stream is open and no request for the session is under way: in the middle of an answer,
    messages on two streams could arrive in any order.

    `closed`: an answer said that the session is not there any more.
    """

    __slots__ = ("_busy", "_known", "closed", "lane", "name", "own")

    def __init__(self, name: str, lane: MessageStream, own: bool) -> None:
        self.name = name
        self.lane = lane
        self.own = own
        self.closed = False
        self._known = False
        self._busy = 0

    @property
    def idle(self) -> bool:
        """Whether no request for it is under way."""
        return not self._busy

    @property
    def pointless(self) -> bool:
        """Whether nothing is lost if it is forgotten."""
        return self.idle and not (self._known or self.lane.read) and self.lane.empty

    def made(self) -> None:
        """An answer names it, which the client has not heard of."""
        self._known = self.own = True

    def begin(self, *, open: bool = False) -> None:
        """A request for it is under way. open: it asks for its stream alone."""
        self._busy += 1
        if not open:
            self.closed = False

    def finish(self, method: str = "", *, good: bool = False) -> None:
        """A request for it is over. good: its method was answered without an error."""
        self._busy -= 1
        if good and method in SERVED:
            self._known = True
        elif good and method in ENDING:
            self._known, self.closed = False, True

    def settle(self) -> None:
        """Move it to its own stream if that can be done now."""
        if self.lane.read:
            self.own = self.own or self.idle


class StreamedSessions:
    """The sessions of one connection, by id. Clients may open streams while there are fewer than `most`.

    `moved`: see `MessageStream`.
    """

    def __init__(self, moved: Callable[[int], None], most: int) -> None:
        self._moved = moved
        self._most = most
        self._sessions: dict[str, StreamedSession] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._sessions

    def room(self) -> bool:
        """Whether there is room for one more stream.

        Those of closed sessions stay open, as clients keep them (the TypeScript SDK 0.29 takes a stream that ends under
        a request for the end of the connection, and a closed session may be loaded again); but now the oldest ends.
        """
        if len(self._sessions) < self._most:
            return True
        idle = (session for session in self._sessions.values() if session.closed and session.idle)
        oldest = next((session for session in idle if session.lane.read and not session.lane.ending), None)
        if oldest is not None:
            oldest.lane.finish()
        return oldest is not None

    def lanes(self) -> Iterator[MessageStream]:
        """Every lane."""
        return (session.lane for session in self._sessions.values())

    def told(self, name: str) -> StreamedSession:
        """Return the session that a message is about. A client that has not heard of it soon will."""
        return self._sessions.get(name) or self._add(name, own=True)

    @contextlib.contextmanager
    def opening(self, name: str) -> Iterator[StreamedSession]:
        """The session whose stream is opened at once after the block; `settle` it then."""
        session = self._sessions.get(name) or self._add(name, own=True)
        session.begin(open=True)
        try:
            yield session
        finally:
            session.finish()

    def asked(self, name: str) -> StreamedSession:
        """Return the session that a request names, which is under way from now on."""
        session = self._sessions.get(name) or self._add(name, own=False)
        session.begin()
        return session

    def answered(self, method: str, session: StreamedSession | None, response: Response | None) -> None:
        """A request was answered, and the answer is queued; None where it never will be."""
        good = response is not None and response.error is None
        if response is not None and good and method in NAMING and (name := session_in(response.result)) is not None:
            (self._sessions.get(name) or self._add(name, own=True)).made()
        if session is not None:
            session.finish(method, good=good)
            self.settle(session)

    def settle(self, session: StreamedSession) -> None:
        """Called after every change: move it to its own stream if that can be done now, or forget it."""
        session.settle()
        if session.pointless:
            self._sessions.pop(session.name, None)

    def _add(self, name: str, *, own: bool) -> StreamedSession:
        session = self._sessions[name] = StreamedSession(name, session_stream(self._moved), own)
        return session


def session_stream(moved: Callable[[int], None]) -> MessageStream:
    """The stream of a session, or of the connection. Its events have no ids."""
    return MessageStream("", _event, keep=None, moved=moved)


def _event(number: int, message: bytes) -> bytes:
    """An event in ASCII, for which JSON has escapes.

    The Python SDK 0.12 decodes each read of its socket by itself, and fails where a character is cut in two.
    """
    return sse.encode(message if message.isascii() else _ascii(message))


def _ascii(message: bytes) -> bytes:
    return _OUTSIDE.sub(_escaped, message.decode()).encode()


def _escaped(found: re.Match[str]) -> str:
    return "\\u" + found[0].encode("utf-16-be").hex(" ", 2).replace(" ", "\\u")
