"""An agent's questions to who is asked by an answer: clients of 2026-07-28, and models that call tools."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.types import Answer, Outcome, RunQuery
from gateway.mcp.server.contract import InputRequired
from gateway.mcp.versions import V2026_07_28
from tests.adapters.agent_communication.inbound_rig import YES_NO, FakeSession, Refused, Rig, asking, rig, scripted
from tests.support.aio import run
from tests.support.scripted import echo

RUN: dict[str, Any] = {"name": "scripted", "input": {"message": "hi"}}
FORMS: dict[str, Any] = {"elicitation": {}}


# --- 2026-07-28: an answer that wants more -----------------------------------------------------------------------


async def required(made: Rig, session: FakeSession, method: str = "agents/run", **params: Any) -> InputRequired:
    with pytest.raises(InputRequired) as found:
        await made.call(method, session, **params)
    return found.value


def modern(made: Rig) -> FakeSession:
    return made.session(V2026_07_28, capabilities=FORMS)


@pytest.mark.parametrize("method", ["agents/run", "tools/call"])
async def test_a_client_of_the_modern_revision_calls_again_with_what_it_was_asked_for(method: str) -> None:
    params = RUN if method == "agents/run" else {"name": "scripted", "arguments": {"message": "hi"}}

    async with rig(scripted(asking(YES_NO))) as made:
        wanted = await required(made, modern(made), method, **params)
        ((key, request),) = wanted.requests.items()
        assert request["method"] == "elicitation/create"
        assert request["params"]["message"] == "Which one?"
        given = {key: {"action": "accept", "content": {"ok": True}}}
        result = await made.call(method, modern(made), **params, requestState=wanted.state, inputResponses=given)
        said = "Let me see. answered {'ok': True}. "
        told = result["output"] if method == "agents/run" else result["structuredContent"]
        assert told == {"message": said}
        assert len(await made.engine.runs.list(RunQuery())) == 1


async def test_a_modern_client_whose_answer_does_not_fit_is_told_why_and_asked_again() -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        wanted = await required(made, modern(made), **RUN)
        given = {"q1": {"action": "accept", "content": {}}}
        again = await required(made, modern(made), **RUN, requestState=wanted.state, inputResponses=given)
        assert again.requests["q1"]["params"]["message"].endswith("Which one?")
        assert again.requests["q1"]["params"]["message"] != "Which one?"
        given = {"q1": {"action": "decline"}}
        result = await made.call("agents/run", modern(made), **RUN, requestState=again.state, inputResponses=given)
        assert result["output"] == {"message": "Let me see. declined None. "}


async def test_a_modern_client_that_never_gives_an_answer_that_fits_has_declined() -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        wanted = await required(made, modern(made), **RUN)
        given = {"q1": {"action": "accept", "content": {"ok": "x"}}}
        for _ in range(2):
            wanted = await required(made, modern(made), **RUN, requestState=wanted.state, inputResponses=given)
        result = await made.call("agents/run", modern(made), **RUN, requestState=wanted.state, inputResponses=given)
        assert result["output"] == {"message": "Let me see. declined None. "}


@pytest.mark.parametrize("responses", [{}, {"q7": {"action": "accept", "content": {"ok": True}}}, None])
async def test_a_modern_client_that_comes_back_without_the_answer_is_asked_again(responses: Any) -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        wanted = await required(made, modern(made), **RUN)
        more = {} if responses is None else {"inputResponses": responses}
        again = await required(made, modern(made), **RUN, requestState=wanted.state, **more)
        assert again.requests == wanted.requests


async def test_a_modern_client_that_comes_back_too_late_gets_the_result() -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        wanted = await required(made, modern(made), **RUN)
        await made.engine.runs.answer((await made.newest()).id, Answer(outcome=Outcome.DECLINED))
        given = {"q1": {"action": "accept", "content": {"ok": True}}}
        result = await made.call("agents/run", modern(made), **RUN, requestState=wanted.state, inputResponses=given)
        assert result["output"] == {"message": "Let me see. declined None. "}


@pytest.mark.parametrize("state", ["", "x", "x.q1"])
@pytest.mark.parametrize("name", ["scripted", "other"])
async def test_a_state_that_was_never_given_or_is_another_agents_is_refused(state: str, name: str) -> None:
    async with rig(scripted(asking(YES_NO)), scripted(echo, "other")) as made:
        wanted = await required(made, modern(made), **RUN)
        given = wanted.state if name == "other" else state
        with pytest.raises(Refused) as refused:
            await made.call("agents/run", modern(made), **{**RUN, "name": name}, requestState=given)
        assert (refused.value.code, refused.value.data["path"]) == (-32602, "/requestState")
        assert len(await made.engine.runs.list(RunQuery())) == 1


# --- tools -------------------------------------------------------------------------------------------------------


async def test_a_tool_that_asks_says_how_it_is_answered_and_the_answering_tool_goes_on() -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        asked = await made.call("tools/call", name="scripted", arguments={"message": "hi"})
        assert asked["isError"] is True
        handle = asked["_meta"]["interlingua/resume"]
        text = "\n".join(block["text"] for block in asked["content"])
        assert "Which one?" in text and handle in text and "interlingua_answer" in text
        wrong = await made.call(
            "tools/call", name="interlingua_answer", arguments={"resume": handle, "answer": {"ok": "maybe"}}
        )
        assert wrong["isError"] is True and "ok" in wrong["content"][0]["text"]
        done = await made.call(
            "tools/call", name="interlingua_answer", arguments={"resume": handle, "answer": {"ok": True}}
        )
        assert not done.get("isError")
        assert done["content"][0]["text"] == "Let me see. answered {'ok': True}. "


CHOICE = {
    "type": "object",
    "properties": {"optionId": {"enum": ["once", "always", "no"], "enumNames": ["Allow it once", "Always", "Refuse"]}},
    "required": ["optionId"],
}


@pytest.mark.parametrize(
    ("schema", "answer", "meant"),
    [
        (CHOICE, "once", {"optionId": "once"}),
        (CHOICE, "allow it once", {"optionId": "once"}),
        (CHOICE, "2", {"optionId": "always"}),
        (CHOICE, 3, {"optionId": "no"}),
        (CHOICE, '{"optionId": "no"}', {"optionId": "no"}),
        (CHOICE["properties"]["optionId"], "Refuse", "no"),  # type: ignore[index]
        (YES_NO, True, {"ok": True}),
        (YES_NO, "yes", {"ok": True}),
        ({"type": "string"}, "1", "1"),
        ({"type": "integer"}, "7", 7),
        ({"type": "object", "properties": {"name": {"type": "string"}}}, "Ada", {"name": "Ada"}),
    ],
)
@pytest.mark.parametrize("method", ["tools/call", "agents/run"])
async def test_a_bare_choice_is_an_answer_as_it_is_to_a_step(method: str, schema: Any, answer: Any, meant: Any) -> None:
    async with rig(scripted(asking(schema))) as made:
        if method == "tools/call":
            asked = await made.call("tools/call", name="scripted", arguments={"message": "hi"})
            given = {"resume": asked["_meta"]["interlingua/resume"], "answer": answer}
            done = await made.call("tools/call", name="interlingua_answer", arguments=given)
            said = done["content"][0]["text"]
        else:
            with pytest.raises(Refused) as refused:
                await made.call("agents/run", **RUN)
            handle = {"interlingua/resume": refused.value.data["resume"]}
            done = await made.call("agents/run", name="scripted", input={"answer": answer}, _meta=handle)
            said = done["output"]["message"]
        assert said == f"Let me see. answered {meant}. "


async def test_a_bare_word_that_is_no_choice_leaves_the_question_open() -> None:
    async with rig(scripted(asking(CHOICE))) as made:
        asked = await made.call("tools/call", name="scripted", arguments={"message": "hi"})
        handle = asked["_meta"]["interlingua/resume"]
        for answer in ("perhaps", 4, None, ["once"]):
            given = {"resume": handle, "answer": answer}
            done = await made.call("tools/call", name="interlingua_answer", arguments=given)
            assert done["isError"] is True and "/arguments/answer" in done["content"][0]["text"]
        assert (await made.newest()).interrupts


WHICH = '"Which one?" was'


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"action": "decline"}, [f"{WHICH} declined."]),
        ({"action": "cancel"}, [f"{WHICH} cancelled."]),
        ({"action": "accept", "content": {"optionId": "no"}}, [f'{WHICH} answered "Refuse".']),
        ({"action": "accept", "content": {"optionId": "once"}}, []),
    ],
)
@pytest.mark.parametrize("meta", [{}, {"progressToken": 1}])
async def test_what_a_person_declined_is_told_to_the_model_that_called_the_tool(
    result: Any, said: list[str], meta: dict[str, Any]
) -> None:
    async with rig(scripted(asking(CHOICE))) as made:
        params = {"name": "scripted", "arguments": {"message": "hi"}, "_meta": meta}
        call = made.make("tools/call", params, made.session(capabilities={"elicitation": {}}))

        async def answers(method: str, params: Any) -> Any:
            return result

        call.answers = answers
        done = await made.serve(call)
        assert [block["text"] for block in done["content"][1:]] == said


async def test_so_is_what_was_declined_by_the_tool_that_answers() -> None:
    async with rig(scripted(asking(CHOICE))) as made:
        asked = await made.call("tools/call", name="scripted", arguments={"message": "hi"})
        given = {"resume": asked["_meta"]["interlingua/resume"], "outcome": "declined"}
        done = await made.call("tools/call", name="interlingua_answer", arguments=given)
        assert done["content"][1]["text"] == f"{WHICH} declined."


async def test_the_answering_tool_may_decline() -> None:
    async with rig(scripted(asking(YES_NO))) as made:
        asked = await made.call("tools/call", name="scripted", arguments={"message": "hi"})
        given = {"resume": asked["_meta"]["interlingua/resume"], "outcome": "declined"}
        done = await made.call("tools/call", name="interlingua_answer", arguments=given)
        assert done["content"][0]["text"] == "Let me see. declined None. "


@pytest.mark.parametrize("given", [{}, {"resume": 7}, {"resume": "x.y", "answer": 1}, {"resume": "x", "outcome": "no"}])
def test_the_answering_tool_refuses_what_it_cannot_use(given: dict[str, Any]) -> None:
    async def main() -> None:
        async with rig(scripted(asking(YES_NO))) as made:
            result = await made.call("tools/call", name="interlingua_answer", arguments=given)
            assert result["isError"] is True and result["content"][0]["text"].startswith("/arguments/")

    run(main())
