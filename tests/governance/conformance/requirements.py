"""What AIP-44 requires of a running gateway, a function each. AssertionError: it is not met.

`docs/aip44.md` says which sentence each is of. They share a gateway, and each has its own sessions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gateway.governance.audit import verify
from tests.governance.audit.support import files_of
from tests.governance.conformance.room import ASKED, FREE, NEVER, ONCE, Line, Room, audited, no, short, yes

Requirement = Callable[[Room], None]
CALLS = ("tool_call", "tool_call_update")


def _code(answer: Line) -> Any:
    """What the gateway calls the error; None if it is none of its own."""
    return answer.get("error", {}).get("data", {}).get("code")


# --- the audit path -----------------------------------------------------------------------------------------------


def a_tool_call_and_its_result_are_on_disk_before_a_client_sees_them(room: Room) -> None:
    with room.editor("aware") as editor:
        editor.new()
        assert "result" in editor.prompt(f"sneak {FREE}")
        assert f"tool.call {FREE}" in editor.when("tool_call")
        ended = [log for message, log in editor.seen if '"completed"' in json.dumps(message)]
        assert ended and f"tool.result {FREE}" in ended[0]


def a_tool_call_is_recorded_with_who_what_and_by_whose_word(room: Room) -> None:
    with room.editor("aware") as editor:
        session = editor.new()
        editor.choose = yes
        assert "result" in editor.prompt(f"sneak {FREE} want {ASKED}")
        lines = [line for line in room.log("aware") if audited(line).get("session") == session]
        assert {audited(line)["operator"] for line in lines} == {"clerk"}
        assert "hush" not in json.dumps(lines), "what is secret is left out"
        found = {short(line): line for line in lines}
        wanted, done = found[f"tool.call {FREE}"], found[f"tool.result {FREE}"]
        assert audited(wanted)["audit-event-kind"] == audited(done)["audit-event-kind"] == "tool-call"
        assert audited(wanted)["call"] == audited(done)["call"]
        assert wanted["input"].get("to") == ["a@example.com"] and done["output"] == {"result": {"sent": True}}
        assert audited(wanted)["approval"] == audited(done)["approval"] == "auto"
        assert wanted["policy"]["ref"] == "free", wanted
        assert audited(found[f"tool.result {ASKED}"])["approval"] == "anonymous"
        assert "approval" not in audited(found[f"tool.call {ASKED}"])


def every_transition_is_recorded_before_it_is_told(room: Room) -> None:
    with room.editor("aware") as editor:
        session = editor.new()
        assert room.acts("aware", session) == ["operator.invoked"]
        assert "result" in editor.prompt("hello")
        assert "operator.running" in editor.when("agent_message_chunk")
        editor.choose = no
        answer = editor.prompt(f"sneak {ASKED}")
        assert "error" in answer, answer
        assert len(editor.questions()) == 1
        [(_, asked)] = editor.questions()
        assert asked[-1] == "operator.suspended"
        told = [act for act in room.acts("aware", session) if act.startswith("operator.")]
        expected = ("invoked", "running", "completed", "running", "suspended", "resumed", "interrupted")
        assert told == [f"operator.{state}" for state in expected]


def the_log_of_all_that_happened_is_whole(room: Room) -> None:
    for route in ("aware", "brief", "boxed"):
        with room.editor(route) as editor:
            editor.new()
            editor.prompt(f"sneak {FREE}")
        report = verify(files_of(room.folder / route))
        assert not report.mistakes, report.mistakes
        assert len(room.log(route)) > 2


def what_cannot_be_recorded_is_not_shown(room: Room) -> None:
    with room.editor("unrecorded") as editor:
        editor.new()
        log = room.folder / "unrecorded" / "audit-log.jsonl"
        log.unlink()
        answer = editor.prompt(f"sneak {FREE}")
        assert "error" in answer, answer
        assert not editor.updates(*CALLS) and not editor.said()


def closing_a_session_closes_its_audit_and_forgets_what_is_ephemeral(room: Room) -> None:
    for route, kept in (("aware", True), ("brief", False)):
        with room.editor(route) as editor:
            session = editor.new()
            assert "result" in editor.prompt("hello")
            editor.ask("session/close", sessionId=session)
            assert room.acts(route, session)[-1] == "audit.closed"
            loaded = editor.request("session/load", sessionId=session, cwd=str(room.work(route)), mcpServers=[])
            assert ("result" in loaded) is kept, (route, loaded)


# --- refusals -----------------------------------------------------------------------------------------------------


def a_tool_that_is_not_authorised_is_never_shown(room: Room) -> None:
    for tool in (NEVER, "nobody-has-this"):
        with room.editor("aware") as editor:
            session = editor.new()
            answer = editor.prompt(f"sneak {tool}")
            assert not editor.updates(*CALLS), tool
            assert _code(answer) == "denied" and tool in answer["error"]["message"]
            assert f"tool.refused {tool}" in room.acts("aware", session)
            assert f"tool.call {tool}" not in room.acts("aware", session)


def what_is_denied_is_declined_without_a_question(room: Room) -> None:
    with room.editor("aware") as editor:
        session = editor.new()
        assert "result" in editor.prompt(f"want {NEVER}")
        assert "want no" in editor.said() and not editor.questions() and not editor.updates(*CALLS)
        assert f"tool.refused {NEVER}" in room.acts("aware", session)


def no_tool_is_approved_because_the_agent_asks(room: Room) -> None:
    """The route's own policy answers every question with yes."""
    with room.editor("aware") as editor:
        editor.new()
        editor.choose = no
        assert "result" in editor.prompt(f"want {ASKED}")
        assert len(editor.questions()) == 1 and "want no" in editor.said()
        assert not editor.updates(*CALLS)


