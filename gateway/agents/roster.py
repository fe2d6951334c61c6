"""Which agents there are now: those of the route table, those found at targets that stand for many, those that inbound
halves host, those created.

A created agent is one of the others with a configuration. It is kept in the store as a registration, so that it is
there after a restart and on every replica. Names of the route table cannot be taken: an agent found under such a name
is called after its route as well, one hosted under such a name is not served.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from gateway import tracing
from gateway.agents.entry import RETRY_SECONDS, Created, Entry
from gateway.agents.hosts import Hosts
from gateway.config import Route
from gateway.contract import LIST_SECONDS, Hosting, Outbound
from gateway.core.errors import AgentTimeout, Conflict, InterlinguaError, NotFound, Unavailable, Unsupported
from gateway.core.types import Agent, JsonObject, agent_id
from gateway.registry import OPERATOR
from gateway.store import Registration, Store

log = logging.getLogger(__name__)

DISCOVER_SECONDS = 5.0
CALM_SECONDS = 0.25
"""Between two looks at a target, however often it says that its agents have changed; or as long as the first took."""
MAX_CREATED = 1000
_STRANGE = re.compile(r"[^a-zA-Z0-9_-]")


_Entries = list[Entry]
_Looks = list[asyncio.Task[bool]]


class Roster:
    """One per engine. Implements `gateway.contract.GatewayAgents`."""

    def __init__(self, store: Store) -> None:
        self.configured: tuple[Entry, ...] = ()
        """One for each route of the table, in its order."""
        self._changed: Callable[[], None] = lambda: None
        self._store = store
        self._router = Router(())
        self._entries: dict[int, Entry] = {}
        self._found: dict[int, dict[str, Entry]] = {}
        self._registered: dict[str, Registration] = {}
        self._created: dict[str, Created] = {}
        self._hosted = Hosts()
        self.retire = self._hosted.retire
        self._routed: set[str] = set()
        self._following: dict[int, asyncio.Task[None]] = {}
        self._open = False

    # --- life ------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read what is hosted and what was created, and look what there is at targets that stand for many; those that
        do not answer within some seconds are asked again in the background.
        """
        self._open = True
        await self._hosted.open()
        await self.refresh()
        self._rebuild()
        first = self._follow()
        if first:
            await asyncio.wait(first, timeout=DISCOVER_SECONDS)

    async def close(self) -> None:
        """Stop looking, close every target. No run goes on any more, the store is still open."""
        self._open = False
        tasks = list(self._following.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._hosted.close()
        for entry in self.entries:
            entry.hush()
        await asyncio.gather(*(entry.outbound.aclose() for entry in self.configured), return_exceptions=True)

    def use(self, entries: Sequence[Entry]) -> None:
        """Take a new route table."""
        self.configured = tuple(entries)
        kept = {id(entry) for entry in entries}
        for key in [key for key in self._following if key not in kept]:
            self._following.pop(key).cancel()
            self._found.pop(key, None)
        if self._open:
            self._follow()
        self._rebuild()

    @property
    def unlisted(self) -> Sequence[Entry]:
        """Targets that stand for many agents, and do not say for which."""
        return [entry for entry in self.configured if entry.many is not None and entry.reason]

    @property
    def hosts(self) -> Mapping[str, Hosting]:
        return self._hosted.halves

    def host(self, halves: Mapping[str, Hosting]) -> None:
        """Take the agents that these inbound halves host. Called before `open`; later halves come by `add_host`."""
        self._hosted.halves.update(halves)

    def on_change(self, told: Callable[[], None]) -> None:
        """Call `told` whenever the set of agents changes, or one of them is replaced."""
        self._changed = told

    async def add_host(self, protocol: str, half: Hosting) -> None:
        """One more half that hosts agents, opened here."""
        self._hosted.halves[protocol] = half
        if self._open:
            await self._hosted.begin(protocol)
            self._rebuild()

    def hosted_changed(self, protocol: str, described: Collection[str] | None = None) -> None:
        self._hosted.ask(protocol, described)
        self._rebuild()

    # --- asking ----------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> Sequence[Entry]:
        """All agents there are, in route order."""
        return list(self._entries.values())

    def names(self, protocol: str) -> Sequence[str]:
        """See `Gateway.agents.names`. The operator may call what is hidden, but is not told of it."""
        names = self._router.names(protocol)
        if protocol != OPERATOR:
            return names
        hidden = {entry.route.name for entry in self._entries.values() if entry.hidden}
        return [name for name in names if name not in hidden]

    def entry(self, name: str, protocol: str, metadata: JsonObject | None = None) -> Entry:
        """The agent that takes such a request. Raises NotFound."""
        return self._entries[id(self._router.match(protocol, name, metadata or {}))]

    async def find(self, name: str, protocol: str, metadata: JsonObject | None = None) -> Entry:
        """The same; an unknown one may have been created by another gateway on the store, or be hosted there."""
        try:
            return self.entry(name, protocol, metadata)
        except NotFound:
            await self.refresh()
            await self.refresh_hosted()
            return self.entry(name, protocol, metadata)

    def routed(self, name: str) -> bool:
        return name in self._routed or name in self._registered

    async def list(self, protocol: str, names: Sequence[str] | None = None) -> Sequence[Agent]:
        """See `GatewayAgents.list`. An agent whose route goes meanwhile is left out; the others are still listed."""
        names = self.names(protocol) if names is None else names
        found: dict[str, Agent | BaseException] = {}
        for name in names:
            with contextlib.suppress(NotFound):
                if (known := self.entry(name, protocol).recall()) is not None:
                    found[name] = known
        asked = [name for name in names if name not in found]
        if asked:
            described = (self.get(name, protocol, within=LIST_SECONDS) for name in asked)
            found |= zip(asked, await asyncio.gather(*described, return_exceptions=True), strict=True)
        if strange := [one for one in found.values() if not isinstance(one, Agent | NotFound)]:
            raise strange[0]
        return [one for name in names if isinstance(one := found[name], Agent)]

    async def get(self, name: str, protocol: str, *, within: float | None = None) -> Agent:
        entry = await self.find(name, protocol)
        if (known := entry.recall()) is None:
            entry.begin()
            try:
                known = await entry.describe(within)
            finally:
                self.let_go(entry)
        return known

    def let_go(self, entry: Entry) -> None:
        """A run, or a request beside runs, that has called `entry.begin` does not use its target any more."""
        if (outbound := entry.end()) is not None:
            self._hosted.close_target(outbound)

    def extension(self, name: str, protocol: str, key: str) -> Any:
        extended = self.entry(name, protocol).extended
        return None if extended is None else extended.extension(key)

    def reachable(self, name: str, protocol: str) -> bool:
        try:
            return self.entry(name, protocol).ready
        except NotFound:
            return False

    def noticed(self, agent: str, what: str) -> None:
        tracing.metrics.conduct.add(1, tracing.metrics.agent(agent), what)

    async def refresh_hosted(self) -> None:
        """Let the inbound halves see what other gateways on the store host. To be called every second or so."""
        await self._hosted.refresh()

    # --- agents that are created -----------------------------------------------------------------------------------

    async def refresh(self) -> bool:
        """Read again what was created; whether anything is new or gone."""
        everything = await self._store.registrations(time.time())
        found = {one.name: one for one in everything if "/" not in one.name and "template" in one.data}
        if found == self._registered:
            return False
        self._registered = found
        self._rebuild()
        return True

    async def create(self, template: str, protocol: str, config: JsonObject, *, owner: str | None = None) -> Agent:
        entry = await self.find(template, protocol)
        agent = await entry.need()
        if not agent.config_schema:
            raise Unsupported(f"agent {agent.name} is no template: it takes no configuration")
        entry.validate("config", agent.config_schema, config, "/config")
        if len(self._registered) >= MAX_CREATED:
            raise Unavailable(f"there are {MAX_CREATED} created agents already; destroy some first")
        name = await self._register(entry.route.name, protocol, config, owner)
        return await self.entry(name, protocol).describe()

    async def destroy(self, name: str, protocol: str) -> None:
        name = (await self.find(name, protocol)).route.name
        if name not in self._registered:
            raise Unsupported(f"agent {name} belongs to the route table: only what was created can be destroyed")
        with contextlib.suppress(NotFound):  # another gateway was first
            await self._store.delete_registration(name)
        await self.refresh()

    def created(self, name: str) -> tuple[str, str | None] | None:
        registration = self._registered.get(name)
        if registration is None:
            return None
        owner = registration.data.get("owner")
        return str(registration.data["template"]), owner if isinstance(owner, str) else None

    async def _register(self, template: str, protocol: str, config: JsonObject, owner: str | None) -> str:
        while True:
            name = f"{template}-{secrets.token_hex(4)}"
            if name in self._registered or name in {entry.route.name for entry in self.entries}:
                continue
            with contextlib.suppress(Conflict):
                await self._store.put_registration(
                    Registration(
                        name=name,
                        protocol=protocol,
                        owner=uuid.uuid4().hex,
                        data={"template": template, "config": config, **({} if owner is None else {"owner": owner})},
                        created_at=time.time(),
                    )
                )
                await self.refresh()
                return name

    # --- targets that stand for many -------------------------------------------------------------------------------

    def _follow(self) -> _Looks:
        """Look at targets that nobody looks at yet; what is returned is done when each has answered once."""
        first: list[asyncio.Task[bool]] = []
        for entry in self.configured:
            if entry.many is not None and id(entry) not in self._following:
                answered = asyncio.Event()
                self._following[id(entry)] = asyncio.create_task(self._look(entry, answered))
                first.append(asyncio.create_task(answered.wait()))
        return first

    async def _look(self, host: Entry, answered: asyncio.Event) -> None:
        """Ask the target which agents it has: now, whenever they change, and again while it does not answer."""
        many = host.many
        assert many is not None
        changed = asyncio.Event()
        many.on_change(changed.set)
        while True:
            changed.clear()
            began = time.monotonic()
            try:
                async with asyncio.timeout(host.route.target.describe_timeout):
                    found = await many.discover()
                host.reached()
                await self._take(host, found)
            except Exception as error:
                unforeseen = None if isinstance(error, InterlinguaError | TimeoutError) else error
                why = error if isinstance(error, InterlinguaError) else AgentTimeout("no answer in time")
                host.doubt(why)
                log.warning("the agents of %s cannot be listed: %s", host.route.name, why, exc_info=unforeseen)
            answered.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if host.reachable else RETRY_SECONDS):
                    await changed.wait()
            await asyncio.sleep(max(CALM_SECONDS, time.monotonic() - began) if host.reachable else 0)

    async def _take(self, host: Entry, found: Mapping[str, Outbound]) -> None:
        """Take the agents that a target has now. Nothing is told where they, and their descriptions, are the same."""
        before = self._found.get(id(host), {})
        now = {name: before.get(name) or Entry(host.route, outbound, host=host) for name, outbound in found.items()}
        known = {name: entry.agent for name, entry in now.items() if entry.agent is not None}
        for name in known:
            await now[name].ask()
            await asyncio.sleep(0)  # there may be thousands
        for name in before.keys() - now.keys():
            before[name].doubt()
        if list(before) != list(now) or any(now[name].agent != agent for name, agent in known.items()):
            self._found[id(host)] = now
            self._rebuild()

    # --- all together ----------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        entries = self._with_found()
        self._routed = {entry.route.name for entry in (*self.configured, *entries)}
        entries += self._hosted.served(self._routed | self._registered.keys())
        entries += self._with_created(entries)
        self._entries = {id(entry.route): entry for entry in entries}
        self._router = Router([entry.route for entry in entries])
        self._changed()

    def _with_found(self) -> _Entries:
        taken = {entry.route.name for entry in self.configured if entry.many is None} | self._hosted.reserved()
        out: list[Entry] = []
        for host in self.configured:
            if host.many is None:
                out.append(host)
                continue
            for name, entry in self._found.get(id(host), {}).items():
                free = self._free(name, host, taken)
                if free is None:
                    log.warning("agent %s of %s is not served: its name is taken", name, host.route.name)
                    continue
                taken.add(free)
                if entry.route.name != free or entry.route is host.route:
                    entry.rename(host.route, free)
                out.append(entry)
        return out

    def _free(self, name: str, host: Entry, taken: set[str]) -> str | None:
        plain = _STRANGE.sub("_", name) or "agent"
        return next((one for one in (plain, f"{host.route.name}-{plain}") if one not in taken), None)

    def _with_created(self, others: Sequence[Entry]) -> _Entries:
        by_name: dict[str, Entry] = {}
        for entry in others:
            by_name.setdefault(entry.route.name, entry)
        made: dict[str, Created] = {}
        for name, registration in self._registered.items():
            host = by_name.get(str(registration.data.get("template")))
            if host is None or name in by_name:
                continue  # its template is away, or its name was given to a route
            known = self._created.get(name)
            if known is None or known.host is not host:
                route = host.route.model_copy(update={"name": name})
                config = registration.data.get("config") or {}
                known = Created(route, host.outbound, host=host, config=config)
            made[name] = known
        self._created = made
        return list(made.values())


