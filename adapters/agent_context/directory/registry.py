"""Registering, beating, leaving."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from adapters.agent_context.codec.agents import agent_of
from adapters.agent_context.directory.members import Members
from adapters.agent_context.directory.records import (
    AGENT,
    MOST_BYTES,
    MOST_LEVELS,
    Joined,
    Member,
    deeper,
    plain,
    shown,
)
from adapters.agent_context.directory.registered import RegisteredAgent
from adapters.agent_context.wire.constants import PROTOCOL, SELF
from gateway.access import ANONYMOUS
from gateway.core.errors import AgentBroken, Conflict, Denied, Invalid, NotFound, TooLarge, Unavailable
from gateway.core.types import Agent, JsonObject
from gateway.mcp.server.contract import McpSession
from gateway.transport.guard import Guard

MOST_AGENTS: Final = 50_000
STATUS_LENGTH: Final = 100
PIECE: Final = 100
"""Agents that are looked at between two turns of others."""
LOOKS: Final = 10
"""So often within an interval it is seen who has fallen silent."""
_HTTP: Final = {"ws": "http", "wss": "https"}


class Registry:
    """One per directory. `changed` is called with the agents that have changed, `probe` to look whether another
    process is alive.
    """

    def __init__(
        self,
        members: Members,
        changed: Callable[[Iterable[str]], None],
        probe: Callable[[str], Awaitable[None]],
    ) -> None:
        self._members = members
        self._changed = changed
        self._probe = probe
        self._swept = -1e9
        options = members.options
        self._reserved = {SELF, options.tasks_of}
        self._guard = Guard([str(network) for network in options.endpoints], what="endpoint")

    async def register(self, record: object, principal: Member, session: McpSession | None) -> None:
        members = self._members
        try:
            sent = plain(record)
        except RecursionError:
            raise Invalid(f"/agent: nested deeper than {MOST_LEVELS} levels", path="/agent") from None
        agent = str(sent.get("id"))
        if agent in members.revoked:
            raise members.denied(agent)
        if agent in self._reserved or members.gateway.agents.routed(agent):
            raise Conflict(f"the agent id {agent} belongs to the gateway")
        made = await self._checked(sent)
        async with members.lock(AGENT + agent):
            known = members.by_id.get(agent)
            if known is not None and known.elsewhere:  # it may have lost its gateway just now
                await self._probe(known.joined.process)
            self._free(agent, principal, session)
            seen = members.now()
            joined = Joined(record=sent, process=members.gateway.process if session is not None else "", seen=seen)
            try:
                await members.keep(joined, principal.name)
            except Conflict:
                raise Conflict(f"the agent id {agent} is taken") from None
            member = members.take(joined, principal.name, made, beat=members.liveness.now())
            if session is None:
                members.unbind(member)
            else:
                members.bind(member, session)
                if not session.alive:
                    members.part(session)
            member.tell(members.status(member))
            if agent in members.revoked:  # meanwhile
                raise members.denied(agent)
        await members.announce()
        self._changed((agent,))

    async def unregister(self, agent: str, principal: Member, session: McpSession | None) -> None:
        members = self._members
        self._mine(agent, principal, session)
        name = AGENT + agent
        async with members.lock(name):
            self._mine(agent, principal, session)
            members.marks.touch(name)
            await members.gateway.records.forget(PROTOCOL, name)
            members.marks.touch(name)
            members.drop(agent)
        await members.announce()
        self._changed((agent,))

    def heartbeat(self, agent: str, status: str, principal: Member, session: McpSession | None) -> None:
        members = self._members
        member = self._mine(agent, principal, session)
        if agent in members.revoked:
            raise members.denied(agent)
        member.say(members.liveness.now())
        if status != member.joined.status:
            members.note(member, replace(member.joined, status=status[:STATUS_LENGTH]))
        self._look(member)

    def heard(self, session: McpSession) -> None:
        """See `Directory.heard`. Called for every message."""
        members = self._members
        connection = members.connections.get(session)
        if connection is None:
            return
        if connection.hear(members.liveness.now()) > members.liveness.allowed:
            for agent in list(connection.agents):
                self._look(members.by_id[agent])

    def left(self, session: McpSession) -> None:
        gone = self._members.part(session)
        for member in gone:
            member.tell(self._members.status(member))
        if gone:
            self._changed([member.id for member in gone])

    async def sweep(self) -> None:
        """Notice silent agents, write down those that were heard, forget the old. Called about once a second."""
        members, liveness = self._members, self._members.liveness
        for connection in list(members.connections.values()):
            session = connection.session
            if not session.alive:
                self.left(session)
            elif connection.look():
                for agent in list(connection.agents):
                    self._look(members.by_id[agent])
        if liveness.now() - self._swept < liveness.heartbeat / LOOKS:
            return
        self._swept = liveness.now()
        changed: list[str] = []
        for number, member in enumerate(list(members.by_id.values())):
            if number % PIECE == PIECE - 1:
                await asyncio.sleep(0)
            if members.by_id.get(member.id) is not member:
                continue
            now = liveness.now()
            if now - member.heard > members.options.forget:
                await self._forget(member)
                changed.append(member.id)
                continue
            if (member.fresh or member.heard_here) and now - member.saved >= liveness.heartbeat:
                members.note(member, member.joined)
            if member.tell(members.status(member)):
                changed.append(member.id)
        if changed:
            self._changed(changed)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _look(self, member: RegisteredAgent) -> None:
        if member.tell(self._members.status(member)):
            self._changed((member.id,))

    async def _forget(self, member: RegisteredAgent) -> None:
        name = AGENT + member.id
        async with self._members.lock(name):
            if self._members.by_id.get(member.id) is member:
                self._members.marks.touch(name)
                await self._members.gateway.records.forget(PROTOCOL, name)
                self._members.drop(member.id)

    def _free(self, agent: str, principal: Member, session: McpSession | None) -> None:
        """Raises Conflict if somebody else is this agent now."""
        members = self._members
        known = members.by_id.get(agent)
        if known is None:
            if len(members.by_id) >= MOST_AGENTS:
                raise Unavailable(f"there are {MOST_AGENTS} agents already")
            return
        if known.owner != principal.name:
            raise Conflict(f"the agent id {agent} is taken")
        same = known.connection is not None and known.connection.session is session
        if not same and members.liveness.holds(known):
            where = "to another gateway" if known.elsewhere else "on another connection"
            raise Conflict(f"agent {agent} is connected {where}")

    def _mine(self, agent: str, principal: Member, session: McpSession | None) -> RegisteredAgent:
        """Raises NotFound, Denied for somebody else's agent."""
        members = self._members
        member = members.by_id.get(agent)
        if member is None:
            raise NotFound(f"no agent {agent} is registered")
        if member.owner != principal.name:
            raise Denied(f"agent {agent} is somebody else's")
        other = member.connection is None or member.connection.session is not session
        if principal.name == ANONYMOUS and other and members.liveness.holds(member):
            raise Denied(f"agent {agent} has a connection of its own")
        return member

    async def _checked(self, record: JsonObject) -> Agent:
        """The agent that it describes. Raises what `Directory.register` does for a record that cannot be kept."""
        if deeper(record, MOST_LEVELS):
            raise Invalid(f"/agent: nested deeper than {MOST_LEVELS} levels", path="/agent")
        size = len(msgspec.json.encode(record))
        if size > MOST_BYTES:
            raise TooLarge(f"/agent: {size} bytes are more than {MOST_BYTES}")
        try:
            agent = agent_of(shown(record))
        except AgentBroken as error:
            raise Invalid(f"/agent: {error}", path="/agent") from error
        endpoint = record.get("endpoint")
        if isinstance(endpoint, dict):
            await self._guard.check(_as_http(str(endpoint.get("url"))))
            try:
                self._members.to_endpoint(endpoint)
            except ValueError as error:
                raise Invalid(
                    "/agent/endpoint: its transport does not go with its URL", path="/agent/endpoint"
                ) from error
        return agent


def _as_http(url: str) -> str:
    """A WebSocket's URL as that of the HTTP request it begins with."""
    scheme, colon, rest = url.partition(":")
    return _HTTP.get(scheme.lower(), scheme) + colon + rest
