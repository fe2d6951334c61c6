"""Describes agents: each route's target describes its agent, and the route's own words are laid over it.

Descriptions are asked for when first needed, kept, and asked for again after a failure. An agent that cannot be
reached is described by its route alone, so that directories stay complete while it is down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from msgspec import Struct, field
from msgspec.structs import replace

from gateway import tracing
from gateway.agents.targets import TargetGroup
from gateway.config import Route
from gateway.contract import Demanding, Discovering, Extended, Intercepting, Outbound, Placed, Relay, Supervised
from gateway.contract.filling import Filling
from gateway.contract.fitting import SchemaJudge, fault
from gateway.contract.optional import Preparing
from gateway.contract.options import RouteLimits
from gateway.core import files, memory, projection
from gateway.core.errors import AgentError, AgentTimeout, InterlinguaError, Unavailable, Unsupported
from gateway.core.types import Agent, Json, JsonObject, ModelTraits, description

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
AGAIN_SECONDS = 0.5


class Entry(Struct, eq=False):
    """One route's target and what is known of its agent."""

    route: Route
    outbound: Outbound
    targets: TargetGroup | None = None
    """The targets behind `outbound`, where the agent is of the route table."""
    agent: Agent | None = None
    reachable: bool = False
    asked_at: float = -1e9
    users: int = 0
    retired: bool = False
    """Its route has gone, or was given to another: to be closed after its last run."""
    stale: bool = False
    host: Entry | None = None
    """The entry that owns the outbound half, if this one does not: it closes nothing itself."""
    config: JsonObject = {}
    """Configuration of every run, over what its client says."""
    intercepting: Intercepting | None = None
    """The target, if it stands between the engine and its runs."""
    demanding: Demanding | None = None
    """The target, if it does not run every agent."""
    extended: Extended | None = None
    """The target, if it offers what only some adapters know of."""
    placed: Placed | None = None
    """The target, if only one gateway process can run it."""
    relay: Relay | None = None
    """The target, if it passes on what clients of its protocol say beside runs."""
    preparing: Preparing | None = None
    """The target, if it has work for a run that is not stored yet."""
    _judges: dict[str, SchemaJudge] = {}
    _filling: tuple[JsonObject, Filling] | None = None
    _described: bool = False
    _closed: bool = False
    _asking: asyncio.Future[None] | None = None
    _error: InterlinguaError = field(default_factory=lambda: AgentError("not asked yet"))

    def __post_init__(self) -> None:
        outbound = self.outbound
        self.intercepting = outbound if isinstance(outbound, Intercepting) else None
        self.demanding = outbound if isinstance(outbound, Demanding) else None
        self.extended = outbound if isinstance(outbound, Extended) else None
        self.placed = outbound if isinstance(outbound, Placed) else None
        self.relay = outbound if isinstance(outbound, Relay) else None
        self.preparing = outbound if isinstance(outbound, Preparing) else None
        if self.targets is not None:
            self.targets.follow(self._moved)

    def begin(self) -> None:
        self.users += 1
        if self.host is not None:
            self.host.begin()

    def end(self) -> Outbound | None:
        """One less. What is to be closed now, since the route has gone and this was the last."""
        self.users -= 1
        if self.host is not None:
            return self.host.end()
        return self.taken_away() if self.retired and not self.users else None

    def retire(self) -> Outbound | None:
        """Its route has gone. What is to be closed now, if no run uses it."""
        self.retired = True
        if self.targets is not None:
            self.targets.forget()
        return None if self.users else self.taken_away()

    def taken_away(self) -> Outbound | None:
        """The target, to be closed by the caller; None if it was taken before."""
        if self._closed:
            return None
        self._closed = True
        return self.outbound

    @property
    def limited(self) -> tuple[str, RouteLimits]:
        """The name and the limits of the route that its runs count for: its own, or that of its host."""
        return (self.route.name, self.route.limits) if self.host is None else self.host.limited

    @property
    def many(self) -> Discovering | None:
        """The target, where it stands for all agents that live there and is none itself."""
        outbound = self.outbound
        return outbound if isinstance(outbound, Discovering) and outbound.discovers else None

    async def describe(self, within: float | None = None) -> Agent:
        """The agent as it was last described; by its route alone if its target could never be reached.

        Only the first call waits for the target, for `within` seconds at most; later ones have it asked again in the
        background while it is down.
        """
        if (known := self.recall()) is not None:
            return known
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self.agent is None or self.stale:
                    await self._ask()
        return self.agent or laid_over(bare(self.route.name), self.route)

    def recall(self) -> Agent | None:
        """What `describe` returns, if it need not wait for the target."""
        if self.agent is None or self.stale:
            return None
        if not self.reachable and time.monotonic() - self.asked_at > RETRY_SECONDS:
            self._begin_to_ask()
        return self.agent

    async def ask(self) -> None:
        """Have the target describe it anew. What cannot be had stays as it was."""
        if self._asking is not None:
            await self._ask()
        await self._ask()

    async def need(self) -> Agent:
        """The agent, as its target describes it now or did once, for a request that is to become a run: it waits for
        that no longer than the run may take. Raises what the target last did if it never has, and Unavailable where
        the target demands what the agent is not, or is ejected.
        """
        targets = self.targets if self.host is None else self.host.targets
        if targets is not None:
            targets.admit()
        agent = self.agent
        if agent is None or self.stale or not self.reachable:
            agent = await self._reached()
        if self.demanding is not None and (why := self._unmet(agent)):
            raise Unavailable(why)
        return agent

    async def _reached(self) -> Agent:
        limit = self.route.timeout
        try:
            async with asyncio.timeout(limit):
                agent = await self.describe()
                if not self.reachable and time.monotonic() - self.asked_at > AGAIN_SECONDS:
                    await self._ask()
        except TimeoutError:
            if not self._described or self.agent is None:
                raise AgentTimeout(f"agent {self.route.name} has not said within {limit:g} s what it is") from None
        if not self._described:
            raise self._error
        return self.agent or agent

    async def _ask(self) -> None:
        """Wait until the target has answered, or has not. It is asked once for all who wait, and on for the others (and
        for later requests) if one of them waits no longer.
        """
        await asyncio.wait([self._begin_to_ask()])

    def _begin_to_ask(self) -> asyncio.Future[None]:
        if self._asking is None or self._asking.done():  # that is, ended before it began
            self._asking = asyncio.ensure_future(self._asked())
        return self._asking

    def _moved(self) -> None:
        """A target is there again, or has gone: ask those that are there."""
        if self.targets is not None and self.targets.available and self.many is None:
            self._begin_to_ask()

    def hush(self) -> None:
        """The gateway stops: the target is asked no more."""
        if self._asking is not None:
            self._asking.cancel()

    async def _asked(self) -> None:
        self.stale = False
        target = self.route.target
        try:
            with tracing.describe_span(self.route.name, target.protocol, None if self.route.targets else target):
                async with asyncio.timeout(target.describe_timeout):
                    described = await self.outbound.describe()
            agent = laid_over(described, self.route)
            if agent != self.agent:
                self.agent = agent
                self._judges.clear()
                for key, why in disagreements(agent, self.route):
                    log.warning("route %s: text.%s: %s", self.route.name, key, why)
            self.reachable = self._described = True
        except Exception as error:  # whatever it is, the other agents are to be listed
            if isinstance(error, InterlinguaError):
                self._error = error
                log.warning("agent %s could not be described: %s", self.route.name, error)
            elif isinstance(error, TimeoutError):
                self._error = AgentTimeout(f"agent {self.route.name} does not answer")
                log.warning("%s", self._error)
            else:
                self._error = AgentError(f"agent {self.route.name} cannot be described")
                log.exception("%s", self._error)
        finally:
            if self.agent is None:
                self.agent = laid_over(bare(self.route.name), self.route)
            self.asked_at = time.monotonic()
            self._asking = None

    @property
    def hidden(self) -> bool:
        """Whether it is a part of some protocol's own works: nobody is told of it but that protocol's clients."""
        return False

    @property
    def ready(self) -> bool:
        """Whether the agent is there, as far as is known now. A process that nobody has needed yet counts as its last
        description does.
        """
        there, known = self.reachable if self.there is None else self.there, self._described
        return there and not (known and self.agent is not None and self._unmet(self.agent))

    @property
    def reason(self) -> str:
        """Why it is not `ready`, as far as is known; "" while it is."""
        if self.ready:
            return ""
        unmet = self._described and self.agent is not None and self._unmet(self.agent)
        return unmet or str(self._error)

    def _unmet(self, agent: Agent) -> str:
        return self.demanding.unmet(agent) if self.demanding is not None else ""

    @property
    def there(self) -> bool | None:
        """Whether the target says that the agent is there; None if it does not say."""
        return self.outbound.reachable if isinstance(self.outbound, Supervised) else None

    def doubt(self, why: InterlinguaError | None = None) -> None:
        """The agent failed to answer: describe it again before the next run."""
        self.reachable = False
        if why is not None:
            self._error = why

    def reached(self) -> None:
        self.reachable = True

    def outdate(self) -> None:
        """Something about the agent has changed: describe it anew when it is next needed."""
        self.stale = True

    def keep(self, route: Route) -> None:
        """Take a route that means the same as its own, read anew."""
        self.route = route

    def rename(self, route: Route, name: str) -> None:
        """Publish the agent under another name than its route's. It is described anew under it."""
        self.route, self.agent = route.model_copy(update={"name": name}), None

    def takes_file(self, agent: Agent, media_type: str, name: str) -> bool:
        """Whether a client's file reaches the agent. Raises Unsupported where not, unless the route is lossy."""
        if files.takes(agent, media_type):
            return True
        if self.route.lossy == "allow":
            return False
        taken = ", ".join(files.ranges(agent))
        none = f"no files but {taken}" if taken else "no files"
        raise Unsupported(
            f"agent {agent.name} takes {none}; with `lossy: allow` its route takes uploads and leaves them "
            f"out ({name} is {media_type})"
        )

    def validate(self, what: str, schema: JsonObject, value: Json, at: str) -> None:
        """Check `value` against one of the agent's schemas. Raises Invalid with the failing path below `at`."""
        if not schema:
            return
        judge = self._judges.get(what)
        if judge is None:
            judge = self._judges[what] = SchemaJudge(self._sane(what, schema))
        judge.check(value, at)

    def filling(self, agent: Agent) -> Filling:
        """Makes the agent's input of a client's words. `agent` is this entry's, as it was described last."""
        if self._filling is None or self._filling[0] is not agent.input_schema:
            schema = agent.input_schema
            self._filling = schema, Filling(self._sane("input", schema), agent.text_input)
        return self._filling[1]

    def _sane(self, what: str, schema: JsonObject) -> JsonObject:
        """The schema, or one that takes anything where it is none."""
        if why := fault(schema):
            log.warning("agent %s publishes a bad schema for %s: %s", self.route.name, what, why)
            return {}
        return schema


