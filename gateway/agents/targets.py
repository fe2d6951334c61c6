"""The targets of one route, as one outbound half: which of them takes a run, and what becomes of one that is not there.

    engine -> wrappers -> TargetGroup -> one of its targets, by weight -> agent
                                 |
                                 +-> the next one, where the first took nothing of the run

A route with one target has a group of one: it is ejected and tried again like any other. A thread stays with the target
that it began at, and a run is looked for again where it was sent: both are recorded with what the target's own half
records (`RunContext.set_upstream`, `ThreadContext.set_thread`), under `TARGET`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from gateway import tracing
from gateway.agents.breaker import Breaker
from gateway.config import Route
from gateway.contract import CallNews, Outbound, RuleKeeping, RunContext, ThreadContext
from gateway.contract.optional import Discovering, Preparing, Relay, Stateful, Supervised
from gateway.contract.options import ProgramOrUrl, TargetOptions
from gateway.contract.wrapping import Wrapped
from gateway.core import errors, memory, projection, thread_state
from gateway.core.errors import AgentError, AgentGone, AgentTimeout, Unavailable, Unsupported
from gateway.core.events import Custom
from gateway.core.memory import Recalled
from gateway.core.types import Agent, ChatMessage, Checkpoint, Json, JsonObject
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)

C = TypeVar("C", bound=ThreadContext)

TARGET: Final = "interlingua.target"
"""Key of the record of a thread or run: which target it is at (`TargetOptions.key`)."""
OTHERS_SECONDS = 1.0
"""How long the first targets of a list are waited for, once another has said what the agent is."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0
"""Seconds before a run that nobody took is sent again; one that is to wait longer fails at once."""


class RouteTarget:
    """One target of a route."""

    def __init__(self, options: TargetOptions, half: Any, breaker: Breaker, label: str) -> None:
        """`half`: its `Outbound`, with whatever abilities it has. `label`: what metrics and logs call it."""
        self.options = options
        self.half = half
        self.breaker = breaker
        self.label = label
        self.agent: Agent | None = None
        """As it last described itself."""
        self.unlike = ""
        """How it differs from what the route is described as; it gets no runs then."""
        self._asking: asyncio.Task[Agent] | None = None
        self._tasks = TaskSet(lambda error: log.debug("%s: %s", label, error))

    @property
    def usable(self) -> bool:
        return self.breaker.closed and not self.unlike

    @property
    def reachable(self) -> bool | None:
        if not self.breaker.closed:
            return False
        return self.half.reachable if isinstance(self.half, Supervised) else None

    async def describe(self) -> Agent:
        """Ask it, once for all who wait; on if they wait no longer, so that its silence is counted."""
        if self._asking is None or self._asking.done():
            self._asking = self._tasks.start(self.breaker.described(self._described()))
        return await asyncio.shield(self._asking)

    async def probe(self) -> None:
        """See whether it is there."""
        async with asyncio.timeout(self.options.describe_timeout):
            await (self.half.discover() if self._many else self._described())

    @property
    def _many(self) -> bool:
        return isinstance(self.half, Discovering) and self.half.discovers

    async def _described(self) -> Agent:
        async with asyncio.timeout(self.options.describe_timeout):
            found: Agent = await self.half.describe()
        self.agent = found
        return found

    def started_anew(self, error: errors.InterlinguaError | None) -> bool:
        """Whether `error` is the end of a program that had taken the run: the next run finds a new one. What such a
        program dies of may be in the prompt, and others are not to go without it.
        """
        program = isinstance(self.options, ProgramOrUrl) and self.options.command
        return bool(program) and isinstance(error, AgentGone) and not error.untaken

    def compare(self, described: Agent, name: str) -> None:
        """See how it differs from what the route of that name is described as."""
        unlike = difference(described, self.agent) if self.agent is not None else ""
        if unlike and unlike != self.unlike:
            log.warning("agent %s: target %s gets no runs: %s", name, self.label, unlike)
        self.unlike = unlike

    async def aclose(self) -> None:
        self.breaker.close()
        self._tasks.cancel()
        await self.half.aclose()


