"""Tool calls of an agent under governance: what the rules are told of them, its permission questions, and strays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from adapters.agent_client.outbound.tool_calls import grants, stated_risk
from gateway.core import events as e
from gateway.core.types import Answer, Json, Outcome
from tests.adapters.agent_client.governed_rules import Rules
from tests.adapters.agent_client.outbound_agent import OPTIONS, Client, Rig, beside, raw, rig, settled, thread_of
from tests.support.context import FakeContext

MARK = {"aip44": {"untrusted": True}}


def governed(it: Rig, rules: Rules, **fields: Any) -> FakeContext:
    """A run's context on a governed route."""
    context = it.context(thread="t1", **fields)
    context.governor = context.governed = rules
    return context


async def end(it: Rig, task: Any) -> None:
    it.wire.end(await it.wire.prompt())
    await task


def selected(option: str) -> Any:
    return {"outcome": {"outcome": "selected", "optionId": option}}


async def test_the_rules_are_told_the_tools_name_its_risk_and_whether_it_may_still_ask(tmp_path: Path) -> None:
    async with rig(cwd=tmp_path) as it:
        rules = Rules(tmp_path)
        context = governed(it, rules)
        [task] = await it.started(context)
        wire = it.wire
        wire.update("s1", "tool_call", toolCallId="c1", title="Reading", name="read_file", kind="read")
        wire.update("s1", "tool_call", toolCallId="c2", title="mail-draft", kind="edit", status="in_progress")
        meta = {"aip44": {"tool": "smtp-send", "server": "mail", "risk": 3}}
        wire.update("s1", "tool_call", toolCallId="c3", title="Sending", kind="read", status="pending", _meta=meta)
        wire.update("s1", "tool_call_update", toolCallId="c1", status="in_progress", rawInput={"path": "/a"})
        wire.update("s1", "tool_call_update", toolCallId="c2", title="smtp-send", kind="execute")
        wire.update("s1", "tool_call_update", toolCallId="c2", kind="read")
        wire.update("s1", "tool_call_update", toolCallId="c3", name=None, _meta={"aip44": {"cost": 1}, "k": 1})
        await end(it, task)
        assert rules.of("describe") == [
            ("c1", {"tool": "read_file", "risk": 0, "pending": True}),
            ("c2", {"tool": "mail-draft", "risk": 1, "pending": False}),
            ("c3", {"tool": "smtp-send", "server": "mail", "risk": 3, "pending": True}),
            ("c1", {"arguments": {"path": "/a"}, "pending": False}),
            ("c2", {"tool": "smtp-send", "risk": 2, "pending": False}),
            ("c2", {"pending": False}),
            ("c3", {"server": "mail", "pending": True}),
        ]
        assert [event.name for event in context.said(e.ToolCallStarted)] == ["read_file", "mail-draft", "smtp-send"]


async def test_what_would_make_another_call_of_one_that_is_over_or_has_no_id_is_told_to_nobody(tmp_path: Path) -> None:
    async with rig(cwd=tmp_path) as it:
        rules = Rules(tmp_path)
        context = governed(it, rules)
        [task] = await it.started(context)
        it.wire.update("s1", "tool_call", toolCallId="c1", title="one", kind="read", status="completed")
        it.wire.update("s1", "tool_call_update", toolCallId="c1", title="rm -rf /", status="in_progress")
        it.wire.update("s1", "tool_call_update", toolCallId="c1", kind="execute")
        it.wire.update("s1", "tool_call_update", toolCallId="c1", rawOutput={"more": 1})
        it.wire.update("s1", "tool_call_update", toolCallId="c1", rawInput={"path": "/"})
        it.wire.update("s1", "tool_call", title="without an id")
        it.wire.update("s1", "tool_call_chunk", toolCallId="c1")
        it.wire.update("s1", "_acme/other", toolCallId="c1")
        await end(it, task)
        assert [event.data["rawOutput"] for event in context.said(e.Custom)] == [{"more": 1}]
        assert [note.kind for note in context.notes] == ["_acme/other"]
        assert context.losses == {"tool_refused": 5}