def a_call_that_needs_approval_is_held_until_somebody_approves(room: Room) -> None:
    with room.editor("aware") as editor:
        session = editor.new()
        editor.choose = yes
        assert "result" in editor.prompt(f"sneak {ASKED}")
        assert len(editor.questions()) == 1
        [(question, log)] = editor.questions()
        assert ASKED in json.dumps(question)
        assert log[-3:] == [f"tool.call {ASKED}", f"approval.requested {ASKED}", "operator.suspended"]
        kinds = [message.get("method", "") + json.dumps(message) for message, _ in editor.seen]
        shown = next(at for at, text in enumerate(kinds) if '"tool_call"' in text and "request_permission" not in text)
        asked = next(at for at, text in enumerate(kinds) if text.startswith("session/request_permission"))
        assert asked < shown
        assert f"approval.granted {ASKED}" in room.acts("aware", session)


def a_call_that_is_rejected_is_never_shown_and_ends_the_turn(room: Room) -> None:
    with room.editor("aware") as editor:
        session = editor.new()
        editor.choose = no
        answer = editor.prompt(f"sneak {ASKED}")
        assert _code(answer) == "denied" and not editor.updates(*CALLS)
        acts = [act for act in room.acts("aware", session) if act != "operator.resumed"]
        assert acts[-3:] == [f"approval.rejected {ASKED}", f"tool.refused {ASKED}", "operator.interrupted"]


def a_budget_that_is_used_up_asks(room: Room) -> None:
    with room.editor("aware") as editor:
        editor.new()
        editor.choose = no
        assert "result" in editor.prompt(f"sneak {ONCE}")
        assert not editor.questions() and editor.updates("tool_call")
        assert "error" in editor.prompt(f"sneak {ONCE}")
        assert len(editor.questions()) == 1 and len(editor.updates("tool_call")) == 1


def no_session_is_opened_outside_of_the_authorised_roots(room: Room) -> None:
    for route in ("aware", "boxed"):
        work = room.work(route)
        for cwd in ("/", "/etc", f"{room.folder}", f"{work}/../../..", f"{work}/out", "relative", f"{work}\0"):
            with room.editor(route) as editor:
                answer = editor.request("session/new", cwd=cwd, mcpServers=[])
                assert "error" in answer and answer["error"]["code"] == -32602, (route, cwd, answer)
                assert "error" in editor.request("session/load", sessionId="none", cwd=cwd, mcpServers=[])
                more = {"cwd": str(work), "additionalDirectories": [cwd], "mcpServers": []}
                assert "error" in editor.request("session/new", **more), (route, cwd)


