"""`agent/delegate`, `taskAssign`, `taskAnswer`: who gets a task, who hears of it, what a connection's end means."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from adapters.agent_context.inbound import work
from gateway.core.types import RunStatus
from tests.adapters.agent_context.inbound_rig import Rig, rig
from tests.adapters.agent_context.inbound_talker import AGENT, Talker, in_seconds, refused, request, response, text_of
from tests.support.scripted import until

COORDINATOR = "interlingua-tasks"


def task(id: str = "task-1", *capabilities: str, text: str = "do it", **constraints: Any) -> dict[str, Any]:
    """A task in words."""
    needs = {"capabilities": list(capabilities), "constraints": constraints}
    return {"id": id, "type": "analysis", "payload": {"messages": [{"text": text}]}, "requirements": needs}


async def told_tasks(client: Talker) -> list[dict[str, Any]]:
    """What agent://tasks says."""
    found = await client.ask("resources/read", uri="agent://tasks")
    tasks: list[dict[str, Any]] = json.loads(found["contents"][0]["text"])["tasks"]
    return tasks


LABELS = {"echo": {"labels": {"specializations": ["echoing"]}}, "held": {"labels": {"tools": ["holding"]}}}


async def test_a_task_goes_to_who_can_do_it_and_its_answer_says_why() -> None:
    async with rig(routes=LABELS) as there, there.socket() as client:
        meta = {"correlationId": "c", "progressToken": 7}
        found = await client.ask("agent/delegate", task=task("t", "ECHOING"), meta=meta)
        assert (found["task"]["id"], found["task"]["status"], found["task"]["agent"]) == ("t", "completed", "echo")
        assert found["task"]["result"] == {"messages": [{"text": "do it "}]}
        assert found["_meta"]["correlationId"] == "c"
        assert found["_meta"]["interlingua/assignment"]["agent"] == "echo"
        assert "".join(each["message"] for each in client.params_of("notifications/progress")) == "do it "
        (listed,) = await told_tasks(client)
        assert (listed["id"], listed["status"], listed["result"]) == ("t", "completed", found["task"]["result"])
        attempt = await there.newest("echo")
        assert attempt.request.attributes["correlationId"] == "c"


async def test_an_agent_delegates_to_another_and_never_to_itself() -> None:
    async with rig() as there, there.socket(hello=AGENT) as writer, there.socket(hello=AGENT) as painter:
        await writer.register("writer", "paint")
        await painter.register("painter", "paint")

        async def work(params: dict[str, Any]) -> Any:
            return response(f"painted for {params['source']}")

        writer.on["agent/message"] = painter.on["agent/message"] = work
        for number in range(3):
            found = await writer.ask("agent/delegate", source="writer", task=task(f"t{number}", "paint"))
            assert found["task"]["agent"] == "painter"
        error = await refused(writer.ask("agent/delegate", task=task("t9", "paint", min_score=1, minScore=9)))
        assert error.code == -32007


async def test_work_that_is_delegated_round_and_round_ends() -> None:
    async with rig() as there, there.socket(hello=AGENT) as one, there.socket(hello=AGENT) as two:
        depth = 0

        def passing(me: Talker, name: str) -> Any:
            async def work(params: dict[str, Any]) -> Any:
                nonlocal depth
                depth += 1
                meta = {"correlationId": params["_meta"]["correlationId"]}
                await me.ask("agent/delegate", source=name, task=task(f"{name}-{depth}", "paint"), meta=meta)
                return response("done")

            return work

        await one.register("one", "paint")
        await two.register("two", "paint")
        one.on["agent/message"], two.on["agent/message"] = passing(one, "one"), passing(two, "two")
        async with there.socket() as client:
            error = await refused(client.ask("agent/delegate", task=task("t", "paint")))
        assert error.code in (-32003, -32008) and depth < 20


async def test_a_task_that_nobody_can_do_says_so_with_reasons() -> None:
    async with rig() as there, there.socket() as client:
        error = await refused(client.ask("agent/delegate", task=task("t", "flying"), meta={"correlationId": "n"}))
        assert error.code == -32007 and "echo: lacks flying" in error.message
        assert (error.data["correlationId"], error.data["task"]["status"]) == ("n", "failed")


