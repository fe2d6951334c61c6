"""The agents that registered, as this process sees them, and what is written down of them for the others.

Whatever is changed here is marked, so that what was read before is not taken for news (`Marks`). Writing of what was
only heard (a heartbeat, a connection that ended) happens in the background, an agent at most once per interval.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from adapters.agent_context.codec.agents import agent_of
from adapters.agent_context.directory.evaluation import ACTIVE_RUNS
from adapters.agent_context.directory.registered import (
    AGENT,
    EVERYBODY,
    GONE,
    Joined,
    Liveness,
    RegisteredAgent,
    RegisteredConnection,
    Revocation,
    shown,
    time_of,
)
from adapters.agent_context.options import AgentContextServe
from adapters.agent_context.outbound import AgentContextTurn
from adapters.agent_context.outbound.links import ContextLink, RegisteredLink, ServerLink
from adapters.agent_context.wire import INACTIVE, OFFLINE, PROTOCOL, REVOKED
from gateway.contract import Gateway, Hosted, paged
from gateway.core.errors import Conflict, Denied, InterlinguaError, Unavailable
from gateway.core.types import Agent, JsonObject, RunQuery
from gateway.mcp.client.called_run import CalledRuns
from gateway.mcp.server.contract import McpSession
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)

AT_ONCE: Final = 64
"""Records that are written together."""
CALM: Final = 4.0
"""The engine is told of new agents at most a fifth of the time: it looks at all of them."""


class Marks:
    """Which records this process changed, and when: counted, not timed."""

    def __init__(self) -> None:
        self.count = 0
        self._at: dict[str, int] = {}

    def touch(self, name: str) -> None:
        self.count += 1
        self._at[name] = self.count

    @contextmanager
    def changing(self, name: str) -> Iterator[None]:
        """While a record is written or forgotten: what is read meanwhile may be either."""
        self.touch(name)
        try:
            yield
        finally:
            self.touch(name)

    def newer(self, name: str, mark: int) -> bool:
        """Whether it changed after `count` was `mark`."""
        return self._at.get(name, 0) > mark

    def seen(self, mark: int) -> None:
        """All that changed before is known to have been read."""
        self._at = {name: at for name, at in self._at.items() if at > mark}


class Members:
    """One per directory."""

    def __init__(
        self,
        options: AgentContextServe,
        gateway: Gateway,
        liveness: Liveness,
        now: Callable[[], float],
        heard: Callable[[McpSession], None],
    ) -> None:
        """`heard` is told the session of an agent that has answered."""
        self.options = options
        self.gateway = gateway
        self.liveness = liveness
        self.now = now
        self.marks = Marks()
        self.by_id: dict[str, RegisteredAgent] = {}
        self.connections: dict[McpSession, RegisteredConnection] = {}
        """Until their end, also where no agent is left on them: runs of one that unregistered go on."""
        self.revoked: dict[str, Revocation] = {}
        self._heard = heard
        self._doubted = False
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unwritten: set[str] = set()
        self._writing = TaskSet()
        self._writes = asyncio.Semaphore(AT_ONCE)
        self._announcing: asyncio.Task[None] | None = None
        self._announced = -1e9
        self._cost = 0.0

    # --- what there is ------------------------------------------------------------------------------------------

    def hosted(self) -> Mapping[str, Hosted]:
        return {member.id: member.hosted for member in self.by_id.values() if member.id not in self.revoked}

    def status(self, member: RegisteredAgent) -> str:
        return REVOKED if member.id in self.revoked else self.liveness.status(member)

    def refusal(self, agent: str) -> InterlinguaError | None:
        """Why no run of a registered agent may be sent now; None if one may."""
        if agent in self.revoked:
            return self.denied(agent)
        if (member := self.by_id.get(agent)) is None:
            return Unavailable(f"agent {agent} is not registered any more")
        status = self.liveness.status(member)
        if status == OFFLINE:
            return Unavailable(f"agent {agent} is not connected")
        if status == INACTIVE and self.liveness.deaf(member):
            return Unavailable(f"the connection of agent {agent} takes no requests now")
        if status == INACTIVE:
            why = "has missed its heartbeats" if self.liveness.silent(member) else f"says that it is {INACTIVE}"
            return Unavailable(f"agent {agent} {why}")
        return None

    def elsewhere(self, agent: str) -> str | None:
        """The other process whose connection a registered agent is reached by; None where there is none."""
        member = self.by_id.get(agent)
        if member is None or member.joined.endpoint is not None or not self.liveness.elsewhere(member):
            return None
        return member.joined.process

    def doubt(self) -> None:
        """Another process may be dead: `doubted` has it looked at."""
        self._doubted = True

    def doubted(self) -> bool:
        before, self._doubted = self._doubted, False
        return before

    def denied(self, *agents: str) -> Denied:
        """The error for what revoked agents do, or are asked."""
        one = self.revoked.get(agents[0]) if len(agents) == 1 else None
        if one is not None and one.until is not None:
            return Denied(f"the access of agent {agents[0]} is suspended until {time_of(one.until)}")
        return Denied(f"the access of {'agent ' if len(agents) == 1 else ''}{', '.join(agents)} has been revoked")

    def lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    # --- coming and going ---------------------------------------------------------------------------------------

    def take(self, joined: Joined, owner: str, *, beat: float) -> RegisteredAgent:
        """An agent as it is known now: a new one, or in the place of what was known of it. Raises AgentBroken,
        ValueError for a record that is none.
        """
        known = self.by_id.get(joined.id)
        if known is not None and known.joined.record == joined.record and known.owner == owner:
            known.read(joined, beat=beat, now=self.liveness.now())
            return known
        agent = agent_of(shown(joined.record))
        member = RegisteredAgent(
            id=joined.id,
            owner=owner,
            joined=joined,
            agent=agent,
            hosted=self._made(agent, joined),
            beat=beat,
            saved=self.liveness.now(),
            connection=known.connection if known is not None else None,
            told=known.told if known is not None else "",
        )
        self.by_id[joined.id] = member
        self.announce()
        return member

    def bind(self, member: RegisteredAgent, session: McpSession) -> None:
        member.unbind()
        connection = self.connections.get(session)
        if connection is None:
            link = RegisteredLink(session, partial(self._heard, session))
            connection = self.connections[session] = RegisteredConnection(session, link, self.liveness.now())
        connection.hear(self.liveness.now())
        member.bind(connection)

    def part(self, session: McpSession, *, tell: bool = True) -> list[RegisteredAgent]:
        """A connection has ended: whose agents were those? Others are told, unless the whole process ends."""
        connection = self.connections.pop(session, None)
        if connection is None:
            return []
        if tell:
            connection.link.end()
        gone = [self.by_id[each] for each in sorted(connection.agents)]
        for member in gone:
            member.unbind()
            if tell:
                self.note(member, replace(member.joined, process=""))
        return gone

    def drop(self, agent: str) -> None:
        member = self.by_id.pop(agent, None)
        if member is not None:
            member.unbind()
            self.announce()

    def revoke(self, agent: str, how: Revocation) -> None:
        """No client sees or reaches it from now on, none but of this protocol's."""
        self.revoked[agent] = how
        self.announce()

    def restore(self, agent: str) -> None:
        """Clients see and reach it again. The engine has closed its outbound half, so it gets another."""
        self.revoked.pop(agent, None)
        if (member := self.by_id.get(agent)) is not None:
            member.host(self._made(member.agent, member.joined))
            self.announce()

    # --- the engine ---------------------------------------------------------------------------------------------

    def announce(self) -> asyncio.Future[None]:
        """Tell the engine that the agents have changed, once for changes in quick succession. Await it to know
        that the engine knows.
        """
        if self._announcing is None:
            self._announcing = asyncio.create_task(self._announce())
        return asyncio.shield(self._announcing)

    async def _announce(self) -> None:
        wait = self._announced + self._cost * CALM - time.monotonic()
        await asyncio.sleep(max(0.0, wait))
        self._announcing = None
        began = time.monotonic()
        self.gateway.agents.hosted_changed(PROTOCOL, ())  # whose words are others is another object
        self._announced = time.monotonic()
        self._cost = self._announced - began

    def _made(self, agent: Agent, joined: Joined) -> Hosted:
        """A new outbound half: for another record, and after a revocation."""
        own = self.to_endpoint(joined.endpoint) if joined.endpoint is not None else None
        return Hosted(RegisteredOutbound(self, agent, own), timeout=self.options.agent_timeout)

    def to_endpoint(self, endpoint: JsonObject) -> ContextLink:
        return ServerLink.to_endpoint(endpoint, allow=[str(cidr) for cidr in self.options.endpoints])

    # --- writing it down ----------------------------------------------------------------------------------------

    def note(self, member: RegisteredAgent, joined: Joined) -> None:
        """Note a change of it: shown now, written down in the background."""
        since = self.liveness.now() - member.heard
        seen = max(joined.seen, self.now() - max(0.0, since))
        member.note(replace(joined, seen=seen), self.liveness.now())
        self.marks.touch(AGENT + member.id)
        if member.id not in self._unwritten:
            self._unwritten.add(member.id)
            self._writing.start(self._save(member.id))

    async def write(
        self, name: str, record: object, *, owner: str = EVERYBODY, expires_at: float | None = None
    ) -> None:
        """Write a record down for all processes, durably. Raises Conflict if another owner has the name."""
        data = msgspec.to_builtins(record)
        with self.marks.changing(name):
            await self.gateway.records.keep(PROTOCOL, name, data, owner=owner, expires_at=expires_at)

    async def erase(self, name: str) -> None:
        with self.marks.changing(name):
            await self.gateway.records.forget(PROTOCOL, name)

    async def keep(self, joined: Joined, owner: str) -> None:
        """Write a registration down. Raises Conflict if another owner has the id."""
        await self.write(AGENT + joined.id, joined, owner=owner, expires_at=joined.seen + self.options.forget)

    async def settled(self) -> None:
        while self._writing or self._announcing is not None:
            await self._writing.settled()
            if self._announcing is not None:
                await asyncio.wait([self._announcing])

    async def _save(self, agent: str) -> None:
        async with self._writes, self.lock(AGENT + agent):
            self._unwritten.discard(agent)
            if (member := self.by_id.get(agent)) is None:
                return
            try:
                await self.keep(member.joined, member.owner)
            except Conflict:
                log.warning("agent %s is somebody else's by now", agent)
                self.drop(agent)
            except InterlinguaError as error:
                log.warning("agent %s could not be written down: %s", agent, error)


