"""The real SDKs' clients at doors that ask who they are: with right, wrong, missing and expired tokens, at other
people's runs, and as those who approve what a governed agent asks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.core.types import RunQuery, RunStatus, agent_id
from tests.authentication.rig import ANA, BOB, OLGA, house, token
from tests.authentication.test_governed import ANN, CAT, granted, office, only
from tests.authentication.test_governed import BOB as WRITER
from tests.governance.enforcing.support import NO, YES
from tests.support.agent_communication import clients, conversation, errors, results
from tests.support.peers import agent_connect_conversations, agent_protocol_client, lines_of
from tests.support.scripted import until

Line = dict[str, Any]
ECHO, ASKER, HELD = (f"--agent-id={agent_id(name)}" for name in ("echo", "asker", "held"))
REFUSED = {None: "is missing", "stolen-token": "is not valid", token(seconds=-60): "is not valid"}
"""Tokens with which nobody is let in, and what that is told of."""


def shown(bearer: str | None) -> list[str]:
    return [] if bearer is None else ["--bearer", bearer]


def failed(lines: list[Line]) -> list[tuple[str, int]]:
    """Which operations failed, and the status."""
    return [(line["op"], line["error"]["status"]) for line in lines if "error" in line]


async def test_the_agntcy_client_is_who_its_key_or_token_is_and_reaches_its_own_runs_alone() -> None:
    async with house() as there:
        url = f"{there.url}/agent-connect"
        mine = await there.started("asker")
        reach = ["reach", "--run-id", mine, "--answer", '{"ok": true}']
        talks = [
            ["search", "--api-key", BOB],
            ["wait", ECHO, *shown(token("visitor"))],
            ["stream", ECHO, "--api-key", ANA],
            ["thread", ECHO, *shown(BOB)],
            ["wait", HELD, *shown(BOB)],
            [*reach, "--api-key", BOB],
            *([["search", *shown(wrong)] for wrong in REFUSED]),
            *([["stream", ECHO, *shown(wrong)] for wrong in REFUSED]),
            [*reach, *shown(OLGA)],
        ]
        said = await asyncio.to_thread(agent_connect_conversations, url, *talks)
        search, wait, stream, thread, held, others, *refused, reached = said
        assert [each["metadata"]["ref"]["name"] for each in search[0]["result"]] == ["echo", "asker"]
        assert wait[-1]["result"]["run"]["status"] == "success" and stream[-1]["ended"]["distinct"] > 0
        assert failed(thread) == [("get_thread", 404)], "the one that it has deleted"
        assert failed(held) == [("create_and_wait_for_stateless_run_output", 404)]
        assert [status for _, status in failed(others)] == [404, 404, 404]
        for lines, why in zip(refused, [*REFUSED.values()] * 2, strict=True):
            assert [status for _, status in failed(lines)] == [401]
            assert why in str([line["error"]["body"] for line in lines if "error" in line])
        assert failed(reached) == [] and "olga" in json.dumps(reached[-1]["result"])
        found = await there.engine.runs.list(RunQuery(limit=100))
        assert {each.request.principal for each in found} == {"ana", "bob", "visitor"}


async def test_the_agent_protocol_client_is_who_its_token_is_and_finds_its_own_tasks_alone() -> None:
    async with house() as there:
        url = f"{there.url}/agent-protocol/echo"
        made = await there.said("POST", "/agent-protocol/echo/ap/v1/agent/tasks", ANA, json={"input": "hers"})
        mine = ["--task", made["task_id"]]
        talks: list[list[str]] = [
            ["all", *shown(BOB)],
            ["steps", *mine, *shown(BOB)],
            ["artifacts", *mine, *shown(BOB)],
            *([["create", *shown(wrong)] for wrong in REFUSED]),
        ]
        said = await asyncio.gather(
            *(asyncio.to_thread(agent_protocol_client, command, url, *args) for command, *args in talks)
        )
        everything, steps, artifacts, *refused = said
        assert all("(unknown)" in op for op, _ in failed(everything)), failed(everything)
        (listed, *_) = [line["result"] for line in everything if line["op"] == "list_agent_tasks"]
        assert made["task_id"] not in json.dumps(listed) and listed["pagination"]["total_items"] == 1
        assert failed(steps) == [("execute_agent_task_step", 404)]
        assert failed(artifacts) == [("list_agent_task_artifacts", 404)]
        for lines, why in zip(refused, REFUSED.values(), strict=True):
            assert failed(lines) == [("create_agent_task", 401)] and why in lines[0]["error"]["body"]


@pytest.mark.parametrize("kind", ["mcp-1", "mcp-2"])
async def test_the_mcp_sdks_clients_are_who_their_token_is_and_see_their_own_agents_alone(kind: Any) -> None:
    async with house() as there:
        url = f"{there.url}/agent-communication"
        first = await there.mcp(ANA)
        handle = (await first.ask("agents/run", name="asker", input={"message": "x"}))["data"]["resume"]
        again = ["--meta", json.dumps({"interlingua/resume": handle}), "--run", 'asker {"ok": true}']
        steps = ["--do", "list", "--do", "tools", "--tool", 'echo {"message": "x"}', "--run", 'held {"message": "x"}']
        header = [f"Authorization: Bearer {each}" for each in (BOB, "stolen-token", token(seconds=-60), OLGA)]
        talks = [
            {"url": f"{url}/mcp", "steps": ["--header", header[0], *steps, *again]},
            {"url": f"{url}/sse", "steps": ["--header", header[0], *steps, *again]},
            *({"url": f"{url}/mcp", "steps": ["--header", each, "--do", "list"]} for each in header[1:3]),
            {"url": f"{url}/mcp", "steps": ["--do", "list"]},
            {"url": f"{url}/sse", "steps": ["--do", "list"]},
            {"url": f"{url}/mcp", "steps": ["--header", header[3], *again]},
        ]
        said = await asyncio.to_thread(clients, kind, *talks)
        for lines in said[:2]:
            (listed,) = results(lines, "agents/list")
            assert [each["name"] for each in listed["agents"]] == ["echo", "asker"]
            assert [each["name"] for each in results(lines, "tools/list")[0]["tools"]][:2] == ["echo", "asker"]
            assert results(lines, "tools/call")[0]["structuredContent"] == {"message": "x "}
            there_are = "/name: no agent held; there are echo, asker"
            assert [error["message"] for error in errors(lines, "agents/run")] == [
                there_are,
                "/_meta/interlingua~1resume: no run of agent asker has this question",
            ]
        for lines in said[2:6]:
            assert not results(lines, "agents/list") and "echo" not in json.dumps(lines)
        assert results(said[6], "agents/run")[0]["output"]["message"].startswith("olga: ")
        found = await there.engine.runs.list(RunQuery(agent="echo", limit=100))
        assert [each.request.principal for each in found] == ["bob", "bob"]


async def test_with_the_sdks_a_governed_call_is_approved_by_an_editor_and_rejected_by_whoever_asked(
    tmp_path: Path,
) -> None:
    async with office(tmp_path, "send") as (at, there):
        first = await there.started("scripted", WRITER)
        await at.asked(await only(at))
        url, yes = f"{there.url}/agent-connect", ["--run-id", first, "--answer", json.dumps(YES)]
        talks = [["reach", *yes, *shown(bearer)] for bearer in (WRITER, CAT, ANN)]
        bob, cat, ann = await asyncio.to_thread(agent_connect_conversations, url, *talks)
        assert failed(bob) == [("resume_stateless_run", 403)]
        assert [status for _, status in failed(cat)] == [404, 404, 404]
        assert failed(ann) == [] and ann[-1]["result"]["run"]["status"] == "success"
        assert granted(tmp_path) == ["ann"]

        mcp, bearer = f"{there.url}/agent-communication/mcp", ["--header", f"Authorization: Bearer {WRITER}"]
        ask = ["--run", 'scripted {"message": "x"}']
        steps = [*bearer, "--elicitation", json.dumps(YES), *ask]
        with conversation("mcp-1", *steps, url=mcp) as bob_asks:
            await until(lambda: "may not approve" in bob_asks.stdout())
            second = (await at.engine.runs.list(RunQuery()))[0]
            assert second.id != first and granted(tmp_path) == ["ann"]
            await there.said("POST", f"/agent-connect/runs/{second.id}", ANN, json=YES)
            lines = await asyncio.to_thread(lines_of, bob_asks, 60)
        assert results(lines, "agents/run")[0]["output"]["message"].endswith("done")
        assert granted(tmp_path) == ["ann", "ann"]
        steps = [*bearer, "--elicitation", json.dumps(NO), *ask]
        (lines,) = await asyncio.to_thread(clients, "mcp-1", {"url": mcp, "steps": steps})
        assert errors(lines, "agents/run") and not results(lines, "agents/run")
        await at.ended((await at.engine.runs.list(RunQuery()))[0], RunStatus.ERROR)
        assert granted(tmp_path) == ["ann", "ann"]