class TargetThread(Wrapped[C]):
    """A conversation as one of several targets sees it: what is recorded of it there, and nothing of another's."""

    def __init__(self, context: C, member: RouteTarget) -> None:
        super().__init__(context)
        self.member = member

    @property
    def upstream_thread(self) -> JsonObject | None:
        return known_at(self._inner.upstream_thread, self.member)

    async def set_thread(self, upstream: JsonObject) -> None:
        await self._inner.set_thread(self._mark(upstream))

    def _mark(self, upstream: JsonObject) -> JsonObject:
        return {**upstream, TARGET: self.member.options.key}


class TargetRun(TargetThread[RunContext]):
    """A run as one of several targets sees it."""

    def __init__(self, context: RunContext, member: RouteTarget, *, moved: bool) -> None:
        """`moved`: the conversation went on elsewhere since it was here, or was never here."""
        super().__init__(context, member)
        self._moved = moved

    async def set_upstream(self, upstream: JsonObject, *, thread: JsonObject | None = None, finds: bool = True) -> None:
        marked = None if thread is None else self._mark(thread)
        await self._inner.set_upstream(self._mark(upstream), thread=marked, finds=finds)

    async def recall(self, *, fresh: bool, knows: bool = False) -> Recalled:
        return await self._inner.recall(fresh=fresh or self._moved, knows=knows)


def known_at(upstream: JsonObject | None, member: RouteTarget) -> JsonObject | None:
    """The record of a thread or run at a target; None if the record belongs to a different target."""
    if upstream is None or TARGET not in upstream:
        return upstream
    if upstream[TARGET] != member.options.key:
        return None
    return {key: value for key, value in upstream.items() if key != TARGET}