async def test_a_deadline_in_the_past_is_refused_and_one_that_passes_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig(routes=LABELS) as there, there.socket() as client:
        asked = client.ask(
            "agent/delegate", task=task("t", deadline="2025-02-22T12:00:00Z"), meta={"correlationId": "p"}
        )
        error = await refused(asked)
        assert (error.code, error.data["code"], error.data["correlationId"]) == (-32006, "deadline", "p")
        assert error.data["path"] == "/task/requirements/constraints/deadline"
        assert await told_tasks(client) == []
        monkeypatch.setattr(work, "ahead", lambda *_: None)  # it came in time, however slow the machine is
        soon = task("u", "holding", deadline=in_seconds(0.2))
        error = await refused(client.ask("agent/delegate", task=soon, meta={"correlationId": "s"}))
        assert (error.code, error.data["correlationId"]) == (-32006, "s")
        assert error.data["task"]["status"] == "expired"


async def test_the_same_task_twice_is_one_and_another_with_its_id_a_conflict() -> None:
    async with rig(routes=LABELS) as there, there.socket() as client, there.socket() as other:
        first = await client.begin("agent/delegate", task=task("t", "holding"))
        await there.newest("held")
        second = await other.begin("agent/delegate", task=task("t", "holding"))
        error = await refused(other.ask("agent/delegate", task=task("t", "echoing")))
        assert (error.code, error.data["code"]) == (-32005, "conflict")
        there.gate.set()
        assert (await first)["task"] == (await second)["task"]
        assert len(await told_tasks(client)) == 1


async def test_a_task_goes_on_when_its_client_leaves_and_ends_when_it_is_taken_back() -> None:
    async with rig(routes=LABELS) as there:
        async with there.socket() as client:
            await client.begin("agent/delegate", task=task("kept", "holding"))
            await there.newest("held")
        there.gate.set()
        assert await _outcome(there) is RunStatus.SUCCESS
        there.gate.clear()
        async with there.socket() as client:
            (listed,) = await told_tasks(client)
            assert (listed["status"], listed["result"]["messages"][0]["text"]) == ("completed", "before after")
            again = await client.ask("agent/delegate", task=task("kept", "holding"))
            assert {**again["task"], "_meta": listed["_meta"]} == listed
            asked = await client.begin("agent/delegate", task=task("back", "holding"))
            await until(lambda: len(there.agents["held"].contexts) == 2)
            await client.cancel(asked)
            assert (await refused(asked)).code == -32800
            assert await _outcome(there) is RunStatus.CANCELLED
            assert (await told_tasks(client))[0]["status"] == "cancelled"


async def _outcome(there: Rig) -> RunStatus:
    found = await there.engine.runs.wait((await there.newest(COORDINATOR)).id, 30)
    assert found is not None
    return found.status


async def outcomes(client: Talker, count: int) -> list[dict[str, Any]]:
    """The responses that it was told, once there are as many."""

    def found() -> list[dict[str, Any]]:
        return [each for each in client.params_of("agent/message") if each["content"]["type"] == "response"]

    await until(lambda: len(found()) >= count)
    return found()


async def test_who_does_not_wait_is_told_later() -> None:
    async with rig(routes=LABELS) as there, there.socket(hello=AGENT) as client:
        asked = {"task": task("t", "holding"), "meta": {"correlationId": "w"}}
        found = await client.ask("agent/delegate", wait=False, **asked)
        assert found["task"]["status"] in ("pending", "running")
        there.gate.set()
        await until(lambda: any(each["content"]["type"] == "response" for each in client.params_of("agent/message")))
        told = client.params_of("agent/message")[-1]
        assert (told["source"], text_of(told)) == ("interlingua", "before after")
        assert told["content"]["payload"]["task"]["status"] == "completed"
        assert told["_meta"]["correlationId"] == "w"

        await client.tell("agent/delegate", task=task("u", "flying"), meta={"correlationId": "f"})
        (told,) = await client.hears("agent/error")
        assert (told["error"]["code"], told["_meta"], told["source"]) == (-32007, {"correlationId": "f"}, "interlingua")
        await client.tell("agent/delegate", task=task("v", "echoing"), meta={"correlationId": "n"})
        await until(lambda: client.params_of("agent/message")[-1]["_meta"]["correlationId"] == "n")


async def _silent(params: dict[str, Any]) -> Any:
    """Never answers."""
    return None


async def test_an_agent_that_goes_in_the_middle_leaves_its_task_to_another() -> None:
    async with rig() as there, there.socket() as client, there.socket(hello=AGENT) as second:

        async def work(params: dict[str, Any]) -> Any:
            return response("painted")

        second.on["agent/message"] = work
        async with there.socket(hello=AGENT) as first:
            first.on["agent/message"] = _silent
            await first.register("first", "paint")
            asked = await client.begin("agent/delegate", task=task("t", "paint"))
            await until(lambda: bool(first.asked))
            await second.register("second", "paint")
        found = await asked
        assert [each["agent"] for each in found["task"]["attempts"]] == ["first", "second"]
        assert found["task"]["attempts"][0]["status"] == "failed"
        assert found["task"]["result"]["messages"] == [{"text": "painted"}]


