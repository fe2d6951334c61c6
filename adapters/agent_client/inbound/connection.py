"""Serves the requests of one connection, whatever transport carries them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec import agents, errors
from adapters.agent_client.codec.v2.version import V2
from adapters.agent_client.codec.version import V1, ProtocolVersion
from adapters.agent_client.forwarded import NOTHING
from adapters.agent_client.governed import folders
from adapters.agent_client.inbound import governed, set_option
from adapters.agent_client.inbound.client import EditorClient, EditorClients
from adapters.agent_client.inbound.context import OpenedBy
from adapters.agent_client.inbound.sessions import EditorSessions
from adapters.agent_client.inbound.visitor import METHOD, Visitor
from adapters.agent_client.tunnel import mcp_messages as tunnel
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.core.errors import Denied, InterlinguaError, Invalid, NotFound
from gateway.core.types import Agent
from gateway.transport.pipe import Pipe, Unreadable
from gateway.transport.rpc import Peer
from gateway.wire import jsonrpc

log = logging.getLogger(__name__)

CANCEL = "session/cancel"
FORK = "session/fork"
FORWARD_SECONDS = 2.0
"""A notification that an agent does not take within this time is dropped: what came after it waits so long."""
ANSWER_SECONDS = 10.0
"""A client's `initialize` waits so long for its agent, then is answered without; `session/new` tells what hangs."""