class TargetGroup:
    """See `Outbound` and `Supervised`."""

    def __init__(self, route: Route, members: Sequence[RouteTarget]) -> None:
        self.members = tuple(members)
        self.route = route
        self._several = len(members) > 1
        self._at: dict[str, RouteTarget] = {}
        """By id of a run, the target that works on it."""

    # --- what the gateway asks ----------------------------------------------------------------------------------------

    @property
    def available(self) -> bool:
        """Whether some target gets runs."""
        return any(member.breaker.closed for member in self.members)

    def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever a target is ejected, or is back."""
        for member in self.members:
            member.breaker.on_change(changed)

    def forget(self) -> None:
        for member in self.members:
            member.breaker.forget()

    def admit(self) -> None:
        """Called before a run is created. Raises Unavailable while no target is there, with the time to wait."""
        for member in self.members:
            if member.breaker.closed:
                return
        raise self._away(self.members)

    @property
    def reachable(self) -> bool | None:
        known = [member.reachable for member in self.members]
        return True if True in known else (None if None in known else False)

    # --- what outbound halves have ------------------------------------------------------------------------------------

    async def describe(self) -> Agent:
        """The agent as the first target that answers describes it, in the order of the route.

        A target that describes another agent gets no runs: one whose input or output has another schema.
        """
        if not self.available:
            raise AgentGone(str(self._away(self.members)))
        asked = [member for member in self.members if member.breaker.closed]
        if not self._several:
            return await asked[0].describe()
        tasks = [asyncio.ensure_future(member.describe()) for member in asked]
        try:
            waiting: set[asyncio.Future[Agent]] = set(tasks)
            while waiting and not any(_good(task) for task in tasks):
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if waiting:
                await asyncio.wait(waiting, timeout=OTHERS_SECONDS)
        finally:
            for task in tasks:
                task.cancel()
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
        found = next((task.result() for task in tasks if _good(task)), None)
        if found is None:
            return tasks[0].result()
        self._compare(found)
        return found

    async def run(self, context: RunContext) -> None:
        """Send it to a target, and to the next one where that took nothing of it. Sent is sent: never twice."""
        tries = 0
        while True:
            last: AgentError | None = None
            for member in self._candidates(context):
                if last is not None:
                    tracing.metrics.failovers.add(1, tracing.metrics.agent(self.route.name))
                    log.info("run %s: %s; it goes to %s", context.run.id, last, member.label)
                began, heard = time.monotonic(), context.heard
                try:
                    await (self._as_one(context, member) if self._several else member.half.run(context))
                except (Exception, asyncio.CancelledError) as raised:
                    last = self._untaken(context, member, raised, began, heard)
                else:
                    return member.breaker.ran(None) if member.breaker.counting else None
            assert last is not None, "there is a candidate, or an error"
            if tries == self.route.retries or (last.retry_after or 0.0) > LONGEST_PAUSE:
                raise last
            pause = FIRST_PAUSE * 2.0**tries * (0.5 + 0.5 * random.random())
            tries += 1
            await asyncio.sleep(max(pause, last.retry_after or 0.0))
            tracing.metrics.retries.add(1, tracing.metrics.agent(self.route.name))

    async def attach(self, context: RunContext) -> None:
        """At the target that it was sent to."""
        member = self._of(context.run.upstream)
        if member is None:
            raise AgentGone("the target that the run was sent to is not one of its route any more")
        with self._working(context, member) as seen:
            await member.half.attach(seen)

    async def cancel(self, context: RunContext) -> None:
        member = self._at.get(context.run.id) or self._of(context.run.upstream)
        if member is not None:
            await member.half.cancel(self._seen(context, member))

    async def aclose(self) -> None:
        await asyncio.gather(*(member.aclose() for member in self.members), return_exceptions=True)

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _as_one(self, context: RunContext, member: RouteTarget) -> None:
        """Let one of several targets run it."""
        if member.agent is None:
            await member.describe()
        with self._working(context, member) as seen:
            await member.half.run(seen)

    @contextlib.contextmanager
    def _working(self, context: RunContext, member: RouteTarget) -> Iterator[RunContext]:
        """Know the run's target, for a cancel and for its span, while that works on it."""
        self._at[context.run.id] = member
        if self._several:
            tracing.going_to(member.options)
        try:
            yield self._seen(context, member)
        finally:
            self._at.pop(context.run.id, None)

    def _untaken(
        self, context: RunContext, member: RouteTarget, raised: BaseException, began: float, heard: int
    ) -> AgentError:
        """The error of a target that took nothing of a run: `began` is when it was sent it, `heard` what had been heard
        of it by then. Raises every other one.
        """
        silent = context.heard == heard
        last = not any(other.usable for other in self.members if other is not member)
        if not isinstance(raised, Exception):
            over = time.monotonic() - began >= 0.95 * (self.route.timeout or float("inf"))
            if over and silent and not context.cancelled:
                member.breaker.ran(AgentTimeout("it said nothing for as long as a run may take"), last=last)
            raise raised
        error = errors.first(raised)
        if not context.cancelled:  # what a cancelled run ends with says nothing of the target
            member.breaker.ran(None if member.started_anew(error) else error or raised, last=last)
        if isinstance(error, AgentError) and error.untaken and silent:
            return error
        raise raised

    def _candidates(self, context: RunContext) -> Sequence[RouteTarget]:
        """The targets to try, in order. Raises Unavailable without any, AgentGone where the thread cannot move."""
        if not self._several:
            if not self.members[0].breaker.closed:
                raise self._away(self.members)
            return self.members
        recorded = context.upstream_thread
        here = self._of(recorded) if recorded is not None else None
        others = [member for member in self.members if member is not here and member.usable]
        others.sort(
            key=lambda one: random.random() ** (1 / one.options.weight) if one.options.weight else -1, reverse=True
        )
        if here is not None:
            if not self._movable(context):
                if not here.breaker.closed:
                    raise AgentGone(
                        f"the conversation is at target {here.label}, which cannot be reached; the others do not know "
                        "it, and are told of it only with `memory: {mode: replay}`",
                        detail=here.breaker.reason,
                    )
                return [here]
            others = [here, *others] if here.usable else others
        if not others:
            raise self._away([member for member in self.members if not member.unlike])
        return others

    def _movable(self, context: RunContext) -> bool:
        """Whether another target can go on with the thread: there is nothing to know, or it is told."""
        if context.thread is None or not context.thread.begun or not context.agent.capabilities.threads:
            return True
        options = self.route.memory
        return memory.replays(context.agent, options.mode, options.messages)

    def _seen(self, context: RunContext, member: RouteTarget) -> RunContext:
        if not self._several:
            return context
        recorded = context.upstream_thread
        moved = recorded is not None and self._of(recorded) is not member
        return cast(RunContext, TargetRun(context, member, moved=moved))

    def _of(self, upstream: JsonObject | None) -> RouteTarget | None:
        """The target of a record. One of before the route had several is the first one's."""
        key = (upstream or {}).get(TARGET)
        if key is None or not self._several:
            return self.members[0]
        return next((member for member in self.members if member.options.key == key), None)

    def _away(self, members: Sequence[RouteTarget]) -> Unavailable:
        wait = min((member.breaker.wait for member in members), default=1.0)
        why = next((member.breaker.told for member in members if member.breaker.told), "")
        said = f" ({why})" if why else ""
        return Unavailable(f"agent {self.route.name} is not there{said}; try again in {wait:.0f} s", retry_after=wait)

    def _compare(self, described: Agent) -> None:
        for member in self.members:
            member.compare(described, self.route.name)


