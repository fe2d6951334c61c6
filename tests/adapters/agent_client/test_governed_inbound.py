"""Clients of a governed route: what is declared to them, where their sessions may be, and how these end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.agent_client.inbound import connection
from gateway.config import Route
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Denied, NotFound
from gateway.core.types import Agent, RunQuery, Thread, ThreadQuery, ThreadUpdate
from gateway.core.version import version
from tests.adapters.agent_client.editor import Editor
from tests.adapters.agent_client.governed_rules import Rules
from tests.adapters.agent_client.inbound_rig import NATIVE, Native, Rig, asking, native, rig, scripted
from tests.support.scripted import Scripted, echo

_ALL = ThreadQuery()
UNTRUSTED = {"aip44": {"untrusted": True}}
ABLE = replace(
    NATIVE,
    extra={
        "agent_client": {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True, "_new": {"x": 1}},
                "mcpCapabilities": {"http": True, "sse": True, "acp": True},
                "sessionCapabilities": {"close": {}, "list": {}, "fork": {}},
                "_meta": {"acme": 1},
            },
            "authMethods": [],
            "_meta": {"acme": 2, "aip44": {"via": "acme"}},
        }
    },
)


@asynccontextmanager
async def governed(
    rules: Rules, *agents: tuple[Route, Scripted], file: Path | None = None, more: dict[str, Rules] | None = None
) -> AsyncIterator[Rig]:
    """An inbound half in front of agents, all of which these rules govern; `more`: those of others, by name."""
    async with rig(*agents, file=file) as it:
        it.engine.agents.extension = lambda name, protocol, key: (more or {}).get(name, rules)  # type: ignore[method-assign]
        yield it


def able() -> tuple[Route, Native]:
    """An agent of this protocol that can do whatever there is."""
    route, outbound = native(echo)
    outbound.agent = ABLE
    return route, outbound


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A workspace with a folder, and links out of it."""
    inside = tmp_path / "room"
    (inside / "sub").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (inside / "out").symlink_to(tmp_path / "other")
    (inside / "near").symlink_to(inside / "sub")
    return inside


async def test_initialize_declares_what_the_manifest_promises_and_says_who_is_bound(tmp_path: Path) -> None:
    rules = Rules(tmp_path, promised={"agent": {"promptCapabilities": {"image": True, "audio": False}}})

    async with governed(rules, able()) as it:
        editor = await it.raw()
        said = await editor.initialize()
        capabilities = said["agentCapabilities"]
        assert "loadSession" not in capabilities and "mcpCapabilities" not in capabilities
        assert capabilities["promptCapabilities"] == {"image": True, "_new": {"x": 1}}
        assert set(capabilities["sessionCapabilities"]) == {"close", "list", "fork", "resume", "delete"}
        assert capabilities["_meta"] == {"acme": 1}
        assert said["_meta"] == {"acme": 2, "aip44": {"via": "acme", **rules.about}}
        [can] = rules.of("check")
        assert can["agent"]["mcpCapabilities"] == {"http": True, "sse": True, "acp": True}


async def test_of_what_no_manifest_can_speak_of_mcp_goes_with_the_rest_of_mcp(tmp_path: Path) -> None:
    promised = {"agent": {"loadSession": True, "mcpCapabilities": {"http": True}}}

    async with governed(Rules(tmp_path, promised=promised), able()) as it:
        said = (await (await it.raw()).initialize())["agentCapabilities"]
        assert said["loadSession"] is True and said["promptCapabilities"] == {"_new": {"x": 1}}
        assert said["mcpCapabilities"] == {"http": True, "acp": True}


async def test_a_manifest_that_promises_too_much_is_a_failed_initialize(tmp_path: Path) -> None:
    from gateway.core.errors import Unavailable

    class Strict(Rules):
        def check(self, can: Any) -> None:
            raise Unavailable("the manifest promises agent.mcpCapabilities.http, and the agent cannot")

    async with governed(Strict(tmp_path), able()) as it:
        refused = await (await it.raw()).refused("initialize", {"protocolVersion": 1})
        assert "agent.mcpCapabilities.http" in refused.message


async def test_a_manifest_is_held_against_the_agent_itself_however_long_it_takes_to_say_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = Rules(tmp_path, promised={"agent": {"promptCapabilities": {"image": True}}})

    class Slow(Native):
        said = asyncio.Event()

        async def describe(self) -> Agent:
            await self.said.wait()
            return await super().describe()

    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.01)
    slow = Slow(echo, agent=ABLE)
    async with governed(rules, (able()[0], slow)) as it:
        asked = await (await it.raw()).begin("initialize", {"protocolVersion": 1})
        assert not (await asyncio.wait([asked], timeout=0.3))[0]
        slow.said.set()
        assert (await asked)["_meta"]["aip44"]["via"] == "acme"
        [can] = rules.of("check")
        assert can["agent"]["mcpCapabilities"] == {"http": True, "sse": True, "acp": True}