# --- approval, questions ---------------------------------------------------------------------------------------------


async def test_a_person_approves_a_task_where_the_route_says_so_by_a_message_a_form_or_a_tool() -> None:
    routes = {"echo": {**LABELS["echo"], "delegation": {"approve": True}}}
    async with rig(routes=routes) as there:
        async with there.socket(hello=AGENT) as client:

            async def approve(params: dict[str, Any]) -> Any:
                question = params["content"]["payload"]
                assert (params["source"], question["kind"]) == ("interlingua", "permission")
                assert question["question"]["agent"] == "echo"
                return {"content": {"type": "response", "payload": {"answer": {"optionId": "approve"}}}}

            client.on["agent/message"] = approve
            found = await client.ask("agent/delegate", task=task("a", "echoing"))
            assert found["task"]["status"] == "completed"

            async def decline(params: dict[str, Any]) -> Any:
                return {"content": {"type": "response", "payload": {"outcome": "declined"}}}

            client.on["agent/message"] = decline
            error = await refused(client.ask("agent/delegate", task=task("b", "echoing")))
            assert error.code == -32003 and error.data["task"]["status"] == "failed"

        async with there.socket(hello={"elicitation": {"form": {}}}) as client:

            async def accept(params: dict[str, Any]) -> Any:
                assert "echo" in params["message"]
                return {"action": "accept", "content": {"optionId": "approve"}}

            client.on["elicitation/create"] = accept
            arguments = {"message": "say it", "capabilities": ["echoing"]}
            found = await client.ask("tools/call", name="taskAssign", arguments=arguments)
            assert found["content"][0]["text"] == "say it "

        async with there.socket() as client:
            arguments["id"] = "c"
            found = await client.ask("tools/call", name="taskAssign", arguments=arguments)
            assert found["isError"] and "taskAnswer" in found["content"][0]["text"]
            assert found["structuredContent"]["task"]["status"] == "awaiting_approval"
            for wrong, told in (({"answer": {"optionId": "maybe"}}, "answer"), ({"interrupt": "x", "answer": 1}, "")):
                bad = await client.ask("tools/call", name="taskAnswer", arguments={"taskId": "c", **wrong})
                assert bad["isError"] and told in bad["_meta"]["interlingua/failure"]["path"]
            answer = {"taskId": "c", "answer": {"optionId": "approve"}}
            found = await client.ask("tools/call", name="taskAnswer", arguments=answer)
            assert (found["isError"], found["content"][0]["text"]) == (False, "say it ")
            again = await client.ask("tools/call", name="taskAnswer", arguments=answer)
            assert again["isError"]


async def test_who_cannot_be_asked_answers_with_a_handle() -> None:
    async with rig() as there, there.socket() as client:
        content = {"type": "request", "payload": {"messages": [{"text": "?"}]}}
        error = await refused(client.ask("agent/message", target="asker", content=content, meta={"correlationId": "h"}))
        assert (error.code, error.message, error.data["correlationId"]) == (-32050, "Is it?", "h")
        meta = {"interlingua/resume": error.data["resume"]}
        content = {"type": "request", "payload": {"answer": {"ok": 5}}}
        error = await refused(client.ask("agent/message", target="asker", content=content, meta=meta))
        assert error.code == -32001  # it stays open
        content = {"type": "request", "payload": {"answer": {"ok": True}}}
        found = await client.ask("agent/message", target="asker", content=content, meta=meta)
        assert text_of(found) == "Let me see. answered {'ok': True}"
        assert found["_meta"]["correlationId"] == "h"
        error = await refused(client.ask("agent/message", target="asker", content=content, meta=meta))
        assert error.code == -32005


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"answer": {"ok": True}}, "answered {'ok': True}"),
        ({"ok": False}, "answered {'ok': False}"),
        ({"messages": [{"text": "yes"}]}, "answered {'ok': True}"),
        ({"outcome": "declined"}, "declined None"),
        ({"messages": [{"text": "perhaps"}]}, "declined None"),
    ],
)
async def test_an_agent_is_asked_by_a_message_and_its_answer_read_in_any_form(
    payload: dict[str, Any], said: str
) -> None:
    async with rig() as there, there.socket(hello=AGENT) as client:

        async def answer(params: dict[str, Any]) -> Any:
            assert params["_meta"]["correlationId"] == "q" and params["source"] == "asker"
            assert params["content"]["payload"]["messages"][-1]["text"] == "Is it?"
            return {"content": {"type": "response", "payload": payload}}

        client.on["agent/message"] = answer
        found = await client.message("asker", meta={"correlationId": "q"})
        assert text_of(found) == f"Let me see. {said}"


