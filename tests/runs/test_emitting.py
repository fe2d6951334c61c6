"""Bursts of events of which one is no good: the others stand, and the log can be read again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.contract import RunContext, next_batch
from gateway.core import events as e
from gateway.core.errors import AgentBroken, IllegalEvent, InterlinguaError
from gateway.core.output import Output
from gateway.core.stream import Opener
from gateway.core.types import Artifact, Json, Role, RunStatus
from gateway.runs.log import EVENT_BYTES, TAIL_BYTES, RunLog
from gateway.store import LogEntry
from tests.runs.test_runs import ended, watched
from tests.support.aio import run
from tests.support.scripted import AGENT, Scripted, engine, request, route, until


async def test_what_came_before_an_illegal_event_of_a_burst_is_logged_and_the_run_goes_on() -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c", name="look"))
        context.emit(e.ToolCallEnded(call="c"))
        with pytest.raises(IllegalEvent):
            context.emit(e.PartDelta(part="text", delta="one "), e.ToolCallUpdated(call="c"), e.Custom(name="lost"))
        context.emit(e.PartDelta(part="text", delta="two"), e.RunFinished())

    async with engine((route(), Scripted(agent))) as gateway:
        done = await ended(gateway, (await gateway.runs.start(request())).id)
        assert (done.status, bytes(done.output)) == (RunStatus.SUCCESS, b'{"message":"one two"}')
        again = Opener()
        for _, event in await watched(gateway, done.id):
            again.replay(event)  # raises where the log is not legal


async def test_what_is_beside_a_delta_that_does_not_fit_the_document_is_logged() -> None:
    async def agent(context: RunContext) -> None:
        with pytest.raises(AgentBroken):
            context.emit(
                e.PartStarted(part="data", message="m", kind="data"),
                e.PartDelta(part="data", delta={"message": "one"}),
                e.PartDelta(part="data", delta={"message": [1]}),
                e.PartStarted(part="other", message="m", kind="thought"),
            )
        context.emit(e.PartDelta(part="other", delta="hm"), e.PartDelta(part="data", delta={"message": " two"}))
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(agent))) as gateway:
        done = await ended(gateway, (await gateway.runs.start(request())).id)
        assert (done.status, bytes(done.output)) == (RunStatus.SUCCESS, b'{"message":"one two"}')
        again, output = Opener(), Output(AGENT)
        for _, event in await watched(gateway, done.id):
            again.replay(event)
            output.apply(event)
        assert output.document == {"message": "one two"}


def test_a_part_whose_value_is_nested_too_deep_begins_without_it() -> None:
    deep: Json = []
    for _ in range(5000):
        deep = [deep]

    async def agent(context: RunContext) -> None:
        with pytest.raises(InterlinguaError):
            context.emit(
                e.PartStarted(part="data", message="m", kind="data", value=deep),
                e.PartDelta(part="data", delta={"message": "one"}),
            )
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with engine((route(), Scripted(agent))) as gateway:
            done = await ended(gateway, (await gateway.runs.start(request())).id)
            assert (done.status, bytes(done.output)) == (RunStatus.SUCCESS, b'{"message":"one"}')
            again, output = Opener(), Output(AGENT)
            for _, event in await watched(gateway, done.id):
                again.replay(event)
                output.apply(event)
            assert output.document == {"message": "one"}

    run(scene())


async def test_who_begins_to_watch_late_has_the_document_of_a_run_that_comes_whole() -> None:
    go = asyncio.Event()

    async def agent(context: RunContext) -> None:
        await go.wait()
        context.emit(e.RunFinished(output=msgspec.Raw(b'{"message":"whole"}')))

    async with engine((route(), Scripted(agent))) as gateway:
        made = await gateway.runs.start(request())
        await until(lambda: gateway.live[made.id].run.status is RunStatus.RUNNING)
        async with gateway.runs.watch(made.id, gateway.live[made.id].log.last) as watch:
            go.set()
            batch = await next_batch(watch, timeout=30)
            assert batch is not None and batch.snapshot.document == {"message": "whole"}


class Nowhere:
    """A store that keeps nothing."""

    def append(self, run_id: str, entries: Sequence[LogEntry]) -> int:
        return sum(len(entry.data) for entry in entries)


def test_the_newest_events_are_in_memory_and_older_ones_are_said_not_to_be() -> None:
    log = RunLog("r", Nowhere(), AGENT, reserved=1 << 30, last=7)  # type: ignore[arg-type]
    assert log.tail_first == 8 and log.newer(7) is None
    drawn = random.Random(1)
    kept: list[int] = []
    said = trimmed_at = older = 0
    for number in range(8, 6000):
        size = drawn.choice([10, 20_000, *[TAIL_BYTES // 5] * 6, 3 * TAIL_BYTES]) if number < 1000 else 10
        event = e.Custom(name="x", data="x" * size)
        log.append([event])
        kept.append(number)
        said += len(e.encode(event))
        assert log.bytes == said
        taken = said + EVENT_BYTES * (number - 7)
        if taken > trimmed_at + TAIL_BYTES:
            del kept[:older]
            trimmed_at, older = taken, len(kept)
        assert (log.last, log.tail_first) == (number, kept[0])
        for after in (log.tail_first - 1, log.tail_first, log.last - 1):
            newer = log.newer(after)
            events = newer.events if newer is not None else ()
            assert [number for number, _ in events] == list(range(max(after + 1, log.tail_first), log.last + 1))
        assert log.newer(log.tail_first - 2) is None and not log.newer(log.last)


class Kept:
    """A store that keeps the log of one run."""

    def __init__(self) -> None:
        self.events: list[e.Event] = []

    def append(self, run_id: str, entries: Sequence[LogEntry]) -> int:
        self.events += [e.decode(entry.data) for entry in entries]
        return sum(len(entry.data) for entry in entries)


NAMES = st.sampled_from(["", "t", "u", "d", "t#2"])
TEXTS = st.sampled_from(["a", "bc", "", "é", "\ud83d", "\ude00", "\ud83d\ude00!", "\u2028"])
VALUES = st.one_of(TEXTS, st.sampled_from([None, 5, True, [1], {}, {"a": "x"}, {"l": [None, "y"]}, {"t": "\ud83d"}]))
MESSAGES = st.sampled_from(["", "m", "n"])
SAID = st.one_of(
    st.builds(e.PartDelta, part=NAMES, delta=TEXTS),
    st.builds(e.PartDelta, part=NAMES, delta=VALUES, origin=st.sampled_from([None, {"own": 1}])),
    st.builds(e.PartReplaced, part=NAMES, value=VALUES, pointer=st.sampled_from(["", "", "/a", "/l/0"])),
    st.builds(
        e.PartStarted, part=NAMES, message=MESSAGES, kind=st.sampled_from(["text", "data", "thought"]), value=VALUES
    ),
    st.builds(e.PartEnded, part=NAMES),
    st.builds(e.MessageStarted, message=MESSAGES, role=st.sampled_from([Role.ASSISTANT, Role.USER])),
    st.builds(e.MessageEnded, message=MESSAGES),
    st.just(e.ArtifactAdded(artifact=Artifact(id="i", name="f", url="u"))),
    st.just(e.Custom(name="own", data="\ud83d")),
)


@settings(max_examples=300, deadline=None)
@given(bursts=st.lists(st.lists(SAID, max_size=6), max_size=8), place=st.sampled_from(["/message", "", "/l/-/c", "/-"]))
def test_what_is_shown_at_any_moment_is_what_the_log_folds_into_whatever_an_agent_says(
    bursts: list[list[e.Event]], place: str
) -> None:
    agent, kept = replace(AGENT, output_schema={}, text_output=place), Kept()
    log = RunLog("r", kept, agent, reserved=1 << 30, last=0)  # type: ignore[arg-type]
    again, judge, read = Output(agent), Opener(), 0
    for burst in bursts:
        legal: list[e.Event] = []
        with contextlib.suppress(InterlinguaError):
            log.opener.feed(burst, legal)
        with contextlib.suppress(InterlinguaError):
            log.append(legal)
        for event in kept.events[read:]:
            judge.replay(event)  # raises where the log is not legal
            again.apply(event)
        read = len(kept.events)
        assert log.last == read
        assert again.encoded == log.output.encoded
