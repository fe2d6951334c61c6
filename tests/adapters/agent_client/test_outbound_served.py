"""Files, terminals and extensions that an agent asks for: of its client, of a workspace, or of nobody."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adapters.agent_client.outbound.workspace import PREFIX
from gateway.core import events as e
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.outbound_agent import MANUAL, Client, Rig, chunk, raw, rig, settled
from tests.support.context import FakeContext
from tests.support.scripted import until


async def finish(it: Rig, *tasks: asyncio.Task[None]) -> None:
    """End every turn."""
    for task in tasks:
        it.wire.end(await it.wire.prompt())
        await task


async def test_files_and_terminals_are_the_clients_where_it_offers_them() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        client = Client(fs={"readTextFile": True}, terminal=True)
        context.caller = client
        [task] = await it.started(context)
        [hello] = it.wire.sent("initialize")
        assert hello["clientCapabilities"] == client.capabilities
        client.answers["fs/read_text_file"] = {"content": "body", "_meta": {"x": 1}}
        read = {"sessionId": "s1", "path": "/a", "line": 1, "new": [1.0]}
        assert (await it.wire.ask(0, "fs/read_text_file", **read))["result"] == {"content": "body", "_meta": {"x": 1}}
        assert client.asked == [("fs/read_text_file", {**read, "sessionId": "t1"})]
        client.answers["terminal/output"] = RpcError(-32602, "no such terminal", {"id": "x"})
        error = (await it.wire.ask(1, "terminal/output", sessionId="s1", terminalId="x"))["error"]
        assert error == {"code": -32602, "message": "no such terminal", "data": {"id": "x"}}
        written = await it.wire.ask(2, "fs/write_text_file", sessionId="s1", path="/a", content="")
        assert written["error"]["code"] == -32601
        await finish(it, task)


async def test_of_two_clients_the_newest_that_offers_it_serves_a_file() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        editor = context.caller = Client(fs={"readTextFile": True})
        [task] = await it.started(context)
        onlooker = context.caller = Client()
        context.older = [editor]
        editor.answers["fs/read_text_file"] = {"content": "body"}
        read = await it.wire.ask(0, "fs/read_text_file", sessionId="s1", path="/a")
        assert read["result"] == {"content": "body"} and onlooker.asked == []
        assert (await it.wire.ask(1, "terminal/create", sessionId="s1", command="ls"))["error"]["code"] == -32601
        await finish(it, task)


async def test_a_command_stays_with_the_client_that_began_it_whoever_comes() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        first = context.caller = Client(terminal=True)
        [task] = await it.started(context)
        first.answers = {"terminal/create": {"terminalId": "7"}, "terminal/output": {"output": "hi"}}
        first.answers["terminal/release"] = {}
        await it.wire.ask(0, "terminal/create", sessionId="s1", command="ls")
        second = context.caller = Client(terminal=True)
        context.older = [first]
        second.answers = {"terminal/create": {"terminalId": "8"}, "terminal/output": {"output": "ho"}}
        second.answers["terminal/release"] = {}
        await it.wire.ask(1, "terminal/create", sessionId="s1", command="ls")
        for at, (name, said) in enumerate((("7", "hi"), ("8", "ho"), ("7", "hi")), 2):
            output = await it.wire.ask(at, "terminal/output", sessionId="s1", terminalId=name)
            assert output["result"] == {"output": said}
        await it.wire.ask(5, "terminal/release", sessionId="s1", terminalId="7")
        assert [method for method, _ in first.asked][-1] == "terminal/release"
        assert "terminal/release" not in [method for method, _ in second.asked]
        released = await it.wire.ask(6, "terminal/output", sessionId="s1", terminalId="7")
        assert released["result"] == {"output": "ho"}, "it is nobody's any more: the newest client is asked"
        await finish(it, task)


async def test_without_a_client_that_offers_it_and_without_a_workspace_everything_is_refused() -> None:
    async with rig() as it:
        [task] = await it.started(it.context())
        for at, method in enumerate(
            ("fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output", "_x/y", "mcp/connect")
        ):
            params = {"sessionId": "s1", "path": "/etc/passwd", "content": "", "command": "id", "terminalId": "1"}
            assert (await it.wire.ask(at, method, **params))["error"]["code"] == -32601
        await finish(it, task)


async def test_files_and_terminals_of_the_workspace_are_declared_and_served(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")

    async with rig(workspace={"root": tmp_path, "write": True, "terminals": True}) as it:
        [task] = await it.started(it.context(thread="t1"))
        [hello] = it.wire.sent("initialize")
        assert hello["clientCapabilities"]["fs"] == {"readTextFile": True, "writeTextFile": True}
        assert hello["clientCapabilities"]["terminal"] is True
        [new] = it.wire.sent("session/new")
        assert new == {"cwd": str(tmp_path), "mcpServers": []}
        ask = it.wire.ask
        file = f"{tmp_path}/a.txt"
        for part, content in (({}, "one\ntwo\n"), ({"line": 2}, "two\n"), ({"limit": 1}, "one\n")):
            read = await ask(0, "fs/read_text_file", sessionId="s1", path=file, **part)
            assert read["result"] == {"content": content}
        written = await ask(1, "fs/write_text_file", sessionId="s1", path=f"{tmp_path}/b", content="x")
        assert written["result"] == {}
        assert (tmp_path / "b").read_text() == "x"
        outside = await ask(2, "fs/read_text_file", sessionId="s1", path="/etc/passwd")
        assert outside["error"]["code"] == -32602 and outside["error"]["data"]["path"] == "/path"
        missing = await ask(3, "fs/read_text_file", sessionId="s1", path=f"{tmp_path}/none")
        assert missing["error"]["code"] == -32002
        made = (await ask(4, "terminal/create", sessionId="s1", command="echo", args=["hi"]))["result"]
        of = {"sessionId": "s1", **made}
        assert (await ask(5, "terminal/wait_for_exit", **of))["result"]["exitCode"] == 0
        assert (await ask(6, "terminal/output", **of))["result"]["output"] == "hi\n"
        assert (await ask(7, "terminal/nonsense", **of))["error"]["code"] == -32601
        assert (await ask(8, "terminal/kill", **of))["result"] == {}
        assert (await ask(9, "terminal/release", **of))["result"] == {}
        assert (await ask(10, "terminal/output", **of))["error"]["code"] == -32002
        assert (await ask(11, "terminal/create", sessionId="s1"))["error"]["code"] == -32602
        for other in ("x", f"{made['terminalId']}x"):
            error = (await ask(12, "terminal/output", sessionId="s1", terminalId=other))["error"]
            assert (error["code"], error["message"]) == (-32002, f"there is no terminal {other}")
        await finish(it, task)


async def test_a_command_of_the_workspace_is_killed_when_its_agent_says_so(tmp_path: Path) -> None:
    async with rig(workspace={"root": tmp_path, "terminals": True}) as it:
        [task] = await it.started(it.context(thread="t1"))
        of = {"sessionId": "s1", "terminalId": f"{PREFIX}1"}
        assert (await it.wire.ask(0, "terminal/output", **of))["error"]["code"] == -32002, "none was ever begun"
        made = await it.wire.ask(1, "terminal/create", sessionId="s1", command="sleep", args=["300"])
        of = {"sessionId": "s1", **made["result"]}
        assert (await it.wire.ask(2, "terminal/kill", **of))["result"] == {}
        assert (await it.wire.ask(3, "terminal/wait_for_exit", **of))["result"]["signal"] in ("SIGTERM", "SIGKILL")
        await finish(it, task)


async def test_a_link_within_the_workspace_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("body")
    (tmp_path / "link").symlink_to(tmp_path / "file")

    async with rig(workspace={"root": tmp_path, "write": True}) as it:
        [task] = await it.started(it.context(thread="t1"))
        of = {"sessionId": "s1", "path": f"{tmp_path}/link"}
        assert (await it.wire.ask(0, "fs/read_text_file", **of))["result"] == {"content": "body"}
        assert (await it.wire.ask(1, "fs/write_text_file", **of, content="new"))["result"] == {}
        assert (tmp_path / "file").read_text() == "new"
        await finish(it, task)


async def test_files_and_terminals_belong_to_sessions_and_are_never_asked_of_a_client_without_one() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        context.caller = client = Client(fs={"readTextFile": True, "writeTextFile": True}, terminal=True)
        [task] = await it.started(context)
        served = ("fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output", "terminal/new")
        client.answers = {method: {} for method in served}
        for at, method in enumerate(served):
            params = {"path": "/a", "content": "", "command": "id", "terminalId": "1"}
            assert (await it.wire.ask(at, method, **params))["error"]["code"] == -32601
        assert not client.asked
        await finish(it, task)


async def test_files_of_the_workspace_are_served_between_turns_where_nothing_governs_the_agent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("body")

    async with rig(workspace={"root": tmp_path}) as it:
        await it.turn(it.context(thread="t1"), "done")
        read = await it.wire.ask(0, "fs/read_text_file", sessionId="s1", path=f"{tmp_path}/file")
        assert read["result"] == {"content": "body"}


async def test_a_workspace_without_terminals_runs_nothing(tmp_path: Path) -> None:
    async with rig(workspace={"root": tmp_path}) as it:
        [task] = await it.started(it.context(thread="t1"))
        [hello] = it.wire.sent("initialize")
        assert hello["clientCapabilities"]["fs"] == {"readTextFile": True, "writeTextFile": False}
        assert hello["clientCapabilities"]["terminal"] is False
        refused = await it.wire.ask(0, "terminal/create", sessionId="s1", command="touch", args=[f"{tmp_path}/x"])
        assert refused["error"]["code"] == -32601
        written = await it.wire.ask(1, "fs/write_text_file", sessionId="s1", path=f"{tmp_path}/x", content="")
        assert written["error"]["code"] == -32601
        assert not os.listdir(tmp_path)
        await finish(it, task)


async def test_a_session_ends_with_the_commands_that_it_started(tmp_path: Path) -> None:
    async with rig(workspace={"root": tmp_path, "terminals": True}) as it:
        [task] = await it.started(it.context(run="r1"))
        made = await it.wire.ask(0, "terminal/create", sessionId="s1", command="sleep", args=["300"])
        of = {"sessionId": "s1", **made["result"]}
        it.wire.say({"id": 1, "method": "terminal/wait_for_exit", "params": of})
        await settled()
        await finish(it, task)
        assert (await it.wire.answer(1))["result"]["signal"] == "SIGTERM"


async def test_a_command_does_not_outlive_the_agent_that_started_it(tmp_path: Path) -> None:
    async with rig(workspace={"root": tmp_path, "terminals": True}) as it:
        [task] = await it.started(it.context(thread="t1"))
        made = await it.wire.ask(0, "terminal/create", sessionId="s1", command="sh", args=["-c", "echo $$; sleep 300"])
        of = {"sessionId": "s1", **made["result"]}
        output = ""
        while not output:
            output = (await it.wire.ask(len(it.wire.got), "terminal/output", **of))["result"]["output"]
        it.wire.die()
        await asyncio.wait([task])
        await until(lambda: not os.path.exists(f"/proc/{output.strip()}"))


def notifications(context: FakeContext) -> list[tuple[str, object]]:
    """Those that have their place in the run."""
    found = [event.data for event in context.events if isinstance(event, e.Custom)]
    return [(data["notification"], data["params"]) for data in found if "notification" in data]


async def test_extensions_are_handed_to_the_client_and_back_unchanged() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        context.caller = client = Client()
        [task] = await it.started(context)
        client.answers["_x/ask"] = {"sessionId": "t1", "n": 1.0}
        answer = await it.wire.ask(0, "_x/ask", sessionId="s1", deep={"sessionId": "s1"})
        assert answer["result"] == {"sessionId": "s1", "n": 1.0}
        assert client.asked == [("_x/ask", {"sessionId": "t1", "deep": {"sessionId": "s1"}})]
        for at, all in enumerate((None, {"sessionId": "t1"}), 1):  # there is only one whom it can concern
            client.answers["_x/all"] = all
            assert (await it.wire.ask(at, "_x/all", a=1))["result"] == all
        it.wire.say({"method": "_x/note", "params": {"sessionId": "s1", "x": 1}}, {"method": "_x/bare"})
        it.wire.say({"method": "elicitation/complete", "params": {"elicitationId": "e"}})
        await finish(it, task)
        assert client.told == [("_x/bare", {}), ("elicitation/complete", {"elicitationId": "e"})]
        assert notifications(context) == [("_x/note", {"sessionId": "t1", "x": 1})]


async def test_a_notification_is_told_to_the_clients_that_it_concerns() -> None:
    async with rig() as it:
        one, two = (it.context(run=f"r{n}", thread=f"t{n}") for n in (1, 2))
        one.caller, two.caller = first, second = Client(), Client()
        for context in (one, two):
            await it.turn(context, "done")
        relayed = asyncio.create_task(it.outbound.relay(one, "_x/slow", raw({"sessionId": "t1"})))
        asked = await it.wire.find("_x/slow")
        for number, (about, told) in enumerate(
            (
                ({"sessionId": "s1"}, [first]),
                ({"sessionId": "s2"}, [second]),
                ({"sessionId": "s3"}, []),
                ({"requestId": asked["id"]}, [first]),
                ({"requestId": "another"}, []),
                ({}, [first, second]),
            )
        ):
            it.wire.say({"method": "_x/note", "params": {**about, "n": number}})
            await settled()
            assert [each for each in (first, second) if each.told] == told, about
            for each in told:
                session = {"sessionId": "t1" if each is first else "t2"} if "sessionId" in about else about
                assert each.told == [("_x/note", {**session, "n": number})]
                each.told.clear()
        it.wire.say({"id": asked["id"], "result": {}})
        await relayed


async def test_of_two_clients_the_newest_that_knows_it_answers_an_extension() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        older, newer = Client(), Client()
        context.caller, context.older = newer, [older]
        [task] = await it.started(context)
        older.answers = {"_x/ask": {"by": "the older"}}
        newer.answers = {"_x/ask": RpcError(-32601, "what is that?")}
        assert (await it.wire.ask(0, "_x/ask", sessionId="s1"))["result"] == {"by": "the older"}
        newer.answers = {"_x/ask": RpcError(-32000, "not now")}
        assert (await it.wire.ask(1, "_x/ask", sessionId="s1"))["error"]["message"] == "not now"
        older.answers = newer.answers = {"_x/ask": RpcError(-32601, "what is that?")}
        assert (await it.wire.ask(2, "_x/ask", sessionId="s1"))["error"]["code"] == -32601
        assert (len(older.asked), len(newer.asked)) == (2, 3)
        await finish(it, task)


async def test_a_request_that_the_agent_withdraws_is_withdrawn_from_the_client() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        context.caller = client = Client()
        [task] = await it.started(context)
        client.answers["_x/ask"] = MANUAL
        it.wire.say({"id": "q", "method": "_x/ask", "params": {"sessionId": "s1"}})
        await until(lambda: bool(client.asked))
        it.wire.say({"method": "$/cancel_request", "params": {"requestId": "q"}})
        assert (await it.wire.answer("q"))["error"]["code"] == -32800
        assert client.withdrawn == ["_x/ask"]
        await finish(it, task)


async def test_a_client_of_another_protocol_is_never_asked_in_the_words_of_this_one() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        context.caller = client = Client(fs={"readTextFile": True}, terminal=True)
        client.protocol = "agent_communication"
        [task] = await it.started(context)
        assert "fs" not in it.wire.sent("initialize")[0]["clientCapabilities"]
        for at, method in enumerate(("fs/read_text_file", "_x/y")):
            assert (await it.wire.ask(at, method, sessionId="s1", path="/a"))["error"]["code"] == -32601
        assert not client.asked
        await finish(it, task)


async def test_a_request_that_comes_before_the_sessions_answer_is_of_that_session(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("rules")

    async with rig(workspace={"root": tmp_path}) as it:
        it.handlers["session/new"] = lambda _: MANUAL
        context: FakeContext = it.context(thread="t1")
        task = asyncio.create_task(it.outbound.run(context))
        await it.connected()
        new = await it.wire.find("session/new")
        read = await it.wire.ask(0, "fs/read_text_file", sessionId="s1", path=f"{tmp_path}/AGENTS.md")
        assert read["result"] == {"content": "rules"}
        it.wire.say({"id": new["id"], "result": {"sessionId": "s1"}})
        await finish(it, task)


async def test_a_request_behind_the_end_of_a_run_is_asked_once_the_end_is_recorded() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        context.caller = client = Client()
        client.answers["_x/ask"] = {}
        [task] = await it.started(context)
        then: list[Callable[[], None]] = []
        context.afterwards = then.append  # type: ignore[method-assign]
        prompt = await it.wire.prompt()
        it.wire.say(
            {"id": prompt["id"], "result": {"stopReason": "end_turn"}},
            {"id": 1, "method": "_x/ask", "params": {"sessionId": "s1"}},
        )
        await settled()
        assert isinstance(context.end, e.RunFinished) and not client.asked
        then[0]()
        await it.wire.answer(1)
        assert client.asked
        await task


async def test_what_was_said_before_a_request_or_notification_is_told_before_it() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        context.caller = client = Client()
        said: list[object] = []

        def noted(call: Callable[..., Any]) -> Any:
            def noting(*args: Any) -> Any:
                said.append(context.output)
                return call(*args)

            return noting

        client.ask = noted(client.ask)  # type: ignore[method-assign]
        client.tell = noted(client.tell)  # type: ignore[method-assign]
        [task] = await it.started(context)
        client.answers["_x/ask"] = {}
        it.wire.say(
            chunk("s1", "a"),
            chunk("s1", "b"),
            {"method": "_x/note", "params": {"sessionId": "s1"}},
            chunk("s1", "c"),
            {"id": 1, "method": "_x/ask", "params": {"sessionId": "s1"}},
        )
        await it.wire.answer(1)
        assert said == [{"message": "abc"}]
        told = [event for event in context.events if isinstance(event, e.PartDelta | e.Custom)]
        assert [type(event).__name__ for event in told] == ["PartDelta", "PartDelta", "Custom", "PartDelta"]
        assert notifications(context) == [("_x/note", {"sessionId": "t1"})]
        await finish(it, task)
