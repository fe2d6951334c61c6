"""One initialized connection to an agent: hands what the agent says to the sessions that are open there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec import Raw, Struct

from adapters.agent_client import forwarded
from adapters.agent_client.codec import errors
from adapters.agent_client.codec.updates_in import Chunk
from adapters.agent_client.codec.version import V1, ProtocolVersion
from adapters.agent_client.outbound.prompts import Answered, Foreground
from adapters.agent_client.outbound.turn import AgentTurn
from adapters.agent_client.wire import CANCEL_REQUEST, PROTOCOL, CancelRequest, cancel_request, offers
from gateway.contract import ThreadContext
from gateway.core.errors import AgentBroken, AgentGone, InterlinguaError
from gateway.core.types import Agent, JsonObject
from gateway.core.version import version
from gateway.transport.pipe import Pipe, Unreadable
from gateway.transport.rpc import Peer
from gateway.wire import jsonrpc

log = logging.getLogger(__name__)

MAX_EARLY = 1000
"""Updates kept for sessions whose id is not known yet."""
MAX_EARLY_BYTES = 4 * 1024 * 1024
MAX_UNCLAIMED = 1000
REPORTED = 20
"""Unreadable messages that are logged one by one; of more, one in a thousand."""
UPDATE: Final = "session/update"


class _TextChunk(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """The `params` of a `session/update` that is a chunk of text, and not a key more."""

    session_id: str
    update: Chunk


class _Line(Struct, forbid_unknown_fields=True, gc=False):
    jsonrpc: Literal["2.0"]
    method: Literal["session/update"]
    params: _TextChunk


_line: Final = msgspec.json.Decoder(_Line).decode


class ConnectedSession(Protocol):
    """A connection's view of a session that is open there: see `AgentSession`, whose members these are."""

    @property
    def thread(self) -> str | None: ...

    @property
    def context(self) -> ThreadContext | None: ...

    @property
    def options(self) -> list[Any] | None: ...

    @property
    def run(self) -> AgentTurn | None: ...

    @property
    def turn(self) -> AgentTurn | None: ...

    @property
    def work(self) -> Foreground | None: ...

    @property
    def busy(self) -> bool: ...

    async def shown(self) -> None: ...

    def update(self, update: Raw) -> Awaitable[None] | None: ...

    def early(self, update: Raw) -> None: ...

    def missed(self) -> None: ...

    def left_out(self, name: str, update: Raw) -> bool: ...

    def detach(self, connection: AgentConnection) -> None: ...

    async def lost(self, connection: AgentConnection) -> None: ...


class AgentHandler(Protocol):
    """Serves what agents ask and tell beside updates. Methods and params are version 1's."""

    async def answer(self, connection: AgentConnection, method: str, params: Raw) -> Any:
        """A request of the agent's. Raises RpcError and errors of the tree: they are the answer then."""

    async def tell(self, connection: AgentConnection, method: str, params: Raw) -> None:
        """A notification of the agent's. Awaited before its next message."""