# --- access that is revoked, and given back (section 7.1) -------------------------------------------------------------


LOOKED_AT: Final = 500
"""Runs of one agent that are looked for first."""
REASON: Final = "the agent's access was revoked"


class Revoking:
    """One per directory. `changed` is called with the agents that have changed."""

    def __init__(self, members: Members, changed: Callable[[Iterable[str]], None]) -> None:
        self._members = members
        self._changed = changed
        self._work = TaskSet()

    async def revoke(self, agent: str, reason: str = "", until: float | None = None) -> None:
        """Nothing is sent to an agent any more, here at once, elsewhere with the next refresh; its runs are cancelled.

        It may be any id, also of nobody: it is refused when it registers. An agent of the route table is refused to
        clients of this protocol. It holds here even if it cannot be written down; then that is raised.

        reason: shown to those who may revoke. until: epoch seconds at which it is given back by `sweep`.
        """
        members, name = self._members, GONE + agent
        async with members.lock(name):
            how = Revocation(at=members.now(), reason=reason, until=until)
            members.revoke(agent, how)
            self._changed((agent,))
            try:
                await members.write(name, how)
            finally:
                await members.announce()
                await self._stop(agent)

    async def restore(self, agent: str) -> None:
        """Give an agent's access back. No error if it was not revoked."""
        members, name = self._members, GONE + agent
        async with members.lock(name):
            if agent not in members.revoked:
                return
            await members.erase(name)
            members.restore(agent)
        await members.announce()
        self._changed((agent,))

    def suspend(self, agent: str, reason: str, seconds: float) -> None:
        """Revoke it for a while, in the background. One that is revoked already stays as it is."""
        if agent not in self._members.revoked:
            self._work.start(self._suspend(agent, reason, seconds))

    async def sweep(self) -> None:
        """Give back what was taken for a while. Called about once a second."""
        now = self._members.now()
        over = [agent for agent, how in self._members.revoked.items() if how.until is not None and how.until <= now]
        for agent in over:
            log.warning("the access of agent %s is given back: its suspension is over", agent)
            await self.restore(agent)

    def stop(self, agent: str) -> None:
        """Another process has revoked it: its runs here end."""
        self._work.start(self._stop(agent))

    async def settled(self) -> None:
        await self._work.settled()

    async def _suspend(self, agent: str, reason: str, seconds: float) -> None:
        until = self._members.now() + seconds
        log.warning("the access of agent %s is suspended until %s: %s", agent, time_of(until), reason)
        try:
            await self.revoke(agent, reason, until)
        except InterlinguaError as error:
            log.warning("that agent %s is suspended could not be written down: %s", agent, error)

    async def _stop(self, agent: str) -> None:
        gateway = self._members.gateway
        query = RunQuery(agent=agent, statuses=ACTIVE_RUNS, limit=LOOKED_AT, brief=True)
        try:
            active = [run.id async for run in paged(gateway.runs.list, query)]
        except InterlinguaError as error:
            log.warning("runs of agent %s go on: %s", agent, error)
            return
        for run_id in active:
            with contextlib.suppress(InterlinguaError):  # another process's: that one cancels it
                await gateway.runs.cancel(run_id, reason=REASON)


