"""What a client may do goes by agents' ids, and what it talks about is nobody else's."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from typing import Any

from adapters.agent_context.inbound.work import SESSIONS
from gateway.core.types import RunQuery, RunStatus, Thread, agent_id
from tests.adapters.agent_context.inbound_rig import rig
from tests.adapters.agent_context.inbound_talker import AGENT, Talker, refused, request, text_of

UUID = agent_id("echo")
STATUS = "agent://status"
DENIED, NOT_FOUND, CONFLICT = -32003, -32002, -32005
ACCESS: dict[str, Any] = {
    "clients": [
        {"name": "ana", "token": "ana-token", "may": ["message", "read", "revoke", "delegate"]},
        {"name": "bob", "token": "bob-token", "agents": [f"{UUID[0]}*"], "may": ["message", "delegate", "read"]},
    ]
}


async def test_the_uuid_that_an_agent_has_in_other_protocols_is_no_way_round_rights_or_a_revocation() -> None:
    async with (
        rig(access=ACCESS) as there,
        there.socket(token="ana-token") as ana,
        there.socket(token="bob-token") as bob,
    ):
        assert (await refused(bob.message("echo"))).code == DENIED
        for asked in (
            bob.message(UUID),
            bob.ask("agent/delegate", target=UUID, task={"id": "1", "type": "x", "payload": "x"}),
            bob.ask("resources/read", uri=f"agent://metrics/{UUID}"),
        ):
            error = await refused(asked)
            assert error.code == NOT_FOUND and "echo" not in str(error)
        assert text_of(await ana.message("echo")) == "hello "
        await ana.ask("agent/revoke", agentId="echo")
        assert (await refused(ana.message("echo"))).code == DENIED
        assert (await refused(ana.message(UUID))).code == NOT_FOUND
        assert await there.engine.runs.count(RunQuery(agent="echo")) == 1


async def test_a_conversation_is_not_had_on_a_thread_that_somebody_made_for_it_at_another_door() -> None:
    async with rig(access=ACCESS) as there, there.socket(token="ana-token") as ana:
        foreseen = str(uuid.uuid5(SESSIONS, json.dumps(["ana", None, "chat", "echo"])))
        now = time.time()
        mark = {"owner": "bob"}
        thread = Thread(id=foreseen, created_at=now, updated_at=now, protocol="agent_connect", attributes=mark)
        await there.engine.threads.create(thread)
        talk = [request(context={"sessionId": session}) for session in ("chat", "another")]
        error = await refused(ana.ask("agent/message", target="echo", content=talk[0]))
        assert error.code == CONFLICT
        assert text_of(await ana.ask("agent/message", target="echo", content=talk[1])) == "hello "
        assert await there.engine.runs.count(RunQuery(thread=foreseen)) == 0


async def test_a_model_revokes_an_agent_and_gives_it_back_where_its_client_may() -> None:
    async with (
        rig(access=ACCESS) as there,
        there.socket(token="ana-token") as ana,
        there.socket(token="bob-token") as bob,
    ):

        async def names(client: Talker) -> set[str]:
            return {each["name"] for each in (await client.ask("tools/list"))["tools"]}

        assert await names(ana) - await names(bob) == {"agentRevoke", "agentRestore"}
        why = {"agentId": "echo", "reason": "it shouts"}
        assert (await refused(bob.ask("tools/call", name="agentRevoke", arguments=why))).code == DENIED
        found = await ana.ask("tools/call", name="agentRevoke", arguments=why)
        assert found["structuredContent"] == {"agentId": "echo", "status": "revoked", "known": True}
        assert (await refused(ana.message("echo"))).code == DENIED

        said = await status(ana)
        ((revoked),) = said["revoked"]
        assert (revoked["agentId"], revoked["reason"]) == ("echo", "it shouts")
        assert (said["agents"]["revoked"], said["agents"]["total"]) == (1, 6)
        assert "revoked" not in await status(bob) and "echo" not in json.dumps(await status(bob))

        await ana.ask("tools/call", name="agentRestore", arguments={"agentId": "echo"})
        assert text_of(await ana.message("echo")) == "hello "
        found = await ana.ask("tools/call", name="agentRevoke", arguments={"agentId": "nobody"})
        assert found["structuredContent"]["known"] is False and "no such agent" in found["content"][0]["text"]


async def test_the_status_counts_agents_tasks_and_connections_and_tells_when_they_change() -> None:
    async with rig() as there, there.socket() as client, there.socket(hello=AGENT) as painter:
        await client.ask("resources/subscribe", uri=STATUS)
        before = await status(client)
        assert before["agents"] == {
            "total": 6, "active": 6, "busy": 0, "inactive": 0, "offline": 0, "revoked": 0
        }  # fmt: skip
        assert (before["protocol"], before["connections"]) == ("ACP-0.1", 2)
        await painter.register("painter")
        async with asyncio.timeout(30):
            while not client.params_of("notifications/resources/updated"):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert client.params_of("notifications/resources/updated") == [{"uri": STATUS}]
        assert (await status(client))["agents"]["active"] == 7


async def test_a_model_lists_the_tasks_and_cancels_its_own_and_no_others() -> None:
    async with (
        rig(access=ACCESS) as there,
        there.socket(token="ana-token") as ana,
        there.socket(token="bob-token") as bob,
    ):
        arguments = {"id": "slow", "message": "x", "agentId": "held", "wait": False}
        await ana.ask("tools/call", name="taskAssign", arguments=arguments)
        await there.newest("held")

        async def listed(client: Talker, **how: Any) -> list[Any]:
            found = await client.ask("tools/call", name="taskList", arguments=how)
            tasks: list[Any] = found["structuredContent"]["tasks"]
            return tasks

        (task,) = await listed(ana, status="running")
        assert (task["id"], task["payload"]) == ("slow", {"messages": [{"text": "x"}]})
        (seen,) = await listed(bob)
        assert seen["id"] == "slow" and "payload" not in seen
        assert await listed(ana, status="completed") == []

        cancel = {"taskId": "slow", "reason": "it takes too long"}
        other = await bob.ask("tools/call", name="taskCancel", arguments=cancel)
        assert other["isError"] and "no task slow" in other["content"][0]["text"]
        found = await ana.ask("tools/call", name="taskCancel", arguments=cancel)
        assert (found["isError"], found["content"][0]["text"]) == (False, "Task slow is cancelled")
        assert found["structuredContent"]["task"]["reason"] == "it takes too long"
        ended = await there.engine.runs.wait((await there.newest("held")).id, timeout=30)
        assert ended is not None and ended.status is RunStatus.CANCELLED
        again = await ana.ask("tools/call", name="taskCancel", arguments=cancel)
        assert again["content"][0]["text"] == "Task slow is cancelled", "what has ended stays as it is"


async def status(client: Talker) -> Any:
    """What `agent://status` says."""
    return json.loads((await client.ask("resources/read", uri=STATUS))["contents"][0]["text"])
