"""Agents that register, tell that they are there, and leave; and access that is revoked (sections 3.1, 3.4, 7.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw

from adapters.agent_context.codec.errors import note
from adapters.agent_context.inbound.background import Aside
from adapters.agent_context.inbound.environment import Environment, correlation_of
from adapters.agent_context.inbound.results import registered
from adapters.agent_context.wire.constants import ERROR, RESTORED, REVOKED, UNREGISTERED
from adapters.agent_context.wire.messages import Heartbeat, Register, Restore, Revoke, Unregister, read
from adapters.agent_context.wire.reading import refused
from gateway.core.errors import InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp import versions
from gateway.mcp.server.contract import McpCall, McpSession
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import internal

Handler = Callable[[McpCall], Awaitable[Any]]


class RegistrationRequests:
    """One per gateway process."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    async def register(self, call: McpCall) -> JsonObject:
        """`agent/register`, answered as in appendix B."""
        record = read(call.params, Register).agent
        if record.endpoint is None and versions.modern(call.client.version):
            expected = "an endpoint: an agent that registers without a session is called there"
            raise refused("/agent/endpoint", "is missing", expected, "nothing")
        env = self._env
        principal = env.people.registers(call, record, jsonrpc.unpack(call.params)["agent"])
        session = None if versions.modern(call.client.version) else call.session
        await env.runs.whole(env.directory.register(record, principal, session))
        env.people.speaks_for(call, record, principal)
        return registered()

    async def unregister(self, call: McpCall) -> JsonObject:
        """`agent/unregister`."""
        asked = read(call.params, Unregister)
        principal = self._env.people.may(call, "register", asked.agent_id)
        await self._env.runs.whole(self._env.directory.unregister(asked.agent_id, principal, call.session))
        self._env.people.unregistered(call.session, asked.agent_id)
        return {"status": UNREGISTERED}

    async def heartbeat(self, call: McpCall) -> JsonObject:
        """`agent/heartbeat`; a notification as a rule."""
        asked = read(call.params, Heartbeat)
        principal = self._env.people.may(call, "register", asked.agent_id)
        await self._env.directory.heartbeat(asked.agent_id, asked.status, principal, call.session)
        return {}

    async def revoke(self, call: McpCall) -> JsonObject:
        """`agent/revoke`: nothing is sent to the agent from now on, and nothing taken of it."""
        asked = read(call.params, Revoke)
        known = await self._env.revoke(call, asked.agent_id, asked.reason)
        return {"status": REVOKED, "known": known}

    async def restore(self, call: McpCall) -> JsonObject:
        """`agent/restore`."""
        await self._env.restore(call, read(call.params, Restore).agent_id)
        return {"status": RESTORED}

    def told(self, method: str, handler: Handler) -> Callable[[McpSession, Raw], None]:
        """The same as a notification: only what goes wrong is told."""

        def tell(session: McpSession, params: Raw) -> None:
            aside = Aside(session, method, params)
            self._env.background.do(session, self._done(aside, handler), method)

        return tell

    async def _done(self, aside: Aside, handler: Handler) -> None:
        try:
            await handler(aside)
        except InterlinguaError as error:
            self._env.tell(aside, error)
        except Exception:
            aside.notify(ERROR, note(internal(), correlation_of(aside.meta)))
            raise
