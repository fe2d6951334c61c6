"""One connection of Streamable HTTP, as a Pipe: what is POSTed comes in, what goes out waits for its GET."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from adapters.agent_client import forwarded
from adapters.agent_client.codec.questions import ELICITATION
from adapters.agent_client.inbound.visitor import Visitor
from adapters.agent_client.wire import CANCEL_REQUEST, ENDING, LOAD, NAMING, TAKING_UP
from gateway.core.errors import AgentGone, InterlinguaError
from gateway.transport.pipe import Inbox, Unreadable
from gateway.transport.streamable_http import server
from gateway.wire import jsonrpc, sse

SERVED = (*TAKING_UP, "session/prompt", "session/set_mode", "session/set_config_option")
"""Methods that succeed only where the session exists."""
REPEATABLE = (
    *("session/request_permission", ELICITATION),
    *("fs/read_text_file", "terminal/output", "terminal/wait_for_exit"),
)
"""Requests to the client that it may get twice: they change nothing at its end."""
_OUTSIDE = re.compile(r"[^\x00-\x7f]+")
log = logging.getLogger(__name__)
INBOX_BYTES = 4 * 1024 * 1024
BUFFER_BYTES = 16 * 1024 * 1024
STALL_SECONDS = 60.0
RETURN_SECONDS = 2.0
"""For a client to open the stream of a session again: the TypeScript SDK does, the Python SDK 0.12 never."""
RECENT_SECONDS = 10.0


# --- the sessions of one connection, as far as its streams go -------------------------------------------------------


class LaneMessage(NamedTuple):
    """A message that was put on a stream: its number there, and when that was."""

    lane: server.MessageStream
    number: int
    data: bytes
    at: float

    @classmethod
    def last(cls, lane: server.MessageStream, data: bytes) -> LaneMessage:
        return cls(lane, lane.last, data, asyncio.get_running_loop().time())

    @property
    def written(self) -> bool:
        """Whether a response has carried it."""
        return not self.lane.unwritten(self.number)


class StreamedSession:
    """One session of a connection. `own`: its messages go on its own stream, open or not; else on the connection's.

    A client opens a session's stream once it has seen the session's id: in the answer that made it, or (the Python SDK
    0.12) in any message. So messages about a session that it merely asked for, without opening the stream first, go on
    the connection's, until the stream is open and no request for the session is under way: in the middle of an answer,
    messages on two streams could arrive in any order.

    `closed`: an answer said that the session is not there any more.
    """

    __slots__ = ("_answer", "_busy", "_known", "closed", "lane", "name", "own")

    def __init__(self, name: str, lane: server.MessageStream, own: bool) -> None:
        self.name = name
        self.lane = lane
        self.own = own
        self.closed = False
        self._answer: LaneMessage | None = None
        self._known = False
        self._busy = 0

    @property
    def idle(self) -> bool:
        return not self._busy

    @property
    def pointless(self) -> bool:
        return self.idle and not (self._known or self.lane.read) and self.lane.empty

    @property
    def missed(self) -> bool:
        """Whether its client, which may have come to know it, does not read what goes on its own stream."""
        return self.own and not self.lane.read and (self._known or self.lane.opened)

    def forsake(self, main: server.MessageStream) -> None:
        """Its stream is not opened: what waits goes on the connection's, and what follows."""
        self.own = False
        self.lane.pour(main)

    def given(self, answer: LaneMessage) -> None:
        """The last answer about it."""
        self._answer = answer

    def retold(self) -> bytes | None:
        """The last answer if it may have been lost with the response that carried its stream; once. A client that ends
        the stream of a session that it has closed has it.
        """
        answer, self._answer = self._answer, None
        if answer is None or self.closed or asyncio.get_running_loop().time() - answer.at > RECENT_SECONDS:
            return None
        return answer.data if answer.lane is self.lane and answer.written else None

    def made(self) -> None:
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

    `main`: the connection's stream. `moved`: see `MessageStream`.
    """

    def __init__(self, main: server.MessageStream, moved: Callable[[int], None], most: int) -> None:
        self._main = main
        self._moved = moved
        self._most = most
        self._sessions: dict[str, StreamedSession] = {}
        self._expected: set[StreamedSession] = set()

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

    def lanes(self) -> Iterator[server.MessageStream]:
        return (session.lane for session in self._sessions.values())

    def told(self, name: str) -> StreamedSession:
        return self._of(name, own=True)

    @contextlib.contextmanager
    def opening(self, name: str) -> Iterator[StreamedSession]:
        """The session whose stream is opened at once after the block; `settle` it then."""
        session = self._of(name, own=True)
        session.begin(open=True)
        try:
            yield session
        finally:
            session.finish()

    def asked(self, name: str) -> StreamedSession:
        session = self._of(name, own=False)
        session.begin()
        return session

    def answered(self, method: str, session: StreamedSession | None, response: jsonrpc.Response | None) -> None:
        """A request was answered, and the answer is queued; None where it never will be."""
        good = response is not None and response.error is None
        name = forwarded.session_of(response.result) if response is not None and good and method in NAMING else None
        if name is not None:
            made = self._of(name, own=True)
            made.made()
            self.settle(made)
        if session is not None:
            session.finish(method, good=good)
            self.settle(session)

    def settle(self, session: StreamedSession) -> None:
        """Called after every change: move it to its own stream if that can be done now, or forget it."""
        session.settle()
        if not session.lane.empty:
            self.expect(session)
        if session.pointless:
            self._sessions.pop(session.name, None)

    def expect(self, session: StreamedSession) -> None:
        """Give its client some time to open its stream, once however often this is called."""
        if session.missed and session not in self._expected:
            self._expected.add(session)
            asyncio.get_running_loop().call_later(RETURN_SECONDS, self._waited, session)

    def _waited(self, session: StreamedSession) -> None:
        self._expected.discard(session)
        if session.missed:
            session.forsake(self._main)
            self.settle(session)

    def _of(self, name: str, *, own: bool) -> StreamedSession:
        """`own`: of one that is new."""
        if (session := self._sessions.get(name)) is None:
            session = self._sessions[name] = StreamedSession(name, session_stream(self._moved), own)
        return session


def session_stream(moved: Callable[[int], None]) -> server.MessageStream:
    """The stream of a session, or of the connection. Its events have no ids."""
    return server.MessageStream("", _event, keep=None, moved=moved)


def _event(number: int, message: bytes) -> bytes:
    """An event in ASCII, for which JSON has escapes.

    The Python SDK 0.12 decodes each read of its socket by itself, and fails where a character is cut in two.
    """
    return sse.encode(message if message.isascii() else _OUTSIDE.sub(_escaped, message.decode()).encode())


def _escaped(found: re.Match[str]) -> str:
    return "\\u" + found[0].encode("utf-16-be").hex(" ", 2).replace(" ", "\\u")


# --- the connection -------------------------------------------------------------------------------------------------


class ClientRequest(NamedTuple):
    """A request of the client that is not answered yet. `named`: it came with the session's header."""

    method: str
    session: StreamedSession | None
    named: bool