@pytest.mark.parametrize("policy", ["allow", "deny"])
@pytest.mark.parametrize("option", ["ok", "no"])
async def test_where_the_rules_ask_the_agents_question_is_the_approval_and_no_policy_answers_it(
    tmp_path: Path, policy: str, option: str
) -> None:
    async with rig(cwd=tmp_path, permissions={"default": policy}) as it:
        rules = Rules(tmp_path)
        rules.verdicts = {"smtp-send": "ask"}
        rules.answers = [Answer(value={"optionId": option})]
        [task] = await it.started(governed(it, rules))
        to = {"to": "a@b"}
        it.wire.update("s1", "tool_call", toolCallId="c1", title="Sending", name="smtp-send", kind="fetch", rawInput=to)
        answer = await it.wire.ask(
            1, "session/request_permission", sessionId="s1", toolCall={"toolCallId": "c1"}, options=OPTIONS
        )
        assert answer["result"] == selected(option)
        assert rules.of("permission") == [("c1", "smtp-send", to, 0, None)]
        [question] = rules.questions
        assert question.payload["toolCall"] == {
            "toolCallId": "c1",
            "title": "Sending",
            "name": "smtp-send",
            "kind": "fetch",
            "rawInput": to,
        }
        assert [each["optionId"] for each in question.payload["options"]] == ["ok", "no"]
        assert "Sending" in question.message
        assert rules.granted == [option == "ok"]
        await end(it, task)


async def test_what_the_rules_deny_is_declined_whatever_the_routes_policy_says(tmp_path: Path) -> None:
    async with rig(cwd=tmp_path, permissions={"default": "allow"}) as it:
        rules = Rules(tmp_path)
        rules.verdicts = {"smtp-send": "deny"}
        context = governed(it, rules)
        [task] = await it.started(context)
        call = {"toolCallId": "c9", "title": "smtp-send"}
        answer = await it.wire.ask(1, "session/request_permission", sessionId="s1", toolCall=call, options=OPTIONS)
        assert answer["result"] == selected("no")
        assert rules.of("permission") == [("c9", "smtp-send", None, 2, None)]
        assert not context.asked
        await end(it, task)


@pytest.mark.parametrize(("policy", "asked", "answer"), [("allow", 0, "ok"), ("deny", 0, "no"), ("forward", 1, "ever")])
async def test_what_the_rules_allow_is_the_routes_policys_to_answer(
    tmp_path: Path, policy: str, asked: int, answer: str
) -> None:
    async with rig(cwd=tmp_path, permissions={"default": policy}) as it:
        context = governed(it, Rules(tmp_path), answers=[{"optionId": "ever"}])
        [task] = await it.started(context)
        said = await it.wire.ask(
            1, "session/request_permission", sessionId="s1", toolCall={"toolCallId": "c1"}, options=OPTIONS
        )
        assert said["result"] == selected(answer) and len(context.asked) == asked
        await end(it, task)


async def test_a_question_that_names_another_tool_or_a_greater_risk_is_judged_by_that(tmp_path: Path) -> None:
    async with rig(cwd=tmp_path) as it:
        rules = Rules(tmp_path)
        rules.verdicts = {"smtp-send": "deny"}
        [task] = await it.started(governed(it, rules))
        it.wire.update("s1", "tool_call", toolCallId="c1", title="mail-draft", kind="read")
        call = {"toolCallId": "c1", "title": "smtp-send", "kind": "execute", "rawInput": {"n": 1}}
        answer = await it.wire.ask(1, "session/request_permission", sessionId="s1", toolCall=call, options=OPTIONS)
        assert answer["result"] == selected("no")
        assert rules.of("permission") == [("c1", "smtp-send", {"n": 1}, 2, None)]
        await end(it, task)


async def test_a_call_whose_id_comes_again_is_asked_about_by_the_name_that_its_events_will_have(tmp_path: Path) -> None:
    async with rig(cwd=tmp_path) as it:
        rules = Rules(tmp_path)
        context = governed(it, rules, answers=[{"optionId": "ok"}] * 2)
        [task] = await it.started(context)
        for at in range(2):
            call = {"toolCallId": "c", "title": "t", "kind": "read"}
            await it.wire.ask(at, "session/request_permission", sessionId="s1", toolCall=call, options=OPTIONS)
            it.wire.update("s1", "tool_call", **call, status="in_progress")
            it.wire.update("s1", "tool_call_update", toolCallId="c", status="completed")
        await end(it, task)
        assert [said[0] for said in rules.of("permission")] == ["c", "c#2"]
        assert [event.call for event in context.said(e.ToolCallStarted)] == ["c", "c#2"]