class _Discovering(TargetGroup):
    """Only of a single target."""

    def __init__(self, route: Route, members: Sequence[RouteTarget]) -> None:
        super().__init__(route, members)
        self._found: dict[str, TargetGroup] = {}

    @property
    def discovers(self) -> bool:
        return not self._several and bool(self.members[0].half.discovers)

    async def discover(self) -> Mapping[str, Outbound]:
        (member,) = self.members
        if not member.breaker.closed:
            raise AgentGone(str(self._away(self.members)))
        found: Mapping[str, Outbound] = await member.breaker.described(member.half.discover())
        before, self._found = self._found, {}
        for name, half in found.items():
            known = before.get(name)
            if known is None or known.members[0].half is not half:
                known = group_of(self.route, [RouteTarget(member.options, half, member.breaker, member.label)])
            self._found[name] = known
        return dict(self._found)

    def on_change(self, changed: Callable[[], None]) -> None:
        self.members[0].half.on_change(changed)


class _Relay(TargetGroup):
    async def relay(self, context: ThreadContext, method: str, params: msgspec.Raw) -> msgspec.Raw:
        member = self._beside(context, method)
        answer: msgspec.Raw = await member.half.relay(self._thread(context, member), method, params)
        return answer

    async def forward(self, context: ThreadContext, method: str, params: msgspec.Raw) -> None:
        member = self._beside(context, method)
        await member.half.forward(self._thread(context, member), method, params)

    def _thread(self, context: ThreadContext, member: RouteTarget) -> ThreadContext:
        return cast(ThreadContext, TargetThread(context, member)) if self._several else context

    def _beside(self, context: ThreadContext, method: str) -> RouteTarget:
        """The thread's target; for a new one, as for what concerns no thread, the first that is there and speaks so.

        What is recorded of a thread before it exists says no target, so that it is the first one's.
        """
        first = self.members[0]
        recorded = context.upstream_thread
        if recorded is not None or context.thread is None:
            member = self._of(recorded) or first
        else:
            same = [one for one in self.members if one.options.protocol == first.options.protocol]
            member = next((one for one in same if one.usable), first)
        if self._several and not (member.options.protocol == first.options.protocol and isinstance(member.half, Relay)):
            raise Unsupported(f"agent {context.agent.name} takes no {method} where this conversation is")
        if not member.breaker.closed:
            raise self._away([member])
        return member


