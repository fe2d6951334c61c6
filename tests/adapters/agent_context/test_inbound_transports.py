"""The same over every transport: WebSocket, Streamable HTTP, a pipe; for all agents, or for one."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx2
import pytest
from websockets.exceptions import InvalidStatus

from gateway.core.types import RunStatus
from tests.adapters.agent_context.inbound_rig import rig
from tests.adapters.agent_context.inbound_talker import AGENT, Talker, entry_in, refused, request, response, text_of
from tests.support.pipes import pair
from tests.support.scripted import until


async def work(params: dict[str, Any]) -> Any:
    """Answers any message."""
    return response("painted " + params["content"]["payload"]["messages"][0]["text"])


async def test_an_agent_on_streamable_http_works_over_its_open_stream() -> None:
    async with rig() as there, there.socket() as client, there.http(hello=AGENT, listens=True) as painter:
        painter.on["agent/message"] = work
        await painter.register("painter", "paint")
        assert text_of(await client.message("painter", "a house")) == "painted a house"
        found = await client.ask("tools/call", name="taskAssign", arguments={"message": "x", "agentId": "painter"})
        assert found["content"][0]["text"] == "painted x"
        await painter.tell("agent/message", target="echo", content=request("hi"), meta={"correlationId": "n"})
        told = await painter.hears("agent/message")
        assert text_of(told[-1]) == "hi "


async def test_an_agent_that_cannot_be_asked_is_unavailable_until_it_opens_its_stream() -> None:
    async with rig() as there, there.socket() as client, there.http(hello=AGENT) as painter:
        await painter.register("painter")
        error = await refused(client.message("painter"))
        assert (error.code, error.data["retryable"]) == (-32004, True)


async def test_a_session_of_http_that_is_deleted_takes_its_agents_offline() -> None:
    async with rig() as there, there.socket() as client, there.http(hello=AGENT, listens=True) as painter:
        await painter.register("painter")
        async with httpx2.AsyncClient(timeout=30) as http:
            (session,) = [one.id for one in there.inbound.server.sessions if one.client.can("agent")]
            headers = {"Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-11-25"}
            assert (await http.delete(there.url, headers=headers)).status_code in (200, 204)
        async with asyncio.timeout(30):
            while (entry := await entry_in(client, "painter")) is None or entry["status"] != "offline":
                pass


async def test_a_message_on_http_tells_progress_on_its_own_stream_and_asks_there() -> None:
    async with rig() as there, there.http(hello={"elicitation": {"form": {}}}) as client:

        async def accept(params: dict[str, Any]) -> Any:
            return {"action": "accept", "content": {"ok": True}}

        client.on["elicitation/create"] = accept
        found = await client.message("asker", meta={"progressToken": "t"})
        assert text_of(found) == "Let me see. answered {'ok': True}"
        told = "".join(each["message"] for each in client.params_of("notifications/progress"))
        assert told == "Let me see. answered {'ok': True}"


@pytest.mark.parametrize("way", ["socket", "http"])
async def test_a_connection_may_be_for_one_agent_alone(way: str) -> None:
    async with rig() as there:
        connect = there.socket if way == "socket" else there.http
        async with connect("echo") as client:
            assert text_of(await client.message("echo", "x")) == "x "
            error = await refused(client.message("asker"))
            assert error.code == -32002 and "held" not in error.message
            found = await client.ask("tools/call", name="agentSearch", arguments={})
            assert [each["id"] for each in found["_meta"]["agents"]] == ["echo"]
            uris = [each["uri"] for each in (await client.ask("resources/list"))["resources"]]
            assert uris == ["agent://directory", "agent://tasks", "agent://status", "agent://metrics/echo"]
            assert (await refused(client.ask("resources/read", uri="agent://metrics/held"))).code == -32002
            found = await client.ask("tools/call", name="taskAssign", arguments={"message": "y"})
            assert found["content"][0]["text"] == "y "
            other = {"message": "y", "agentId": "held"}
            told = await client.ask("tools/call", name="taskAssign", arguments=other)
            assert told["isError"] and told["_meta"]["interlingua/failure"]["errorCode"] == -32002
        if way == "socket":
            with pytest.raises(InvalidStatus, match="404") as failed:
                async with connect("nobody"):
                    pass
            why = json.loads(failed.value.response.body or b"")["error"]["message"]
            assert re.fullmatch("no agent nobody; there are .*echo.*", why)
        else:
            async with connect("nobody", hello=None) as client:
                error = await refused(client.initialize())
                assert error.code == -32002 and "no agent nobody; there are" in error.message


async def test_a_client_on_a_pipe_is_served_until_it_ends() -> None:
    async with rig() as there:
        here, far = pair()
        serving = asyncio.create_task(there.inbound.converse(here, None))

        async def send(message: dict[str, Any]) -> None:
            await far.send([json.dumps(message).encode()])

        client = Talker(send, "2025-11-25")

        async def listen() -> None:
            while found := await far.receive():
                for each in found:
                    assert isinstance(each, bytes)
                    client.take(json.loads(each))

        listening = asyncio.create_task(listen())
        await client.initialize(AGENT)
        client.on["agent/message"] = work
        await client.register("painter")
        async with there.socket() as other:
            assert text_of(await other.message("painter", "it")) == "painted it"
            await far.aclose()
            await asyncio.wait_for(serving, 30)
            entry = await entry_in(other, "painter")
            assert entry is not None and entry["status"] == "offline"
        await listening


async def test_a_gateway_that_stops_ends_sessions_and_cancels_nothing() -> None:
    async with rig() as there, there.http() as client, there.socket() as other:
        await client.begin("agent/message", target="held", content=request())
        await until(lambda: len(there.agents["held"].contexts) == 1)
        await other.tell("agent/message", target="held", content=request())
        await until(lambda: len(there.agents["held"].contexts) == 2)
        there.inbound.quiet()
        await there.inbound.server.aclose()
        await there.inbound.settled()
        for context in there.agents["held"].contexts:
            assert (await there.engine.runs.get(context.run.id)).status is RunStatus.RUNNING
        assert there.agents["held"].cancels == 0
        there.gate.set()


async def test_registrations_and_tasks_survive_a_restart(tmp_path: Any) -> None:
    file = tmp_path / "store.db"
    async with rig(file=file) as there, there.socket(hello=AGENT) as painter:
        painter.on["agent/message"] = work
        await painter.register("painter", "paint")
        await painter.ask("tools/call", name="taskAssign", arguments={"message": "x", "agentId": "echo", "id": "t"})
    async with rig(file=file) as there, there.socket() as client:
        entry = await entry_in(client, "painter")
        assert entry is not None and (entry["status"], entry["name"]) == ("offline", "Painter")
        tasks = json.loads((await client.ask("resources/read", uri="agent://tasks"))["contents"][0]["text"])["tasks"]
        assert [(each["id"], each["status"]) for each in tasks] == [("t", "completed")]
        async with there.socket(hello=AGENT) as painter:
            painter.on["agent/message"] = work
            await painter.register("painter", "paint")
            assert text_of(await client.message("painter", "again")) == "painted again"