class ServerRequest(NamedTuple):
    """A request to the client that is not answered yet. `told`: where, if it may be told again."""

    session: str | None
    told: LaneMessage | None


class HttpConnection:
    """See `gateway.transport.pipe.Pipe`. Made for one `initialize`; `agent` is whom the URL names, `visitor` who it is.

    BUFFER_BYTES may wait for the client to read them; then `send` waits, and where nothing moves for STALL_SECONDS the
    connection is over: its client reads some streams, but not all that it should, or none.
    """

    def __init__(self, id: str, agent: str | None, visitor: Visitor, sessions: int) -> None:
        """`sessions`: of how many it may open streams."""
        self.id = id
        self.agent = agent
        self.visitor = visitor
        self.over = False
        self.main = session_stream(self._on_moved)
        self.sessions = StreamedSessions(self.main, self._on_moved, sessions)
        self._size = 0
        self._moved = asyncio.Event()
        self._inbox = Inbox(INBOX_BYTES)
        self._asked: dict[jsonrpc.Id, ClientRequest] = {}
        self._ours: dict[jsonrpc.Id, ServerRequest] = {}
        self._first: tuple[jsonrpc.Id, asyncio.Future[bytes]] | None = None
        self._why: InterlinguaError | None = None

    @property
    def name(self) -> str:
        return f"client {self.id[:8]} (HTTP)"

    # --- what comes in ---------------------------------------------------------------------------------------------

    async def initialize(self, request: jsonrpc.Request, message: bytes) -> bytes:
        """Hand the first request over and wait for its answer, which goes on no stream.

        Raises AgentGone, or what `served` was told.
        """
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._first = (request.id, future)
        if self._why is None:
            self._inbox.put([message])
        else:
            future.set_exception(self._why)
        return await future

    async def deliver(self, message: jsonrpc.Message, data: bytes, session: str | None, named: bool) -> None:
        """Hand over what was POSTed. Waits while earlier messages are not taken. Raises AgentGone."""
        if isinstance(message, jsonrpc.Request):
            if (same := self._asked.pop(message.id, None)) is not None:
                self.sessions.answered(same.method, same.session, None)
            asked = None if session is None else self.sessions.asked(session)
            self._asked[message.id] = ClientRequest(message.method, asked, named)
        elif isinstance(message, jsonrpc.Response):
            self._ours.pop(message.id, None)
        await self._inbox.room()
        if self.over:
            raise AgentGone("the connection has ended")
        self._inbox.put([data])

    async def receive(self) -> Sequence[bytes | Unreadable]:
        return await self._inbox.receive()

    # --- what goes out ---------------------------------------------------------------------------------------------

    async def send(self, messages: Sequence[bytes]) -> None:
        for data in messages:
            if self.over:
                raise AgentGone("the client has ended the connection")
            message = jsonrpc.decode(data)
            if isinstance(message, jsonrpc.Response):
                await self._answer(message, data)
            else:
                self._tell(message, data)
        await self._until(lambda: self._size <= BUFFER_BYTES)

    async def _answer(self, response: jsonrpc.Response, data: bytes) -> None:
        if self._first is not None and self._first[0] == response.id:
            future, self._first = self._first[1], None
            if not future.done():
                future.set_result(data)
            return
        asked = self._asked.pop(response.id, None)
        session = asked.session if asked is not None else None
        if asked is not None and session is not None and asked.method == LOAD and asked.named:
            # The client follows the proposal to the letter, and that has the answer on the connection's stream: what
            # was replayed goes first then. The Python SDK sends no header here, and its server answers behind that.
            lane = session.lane
            await self._until(lambda: lane.empty or not lane.read)
            self._put(data)
        elif session is not None:
            session.given(LaneMessage.last(self._put(data, session), data))
        else:
            self._put(data)
        if asked is not None:
            self.sessions.answered(asked.method, session, response)

    def _tell(self, message: jsonrpc.Message, data: bytes) -> None:
        name: str | None = None
        if isinstance(message, jsonrpc.Request | jsonrpc.Notification):
            name = forwarded.session_of(message.params)
            if message.method == CANCEL_REQUEST:
                given_up = self._ours.pop(forwarded.request_of(message.params), None)
                name = given_up.session if given_up is not None else None
        lane = self._put(data, self.sessions.told(name) if name is not None else None)
        if isinstance(message, jsonrpc.Request):
            told = LaneMessage.last(lane, data) if message.method in REPEATABLE else None
            self._ours[message.id] = ServerRequest(name, told)

    def _put(self, data: bytes, session: StreamedSession | None = None) -> server.MessageStream:
        """Say it on the session's own stream, if it has one, else on the connection's."""
        lane = session.lane if session is not None and session.own else self.main
        self._size += len(data)
        lane.put(data)
        if session is not None:
            self.sessions.expect(session)
        return lane

    def dropped(self, session: StreamedSession | None) -> None:
        """The response that carried a session's stream, or the connection's, has ended, by nobody's wish here.

        What was written to it last may be lost, and no event has an id. Questions that are open are told again: an
        agent whose question is lost waits for ever. So is the last answer: clients take no second answer to a request,
        and a request without any waits for ever.
        """
        lane = session.lane if session is not None else self.main
        if self.over or lane.ending:
            return
        for id, (name, told) in list(self._ours.items()):
            if told is not None and told.lane is lane and told.written:
                self._ours[id] = ServerRequest(name, LaneMessage.last(self._put(told.data, session), told.data))
        if session is not None:
            if (answer := session.retold()) is not None:
                self._put(answer, session)
            self.sessions.expect(session)

    async def _until(self, done: Callable[[], bool]) -> None:
        """Wait for the client to read. Raises AgentGone if it does not."""
        while not done() and not self.over:
            self._moved.clear()
            try:
                async with asyncio.timeout(STALL_SECONDS):
                    await self._moved.wait()
            except TimeoutError:
                log.warning("%s has read nothing for %g s, with %d bytes waiting", self.name, STALL_SECONDS, self._size)
                self.hang_up()
                raise AgentGone("the client does not read") from None

    def _on_moved(self, size: int) -> None:
        self._size -= size
        self._moved.set()

    # --- the end ---------------------------------------------------------------------------------------------------

    def hang_up(self) -> None:
        """The client has ended it, or is not there any more: nothing more comes, and nothing goes out."""
        self._end()
        for lane in (self.main, *self.sessions.lanes()):
            lane.abort()

    async def aclose(self) -> None:
        """See `Pipe.aclose`. What waits on open streams is written before they end."""
        self._end()
        for lane in (self.main, *self.sessions.lanes()):
            lane.end()

    def _end(self) -> None:
        self.over = True
        self._inbox.end()
        self._moved.set()

    def served(self, why: InterlinguaError | None) -> None:
        """Called when it is no longer served. `why` is told to a client that waits for the answer to `initialize`."""
        self._why = why or AgentGone("the connection ended before it was initialized")
        if self._first is not None and not self._first[1].done():
            self._first[1].set_exception(self._why)