async def test_a_question_of_a_gateway_behind_is_a_persons_and_the_call_that_stands_for_it_is_not_told(
    tmp_path: Path,
) -> None:
    async with rig(cwd=tmp_path, permissions={"default": "allow"}) as it:
        rules = Rules(tmp_path)
        context = governed(it, rules, answers=[{"optionId": "no"}])
        [task] = await it.started(context)
        call = {"toolCallId": "question-1", "title": "Red or green?", "_meta": {"aip44": {"question": True}}}
        it.wire.update("s1", "tool_call", **call)
        asked = await it.wire.ask(1, "session/request_permission", sessionId="s1", toolCall=call, options=OPTIONS)
        assert asked["result"] == selected("no") and len(context.asked) == 1
        it.wire.update("s1", "tool_call_update", toolCallId="question-1", status="completed", rawOutput="no")
        await end(it, task)
        assert not rules.log and not context.said(e.ToolCallStarted) and not context.losses


async def test_options_that_share_an_id_are_not_offered(tmp_path: Path) -> None:
    async with rig(cwd=tmp_path) as it:
        rules = Rules(tmp_path)
        rules.verdicts, rules.answers = {"smtp-send": "ask"}, [Answer(outcome=Outcome.DECLINED)]
        [task] = await it.started(governed(it, rules))
        call = {"toolCallId": "c1", "name": "smtp-send"}
        both = [{"optionId": "both", "name": "B", "kind": kind} for kind in ("reject_once", "allow_once")]
        offers = [*both, *OPTIONS]
        answer = await it.wire.ask(1, "session/request_permission", sessionId="s1", toolCall=call, options=offers)
        assert answer["result"] == selected("no")
        assert "both" not in [each["optionId"] for each in rules.questions[0].payload["options"]]
        await end(it, task)


@pytest.mark.parametrize(
    ("value", "lets"),
    [
        (Answer(value={"optionId": "ok"}), True),
        (Answer(value="ok"), True),
        (Answer(value={"optionId": "new"}), True),
        (Answer(value={"optionId": "no"}), False),
        (Answer(value={"optionId": "none such"}), False),
        (Answer(outcome=Outcome.DECLINED), False),
        (Answer(outcome=Outcome.CANCELLED), False),
        (Answer(value={"optionId": "both"}), False),
    ],
)
def test_only_what_is_plainly_a_refusal_lets_the_agent_do_nothing(value: Answer, lets: bool) -> None:
    more = [
        {"optionId": "new", "name": "N", "kind": "allow_for_a_week"},
        {"optionId": "both", "name": "B", "kind": "reject_once"},
        {"optionId": "both", "name": "B", "kind": "allow_once"},
    ]
    assert grants(value, {"options": [*OPTIONS, *more]}) is lets


@pytest.mark.parametrize(
    ("said", "kinds", "risk"),
    [
        ({}, [], 2),
        ({"kind": "read"}, [], 0),
        ({"kind": "read"}, ["execute"], 2),
        ({"kind": "_new"}, [], 2),
        ({"kind": "edit"}, [None, 7], 1),
        ({"kind": "execute", "_meta": {"aip44": {"risk": 0}}}, [], 2),
        ({"kind": "read", "_meta": {"aip44": {"risk": 9}}}, [], 3),
        ({"kind": "read", "_meta": {"aip44": {"risk": True}}}, [], 0),
        ({"kind": "read", "_meta": {"aip44": []}}, [], 0),
    ],
)
def test_an_agent_may_only_raise_the_risk_of_a_call(said: Json, kinds: list[Any], risk: int) -> None:
    assert stated_risk(said, kinds) == risk


async def test_a_tool_call_or_a_permission_outside_of_any_run_is_audited_and_told_to_nobody(tmp_path: Path) -> None:
    async with rig(cwd=tmp_path) as it:
        rules = Rules(tmp_path)
        context = governed(it, rules, answers=[{"optionId": "ok"}])
        await it.turn(context, "done")
        it.wire.update("s1", "tool_call", toolCallId="c1", title="T", name="smtp-send", rawInput={"to": "a"})
        it.wire.chunk("s1", "by the way")
        call = {"toolCallId": "c2", "title": "mail-draft"}
        asked = await it.wire.ask(1, "session/request_permission", sessionId="s1", toolCall=call, options=OPTIONS)
        assert asked["result"] == {"outcome": {"outcome": "cancelled"}}
        assert rules.of("stray") == [
            ("t1", "smtp-send", {"to": "a"}, "c1", "outside of any run"),
            ("t1", "mail-draft", None, "", "outside of any run"),
        ]
        assert [note.data["sessionUpdate"] for note in context.notes] == ["agent_message_chunk"]
        assert "_meta" not in context.notes[0].data