async def test_a_client_that_chooses_its_agent_is_declared_what_all_of_them_may(tmp_path: Path) -> None:
    rules = Rules(tmp_path, promised={"agent": {"loadSession": True}})

    async with governed(rules, scripted(echo), scripted(echo, "second")) as it:
        said = await (await it.raw(None)).initialize()
        assert said["agentInfo"] == {"name": "interlingua", "title": "Interlingua", "version": version()}
        assert said["agentCapabilities"]["loadSession"] is True
        assert said["agentCapabilities"]["promptCapabilities"] == {}
        assert not rules.of("check")


@pytest.mark.parametrize("agent", ["native", "foreign"])
async def test_what_initialize_did_not_declare_is_refused_in_a_prompt(tmp_path: Path, agent: str) -> None:
    rules = Rules(tmp_path, promised={"agent": {"loadSession": True}})
    resource = {"type": "resource", "resource": {"uri": "memory://x", "text": "t"}}

    async with governed(rules, able() if agent == "native" else scripted(echo)) as it:
        editor = await it.connect()
        session = await editor.new(cwd=str(tmp_path))
        refused = await editor.refused("session/prompt", {"sessionId": session, "prompt": [resource]})
        assert refused.code == -32602
        assert (await editor.prompt(session))["stopReason"] == "end_turn"


OUTSIDE = ["{root}/..", "{root}/../other", "{root}/out", "{root}/out/new", "/", "sub", "", "file://{root}", "{root}/\0"]


@pytest.mark.parametrize("agent", ["native", "foreign"])
async def test_no_session_is_opened_in_a_folder_outside_of_the_authorised_roots(room: Path, agent: str) -> None:
    rules = Rules(room)

    made = able() if agent == "native" else scripted(echo)
    async with governed(rules, made) as it:
        editor = await it.connect()
        editor.lenient = True
        session = await editor.new(cwd=str(room))
        before = await it.engine.threads.count(_ALL)
        for path in [each.format(root=room) for each in OUTSIDE] + [f"{room}/" + "a/" * 3000]:
            for method, more in (("session/new", {}), ("session/load", {"sessionId": session})):
                params = {"cwd": path, "mcpServers": [], **more}
                assert (await editor.refused(method, params)).data["path"] == "/cwd", (method, path[:80])
            folders = {"cwd": str(room), "mcpServers": [], "additionalDirectories": [str(room), path]}
            for method, more in (("session/new", {}), ("session/resume", {"sessionId": session})):
                refused = await editor.refused(method, {**folders, **more})
                assert refused.data["path"] == "/additionalDirectories/1"
                assert str(room.parent / "other") not in refused.message
        assert await it.engine.threads.count(_ALL) == before
        if agent == "native":
            assert [method for method, *_ in made[1].relayed] == ["session/new"]  # type: ignore[attr-defined]
            fork = await editor.refused("session/fork", {"sessionId": session, "cwd": f"{room}/out", "mcpServers": []})
            assert fork.code == -32602
            unknown = {"sessionId": "of the agent's own", "cwd": f"{room}/out", "mcpServers": []}
            assert (await editor.refused("session/load", unknown)).code == -32602


async def test_an_agent_is_told_the_folder_without_its_links_and_a_list_has_the_clients_words(room: Path) -> None:
    rules = Rules(room)

    made = able()
    made[1].agent = NATIVE
    async with governed(rules, made) as it:
        editor = await it.connect()
        session = await editor.new(cwd=f"{room}/near/../near", additionalDirectories=[f"{room}/near"])
        [(_, params, _)] = made[1].relayed
        assert f'"cwd":"{room}/sub"'.encode() in params.replace(b": ", b":")
        assert f"{room}/near".encode() not in params
        assert rules.of("opened") == [session]
        listed = await editor.request("session/list", {"cwd": f"{room}/near/../near"})
        assert [each["sessionId"] for each in listed["sessions"]] == [session]


async def test_a_list_leaves_out_sessions_of_folders_that_may_not_be_worked_in(room: Path) -> None:
    rules = Rules(room)

    made = able()
    theirs = [{"sessionId": "a", "cwd": str(room)}, {"sessionId": "b", "cwd": f"{room}/out"}, {"sessionId": "c"}]
    made[1].answers["session/list"] = {"sessions": theirs, "nextCursor": "2"}
    async with governed(rules, made) as it:
        editor = await it.connect()
        listed = await editor.request("session/list", {})
        assert listed == {"sessions": theirs[:1], "nextCursor": "2"}


