"""A run's log as steps: what an agent says is told in one step, once, wherever questions come in between."""

from __future__ import annotations

import re

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.agent_protocol.steps import cut, run_steps
from gateway.core import events as e
from gateway.core.output import Output
from gateway.core.stream import Opener
from gateway.core.types import Answer, Interrupt, Run, RunRequest, RunStatus
from tests.support.scripted import AGENT

WRITER = replace(AGENT, text_input="/message", text_output="/message")
PARTS, MESSAGES = st.sampled_from("abc"), st.sampled_from(["m", "n", "message"])
WORD = e.PartDelta(part="a", delta="a word, which is numbered")
ASKED = e.Interrupted(interrupt=Interrupt(id="q", kind="input"))
SAID = st.one_of(
    st.builds(e.PartDelta, part=PARTS, delta=st.just(WORD.delta)),
    st.just(ASKED),
    st.builds(e.PartStarted, part=PARTS, message=MESSAGES),
    st.builds(e.MessageStarted, message=MESSAGES),
    st.builds(e.PartEnded, part=PARTS),
    st.builds(e.MessageEnded, message=MESSAGES),
)


@settings(max_examples=200)
@given(st.lists(SAID, max_size=14))
def test_each_word_is_told_in_one_step_whatever_goes_on_after_questions(said: list[e.Event]) -> None:
    opener, output, log = Opener(), Output(WRITER), list[e.Event]()
    for number, event in enumerate(said):
        if isinstance(event, e.PartDelta):
            log += opener.feed([replace(event, delta=f"<{number}>")])
        elif isinstance(event, e.Interrupted):
            asked = replace(event.interrupt, id=str(number))
            answered = e.Resumed(interrupt=asked.id, answer=Answer(value="on"))
            log += opener.feed([e.Interrupted(interrupt=asked), answered])
        else:
            log += opener.feed([event])
    for event in log:
        output.apply(event)
    final = msgspec.Raw(output.finish(e.RunFinished()))
    log += opener.feed([e.RunFinished(output=final)])
    request = RunRequest(agent="writer", input={"message": "go"}, protocol="test")
    run = Run(id="r", request=request, status=RunStatus.SUCCESS, created_at=0.0, updated_at=0.0, output=final)
    told = [
        word for step in run_steps("t", run, cut(log), WRITER) for word in re.findall(r"<\d+>", step["output"] or "")
    ]
    assert sorted(told) == sorted(f"<{number}>" for number, event in enumerate(said) if isinstance(event, e.PartDelta))
