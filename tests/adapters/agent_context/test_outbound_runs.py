"""Runs of agents of the protocol, however they are reached: what is sent, and what is read."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core import events as e
from gateway.core.errors import AgentBroken, OutcomeUnknown
from gateway.core.types import JsonObject
from tests.adapters.agent_context.outbound_rig import BOTH, CORRELATION, failure, piped, registered, running, says

WAYS = pytest.mark.parametrize("way", BOTH)


@WAYS
async def test_an_agent_is_sent_a_message_with_the_run_s_correlation_id_and_trace(way: str) -> None:
    async with BOTH[way]() as house:
        context = running("hello")
        task, asked = await house.begun(context)
        params = asked["params"]
        assert params["source"] == "interlingua" and params["target"] == "it"
        assert params["content"] == {"type": "request", "payload": {"messages": [{"text": "hello"}]}}
        assert params["_meta"]["correlationId"] == CORRELATION
        assert params["_meta"]["traceparent"] == context.traceparent
        assert params["_meta"]["progressToken"]
        await house.agent.answer(asked["id"], says("hi"))
        await house.done(task)
        assert context.output == {"message": "hi"}
        assert isinstance(context.end, e.RunFinished)


@WAYS
async def test_a_message_of_the_same_protocol_goes_as_its_client_sent_it(way: str) -> None:
    sent: JsonObject = {
        "source": "other",
        "target": "named-otherwise",
        "content": {"type": "request", "format": "nlip", "payload": {"messages": [{"text": "x"}], "mine": [1, None]}},
        "extra": True,
        "_meta": {"correlationId": "c-7", "progressToken": 9, "theirs": 1, "traceparent": 5},
    }

    async with BOTH[way]() as house:
        context = running("x", protocol="agent_context", creation=sent, attributes={})
        task, asked = await house.begun(context)
        params = asked["params"]
        assert params["content"] == sent["content"]
        source = "other" if way == "registered" else "interlingua"
        assert (params["source"], params["target"], params["extra"]) == (source, "it", True)
        assert params["_meta"]["correlationId"] == "c-7" and params["_meta"]["theirs"] == 1
        assert params["_meta"]["progressToken"] != 9 and params["_meta"]["traceparent"] == context.traceparent
        await house.agent.answer(asked["id"], {"content": {"type": "response", "payload": {"odd": [1]}}})
        await house.done(task)
        assert isinstance(context.end, e.RunFinished) and context.end.origin == {"payload": {"odd": [1]}}


@WAYS
async def test_updates_are_text_that_is_appended_and_the_response_wins(way: str) -> None:
    async with BOTH[way]() as house:
        context = running()
        task, asked = await house.begun(context)
        await house.agent.update("hel")
        await house.agent.update("lo")
        await context.until(lambda it: it.output == {"message": "hello"})
        await house.agent.answer(asked["id"], says("hello!"))
        await house.done(task)
        assert isinstance(context.end, e.RunFinished)
        assert bytes(context.end.output) == b'{"message":"hello!"}'


@WAYS
async def test_a_response_that_says_nothing_leaves_what_was_told(way: str) -> None:
    async with BOTH[way]() as house:
        context = running()
        task, asked = await house.begun(context)
        await house.agent.update("all of it")
        await house.agent.answer(asked["id"], {"status": "completed"})
        await house.done(task)
        assert isinstance(context.end, e.RunFinished) and context.output == {"message": "all of it"}


@WAYS
async def test_progress_is_told_as_an_event_before_and_after_the_acknowledgement(way: str) -> None:
    async with BOTH[way]() as house:
        context = running()
        task, asked = await house.begun(context)
        token = asked["params"]["_meta"]["progressToken"]
        await house.agent.tell("notifications/progress", {"progressToken": token, "progress": 1, "message": "a"})
        await house.agent.answer(asked["id"])
        await house.agent.tell("notifications/progress", {"progressToken": token, "progress": 2, "total": 2})
        await house.agent.respond("done")
        await house.done(task)
        told = [event.data for event in context.said(e.Custom)]
        assert told == [{"progress": 1, "message": "a"}, {"progress": 2, "total": 2}]
        assert context.output == {"message": "done"} or bytes(context.end.output) == b'{"message":"done"}'  # type: ignore[attr-defined]


ACKNOWLEDGED: list[Any] = [
    {},
    {"status": "accepted"},
    {"status": "Pending"},
    {"_meta": {}},
    {"task": {"status": "running"}},
]


@WAYS
@pytest.mark.parametrize("bare", ACKNOWLEDGED)
async def test_an_acknowledged_run_stays_open_until_its_response_comes(way: str, bare: Any) -> None:
    async with BOTH[way]() as house:
        context = running()
        task, asked = await house.begun(context)
        await house.agent.answer(asked["id"], bare)
        await house.agent.update("some ")
        await context.until(lambda it: it.output == {"message": "some "})
        assert not task.done()
        await house.agent.respond("some more")
        await house.done(task)
        assert isinstance(context.end, e.RunFinished) and bytes(context.end.output) == b'{"message":"some more"}'


@WAYS
async def test_messages_that_come_as_requests_are_answered_and_count(way: str) -> None:
    async with BOTH[way]() as house:
        context = running()
        task, asked = await house.begun(context)
        update = house.agent.message("update", {"messages": [{"text": "u"}]})
        assert (await house.agent.ask("agent/message", update))["result"] == {"status": "received"}
        await house.agent.answer(asked["id"], {"status": "received"})
        response = house.agent.message("response", {"messages": [{"text": "r"}]})
        assert (await house.agent.ask("agent/message", response))["result"] == {"status": "received"}
        await house.done(task)
        assert context.said(e.PartDelta) and bytes(context.end.output) == b'{"message":"r"}'  # type: ignore[attr-defined]


FAILURES: list[tuple[Any, str, bool]] = [
    ({"error": {"code": -32004, "message": "asleep"}}, "agent_gone", True),
    ({"error": {"code": -32001, "message": "bad payload"}}, "invalid", False),
    ({"error": {"code": -7, "message": "own", "data": {"retryable": True}}}, "agent_failed", True),
    ({"error": "just words"}, "agent_failed", False),
    ({"status": "failed", "message": "why"}, "agent_failed", False),
    ({"content": {"type": "response", "payload": {"error": {"code": -32003, "message": "no"}}}}, "denied", False),
    ({"task": {"id": "t", "status": "failed", "error": {"code": -32008, "message": "gave up"}}}, "agent_failed", False),
    ({"task": {"id": "t", "status": "expired"}}, "deadline", False),
]


@WAYS
@pytest.mark.parametrize(("result", "code", "retryable"), FAILURES)
async def test_an_error_inside_of_an_answer_fails_the_run(way: str, result: Any, code: str, retryable: bool) -> None:
    async with BOTH[way]() as house:
        context = running()
        task, asked = await house.begun(context)
        await house.agent.answer(asked["id"], result)
        await house.done(task)
        found = failure(context)
        assert (found.code, found.retryable) == (code, retryable) and found.message


@WAYS
async def test_an_error_answer_and_an_error_message_fail_the_run_in_the_agent_s_words(way: str) -> None:
    async with BOTH[way]() as house:
        first, second = running(), running(attributes={"correlationId": "corr-2"})
        one, asked = await house.begun(first)
        await house.agent.answer(asked["id"], error={"code": -32001, "message": "no", "data": {"path": "/x"}})
        await house.done(one)
        assert failure(first).message == "no"
        assert first.end.origin == {"error": {"code": -32001, "message": "no", "data": {"path": "/x"}}}
        two, asked = await house.begun(second)
        await house.agent.answer(asked["id"])
        house.agent.correlation = "corr-2"
        await house.agent.tell(
            "agent/error",
            {
                "error": {"code": -32001, "message": "Invalid", "details": {"expected": "a", "received": "null"}},
                "_meta": {"correlationId": "corr-2"},
            },
        )
        await house.done(two)
        assert second.end.origin is not None
        assert second.end.origin["error"]["data"]["details"] == {"expected": "a", "received": "null"}


@WAYS
async def test_two_runs_with_the_same_correlation_id_are_told_apart(way: str) -> None:
    async with BOTH[way]() as house:
        one, two = running(), running()
        first, asked = await house.begun(one)
        second, again = await house.begun(two)
        ids = [each["params"]["_meta"]["correlationId"] for each in (asked, again)]
        assert ids == [CORRELATION, f"{CORRELATION}~2"]
        await house.agent.answer(again["id"])
        await house.agent.answer(asked["id"])
        house.agent.correlation = ids[1]
        await house.agent.respond("second")
        house.agent.correlation = ids[0]
        await house.agent.respond("first")
        await house.done(first)
        await house.done(second)
        assert bytes(one.end.output) == b'{"message":"first"}'  # type: ignore[attr-defined]
        assert bytes(two.end.output) == b'{"message":"second"}'  # type: ignore[attr-defined]


@WAYS
async def test_a_big_payload_arrives_whole(way: str) -> None:
    text = "x" * 700_000

    async with BOTH[way]() as house:
        context = running(text)
        task, asked = await house.begun(context)
        assert asked["params"]["content"]["payload"]["messages"][0]["text"] == text
        await house.agent.update(text)
        await house.agent.answer(asked["id"], says(text))
        await house.done(task)
        assert len(bytes(context.end.output)) > len(text)  # type: ignore[attr-defined]


@WAYS
async def test_a_run_of_before_a_restart_is_not_taken_up(way: str) -> None:
    async with BOTH[way]() as house:
        with pytest.raises(OutcomeUnknown):
            await house.outbound.attach(running())


@WAYS
async def test_an_answer_that_is_no_object_is_the_agent_s_fault(way: str) -> None:
    async with BOTH[way]() as house:
        task, asked = await house.begun(running())
        await house.agent.answer(asked["id"], [1])
        with pytest.raises(AgentBroken):
            await house.done(task)


async def test_delegations_are_sent_to_who_takes_tasks_and_their_results_are_read() -> None:
    task_of: JsonObject = {
        "id": "t-1",
        "type": "analysis",
        "payload": {"dataset": "d"},
        "requirements": {"capabilities": ["nlp"]},
    }

    async with piped() as house:
        context = running(protocol="agent_context", attributes={"task": task_of, "correlationId": "c"})
        task, asked = await house.begun(context, "agent/delegate")
        assert asked["params"]["task"] == {**task_of, "status": "pending"}
        done = {**task_of, "status": "completed", "result": {"messages": [{"text": "42"}]}}
        await house.agent.answer(asked["id"], {"task": done})
        await house.done(task)
        assert bytes(context.end.output) == b'{"message":"42"}'  # type: ignore[attr-defined]
    async with piped({"agent": {}}) as house:
        context = running(protocol="agent_context", attributes={"task": task_of})
        task, asked = await house.begun(context, "agent/message")
        assert asked["params"]["content"]["payload"] == {"dataset": "d"}
        await house.agent.answer(asked["id"], says("ok"))
        await house.done(task)
    async with piped(call="delegate") as house:
        context = running("do it")
        task, asked = await house.begun(context, "agent/delegate")
        assert asked["params"]["task"]["payload"] == {"messages": [{"text": "do it"}]}
        assert asked["params"]["task"]["id"] == context.run.id
        await house.agent.answer(asked["id"], says("ok"))
        await house.done(task)


async def test_an_agent_that_only_knows_the_protocol_s_own_version_is_spoken_to() -> None:
    async with piped(version="ACP-0.1") as house:
        task, asked = await house.begun(running())
        await house.agent.answer(asked["id"], says("ok"))
        await house.done(task)


async def test_an_agent_of_ours_is_named_only_to_who_can_know_it() -> None:
    attributes = {"source": "writer", "correlationId": "c", "hops": 2}

    async with piped() as house:
        task, asked = await house.begun(running(protocol="agent_context", attributes=attributes))
        assert asked["params"]["source"] == "interlingua"
        assert asked["params"]["_meta"]["interlingua/source"] == "writer"
        assert asked["params"]["_meta"]["interlingua/hops"] == 2
        await house.agent.answer(asked["id"], says("ok"))
        await house.done(task)
    async with registered() as house:
        task, asked = await house.begun(running(protocol="agent_context", attributes=attributes))
        assert asked["params"]["source"] == "writer"
        question = house.agent.message("update", {"messages": [{"text": "to you"}]}, target="writer")
        house.agent.correlation = "c"
        question["_meta"] = {"correlationId": "c"}
        await house.agent.tell("agent/message", question)
        await house.agent.answer(asked["id"], says("ok"))
        await house.done(task)