class AgentConnection:
    """See `gateway.transport.rpc.Handler`, and `Connection` of the supervisor. Made by `AgentConnections`.

    sessions: what is open on it, by the agent's own ids.
    initialized: the agent's answer to `initialize`, in the shape of version 1; agent: what that makes it. Once `start`
    has returned. version: what the agent speaks, known then too.
    """

    def __init__(
        self, pipe: Pipe, handler: AgentHandler, capabilities: JsonObject, newest: ProtocolVersion = V1
    ) -> None:
        """`newest` is the version that is asked for; the agent may choose an older one."""
        self.capabilities = capabilities
        self.version: ProtocolVersion = V1
        self.initialized: JsonObject = {}
        self.agent: Agent | None = None
        self.sessions: dict[str, ConnectedSession] = {}
        self.closed: asyncio.Future[AgentGone] = asyncio.get_running_loop().create_future()
        self._newest = newest
        self._handler = handler
        self._peer = Peer(pipe, self, errors=errors.answer, answer_garbage=False, first_id=0, batches=True, agent=True)
        self._asking: dict[jsonrpc.Id, ThreadContext] = {}
        self._opening: dict[ConnectedSession, str] = {}
        """Sessions that are being made, with their ids from the agent's answer on."""
        self._early: dict[str, tuple[set[ConnectedSession], list[Raw]]] = {}
        """Updates by the session that they name, and what it can be: one that was being made when the first came."""
        self._early_count = self._early_bytes = 0
        self._unclaimed: dict[str, None] = {}
        self._unreadable = 0
        self._strange: set[str] = set()
        self._watch: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._peer.pipe.name

    @property
    def alive(self) -> bool:
        return self._peer.gone is None

    async def start(self) -> None:
        """Shake hands. Raises the errors of the tree; the caller closes it then."""
        self._peer.start()
        self._watch = asyncio.create_task(self._end(), name=f"{self.name} end")
        info = {"name": "interlingua", "title": "Interlingua", "version": version()}
        answer = jsonrpc.unpack(await self._greet(info))
        self.version = self._newest if _speaks(answer, self._newest) else V1
        self.agent = self.version.read_agent(answer, self.name)
        self.initialized = self.agent.extra[PROTOCOL]

    async def _greet(self, info: JsonObject) -> Raw:
        """The answer of `initialize`. Asks for version 1 where the agent refuses one instead of naming another."""
        try:
            return await self.ask("initialize", self._newest.greeting(self.capabilities, info))
        except jsonrpc.RpcError as error:
            if self._newest is V1:
                raise
            log.info("%s refused version %d: %s", self.name, self._newest.number, error)
            return await self.ask("initialize", V1.greeting(self.capabilities, info))

    async def aclose(self) -> None:
        """See the supervisor's `Connection`."""
        await self._peer.aclose()
        if self._watch is not None:
            await self._watch

    async def _end(self) -> None:
        gone = await self._peer.wait_closed()
        if not self.closed.done():
            self.closed.set_result(gone)
        self._early.clear()
        for session in list(self.sessions.values()):
            await session.lost(self)

    # --- what the agent can do -----------------------------------------------------------------------------------

    def offers(self, *path: str) -> bool:
        """Whether the agent declared that capability; `{}` does, null and false do not."""
        return offers(self.initialized, *path)

    @property
    def can_close(self) -> bool:
        """Whether the agent is there and can be told that a session is over."""
        return self.alive and self.offers("sessionCapabilities", "close")

    # --- to the agent ----------------------------------------------------------------------------------------------

    async def ask(
        self,
        method: str,
        params: Any,
        *,
        timeout: float | None = None,
        context: ThreadContext | None = None,
    ) -> Raw:
        """See `Peer.request`; the agent is told when the caller waits no more. All in the words of version 1.

        `context` is of the client that the agent may ask meanwhile about the request itself.
        """
        sent, said = self.version.to_agent(method, params, self._options)
        taken: jsonrpc.Id = None

        def take(id: jsonrpc.Id) -> None:
            nonlocal taken
            taken = id
            if context is not None:
                self._asking[id] = context

        try:
            alone = method == "initialize"
            result = await self._peer.request(
                sent, said, timeout=timeout, cancel=cancel_request, named=take, alone=alone
            )
            return self.version.agent_answer(method, result)
        finally:
            self._asking.pop(taken, None)

    def send(self, method: str, params: Any, context: ThreadContext, answered: Answered) -> jsonrpc.Id:
        """Send a request in the words of version 1; see `Peer.send_request`. The answer is in the agent's own."""

        def came(answer: Raw | InterlinguaError) -> None:
            self._asking.pop(asked, None)
            answered(answer)

        asked = self._peer.send_request(*self.version.to_agent(method, params, self._options), came)
        self._asking[asked] = context
        return asked

    def withdraw(self, asked: jsonrpc.Id, *, forget: bool = True) -> None:
        """Tell the agent that the answer to a request that was sent is not waited for any more, and `forget` it."""
        self._asking.pop(asked, None)
        if forget:
            self._peer.forget(asked)
        self.tell(*cancel_request(asked))

    def tell(self, method: str, params: Any) -> None:
        """A notification; dropped if the agent has gone."""
        with contextlib.suppress(AgentGone):
            self._peer.notify(*self.version.to_agent(method, params, self._options))

    async def drain(self) -> None:
        """Wait until the agent has read most of what it was sent. Raises AgentGone."""
        await self._peer.drain()

    # --- sessions ----------------------------------------------------------------------------------------------------

    def opens(self, session: ConnectedSession) -> None:
        """A session is being made, until `opened`: updates that name it before its id is known are kept."""
        self._opening[session] = ""

    def named(self, session: ConnectedSession, name: str) -> None:
        """The agent has made it: what it asks from here on may name it, before it is registered."""
        self._opening[session] = name

    def opened(self, session: ConnectedSession) -> None:
        """It is made, or not."""
        del self._opening[session]
        for name, (made, early) in list(self._early.items()) if self._early else ():
            made.discard(session)
            if not made and name not in self._unclaimed:
                self._kept(name)
                log.info("%s: %d updates of a session %s that is not open", self.name, len(early), name)

    def register(self, name: str, session: ConnectedSession) -> None:
        """The session has that id here, and gets what came for it. Raises AgentBroken if another one is busy there."""
        there = self.sessions.get(name)
        if there is not None and there is not session:
            if there.busy:
                raise AgentBroken(f"{self.name} gave a new session the id of one that is busy")
            there.detach(self)
        self._unclaimed.pop(name, None)
        self.sessions[name] = session
        for update in self._kept(name):
            session.early(update)

    def forget(self, name: str, session: ConnectedSession) -> None:
        if self.sessions.get(name) is session:
            del self.sessions[name]

    def made(self, name: str) -> None:
        """The agent has made a session that belongs to no thread yet (`session/fork`)."""
        self._unclaimed[name] = None
        if len(self._unclaimed) > MAX_UNCLAIMED:
            del self._unclaimed[next(iter(self._unclaimed))]

    def claim(self, name: str) -> bool:
        """Whether a session of that id is open at the agent and belongs to no thread yet."""
        return name in self._unclaimed

    def _options(self, name: str) -> list[Any] | None:
        session = self.sessions.get(name)
        return session.options if session is not None else None

    def public(self, name: str) -> str:
        """The gateway's name for one of the agent's sessions."""
        session = self.sessions.get(name)
        return session.thread if session is not None and session.thread is not None else name

    # --- from the agent --------------------------------------------------------------------------------------------

    def request_from(self, params: Raw) -> tuple[ConnectedSession | None, ThreadContext | None]:
        """The session that a message of the agent's names, or whose client made the request that it names."""
        name = forwarded.session_of(params)
        if name is not None:
            session = self.sessions.get(name)
            if session is None:
                made = [each for each, known in self._opening.items() if known == name]
                made = made or [each for each, known in self._opening.items() if not known]
                session = made[0] if len(made) == 1 else None  # one asked before it said which it has made
            return session, session.context if session is not None else None
        asked = jsonrpc.members(params).get("requestId")
        if asked:
            about = jsonrpc.unpack(asked)
            context = self._asking.get(about) if isinstance(about, int | str) else None
            of_it = (session for session in self.sessions.values() if context and session.context is context)
            return next(of_it, None), context
        callers = self.contexts()
        return None, callers[0] if len(callers) == 1 else None

    async def shown(self) -> None:
        """Wait until all runs in its sessions are on the disk: what names no session may be about any of them."""
        for session in (*self.sessions.values(), *self._opening):
            await session.shown()

    def contexts(self) -> list[ThreadContext]:
        """One for each client that is there."""
        found: dict[int, ThreadContext] = {}
        sessions = (session.context for session in self.sessions.values())
        for context in (*self._asking.values(), *sessions):
            caller = context.caller if context is not None else None
            if context is not None and caller is not None:
                found.setdefault(id(caller), context)
        return list(found.values())

    async def request(self, method: str, params: Raw, id: jsonrpc.Id) -> Any:
        return await self._handler.answer(self, *self.version.from_agent(method, params, id))

    def take(self, messages: Sequence[bytes | Unreadable], start: int) -> int:
        """See `Swift.take`: chunks of text."""
        turns: set[AgentTurn] = set()
        at = start
        for at in range(start, len(messages)):
            if (said := _text_chunk(messages[at])) is None or (session := self.sessions.get(said.session_id)) is None:
                break
            turn, work, chunk = session.turn, session.work, said.update
            if turn is None or (work is not None and not work.more(chunk)) or not turn.more(chunk):
                break
            turns.add(turn)
        else:
            at = len(messages)
        for turn in turns:
            turn.told()
        return at

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        if method == UPDATE:
            try:
                name, update = forwarded.update_of(params)
                session = self.sessions.get(name)
                if session is not None:
                    return session.update(update)
                self._keep(name, update)
            except AgentBroken as error:
                self._report(str(error), bytes(params)[:200])
            return None
        if method == CANCEL_REQUEST:
            try:
                self._peer.cancel_incoming(jsonrpc.unpack(params, CancelRequest).request_id)
            except ValueError as error:
                self._report(f"{CANCEL_REQUEST} that names no request: {error}", bytes(params)[:200])
            return None
        return self._handler.tell(self, *self.version.from_agent(method, params))

    def unreadable(self, what: Unreadable | jsonrpc.Malformed) -> None:
        self._report(what.reason, what.start, what.size)
        begun = what.start.startswith(b"{") and b'"jsonrpc"' in what.start
        if isinstance(what, Unreadable) or begun:  # not a line of some log among the messages
            for session in self.sessions.values():
                session.missed()

    def _keep(self, name: str, update: Raw) -> None:
        """Keep an update for a session that may still be opened. One of a subagent never is."""
        left_out = any(session.left_out(name, update) for session in self.sessions.values())
        if left_out or not (self._opening or name in self._unclaimed):
            if name not in self._strange and len(self._strange) < MAX_UNCLAIMED:
                self._strange.add(name)
                log.info("%s: updates of a session %s that is not open are dropped", self.name, name)
            return
        if self._early_count < MAX_EARLY and self._early_bytes + len(update) <= MAX_EARLY_BYTES:
            self._early_count += 1
            self._early_bytes += len(update)
            self._early.setdefault(name, (set(self._opening), []))[1].append(update.copy())

    def _kept(self, name: str) -> list[Raw]:
        """What was kept for a session, and is no longer."""
        _, kept = self._early.pop(name, (None, []))
        self._early_count -= len(kept)
        self._early_bytes -= sum(map(len, kept))
        return kept

    def _report(self, reason: str, start: bytes, size: int | None = None) -> None:
        self._unreadable += 1
        if self._unreadable <= REPORTED or self._unreadable % 1000 == 0:
            of = "" if size is None else f" ({size} bytes)"
            log.warning("%s: output %d that is no message%s: %s: %r", self.name, self._unreadable, of, reason, start)


def _text_chunk(line: bytes | Unreadable) -> _TextChunk | None:
    """The chunk of text that a message is; None for anything else.

    Nearly every message is one. Else a line is read three times: for its envelope, its session, and its update.
    """
    try:
        return _line(line).params  # type: ignore[arg-type]
    except (ValueError, TypeError, RecursionError):
        return None


def _speaks(initialized: Any, version: ProtocolVersion) -> bool:
    said = initialized.get("protocolVersion") if isinstance(initialized, dict) else None
    return said == version.number and not isinstance(said, bool)