async def test_another_agent_is_chosen_only_for_a_folder_that_it_may_have(room: Path) -> None:
    rules, others = Rules(room), Rules(room.parent / "other")

    first, second = scripted(echo), scripted(echo, "second")
    async with governed(rules, first, second, more={"second": others}) as it:
        editor = await it.connect(None)
        session = await editor.new(cwd=str(room))
        choice = {"sessionId": session, "configId": "agent", "value": "second"}
        assert (await editor.refused("session/set_config_option", choice)).data["path"] == "/cwd"
        assert (await editor.prompt(session))["stopReason"] == "end_turn"
        assert rules.of("opened") == [session] and not others.of("opened")


async def test_a_session_is_taken_up_where_it_was_unless_that_is_outside_by_now(room: Path) -> None:
    rules = Rules(room)

    async with governed(rules, scripted(echo)) as it:
        session = await (await it.connect()).new(cwd=f"{room}/near")
        foreign = await it.engine.threads.create(Thread(id="made elsewhere", created_at=0.0, updated_at=0.0))
        another = await it.connect()
        assert (await another.prompt(session))["stopReason"] == "end_turn"
        assert (await another.prompt(foreign.id))["stopReason"] == "end_turn"
        (room / "near").unlink()
        (room / "near").symlink_to(room.parent / "other")
        third = await it.connect()
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]}
        assert (await third.refused("session/prompt", params)).code == -32600
        assert (await third.refused("session/_acme", {"sessionId": session})).code == -32600
        assert await third.request("session/delete", {"sessionId": session}) == {}


def marks(editor: Editor) -> list[Any]:
    return [update.get("_meta") for update in editor.updates]


async def tool(context: RunContext) -> None:
    context.emit(e.PartDelta(part="text", delta="before "))
    context.emit(e.ToolCallStarted(call="c", name="mail-draft", kind="edit"), e.ToolCallEnded(call="c", output="ok"))
    context.emit(e.RunFinished())
    await context.drain()


