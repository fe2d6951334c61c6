"""Runs of tools: results, questions and progress, in the words of every revision."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec import json

from gateway.core import events as e
from gateway.core.errors import Invalid
from gateway.core.stopping import SHORT
from gateway.core.types import Agent, Artifact, Failure, Interrupt, Outcome, Role, RunStatus, StopReason
from gateway.mcp.runs import Documents, Tools, tools
from tests.mcp.runs.documents import ANY, BARE, CHAT, MESSAGE, numbered, run_of
from tests.support.mcp_schemas import VERSIONS, valid

DOCUMENTS = Documents("own")
TOOLS = Tools(DOCUMENTS)
FILE = Artifact(id="f", name="a.png", url="http://x/artifacts/f", media_type="image/png", size=3)
UPLOAD = Artifact(id="u", name="given.txt", url="http://x/artifacts/u", agent_created=False)
QUESTION = Interrupt(id="q1", kind="approve", message="May I?", payload={"x": 1}, answer_schema={"type": "boolean"})


def shown(version: str, result: Any) -> Any:
    """The result as it is on the wire, which is one of that revision."""
    plain = json.decode(json.encode(result))
    valid(version, "CallToolResult", {"resultType": "complete", **plain} if version >= "2026" else plain)
    return plain


@pytest.mark.parametrize("version", VERSIONS)
def test_the_text_is_what_a_model_reads_and_the_document_is_structured_content(version: str) -> None:
    result = shown(version, TOOLS.result(MESSAGE, run_of(MESSAGE, b'{"message":"Hi"}'), version))
    assert result["content"] == [{"type": "text", "text": "Hi"}]
    assert result["isError"] is False
    assert result.get("structuredContent") == ({"message": "Hi"} if version >= "2025-06-18" else None)
    assert result["_meta"] == {"interlingua/run": "r1"}


@pytest.mark.parametrize(
    ("agent", "document", "text"),
    [
        (MESSAGE, '{"message":"Hi","artifacts":[{"name":"f","url":"http://x"}]}', "Hi"),
        (MESSAGE, '{"message":"Hi","score":3}', '{"message":"Hi","score":3}'),
        (CHAT, '{"messages":[{"content":"Hi"}]}', "Hi"),
        (BARE, '"Hi"', "Hi"),
        (ANY, '{"a":[1]}', '{"a":[1]}'),
        (ANY, '"words"', "words"),
        (MESSAGE, '{"message":""}', ""),
    ],
)
def test_what_is_more_than_text_is_read_as_json(agent: Agent, document: str, text: str) -> None:
    result = shown("2024-11-05", TOOLS.result(agent, run_of(agent, document.encode()), "2024-11-05"))
    assert result["content"] == [{"type": "text", "text": text}]


NAME = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "objects"),
    [
        ({"allOf": [{"minProperties": 1}, {"type": "object"}]}, True),
        ({"properties": {"name": {}}}, True),
        ({"required": ["name"]}, True),
        ({"anyOf": [NAME, {"type": ["object"]}]}, True),
        ({"$ref": "#/$defs/name", "$defs": {"name": NAME}}, True),
        ({"description": "whatever it is", "$comment": "it says nothing"}, True),
        ({"oneOf": [NAME, {"type": "null"}]}, False),
        ({"enum": [{"name": "a"}]}, False),
        ({"$ref": "#/$defs/none"}, False),
        ({"$ref": "#"}, False),
    ],
)
def test_a_tool_has_an_object_around_what_may_be_no_object(schema: Any, objects: bool) -> None:
    agent = Agent(name="a", input_schema=schema, output_schema=schema)
    tool = DOCUMENTS.tool_of(agent, VERSIONS[-1])
    for published, name in ((tool["inputSchema"], "input"), (tool["outputSchema"], "output")):
        assert published["type"] == "object" and (published.get("required") == [name]) is not objects
    text = "{}" if objects else '{"output":{}}'
    assert DOCUMENTS.output_of(agent, b"{}").decode() == text


def test_references_in_what_an_object_is_put_around_lead_where_they_did() -> None:
    schema = {"type": "array", "items": {"$ref": "#/$defs/name"}, "$defs": {"name": {"type": "string"}}}
    judge = Draft202012Validator(DOCUMENTS.tool_output(Agent(name="a", input_schema={}, output_schema=schema)))
    assert judge.is_valid({"output": ["x"]}) and not judge.is_valid({"output": [1]})


def test_a_tool_requires_what_its_agent_names_and_nothing_where_that_is_no_list_of_names() -> None:
    for required, listed in ((["a"], ["a"]), ("a", None), ([1], None)):
        schema = {"type": "object", "properties": {"a": {}}, "required": required}
        tool = DOCUMENTS.tool_of(Agent(name="a", input_schema=schema, output_schema={}), VERSIONS[-1])
        assert tool["inputSchema"].get("required") == listed


@pytest.mark.parametrize("version", VERSIONS)
def test_files_that_the_agent_made_are_links(version: str) -> None:
    run = run_of(MESSAGE, b'{"message":"Hi"}')
    result = shown(version, TOOLS.result(MESSAGE, run, version, [UPLOAD, FILE]))
    link = result["content"][1:]
    if version >= "2025-06-18":
        assert link == [{"type": "resource_link", "uri": FILE.url, "name": "a.png", "mimeType": "image/png", "size": 3}]
        assert "interlingua/lost" not in result["_meta"]
    else:
        assert link == [{"type": "text", "text": "a.png: http://x/artifacts/f"}]
        assert result["_meta"]["interlingua/lost"] == {"artifact": 1}


@pytest.mark.parametrize("reason", [None, *StopReason])
def test_every_reason_that_cuts_an_answer_short_is_told_to_the_model_and_in_meta(reason: StopReason | None) -> None:
    run = run_of(MESSAGE, b'{"message":"Hi"}', stop_reason=reason)
    result = shown("2025-11-25", TOOLS.result(MESSAGE, run, "2025-11-25"))
    short = [f"writer: {SHORT[reason]}"] if reason in SHORT else []
    assert [each["text"] for each in result["content"]] == ["Hi", *short]
    assert result["_meta"].get("interlingua/stopReason") == (reason if short else None)


def test_an_output_that_does_not_fit_its_schema_is_an_error_that_a_client_can_read() -> None:
    """Clients refuse a result whose structured content does not fit, and show nothing of it."""
    result = shown("2025-11-25", TOOLS.result(MESSAGE, run_of(MESSAGE, b'{"message":5}'), "2025-11-25"))
    assert result["isError"] is True and "structuredContent" not in result
    assert "5 is not of type 'string'" in result["content"][0]["text"]
    assert result["content"][1]["text"] == '{"message":5}'
    assert result["_meta"]["interlingua/lost"] == {"output_schema": 1}
    odd = Agent(name="odd", input_schema={}, output_schema={"$ref": "#/nowhere"}, extra={"own": {}})
    assert shown("2025-11-25", TOOLS.result(odd, run_of(odd, b"{}"), "2025-11-25"))["structuredContent"] == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_that_failed_is_an_error_with_the_output_so_far(version: str) -> None:
    failure = Failure(code="agent_gone", message="It went away", retryable=True)
    run = run_of(MESSAGE, b'{"message":"so f"}', status=RunStatus.ERROR, failure=failure)
    result = shown(version, TOOLS.result(MESSAGE, run, version))
    assert result["isError"] is True
    assert [each["text"] for each in result["content"]] == ["writer: It went away", "Its output so far:\n\nso f"]
    assert result["_meta"]["interlingua/failure"] == {
        "code": "agent_gone",
        "message": "It went away",
        "retryable": True,
    }
    assert result["_meta"]["interlingua/output"] == {"message": "so f"}
    silent = run_of(MESSAGE, b"null", status=RunStatus.CANCELLED)
    assert shown(version, TOOLS.result(MESSAGE, silent, version))["content"][0]["text"] == "writer: cancelled"
    refused = shown(version, tools.refused(Invalid("/message: is missing", path="/arguments/message")))
    assert refused["isError"] is True and refused["_meta"]["interlingua/failure"]["path"] == "/arguments/message"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_question_says_how_it_is_answered(version: str) -> None:
    run = run_of(MESSAGE, b"null", status=RunStatus.INTERRUPTED)
    result = shown(version, TOOLS.interrupted(MESSAGE, run, QUESTION, b'{"message":"so f"}'))
    assert result["isError"] is True
    before, question = (each["text"] for each in result["content"])
    assert before == "so f"
    for needed in ("May I?", tools.ANSWER, '"r1.q1"', '{"type":"boolean"}', '{"x":1}'):
        assert needed in question
    meta = result["_meta"]
    assert meta["interlingua/resume"] == "r1.q1"
    assert meta["interlingua/interrupt"]["answerSchema"] == {"type": "boolean"}
    assert meta["interlingua/output"] == {"message": "so f"}
    assert len(shown(version, TOOLS.interrupted(MESSAGE, run, QUESTION, b"null"))["content"]) == 1
    valid(version, "Tool", TOOLS.answer_tool())


def test_the_tool_that_answers_takes_a_handle_and_an_answer() -> None:
    assert tools.answers({"resume": "r1.q1"}) == ("r1", "q1")
    assert tools.answer_given(QUESTION, {"resume": "r1.q1", "answer": True}).value is True
    declined = tools.answer_given(QUESTION, {"resume": "r1.q1", "outcome": "declined"})
    assert declined.outcome is Outcome.DECLINED
    with pytest.raises(Invalid) as refused:
        tools.answers({})
    assert refused.value.path == "/arguments/resume"
    with pytest.raises(Invalid) as refused:
        tools.answer_given(QUESTION, {"outcome": "maybe"})
    assert refused.value.path == "/arguments/outcome"


# --- progress ----------------------------------------------------------------------------------------------------

STORY = numbered(
    [
        e.PartStarted(part="th", message="m", kind="thought"),
        e.PartDelta(part="th", delta="hm"),
        e.ToolCallStarted(call="c", name="look", title="Looking"),
        e.ToolCallEnded(call="c"),
        e.PartStarted(part="p", message="m", kind="data"),
        e.PartDelta(part="p", delta={"message": "Hel", "n": 1}),
        e.PartDelta(part="p", delta={"n": 1}),
        e.PartDelta(part="p", delta={"message": "lo"}),
    ]
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("token", ["t", 0])
def test_progress_rises_and_says_what_is_new(version: str, token: Any) -> None:
    lines = tools.ToolProgress(MESSAGE, version, token).feed(STORY)
    said = [json.decode(line) for line in lines]
    for each in said:
        valid(version, "ProgressNotification", each)
        assert each["params"]["progressToken"] == token
    rising = [each["params"]["progress"] for each in said]
    assert rising == sorted(set(rising)) and rising[0] > 0
    messages = [each["params"].get("message") for each in said]
    assert messages == (["hm", "Looking", "Hel", "lo"] if version >= "2025-03-26" else [None] * 4)


def test_what_is_new_is_what_the_agent_says_and_not_what_its_user_said() -> None:
    events = numbered(
        [
            e.MessageStarted(message="u", role=Role.USER),
            e.PartStarted(part="u", message="u", value="Ple"),
            e.PartDelta(part="u", delta="ase"),
            e.MessageStarted(message="m"),
            e.PartStarted(part="p", message="m", value="On"),
            e.PartDelta(part="p", delta="e"),
            e.MessageStarted(message="n"),
            e.PartStarted(part="q", message="n"),
            e.PartDelta(part="q", delta="Two"),
        ]
    )
    lines = tools.ToolProgress(MESSAGE, "2025-11-25", 1).feed(events)
    assert [json.decode(line)["params"]["message"] for line in lines] == ["On", "e", "Two"]


def test_the_text_of_a_conversation_is_told_wherever_it_is() -> None:
    events = numbered(
        [
            e.PartStarted(part="p", message="m", kind="data"),
            e.PartDelta(part="p", delta={"messages": [{"role": "assistant", "content": "One"}]}),
            e.PartDelta(part="p", delta={"messages": [None, {"content": "Two"}]}),
            e.PartDelta(part="p", delta={"messages": []}),
        ]
    )
    lines = tools.ToolProgress(CHAT, "2025-11-25", 1).feed(events)
    assert [json.decode(line)["params"]["message"] for line in lines] == ["One", "Two"]
    text = numbered(
        [e.PartStarted(part="t", message="m"), e.PartDelta(part="t", delta="Hi"), e.PartDelta(part="t", delta="")]
    )
    assert len(tools.ToolProgress(MESSAGE, "2025-11-25", 1).feed(text)) == 1