def no_file_is_touched_outside_of_the_authorised_roots(room: Room) -> None:
    secret = room.folder / "secret"
    secret.write_text("SECRET")
    with room.editor("aware", fs={"readTextFile": True, "writeTextFile": True}) as editor:
        session = editor.new()
        work = room.work("aware")
        bad = ("/etc/hostname", f"{work}/../../secret", f"{work}/out/../secret", f"{room.folder}/secret")
        assert "result" in editor.prompt(" ".join(f"steal {path}" for path in bad))
        assert not [message for message, _ in editor.seen if message.get("method", "").startswith("fs/")]
        assert secret.read_text() == "SECRET" and "stole" not in editor.said()
        assert room.acts("aware", session).count("tool.refused fs.read") == len(bad)
        assert "result" in editor.prompt(f"steal {work}/x")
        assert "stole FILE BODY wrote" in editor.said() and (work / "x").read_text() == "z"
        (work / "x").write_text("FILE BODY")
        acts = room.acts("aware", session)
        assert acts.count("tool.call fs.read") == acts.count("tool.result fs.write") == 1


def a_call_outside_of_a_turn_is_told_to_nobody(room: Room) -> None:
    with room.editor("aware") as editor:
        session = editor.new()
        over = room.folder / f"over-{session}"
        assert "result" in editor.prompt(f"late {FREE}@{over}")
        over.touch()
        while "was late" not in editor.said():
            editor.next()
        assert not editor.updates(*CALLS)
        assert room.will_say("aware", session, f"tool.refused {FREE}")


def history_is_marked_as_untrusted(room: Room) -> None:
    with room.editor("aware") as editor:
        session = editor.new()
        assert "result" in editor.prompt(f"sneak {FREE} hello")
        count = len(room.acts("aware", session))
    with room.editor("aware") as editor:
        editor.ask("session/load", sessionId=session, cwd=str(room.work("aware")), mcpServers=[])
        told = editor.updates("user_message_chunk", "agent_message_chunk", *CALLS)
        assert len(told) > 2
        assert all(update.get("_meta", {}).get("aip44", {}).get("untrusted") is True for update in told)
        assert len(room.acts("aware", session)) == count, "what was is no new call"


# --- tiers ---------------------------------------------------------------------------------------------------------


def each_tier_declares_what_it_stands_for_and_nothing_else(room: Room) -> None:
    declared = {}
    for route in ("plain", "aware", "boxed"):
        with room.editor(route) as editor:
            found = editor.hello["agentCapabilities"]
            declared[route] = (
                bool(found.get("loadSession")),
                bool(found.get("mcpCapabilities", {}).get("http")),
                bool(found.get("promptCapabilities", {}).get("image")),
            )
            about = editor.hello["_meta"]["aip44"]
            tier = {"plain": "basic", "aware": "governance-aware", "boxed": "sandboxed"}[route]
            assert about["tier"] == tier and about["acp_rev"] == "b7f0005"
            assert about.get("operator") == (None if route == "plain" else "clerk")
    assert declared == {"plain": (False,) * 3, "aware": (True, False, False), "boxed": (True, True, False)}


def what_was_not_declared_is_refused(room: Room) -> None:
    with room.editor("aware") as editor:
        editor.new()
        picture = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
        answer = editor.request("session/prompt", sessionId=editor.session, prompt=[picture])
        assert answer.get("error", {}).get("code") == -32602, answer


def an_operators_skills_are_told_its_agent_in_the_first_turn_and_recorded_before(room: Room) -> None:
    with room.editor("boxed") as editor:
        session = editor.new()
        heard = [f"heard {json.dumps(found)} heard " for found in ([["ws://skills/voice", "Be plain."]], [])]
        for turns in (1, 2):
            assert "result" in editor.prompt("heard")
            assert editor.said() == "".join(heard[:turns]), editor.said()
        assert "skill.activated" in editor.when("agent_message_chunk")
        assert room.acts("boxed", session).count("skill.activated") == 1


def what_nothing_governs_is_as_it_was(room: Room) -> None:
    with room.editor("plain") as editor:
        editor.new()
        assert "result" in editor.prompt(f"sneak {NEVER}")
        assert editor.updates("tool_call") and not editor.questions() and not room.log("plain")


REQUIREMENTS: dict[str, Requirement] = {
    name: one
    for name, one in list(globals().items())
    if getattr(one, "__module__", "") == __name__ and one.__annotations__ == {"room": "Room", "return": "None"}
}