async def test_what_was_is_marked_untrusted_to_whoever_loads_it_and_what_happens_then_is_not(tmp_path: Path) -> None:
    async with governed(Rules(tmp_path), scripted(tool)) as it:
        editor = await it.connect()
        session = await editor.new(cwd=str(tmp_path))
        await editor.prompt(session)
        assert set(map(str, marks(editor))) == {"None"}
        another = await it.connect()
        await another.request("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
        assert another.kinds()[:3] == ["user_message_chunk", "agent_message_chunk", "tool_call"]
        assert marks(another) == [UNTRUSTED] * len(another.updates)
        told = len(another.updates)
        await another.prompt(session)
        assert len(another.updates) > told and marks(another)[told:] == [None] * (len(another.updates) - told)
        third = await it.connect()
        await third.request("session/resume", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
        assert not third.updates


async def test_of_a_run_that_goes_on_only_what_was_is_marked(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def script(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="before "))
        await context.drain()
        await gate.wait()
        context.emit(e.PartDelta(part="text", delta="after"), e.RunFinished())
        await context.drain()

    async with governed(Rules(tmp_path), scripted(script)) as it:
        editor = await it.connect()
        session = await editor.new(cwd=str(tmp_path))
        prompt = await editor.start(session)
        await editor.heard("before")
        another = await it.connect()
        await another.request("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
        gate.set()
        await another.heard("after")
        await prompt
        told = {update["content"]["text"]: update.get("_meta") for update in another.updates}
        assert told == {"hello there": UNTRUSTED, "before ": UNTRUSTED, "after": None}


async def test_what_an_agent_replays_of_its_own_is_marked_and_the_marks_of_others_stay(tmp_path: Path) -> None:
    made = able()

    def load(context: Any, _: Any) -> dict[str, Any]:
        text = {"type": "text", "text": "old", "_meta": {"k": 1}}
        said = {"sessionUpdate": "agent_message_chunk", "content": text, "_meta": {"acme": 1, "aip44": {"x": 2}}}
        context.note(ThreadUpdate(protocol="agent_client", kind="output", data=said, kept=True))
        return {}

    made[1].answers["session/load"] = load
    async with governed(Rules(tmp_path), made) as it:
        editor = await it.connect()
        await editor.request("session/load", {"sessionId": "theirs", "cwd": str(tmp_path), "mcpServers": []})
        assert marks(editor) == [{"acme": 1, "aip44": {"x": 2, "untrusted": True}}]
        assert editor.updates[0]["content"]["_meta"] == {"k": 1}


async def test_without_rules_nothing_is_marked(tmp_path: Path) -> None:
    async with rig(scripted(tool)) as it:
        editor = await it.connect()
        session = await editor.new(cwd="/anywhere")
        await editor.prompt(session)
        said = await editor.load(session)
        assert "_meta" not in said and set(map(str, marks(editor))) == {"None"}


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
@pytest.mark.parametrize("ephemeral", [False, True])
async def test_a_session_that_is_closed_has_its_audit_closed_and_is_forgotten_if_memory_is_ephemeral(
    tmp_path: Path, method: str, ephemeral: bool
) -> None:
    rules = Rules(tmp_path, ephemeral=ephemeral)

    async with governed(rules, scripted(asking({"type": "boolean"})), file=tmp_path / "store.db") as it:
        editor, other = await it.connect(), await it.connect()
        session = await editor.new(cwd=str(tmp_path))
        await other.request("session/resume", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
        prompt = await editor.start(session)
        await editor.next_asked()
        answer = await editor.request(method, {"sessionId": session})
        assert answer == {} and (await prompt)["stopReason"] == "cancelled"
        assert rules.of("closed") == [session]
        kept = await it.engine.runs.list(RunQuery(thread=session))
        if ephemeral or method == "session/delete":
            with pytest.raises(NotFound):
                await it.engine.threads.get(session)
            assert (await other.refused("session/prompt", {"sessionId": session, "prompt": []})).code == -32002
        else:
            assert (await it.engine.threads.get(session)).id == session
            await other.request("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
        assert len(kept) == (0 if ephemeral else len(kept))
        if ephemeral:
            assert not await it.engine.runs.list(RunQuery(agent="scripted"))


@pytest.mark.parametrize("way", ["by a form", "by a prompt"])
async def test_who_may_not_approve_is_told_so_and_the_question_stays_open(tmp_path: Path, way: str) -> None:
    schema = {"type": "boolean"} if way == "by a form" else {"type": "string"}

    async with governed(Rules(tmp_path), scripted(asking(schema))) as it:
        answer, refusing = it.engine.runs.answer, [True]

        async def checked(*args: Any) -> Any:
            if refusing:
                raise Denied("bob may not approve it: it takes editor")
            return await answer(*args)

        it.engine.runs.answer = checked  # type: ignore[assignment]
        editor, other = await it.connect(), await it.connect()
        session = await editor.new(cwd=str(tmp_path))
        prompt = await editor.start(session)
        if way == "by a form":
            await editor.choose(await editor.next_asked(), "true")
        else:
            await prompt
            assert (await editor.prompt(session, "yes"))["stopReason"] == "end_turn"
        await editor.heard("bob may not approve it: it takes editor")
        assert len((await it.run(session)).interrupts) == 1
        refusing.clear()
        await other.request("session/resume", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
        if way == "by a form":
            await other.choose(await other.next_asked(), "true")
            assert (await prompt)["stopReason"] == "end_turn"
        else:
            await other.heard("Which one?")
            await other.prompt(session, "yes")
        await editor.heard("answered")


async def test_an_agent_that_can_is_told_to_forget_a_session_of_ephemeral_memory(tmp_path: Path) -> None:
    made = able()
    agent = made[1].agent.extra["agent_client"]
    can = {**agent["agentCapabilities"], "sessionCapabilities": {"close": {}, "delete": {}}}
    made[1].agent = replace(ABLE, extra={"agent_client": {**agent, "agentCapabilities": can}})
    async with governed(Rules(tmp_path, ephemeral=True), made) as it:
        editor = await it.connect()
        session = await editor.new(cwd=str(tmp_path))
        await editor.request("session/close", {"sessionId": session})
        assert [method for method, *_ in made[1].relayed] == ["session/new", "session/close", "session/delete"]


async def test_a_question_goes_without_a_tool_call_that_is_none(tmp_path: Path) -> None:
    async with governed(Rules(tmp_path), scripted(asking({"type": "boolean"}))) as it:
        editor = await it.connect()
        session = await editor.new(cwd=str(tmp_path))
        prompt = await editor.start(session)
        asked = await editor.next_asked()
        assert asked["params"]["toolCall"]["_meta"] == {"aip44": {"question": True}}
        await editor.choose(asked, asked["params"]["options"][0]["optionId"])
        await prompt
        assert "tool_call" not in editor.kinds() and "tool_call_update" not in editor.kinds()