class Created(Entry):
    """An agent made of another (`host`) and a configuration: all but its name is that one's."""

    async def describe(self, within: float | None = None) -> Agent:
        """See `Entry.describe`. It takes no configuration any more."""
        assert self.host is not None
        return self._made(await self.host.describe(within))

    def recall(self) -> Agent | None:
        assert self.host is not None
        return None if (agent := self.host.recall()) is None else self._made(agent)

    def _made(self, of: Agent) -> Agent:
        return replace(of, name=self.route.name, config_schema={})

    async def need(self) -> Agent:
        assert self.host is not None
        return self._made(await self.host.need())

    def validate(self, what: str, schema: JsonObject, value: Json, at: str) -> None:
        """See `Entry.validate`. The host learns of it when its agent describes itself anew."""
        assert self.host is not None
        self.host.validate(what, schema, value, at)

    @property
    def ready(self) -> bool:
        assert self.host is not None
        return self.host.ready

    @property
    def reason(self) -> str:
        assert self.host is not None
        return self.host.reason

    def doubt(self, why: InterlinguaError | None = None) -> None:
        assert self.host is not None
        self.host.doubt(why)


def bare(name: str) -> Agent:
    """An agent of which nothing but the name is known."""
    return Agent(
        name=name,
        input_schema=projection.MESSAGE_SCHEMA,
        output_schema=projection.MESSAGE_OUTPUT_SCHEMA,
        input_assumed=True,
        output_assumed=True,
    )