class EditorConnection:
    """`serve` it until its client has gone. See `gateway.transport.rpc.Handler`.

    client: who is at the other end.
    sessions: those it has open, by id.
    """

    def __init__(
        self,
        clients: EditorClients,
        pipe: Pipe,
        agent: str | None,
        visitor: Visitor,
        *,
        linger: float = 0.0,
        counted: bool = False,
    ) -> None:
        """`linger`: seconds that a client which has said its last gets to be answered what it asked before.
        `counted`: its requests count for the limits, since no HTTP request carries each.
        """
        self._peer = Peer(pipe, self, errors=errors.answer, linger=linger)
        self._clients = clients
        self._gateway = clients.gateway
        self._visitor = visitor
        self.client = EditorClient(self._peer, clients, agent, self._visitor)
        self.sessions = EditorSessions(self.client)
        self._counted = counted
        self._ready: asyncio.Future[None] | None = None
        self._prompts: dict[jsonrpc.Id, str] = {}
        """The sessions of prompts that are not answered."""
        self._given_up: dict[jsonrpc.Id, None] = {}
        """Those that were cancelled; that counts until their session, being open, knows."""

    async def serve(self) -> None:
        """Until the client has gone, or the caller is cancelled. Its runs go on, and its questions stay open."""
        self._visitor.enter(self._expel)
        try:
            gone = await self._peer.run()
            log.debug("%s: %s", self._peer.pipe.name, gone)
        finally:
            self._visitor.leave()
            self.client.gone()
            await self.sessions.leave()

    @property
    def busy(self) -> bool:
        """Whether a request, a question or a run that the client is told of is under way."""
        return self._peer.busy or self.sessions.following

    def _expel(self) -> None:
        log.info("%s: the connection is ended: %s", self._peer.pipe.name, self._visitor.ended)
        self.client.keep(self._peer.aclose())

    # --- from the client --------------------------------------------------------------------------------------

    async def request(self, method: str, params: Raw, id: jsonrpc.Id) -> Any:
        """A prompt is known, and can be cancelled, before this waits for anything."""
        with self._clients.requests(method, params, id):
            if self._counted:
                self._gateway.limits.request(PROTOCOL, self._visitor.name)
            said, given = jsonrpc.check(params), params
            if method != "initialize":
                if self._ready is None:
                    raise jsonrpc.RpcError(jsonrpc.INVALID_REQUEST, "initialize first", {"method": method})
                if not self._ready.done():
                    await asyncio.wait([self._ready])
                method, params = self.client.version.from_client(method, params)
                self._visitor.check(method, self.client.agent)
            if method == "session/prompt":
                return await self._prompt(said if params is given else jsonrpc.unpack(params), id)
            serve = _METHODS.get(method)
            answer = await (serve(self, params) if serve is not None else self._other(method, params))
            return self.client.version.client_answer(method, params, answer, self.sessions.noted)

    def refused(self, request: jsonrpc.Request, error: jsonrpc.ErrorObject) -> None:
        """See `gateway.transport.rpc.RequestWitness`."""
        with contextlib.suppress(jsonrpc.RpcError), self._clients.requests(request.method, request.params, request.id):
            raise jsonrpc.RpcError(error.code, error.message)

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        if self._ready is None:
            return None
        try:
            self._visitor.check("", self.client.agent)  # no notification is open to anybody
            if method == tunnel.MESSAGE:  # of an MCP server, which may cut its text anywhere
                return self._forward(method, params)
            jsonrpc.check(params)
            if method == CANCEL:
                return self._cancel(jsonrpc.read(params, wire.OfSession).session_id)
            if method == wire.CANCEL_REQUEST:
                return self._cancel_request(jsonrpc.read(params, wire.CancelRequest).request_id)
            return self._forward(method, params)
        except Invalid as error:
            log.info("%s: %s is not understood: %s", self._peer.pipe.name, method, error)
        except (Denied, NotFound) as error:
            log.debug("%s: %s is not taken: %s", self._peer.pipe.name, method, error)
        return None

    def unreadable(self, what: Unreadable | jsonrpc.Malformed) -> None:
        start = b"" if self._visitor.required else what.start  # it may hold a token
        log.info("%s: unreadable (%s, %d bytes): %r", self._peer.pipe.name, what.reason, what.size, start)

    def _cancel_request(self, id: jsonrpc.Id) -> Awaitable[None] | None:
        if (session_id := self._prompts.get(id)) is not None:
            return self._cancel(session_id)
        self._peer.cancel_incoming(id)
        return None

    async def _cancel(self, session_id: str) -> None:
        """Cancel what came before, and nothing that comes after. Later messages wait meanwhile, for the store alone,
        never for the agent of a session that is not open.
        """
        self._given_up.update((id, None) for id, its in self._prompts.items() if its == session_id)
        try:
            session = self.sessions.here(session_id)
            if session is not None and session.context.opened:
                session.cancel()
            else:
                await self.sessions.cancel(session_id)
        except InterlinguaError as error:
            log.debug("%s: session %s was not cancelled: %s", self._peer.pipe.name, session_id, error)

    # --- the connection itself --------------------------------------------------------------------------------

    async def _initialize(self, params: Raw) -> JsonObject:
        asked = jsonrpc.read(params, wire.Initialize)
        version = self._agreed(asked.protocol_version)
        before, ready = self._ready, asyncio.get_running_loop().create_future()
        self._ready = ready
        try:
            self.client.agreed(version, version.capabilities(asked))
            agent = None if self.client.agent is None else await self._answering(self.client.agent)
            names = self.client.names() if self.client.agent is None else [self.client.agent]
            governors = [governed.of(self._gateway, name) for name in names]
            said = governed.initialize(agents.initialize_result(agent), governors, one=agent is not None)
            self._peer.take_batches(version.number > 1)
            return version.initialized(agent, self._visitor.announced(said))
        except BaseException:
            self._ready = before
            raise
        finally:
            ready.set_result(None)

    async def _answering(self, name: str) -> Agent:
        """The agent as it answers this client: what it offers, ways to log in among it, may go by what a client can do.

        To a stranger, and where the agent is not to be had in ANSWER_SECONDS for all that is asked of it, it is as it
        was described, or by its route alone: no process is started for one whom nobody knows.
        """
        within = ANSWER_SECONDS if governed.of(self._gateway, name) is None else None  # a manifest is held against it
        until = None if within is None else asyncio.get_running_loop().time() + within
        agent = await self._gateway.agents.get(name, PROTOCOL, within=within)
        if agents.native(agent) is None or self._visitor.stranger:
            return agent
        try:
            relay = self._gateway.backchannel.relay
            async with asyncio.timeout_at(until):
                answer = await relay(agent.name, PROTOCOL, "initialize", NOTHING, caller=self.client)
        except TimeoutError:
            log.info("%s has not answered initialize within %g s: told is what is known", name, ANSWER_SECONDS)
            return agent
        except InterlinguaError as error:
            log.debug("%s: %s did not answer its initialize: %r", self._peer.pipe.name, agent.name, error)
            return agent
        return agents.answering(agent, jsonrpc.unpack(answer))

    def _agreed(self, asked: int) -> ProtocolVersion:
        if self._ready is None:
            return V2 if asked >= V2.number and self._clients.options.v2 else V1
        if asked < V2.number <= self.client.version.number:
            spoken = self.client.version.number
            raise jsonrpc.RpcError(jsonrpc.INVALID_REQUEST, f"this connection speaks version {spoken} already")
        return self.client.version

    async def _authenticate(self, params: Raw) -> Raw | JsonObject:
        asked = jsonrpc.read(params, wire.Authenticate)
        method = asked.method_id
        if method == METHOD and self._visitor.required:
            token = asked.meta.get("token") if isinstance(asked.meta, dict) else None
            if not isinstance(token, str):
                raise Invalid("_meta/token: the token is missing", path="/_meta/token")
            await self._clients.people.awaited(token)
            self._visitor.prove(token)
            return {}
        self._visitor.check("", self.client.agent)
        for name in self.client.names():
            native = agents.native(await self._gateway.agents.get(name, PROTOCOL))
            if native is not None and (self.client.agent is not None or method in wire.auth_methods(native)):
                return await self._gateway.backchannel.relay(name, PROTOCOL, "authenticate", params, caller=self.client)
        raise Invalid(f"methodId: there is no way {method!r} to authenticate, and no need", path="/methodId")

    async def _logout(self, params: Raw) -> Raw | JsonObject:
        if not self._visitor.proven:
            return await self.client.beside("logout", params)
        self._visitor.forget()  # first: nothing is opened for them any more while their sessions are closed
        await self.sessions.leave()
        return {}

    async def _other(self, method: str, params: Raw) -> Any:
        """An extension, or a method of a protocol yet to come: the agent may know it."""
        session = await self.sessions.named(params)
        if method.startswith("session/"):
            name = self.client.agent if session is None else session.context.agent
            params = await folders(governed.of(self._gateway, name), params)
        answer = await self.client.beside(method, params, None if session is None else session.context.relay)
        if method == FORK:
            made = jsonrpc.read(answer, wire.SessionResult).session_id
            if made and self.client.agent is not None:
                await self.sessions.adopt(made, jsonrpc.read(params, wire.NewSession), params)
        return answer

    async def _forward(self, method: str, params: Raw) -> None:
        """A notification that is the agent's to understand, or the MCP client's of a server of this client's. Nobody
        waits for it: what fails is logged.
        """
        try:
            async with asyncio.timeout(FORWARD_SECONDS):
                if method == tunnel.MESSAGE:
                    return await self._clients.switchboard.notification(self.client, params)
                session = await self.sessions.named(params)
                name = self.client.agent if session is None else session.context.agent
                thread = None if session is None else session.id
                if name is not None:
                    await self._gateway.backchannel.forward(name, PROTOCOL, method, params, thread=thread)
        except (InterlinguaError, TimeoutError) as error:
            log.debug("%s: %s was not passed on: %s", self._peer.pipe.name, method, error)

    # --- sessions ---------------------------------------------------------------------------------------------

    async def _set(self, change: Callable[..., Awaitable[Any]], params: Raw) -> Any:
        """Set a mode or an option, one at a time in each session: the next one, whichever connection sets it, adds to
        what it is then.
        """
        session = await self.sessions.get(jsonrpc.read(params, wire.OfSession).session_id, own=True)
        async with self._clients.alone(session.id, None):
            return await change(session.context, session.updates, params)

    async def _prompt(self, params: Any, id: jsonrpc.Id) -> JsonObject:
        asked = jsonrpc.converted(params, wire.Prompt)
        self._prompts[id] = asked.session_id
        try:
            session = await self.sessions.get(asked.session_id, own=True)
            begin = functools.partial(session.take, asked, params)
            return await session.updates.prompt(asked, begin, cancelled=id in self._given_up)
        finally:
            self._prompts.pop(id, None)
            self._given_up.pop(id, None)


_METHODS: Final[Mapping[str, Callable[[EditorConnection, Raw], Awaitable[Any]]]] = {
    "initialize": EditorConnection._initialize,
    "authenticate": EditorConnection._authenticate,
    "logout": EditorConnection._logout,
    "session/new": lambda to, params: to.sessions.new(params),
    "session/load": lambda to, params: to.sessions.again("session/load", OpenedBy.LOAD, params),
    "session/resume": lambda to, params: to.sessions.again("session/resume", OpenedBy.RESUME, params),
    "session/list": lambda to, params: to.sessions.list(params),
    "session/close": lambda to, params: to.sessions.end("close", params),
    "session/delete": lambda to, params: to.sessions.end("delete", params),
    tunnel.MESSAGE: lambda to, params: to._clients.switchboard.request(to.client, params),
    "session/set_mode": lambda to, params: to._set(set_option.set_mode, params),
    "session/set_config_option": lambda to, params: to._set(set_option.set_option, params),
}
"""One for all connections: of each it would be 1.6 KB."""