# --- how a registered agent is reached --------------------------------------------------------------------------------


class RegisteredOutbound(CalledRuns):
    """One registered agent, over whichever connection it has at the moment. See `gateway.contract.Outbound`,
    `Supervised` and `Placed`.

    own: the link to its endpoint instead.
    """

    def __init__(self, members: Members, agent: Agent, own: ContextLink | None) -> None:
        self._id = agent.name
        super().__init__(lambda context: AgentContextTurn(context, self._open, self._id, "auto"))
        self._members = members
        self._agent = agent
        self._own = own

    async def describe(self) -> Agent:
        return self._agent

    @property
    def reachable(self) -> bool:
        if self._members.refusal(self._id) is not None:
            return False
        if self.process is not None:
            return True
        link = self._way()
        return link is not None and link.reachable is not False

    def _open(self) -> ContextLink:
        """The way to it, while it may be given work."""
        if (error := self._members.refusal(self._id)) is not None:
            raise error
        if (link := self._way()) is None:
            raise Unavailable(f"the agent is {'connected to another gateway' if self.process else 'not connected'}")
        return link

    @property
    def process(self) -> str | None:
        return self._members.elsewhere(self._id)

    async def known(self) -> None:
        """What is written down of its connection is read all the time."""

    def doubt(self) -> None:
        self._members.doubt()

    async def aclose(self) -> None:
        if self._own is not None:
            await self._own.aclose()

    def _way(self) -> ContextLink | None:
        member = self._members.by_id.get(self._id)
        connection = member.connection if member is not None else None
        return self._own or (connection.link if connection is not None else None)