class _Stateful(TargetGroup):
    async def read_thread(self, upstream: JsonObject) -> Checkpoint:
        half, own = self._state(upstream)
        return await half.read_thread(own)

    async def read_history(self, upstream: JsonObject, *, limit: int, before: str | None) -> Sequence[Checkpoint]:
        half, own = self._state(upstream)
        return await half.read_history(own, limit=limit, before=before)

    async def copy_thread(self, upstream: JsonObject) -> JsonObject:
        half, own = self._state(upstream)
        copied = await half.copy_thread(own)
        return {**copied, TARGET: upstream[TARGET]} if TARGET in upstream else copied

    async def update_thread(
        self, upstream: JsonObject, *, base: str | None, values: Json, messages: Sequence[ChatMessage] | None
    ) -> None:
        half, own = self._state(upstream)
        await half.update_thread(own, base=base, values=values, messages=messages)

    def _state(self, upstream: JsonObject) -> tuple[Stateful, JsonObject]:
        member = self._of(upstream)
        if member is None:
            raise AgentGone("the target that the thread is at is not one of its route any more")
        if not isinstance(member.half, Stateful):
            raise Unsupported("the thread is at a target that keeps no state")
        return member.half, known_at(upstream, member) or {} if self._several else upstream


class _RuleKeeping(TargetGroup):
    """Targets of a route with rules speak one protocol, so that the first stands for all."""

    @property
    def prefaces(self) -> bool:
        return bool(self.members[0].half.prefaces)

    def tool_call_of(self, event: Custom) -> CallNews | None:
        found: CallNews | None = self.members[0].half.tool_call_of(event)
        return found


class _Preparing(TargetGroup):
    """Of several targets it is not known before a run is sent which one takes it."""

    def prepare(self, context: RunContext) -> None:
        if not self._several:
            self.members[0].half.prepare(context)

    def unprepare(self, context: RunContext) -> None:
        if not self._several:
            self.members[0].half.unprepare(context)


_ABILITIES: Final[tuple[tuple[Any, type[TargetGroup]], ...]] = (
    (Discovering, _Discovering),
    (Relay, _Relay),
    (Stateful, _Stateful),
    (RuleKeeping, _RuleKeeping),
    (Preparing, _Preparing),
)


def group_of(route: Route, members: Sequence[RouteTarget]) -> TargetGroup:
    """The group, with every ability that one of the targets offers."""
    offered = tuple(kind for able, kind in _ABILITIES if any(isinstance(one.half, able) for one in members))
    kind: type[TargetGroup] = type("TargetGroup", offered, {}) if offered else TargetGroup
    return kind(route, members)


def targets_of(route: Route, call: Callable[[TargetOptions], Outbound]) -> TargetGroup:
    """The targets of a route as one outbound half. `call` makes the half of one."""
    members: list[RouteTarget] = []
    labels: set[str] = set()
    for options in route.places:
        label = plain = options.shown if options.agent is None else f"{options.shown} ({options.agent})"
        while label in labels:
            label = f"{plain} #{len(labels) + 1}"
        labels.add(label)
        breaker = Breaker(route.breaker, route.name, label)
        members.append(RouteTarget(options, call(options), breaker, label))
        breaker.try_by(members[-1].probe)
    return group_of(route, members)


def difference(one: Agent, other: Agent) -> str:
    """How two descriptions are not of the same agent; "" where they may be.

    An agent that publishes no schema is the same as one that has its text in the same place.
    """
    for what, pair, assumed, pointers in (
        (
            "input",
            (one.input_schema, other.input_schema),
            one.input_assumed or other.input_assumed,
            (one.text_input, other.text_input),
        ),
        (
            "output",
            (one.output_schema, other.output_schema),
            one.output_assumed or other.output_assumed,
            (one.text_output, other.text_output),
        ),
    ):
        if thread_state.same_schema(*pair):
            continue
        places = [projection.text_pointer(schema, known) for schema, known in zip(pair, pointers, strict=True)]
        if not (assumed and places[0] == places[1]):
            return f"its {what} has another schema than the agent is described with"
    return ""


def _good(task: asyncio.Future[Agent]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