async def test_a_question_of_a_registered_agent_reaches_the_one_that_asked_it() -> None:
    async with rig() as there, there.socket(hello=AGENT) as painter, there.socket(hello=AGENT) as client:
        await painter.register("painter")

        async def work(params: dict[str, Any]) -> Any:
            answer = await painter.ask(
                "agent/message",
                source="painter",
                target="interlingua",
                content={"type": "request", "payload": {"messages": [{"text": "Which colour?"}]}},
                meta={"correlationId": params["_meta"]["correlationId"]},
            )
            return response(f"painted {text_of(answer)}")

        async def colour(params: dict[str, Any]) -> Any:
            assert params["content"]["payload"]["messages"] == [{"text": "Which colour?"}]
            return response("blue")

        painter.on["agent/message"] = work
        client.on["agent/message"] = colour
        assert text_of(await client.message("painter")) == "painted blue"


# --- the tool --------------------------------------------------------------------------------------------------------


async def test_the_tool_takes_a_task_in_words_and_says_what_went_wrong_to_a_model() -> None:
    async with rig(routes=LABELS) as there, there.socket() as client:
        meta = {"progressToken": "p", "correlationId": "t"}
        arguments: dict[str, Any] = {"message": "one two", "agentId": "echo"}
        found = await client.ask("tools/call", name="taskAssign", arguments=arguments, meta=meta)
        assert (found["content"][0]["text"], found["isError"]) == ("one two ", False)
        assert found["_meta"]["correlationId"] == "t"
        assert found["_meta"]["interlingua/assignment"]["agent"] == "echo"
        assert client.params_of("notifications/progress")
        for arguments, code in (
            ({}, "invalid"),
            ({"message": 5}, "invalid"),
            ({"message": "x", "agentId": "no such"}, "invalid"),
            ({"message": "x", "capabilities": ["flying"]}, "no_match"),
            ({"message": "x", "agentId": "failer"}, "agent_failed"),
            ({"message": "x", "deadline": "2025-01-01T00:00:00Z"}, "deadline"),
        ):
            found = await client.ask("tools/call", name="taskAssign", arguments=arguments)
            assert found["isError"] and found["_meta"]["interlingua/failure"]["code"] == code, found
        arguments = {"message": "x", "agentId": "held", "wait": False, "id": "later"}
        found = await client.ask("tools/call", name="taskAssign", arguments=arguments)
        assert found["structuredContent"]["task"]["status"] in ("pending", "running")
        there.gate.set()
        async with asyncio.timeout(30):
            while (await told_tasks(client))[0]["status"] != "completed":
                pass


async def test_an_agent_that_only_acknowledges_a_question_answers_it_later() -> None:
    async def accept(params: dict[str, Any]) -> Any:
        return {"status": "received"}

    async with rig() as there:
        async with there.socket(hello=AGENT) as client:
            client.on["agent/message"] = accept
            meta = {"correlationId": "l"}
            asked = await client.begin("agent/message", target="asker", content=request("?"), meta=meta)
            await until(lambda: len(client.asked) == 1)
            content = {"type": "response", "payload": {"answer": {"ok": 5}}}
            await client.tell("agent/message", target="interlingua", content=content, meta=meta)
            await until(lambda: len(client.asked) == 2)  # it did not fit: the same question again
            content = {"type": "response", "payload": {"answer": {"ok": True}}}
            meta = {"interlingua/resume": client.asked[1]["params"]["_meta"]["interlingua/resume"]}
            assert await client.ask("agent/message", target="interlingua", content=content, meta=meta) == {}
            assert text_of(await asked) == "Let me see. answered {'ok': True}"

            await client.begin("agent/message", target="asker", content=request("?"))
            await until(lambda: len(client.asked) == 3)
        left = (await there.newest("asker")).id
        async with asyncio.timeout(30):
            while not (found := await there.engine.runs.get(left)).status.ended:  # noqa: ASYNC110 - it waits, meanwhile
                await asyncio.sleep(0.002)
        assert found.status is RunStatus.CANCELLED
