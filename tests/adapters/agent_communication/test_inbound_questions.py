"""An agent's questions while its call is under way: by forms, or by an error with a handle; and their answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Answer, Interrupt, Outcome, RunStatus
from gateway.mcp.versions import V2025_06_18, V2025_11_25, V2026_07_28
from gateway.wire.jsonrpc import METHOD_NOT_FOUND, RpcError
from tests.adapters.agent_communication.inbound_rig import (
    YES_NO,
    FakeCall,
    FakeSession,
    Refused,
    Rig,
    asking,
    rig,
    scripted,
)
from tests.support.aio import run
from tests.support.scripted import echo, until

RUN: dict[str, Any] = {"name": "scripted", "input": {"message": "hi"}}
FORMS: dict[str, Any] = {"elicitation": {}}


def accepts(call: FakeCall, *contents: Any) -> None:
    """Have the client answer its forms with these, in order: an object, `decline`, `cancel`, or an error to raise."""
    given = list(contents)

    async def answers(method: str, params: Any) -> Any:
        assert method == "elicitation/create"
        content = given.pop(0)
        if isinstance(content, Exception):
            raise content
        return {"action": content} if isinstance(content, str) else {"action": "accept", "content": content}

    call.answers = answers


def asks(made: Rig, session: FakeSession | None = None, *contents: Any, **params: Any) -> FakeCall:
    call = made.make("agents/run", {**RUN, **params}, session or made.session(capabilities=FORMS))
    accepts(call, *contents)
    return call


# --- forms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("meta", [{}, {"progressToken": 0}])
@pytest.mark.parametrize(
    ("content", "said"),
    [({"ok": True}, "answered {'ok': True}"), ("decline", "declined None"), ("cancel", "cancelled None")],
)
async def test_a_client_that_takes_forms_is_asked_while_its_call_is_under_way(
    content: Any, said: str, meta: dict[str, Any]
) -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        call = asks(made, None, content, _meta=meta)
        result = await made.serve(call)
        assert result["output"] == {"message": f"Let me see. {said}. "}
        ((_, form),) = call.asked
        assert form["message"] == "Which one?"
        assert form["requestedSchema"]["properties"]["ok"]["type"] == "boolean"
        if meta:
            assert call.folded == result["output"]


async def test_what_was_said_before_a_question_is_told_before_it() -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        call = made.make("agents/run", {**RUN, "_meta": {"progressToken": 1}}, made.session(capabilities=FORMS))

        async def answers(method: str, params: Any) -> Any:
            assert call.folded == {"message": "Let me see. "}
            return {"action": "decline"}

        call.answers = answers
        await made.serve(call)


async def test_several_questions_are_asked_one_after_the_other_in_order() -> None:
    async def both(context: RunContext) -> None:
        asked = [Interrupt(id=name, kind="input", message=name, answer_schema=YES_NO) for name in ("first", "second")]
        tasks = [asyncio.create_task(context.ask(each)) for each in asked]
        answers = [(await task).value["ok"] for task in tasks]
        context.emit(e.PartDelta(part="text", delta=str(answers)), e.RunFinished())

    async with rig(scripted(both)) as made:
        call = made.make("agents/run", RUN, made.session(capabilities=FORMS))
        under_way: list[str] = []

        async def answers(method: str, params: Any) -> Any:
            under_way.append(params["message"])
            assert len(under_way) == 1
            await asyncio.sleep(0)
            under_way.pop()
            return {"action": "accept", "content": {"ok": params["message"] == "first"}}

        call.answers = answers
        assert (await made.serve(call))["output"] == {"message": "[True, False]"}
        assert [params["message"] for _, params in call.asked] == ["first", "second"]


async def test_an_answer_that_does_not_fit_is_asked_for_again_and_is_no_approval() -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        call = asks(made, None, {"ok": "certainly"}, {}, {"ok": True})
        assert (await made.serve(call))["output"] == {"message": "Let me see. answered {'ok': True}. "}
        messages = [params["message"] for _, params in call.asked]
        assert len(messages) == 3 and all(message.endswith("Which one?") for message in messages)
        assert "ok" in messages[1] and messages[1] != messages[0]


async def test_a_client_that_never_gives_an_answer_that_fits_has_declined() -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        call = asks(made, None, {}, {}, {}, {})
        assert (await made.serve(call))["output"] == {"message": "Let me see. declined None. "}
        assert len(call.asked) == 3


async def test_a_client_whose_form_fails_has_declined() -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        call = asks(made, None, RpcError(-32000, "no screen"))
        assert (await made.serve(call))["output"] == {"message": "Let me see. declined None. "}


async def test_a_question_that_is_answered_elsewhere_is_withdrawn_and_the_next_is_asked() -> None:
    async with rig(scripted(asking(YES_NO, YES_NO))) as made:
        call = made.make("agents/run", RUN, made.session(capabilities=FORMS))
        hangs = asyncio.Event()

        async def answers(method: str, params: Any) -> Any:
            if len(call.asked) == 1:
                await hangs.wait()
            return {"action": "decline"}

        call.answers = answers
        serving = asyncio.create_task(made.serve(call))
        await until(lambda: bool(call.asked))
        await made.engine.runs.answer((await made.newest()).id, Answer(value={"ok": False}))
        said = (await serving)["output"]["message"]
        assert said == "Let me see. answered {'ok': False}. declined None. "
        assert call.withdrawn == ["elicitation/create"]


async def test_a_call_that_is_taken_back_withdraws_its_question() -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        call = made.make("agents/run", RUN, made.session(capabilities=FORMS))

        async def answers(method: str, params: Any) -> Any:
            await asyncio.Event().wait()

        call.answers = answers
        serving = asyncio.create_task(made.serve(call))
        await until(lambda: bool(call.asked))
        serving.cancel()
        await asyncio.wait([serving])
        await until(lambda: call.withdrawn == ["elicitation/create"])
        ended = await made.engine.runs.wait((await made.newest()).id)
        assert ended is not None and ended.status is RunStatus.CANCELLED


# --- an error that carries the question --------------------------------------------------------------------------


async def interrupted(made: Rig, session: FakeSession | None = None, **more: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        await made.call("agents/run", session, **{**RUN, **more})
    assert refused.value.code == -32050
    return refused.value


def resuming(refused: Refused, given: Any, outcome: str | None = None, **meta: Any) -> dict[str, Any]:
    meta = {"interlingua/resume": refused.data["resume"], **meta}
    if outcome is not None:
        meta["interlingua/outcome"] = outcome
    return {"name": "scripted", "input": given, "_meta": meta}


@pytest.mark.parametrize("version", [V2025_06_18, V2025_11_25, V2026_07_28])
async def test_a_client_that_takes_no_forms_gets_the_question_and_a_handle_for_the_next_call(version: str) -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        session = made.session(version)
        refused = await interrupted(made, session)
        asked = refused.data["interrupt"]
        assert (asked["id"], asked["kind"], asked["message"]) == ("q1", "input", "Which one?")
        assert asked["answerSchema"] == YES_NO
        assert refused.data["output"] == {"message": "Let me see. "}
        started = await made.newest()
        assert started.status is RunStatus.INTERRUPTED
        call = made.make("agents/run", resuming(refused, {"ok": True}, progressToken=1), session)
        result = await made.serve(call)
        assert result["output"] == {"message": "Let me see. answered {'ok': True}. "}
        assert call.folded == result["output"]
        assert result["_meta"]["interlingua/run"] == started.id


@pytest.mark.parametrize("outcome", ["declined", "cancelled"])
async def test_the_next_call_may_refuse_to_answer(outcome: str) -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        refused = await interrupted(made)
        result = await made.call("agents/run", **resuming(refused, {}, outcome))
        assert result["output"] == {"message": f"Let me see. {outcome} None. "}


async def test_an_answer_that_is_no_object_comes_in_one() -> None:
    async with rig(scripted(asking({"type": "string"}))) as made:
        refused = await interrupted(made)
        result = await made.call("agents/run", **resuming(refused, {"answer": "blue"}))
        assert result["output"] == {"message": "Let me see. answered blue. "}


async def test_one_question_after_the_other_is_answered_by_one_call_after_the_other() -> None:
    async with rig(scripted(asking(YES_NO, YES_NO))) as made:
        first = await interrupted(made)
        with pytest.raises(Refused) as refused:
            await made.call("agents/run", **resuming(first, {"ok": True}))
        second = refused.value
        assert (second.code, second.data["interrupt"]["id"]) == (-32050, "q2")
        result = await made.call("agents/run", **resuming(second, {"ok": False}))
        said = "Let me see. answered {'ok': True}. answered {'ok': False}. "
        assert result["output"] == {"message": said}


@pytest.mark.parametrize(("given", "path"), [({"ok": "maybe"}, "/input/ok"), ({}, "/input"), (None, "/input")])
def test_an_answer_that_does_not_fit_is_refused_with_its_place_and_the_question_stays(given: Any, path: str) -> None:
    async def main() -> None:
        async with rig(scripted(asking(YES_NO))) as made:
            first = await interrupted(made)
            with pytest.raises(Refused) as refused:
                await made.call("agents/run", **resuming(first, given))
            assert (refused.value.code, refused.value.data["path"]) == (-32602, path)
            assert (await made.newest()).status is RunStatus.INTERRUPTED
            result = await made.call("agents/run", **resuming(first, {"ok": True}))
            assert result["output"] == {"message": "Let me see. answered {'ok': True}. "}

    run(main())


@pytest.mark.parametrize("handle", ["", "x", "x.q1", "{run}", "{run}.", "{run}.q2", 7, None])
async def test_a_handle_that_is_none_is_refused(handle: Any) -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        await interrupted(made)
        run_id = (await made.newest()).id
        given = handle.replace("{run}", run_id) if isinstance(handle, str) else handle
        with pytest.raises(Refused) as refused:
            await made.call("agents/run", name="scripted", input={"ok": True}, meta={"interlingua/resume": given})
        assert refused.value.code in (-32602, -32600)
        assert (await made.newest()).status is RunStatus.INTERRUPTED


async def test_a_handle_whose_question_is_answered_says_what_became_of_the_run() -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        first = await interrupted(made)
        await made.call("agents/run", **resuming(first, {"ok": True}))
        with pytest.raises(Refused) as refused:
            await made.call("agents/run", **resuming(first, {"ok": True}))
        assert refused.value.code == -32600
        assert refused.value.data["run"] == (await made.newest()).id
        assert refused.value.data["status"] == "success"
        assert refused.value.data["output"] == {"message": "Let me see. answered {'ok': True}. "}


async def test_a_handle_works_only_with_its_own_agent_and_only_for_who_may_call_that() -> None:
    async with rig(scripted(asking(YES_NO)), scripted(echo, "other")) as made:
        first = await interrupted(made)
        for name, session in [("other", made.session()), ("scripted", made.session(agent="other"))]:
            with pytest.raises(Refused) as refused:
                await made.call("agents/run", session, **{**resuming(first, {"ok": True}), "name": name})
            assert refused.value.code == -32602
            assert first.data["run"] not in str(refused.value)
        session = made.session(agent="other")
        answer = {"resume": first.data["resume"], "answer": {"ok": True}}
        told = await made.call("tools/call", session, name="interlingua_answer", arguments=answer)
        assert told["isError"] is True and first.data["run"] not in str(told)
        assert (await made.newest()).status is RunStatus.INTERRUPTED


async def test_a_client_that_does_not_know_forms_after_all_gets_the_error() -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        call = asks(made, None, RpcError(METHOD_NOT_FOUND, "what?"))
        with pytest.raises(Refused) as refused:
            await made.serve(call)
        assert refused.value.code == -32050
        result = await made.call("agents/run", **resuming(refused.value, {"ok": True}))
        assert result["output"] == {"message": "Let me see. answered {'ok': True}. "}


async def test_a_question_that_no_form_can_show_is_an_error_even_for_a_client_that_takes_forms() -> None:
    deep = {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]}

    async with rig(scripted(asking(deep))) as made:
        refused = await interrupted(made, made.session(capabilities=FORMS))
        result = await made.call("agents/run", **resuming(refused, {"a": {"b": 1}}))
        assert result["output"] == {"message": "Let me see. answered {'a': {'b': 1}}. "}


async def test_a_run_whose_question_was_answered_elsewhere_goes_on_for_who_resumes_too_late() -> None:
    async with rig(scripted(asking(YES_NO, YES_NO))) as made:
        first = await interrupted(made)
        await made.engine.runs.answer(first.data["run"], Answer(outcome=Outcome.DECLINED))
        with pytest.raises(Refused) as refused:
            await made.call("agents/run", **resuming(first, {"ok": True}))
        assert refused.value.code == -32600
        await made.engine.runs.cancel(first.data["run"])
