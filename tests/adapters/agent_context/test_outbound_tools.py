"""Plain MCP servers as targets: their tools are agents."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from adapters.agent_context.codec.agents import record_of
from adapters.agent_context.outbound.tools import agent_of
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentGone, Invalid
from gateway.core.types import JsonObject
from tests.adapters.agent_context.outbound_rig import PLAIN, failure, piped
from tests.support.context import FakeContext, context

PROMPT: JsonObject = {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]}
SUM: JsonObject = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
TOOL: JsonObject = {"name": "add", "title": "Adds", "inputSchema": PROMPT, "outputSchema": SUM}
PLAIN_TOOL: JsonObject = {"name": "add", "inputSchema": PROMPT}


def calling(tool: JsonObject = PLAIN_TOOL, input: Any = "1 and 2") -> FakeContext:
    return context(agent_of(tool, None), input)


def test_a_tool_is_described_as_an_agent_that_a_directory_can_list() -> None:
    agent = agent_of(TOOL, "2.1")
    assert (agent.name, agent.description, agent.input_schema, agent.output_schema) == ("add", "Adds", PROMPT, SUM)
    assert agent.version == "2.1" and agent_of(TOOL, None).version == agent_of(TOOL, "").version == "0.0.0"
    assert agent.text_input == "/prompt" and agent.labels == {"tools": ["add"]}
    assert record_of(agent)["capabilities"]["tools"] == ["add"]
    with pytest.raises(AgentBroken):
        agent_of({"title": "nameless"}, None)


async def test_the_tool_is_called_with_the_input_and_its_text_is_the_output() -> None:
    async with piped(PLAIN, agent="add") as house:
        made = calling()
        task, asked = await house.begun(made, "tools/call")
        params = asked["params"]
        assert (params["name"], params["arguments"]) == ("add", {"prompt": "1 and 2"})
        assert "correlationId" not in params["_meta"] and params["_meta"]["traceparent"] == made.traceparent
        token = params["_meta"]["progressToken"]
        await house.agent.tell("notifications/progress", {"progressToken": token, "progress": 1, "total": 2})
        content = [{"type": "text", "text": "it is"}, {"type": "text", "text": "3"}]
        await house.agent.answer(asked["id"], {"content": content})
        await house.done(task)
        assert [event.data for event in made.said(e.Custom)] == [{"progress": 1, "total": 2}]
        assert isinstance(made.end, e.RunFinished) and bytes(made.end.output) == b'{"message":"it is\\n3"}'


async def test_structured_content_is_the_output_of_a_tool_that_says_so() -> None:
    async with piped(PLAIN, agent="add") as house:
        made = calling(TOOL)
        task, asked = await house.begun(made, "tools/call")
        content = [{"type": "text", "text": '{"sum": 3}'}]
        await house.agent.answer(asked["id"], {"content": content, "structuredContent": {"sum": 3}})
        await house.done(task)
        assert isinstance(made.end, e.RunFinished) and bytes(made.end.output) == b'{"sum":3}'


async def test_files_in_the_result_are_the_run_s_and_links_stay_links() -> None:
    data = base64.b64encode(b"\x89PNG").decode()
    content = [
        {"type": "image", "data": data, "mimeType": "image/png"},
        {"type": "audio", "data": data, "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///tmp/a.txt", "text": "hello"}},
        {"type": "resource", "resource": {"uri": "file:///tmp/b.bin", "blob": data, "mimeType": "x/y"}},
        {"type": "resource", "resource": {"uri": "file:///tmp/%2e%2e%2fup", "text": "up"}},
        {"type": "resource", "resource": {"uri": "file:///tmp/..", "text": "up"}},
        {"type": "resource", "resource": {"uri": "c:\\tmp\\a\n.txt", "text": "up"}},
        {"type": "resource_link", "uri": "http://example.org/c", "name": "c"},
        {"type": "text", "text": "there"},
    ]

    async with piped(PLAIN, agent="add") as house:
        made = calling()
        task, asked = await house.begun(made, "tools/call")
        await house.agent.answer(asked["id"], {"content": content})
        await house.done(task)
        kept = [(artifact.name, artifact.media_type, data) for artifact, data in made.artifacts]
        assert kept == [
            ("image-1", "image/png", b"\x89PNG"),
            ("audio-2", "audio/wav", b"\x89PNG"),
            ("a.txt", "text/plain", b"hello"),
            ("b.bin", "x/y", b"\x89PNG"),
            ("up", "text/plain", b"up"),
            ("resource-6.txt", "text/plain", b"up"),
            ("a.txt", "text/plain", b"up"),
        ]
        (link,) = [event for event in made.said(e.PartStarted) if event.kind == "file"]
        assert link.value["uri"] == "http://example.org/c"
        assert bytes(made.end.output) == b'{"message":"there"}'  # type: ignore[attr-defined]
        made = calling()
        task, asked = await house.begun(made, "tools/call")
        await house.agent.answer(asked["id"], {"content": [{"type": "image", "data": "?"}]})
        with pytest.raises(AgentBroken):
            await house.done(task)


async def test_a_tool_that_fails_fails_the_run_with_its_words() -> None:
    async with piped(PLAIN, agent="add") as house:
        made = calling()
        task, asked = await house.begun(made, "tools/call")
        result = {"content": [{"type": "text", "text": "no such number"}], "isError": True}
        await house.agent.answer(asked["id"], result)
        await house.done(task)
        assert (failure(made).code, failure(made).message) == ("agent_failed", "no such number")


async def test_what_a_tool_asks_is_an_interrupt() -> None:
    async with piped(PLAIN, agent="add") as house:
        made = calling()
        made.answers = [{"sure": True}]
        task, asked = await house.begun(made, "tools/call")
        form = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
        answer = await house.agent.ask("elicitation/create", {"message": "?", "requestedSchema": form})
        assert answer["result"] == {"action": "accept", "content": {"sure": True}}
        await house.agent.answer(asked["id"], {"content": []})
        await house.done(task)
        assert isinstance(made.end, e.RunFinished)


async def test_a_tool_is_cancelled_and_a_server_may_die() -> None:
    async with piped(PLAIN, agent="add") as house:
        made = calling()
        task, asked = await house.begun(made, "tools/call")
        made.cancel_now()
        await house.outbound.cancel(made)
        assert (await house.agent.hear("notifications/cancelled"))["params"]["requestId"] == asked["id"]
        await house.done(task)
        assert isinstance(made.end, e.RunCancelled)
        task, asked = await house.begun(calling(), "tools/call")
        await house.agent.hang_up()
        with pytest.raises(AgentGone):
            await house.done(task)


async def test_arguments_are_an_object() -> None:
    async with piped(PLAIN, agent="add") as house:
        with pytest.raises(Invalid):
            await house.outbound.run(calling(input=[1]))
