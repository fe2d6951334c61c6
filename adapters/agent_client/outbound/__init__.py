"""Calls agents of the Agent Client Protocol: the gateway is their client.

connections.py     connections, one for each set of client capabilities    connection.py  one of them
prompts.py         a prompt, and what an agent of version 2 works on
sessions.py        the agent's sessions of threads                         session.py     one of them
prompted_run.py    a run, from opening the session to its prompt's end     turn.py        the agent's updates in it
agent_requests.py  what the agent asks for                                 workspace.py   files and commands
governed.py        the rules of a governed route, tool_calls.py: for what the agent says of its tool calls
"""

from __future__ import annotations

import asyncio
import contextlib

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client import forwarded
from adapters.agent_client.codec import agents
from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.outbound.agent_requests import AgentRequests
from adapters.agent_client.outbound.connection import AgentConnection
from adapters.agent_client.outbound.connections import AgentConnections
from adapters.agent_client.outbound.prompted_run import PromptedRun
from adapters.agent_client.outbound.session import AgentSession
from adapters.agent_client.outbound.sessions import AgentSessions, losing
from adapters.agent_client.outbound.tool_calls import tool_call_of
from adapters.agent_client.tunnel import mcp_messages as tunnel
from adapters.agent_client.tunnel.tunnels import Tunnels
from adapters.agent_client.wire import CANCEL_REQUEST, ENDING, FORK, INITIALIZE, TAKING_UP
from gateway.contract import RunContext, ThreadContext
from gateway.core import errors
from gateway.core.errors import InterlinguaError, Unsupported
from gateway.core.types import Agent
from gateway.wire import jsonrpc

QUICK = ("logout", "session/")
"""Beginnings of the names of requests that wait for no person and no model."""
OWN = (INITIALIZE, "session/prompt", CANCEL_REQUEST)
"""Methods that the gateway speaks for itself on both sides."""


class AgentClientOutbound:
    """See `gateway.contract.Outbound`, `Preparing`, `Relay` and `Supervised`, and
    `gateway.contract.governing.RuleKeeping`.
    """

    prefaces = True
    tool_call_of = staticmethod(tool_call_of)

    def __init__(self, target: AgentClientTarget) -> None:
        self._target = target
        self._tunnels = Tunnels(target)
        self._connections = AgentConnections(target, AgentRequests(target, self._tunnels))
        self._sessions = AgentSessions(target, self._connections, self._tunnels)
        self._runs: dict[str, PromptedRun] = {}
        self._prepared: dict[str, PromptedRun] = {}

    async def describe(self) -> Agent:
        """The agent's answer of `initialize`; starts it if it does not run."""
        async with self._connections.any().use() as connection:
            assert connection.agent is not None
            bridged = {"bridged": True} if self._tunnels.possible(connection) else {}
            return replace(connection.agent, extra={**connection.agent.extra, agents.BRIDGED: bridged})

    def prepare(self, context: RunContext) -> None:
        """The run's session is made while the run is being stored."""
        run = PromptedRun(self._target, self._sessions, context)
        with contextlib.suppress(InterlinguaError):  # the run meets it again, and fails of it
            if run.begin():
                self._prepared[context.run.id] = run

    def unprepare(self, context: RunContext) -> None:
        if (run := self._prepared.pop(context.run.id, None)) is not None:
            run.drop()

    async def run(self, context: RunContext) -> None:
        run = self._prepared.pop(context.run.id, None) or PromptedRun(self._target, self._sessions, context)
        self._runs[context.run.id] = run
        try:
            await run.run()
        finally:
            del self._runs[context.run.id]

    async def attach(self, context: RunContext) -> None:
        """No version has a way back to a prompt under way, and none is sent twice (README). Raises OutcomeUnknown."""
        raise errors.OutcomeUnknown

    async def cancel(self, context: RunContext) -> None:
        """`session/cancel`; the run goes on until the agent has answered the prompt."""
        run = self._runs.get(context.run.id)
        if run is not None:
            await run.cancel()

    async def relay(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        """See `Relay.relay`. The session of an answer is the gateway's where it knows it."""
        if method == INITIALIZE and context.thread is None:  # of the connection for what this client can do
            async with self._connections.shared(context).use() as connection:
                return jsonrpc.raw(connection.initialized)
        if method in OWN:
            raise Unsupported(f"{method} is not passed on")
        if method in tunnel.METHODS:
            return await self._tunnels.relay(method, params)
        if context.thread is None:
            return await self._beside(context, method, params)
        thread = context.thread.id
        if method == "session/new":
            result = await self._sessions.new(context, params)
        elif method in TAKING_UP:
            result = await self._sessions.load(context, method, params)
        elif method in ENDING:
            result = await self._sessions.end_for(context, method, params)
        else:
            return await self._of_session(context, method, params)
        return forwarded.renamed(result, lambda _: thread)

    async def forward(self, context: ThreadContext, method: str, params: Raw) -> None:
        """See `Relay.forward`. What concerns a session that the agent has not open any more is dropped."""
        if method in OWN:
            raise Unsupported(f"{method} is not passed on")
        if method == tunnel.DISCONNECT and context.thread is not None:
            self._tunnels.forget(self._sessions.of(context))
            return
        if method in tunnel.METHODS:
            await self._tunnels.forward(method, params)
            return
        if context.thread is None:
            async with self._connections.shared(context).use() as connection:
                connection.tell(method, params)
                await connection.drain()
            return
        session = self._sessions.of(context)
        if session.open and session.connection is not None:
            session.connection.tell(method, forwarded.with_session(params, session.name))
            await session.connection.drain()

    @property
    def reachable(self) -> bool | None:
        return self._connections.reachable

    async def aclose(self) -> None:
        await asyncio.gather(self._connections.aclose(), self._sessions.aclose())
        await self._tunnels.aclose()

    # --- beside prompts ------------------------------------------------------------------------------------------

    async def _beside(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        """A request that belongs to no session, on the connection of the client that makes it."""
        async with self._connections.shared(context).use() as connection:
            result = await connection.ask(method, params, timeout=self._patience(method), context=context)
            return forwarded.renamed(result, connection.public)

    async def _of_session(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        session = self._sessions.of(context)
        async with session.lease:
            connection = await self._sessions.open(session, context)
            sent = forwarded.with_session(params, session.name)
            given = self._sessions.given if method == FORK else self._tunnels.declared
            sent, lost = await given(session, connection, sent)
            result = await connection.ask(method, sent, timeout=self._patience(method), context=context)
            _learn(session, method, params, result)
            result = losing(result, lost)
        return forwarded.renamed(result, lambda name: self._public(session, connection, name))

    def _public(self, session: AgentSession, connection: AgentConnection, name: str) -> str:
        if name == session.name and session.thread is not None:
            return session.thread
        public = connection.public(name)
        if public == name:
            connection.made(name)
        return public

    def _patience(self, method: str) -> float | None:
        """How long a request may take: a person logs in, and an extension works, for as long as its client waits."""
        return self._target.request_timeout if method.startswith(QUICK) else None


def _learn(session: AgentSession, method: str, params: Raw, result: Raw) -> None:
    if method == "session/set_mode":
        mode = jsonrpc.members(params).get("modeId")
        session.set_mode(jsonrpc.unpack(mode) if mode else None)
    if method in ("session/set_mode", "session/set_config_option"):
        session.settle(jsonrpc.unpack(result))
