"""The sessions of Streamable HTTP: clients that shook hands, and have no connection but their POSTs and GETs."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any

from msgspec import UNSET, Raw

from gateway.access import EXPIRED, Visit
from gateway.core.errors import AgentBroken, AgentGone, Refused
from gateway.mcp import wire
from gateway.mcp.server.call import cancelled
from gateway.mcp.server.http.streams import PostAnswer, ResponseOut, StandaloneStream, numbered
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.session import HandshakeSession
from gateway.transport.rpc.outgoing import OutgoingRequests
from gateway.transport.streamable_http.server import MessageStream, SessionTable
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id, Malformed, Notification, Request, Response, RpcError

log = logging.getLogger(__name__)

LATE_SECONDS = 60.0
"""How long an answer that was written is kept for a client that lost its connection just then."""
MOST_LATE = 100
LATE_BYTES = 4 * 1024 * 1024
UNREAD_BYTES = 16 * 1024 * 1024
"""Streams that have ended and are kept all the same: how many of one session, how much of those that were written, and
how much of those whose client has not come back for the rest. The newest of either is kept however long it is."""


Message = Request | Notification | Response | Malformed


class StreamableSession(HandshakeSession):
    """See `gateway.mcp.server.contract.McpSession`. `ended` is told when it is over."""

    def __init__(
        self, hub: Hub, agent: str | None, ended: Callable[[StreamableSession], None], visit: Visit | None
    ) -> None:
        super().__init__(hub, agent)
        self.visit = visit
        self._ended = ended
        self._why = cancelled()
        self._names = itertools.count(1)
        self._streams: dict[str, MessageStream] = {}
        self._late: dict[str, asyncio.TimerHandle | None] = {}
        self._live: dict[Id, asyncio.Task[None]] = {}
        standalone = self._streams["0"] = MessageStream("0", numbered("0"), keep=hub.options.replay, news=True)
        self._asking = OutgoingRequests(f"session {self.id[:8]}", standalone)
        self.standalone = StandaloneStream(standalone, self._asking, hub.options.max_calls)

    @property
    def alive(self) -> bool:
        return not self.over

    @property
    def busy(self) -> bool:
        """Whether a request of the client's is under way."""
        return bool(self._live)

    @property
    def tasks(self) -> Collection[asyncio.Task[None]]:
        """The requests under way."""
        return self._live.values()

    def tell(self, method: str, params: Any = None) -> None:
        self.standalone.stream.put(jsonrpc.notification(method, params))

    @property
    def can_ask(self) -> bool:
        return self.standalone.open

    @property
    def connected(self) -> bool:
        return self.standalone.read

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        return await self.standalone.ask(method, params, timeout)

    def authorize(self, bearer: str | None) -> None:
        """The token of the latest POST."""
        self.bearer = bearer

    # --- what comes in ---------------------------------------------------------------------------------------------

    def take(self, messages: list[Message]) -> PostAnswer | None:
        """Handle what was POSTed; what answers it, None where nothing does. `bearer` is that of the POST by now."""
        self.standalone.heard()
        wanted = sum(map(_to_answer, messages))
        answer = PostAnswer(str(next(self._names)), self.hub.options.replay, wanted) if wanted else None
        for message in messages:
            if isinstance(message, Request) and answer is not None:
                self._accept(message, answer)
            elif isinstance(message, Notification):
                self._notified(message)
            elif isinstance(message, Response):
                self._asking.settle(message)
            elif isinstance(message, Malformed) and not message.answer and answer is not None:
                id = None if message.id is UNSET else message.id
                answer.reply(jsonrpc.error(id, ErrorObject(message.code, message.reason)))
            elif isinstance(message, Malformed) and message.id is not UNSET:
                why = AgentBroken(f"the client's answer cannot be read: {message.reason}")
                self._asking.fail(message.id, why)
        return answer

    def _accept(self, request: Request, answer: PostAnswer) -> None:
        wrong = None
        if request.id is None:
            wrong = "the id is null"
        elif request.id in self._live:
            wrong = f"request {request.id!r} is under way already"
        elif len(self._live) >= self.hub.options.max_calls:
            wrong = "too many requests under way; try again later"
        if wrong is not None:
            answer.reply(jsonrpc.error(request.id, self.untaken(request, Refused(wrong)).error))
            return
        name = f"session {self.id[:8]} {request.method}"
        task = asyncio.create_task(self._serve(request, answer, self.bearer), name=name)
        self._live[request.id] = task
        task.add_done_callback(lambda _: self._served(request.id, task, answer))

    async def _serve(self, request: Request, answer: PostAnswer, bearer: str | None) -> None:
        call = self.call(ResponseOut(answer, self._asking), request, wire.meta_of(request.params), bearer)
        try:
            answer.reply(jsonrpc.result(request.id, await self.serve(call)))
        except RpcError as error:
            answer.reply(jsonrpc.error(request.id, error.error))

    def _served(self, id: Id, task: asyncio.Task[None], answer: PostAnswer) -> None:
        """Answer a request however it ended, even if it was cancelled before it began."""
        if self._live.get(id) is task:
            del self._live[id]
        if task.cancelled():
            answer.reply(jsonrpc.error(id, self._why.error))
        elif (error := task.exception()) is not None:
            log.error("an answer cannot be said", exc_info=error)
            answer.reply(jsonrpc.error(id, ErrorObject(jsonrpc.INTERNAL_ERROR, "internal error")))
        stream = answer.made
        if stream is not None and stream.opened and not stream.read:
            self.keep(stream)

    def _notified(self, message: Notification) -> None:
        if message.method == wire.CANCELLED:
            task = self._live.get(wire.cancelled_in(message.params))
            if task is not None:
                task.cancel()
        else:
            self.heard(message.method, message.params)

    # --- streams ---------------------------------------------------------------------------------------------------

    def carry(self, stream: MessageStream) -> None:
        """A response will carry the stream, and its client can resume it."""
        self._streams[stream.name] = stream

    def find(self, event: str) -> tuple[MessageStream, int] | None:
        """The stream of the event with that id, and its number there; None where there is none (any more)."""
        name, _, number = event.rpartition("-")
        stream = self._streams.get(name)
        if stream is None or not (number.isascii() and number.isdigit() and len(number) < 16):
            return None
        return stream, int(number)

    def keep(self, stream: MessageStream) -> None:
        """Keep the stream of a response that has ended, for a while if all of it was written."""
        if (timer := self._late.pop(stream.name, None)) is not None:
            timer.cancel()
        if self.over or not stream.over:
            return
        loop = asyncio.get_running_loop()
        self._streams[stream.name] = stream  # its time may have been over while it was read
        self._late[stream.name] = loop.call_later(LATE_SECONDS, self._forget, stream.name) if stream.finished else None
        while len(self._late) > MOST_LATE:
            self._forget(next(iter(self._late)))
        self._bound(LATE_BYTES, finished=True)
        self._bound(UNREAD_BYTES, finished=False)

    def _bound(self, most: int, *, finished: bool) -> None:
        """Forget the oldest of those that are kept, until they have no more than so many bytes, or one is left."""
        names = [name for name in self._late if self._streams[name].finished is finished]
        size = sum(self._streams[name].size for name in names)
        for name in names[:-1]:
            if size <= most:
                break
            size -= self._streams[name].size
            self._forget(name)

    def _forget(self, name: str) -> None:
        del self._streams[name]
        if (timer := self._late.pop(name)) is not None:
            timer.cancel()

    # --- the end ---------------------------------------------------------------------------------------------------

    def end(self, why: str = "") -> None:
        """End it, once: its calls are cancelled, and answered so."""
        self.over = True
        if self.visit is not None:
            self.visit.leave()
        if why:
            self._why = RpcError(jsonrpc.INTERNAL_ERROR, why)
        for task in list(self.tasks):
            task.cancel()
        self._asking.end(AgentGone("the client's session has ended"))
        self.standalone.end()
        for name in list(self._late):
            self._forget(name)
        self.hub.leave(self)
        self._ended(self)