async def test_what_an_agent_does_in_a_turn_that_was_given_up_is_audited_and_told_to_nobody(tmp_path: Path) -> None:
    async with rig(cwd=tmp_path) as it:
        rules = Rules(tmp_path)
        context = governed(it, rules)
        [task] = await it.started(context)
        task.cancel()
        await asyncio.wait([task])
        it.wire.chunk("s1", "still here")
        it.wire.update("s1", "tool_call", toolCallId="c1", title="smtp-send", status="in_progress")
        await settled()
        assert [said[1] for said in rules.of("stray")] == ["smtp-send"] and not context.notes


async def test_the_late_end_of_a_call_is_no_call_of_its_own(tmp_path: Path) -> None:
    async with rig(cwd=tmp_path) as it:
        rules = Rules(tmp_path)
        first = governed(it, rules)
        [task] = await it.started(first)
        it.wire.update("s1", "tool_call", toolCallId="c1", title="mail-draft", kind="edit")
        await end(it, task)
        it.wire.update("s1", "tool_call_update", toolCallId="c1", status="completed")
        await settled()
        second = it.context(thread="t1", run="run-2")
        second.thread, second.governor, second.governed = first.thread, rules, rules
        [task] = await it.started(second)
        it.wire.update("s1", "tool_call_update", toolCallId="c1", status="completed")
        it.wire.update("s1", "tool_call", toolCallId="c1", title="mail-draft", kind="edit", status="completed")
        await end(it, task)
        assert not rules.of("stray") and not first.notes
        assert second.losses == {"tool_refused": 1} and len(second.said(e.ToolCallStarted)) == 1


async def test_what_an_agent_replays_is_told_marked_untrusted_and_is_no_new_call(tmp_path: Path) -> None:
    async with rig(cwd=tmp_path) as it:
        it.can(loadSession=True)
        rules = Rules(tmp_path)

        def load(_: Any) -> Any:
            it.wire.chunk("old", "hello")
            it.wire.update("old", "tool_call", toolCallId="c1", title="t", _meta={"aip44": {"tool": "x"}, "k": 1})
            return {}

        it.handlers["session/load"] = load
        context = beside("old", caller=Client())
        context.governor = rules
        await it.outbound.relay(
            context, "session/load", raw({"sessionId": "old", "cwd": str(tmp_path), "mcpServers": []})
        )
        await settled()
        assert [note.data["_meta"] for note in context.notes] == [
            MARK,
            {"aip44": {"tool": "x", "untrusted": True}, "k": 1},
        ]
        assert not rules.of("stray") and not rules.of("describe")
        it.wire.update("old", "tool_call", toolCallId="c2", title="late")
        await settled()
        assert len(context.notes) == 2 and [said[1] for said in rules.of("stray")] == ["late"]


async def test_without_rules_history_and_strays_are_told_as_they_are() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        await it.turn(context, "done")
        it.wire.update("s1", "tool_call", toolCallId="c1", title="T")
        await settled()
        assert [note.data["toolCallId"] for note in context.notes] == ["c1"]


@pytest.mark.parametrize("where", ["target", "recorded", "of the gateway's own"])
async def test_a_session_that_no_client_opened_is_in_a_folder_that_may_be_worked_in(tmp_path: Path, where: str) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)

    async with rig(**({"cwd": inside / "link"} if where == "target" else {})) as it:
        it.can(loadSession=True)
        it.handlers["session/load"] = lambda _: {}
        rules = Rules(inside)
        context = governed(it, rules)
        if where == "recorded":
            context = it.context(thread="t1", upstream_thread={"session": "s0", "cwd": f"{inside}/link"})
            context.governor = context.governed = rules
        if where == "of the gateway's own":
            await it.turn(context, "done")
            assert it.wire.sent("session/new")[0]["cwd"] == str(inside)
            assert thread_of(context).upstream["wire"]["cwd"] == str(inside)
            return
        with pytest.raises(Exception, match="not one that may be worked in"):
            await it.outbound.run(context)
        assert not it.wires or not (it.wire.sent("session/new") or it.wire.sent("session/load"))