class Router:
    """Which route takes a request. Pure: made from a route table, of which the first route that fits wins."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._rules = [_Rule(route) for route in routes]
        self._by_name: dict[str, list[_Rule]] = {}
        for rule in self._rules:
            self._by_name.setdefault(rule.route.name, []).append(rule)

    def names(self, protocol: str) -> tuple[str, ...]:
        """Agents that clients of `protocol` may call, in route order, each once. The operator may call all."""
        return tuple(dict.fromkeys(rule.route.name for rule in self._rules if rule.serves(protocol)))

    def match(self, protocol: str, agent: str | None, metadata: Mapping[str, Any] | None = None) -> Route:
        """The route for a request to `agent`: its name, its UUID, or None for the only one there is.

        Raises NotFound, which lists the names that this client may use.
        """
        if agent is None:
            return self._only(protocol, metadata)
        for rule in self._by_name.get(agent) or self._by_name.get(self.name(agent) or "") or []:
            served = rule.protocols is None or protocol in rule.protocols
            if served and (not rule.metadata or rule.fits(metadata or {})):
                return rule.route
        raise NotFound(f"no agent '{agent}'; have {self._listed(protocol)}")

    def _only(self, protocol: str, metadata: Mapping[str, Any] | None) -> Route:
        fitting = [rule.route for rule in self._rules if rule.serves(protocol) and rule.fits(metadata or {})]
        if len({route.name for route in fitting}) == 1:
            return fitting[0]
        what = "name an agent" if fitting else "no agent takes this request"
        raise NotFound(f"{what}; have {self._listed(protocol)}")

    def name(self, agent: str) -> str | None:
        """The name of an agent given by name or UUID; None if no route has it."""
        if agent in self._by_name:
            return agent
        try:
            return self._by_id.get(str(uuid.UUID(agent)))
        except ValueError:
            return None

    @cached_property
    def _by_id(self) -> dict[str, str]:
        return {agent_id(name): name for name in self._by_name}

    def _listed(self, protocol: str) -> str:
        return ", ".join(self.names(protocol)) or "none"


class _Rule:
    """Which requests a route takes. Made with the table: what is asked for every run is at hand then."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.metadata = route.match.metadata
        self.protocols = frozenset((*route.match.protocol, OPERATOR)) if route.match.protocol else None

    def serves(self, protocol: str) -> bool:
        return self.protocols is None or protocol in self.protocols

    def fits(self, metadata: Mapping[str, Any]) -> bool:
        return all(key in metadata and _same(metadata[key], value) for key, value in self.metadata.items())


def _same(given: Any, wanted: Any) -> bool:
    """Equal as JSON: `true` is not 1, and an object has the wanted keys among its own."""
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(wanted, dict):
        return isinstance(given, Mapping) and all(key in given and _same(given[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(given, list) and len(given) == len(wanted) and all(map(_same, given, wanted))
    return bool(given == wanted)
