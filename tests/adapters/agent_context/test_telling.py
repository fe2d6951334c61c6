"""What a client is told of a run on the way: each word of the output once, and what another gateway makes of it."""

from __future__ import annotations

import contextlib
import itertools
import re
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_context.inbound.rendering import RunNotifications
from adapters.agent_context.outbound.links import AgentLine
from adapters.agent_context.outbound.messages import NativeRun
from gateway.core import events as e
from gateway.core import projection
from gateway.core.errors import IllegalEvent
from gateway.core.output import Output
from gateway.core.stream import Opener, coalesce
from gateway.core.types import Role
from tests.support.aio import run
from tests.support.context import context
from tests.support.scripted import AGENT

SPEAKER = replace(AGENT, text_input="/message", text_output="/message")
PARTS, MESSAGES = st.sampled_from("abc"), st.sampled_from("mno")
WORDS = st.just("a word, which is numbered")
SAID = st.one_of(
    st.builds(e.PartDelta, part=PARTS, delta=WORDS),
    st.builds(e.PartDelta, part=PARTS, delta=WORDS),
    st.builds(e.MessageStarted, message=MESSAGES, role=st.sampled_from(Role)),
    st.builds(e.PartStarted, part=PARTS, message=MESSAGES, value=st.none() | WORDS),
    st.builds(e.PartStarted, part=PARTS, message=MESSAGES, kind=st.just("thought")),
    st.builds(e.PartEnded, part=PARTS),
    st.builds(e.MessageEnded, message=MESSAGES),
    st.builds(e.PartStarted, part=st.just("d"), message=MESSAGES, kind=st.just("data"), value=st.just({"message": ""})),
    st.builds(e.PartDelta, part=st.just("d"), delta=st.fixed_dictionaries({"message": WORDS})),
    st.builds(e.ToolCallStarted, call=PARTS, name=st.just("look")),
    st.builds(e.ToolCallUpdated, call=PARTS, status=st.just("in_progress")),
    st.builds(e.ToolCallEnded, call=PARTS),
)
LOGS = st.lists(SAID, max_size=14)


def logged(said: list[e.Event]) -> list[e.Event]:
    """The log of a run that says so, its words numbered."""
    opener, log = Opener(), list[e.Event]()
    for number, event in enumerate(said):
        with contextlib.suppress(IllegalEvent):
            log += opener.feed([numbered(event, f"<{number}>")])
    return log


def numbered(event: e.Event, word: str) -> e.Event:
    match event:
        case e.PartDelta():
            return replace(event, delta=word if isinstance(event.delta, str) else {"message": word})
        case e.PartStarted() if isinstance(event.value, str):
            return replace(event, value=word)
    return event


def folded(log: list[e.Event]) -> str:
    """The text of its output."""
    output = Output(SPEAKER)
    for event in log:
        output.apply(event)
    return "" if output.empty else projection.unwrap(output.document, "/message") or ""


def told(log: list[e.Event], *, speaks: bool = True, lags: bool = False) -> list[dict[str, Any]]:
    """The params of what a client of this protocol (or another with a progress token) is sent."""
    client = SimpleNamespace(version="2025-11-25", can=lambda *_: speaks)
    call: Any = SimpleNamespace(client=client, progress_token=None if speaks else "t")
    telling = RunNotifications(call, SPEAKER, {"source": "a", "target": "b"}, {"correlationId": "c"})
    events = coalesce(list(enumerate(log))) if lags else list(enumerate(log))
    return [msgspec.json.decode(each)["params"] for each in telling.feed(events)]


def text_of(params: dict[str, Any]) -> str:
    if "content" not in params:
        return str(params["message"])
    return "".join(each["text"] for each in params["content"]["payload"].get("messages", []))


def words(text: str) -> list[int]:
    return [int(each) for each in re.findall(r"<(\d+)>", text)]


@settings(max_examples=300)
@given(LOGS)
@example([e.PartDelta(part="a", delta=""), e.MessageStarted(message="n"), e.PartDelta(part="b", delta="")])
@example([e.MessageStarted(message="m", role=Role.USER), e.PartDelta(part="a", delta="")])
def test_each_word_of_the_output_is_told_once_and_nothing_else(said: list[e.Event]) -> None:
    log = logged(said)
    text = folded(log)
    for speaks, lags in itertools.product((True, False), repeat=2):
        heard = "".join(text_of(each) for each in told(log, speaks=speaks, lags=lags))
        assert words(heard) == sorted(words(text))
        if words(text) == sorted(words(text)):  # no part goes on behind another
            assert heard == text


def beside(log: list[e.Event]) -> list[Any]:
    """What an agent says and does beside its output, but for the names of it."""
    out: list[Any] = []
    output, roles, others = Output(SPEAKER), dict[str, Role](), set[str]()
    for event in log:
        output.apply(event)
        if isinstance(event, e.MessageStarted):
            roles[event.message] = event.role
        elif isinstance(event, e.PartStarted) and roles[event.message] is not Role.ASSISTANT:
            others.add(event.part)
        elif isinstance(event, e.PartStarted | e.PartDelta) and not (output.holds(event.part) or event.part in others):
            value = event.value if isinstance(event, e.PartStarted) else event.delta
            out += words(value) if isinstance(value, str) else []
        elif isinstance(event, e.ToolCallStarted | e.ToolCallUpdated | e.ToolCallEnded):
            out.append(replace(event, origin=None))
    return out


@settings(max_examples=200, deadline=None)
@given(LOGS, st.none() | st.integers(0, 20))
def test_another_gateway_hears_the_same_also_where_it_is_told_again(said: list[e.Event], again: int | None) -> None:
    log = logged(said)
    first = told(log)

    async def heard() -> list[e.Event]:
        opener, out = Opener(), list[e.Event]()
        line = cast("AgentLine", SimpleNamespace(gateway=True))
        run = NativeRun(cast(Any, SimpleNamespace(context=context(SPEAKER, "x"))), line, target=None, how="auto")
        for each in first if again is None else [*first[:again], None, *told(log, lags=True)]:
            if each is None:
                run.again()
            else:
                out += opener.feed(run.told("agent/message", Raw(msgspec.json.encode(each))))
        return out

    found = run(heard())
    assert folded(found) == "".join(text_of(each) for each in first)
    assert beside(found) == beside(log)