def _to_answer(message: Message) -> bool:
    """Whether it is a request, or was meant to be one."""
    return isinstance(message, Request) or (isinstance(message, Malformed) and not message.answer)


class StreamableSessions:
    """The sessions of Streamable HTTP.

    Where as many clients are connected as may be, over whatever transport, the session that has been idle for longest,
    and waits for nothing, makes room.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._table = SessionTable[StreamableSession](hub.options.idle, self._on_idle)
        self._ending = TaskSet()
        self.get = self._table.get
        self.used = self._table.used
        hub.on_stop(self.quiet)
        hub.on_full(self._make_room)

    def open(self, agent: str | None, visit: Visit | None, bearer: str | None) -> StreamableSession:
        """A new session, which counts as idle from now on. Raises Unavailable."""
        session = StreamableSession(self._hub, agent, self._ended, visit)
        session.authorize(bearer)
        whose = self._hub.admit_session(session, self._table.held, self._spare)
        self._hub.connect()
        self._table.add(session, whose)
        if visit is not None:
            visit.enter(lambda: session.end(EXPIRED))
        return session

    def quiet(self) -> None:
        """The gateway stops: end all."""
        for session in self._table.all:
            session.end("the gateway is stopping")

    async def aclose(self) -> None:
        """Wait until nothing is left of those that have ended."""
        await self._ending.settled()

    def _make_room(self) -> None:
        self._end_one(self._table.idle)

    def _spare(self, whose: str) -> bool:
        """End a session of this client that waits for nothing, if it has any."""
        return self._end_one(self._table.idle_of(whose))

    def _end_one(self, sessions: Iterable[StreamableSession]) -> bool:
        idle = next((one for one in sessions if not (one.busy or one.standalone.waiting)), None)
        if idle is not None:
            log.info("session %s, which is idle, makes room for another", idle.id[:8])
            idle.end()
        return idle is not None

    def _ended(self, session: StreamableSession) -> None:
        self._table.remove(session)
        self._hub.disconnect()
        for task in session.tasks:
            self._ending.hold(task)

    def _on_idle(self, session: StreamableSession) -> None:
        log.info("session %s was idle for %g s and is ended", session.id[:8], self._hub.options.idle)
        session.end()
