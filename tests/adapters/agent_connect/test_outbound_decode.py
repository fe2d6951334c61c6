"""What an Agent Connect agent says becomes events and verdicts: on recorded frames, and on what servers might send."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from adapters.agent_connect import decode
from adapters.agent_connect.decode import RunFailure, RunQuestion, RunSuccess, StreamDecoder, interrupt
from adapters.agent_connect.wire_stream import StreamedMessage
from gateway.core import events as e
from gateway.core.errors import AgentBroken
from gateway.core.output import Output
from gateway.core.stream import Opener
from gateway.core.types import Agent, InterruptSpec, Role

RUN = "848ae1b6-e90d-49f9-8a1e-da654bb863b0"
WHERE = "GET /runs/x/stream"
AGENT = Agent(name="a", input_schema={}, output_schema={})
APPROVAL = InterruptSpec(
    kind="approval",
    payload_schema={"type": "object", "properties": {"subject": {"type": "string"}}, "required": ["subject"]},
    answer_schema={"type": "object", "required": ["approved"]},
)
CHOICE = InterruptSpec(
    kind="choice",
    payload_schema={"type": "object", "properties": {"options": {"type": "array"}}, "required": ["options"]},
    answer_schema={"type": "string"},
)


def update(**fields: Any) -> bytes:
    return json.dumps({"type": "values", "run_id": RUN, "status": "pending", **fields}).encode()


def shown(events: list[e.Event]) -> list[Any]:
    """The documents that a watcher sees one after the other."""
    opener, output = Opener(), Output(AGENT)
    return [output.document for event in opener.feed(events) if output.apply(event)]


def test_an_unchanged_snapshot_says_nothing() -> None:
    decoder = StreamDecoder(RUN)
    decoder.feed([update(values={"message": "one"})], WHERE)
    assert decoder.feed([update(values={"message": "one"})], WHERE) == []


@pytest.mark.parametrize("document", ["text", 5, 2.5, True, ["a", 1], {}, {"a": None}, [None, "a"]])
def test_a_document_of_any_type_is_a_data_part(document: Any) -> None:
    events = StreamDecoder(RUN).feed([update(values=document)], WHERE)
    assert shown(events)[-1:] == [document]
    assert [event.kind for event in events if isinstance(event, e.PartStarted)] == ["data"]


def test_half_a_character_waits_for_its_other_half() -> None:
    decoder = StreamDecoder(RUN)
    half = b'{"type":"values","run_id":"%b","status":"pending","values":{"m":"a\\ud83d"}}' % RUN.encode()
    assert shown(decoder.feed([half], WHERE)) == [{"m": "a"}]
    assert decoder.feed([update(values={"m": "a\U0001f600"})], WHERE) == [
        e.PartDelta(part="output", delta={"m": "\U0001f600"})
    ]


def test_a_run_that_is_joined_again_replaces_what_was_seen() -> None:
    decoder = StreamDecoder(RUN, resumed=True)
    events = decoder.feed([update(values={"m": "ab"}), update(values={"m": "abc"})], WHERE)
    assert events[1:] == [
        e.PartReplaced(part="output", value={"m": "ab"}),
        e.PartDelta(part="output", delta={"m": "c"}),
    ]


def test_fields_of_the_agents_own_travel_with_the_event() -> None:
    said = [{"role": "ai", "content": "hi"}]
    events = StreamDecoder(RUN).feed([update(values={"m": "a"}, messages=said, seq=1)], WHERE)
    assert events[-1] == e.PartDelta(part="output", delta={"m": "a"}, origin={"messages": said, "seq": 1})


def test_a_message_of_an_unknown_type_is_kept_whole() -> None:
    data = json.dumps({"type": "heartbeat", "run_id": RUN, "at": 3}).encode()
    assert StreamDecoder(RUN).feed([data], WHERE) == [
        e.Custom(name="agent_connect.heartbeat", data={"type": "heartbeat", "run_id": RUN, "at": 3})
    ]


@pytest.mark.parametrize(
    ("fields", "verdict", "settled"),
    [
        ({"status": "pending"}, None, False),
        ({"status": "success"}, "result", True),
        ({"status": "interrupted"}, RunQuestion(), False),
        ({"status": "error"}, RunFailure("the agent's run failed, with no reason given"), False),
        ({"status": "timeout"}, RunFailure("the agent's run timed out", timeout=True), False),
        ({"status": "invented"}, None, False),
    ],
)
def test_only_success_settles_a_stream(fields: dict[str, Any], verdict: Any, settled: bool) -> None:
    decoder = StreamDecoder(RUN)
    decoder.feed([update(values={"m": 1}, **fields)], WHERE)
    if verdict == "result":
        assert isinstance(decoder.verdict, RunSuccess) and bytes(decoder.verdict.values or b"") == b'{"m": 1}'
    else:
        assert decoder.verdict == verdict
    assert decoder.settled is settled


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"type": "values", "run_id"', "GET /runs/x/stream sent a message that is not JSON"),
        (b"[1]", "GET /runs/x/stream sent a message that is not a JSON object"),
        (b'{"values": {}}', "GET /runs/x/stream sent a message without a type"),
        (
            b'{"type": "values", "run_id": "other", "values": {}}',
            f"{WHERE} sent a message of run other, and is of run {RUN}",
        ),
        (b'{"type": "values", "values": {"a": \xff}}', f"{WHERE} sent a message that is not JSON: "),
        (b'{"type": "custom", "update": {"a": 1e999}}', f"{WHERE} sent `update` that is not JSON: Number out of range"),
        (b'{"type": "error", "errcode": 1e999}', f"{WHERE} sent `errcode` that is not JSON: Number out of range"),
    ],
)
def test_a_message_that_makes_no_sense_breaks_the_stream_after_what_came_before(data: bytes, said: str) -> None:
    decoder = StreamDecoder(RUN)
    events = decoder.feed([update(values={"m": "a"}), data, update(values={"m": "ab"})], WHERE)
    assert shown(events) == [{"m": "a"}]
    assert isinstance(decoder.broken, AgentBroken) and said in str(decoder.broken)


def test_a_document_that_is_nested_too_deep_is_the_agents_fault_wherever_it_is_noticed() -> None:
    decoder = StreamDecoder(RUN)
    deep = b'{"type": "values", "values": ' + b"[" * 5000 + b"]" * 5000 + b"}"

    def told() -> None:
        shown(decoder.feed([deep], WHERE))  # an interpreter with a deep stack reads it; folding it is refused
        if decoder.broken is not None:
            raise decoder.broken

    with pytest.raises(AgentBroken):
        told()


# --- waits -----------------------------------------------------------------------------------------------------


def wait(**body: Any) -> Any:
    return decode.waited(json.dumps(body).encode(), "GET /runs/x/wait")


def run(status: str) -> dict[str, Any]:
    return {"run_id": RUN, "thread_id": "t", "status": status}


@pytest.mark.parametrize("output", [None, {}, {"type": "result"}, {"type": "result", "values": None}])
def test_a_result_without_a_document_is_success_all_the_same(output: Any) -> None:
    _, verdict = wait(run=run("success"), output=output)
    (end,) = decode.finished(verdict)
    assert isinstance(end, e.RunFinished) and bytes(end.output) == b"null"


def test_a_result_of_messages_is_the_text_after_the_users_last() -> None:
    messages = [
        {"role": "assistant", "content": "long ago"},
        {"role": "user", "content": "the question"},
        {"role": "ai", "content": [{"type": "text", "text": "one"}, {"type": "image"}, "two"], "id": "m7"},
        {"role": "agent", "content": "three"},
    ]
    _, verdict = wait(run=run("success"), output={"type": "result", "messages": messages})
    events = decode.finished(verdict)
    agent = msgspec.structs.replace(AGENT, text_output="/message")
    output, opener = Output(agent), Opener()
    for event in opener.feed(events):
        output.apply(event)
    assert output.document == {"message": "onetwo\n\nthree"}
    assert e.Custom(name="agent_connect.content", data={"type": "image"}) in events
    assert isinstance(events[-1], e.RunFinished) and events[-1].origin == {"messages": messages}


def test_messages_that_were_told_before_a_restart_replace_themselves() -> None:
    result = RunSuccess(None, (StreamedMessage(content="whole", id="m"),))
    assert e.PartReplaced(part="m/0", value="whole") in decode.finished(result, replace=True)


def test_a_result_with_both_keeps_the_messages_for_its_own_protocol() -> None:
    messages = [{"role": "ai", "content": "hi"}]
    _, verdict = wait(run=run("success"), output={"type": "result", "values": {"m": 1}, "messages": messages})
    assert decode.finished(verdict) == [e.RunFinished(output=msgspec.Raw(b'{"m": 1}'), origin={"messages": messages})]


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ({"type": "result", "result": {"m": 1}}, RunSuccess(msgspec.Raw(b'{"m": 1}'))),
        ({"type": "interrupt", "interrupt_type": "k", "interrupt_payload": {"q": 1}}, RunQuestion({"q": 1}, "k")),
        ({"run_id": RUN, "status": "pending"}, None),
        ({"run": {"run_id": RUN, "status": "pending"}, "output": None}, None),
        ({"run": {"run_id": RUN, "status": "running"}}, None),
    ],
)
def test_other_shapes_of_an_answer_are_read(body: dict[str, Any], verdict: Any) -> None:
    assert wait(**body)[1] == verdict


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "GET /runs/x/wait answered something that is not JSON"),
        (b"data: {}\n\n", "GET /runs/x/wait answered something that is not JSON"),
        (b'"done"', "GET /runs/x/wait answered something that is not a JSON object"),
        (b"{}", "GET /runs/x/wait answered neither a run nor an output"),
        (b'{"run": {"status": "success"}}', "GET /runs/x/wait did not answer with a run"),
        (b'{"run": 5}', "GET /runs/x/wait did not answer with a run"),
        (
            b'{"output": {"type": "error", "errcode": 1e999}}',
            "GET /runs/x/wait answered `errcode` that is not JSON: Num",
        ),
        (b'{"output": [1]}', "GET /runs/x/wait answered an output that is not a JSON object"),
    ],
)
def test_an_answer_that_makes_no_sense_is_the_agents_fault(body: bytes, said: str) -> None:
    with pytest.raises(AgentBroken, match=said):
        decode.waited(body, "GET /runs/x/wait")


# --- questions -------------------------------------------------------------------------------------------------


def asked(payload: Any, kind: str | None = None, *specs: InterruptSpec) -> Any:
    agent = msgspec.structs.replace(AGENT, interrupts=specs)
    return interrupt(RunQuestion(payload, kind), agent, RUN, 0)


def test_a_bare_payload_is_of_the_only_kind_that_it_fits() -> None:
    assert asked({"options": ["a", "b"]}, None, APPROVAL, CHOICE).kind == "choice"


def test_a_bare_payload_that_fits_no_kind_or_several_is_just_input() -> None:
    assert asked({"what": 1, "else": 2}, None, APPROVAL, CHOICE).kind == "input"
    both = asked({"subject": "s", "options": []}, None, APPROVAL, CHOICE)
    assert (both.kind, both.answer_schema) == ("input", {})


def test_the_same_question_has_the_same_id_and_the_next_one_another() -> None:
    first = interrupt(RunQuestion({"a": 1, "b": 2}), AGENT, RUN, 0)
    assert interrupt(RunQuestion({"b": 2, "a": 1}), AGENT, RUN, 0).id == first.id
    assert interrupt(RunQuestion({"a": 1, "b": 2}), AGENT, RUN, 1).id != first.id
    assert interrupt(RunQuestion({"a": 1, "b": 3}), AGENT, RUN, 0).id != first.id


@pytest.mark.parametrize(
    ("payload", "message"), [("Why?", "Why?"), (None, ""), ({"x": [1]}, '{"x": [1]}'), ({"only": "this"}, "this")]
)
def test_a_question_can_be_read_by_a_person(payload: Any, message: str) -> None:
    assert asked(payload).message == message


def test_the_roles_of_servers_in_use_are_known() -> None:
    messages = (
        StreamedMessage(role="tool", content="42"),
        StreamedMessage(role="system", content="s"),
        StreamedMessage(content="done"),
    )
    roles = [event.role for event in decode.finished(RunSuccess(None, messages)) if isinstance(event, e.MessageStarted)]
    assert roles == [Role.TOOL, Role.SYSTEM, Role.ASSISTANT]


@pytest.mark.parametrize("transient", [True, False, None])
def test_an_agent_may_say_that_another_try_may_succeed(transient: bool | None) -> None:
    said = {} if transient is None else {"transient": transient}
    line = {"type": "error", "run_id": RUN, "status": "error", "errcode": 3, "description": "busy", **said}
    decoder = StreamDecoder(RUN)
    decoder.feed([json.dumps(line).encode()], WHERE)
    assert decoder.verdict == RunFailure("busy", 3, transient=transient is True)
    assert isinstance(decoder.verdict, RunFailure)
    assert decode.failed(decoder.verdict).failure.retryable is (transient is True)
