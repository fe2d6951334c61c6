"""A governed agent before clients of this protocol: by their roles they release what waits for approval."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.agent_context.options import COORDINATOR
from gateway.core.types import RunQuery, RunRequest, RunStatus
from tests.adapters.agent_context.inbound_rig import Rig, served
from tests.adapters.agent_context.inbound_talker import AGENT, refused, request, text_of
from tests.governance.enforcing.support import House, audited, calling, house, told, verified

ACCESS: dict[str, Any] = {
    "clients": [
        {"name": "bob", "token": "bob-token", "roles": ["writer"]},
        {"name": "ann", "token": "ann-token", "roles": ["editor"]},
    ]
}
WAITING, DENIED = -32050, -32003


@contextlib.asynccontextmanager
async def office(folder: Path, tool: str = "send") -> AsyncIterator[tuple[House, Rig]]:
    """An agent that calls a tool, of which `send` waits for an editor, behind the door."""
    async with house(folder, calling(tool)) as at, served(at.engine, access=ACCESS) as there:
        yield at, there


def granted(folder: Path) -> list[str]:
    """Who approved, by the audit log, which is whole."""
    verified(folder)
    found = [line for line in audited(folder) if line["action"].startswith("approval.granted")]
    return [name for line in found for name in ("ann", "bob") if name in json.dumps(line)]


async def waits(at: House, folder: Path) -> None:
    """Nothing was released."""
    runs = await at.engine.runs.list(RunQuery(agent="scripted"))
    assert [each.status for each in runs] == [RunStatus.INTERRUPTED]
    assert "approval.granted send" not in told(folder) and "tool.result send" not in told(folder)


def answer(decision: str = "approve") -> dict[str, Any]:
    return {"type": "request", "payload": {"answer": {"decision": decision}}}


async def test_who_has_the_handle_of_a_question_approves_if_an_editor_and_rejects_in_any_case(tmp_path: Path) -> None:
    async with office(tmp_path) as (at, there):
        async with there.socket(token="bob-token") as bob, there.socket(token="ann-token") as ann:
            error = await refused(bob.message("scripted", "go"))
            assert error.code == WAITING
            meta = {"interlingua/resume": error.data["resume"]}
            for client, said in ((bob, "may not approve"), (ann, "has this question")):
                error = await refused(client.ask("agent/message", target="scripted", content=answer(), meta=meta))
                assert said in error.message
                await waits(at, tmp_path)
            error = await refused(bob.ask("agent/message", target="scripted", content=answer("reject"), meta=meta))
            assert "approval.rejected send" in told(tmp_path) and granted(tmp_path) == []
        async with there.socket(token="ann-token") as ann:
            error = await refused(ann.message("scripted", "go"))
            meta = {"interlingua/resume": error.data["resume"]}
            found = await ann.ask("agent/message", target="scripted", content=answer(), meta=meta)
            assert text_of(found).endswith("done") and granted(tmp_path) == ["ann"]


@pytest.mark.parametrize("kind", ["message", "task"])
async def test_a_client_that_is_asked_approves_by_its_role(tmp_path: Path, kind: str) -> None:
    async with office(tmp_path) as (_, there), there.socket(token="ann-token", hello=AGENT) as ann:

        async def approve(params: dict[str, Any]) -> Any:
            assert "send" in json.dumps(params["content"]["payload"])
            return {"content": {"type": "response", "payload": {"answer": {"decision": "approve"}}}}

        ann.on["agent/message"] = approve
        if kind == "message":
            assert text_of(await ann.message("scripted", "go")).endswith("done")
        else:
            task = {"id": "t", "type": "send", "payload": request("go")["payload"]}
            found = await ann.ask("agent/delegate", target="scripted", task=task)
            assert found["task"]["status"] == "completed"
        assert granted(tmp_path) == ["ann"]


async def test_a_client_that_is_asked_and_is_no_editor_is_told_so_and_the_question_stays_open(tmp_path: Path) -> None:
    async with office(tmp_path) as (at, there), there.socket(token="bob-token", hello=AGENT) as bob:

        async def approve(params: dict[str, Any]) -> Any:
            return {"content": {"type": "response", "payload": {"answer": {"decision": "approve"}}}}

        bob.on["agent/message"] = approve
        asked = await bob.begin("agent/message", target="scripted", content=request("go"))
        (said,) = await bob.hears("notifications/message")
        assert "may not approve" in json.dumps(said)
        await waits(at, tmp_path)
        await bob.cancel(asked)


async def test_a_task_whose_client_may_not_approve_what_its_agent_asks_fails_with_that_reason(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, there), there.socket(token="bob-token", hello=AGENT) as bob:
        asked: list[str] = []

        async def approve(params: dict[str, Any]) -> Any:
            asked.append(json.dumps(params["content"]["payload"]))
            return {"content": {"type": "response", "payload": {"answer": {"decision": "approve"}}}}

        bob.on["agent/message"] = approve
        task = {"id": "t", "type": "send", "payload": request("go")["payload"]}
        error = await refused(bob.ask("agent/delegate", target="scripted", task=task))
        assert "may not approve" in error.message and granted(tmp_path) == []
        assert "may not approve" not in asked[0] and "may not approve" in asked[1], "it is told why"


async def test_a_task_is_done_with_no_tool_that_is_not_for_whoever_asked_for_it(tmp_path: Path) -> None:
    async with office(tmp_path, "write") as (at, _):
        task = {"id": "t", "type": "write", "payload": request("go")["payload"]}
        asked = RunRequest(agent=COORDINATOR, input={"task": task}, protocol="agent_context", tools=("re*",))
        ended = await at.engine.runs.wait((await at.engine.runs.start(asked)).id, timeout=30)
        assert ended is not None and ended.failure is not None
        assert "no tool write" in ended.failure.message and "tool.refused write" in told(tmp_path)
