"""The directory: which agents there are, where they are, how good they are, what they have done.

here            Directory: registering, beating, leaving; all agents, and those that match a search
members.py      who registered, as this process sees it, and the link to each; access that is revoked
registered.py   one registered agent, its record, its connection, and whether it is there
replication.py  what all replicas tell each other
evaluation.py   how good an agent is: what others say of it, what the gateway measured, and what is unusual
announcing.py   the gateway's agents at other directories
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from adapters.agent_context import wire
from adapters.agent_context.codec.agents import agent_of, native, record_of
from adapters.agent_context.codec.ranking import Candidate, Needs, why_not
from adapters.agent_context.directory import evaluation as evaluations
from adapters.agent_context.directory.evaluation import ConductMonitor, Metrics
from adapters.agent_context.directory.evaluation import shown as rated
from adapters.agent_context.directory.members import Members, Revoking
from adapters.agent_context.directory.registered import (
    AGENT,
    MOST_BYTES,
    MOST_LEVELS,
    Joined,
    Liveness,
    RegisteredAgent,
    Revocation,
    deeper,
    digest,
    plain,
    shown,
    time_of,
)
from adapters.agent_context.directory.replication import Replication
from adapters.agent_context.options import AgentContextServe
from adapters.agent_context.outbound.links import RegisteredLink
from adapters.agent_context.security import ClientPrincipal
from adapters.agent_context.wire import ACTIVE, OFFLINE, PROTOCOL, REVOKED
from gateway.access import ANONYMOUS
from gateway.contract import LIST_SECONDS, Gateway, Hosted
from gateway.core.errors import AgentBroken, Conflict, Denied, Invalid, NotFound, TooLarge, Unavailable
from gateway.core.types import Agent, JsonObject
from gateway.mcp.server.contract import McpSession
from gateway.transport.guard import Guard


class Listed(msgspec.Struct, frozen=True):
    """One agent. `member` is given for one that registered."""

    name: str
    agent: Agent
    status: str
    member: RegisteredAgent | None = None

    @property
    def owner(self) -> str:
        """Digest of its owner, by which votes on it are known; "" for one of the route table."""
        return digest(self.member.owner) if self.member is not None else ""


def item(name: str, one: Candidate) -> JsonObject:
    """An agent as appendix B has it in a search result; what is not known is left out."""
    found: JsonObject = {"id": one.id, "name": name}
    if one.rated is not None:
        found["qualityScore"] = one.rated
    if one.standing.cost is not None:
        found["costPerToken"] = one.standing.cost
    return found


MOST_AGENTS: Final = 50_000
STATUS_LENGTH: Final = 100
PIECE: Final = 100
"""Agents that are looked at between two turns of others."""
_THERE: Final = frozenset({wire.ACTIVE, wire.BUSY})
_UNMEASURED: Final[Mapping[str, int]] = MappingProxyType({})
Told = Callable[[frozenset[str]], None]


class Directory:
    """One per gateway process. What it gives out holds no credentials; all errors are of the tree.

    `revoking`: takes access away, and gives it back. monotonic and now: for tests.
    """

    def __init__(
        self,
        options: AgentContextServe,
        gateway: Gateway,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._gateway = gateway
        self._now = now
        self._told: Told = lambda uris: None
        self._coordinator, self._tasks_of = options.coordinator, options.tasks_of
        self._liveness = Liveness(options.heartbeat, options.missed, monotonic)
        self._members = Members(options, gateway, self._liveness, now, self.heard)
        self.revoking = Revoking(self._members, self._changed)
        self._shared = Replication(self._members, self._changed, self.revoking.stop)
        self._hidden = () if options.coordinator else options.brings
        self._reserved = {wire.SELF, options.tasks_of}
        self._guard = Guard([str(network) for network in options.endpoints], what="endpoint")
        self._metrics = Metrics(gateway, monotonic)
        self.conduct = ConductMonitor(options.conduct, gateway.agents.noticed, self.revoking.suspend)

    # --- life: see `gateway.contract.Hosting` -------------------------------------------------------------------------

    async def open(self) -> None:
        await self._shared.open()

    def hosted(self) -> Mapping[str, Hosted]:
        """The agents that registered, those that are away as well; not those that are revoked."""
        return self._members.hosted()

    async def refresh(self) -> None:
        await self._shared.refresh()
        await self.revoking.sweep()
        await self._sweep()

    async def aclose(self) -> None:
        """All connections are about to end: other processes are told."""
        await self.settled()
        for session in list(self._members.connections):
            self._members.part(session, tell=False)  # that this process has ended says it of all its agents
        await self._shared.aclose()

    async def settled(self) -> None:
        await self.revoking.settled()
        await self._members.settled()

    def on_change(self, told: Told) -> None:
        """The callback for the URIs of changed resources (`agent://directory`, `agent://metrics/...`)."""
        self._told = told

    @property
    def coordinated_at(self) -> str | None:
        """The process that tasks are coordinated by, None for this one: that which has lived longest, so that one
        counts what agents have.
        """
        return self._shared.oldest

    def doubt(self) -> None:
        """Another process may be dead: the next `refresh` looks."""
        self._members.doubt()

    # --- agents that come, beat and leave ----------------------------------------------------------------------------

    async def register(self, record: JsonObject, principal: ClientPrincipal, session: McpSession | None = None) -> None:
        """An agent, as it registers, is there, reached over the session or, where it
        names one, at its endpoint. When this returns, clients of all protocols can call it.

        The same session again: its record is another. The same principal, once the connection that had the id has gone
        or has fallen silent: it takes over. Raises Conflict for an id that somebody else has, that is the route
        table's or the gateway's own; Denied for one that is revoked, and for an endpoint at an internal address that
        the options do not allow; Invalid, TooLarge for a record that cannot be kept; Unavailable when there are too
        many.
        """
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
        await self._check_record(sent)
        async with members.lock(AGENT + agent):
            known = members.by_id.get(agent)
            if known is not None and members.liveness.elsewhere(known):  # it may have lost its gateway just now
                await self._shared.probe(known.joined.process)
            self._free(agent, principal, session)
            seen = members.now()
            joined = Joined(record=sent, process=members.gateway.process if session is not None else "", seen=seen)
            try:
                await members.keep(joined, principal.name)
            except Conflict:
                raise Conflict(f"the agent id {agent} is taken") from None
            member = members.take(joined, principal.name, beat=members.liveness.now())
            if session is None:
                member.unbind()
            else:
                members.bind(member, session)
                if not session.alive:
                    members.part(session)
            member.tell(members.status(member))
            if agent in members.revoked:  # meanwhile
                raise members.denied(agent)
        await members.announce()
        self._changed((agent,))

    async def unregister(self, agent: str, principal: ClientPrincipal, session: McpSession | None = None) -> None:
        """Remove an agent; its runs under way go on. Raises NotFound, Denied for somebody else's.

        Without access control everybody is the same principal: then an agent whose connection is there is its own.
        """
        members = self._members
        self._mine(agent, principal, session)
        name = AGENT + agent
        async with members.lock(name):
            self._mine(agent, principal, session)
            await members.erase(name)
            members.drop(agent)
        await members.announce()
        self._changed((agent,))

    async def heartbeat(
        self, agent: str, status: str, principal: ClientPrincipal, session: McpSession | None = None
    ) -> None:
        """Note an agent's heartbeat. `active`: it takes tasks. `inactive`, `offline`: no runs at all, until it says
        otherwise. Anything else: busy, no tasks. Raises NotFound, and Denied as `unregister`; Denied if it is revoked.
        """
        members = self._members
        member = self._mine(agent, principal, session)
        if agent in members.revoked:
            raise members.denied(agent)
        member.say(members.liveness.now())
        if status != member.joined.status:
            members.note(member, replace(member.joined, status=status[:STATUS_LENGTH]))
        self._look(member)

    def heard(self, session: McpSession) -> None:
        """A client has said anything: that is a beat of all agents that registered on its session."""
        members = self._members
        connection = members.connections.get(session)
        if connection is None:
            return
        if connection.hear(members.liveness.now()) > members.liveness.allowed:
            for agent in list(connection.agents):
                self._look(members.by_id[agent])

    def left(self, session: McpSession) -> None:
        """A session has ended: its agents are offline from now on, but for those with an endpoint; its runs fail."""
        gone = self._members.part(session)
        for member in gone:
            member.tell(self._members.status(member))
        if gone:
            self._changed([member.id for member in gone])

    def link(self, session: McpSession) -> RegisteredLink | None:
        """The way to agents that registered on a session: what its client says of their runs comes on it."""
        connection = self._members.connections.get(session)
        return None if connection is None else connection.link

    def agents_of(self, session: McpSession) -> list[str]:
        """The agents that registered on a connection and speak through it; none that is revoked."""
        connection = self._members.connections.get(session)
        there = connection.agents if connection is not None and session.alive else ()
        return [agent for agent in there if agent not in self._members.revoked]

    def owned(self, agent: str, principal: ClientPrincipal) -> bool:
        """Whether the principal registered it, and may speak as it now.

        Without access control everybody is the same principal: then an agent whose connection is there is its own.
        """
        member = self._members.by_id.get(agent)
        if member is None or member.owner != principal.name or agent in self._members.revoked:
            return False
        return principal.name != ANONYMOUS or not self._liveness.holds(member)

    def admit(self, session: McpSession) -> None:
        """Whether a client's messages are taken. Raises Denied if it registered agents and all of them are revoked."""
        connection = self._members.connections.get(session)
        agents = connection.agents if connection is not None else ()
        if agents and self._members.revoked.keys() >= agents:
            raise self._members.denied(*sorted(agents))

    # --- access that is revoked --------------------------------------------------------------------------------------

    def check(self, agent: str) -> None:
        """Raises Denied for a revoked agent, Unavailable for a registered one that cannot be called now.

        Nothing is known here of agents that did not register, nor of unknown ones.
        """
        known = agent in self._members.revoked or (
            agent in self._members.by_id and not self._gateway.agents.routed(agent)
        )
        if known and (error := self._members.refusal(agent)) is not None:
            raise error

    # --- who is there ------------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """All agents that `entries` has, in its order."""
        names = [name for name in self._gateway.agents.names(PROTOCOL) if name not in self._hidden]
        return [*names, *(member.id for member in self._barred(names))]

    async def entries(self) -> list[JsonObject]:
        """The directory: every agent of every protocol that clients of this one may call, and those that are revoked.

        As they registered, or as the gateway describes them, with `status` (active, busy, inactive, offline, revoked)
        and the `evaluation` that others gave them. No `auth`, and of an endpoint no credentials.
        """
        return [self._entry(one) async for piece in self._each() for one in piece]

    async def entry(self, agent: str) -> JsonObject:
        return self._entry(await self._one(agent))

    async def search(
        self,
        capabilities: Sequence[str] | None = None,
        min_score: float | None = None,
        max_cost: float | None = None,
    ) -> list[JsonObject]:
        """agentSearch: `{id, name, qualityScore?, costPerToken?}` of the agents that match, the best first; of the same
        score the cheapest, then by id. What is not known comes after what is.

        All capabilities must be among its tools, models and specializations, in whatever case. Only agents that are
        active or busy. An unknown score matches no `min_score`, an unknown cost no `max_cost`.
        """
        needs = Needs(capabilities or (), min_score, max_cost)
        found = [
            item(str((native(one.agent) or {}).get("name", one.name)), candidate)
            async for piece in self._each()
            for one in piece
            if one.status in _THERE and why_not(candidate := self._candidate(one), needs) is None
        ]
        most = float("inf")
        return sorted(found, key=lambda one: (-one.get("qualityScore", -1.0), one.get("costPerToken", most), one["id"]))

    async def candidates(self) -> list[Candidate]:
        """All agents as they are weighed against each other for a task, in the order of `entries`.

        Without the one that stands for the coordination itself.
        """
        loads, speeds = await asyncio.gather(self._metrics.loads(), self._metrics.speeds())
        every = (one async for piece in self._each() for one in piece if one.name != self._coordinator)
        return [self._candidate(one, loads, speeds) async for one in every]

    async def candidate(self, agent: str) -> Candidate:
        return self._candidate(await self._one(agent))

    # --- how good they are -------------------------------------------------------------------------------------------

    async def evaluate(
        self,
        agent: str,
        score: float,
        principal: ClientPrincipal,
        task: str | None = None,
        review: str | None = None,
        *,
        session: McpSession | None = None,
    ) -> JsonObject:
        """A vote from 0 to 10 on an agent; the agent's `evaluation` with it.

        One vote per principal and task, and one without a task: a new one replaces it. Without access control the
        principal is whoever registered on the session, else everybody together. Reviews are shown to all, cut to 500
        characters. From the third vote on, votes replace what the agent says of itself. Raises NotFound, and Denied
        for its own.
        """
        one = await self._one(agent)
        agent = one.name
        connection = self._members.connections.get(session) if session is not None else None
        own = connection.agents if connection is not None else set()
        name = principal.name
        if agent in own or (one.member is not None and one.member.owner == name != ANONYMOUS):
            raise Denied("an agent is not evaluated by itself, nor by who registered it")
        if name == ANONYMOUS and own:
            name = f"{name}/{min(own)}"
        vote = evaluations.vote(name, task, score, self._now(), review)
        await self._shared.vote(agent, one.owner, vote)
        self._changed((agent,))
        evaluation: JsonObject = self._entry(one).get("evaluation", {})
        return evaluation

    async def metrics(self, agent: str) -> JsonObject:
        """`agent://metrics/{agentId}`: what the gateway measured of its runs, and how it was evaluated.

        Numbers and times only: nothing that anybody said, no reviews, no names but the agent's. Raises NotFound.
        """
        one = await self._one(agent)
        measured = await self._metrics.of(one.name)
        out: JsonObject = {
            "agentId": one.name, "status": one.status, **measured, "conduct": self.conduct.of(one.name)
        }  # fmt: skip
        if one.member is not None:
            out["lastActive"] = max(out.get("lastActive", ""), self._last_active(one.member))
        votes = self._shared.of(one.name, one.owner)
        if votes.number:
            out["evaluation"] = {"qualityScore": votes.mean, "evaluationCount": votes.number}
        return out

    async def status(self, shown: Callable[[str], bool], barred: Callable[[str], bool]) -> JsonObject:
        """`agent://status`, less what is not the directory's: agents that are `shown` by status, tasks by status, and
        the revocations of those for whom `barred` holds.
        """
        statuses = Counter([one.status async for piece in self._each() for one in piece if shown(one.name)])
        counts = {each: statuses[each] for each in (wire.ACTIVE, wire.BUSY, wire.INACTIVE, wire.OFFLINE, wire.REVOKED)}
        revoked = [_told(agent, how) for agent, how in sorted(self._members.revoked.items()) if barred(agent)]
        tasks = (await self._metrics.of(self._tasks_of))["runs"]
        return {"agents": {"total": statuses.total(), **counts}, "tasks": tasks, "revoked": revoked}

    async def _sweep(self) -> None:
        """Notice silent agents, write down those that were heard, forget the old. Called about once a second."""
        members, liveness = self._members, self._members.liveness
        for session in [each for each in members.connections if not each.alive]:
            self.left(session)
        changed: list[str] = []
        for number, member in enumerate(list(members.by_id.values())):
            if number % PIECE == PIECE - 1:
                await asyncio.sleep(0)
            if members.by_id.get(member.id) is not member:
                continue
            now = liveness.now()
            if now - member.heard > members.options.forget:
                await self._forget(AGENT + member.id, member)
                changed.append(member.id)
                continue
            joined = member.joined
            process = joined.process
            if member.connection is not None:
                process = members.gateway.process if member.connection.session.can_ask else ""
            if process != joined.process or (member.heard > member.saved and now - member.saved >= liveness.heartbeat):
                members.note(member, replace(joined, process=process))
            if member.tell(members.status(member)):
                changed.append(member.id)
        if changed:
            self._changed(changed)

    def _look(self, member: RegisteredAgent) -> None:
        if member.tell(self._members.status(member)):
            self._changed((member.id,))

    async def _forget(self, name: str, member: RegisteredAgent) -> None:
        async with self._members.lock(name):
            if self._members.by_id.get(member.id) is member:
                await self._members.erase(name)
                self._members.drop(member.id)

    def _free(self, agent: str, principal: ClientPrincipal, session: McpSession | None) -> None:
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
            where = "to another gateway" if members.liveness.elsewhere(known) else "on another connection"
            raise Conflict(f"agent {agent} is connected {where}")

    def _mine(self, agent: str, principal: ClientPrincipal, session: McpSession | None) -> RegisteredAgent:
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

    async def _check_record(self, record: JsonObject) -> None:
        """Raises what `Directory.register` does for a record that cannot be kept."""
        if deeper(record, MOST_LEVELS):
            raise Invalid(f"/agent: nested deeper than {MOST_LEVELS} levels", path="/agent")
        size = len(msgspec.json.encode(record))
        if size > MOST_BYTES:
            raise TooLarge(f"/agent: {size} bytes are more than {MOST_BYTES}")
        try:
            agent_of(shown(record))
        except AgentBroken as error:
            raise Invalid(f"/agent: {error}", path="/agent") from error
        endpoint = record.get("endpoint")
        if isinstance(endpoint, dict):
            url = str(endpoint.get("url"))
            await self._guard.check("http" + url.removeprefix("ws") if url.startswith("ws") else url)
            try:
                self._members.to_endpoint(endpoint)
            except ValueError as error:
                said = "/agent/endpoint: its transport does not go with its URL"
                raise Invalid(said, path="/agent/endpoint") from error

    async def _each(self) -> AsyncIterator[list[Listed]]:
        """All agents in pieces: first those that clients may call, then those that are revoked."""
        names = [name for name in self._gateway.agents.names(PROTOCOL) if name not in self._hidden]
        for start in range(0, len(names), PIECE):
            yield await self._piece(names[start : start + PIECE])
            await asyncio.sleep(0)
        yield [Listed(member.id, member.agent, REVOKED, member) for member in self._barred(names)]

    async def _one(self, name: str) -> Listed:
        if name not in self._hidden:
            if (found := self._registered(name) or await self._stranger(name)) is not None:
                return found
            member = self._members.by_id.get(name)
            if member is not None and name in self._members.revoked:
                return Listed(name, member.agent, REVOKED, member)
        raise NotFound(f"no agent {name}")

    def _entry(self, one: Listed) -> JsonObject:
        joined = one.member.joined if one.member is not None else None
        base = record_of(one.agent) if joined is None else shown(joined.record, joined.seen)
        out = {**base, "status": one.status}
        claim = base.get("evaluation")
        if (evaluation := rated(claim, self._shared.of(one.name, one.owner))) is not None:
            out["evaluation"] = evaluation
        return out

    def _last_active(self, member: RegisteredAgent) -> str:
        return time_of(self._members.now() - max(0.0, self._members.liveness.now() - member.heard))

    def _barred(self, names: Collection[str]) -> list[RegisteredAgent]:
        by_id, revoked = self._members.by_id, self._members.revoked
        return [by_id[name] for name in sorted(revoked.keys() - set(names)) if name in by_id]

    async def _piece(self, names: list[str]) -> list[Listed]:
        registered = [self._registered(name) for name in names]
        strangers = [name for name, one in zip(names, registered, strict=True) if one is None]
        described = iter(await asyncio.gather(*map(self._stranger, strangers)))
        found = (one or next(described) for one in registered)
        return [one for one in found if one is not None]

    def _registered(self, name: str) -> Listed | None:
        """A name of the route table is that one's, whoever has registered under it before."""
        member = self._members.by_id.get(name)
        if member is None or self._gateway.agents.routed(name) or name in self._members.revoked:
            return None
        return Listed(name, member.agent, self._liveness.status(member), member)

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

    def _candidate(
        self, one: Listed, loads: Mapping[str, int] = _UNMEASURED, speeds: Mapping[str, float] = _UNMEASURED
    ) -> Candidate:
        """An agent's own word of its speed counts until it was measured; the route table's always."""
        registered = one.member is not None
        measured = speeds.get(one.name) if registered or one.agent.standing.speed is None else None
        votes = self._shared.of(one.name, one.owner)
        claimed = one.agent.standing.quality is not None
        why = self._members.refusal(one.name) if registered or one.name in self._members.revoked else None
        return Candidate(
            id=one.name,
            labels=one.agent.labels,
            standing=one.agent.standing,
            load=loads.get(one.name, 0),
            quality=evaluations.measured(votes, claimed=claimed),
            speed=measured,
            status=one.status,
            why_not=str(why) if why is not None else None,
        )

    def _changed(self, agents: Iterable[str]) -> None:
        self._told(frozenset((wire.DIRECTORY, *(wire.METRICS_PREFIX + agent for agent in agents))))


def _told(agent: str, how: Revocation) -> JsonObject:
    told = {"agentId": agent, "since": time_of(how.at)}
    if how.reason:
        told["reason"] = how.reason
    if how.until is not None:
        told["until"] = time_of(how.until)
    return told
