"""One client: what it asks is served, whatever carries its messages; and its agents may ask it (`Caller`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec import agents, errors
from adapters.agent_client.inbound import choices, governed
from adapters.agent_client.inbound.clients import Clients
from adapters.agent_client.inbound.dialects import Dialect
from adapters.agent_client.inbound.dialects.negotiation import negotiated, spoken
from adapters.agent_client.inbound.people import LOCAL
from adapters.agent_client.inbound.session import Session
from adapters.agent_client.inbound.sessions import Sessions
from adapters.agent_client.inbound.visitor import METHOD, Visitor
from adapters.agent_client.tunnel import mcp_messages as tunnel
from adapters.agent_client.tunnel.doors import Doors
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.core.errors import AgentGone, Denied, InterlinguaError, Invalid, NotFound, Unavailable, Unsupported
from gateway.transport.pipe import Pipe, Unreadable
from gateway.transport.rpc import Peer
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id, Malformed, RpcError, check, read

log = logging.getLogger(__name__)

CANCEL = "session/cancel"
CANCEL_REQUEST = "$/cancel_request"
FORK = "session/fork"
FORWARD_SECONDS = 2.0
"""A notification that an agent does not take within this time is dropped: what came after it waits so long."""


class Connection:
    """`serve` it until its client has gone. See `gateway.transport.rpc.Handler` and `gateway.contract.Caller`.

    agent: the only agent it may talk to; None if its sessions choose theirs.
    visitor: who the client is.
    sessions: those it has open, by id.
    """

    protocol = PROTOCOL

    def __init__(
        self, clients: Clients, pipe: Pipe, agent: str | None, visitor: Visitor | None = None, *, linger: float = 0.0
    ) -> None:
        """`visitor` is left out for a client that nobody asks who it is.

        `linger`: seconds that a client which has said its last gets to be answered what it asked before.
        """
        self.clients = clients
        self.visitor = visitor or Visitor(LOCAL)
        self.gateway = clients.gateway
        self.agent = agent
        self.capabilities: JsonObject = {}
        self.dialect: Dialect = spoken(1, self)
        self.sessions = Sessions(self)
        self._peer = Peer(pipe, self, errors=_said, linger=linger)
        self._ready: asyncio.Future[None] | None = None
        self._prompts: dict[Id, _Waiting] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._methods: dict[str, Callable[[Raw], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "logout": self._logout,
            "session/new": self.sessions.new,
            "session/load": self.sessions.load,
            "session/resume": self.sessions.resume,
            "session/list": self.sessions.list,
            "session/close": self.sessions.close,
            "session/delete": self.sessions.delete,
            tunnel.MESSAGE: self._serve,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }

    async def serve(self) -> None:
        """Until the client has gone, or the caller is cancelled. Its runs go on, and its questions stay open."""
        self.visitor.enter(self._expel)
        try:
            gone = await self._peer.run()
            log.debug("%s: %s", self._peer.pipe.name, gone)
        finally:
            self.visitor.leave()
            for task in self._tasks:
                task.cancel()
            self.clients.switchboard.left(self)
            await self.sessions.leave()

    def _expel(self) -> None:
        log.info("%s: the connection is ended: %s", self._peer.pipe.name, self.visitor.ended)
        self.keep(self._peer.aclose())

    # --- to the client ----------------------------------------------------------------------------------------

    def say(self, messages: Sequence[bytes]) -> None:
        """Send encoded messages. Dropped if the client has gone."""
        try:
            self._peer.send(*messages)
        except AgentGone:
            return

    @property
    def flowing(self) -> bool:
        """Whether the client reads as fast as it is told, and is there: then `drained` need not be called."""
        return self._peer.flowing

    async def drained(self) -> None:
        """Wait while the client reads slowly. Raises AgentGone."""
        await self._peer.drain()

    async def ask(self, method: str, params: Raw) -> Raw:
        """See `Caller.ask`."""
        if method in tunnel.METHODS:
            return await self.clients.switchboard.ask(self, method, params)
        return await self.asking(method, params)

    async def asking(self, method: str, params: Raw) -> Raw:
        """The same for what is the client's own in any case."""
        return await self.dialect.ask(method, params, self.put)

    async def put(self, method: str, params: Raw) -> Raw:
        """The same, in the client's own words."""
        try:
            return await self._peer.request(method, params, cancel=_no_longer_wanted)
        except AgentGone as error:
            raise Unavailable("the client has gone", detail=str(error)) from error

    def tell(self, method: str, params: Raw) -> None:
        """See `Caller.tell`."""
        if method in tunnel.METHODS:
            self.clients.switchboard.tell(method, params)
        else:
            self.telling(method, params)

    @property
    def doors(self) -> Doors:
        """See `tunnel.doors.Housed`."""
        return self.clients.doors

    @property
    def tools(self) -> tuple[str, ...] | None:
        """See `tunnel.rules.Scoped`."""
        return self.visitor.tools

    def telling(self, method: str, params: Raw) -> None:
        """As `asking`."""
        with contextlib.suppress(AgentGone):
            self._peer.notify(method, params)

    def linger_for(self, work: asyncio.Future[Any]) -> None:
        """A client that has said its last is told of this to its end, as of what it has asked."""
        self._peer.linger_for(work)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the requests, until the connection ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def cancel_run(self, run_id: str) -> None:
        """Cancel it for the client, who is not told if that fails."""
        try:
            await self.clients.whole(self.gateway.cancel(run_id, reason="cancelled by the client"))
        except InterlinguaError as error:
            log.warning("%s: run %s could not be cancelled: %s", self._peer.pipe.name, run_id, error)

    # --- from the client --------------------------------------------------------------------------------------

    async def request(self, method: str, params: Raw, id: Id) -> Any:
        """See `Handler.request`. A prompt is known, and can be cancelled, before this waits for anything."""
        with self.clients.requests(method, params, id):
            return await self._request(method, params, id)

    async def _request(self, method: str, params: Raw, id: Id) -> Any:
        check(params)
        if method != "initialize":
            if self._ready is None:
                raise RpcError(jsonrpc.INVALID_REQUEST, "initialize first", {"method": method})
            if not self._ready.done():
                await asyncio.wait([self._ready])
            method, params = self.dialect.request(method, params)
            self.visitor.check(method, self.agent)
        if method == "session/prompt":
            return await self._prompt(params, id)
        serve = self._methods.get(method)
        answer = await (serve(params) if serve is not None else self._other(method, params))
        return self.dialect.result(method, params, answer)

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        """See `Handler.notification`."""
        if self._ready is None:
            return None
        try:
            self.visitor.check("", self.agent)  # no notification is open to anybody
            if method == tunnel.MESSAGE:  # of an MCP server, which may cut its text anywhere
                return self._served(params)
            check(params)
            if method == CANCEL:
                return self._cancel(read(params, wire.OfSession).session_id)
            if method == CANCEL_REQUEST:
                return self._cancel_request(read(params, wire.CancelRequest).request_id)
            return self._forward(method, params)
        except Invalid as error:
            log.info("%s: %s is not understood: %s", self._peer.pipe.name, method, error)
        except (Denied, NotFound) as error:
            log.debug("%s: %s is not taken: %s", self._peer.pipe.name, method, error)
        return None

    def unreadable(self, what: Unreadable | Malformed) -> None:
        """See `Handler.unreadable`."""
        start = b"" if self.visitor.required else what.start  # it may hold a token
        log.info("%s: unreadable (%s, %d bytes): %r", self._peer.pipe.name, what.reason, what.size, start)

    def _cancel_request(self, id: Id) -> Awaitable[None] | None:
        prompt = self._prompts.get(id)
        if prompt is not None:
            return self._cancel(prompt.session_id)
        self._peer.cancel_incoming(id)
        return None

    async def _cancel(self, session_id: str) -> None:
        """What came before it is cancelled, and nothing that comes after: that waits meanwhile, for the store alone,
        never for the agent of a session that is not open.
        """
        for prompt in self._prompts.values():
            if prompt.session_id == session_id:
                prompt.cancelled = True
        try:
            session = self.sessions.here(session_id)
            if session is not None and session.opened:
                session.cancel()
            else:
                await self.sessions.cancel(session_id)
        except InterlinguaError as error:
            log.debug("%s: session %s was not cancelled: %s", self._peer.pipe.name, session_id, error)

    # --- the connection itself --------------------------------------------------------------------------------

    async def _initialize(self, params: Raw) -> JsonObject:
        asked = read(params, wire.Initialize)
        dialect = self._agreed(asked.protocol_version)
        before, ready = self._ready, asyncio.get_running_loop().create_future()
        self._ready = ready
        try:
            agent = None if self.agent is None else await self.gateway.agent(self.agent, PROTOCOL)
            self.capabilities = dialect.capabilities(asked, params)
            names = self.names() if self.agent is None else [self.agent]
            governors = [governed.of(self.gateway, name) for name in names]
            said = governed.initialize(agents.initialize_result(agent), governors, one=agent is not None)
            self._peer.batches = dialect.version > 1
            return dialect.initialized(agent, self.visitor.announced(said))
        except BaseException:
            self._ready = before
            raise
        finally:
            ready.set_result(None)

    def _agreed(self, version: int) -> Dialect:
        """The dialect of a client that asks for this version; what was agreed on before stays."""
        if self._ready is None:
            self.dialect = spoken(negotiated(version, v2=self.clients.options.v2), self)
        elif version < 2 <= self.dialect.version:
            raise RpcError(jsonrpc.INVALID_REQUEST, f"this connection speaks version {self.dialect.version} already")
        return self.dialect

    def names(self) -> Sequence[str]:
        """The agents that this client may talk to."""
        return self.visitor.among([self.agent] if self.agent is not None else self.gateway.names(PROTOCOL))

    async def _authenticate(self, params: Raw) -> Raw | JsonObject:
        asked = read(params, wire.Authenticate)
        method = asked.method_id
        if method == METHOD and self.visitor.required:
            token = asked.meta.get("token") if isinstance(asked.meta, dict) else None
            if not isinstance(token, str):
                raise Invalid("_meta/token: the token is missing", path="/_meta/token")
            self.visitor.prove(token)
            return {}
        self.visitor.check("", self.agent)
        for name in self.names():
            native = agents.native(await self.gateway.agent(name, PROTOCOL))
            if native is not None and (self.agent is not None or method in _auth_methods(native)):
                return await self.gateway.relay(name, PROTOCOL, "authenticate", params, caller=self)
        raise Invalid(f"methodId: there is no way {method!r} to authenticate, and no need", path="/methodId")

    async def _logout(self, params: Raw) -> Raw | JsonObject:
        if not self.visitor.proven:
            return await self.beside("logout", params)
        self.visitor.forget()  # first: nothing is opened for them any more while their sessions are closed
        await self.sessions.leave()
        return {}

    async def beside(self, method: str, params: Raw, session: Session | None = None) -> Raw:
        """Hand a request to the agent, in a session or without. What it cannot be given is an unknown method."""
        try:
            if session is not None:
                return await session.relay(method, params)
            if self.agent is not None:
                return await self.gateway.relay(self.agent, PROTOCOL, method, params, caller=self)
        except Unsupported as error:
            log.debug("%s: %s", method, error)
        raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"unknown method {method}", {"method": method})

    async def _other(self, method: str, params: Raw) -> Any:
        """An extension, or a method of a protocol yet to come: the agent may know it."""
        session = await self.sessions.named(params)
        if method.startswith("session/"):
            name = self.agent if session is None else session.agent
            params = await governed.folders(governed.of(self.gateway, name), params)
        answer = await self.beside(method, params, session)
        if method == FORK:
            made = read(answer, wire.SessionResult).session_id
            if made and self.agent is not None:
                await self.sessions.adopt(made, read(params, wire.NewSession), params)
        return answer

    async def _forward(self, method: str, params: Raw) -> None:
        """A notification that is the agent's to understand. Nobody waits for it: what fails is logged."""
        try:
            async with asyncio.timeout(FORWARD_SECONDS):
                session = await self.sessions.named(params)
                name = self.agent if session is None else session.agent
                thread = None if session is None else session.id
                if name is not None:
                    await self.gateway.forward(name, PROTOCOL, method, params, thread=thread)
        except (InterlinguaError, TimeoutError) as error:
            log.debug("%s: %s was not passed on: %s", self._peer.pipe.name, method, error)

    async def _serve(self, params: Raw) -> Raw:
        """What one of the client's own MCP servers asks of its MCP client (`mcp/message`)."""
        return await self.clients.switchboard.request(self, params)

    async def _served(self, params: Raw) -> None:
        """The same for what it tells: as `_forward`."""
        try:
            async with asyncio.timeout(FORWARD_SECONDS):
                await self.clients.switchboard.notification(self, params)
        except (InterlinguaError, TimeoutError) as error:
            log.debug("%s: %s was not passed on: %s", self._peer.pipe.name, tunnel.MESSAGE, error)

    # --- sessions ---------------------------------------------------------------------------------------------

    async def _set_mode(self, params: Raw) -> Any:
        session = await self.sessions.get(read(params, wire.OfSession).session_id, own=True)
        async with self.clients.setting(session.id):
            return await choices.set_mode(session, params)

    async def _set_option(self, params: Raw) -> Any:
        session = await self.sessions.get(read(params, wire.OfSession).session_id, own=True)
        async with self.clients.setting(session.id):
            return await choices.set_option(session, params)

    async def _prompt(self, params: Raw, id: Id) -> JsonObject:
        asked = read(params, wire.Prompt)
        mine = self._prompts[id] = _Waiting(asked.session_id)
        try:
            session = await self.sessions.get(asked.session_id, own=True)
            return await session.prompt(asked, params, cancelled=mine.cancelled)
        finally:
            self._prompts.pop(id, None)


@dataclass
class _Waiting:
    """A prompt that is not answered. `cancelled` counts until its session, being open, has it."""

    session_id: str
    cancelled: bool = False


def _auth_methods(native: JsonObject) -> list[Any]:
    methods = native.get("authMethods")
    return [each.get("id") for each in methods if isinstance(each, dict)] if isinstance(methods, list) else []


def _no_longer_wanted(id: Id) -> tuple[str, JsonObject]:
    return CANCEL_REQUEST, {"requestId": id}


def _said(error: Exception) -> ErrorObject:
    return (errors.to_rpc(error) if isinstance(error, InterlinguaError) else errors.internal()).error
