"""What a task says of its attempt: the same text and the same events, wherever batches end and gateways stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.agent_context.coordination import OUTPUT
from adapters.agent_context.coordination.attempt_run import AttemptSpeech
from gateway.core import events as e
from gateway.core import projection
from gateway.core.output import Output
from gateway.core.stream import Opener
from gateway.core.types import Agent, Role
from tests.support.scripted import AGENT

SPEAKER = msgspec.structs.replace(AGENT, text_output="/message")
TASK = Agent(name="tasks", input_schema={}, output_schema=OUTPUT, text_output="/messages/-/text")

CALLS = (e.ToolCallStarted, e.ToolCallUpdated)

texts = st.text("ab ", max_size=4)
spoken = st.builds(e.PartDelta, part=st.sampled_from(["x", "y"]), delta=texts)
rewritten = st.builds(e.PartReplaced, part=st.sampled_from(["x", "y"]), value=texts)
messages = st.builds(e.MessageStarted, message=st.sampled_from(["m", "n"]))
started = st.builds(e.PartStarted, part=st.sampled_from(["v", "w"]), message=st.just("m"), value=texts)
thoughts = st.builds(e.PartStarted, part=st.just("t"), message=st.just("m"), kind=st.just("thought"))
thinking = st.builds(e.PartDelta, part=st.just("t"), delta=texts)
others = st.sampled_from(
    [
        e.ToolCallUpdated(call="c", status="in_progress"),
        e.PlanUpdated(),
        e.UsageReported(output_tokens=3),
        e.Custom(name="own", data=1),
        e.MessageStarted(message="u", role=Role.USER),
    ]
)
speech = st.lists(
    st.one_of(spoken, spoken, spoken, spoken, rewritten, messages, started, thoughts, thinking, others), max_size=12
)
grown = st.fixed_dictionaries({}, optional={"message": texts, "n": st.integers(0, 3)})
documents = st.lists(
    st.one_of(
        st.builds(e.PartDelta, part=st.just("doc"), delta=grown.filter(bool)),
        st.builds(e.PartReplaced, part=st.just("doc"), pointer=st.just("/message"), value=texts),
        others,
    ),
    max_size=10,
)


class Task:
    """The task's side: what it says is made legal and folded, as the engine would."""

    def __init__(self) -> None:
        self.log: list[e.Event] = []
        self.losses: Counter[str] = Counter()
        self._opener = Opener()
        self._output = Output(TASK)

    def emit(self, *events: e.Event) -> None:
        for event in self._opener.feed(events):
            self.log.append(event)
            self._output.apply(event)

    def lost(self, what: str, count: int = 1) -> None:
        self.losses[what] += count

    @property
    def text(self) -> str:
        return projection.unwrap(self._output.document, "/messages/-/text") or "" if not self._output.empty else ""


def legal(events: list[e.Event]) -> list[e.Event]:
    """An attempt's log."""
    opener = Opener()
    if any(isinstance(event, e.PartDelta | e.PartReplaced) and event.part == "doc" for event in events):
        opener.feed([e.PartStarted(part="doc", message="m", kind="data")])
        first: list[e.Event] = [
            e.RunStarted(),
            e.MessageStarted(message="m"),
            e.PartStarted(part="doc", message="m", kind="data", value={"message": ""}),
        ]
        return [*first, *opener.feed(events)]
    return opener.feed(events)


def done(work: Coroutine[Any, Any, None]) -> None:
    with pytest.raises(StopIteration):  # only files take time
        work.send(None)


def played(speech: AttemptSpeech, log: list[e.Event], cuts: list[int]) -> None:
    """The log in batches that end at the cuts."""
    at = 0
    for cut in [*sorted(cut for cut in cuts if cut < len(log)), len(log)]:
        done(speech.feed(log[at:cut]))
        at = cut


def said(log: list[e.Event]) -> str:
    output = Output(SPEAKER)
    for event in log:
        output.apply(event)
    return "" if output.empty else projection.unwrap(output.document, "/message") or ""


def speech_of(task: Task) -> AttemptSpeech:
    gateway: Any = None
    context: Any = task
    return AttemptSpeech(context, gateway, SPEAKER, 1, e.UsageReported())


def passed(log: list[e.Event]) -> list[tuple[str, Any]]:
    """What is said beside the text, but for the names of it."""
    out: list[tuple[str, Any]] = []
    thought = {event.part for event in log if isinstance(event, e.PartStarted) and event.kind == "thought"}
    for event in log:
        if isinstance(event, e.PartDelta) and event.part in thought:
            out.append(("thought", event.delta))
        elif isinstance(event, e.ToolCallStarted | e.ToolCallUpdated | e.PlanUpdated | e.UsageReported | e.Custom):
            out.append((type(event).__name__, getattr(event, "status", None)))
    return out


@settings(max_examples=150, deadline=None)
@given(st.one_of(speech, documents), st.lists(st.integers(0, 20), max_size=4))
@example([e.PartDelta(part=part, delta=text) for part, text in ("xa", "yb", "xc")], [])
def test_the_task_says_what_its_attempt_says(events: list[e.Event], cuts: list[int]) -> None:
    log, task = legal(events), Task()
    played(speech_of(task), log, cuts)
    assert task.text == said(log)
    assert passed(task.log) == passed(log)


@settings(max_examples=150, deadline=None)
@given(st.one_of(speech, documents), st.integers(0, 30), st.integers(0, 30))
def test_after_a_restart_it_says_the_rest_and_nothing_twice(events: list[e.Event], stopped: int, written: int) -> None:
    log, task = legal(events), Task()
    before = log[: min(stopped, len(log))]
    played(speech_of(task), before, [])
    again = speech_of(task)
    there = max(len(before), min(written, len(log)))
    done(again.resume(list(task.log), log[:there]))
    played(again, log[there:], [])
    assert task.text == said(log)
    assert passed(task.log) == passed(log)


@settings(max_examples=150, deadline=None)
@given(st.one_of(speech, documents), st.integers(0, 30), speech)
def test_what_the_attempts_log_has_lost_is_said_no_more_and_what_comes_instead_is_all_said(
    events: list[e.Event], written: int, later: list[e.Event]
) -> None:
    lost, task = legal(events), Task()
    played(speech_of(task), lost, [])
    before = passed(task.log)
    kept = lost[: min(written, len(lost))]
    opener = Opener()
    for event in kept:
        opener.replay(event)
    log = [*kept, *opener.feed([event for event in later if not isinstance(event, CALLS)])]
    again = speech_of(task)
    done(again.resume(list(task.log), kept))
    played(again, log[len(kept) :], [])
    assert task.text == said(log)
    assert passed(task.log) == before + passed(log)[len(passed(kept)) :]
