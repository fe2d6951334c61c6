"""What an agent asks for in mid-turn: permission, forms, files, terminals, extensions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters.agent_client.options import Permissions
from adapters.agent_client.outbound.agent_requests import judged
from gateway.core import events as e
from gateway.core.types import Answer, Outcome
from tests.adapters.agent_client.outbound_agent import OPTIONS, Client, Rig, rig

CALL = {"toolCallId": "c1", "title": "Edit", "kind": "edit"}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OUTCOME_CANCELLED = {"outcome": {"outcome": "cancelled"}}


def selected(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


async def finish(it: Rig, *tasks: asyncio.Task[None]) -> None:
    """End every turn."""
    for task in tasks:
        it.wire.end(await it.wire.prompt())
        await task


async def permission(it: Rig, id: Any = 0, call: dict[str, Any] = CALL, options: Any = OPTIONS) -> Any:
    answer = await it.wire.ask(id, "session/request_permission", sessionId="s1", toolCall=call, options=options)
    return answer.get("result") or answer.get("error")


async def test_a_permission_is_the_runs_question_and_the_chosen_option_its_answer() -> None:
    async with rig() as it:
        context = it.context(answers=[{"optionId": "ok"}])
        [task] = await it.started(context)
        assert await permission(it) == selected("ok")
        [interrupt] = context.asked
        assert interrupt.kind == "permission"
        assert interrupt.payload == {"toolCall": CALL, "options": OPTIONS}
        await finish(it, task)
        [resumed] = context.said(e.Resumed)
        assert resumed.interrupt == interrupt.id


async def test_a_permission_for_a_call_that_was_named_before_names_it() -> None:
    async with rig() as it:
        context = it.context(answers=[{"optionId": "ok"}])
        [task] = await it.started(context)
        it.wire.update("s1", "tool_call", toolCallId="c1", title="Delete everything", status="pending")
        await permission(it, call={"toolCallId": "c1"})
        assert "Delete everything" in context.asked[0].message
        await finish(it, task)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"optionId": "stolen"}, selected("no")),
        ("perhaps", selected("no")),
        (None, selected("no")),
        (Answer(outcome=Outcome.DECLINED), selected("no")),
        (Answer(outcome=Outcome.CANCELLED), OUTCOME_CANCELLED),
    ],
)
async def test_nothing_but_an_offered_option_is_ever_approval(answer: Any, expected: Any) -> None:
    async with rig() as it:
        [task] = await it.started(it.context(answers=[answer]))
        assert await permission(it) == expected
        await finish(it, task)


async def test_a_question_that_waits_holds_up_no_other_session_and_no_update() -> None:
    async with rig() as it:
        one, two = it.context(run="r1", thread="t1"), it.context(run="r2", thread="t2")
        tasks = await it.started(one, two)
        params = {"sessionId": "s1", "toolCall": CALL, "options": OPTIONS}
        it.wire.say({"id": 0, "method": "session/request_permission", "params": params})
        await one.until(lambda c: bool(c.asked))
        it.wire.chunk("s1", "meanwhile")
        it.wire.chunk("s2", "other")
        first, second = await it.wire.prompt(), await it.wire.prompt()
        it.wire.end(second)
        await tasks[1]
        assert two.output == {"message": "other"} and one.output == {"message": "meanwhile"}
        one.cancel_now()
        await it.outbound.cancel(one)
        assert (await it.wire.answer(0))["result"] == OUTCOME_CANCELLED
        it.wire.end(first, "cancelled")
        await tasks[0]


async def test_several_questions_are_open_at_once_and_each_answer_goes_to_its_own() -> None:
    async with rig() as it:
        context = it.context()
        [task] = await it.started(context)
        for id, call in ((0, "c1"), ("0", "c2")):
            params = {"sessionId": "s1", "toolCall": {"toolCallId": call}, "options": OPTIONS}
            it.wire.say({"id": id, "method": "session/request_permission", "params": params})
        await context.until(lambda c: len(c.asked) == 2)
        assert len({i.id for i in context.asked}) == 2
        for future, option in zip(context._waiting, ("no", "ok"), strict=True):
            future.set_result(Answer(value={"optionId": option}))
        assert (await it.wire.answer(0))["result"] == selected("no")
        assert (await it.wire.answer("0"))["result"] == selected("ok")
        await finish(it, task)


async def test_a_permission_outside_of_a_turn_is_refused() -> None:
    async with rig() as it:
        context = it.context(thread="t1", answers=[{"optionId": "ok"}])
        await it.turn(context, "done")
        assert await permission(it) == OUTCOME_CANCELLED
        unknown = await it.wire.ask(1, "session/request_permission", sessionId="s9", toolCall=CALL, options=OPTIONS)
        assert unknown["error"]["code"] == -32002
        assert not context.asked


async def test_a_question_of_no_session_is_no_runs_question() -> None:
    async with rig() as it:
        context = it.context(answers=[{"optionId": "ok"}])
        context.caller = client = Client(elicitation={"form": {}})
        client.answers["elicitation/create"] = {"action": "decline"}
        [task] = await it.started(context)
        permission = await it.wire.ask(1, "session/request_permission", toolCall=CALL, options=OPTIONS)
        assert permission["result"] == OUTCOME_CANCELLED
        form = {"mode": "form", "message": "Who?", "requestedSchema": FORM}
        assert (await it.wire.ask(2, "elicitation/create", **form))["result"] == {"action": "decline"}
        assert [method for method, _ in client.asked] == ["elicitation/create"] and not context.asked
        await finish(it, task)


@pytest.mark.parametrize("method", ["session/request_permission", "elicitation/create"])
@pytest.mark.parametrize("params", [[], ["s1"], "s1", 7])
async def test_params_that_are_no_object_are_the_agents_mistake(method: str, params: Any) -> None:
    async with rig() as it:
        context = it.context(answers=[{"optionId": "ok"}])
        [task] = await it.started(context)
        it.wire.say({"id": 1, "method": method, "params": params})
        assert (await it.wire.answer(1))["error"]["code"] in (-32600, -32602)
        assert not context.asked
        await finish(it, task)


async def test_a_permission_without_options_is_an_error() -> None:
    async with rig() as it:
        context = it.context(answers=[{"optionId": "ok"}])
        [task] = await it.started(context)
        assert (await permission(it, options="all"))["code"] == -32602
        assert not context.asked
        await finish(it, task)


@pytest.mark.parametrize(
    ("policy", "expected", "asked"),
    [
        ({"deny": ["edit"]}, selected("no"), 0),
        ({"allow": ["edit"]}, selected("ok"), 0),
        ({"deny": ["edit"], "forward": ["edit"], "allow": ["edit"]}, selected("no"), 0),
        ({"forward": ["edit"], "allow": ["edit"]}, selected("ever"), 1),
        ({"default": "allow"}, selected("ok"), 0),
        ({"default": "deny"}, selected("no"), 0),
        ({"default": "deny", "allow": ["read"]}, selected("no"), 0),
        ({}, selected("ever"), 1),
    ],
)
async def test_the_routes_policy_answers_by_tool_kind(policy: dict[str, Any], expected: Any, asked: int) -> None:
    async with rig(permissions=policy) as it:
        context = it.context(answers=[{"optionId": "ever"}])
        [task] = await it.started(context)
        assert await permission(it) == expected
        assert len(context.asked) == asked
        await finish(it, task)


async def test_the_policy_goes_by_what_the_tool_call_said_before_too() -> None:
    async with rig(permissions={"deny": ["execute"], "allow": ["read"]}) as it:
        [task] = await it.started(it.context())
        it.wire.update("s1", "tool_call", toolCallId="c1", title="rm -rf", kind="execute", status="pending")
        assert await permission(it, call={"toolCallId": "c1"}) == selected("no")
        assert await permission(it, call={"toolCallId": "c1", "kind": "read"}) == selected("no")
        it.wire.update("s1", "tool_call", toolCallId="a#1", title="cat", kind="read", status="pending")
        assert await permission(it, call={"toolCallId": "a#1"}) == selected("ok")
        it.wire.update("s1", "tool_call_update", toolCallId="a#1", kind="execute")
        assert await permission(it, call={"toolCallId": "a#1"}) == selected("no")
        await finish(it, task)


@pytest.mark.parametrize(
    ("kinds", "policy", "verdict"),
    [
        ({"read", "edit"}, {"allow": ["read"]}, "forward"),
        ({"read", "edit"}, {"allow": ["read", "edit"]}, "allow"),
        ({"read", "edit"}, {"allow": ["read"], "deny": ["edit"]}, "deny"),
        ({"_new"}, {"default": "deny", "allow": ["other"]}, "deny"),
        ({"read", "edit"}, {"allow": ["read"], "default": "deny"}, "deny"),
        ({"read", "edit"}, {"allow": ["read"], "default": "allow"}, "allow"),
        ({"read", "edit"}, {"allow": ["read", "edit"], "default": "deny"}, "allow"),
        ({"read", "edit"}, {"default": "allow", "forward": ["edit"]}, "forward"),
        (set(), {"allow": ["read"], "default": "deny"}, "deny"),
        (set(), {"allow": ["read"]}, "forward"),
    ],
)
def test_of_contradicting_kinds_the_strictest_counts(kinds: set[str], policy: dict[str, Any], verdict: str) -> None:
    assert judged(Permissions.model_validate(policy), kinds) == verdict


async def test_a_policy_that_allows_asks_where_nothing_like_allowing_is_offered() -> None:
    async with rig(permissions={"default": "allow"}) as it:
        context = it.context(answers=[{"optionId": "b"}])
        [task] = await it.started(context)
        options = [{"optionId": "b", "name": "B", "kind": "reject_once"}]
        assert await permission(it, options=options) == selected("b")
        assert len(context.asked) == 1
        await finish(it, task)


async def test_an_elicitation_is_the_runs_question() -> None:
    async with rig() as it:
        answers = [{"name": "Ada"}, Answer(outcome=Outcome.DECLINED), Answer(outcome=Outcome.CANCELLED)]
        context = it.context(answers=answers)
        [task] = await it.started(context)
        form = {"sessionId": "s1", "mode": "form", "message": "Who?", "requestedSchema": FORM}
        assert (await it.wire.ask(1, "elicitation/create", **form))["result"] == {
            "action": "accept",
            "content": {"name": "Ada"},
        }
        assert (await it.wire.ask(2, "elicitation/create", **form))["result"] == {"action": "decline"}
        assert (await it.wire.ask(3, "elicitation/create", **form))["result"] == {"action": "cancel"}
        assert [interrupt.kind for interrupt in context.asked] == ["elicitation"] * 3
        await finish(it, task)


async def test_an_elicitation_about_the_prompt_itself_is_the_runs_too() -> None:
    async with rig() as it:
        context = it.context(answers=[{"name": "Ada"}])
        [task] = await it.started(context)
        prompt = await it.wire.prompt()
        form = {"requestId": prompt["id"], "mode": "form", "message": "Who?", "requestedSchema": FORM}
        assert (await it.wire.ask(1, "elicitation/create", **form))["result"]["action"] == "accept"
        it.wire.end(prompt)
        await task


async def test_an_elicitation_outside_of_a_turn_goes_to_a_client_that_declared_it_or_nowhere() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        await it.turn(context, "done")
        form = {"sessionId": "s1", "mode": "form", "message": "Who?", "requestedSchema": FORM}
        assert (await it.wire.ask(1, "elicitation/create", **form))["result"] == {"action": "cancel"}
        context.caller = Client(elicitation={"url": {}})
        assert (await it.wire.ask(2, "elicitation/create", **form))["result"] == {"action": "cancel"}
        undeclared = {"sessionId": "s1", "mode": "url", "message": "Go", "elicitationId": "e", "url": "https://x"}
        assert (await it.wire.ask(4, "elicitation/create", **undeclared))["error"]["code"] == -32602
        context.caller = client = Client(elicitation={"form": {}})
        client.answers["elicitation/create"] = {"action": "decline"}
        assert (await it.wire.ask(3, "elicitation/create", **form))["result"] == {"action": "decline"}
        assert client.asked == [("elicitation/create", {**form, "sessionId": "t1"})]
        context.caller, context.older = Client(), [client]  # the newest of the two cannot show it
        assert (await it.wire.ask(5, "elicitation/create", **form))["result"] == {"action": "decline"}