def laid_over(agent: Agent, route: Route) -> Agent:
    """The agent under its route's name, with what the route says of it.

    One that nobody describes gets a description all the same: there are clients of MCP that take no tool without.
    """
    agent = replace(
        agent,
        name=route.name,
        version=route.version or agent.version,
        description=description(route.name, route.description, agent.description),
        labels={**agent.labels, **route.labels},
        standing=replace(agent.standing, **route.delegation.given),
        model=ModelTraits(**route.model.given) if route.model is not None else agent.model,
    )
    published = {spec.kind for spec in agent.interrupts}
    if asked := tuple(spec for spec in route.asks if spec.kind not in published):
        able = replace(agent.capabilities, interrupts=True)
        agent = replace(agent, interrupts=(*agent.interrupts, *asked), capabilities=able)
    taken, given = agent.input_schema, agent.output_schema
    if agent.input_assumed and route.text.input is not None:
        taken = projection.with_text_at(taken, route.text.input)
    if agent.output_assumed and route.text.output is not None:
        given = projection.with_text_at(given, route.text.output)
    agent = replace(
        agent,
        input_schema=taken,
        output_schema=given,
        text_input=projection.text_pointer(taken, _either(route.text.input, agent.text_input)),
        text_output=projection.text_pointer(given, _either(route.text.output, agent.text_output)),
    )
    told = memory.replays(agent, route.memory.mode, route.memory.messages)
    return replace(agent, converses=told or agent.capabilities.threads)


def disagreements(agent: Agent, route: Route) -> list[tuple[str, str]]:
    """Where a route's `text` contradicts what its agent publishes: the key (`input`, `output`) and the reason."""
    out = []
    for key, pointer, schema in (
        ("input", route.text.input, agent.input_schema),
        ("output", route.text.output, agent.output_schema),
    ):
        if pointer is not None and not projection.may_have_text(schema, pointer):
            found = projection.text_pointer(schema)
            there = "nowhere that is known" if found is None else repr(found)
            out.append((key, f"the agent's {key} schema has no text at {pointer!r}; it has text at {there}"))
    return out


def _either(first: str | None, second: str | None) -> str | None:
    """The empty pointer is a pointer."""
    return second if first is None else first
