"""Files and commands under governance: within the roots, decided and audited before they are done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.agent_client.governed_rules import Rules
from tests.adapters.agent_client.outbound_agent import Client, Rig, rig, settled
from tests.support.context import FakeContext


def governed(it: Rig, rules: Rules, **fields: Any) -> FakeContext:
    """A run's context on a governed route."""
    context = it.context(thread="t1", **fields)
    context.governor = context.governed = rules
    return context


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A workspace with a file, links out of it, within and to odd names, and a secret beside it."""
    inside = tmp_path / "room"
    (inside / "sub").mkdir(parents=True)
    (inside / "x").write_text("FILE BODY")
    (tmp_path / "secret").write_text("SECRET")
    (inside / "out").symlink_to(tmp_path)
    (inside / "leak").symlink_to(tmp_path / "secret")
    (inside / "near").symlink_to(inside / "x")
    (inside / "loop").symlink_to(inside / "loop")
    os.symlink(os.fsencode(inside) + b"/\xff", os.fsencode(inside / "odd"))
    return inside


OUTSIDE = [
    "{root}/../secret",
    "{root}/sub/../../secret",
    "{root}/leak",
    "{root}/out/secret",
    "{root}/odd",
    "{root}/out/room/../secret",
    "{root}/out/not there yet",
    "{root}2/x",
    "/etc/passwd",
    "/",
    "x",
    "./x",
    "",
    "file://{root}/x",
    "{root}/x\0/../../secret",
    "{root}/\ud800",
    "{root}/" + "a/" * 5_000,
    "~/x",
]


@pytest.mark.parametrize("served", ["by the client", "by the workspace"])
async def test_no_path_leads_out_of_the_authorised_roots_and_every_try_is_audited(room: Path, served: str) -> None:
    wider = {"cwd": room, "workspace": {"root": room.parent, "write": True, "terminals": True}}

    async with rig(**({} if served == "by the client" else wider)) as it:
        rules = Rules(room)
        context = governed(it, rules)
        client = Client(fs={"readTextFile": True, "writeTextFile": True}, terminal=True)
        if served == "by the client":
            context.caller = client
        [task] = await it.started(context)
        asked = 0
        for path in (each.format(root=room) for each in OUTSIDE):
            for method, params in (
                ("fs/read_text_file", {"path": path}),
                ("fs/write_text_file", {"path": path, "content": "z"}),
                ("terminal/create", {"command": "touch", "args": ["y"], "cwd": path or "."}),
            ):
                asked += 1
                error = (await it.wire.ask(asked, method, sessionId="s1", **params))["error"]
                assert error["code"] == -32602, (method, path[:100])
                assert "SECRET" not in str(error) and str(room.parent) not in str(error)
        assert not client.asked and not rules.of("act")
        assert [said[1] for said in rules.of("stray")] == ["fs.read", "fs.write", "terminal.create"] * len(OUTSIDE)
        assert sorted(os.listdir(room.parent)) == ["room", "secret"]
        it.wire.end(await it.wire.prompt())
        await task


async def test_a_client_is_given_the_path_without_its_links_and_what_it_answers_is_audited_first(room: Path) -> None:
    async with rig() as it:
        rules = Rules(room)
        context = governed(it, rules)
        client = Client(fs={"readTextFile": True, "writeTextFile": True}, terminal=True)
        client.answers = {
            "fs/read_text_file": {"content": "body", "_meta": {"x": [1.0]}},
            "fs/write_text_file": {},
            "terminal/create": {"terminalId": "one"},
        }
        context.caller = client
        [task] = await it.started(context)
        read = await it.wire.ask(1, "fs/read_text_file", sessionId="s1", path=f"{room}/near", line=2, _meta={"y": 1})
        assert read["result"] == {"content": "body", "_meta": {"x": [1.0]}}
        await it.wire.ask(2, "fs/write_text_file", sessionId="s1", path=f"{room}/new/file", content="z")
        env = [{"name": "API_KEY", "value": "k"}]
        await it.wire.ask(3, "terminal/create", sessionId="s1", command="ls", cwd=f"{room}/sub/..", env=env)
        assert client.asked == [
            ("fs/read_text_file", {"sessionId": "t1", "path": f"{room}/x", "line": 2, "_meta": {"y": 1}}),
            ("fs/write_text_file", {"sessionId": "t1", "path": f"{room}/new/file", "content": "z"}),
            ("terminal/create", {"sessionId": "t1", "command": "ls", "cwd": str(room), "env": env}),
        ]
        assert rules.of("act") == [
            ("fs.read", {"path": f"{room}/near", "line": 2}, 0),
            ("fs.write", {"path": f"{room}/new/file", "content": "z"}, 1),
            ("terminal.create", {"command": "ls", "cwd": f"{room}/sub/..", "env": {"API_KEY": "k"}}, 2),
        ]
        assert [name for name, _ in rules.log if name.startswith("act")] == ["act", "acted"] * 3
        assert rules.of("acted")[0] == ("act-1", {"content": "body", "_meta": {"x": [1.0]}}, None)
        it.wire.end(await it.wire.prompt())
        await task


async def test_what_the_rules_deny_is_not_done(room: Path) -> None:
    async with rig(workspace={"root": room, "write": True, "terminals": True}) as it:
        rules = Rules(room)
        rules.verdicts = {"fs.read": "deny", "fs.write": "deny", "terminal.create": "deny"}
        [task] = await it.started(governed(it, rules))
        wanted: list[tuple[str, dict[str, Any]]] = [
            ("fs/read_text_file", {"path": f"{room}/x"}),
            ("fs/write_text_file", {"path": f"{room}/x", "content": "z"}),
            ("terminal/create", {"command": "touch", "args": ["y"]}),
        ]
        for at, (method, params) in enumerate(wanted):
            error = (await it.wire.ask(at, method, sessionId="s1", **params))["error"]
            assert (error["code"], error["data"]) == (-32600, {"code": "denied"})
        assert (room / "x").read_text() == "FILE BODY" and not (room / "y").exists()
        assert not rules.of("acted")
        it.wire.end(await it.wire.prompt())
        await task


async def test_a_link_that_is_put_there_after_the_decision_leads_nowhere(room: Path) -> None:
    """The workspace is wider than the roots, so only the second look and the walk without links can tell."""

    def swap() -> None:
        (room / "x").unlink()
        (room / "x").symlink_to(room.parent / "secret")
        (room / "sub").rmdir()
        (room / "sub").symlink_to(room.parent)

    async with rig(cwd=room, workspace={"root": room.parent, "write": True, "terminals": True}) as it:
        rules = Rules(room)
        rules.before_act = swap
        [task] = await it.started(governed(it, rules))
        read = await it.wire.ask(1, "fs/read_text_file", sessionId="s1", path=f"{room}/x")
        assert read["error"]["code"] == -32602
        rules.before_act = lambda: None
        admitted = rules.admit
        rules.admit = lambda path, *, write=False: path  # type: ignore[method-assign]  # it was no link until now
        for at, path in enumerate((f"{room}/x", f"{room}/sub/secret")):
            assert "error" in await it.wire.ask(f"r{at}", "fs/read_text_file", sessionId="s1", path=path)
            written = await it.wire.ask(f"w{at}", "fs/write_text_file", sessionId="s1", path=path, content="z")
            assert "error" in written
        rules.admit = admitted  # type: ignore[method-assign]
        assert [error is not None for _, _, error in rules.of("acted")] == [True] * 5
        assert (room.parent / "secret").read_text() == "SECRET"
        it.wire.end(await it.wire.prompt())
        await task


async def test_a_path_that_leads_elsewhere_once_it_was_approved_is_not_passed_on(room: Path) -> None:
    """Also within the roots: somebody has approved another file."""

    def swap() -> None:
        (room / "near").unlink()
        (room / "near").symlink_to(room / "sub")

    async with rig(cwd=room) as it:
        rules = Rules(room)
        rules.before_act = swap
        context = governed(it, rules)
        context.caller = client = Client(fs={"readTextFile": True})
        [task] = await it.started(context)
        read = await it.wire.ask(1, "fs/read_text_file", sessionId="s1", path=f"{room}/near")
        assert read["error"]["code"] == -32602 and not client.asked
        [(_, result, error)] = rules.of("acted")
        assert result is None and error["code"] == -32602
        it.wire.end(await it.wire.prompt())
        await task


async def test_what_may_be_asked_of_files_one_day_is_not_passed_on(room: Path) -> None:
    async with rig(cwd=room) as it:
        context = governed(it, Rules(room))
        context.caller = client = Client(fs={"readTextFile": True})
        client.answers["_acme/x"] = {}
        [task] = await it.started(context)
        deleted = await it.wire.ask(1, "fs/delete_file", sessionId="s1", path="/etc/passwd")
        assert deleted["error"]["code"] == -32601 and not client.asked
        assert (await it.wire.ask(2, "_acme/x", sessionId="s1"))["result"] == {}
        it.wire.end(await it.wire.prompt())
        await task


async def test_files_and_commands_of_the_workspace_are_served_within_the_rules(room: Path) -> None:
    async with rig(workspace={"root": room, "write": True, "terminals": True}) as it:
        rules = Rules(room)
        [task] = await it.started(governed(it, rules))
        assert (await it.wire.ask(1, "fs/read_text_file", sessionId="s1", path=f"{room}/near"))["result"] == {
            "content": "FILE BODY"
        }
        made = await it.wire.ask(2, "terminal/create", sessionId="s1", command="pwd")
        terminal = made["result"]["terminalId"]
        await it.wire.ask(3, "terminal/wait_for_exit", sessionId="s1", terminalId=terminal)
        said = await it.wire.ask(4, "terminal/output", sessionId="s1", terminalId=terminal)
        assert said["result"]["output"].strip() == str(room)
        missing = await it.wire.ask(5, "fs/read_text_file", sessionId="s1", path=f"{room}/none")
        assert missing["error"]["code"] == -32002
        assert rules.of("act")[:2] == [
            ("fs.read", {"path": f"{room}/near"}, 0),
            ("terminal.create", {"command": "pwd", "cwd": str(room)}, 2),
        ]
        assert rules.of("acted")[2][2]["code"] == -32002
        it.wire.end(await it.wire.prompt())
        await task


async def test_nothing_is_asked_of_the_rules_that_nobody_would_do(room: Path) -> None:
    async with rig() as it:
        rules = Rules(room)
        [task] = await it.started(governed(it, rules))
        for at, method in enumerate(("fs/read_text_file", "fs/write_text_file", "terminal/create")):
            params = {"path": f"{room}/x", "content": "", "command": "id"}
            assert (await it.wire.ask(at, method, sessionId="s1", **params))["error"]["code"] == -32601
        assert not rules.of("act")
        it.wire.end(await it.wire.prompt())
        await task


async def test_a_command_that_the_workspace_would_not_run_is_not_asked_of_the_rules_and_a_file_is(room: Path) -> None:
    async with rig(workspace={"root": room}) as it:
        rules = Rules(room)
        [task] = await it.started(governed(it, rules))
        refused = await it.wire.ask(1, "terminal/create", sessionId="s1", command="id")
        assert refused["error"]["code"] == -32601 and not rules.of("act")
        read = await it.wire.ask(2, "fs/read_text_file", sessionId="s1", path=f"{room}/x")
        assert read["result"] == {"content": "FILE BODY"} and len(rules.of("act")) == 1
        it.wire.end(await it.wire.prompt())
        await task


@pytest.mark.parametrize("served", ["by the client", "by the workspace"])
async def test_what_the_manifest_lends_to_no_agent_is_neither_done_nor_asked_of_the_rules(
    room: Path, served: str
) -> None:
    async with rig(workspace={"root": room, "write": True, "terminals": True}) as it:
        rules = Rules(room)
        rules.lends = lambda can: {}  # type: ignore[method-assign]
        context = governed(it, rules)
        client = Client(fs={"readTextFile": True, "writeTextFile": True}, terminal=True)
        context.caller = client if served == "by the client" else None
        [task] = await it.started(context)
        for at, method in enumerate(("fs/read_text_file", "fs/write_text_file", "terminal/create")):
            params = {"path": f"{room}/x", "content": "", "command": "id"}
            assert (await it.wire.ask(at, method, sessionId="s1", **params))["error"]["code"] == -32601
        assert not rules.of("act") and not client.asked and (room / "x").read_text() == "FILE BODY"
        it.wire.end(await it.wire.prompt())
        await task


async def test_where_a_manifest_stands_alone_nothing_is_judged_but_paths_are_kept_inside(room: Path) -> None:
    async with rig(cwd=room) as it:
        rules = Rules(room)
        rules.judges = False
        context = it.context(thread="t1")
        context.governor = rules
        context.caller = client = Client(fs={"readTextFile": True})
        client.answers["fs/read_text_file"] = {"content": "body"}
        [task] = await it.started(context)
        for at, path in enumerate((f"{room}/leak", f"{room}/near")):
            answer = await it.wire.ask(at, "fs/read_text_file", sessionId="s1", path=path)
            assert ("result" in answer) is (at == 1)
        assert [params["path"] for _, params in client.asked] == [f"{room}/x"]
        it.wire.update("s1", "tool_call", toolCallId="c1", title="anything")
        it.wire.end(await it.wire.prompt())
        await task
        it.wire.update("s1", "tool_call", toolCallId="c2", title="later")
        await settled()
        assert not rules.log and len(context.notes) == 1


async def test_between_turns_an_agent_gets_no_files_and_no_commands(room: Path) -> None:
    async with rig(workspace={"root": room, "write": True, "terminals": True}) as it:
        rules = Rules(room)
        await it.turn(governed(it, rules), "done")
        for at, method in enumerate(("fs/read_text_file", "fs/write_text_file", "terminal/create")):
            params = {"path": f"{room}/x", "content": "", "command": "id"}
            assert (await it.wire.ask(at, method, sessionId="s1", **params))["error"]["code"] == -32600
        assert [said[4] for said in rules.of("stray")] == ["outside of any run"] * 3
        assert (room / "x").read_text() == "FILE BODY"
