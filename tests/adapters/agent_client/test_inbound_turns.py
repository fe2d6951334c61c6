"""Prompts and what comes of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentFailed, AgentGone, NotFound
from gateway.core.types import Agent, AgentCapabilities, IfBusy, RunRequest, StopReason
from tests.adapters.agent_client.editor import said
from tests.adapters.agent_client.inbound_rig import rig, scripted
from tests.support.scripted import AGENT, Scripted, echo, held, route, until


async def test_a_prompt_streams_its_text_and_ends_the_turn() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        answer = await editor.prompt(session, "one two three")
        assert answer == {"stopReason": "end_turn"}
        assert editor.text() == "one two three "
        assert set(editor.sessions) == {session}


async def test_everything_that_was_said_comes_before_the_answer() -> None:
    async def agent(context: RunContext) -> None:
        for number in range(500):
            context.emit(e.PartDelta(part="text", delta=f"{number} "))
        context.emit(e.RunFinished())
        await context.drain()

    seen: list[int] = []
    async with rig(scripted(agent)) as gateway:
        editor, session = await gateway.opened()
        future = await editor.start(session)
        future.add_done_callback(lambda _: seen.append(len(editor.text().split())))
        await future
        await asyncio.sleep(0)
    assert seen == [500]


async def test_what_an_agent_of_another_protocol_says_at_once_is_told_at_once() -> None:
    async def agent(context: RunContext) -> None:
        context.emit(*(e.PartDelta(part="text", delta=word) for word in ("a", "b", "c")), e.RunFinished())
        await context.drain()

    async with rig(scripted(agent)) as gateway:
        editor, session = await gateway.opened()
        await editor.prompt(session)
        assert [each["content"]["text"] for each in editor.of("agent_message_chunk")] == ["abc"]


async def test_thoughts_plans_and_tool_calls_are_told_as_such() -> None:
    async def agent(context: RunContext) -> None:
        context.emit(
            e.PartStarted(part="t", message="m", kind="thought"),
            e.PartDelta(part="t", delta="hmm"),
            e.PlanUpdated(entries=(e.PlanEntry(content="look", status="in_progress"),)),
            e.ToolCallStarted(call="c1", name="grep", title="Searching", kind="search", input={"for": "x"}),
            e.ToolCallEnded(call="c1", output="found"),
            e.PartDelta(part="text", delta="Done."),
            e.RunFinished(),
        )
        await context.drain()

    async with rig(scripted(agent)) as gateway:
        editor = await gateway.connect()
        await editor.prompt(await editor.new())
        assert editor.kinds() == ["agent_thought_chunk", "plan", "tool_call", "tool_call_update", "agent_message_chunk"]
        assert editor.of("tool_call_update")[0]["status"] == "completed"


@pytest.mark.parametrize("reason", [StopReason.MAX_TOKENS, StopReason.REFUSAL, StopReason.MAX_TURN_REQUESTS])
async def test_the_agents_stop_reason_is_the_answer(reason: StopReason) -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.RunFinished(stop_reason=reason))
        await context.drain()

    async with rig(scripted(agent)) as gateway:
        editor = await gateway.connect()
        assert await editor.prompt(await editor.new()) == {"stopReason": reason.value}


async def test_an_agent_that_fails_is_an_error_that_says_what_failed() -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="I will try"))
        await context.drain()
        raise AgentFailed("the model is on fire", detail="secret")

    async with rig(scripted(agent)) as gateway:
        editor, session = await gateway.opened()
        error = await editor.refused("session/prompt", said(session, "go"))
        assert error.code == -32603
        assert "on fire" in error.message and "secret" not in str(error.data)
        assert error.data["code"] == "agent_failed"
        assert editor.text() == "I will try"


async def test_the_session_goes_on_after_a_failure() -> None:
    fail = [True, False]

    async def agent(context: RunContext) -> None:
        if fail.pop(0):
            raise AgentFailed("not now")
        await echo(context)

    async with rig(scripted(agent)) as gateway:
        editor, session = await gateway.opened()
        assert (await editor.refused("session/prompt", said(session, "go"))).code == -32603
        assert await editor.prompt(session, "again") == {"stopReason": "end_turn"}


async def test_a_second_prompt_in_a_busy_session_is_refused_and_the_first_goes_on() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go))) as gateway:
        editor, session = await gateway.opened()
        first = await editor.start(session)
        error = await editor.refused("session/prompt", said(session, "and another thing"))
        assert error.code == -32600 and session in error.message
        go.set()
        assert await first == {"stopReason": "end_turn"}
        assert editor.text() == "before after"


async def test_a_session_that_is_busy_with_another_clients_run_is_said_to_be_so_in_editors_words() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go))) as gateway:
        editor, session = await gateway.opened()
        asked = RunRequest(agent="scripted", protocol="agent_connect", thread=session, input={"message": "go"})
        other = await gateway.engine.runs.start(asked)
        error = await editor.refused("session/prompt", said(session, "and another thing"))
        assert error.code == -32600 and f"session {session} is busy" in error.message
        go.set()
        await gateway.engine.runs.wait(other.id)
        assert await editor.prompt(session, "again") == {"stopReason": "end_turn"}


async def test_two_sessions_of_one_connection_run_side_by_side() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go)), scripted(echo, "quick")) as gateway:
        editor = await gateway.connect()
        slow, quick = await editor.new(), await editor.new()
        first = await editor.start(slow)
        await editor.heard("before")
        second = await editor.start(quick)
        await editor.until(lambda: editor.sessions.count(quick) == 1)
        assert not first.done() and not second.done()
        go.set()
        assert await first == await second == {"stopReason": "end_turn"}


async def test_a_prompt_carries_trace_metadata_and_the_request_itself_to_the_run() -> None:
    parent = "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01"
    async with rig(scripted(echo)) as gateway:
        editor = await gateway.connect()
        session = await editor.new(_meta={"team": "mail", "traceparent": parent})
        params = {**said(session, "hello"), "_meta": {"traceparent": parent, "acme/debug": True}}
        await editor.request("session/prompt", params)
        (record,) = await gateway.runs(session)
        assert record.request.creation == params
        assert record.request.metadata == {"team": "mail", "acme/debug": True}
        assert record.request.traceparent is not None
        assert record.request.traceparent.split("-")[1] == parent.split("-")[1]
        assert record.request.input == {"message": "hello"}


async def test_links_and_embedded_files_are_part_of_the_text() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        prompt = [
            {"type": "text", "text": "Look at"},
            {"type": "resource_link", "uri": "file:///work/a.py", "name": "a.py"},
            {"type": "resource", "resource": {"uri": "file:///work/b.py", "text": "print(1)"}},
        ]
        await editor.request("session/prompt", {"sessionId": session, "prompt": prompt})
        assert all(word in editor.text() for word in ("Look at", "file:///work/a.py", "b.py", "print(1)"))


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "hologram"},
        {"text": "no type"},
        "no object",
    ],
)
async def test_content_that_the_agent_cannot_take_is_refused_and_named(block: object) -> None:
    async with rig(scripted(echo, capabilities=replace(AGENT.capabilities, files=()))) as gateway:
        editor, session = await gateway.opened()
        prompt = [{"type": "text", "text": "see"}, block]
        error = await editor.refused("session/prompt", {"sessionId": session, "prompt": prompt})
        assert error.code == -32602
        assert error.data["path"].startswith("/prompt/1")
        assert await gateway.runs(session) == []
        assert await editor.prompt(session) == {"stopReason": "end_turn"}


async def test_a_run_that_another_client_starts_on_the_thread_is_told_with_what_was_asked() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        request = RunRequest(
            agent="scripted", protocol="agent_connect", thread=session, input={"message": "from elsewhere"}
        )
        await gateway.engine.runs.start(request)
        await editor.heard("from elsewhere ")
        assert editor.text("user_message_chunk") == "from elsewhere"
        assert editor.kinds()[0] == "user_message_chunk"


async def test_runs_that_wait_for_their_turn_are_told_one_after_the_other() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go))) as gateway:
        editor, session = await gateway.opened()
        first = await editor.start(session)
        await editor.heard("before")
        await gateway.engine.runs.start(
            RunRequest(
                agent="scripted",
                protocol="agent_connect",
                thread=session,
                input={"message": "next"},
                if_busy=IfBusy.ENQUEUE,
            )
        )
        go.set()
        assert await first == {"stopReason": "end_turn"}
        await editor.until(lambda: editor.text() == "before afterbefore after")
        assert editor.kinds().index("user_message_chunk") == 2


async def test_an_agent_without_a_text_input_takes_json_or_asks_for_the_value() -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta=str(context.run.request.input["count"] + 1)))
        context.emit(e.RunFinished())
        await context.drain()

    schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}

    async with rig(scripted(agent, input_schema=schema)) as gateway:
        editor, session = await gateway.opened()
        await editor.prompt(session, '{"count": 41}')
        assert editor.text() == "42"
        await editor.prompt(session, "forty")
        assert "- count: a whole number" in editor.text()
        await editor.prompt(session, "39")
        assert editor.text().endswith("40")


async def test_the_final_document_of_an_agent_that_says_no_text_is_told() -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.RunFinished(output=Raw(b'{"message": "all at once"}')))
        await context.drain()

    async with rig(scripted(agent)) as gateway:
        editor = await gateway.connect()
        await editor.prompt(await editor.new())
        assert editor.text() == "all at once"


async def test_what_could_not_be_said_is_named_in_the_answer() -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.Custom(name="other", data={"x": 1}), e.PartDelta(part="text", delta="hi"), e.RunFinished())
        await context.drain()

    async with rig(scripted(agent)) as gateway:
        editor = await gateway.connect()
        answer = await editor.prompt(await editor.new())
        assert answer["_meta"]["interlingua"]["lost"] == ["custom"]


async def test_what_is_corrected_in_the_end_is_told_anew_and_named_in_the_answer() -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="output", delta={"message": "It is red."}))
        await context.drain()
        context.emit(e.RunFinished(output=Raw(b'{"message": "It is blue."}')))
        await context.drain()

    async with rig(scripted(agent)) as gateway:
        editor = await gateway.connect()
        answer = await editor.prompt(await editor.new())
        assert editor.text().startswith("It is red.") and editor.text().endswith("It is blue.")
        assert answer == {"stopReason": "end_turn", "_meta": {"interlingua": {"lost": ["rewrite"]}}}


async def test_a_lost_update_is_counted_on_the_run() -> None:
    go = asyncio.Event()

    async def agent(context: RunContext) -> None:
        context.emit(e.Custom(name="other", data={"x": 1}), e.PartDelta(part="text", delta="hi"))
        await context.drain()
        await go.wait()
        context.emit(e.RunFinished())
        await context.drain()

    async with rig(scripted(agent)) as gateway:
        editor, other = await gateway.connect(), await gateway.connect()
        session = await editor.new()
        await other.load(session)
        turn = await editor.start(session)
        await editor.heard("hi")
        await other.heard("hi")
        go.set()
        await turn
        (record,) = await gateway.runs(session)
        assert record.losses == {"custom": 1}


async def test_a_slow_client_holds_bounded_memory_and_misses_nothing() -> None:
    chunk = "x" * 50_000

    async def agent(context: RunContext) -> None:
        for _ in range(160):
            context.emit(e.PartDelta(part="text", delta=chunk))
            await context.drain()
            for _ in range(4):  # whoever watches can keep up
                await asyncio.sleep(0)
        context.emit(e.RunFinished())
        await context.drain()

    async with rig(scripted(agent)) as gateway:
        editor, session = await gateway.opened(limit=64 * 1024)
        editor.lenient = True  # the others look at such messages
        editor.reads.clear()
        turn = await editor.start(session)
        (connection,) = gateway.connections(session)
        await gateway.engine.runs.wait((await gateway.run(session)).id)

        def waiting() -> int:
            return connection._peer._outbox.size + editor.pipe.most_unread

        await until(lambda: waiting() > 4_000_000)
        assert waiting() < 6_000_000, "as much as may wait, and no more"
        editor.reads.set()
        assert await turn == {"stopReason": "end_turn"}
        assert editor.text() == chunk * 160


async def test_a_session_is_not_ended_by_its_client_going_away() -> None:
    go = asyncio.Event()
    async with rig(scripted(held(lambda: go))) as gateway:
        editor, session = await gateway.opened()
        await editor.start(session)
        await editor.heard("before")
        await editor.pipe.aclose()
        (record,) = await gateway.runs(session)
        go.set()
        ended = await gateway.engine.runs.wait(record.id)
        assert ended is not None and ended.status == "success"
        await until(lambda: not gateway.inbound.clients.connections)


async def test_an_agent_that_cannot_be_reached_is_an_error_of_session_new() -> None:
    class Down(Scripted):
        async def describe(self) -> Agent:
            raise AgentGone("nobody is there")

    async with rig((route(), Down(echo))) as gateway:
        editor = await gateway.connect()
        error = await editor.refused("session/new", {"cwd": "/", "mcpServers": []})
        assert error.code == -32603
        assert error.message == "nobody is there"
        assert error.data == {"code": "agent_gone", "retryable": True}
        assert (await editor.request("session/list", {}))["sessions"] == []


async def test_an_editor_is_told_once_that_an_agent_does_not_know_the_earlier_turns() -> None:
    forgetful = AgentCapabilities(streaming=True, tool=True)
    async with rig(scripted(echo, capabilities=forgetful)) as gateway:
        editor, session = await gateway.opened()
        answers = [await editor.prompt(session, word) for word in ("one", "two", "three")]
        told = [one.get("_meta", {}).get("interlingua", {}).get("lost") for one in answers]
        assert told == [None, ["earlier_turns"], None]


async def test_a_run_that_cannot_be_told_does_not_end_the_session() -> None:
    async with rig(scripted(echo)) as gateway:
        editor, session = await gateway.opened()
        watch, gateway.engine.runs.watch = gateway.engine.runs.watch, _breaks  # type: ignore[method-assign]
        error = await editor.refused("session/prompt", said(session, "one"))
        assert (error.code, error.message) == (-32002, "the store has lost it")
        gateway.engine.runs.watch = watch  # type: ignore[method-assign]
        await gateway.engine.runs.wait((await gateway.run(session)).id)
        assert await editor.prompt(session, "two") == {"stopReason": "end_turn"}


def _breaks(run_id: str) -> Any:
    raise NotFound("the store has lost it")
