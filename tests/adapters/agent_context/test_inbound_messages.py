"""`agent/message`: to agents of other protocols and to agents that registered, as a request and as a notification."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.agent_context.inbound import environment, work
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Answer, Interrupt, Run, RunQuery, RunStatus
from tests.adapters.agent_context.inbound_rig import Rig, rig
from tests.adapters.agent_context.inbound_talker import AGENT, in_seconds, refused, request, response, text_of
from tests.support.scripted import Scripted, route, until


async def test_a_message_is_a_run_of_its_target_and_its_answer_the_output() -> None:
    async with rig() as there, there.socket() as client:
        found = await client.message("echo", "hello my friend", meta={"correlationId": "c-1"})
        assert found["status"] == "completed"
        assert found["content"] == {"type": "response", "payload": {"messages": [{"text": "hello my friend "}]}}
        assert found["_meta"]["correlationId"] == "c-1"
        run = await there.engine.runs.get(found["_meta"]["interlingua/run"])
        assert (run.agent, run.request.protocol, run.status) == ("echo", "agent_context", RunStatus.SUCCESS)
        assert run.request.attributes["correlationId"] == "c-1"
        assert client.told == []


async def test_a_correlation_id_is_made_where_there_is_none() -> None:
    async with rig() as there, there.socket() as client:
        first, second = [(await client.message("echo"))["_meta"]["correlationId"] for _ in range(2)]
        assert first != second


async def test_text_is_told_as_progress_to_who_sent_a_token_and_as_updates_to_who_speaks_the_protocol() -> None:
    async with rig() as there:
        for hello, meta in (({}, {"progressToken": "t"}), (AGENT, {"correlationId": "c"}), ({}, {})):
            async with there.socket(hello=hello) as client:
                there.gate.clear()
                asked = await client.begin("agent/message", target="held", content=request(), meta=meta)
                if not meta:
                    await there.newest("held")
                elif "progressToken" in meta:
                    (told,) = await client.hears("notifications/progress")
                    assert (told["progressToken"], told["message"]) == ("t", "before ")
                else:
                    (told,) = await client.hears("agent/message")
                    assert told["source"] == "held"
                    assert told["content"] == {"type": "update", "payload": {"messages": [{"text": "before "}]}}
                    assert told["_meta"]["correlationId"] == "c"
                assert not asked.done()
                there.gate.set()
                assert text_of(await asked) == "before after"
                assert bool(client.told) is bool(meta)


async def test_text_is_told_once_to_who_speaks_the_protocol_and_sends_a_token() -> None:
    async with rig() as there, there.socket(hello=AGENT) as client:
        await client.message("echo", "one two", meta={"progressToken": "t", "correlationId": "c"})
        progress, updates = client.params_of("notifications/progress"), client.params_of("agent/message")
        assert progress and all(each.keys() == {"progressToken", "progress"} for each in progress)
        said = "".join(each["content"]["payload"]["messages"][0]["text"] for each in updates)
        assert said == "one two "


async def test_an_input_that_an_agents_schema_wants_comes_in_the_payload_and_the_whole_output_goes_back() -> None:
    async with rig() as there, there.socket() as client:
        content = {"type": "request", "payload": {"input": {"count": 4}}}
        found = await client.ask("agent/message", target="strict", content=content)
        assert found["content"]["payload"]["output"] == {"count": 5}
        content = {"type": "request", "payload": {"count": 1}}
        found = await client.ask("agent/message", target="strict", content=content)
        assert found["content"]["payload"]["output"] == {"count": 2}


async def test_a_file_is_part_of_the_payload() -> None:
    async with rig() as there, there.socket() as client:
        (file,) = (await client.message("filer"))["content"]["payload"]["artifacts"]
        assert (file["name"], file["mimeType"], file["size"]) == ("notes.txt", "text/plain", 5)


async def test_a_session_id_is_a_thread_of_the_client_with_the_agent() -> None:
    async with rig() as there, there.socket() as client:
        content = request("hi", context={"sessionId": "s-1"})
        for target in ("echo", "echo", "asker"):
            asked = await client.begin("agent/message", target=target, content=content)
            if target == "echo":
                await asked
        threads = [one.thread for one in (await there.newest("echo"), await there.newest("asker"))]
        assert None not in threads and threads[0] != threads[1]
        assert await there.engine.runs.count(_on(threads[0])) == 2

        content = {"type": "request", "payload": {"input": {"count": 1}, "context": {"sessionId": "s-1"}}}
        for lost in (None, {"earlier_turns": 1}):
            found = await client.ask("agent/message", target="strict", content=content)
            assert found["_meta"].get("interlingua/lost") == lost, "it keeps no threads, and takes no conversation"


async def test_of_two_messages_of_a_session_at_once_the_second_is_refused_in_this_protocols_words() -> None:
    async with rig() as there, there.socket() as client:
        there.gate.clear()
        content = request("hi", context={"sessionId": "s-1"})
        first = await client.begin("agent/message", target="held", content=content)
        await there.newest("held")
        error = await refused(client.ask("agent/message", target="held", content=content))
        assert "conversation is busy" in error.message and "thread" not in error.message
        there.gate.set()
        assert text_of(await first) == "before after"


def _on(thread: str | None) -> Any:
    from gateway.core.types import RunQuery

    return RunQuery(thread=thread)


async def test_a_failure_is_an_error_with_the_code_of_the_protocol_and_the_correlation_id() -> None:
    async with rig() as there, there.socket() as client:
        error = await refused(client.message("failer", meta={"correlationId": "c-2"}))
        assert (error.code, error.message) == (-32008, "it failed on purpose")
        assert error.data["correlationId"] == "c-2" and error.data["code"] == "agent_failed"
        assert error.data["retryable"] is False and "secret" not in str(error.data)


async def test_a_notification_is_answered_by_a_message_and_a_failed_one_by_an_error() -> None:
    async with rig() as there, there.socket() as client:
        await client.tell("agent/message", target="echo", content=request("one two"), meta={"correlationId": "a"})
        (told,) = await client.hears("agent/message")
        assert (told["source"], told["content"]["type"], text_of(told)) == ("echo", "response", "one two ")
        assert told["_meta"]["correlationId"] == "a"
        await client.tell("agent/message", target="failer", content=request(), meta={"correlationId": "b"})
        (told,) = await client.hears("agent/error")
        assert told["error"]["code"] == -32008 and told["_meta"] == {"correlationId": "b"}
        await client.tell("agent/message", target="nobody", content=request(), meta={"correlationId": "c"})
        told = (await client.hears("agent/error", 2))[1]
        assert told["error"]["code"] == -32002 and told["_meta"] == {"correlationId": "c"}


async def test_a_message_taken_back_or_left_behind_cancels_its_run() -> None:
    async with rig() as there:
        async with there.socket() as client:
            asked = await client.begin("agent/message", target="held", content=request())
            await there.newest("held")
            await client.cancel(asked)
            assert (await refused(asked)).code == -32800
            await _ends(there, "held", RunStatus.CANCELLED)
        for how in ("agent/message", "notification"):
            there.gate.clear()
            before = (await there.newest("held")).id
            async with there.socket() as client:
                if how == "notification":
                    await client.tell("agent/message", target="held", content=request())
                else:
                    await client.begin("agent/message", target="held", content=request())
                await _newer(there, before)
            await _ends(there, "held", RunStatus.CANCELLED)


async def _newer(there: Rig, before: str) -> None:
    async with asyncio.timeout(30):
        while (await there.newest("held")).id == before:  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.002)


async def _ends(there: Rig, agent: str, status: RunStatus) -> Run:
    await until(lambda: not any(live.run.agent == agent for live in there.engine.live.values()))
    found = await there.newest(agent)
    assert found.status is status
    return found


async def test_a_deadline_in_the_past_is_refused_and_one_that_passes_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as there, there.socket() as client:
        past = {"constraints": {"deadline": "2025-02-22T00:00:00Z"}}
        error = await refused(
            client.ask("agent/message", target="held", content=request(requirements=past), meta={"correlationId": "d"})
        )
        assert error.code == -32006 and error.data["correlationId"] == "d"
        assert error.data["details"] == {"expected": "a deadline that is not past", "received": "2025-02-22T00:00:00Z"}
        assert error.data["path"] == "/content/payload/requirements/constraints/deadline"
        assert not await there.engine.runs.count(_on(None))

        monkeypatch.setattr(work, "ahead", lambda *_: None)  # it came in time, however slow the machine is
        soon = {"constraints": {"deadline": in_seconds(0.2)}}
        error = await refused(client.ask("agent/message", target="held", content=request(requirements=soon)))
        assert (error.code, error.data["code"]) == (-32006, "deadline")
        await _ends(there, "held", RunStatus.CANCELLED)


async def test_what_a_client_writes_beside_its_message_is_no_limit_once_the_agent_has_asked() -> None:
    async with rig() as there, there.http() as client:
        asked = {"type": "request", "payload": {"messages": [{"text": "x"}]}}
        rubbish = {"requirements": {"constraints": {"maxTokens": "many"}}, "context": {"sessionId": 5}}
        error = await refused(client.ask("agent/message", target="asker", content=asked, meta=rubbish))
        answer = {"type": "request", "payload": {"answer": {"ok": True}}}
        meta = {"interlingua/resume": error.data["resume"]}
        done = await client.ask("agent/message", target="asker", content=answer, meta=meta)
        assert text_of(done) == "Let me see. answered {'ok': True}"


async def test_a_deadline_holds_for_what_comes_after_a_question_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(context: RunContext) -> None:
        await context.ask(Interrupt(id="q", kind="input", message="Is it?", answer_schema={"type": "string"}))
        await asyncio.Event().wait()

    monkeypatch.setattr(work, "ahead", lambda *_: None)  # it came in time, however slow the machine is
    async with rig((route("slow"), Scripted(slow))) as there, there.socket() as client:
        soon = request(requirements={"constraints": {"deadline": in_seconds(0.2)}})
        error = await refused(client.ask("agent/message", target="slow", content=soon))
        assert error.code == -32050
        meta = {"interlingua/resume": error.data["resume"]}
        error = await refused(client.ask("agent/message", target="slow", content=request("yes"), meta=meta))
        assert (error.code, error.data["code"]) == (-32006, "deadline")


@pytest.mark.parametrize("watched", [True, False], ids=["which the gateway watches", "after a restart"])
async def test_a_question_that_nobody_has_answered_at_the_deadline_is_open_no_more(
    watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "ahead", lambda *_: None)  # it came in time, however slow the machine is
    async with rig() as there, there.http() as client:
        limits = request(requirements={"constraints": {"deadline": in_seconds(0.5 if watched else 300)}})
        error = await refused(client.ask("agent/message", target="asker", content=limits))
        assert error.code == -32050
        if watched:
            await _ends(there, "asker", RunStatus.CANCELLED)
        else:
            monkeypatch.setattr(environment, "time", SimpleNamespace(time=lambda: time.time() + 301))
        answer = {"type": "request", "payload": {"answer": {"ok": True}}}
        meta = {"interlingua/resume": error.data["resume"]}
        error = await refused(client.ask("agent/message", target="asker", content=answer, meta=meta))
        assert (error.code, error.data["code"]) == (-32006, "deadline")
        run = await _ends(there, "asker", RunStatus.CANCELLED)
        assert run.cancel_reason == "the deadline has passed" and b"True" not in bytes(run.output)


async def test_who_is_asked_a_question_is_told_of_the_deadline_that_an_answer_came_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as there, there.socket(hello=AGENT) as client:
        client.on["agent/message"] = lambda _: asyncio.Event().wait()
        limits = request(requirements={"constraints": {"deadline": in_seconds(300)}})
        asked = await client.begin("agent/message", target="asker", content=limits)
        await until(lambda: bool(client.asked))
        meta = {"interlingua/resume": client.asked[0]["params"]["_meta"]["interlingua/resume"]}
        monkeypatch.setattr(environment, "time", SimpleNamespace(time=lambda: time.time() + 301))
        answer = {"type": "request", "payload": {"answer": {"ok": True}}}
        late = await refused(client.ask("agent/message", target="asker", content=answer, meta=meta))
        told = await refused(asked)
        assert [(each.code, each.data["code"]) for each in (late, told)] == [(-32006, "deadline")] * 2


async def test_a_message_may_take_no_more_tokens_either_where_its_question_was_answered_by_somebody_else() -> None:
    async def spends(context: RunContext) -> None:
        await context.ask(Interrupt(id="q", kind="input", message="Is it?", answer_schema={"type": "string"}))
        context.emit(e.UsageReported(output_tokens=101))
        await asyncio.Event().wait()

    async with rig((route("spender"), Scripted(spends))) as there, there.http() as client:
        few = request(requirements={"constraints": {"maxTokens": 100}})
        assert (await refused(client.ask("agent/message", target="spender", content=few))).code == -32050
        await there.engine.runs.answer((await there.newest("spender")).id, Answer(value="yes"))
        run = await _ends(there, "spender", RunStatus.CANCELLED)
        assert run.cancel_reason == "the message took 101 tokens, more than its limit of 100"


async def test_a_question_of_a_message_that_was_answered_before_its_deadline_stays_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as there, there.http() as client:
        limits = request(requirements={"constraints": {"deadline": in_seconds(300)}})
        error = await refused(client.ask("agent/message", target="asker", content=limits))
        answer = {"type": "request", "payload": {"answer": {"ok": True}}}
        meta = {"interlingua/resume": error.data["resume"]}
        done = await client.ask("agent/message", target="asker", content=answer, meta=meta)
        assert text_of(done) == "Let me see. answered {'ok': True}"
        await there.inbound.settled()
        monkeypatch.setattr(environment, "time", SimpleNamespace(time=lambda: time.time() + 301))
        error = await refused(client.ask("agent/message", target="asker", content=answer, meta=meta))
        assert error.code == -32005 and error.data["status"] == "success"


async def test_an_agent_that_is_not_what_a_message_requires_does_not_get_it() -> None:
    labels = {"tools": ["analysis"], "models": [], "specializations": []}
    routes = {"echo": {"labels": labels, "delegation": {"quality": 7, "cost": 0.002}}}
    async with rig(routes=routes) as there, there.socket() as client:

        async def send(**needs: Any) -> Any:
            return await client.ask("agent/message", target="echo", content=request("x", requirements=needs))

        fits = {"minScore": 7, "maxCost": 0.01, "priority": 3, "maxTokens": 5}
        assert text_of(await send(capabilities=["Analysis"], constraints=fits)) == "x "
        for needs, why in (
            ({"capabilities": ["analysis", "magic"]}, "lacks magic"),
            ({"constraints": {"minScore": 8}}, "quality 7 is below 8"),
            ({"constraints": {"maxCost": 0.001}}, "costs 0.002 per token"),
        ):
            error = await refused(send(**needs))
            assert (error.code, error.data["code"]) == (-32007, "no_match") and why in error.message
        assert await there.engine.runs.count(RunQuery(agent="echo")) == 1


async def test_a_message_to_the_coordinator_is_a_task_with_its_requirements_and_priority() -> None:
    labels = {"tools": ["analysis"], "models": [], "specializations": []}
    async with rig(coordinator="team", routes={"echo": {"labels": labels}}) as there, there.socket() as client:
        needs = {"capabilities": ["analysis"], "constraints": {"priority": 3, "deadline": in_seconds(100)}}
        content = request("do it", requirements=needs)
        assert text_of(await client.ask("agent/message", target="team", content=content)) == "do it "
        found = await client.ask("tools/call", name="taskList", arguments={})
        ((task),) = found["structuredContent"]["tasks"]
        assert (task["agent"], task["priority"], task["requirements"]) == ("echo", 3, needs)
        missing = request("do it", requirements={"capabilities": ["magic"]})
        error = await refused(client.ask("agent/message", target="team", content=missing))
        assert error.code == -32007 and "lacks magic" in error.message


async def test_a_message_that_takes_more_tokens_than_it_may_is_ended() -> None:
    async def talks(context: RunContext) -> None:
        context.emit(e.UsageReported(output_tokens=6))
        await context.drain()
        await asyncio.Event().wait()

    async with rig((route("talker"), Scripted(talks))) as there, there.socket() as client:
        content = request("x", requirements={"constraints": {"maxTokens": 5}})
        error = await refused(client.ask("agent/message", target="talker", content=content))
        assert error.code == -32008
        assert error.message == "the message took 6 tokens, more than its limit of 5"
        found = await there.engine.runs.wait((await there.newest("talker")).id, 30)
        assert found is not None and found.status is RunStatus.CANCELLED


async def test_what_a_client_says_besides_goes_to_the_agent_as_metadata() -> None:
    async with rig() as there, there.socket() as client:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        needs = {"constraints": {"priority": 3}}
        content = request("x", context={"sessionId": "s", "topic": "y"}, requirements=needs)
        meta = {"team": "mail", "correlationId": "c", "traceparent": trace, "progressToken": 1, "interlingua/x": 1}
        await client.ask("agent/message", target="echo", content=content, meta=meta)
        asked = (await there.newest("echo")).request
        assert asked.metadata == {"team": "mail", "context": {"sessionId": "s", "topic": "y"}, "requirements": needs}
        assert asked.traceparent is not None and trace.split("-")[1] in asked.traceparent


# --- agents among themselves -----------------------------------------------------------------------------------------


async def test_an_agent_gets_what_another_sent_word_for_word_and_the_other_what_it_answered() -> None:
    async with rig() as there, there.socket(hello=AGENT) as painter, there.socket(hello=AGENT) as writer:
        await painter.register("painter")
        await writer.register("writer")
        seen: list[dict[str, Any]] = []

        async def paint(params: dict[str, Any]) -> Any:
            seen.append(params)
            return {"content": {"type": "response", "payload": {"picture": [1, 2], "messages": [{"text": "done"}]}}}

        painter.on["agent/message"] = paint
        payload = {"strange": {"a": None}, "messages": [{"text": "a house", "role": "user"}]}
        found = await writer.ask(
            "agent/message",
            source="writer",
            target="painter",
            content={"type": "request", "payload": payload},
            meta={"correlationId": "c-9"},
        )
        assert seen[0]["content"] == {"type": "request", "payload": payload}
        assert (seen[0]["source"], seen[0]["target"]) == ("writer", "painter")
        assert seen[0]["_meta"]["correlationId"] == "c-9" == found["_meta"]["correlationId"]
        assert text_of(found) == "done"
        assert found["content"]["payload"]["output"]["picture"] == [1, 2]

        del seen[0]
        await writer.ask("agent/message", target="painter", content=request())  # it is from its only agent
        assert seen[0]["source"] == "writer"


@pytest.mark.parametrize("source", ["painter", "echo", "nobody"])
async def test_nobody_speaks_in_the_name_of_another(source: str) -> None:
    async with rig() as there, there.socket(hello=AGENT) as painter, there.socket() as client:
        await painter.register("painter")
        for method, rest in (
            ("agent/message", {"target": "echo", "content": request()}),
            ("agent/delegate", {"task": {"id": "1", "type": "x", "payload": {}}}),
        ):
            error = await refused(client.ask(method, source=source, meta={"correlationId": "s"}, **rest))
            assert error.code == -32003 and error.data["correlationId"] == "s"
        assert not await there.engine.runs.count(_on(None))


async def test_a_response_that_nobody_waits_for_is_refused() -> None:
    async with rig() as there, there.socket(hello=AGENT) as client:
        for kind in ("response", "update"):
            content: dict[str, Any] = {"type": kind, "payload": {}}
            asked = client.ask("agent/message", target="interlingua", content=content, meta={"correlationId": "z"})
            error = await refused(asked)
            assert error.code == -32002 and error.data["details"]["received"] == "z"
            await client.tell("agent/message", target="interlingua", content=content, meta={"correlationId": "y"})
        told = await client.hears("agent/error", 2)
        assert [each["_meta"]["correlationId"] for each in told] == ["y", "y"]


async def test_an_agent_that_acknowledges_answers_later_and_says_more_meanwhile() -> None:
    async with rig() as there, there.socket(hello=AGENT) as painter, there.socket(hello=AGENT) as client:
        await painter.register("painter")

        async def accept(params: dict[str, Any]) -> Any:
            return {"status": "accepted"}

        painter.on["agent/message"] = accept
        asked = await client.begin("agent/message", target="painter", content=request(), meta={"correlationId": "k"})
        await until(lambda: bool(painter.asked))
        meta = {"correlationId": "k"}
        for kind, text in (("update", "half "), ("response", "half whole")):
            content = {"type": kind, "payload": {"messages": [{"text": text}]}}
            await painter.tell("agent/message", source="painter", target="interlingua", content=content, meta=meta)
            if kind == "update":
                (told,) = await client.hears("agent/message")
                assert text_of(told) == "half " and told["_meta"]["correlationId"] == "k"
        assert text_of(await asked) == "half whole"


async def test_an_agent_that_leaves_in_the_middle_fails_its_messages_and_can_be_tried_again_later() -> None:
    async with rig() as there, there.socket() as client:
        async with there.socket(hello=AGENT) as painter:
            await painter.register("painter")
            painter.on["agent/message"] = _never
            asked = await client.begin(
                "agent/message", target="painter", content=request(), meta={"correlationId": "g"}
            )
            await until(lambda: bool(painter.asked))
        error = await refused(asked)
        assert (error.code, error.data["retryable"], error.data["correlationId"]) == (-32004, True, "g")
        async with there.socket(hello=AGENT) as painter:
            await painter.register("painter")
            painter.on["agent/message"] = _accepts
            asked = await client.begin("agent/message", target="painter", content=request())
            await until(lambda: bool(painter.asked))
            await painter.ask("agent/heartbeat", agentId="painter")  # behind its acknowledgement
        assert (await refused(asked)).code == -32004
        error = await refused(client.message("painter", meta={"correlationId": "h"}))
        assert (error.code, error.data["retryable"], error.data["correlationId"]) == (-32004, True, "h")
        async with there.socket(hello=AGENT) as painter:
            await painter.register("painter")

            async def work(params: dict[str, Any]) -> Any:
                return response("back again")

            painter.on["agent/message"] = work
            assert text_of(await client.message("painter")) == "back again"


async def _accepts(params: dict[str, Any]) -> Any:
    return {"status": "accepted"}


async def _never(params: dict[str, Any]) -> Any:
    await asyncio.Event().wait()


async def test_a_registered_agent_is_told_when_a_message_to_it_is_taken_back() -> None:
    async with rig() as there, there.socket(hello=AGENT) as painter, there.socket() as client:
        await painter.register("painter")
        painter.on["agent/message"] = _never
        asked = await client.begin("agent/message", target="painter", content=request())
        await until(lambda: bool(painter.asked))
        await client.cancel(asked)
        (told,) = await painter.hears("notifications/cancelled")
        assert told["requestId"] == painter.asked[0]["id"]
