"""All agents there are, of every protocol: those that registered from memory, all others as the gateway describes them.

There may be ten thousand: they are gone through in pieces, and others get their turn in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Final

import msgspec

from adapters.agent_context.codec.agents import native, record_of
from adapters.agent_context.codec.ranking import Candidate
from adapters.agent_context.directory.evaluation import shown as rated
from adapters.agent_context.directory.members import Members
from adapters.agent_context.directory.registered import RegisteredAgent, digest, shown, time_of
from adapters.agent_context.directory.replication import Replication
from adapters.agent_context.wire import ACTIVE, OFFLINE, PROTOCOL, REVOKED
from gateway.contract import LIST_SECONDS
from gateway.core.errors import NotFound
from gateway.core.types import Agent, JsonObject

PIECE: Final = 100


class Listed(msgspec.Struct, frozen=True):
    """One agent. `member` is given for one that registered."""

    name: str
    agent: Agent
    status: str
    member: RegisteredAgent | None = None

    @property
    def title(self) -> str:
        """Its name as the directory shows it."""
        return str((native(self.agent) or {}).get("name", self.name))

    @property
    def owner(self) -> str:
        """Digest of its owner, by which votes on it are known; "" for one of the route table."""
        return digest(self.member.owner) if self.member is not None else ""


class Listing:
    """One per directory. `hidden`: agents that nobody is shown."""

    def __init__(self, members: Members, shared: Replication, hidden: Collection[str] = ()) -> None:
        self._members = members
        self._gateway = members.gateway
        self._shared = shared
        self._hidden = hidden
        self._records: dict[str, tuple[Agent, JsonObject]] = {}

    def names(self) -> list[str]:
        names = [name for name in self._gateway.agents.names(PROTOCOL) if name not in self._hidden]
        return [*names, *(member.id for member in self._barred(names))]

    async def each(self) -> AsyncIterator[list[Listed]]:
        """All agents in pieces: first those that clients may call, then those that are revoked."""
        names = [name for name in self._gateway.agents.names(PROTOCOL) if name not in self._hidden]
        for start in range(0, len(names), PIECE):
            yield await self._piece(names[start : start + PIECE])
            await asyncio.sleep(0)
        yield [Listed(member.id, member.agent, REVOKED, member) for member in self._barred(names)]
        if len(self._records) > 2 * len(names):
            self._records = {name: self._records[name] for name in names if name in self._records}

    async def one(self, name: str) -> Listed:
        if name not in self._hidden:
            if (found := await self._listed(name)) is not None:
                return found
            member = self._members.by_id.get(name)
            if member is not None and name in self._members.revoked:
                return Listed(name, member.agent, REVOKED, member)
        raise NotFound(f"no agent {name}")

    def entry(self, one: Listed) -> JsonObject:
        joined = one.member.joined if one.member is not None else None
        base = self._record(one) if joined is None else shown(joined.record, joined.seen)
        out = {**base, "status": one.status}
        claim = base.get("evaluation")
        if (evaluation := rated(claim, self._shared.of(one.name, one.owner))) is not None:
            out["evaluation"] = evaluation
        return out

    def last_active(self, member: RegisteredAgent) -> str:
        return time_of(self._members.now() - max(0.0, self._members.liveness.now() - member.heard))

    def _barred(self, names: Collection[str]) -> list[RegisteredAgent]:
        by_id, revoked = self._members.by_id, self._members.revoked
        return [by_id[name] for name in sorted(revoked.keys() - set(names)) if name in by_id]

    async def _piece(self, names: list[str]) -> list[Listed]:
        strangers = [name for name in names if self._member(name) is None]
        described = await asyncio.gather(*map(self._stranger, strangers)) if strangers else []
        others = {one.name: one for one in described if one is not None}
        found = (self._registered(name) or others.get(name) for name in names)
        return [one for one in found if one is not None]

    async def _listed(self, name: str) -> Listed | None:
        return self._registered(name) or await self._stranger(name)

    def _registered(self, name: str) -> Listed | None:
        member = self._member(name)
        return None if member is None else Listed(name, member.agent, self._members.status(member), member)

    def _member(self, name: str) -> RegisteredAgent | None:
        """A name of the route table is that one's, whoever has registered under it before."""
        member = self._members.by_id.get(name)
        return None if member is None or self._gateway.agents.routed(name) or name in self._members.revoked else member

    async def _stranger(self, name: str) -> Listed | None:
        try:
            agent = await self._gateway.agents.get(name, PROTOCOL, within=LIST_SECONDS)
        except NotFound:  # it has gone meanwhile
            return None
        if agent.name != name:  # by the UUID that it has elsewhere: rights are for ids
            return None
        if agent.name in self._members.revoked:
            return Listed(agent.name, agent, REVOKED)
        return Listed(agent.name, agent, ACTIVE if self._gateway.agents.reachable(agent.name, PROTOCOL) else OFFLINE)

    def _record(self, one: Listed) -> JsonObject:
        known = self._records.get(one.name)
        if known is None or known[0] is not one.agent:
            known = self._records[one.name] = (one.agent, record_of(one.agent))
        return known[1]


# --- agentSearch -----------------------------------------------------------------------------------------------------


def item(name: str, one: Candidate) -> JsonObject:
    """An agent as appendix B has it in a search result; what is not known is left out."""
    found: JsonObject = {"id": one.id, "name": name}
    if one.rated is not None:
        found["qualityScore"] = one.rated
    if one.standing.cost is not None:
        found["costPerToken"] = one.standing.cost
    return found


def ordered(items: Iterable[JsonObject]) -> list[JsonObject]:
    """The best first; of the same score the cheapest, then by id. What is not known comes after what is."""
    most = float("inf")
    return sorted(items, key=lambda one: (-one.get("qualityScore", -1.0), one.get("costPerToken", most), one["id"]))
