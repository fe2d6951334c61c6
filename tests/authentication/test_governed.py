"""A governed agent behind each door: whose answer releases what waits for approval, and which tools are whose."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateway.core.types import Run, RunQuery, RunStatus
from tests.authentication.rig import Doors, doors
from tests.governance.enforcing.support import NO, YES, House, audited, calling, house, told, verified

PEOPLE: dict[str, Any] = {
    "clients": [
        {"name": "bob", "token": "bob-token", "roles": ["writer"]},
        {"name": "ann", "token": "ann-token", "roles": ["editor"], "oversees": True},
        {"name": "cat", "token": "cat-token", "roles": ["editor"]},
        {"name": "dan", "token": "dan-token", "roles": ["editor"], "tools": ["re*"]},
        {"name": "zoe", "token": "zoe-token", "roles": ["reader"], "oversees": True},
    ]
}
BOB, ANN, CAT, DAN, ZOE = (f"{each['name']}-token" for each in PEOPLE["clients"])
"""Who asks; an editor who oversees; an editor; an editor with fewer tools; who oversees and is no editor."""
CONNECT, TASKS = "/agent-connect", "/agent-protocol/scripted/ap/v1/agent/tasks"


@contextlib.asynccontextmanager
async def office(folder: Path, *tools: str) -> AsyncIterator[tuple[House, Doors]]:
    """An agent that calls these tools, of which `send` waits for an editor, behind the doors."""
    async with house(folder, calling(*tools)) as at, doors(at.engine, PEOPLE) as there:
        yield at, there


async def only(at: House) -> Run:
    (found,) = await at.engine.runs.list(RunQuery())
    return found


async def waits(at: House, folder: Path) -> None:
    """Nothing was released."""
    assert (await only(at)).status is RunStatus.INTERRUPTED
    assert "approval.granted send" not in told(folder) and "tool.result send" not in told(folder)


def granted(folder: Path) -> list[str]:
    """Who approved, by the audit log, which is whole."""
    verified(folder)
    found = [line for line in audited(folder) if line["action"].startswith("approval.granted")]
    return [name for line in found for name in ("ann", "bob", "cat", "zoe") if name in json.dumps(line)]


async def test_over_agent_connect_an_editor_approves_and_nobody_else(tmp_path: Path) -> None:
    async with office(tmp_path, "send") as (at, there):
        run_id = await there.started("scripted", BOB)
        await at.asked(await only(at))
        for shown, status in ((BOB, 403), (ZOE, 403), (CAT, 404), ("wrong", 401)):
            found = await there.call("POST", f"{CONNECT}/runs/{run_id}", shown, json=YES)
            assert found.status_code == status, found.text
            assert status != 403 or "may not approve" in found.json()
            await waits(at, tmp_path)
        await there.said("POST", f"{CONNECT}/runs/{run_id}", ANN, json=YES)
        ended = await there.said("GET", f"{CONNECT}/runs/{run_id}/wait", BOB)
        assert ended["run"]["status"] == "success" and granted(tmp_path) == ["ann"]


async def test_over_agent_connect_whoever_is_asked_may_reject(tmp_path: Path) -> None:
    async with office(tmp_path, "send") as (at, there):
        run_id = await there.started("scripted", BOB)
        await at.asked(await only(at))
        assert (await there.call("POST", f"{CONNECT}/runs/{run_id}", CAT, json=NO)).status_code == 404
        await waits(at, tmp_path)
        await there.said("POST", f"{CONNECT}/runs/{run_id}", BOB, json=NO)
        await at.ended(await only(at), RunStatus.ERROR)
        assert granted(tmp_path) == [] and "approval.rejected send" in told(tmp_path)


async def test_over_agent_protocol_an_editors_step_approves_and_nobody_elses(tmp_path: Path) -> None:
    async with office(tmp_path, "send") as (at, there):
        task = (await there.said("POST", TASKS, BOB, json={"input": "go"}))["task_id"]
        asked = await there.said("POST", f"{TASKS}/{task}/steps", BOB, json={})
        assert asked["is_last"] is False
        answer = {"additional_input": YES}
        for shown, status in ((BOB, 403), (ZOE, 403), (CAT, 404), ("wrong", 401)):
            found = await there.call("POST", f"{TASKS}/{task}/steps", shown, json=answer)
            assert found.status_code == status, found.text
            assert status != 403 or "may not approve" in found.json()["message"]
            await waits(at, tmp_path)
        done = await there.said("POST", f"{TASKS}/{task}/steps", ANN, json=answer)
        assert done["is_last"] is True and granted(tmp_path) == ["ann"]
        await at.ended(await only(at))


async def test_over_agent_communication_an_editors_call_approves_and_nobody_elses(tmp_path: Path) -> None:
    async with office(tmp_path, "send") as (at, there):
        bob = await there.mcp(BOB)
        error = await bob.ask("agents/run", name="scripted", input={"message": "go"})
        again: dict[str, Any] = {"_meta": {"interlingua/resume": error["data"]["resume"]}, "input": YES}
        for shown, said in ((BOB, "may not approve"), (ZOE, "may not approve"), (CAT, "has this question")):
            client = await there.mcp(shown)
            refused = await client.ask("agents/run", name="scripted", **again)
            assert said in refused["message"], refused
            await waits(at, tmp_path)
        ann = await there.mcp(ANN)
        done = await ann.ask("agents/run", name="scripted", **again)
        assert done["output"]["message"].endswith("done") and granted(tmp_path) == ["ann"]
        await at.ended(await only(at))


async def test_a_tool_that_is_not_for_whoever_asks_is_refused_behind_every_door(tmp_path: Path) -> None:
    async with office(tmp_path, "read", "write") as (_, there):
        why = "whoever asked for the run has no tool write"
        body = {"agent_id": "scripted", "input": {"message": "go"}}
        for shown, status in ((DAN, "error"), (CAT, "success")):
            found = await there.said("POST", f"{CONNECT}/runs/wait", shown, json=body)
            assert found["run"]["status"] == status and (why in json.dumps(found)) is (shown == DAN)
            task = (await there.said("POST", TASKS, shown, json={"input": "go"}))["task_id"]
            step = await there.said("POST", f"{TASKS}/{task}/steps", shown, json={})
            assert (why in json.dumps(step)) is (shown == DAN)
            client = await there.mcp(shown)
            said = await client.ask("agents/run", name="scripted", input={"message": "go"})
            assert (why in json.dumps(said)) is (shown == DAN)
        refused = [line for line in told(tmp_path) if line == "tool.refused write"]
        assert len(refused) == 3 and told(tmp_path).count("tool.call write") == 3
