"""Agents that register over their connections, beat, leave; who may do what; and access that is revoked."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

import httpx2
import pytest
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.core.types import RunRequest, RunStatus
from tests.adapters.agent_context.inbound_rig import rig
from tests.adapters.agent_context.inbound_talker import (
    AGENT,
    Talker,
    entry_in,
    record,
    refused,
    request,
    response,
    text_of,
)
from tests.support.scripted import until

ACCEPT = "application/json, text/event-stream"
KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
PUBLIC = base64.b64encode(KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()
ACCESS: dict[str, Any] = {
    "clients": [
        {"name": "painters", "token": "paint-token", "agents": ["painter*", "echo"]},
        {"name": "boss", "token": "boss-token", "may": ["revoke", "read"]},
        {"name": "reader", "token": "read-token", "may": ["read"]},
        {"name": "signer", "public_key": PUBLIC},
    ]
}


async def work(params: dict[str, Any]) -> Any:
    """Answers any message."""
    return response("painted")


async def test_an_agent_that_registers_is_in_the_directory_and_can_be_called_in_every_protocol() -> None:
    async with rig() as there, there.socket(hello=AGENT) as painter, there.socket() as client:
        painter.on["agent/message"] = work
        found = await painter.register("painter", "paint", meta={"version": "2.0"})
        assert found == {
            "status": "registered",
            "directory": "agent://directory",
            "capabilities": {
                "agent": {"discovery": True, "evaluation": True, "coordination": True, "monitoring": True}
            },
        }
        entry = await entry_in(client, "painter")
        assert entry is not None
        assert (entry["name"], entry["status"], entry["meta"]["version"]) == ("Painter", "active", "2.0")
        assert entry["capabilities"]["specializations"] == ["paint"]
        assert "painter" in there.engine.agents.names("agent_connect")
        asked = RunRequest(agent="painter", input={"message": "a house"}, protocol="agent_connect")
        done = await there.engine.runs.wait((await there.engine.runs.start(asked)).id, 30)
        assert done is not None and done.status is RunStatus.SUCCESS and b"painted" in bytes(done.output)

        await painter.ask("agent/unregister", agentId="painter")
        assert await entry_in(client, "painter") is None
        assert (await refused(client.message("painter"))).code == -32002


async def test_an_id_is_taken_while_its_agent_is_there_and_by_the_route_table_always() -> None:
    async with rig() as there, there.socket(hello=AGENT) as first, there.socket(hello=AGENT) as second:
        await first.register("painter")
        await first.register("painter", "paint", "draw")  # the same session: its record is another
        found = await entry_in(second, "painter")
        assert found is not None and found["capabilities"]["specializations"] == ["paint", "draw"]
        for name in ("painter", "echo", "interlingua", "interlingua-tasks"):
            error = await refused(second.register(name, meta={"correlationId": "x"}))
            assert error.code == -32005, name
        error = await refused(second.ask("agent/register", agent=record("painter"), meta={"correlationId": "twice"}))
        assert (error.code, error.data["correlationId"], error.data["code"]) == (-32005, "twice", "conflict")
        first.on["agent/message"] = work
        assert text_of(await second.message("painter")) == "painted"


@pytest.mark.parametrize(
    ("change", "path", "expected", "received"),
    [
        ({"id": "no spaces"}, "/agent/id", "^[a-zA-Z0-9-_]+$", '"no spaces"'),
        ({"id": None}, "/agent/id", "string", "null"),
        ({"id": 5}, "/agent/id", "string", "5"),
        ({"name": []}, "/agent/name", "string", "an array of 0"),
        ({"capabilities": None}, "/agent/capabilities", "object", "null"),
        ({"capabilities": {"tools": []}}, "/agent/capabilities/models", "Language models", "nothing"),
        ({"capabilities": {"tools": "x"}}, "/agent/capabilities/tools", "array", '"x"'),
        ({"evaluation": {"qualityScore": 11}}, "/agent/evaluation/qualityScore", "at most 10", "11"),
        ({"dependencies": [{"name": "x"}]}, "/agent/dependencies/0/type", "string", "nothing"),
    ],
)
async def test_a_record_that_does_not_fit_is_refused_with_what_was_expected(
    change: dict[str, Any], path: str, expected: str, received: str
) -> None:
    async with rig() as there, there.socket() as client:
        asked = client.ask("agent/register", agent={**record(), **change}, meta={"correlationId": "r"})
        error = await refused(asked)
        assert error.code == -32001 and error.message.startswith("Invalid payload structure")
        assert (error.data["path"], error.data["correlationId"]) == (path, "r")
        assert expected in error.data["details"]["expected"]
        assert error.data["details"]["received"] == received
        assert await entry_in(client, "painter") is None


async def test_an_agent_whose_connection_ends_is_offline_and_comes_back_by_registering_again() -> None:
    async with rig() as there, there.socket() as client:
        async with there.socket(hello=AGENT) as painter:
            await painter.register("painter")
        await _status(client, "painter", "offline")
        assert (await refused(client.message("painter"))).code == -32004
        async with there.socket(hello=AGENT) as painter:
            painter.on["agent/message"] = work
            await painter.register("painter")
            await _status(client, "painter", "active")
            assert text_of(await client.message("painter")) == "painted"


async def _status(client: Talker, agent: str, status: str) -> None:
    async with asyncio.timeout(30):
        while (found := await entry_in(client, agent)) is None or found["status"] != status:
            pass


async def test_heartbeats_say_how_an_agent_is_and_one_that_misses_them_gets_nothing() -> None:
    ahead = 0.0
    async with rig(heartbeat=100, missed=1) as there, there.socket(hello=AGENT) as painter, there.socket() as client:
        there.inbound.directory._liveness.now = lambda: time.monotonic() + ahead
        painter.on["agent/message"] = work
        await painter.register("painter", "paint")
        await painter.tell("agent/heartbeat", agentId="painter", status="draining")
        await _status(client, "painter", "busy")
        assert await painter.ask("agent/heartbeat", agentId="painter", status="active") == {}
        await _status(client, "painter", "active")
        ahead += 101
        await _status(client, "painter", "inactive")  # it says nothing more
        error = await refused(client.message("painter"))
        assert (error.code, error.data["retryable"]) == (-32004, True)
        await painter.ask("ping")
        ahead += 60
        await painter.ask("tools/list")  # any message is a beat
        for _ in range(3):  # and so is every answer
            ahead += 60
            assert text_of(await client.message("painter")) == "painted"

        await client.tell("agent/heartbeat", agentId="painter", status="offline", meta={"correlationId": "b"})
        (told,) = await client.hears("agent/error")
        assert told["error"]["code"] == -32003 and told["_meta"] == {"correlationId": "b"}
        await client.tell("agent/heartbeat", agentId="nobody")
        assert (await client.hears("agent/error", 2))[1]["error"]["code"] == -32002


# --- who may do what -------------------------------------------------------------------------------------------------


async def test_without_a_valid_token_a_client_may_connect_and_no_more() -> None:
    async with rig(access=ACCESS) as there:
        for token in (None, "forged"):
            async with there.socket(token=token) as client:
                assert await client.ask("ping") == {}
                for method, params in EVERYTHING.items():
                    error = await refused(client.ask(method, meta={"correlationId": "q"}, **params))
                    assert (error.code, error.data["correlationId"]) == (-32003, "q"), method
                    assert error.data["code"] == "denied" and "forged" not in error.message
        async with there.http(token="forged") as client:
            assert (await refused(client.message("echo"))).code == -32003


EVERYTHING: dict[str, dict[str, Any]] = {
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "agent://directory"},
    "resources/subscribe": {"uri": "agent://directory"},
    "agent/register": {"agent": record("stranger")},
    "agent/unregister": {"agentId": "painter"},
    "agent/heartbeat": {"agentId": "painter"},
    "agent/message": {"target": "echo", "content": request()},
    "agent/delegate": {"task": {"id": "1", "type": "x", "payload": "x"}},
    "agent/revoke": {"agentId": "echo"},
    "agent/restore": {"agentId": "echo"},
    "sampling/createMessage": {"messages": [], "maxTokens": 5},
    "tools/list": {},
    "tools/call": {"name": "agentSearch"},
}


async def test_each_right_is_asked_for_and_each_agent_matched() -> None:
    async with rig(access=ACCESS) as there, there.socket(token="read-token") as reader:
        assert await reader.ask("resources/read", uri="agent://directory")
        assert (await refused(reader.message("echo"))).code == -32003
        assert (await refused(reader.register("painter"))).code == -32003
        async with there.socket(token="paint-token", hello=AGENT) as painter:
            painter.on["agent/message"] = work
            await painter.register("painter-1")
            assert text_of(await painter.message("echo")) == "hello "
            for asked in (painter.register("writer"), painter.message("asker")):
                assert (await refused(asked)).code == -32003
            asked = painter.ask("tools/call", name="agentEvaluate", arguments={"agentId": "asker", "score": 5})
            assert (await refused(asked)).code == -32003
            assigned = {"message": "x"}  # whoever is best of those
            found = await painter.ask("tools/call", name="taskAssign", arguments=assigned)
            assert found["structuredContent"]["task"]["agent"] in ("echo", "painter-1")
            left = {each["agent"]: each["reason"] for each in found["_meta"]["interlingua/assignment"]["leftOut"]}
            assert "asker" not in left and "echo" not in left  # nor is it told that there are others
            directory = await painter.ask("tools/call", name="agentSearch", arguments={})
            assert {each["id"] for each in directory["_meta"]["agents"]} == {"echo", "painter-1"}
            async with there.http(token="paint-token") as other:  # the same principal may speak as its agents
                found = await other.message("echo", source="painter-1")
                run = await there.engine.runs.get(found["_meta"]["interlingua/run"])
                assert run.request.attributes["source"] == "painter-1" and run.request.principal == "painters"


async def test_credentials_may_come_with_the_agent_itself() -> None:
    async with rig(access=ACCESS) as there:
        async with there.socket(hello=AGENT) as painter:
            error = await refused(painter.register("painter", auth={"token": "forged"}))
            assert error.code == -32003 and "forged" not in str(error.data)
            await painter.register("painter", auth={"token": "paint-token"})
            assert text_of(await painter.message("echo")) == "hello "  # from here on it is known
        async with there.socket(hello=AGENT) as signer:
            signature = base64.b64encode(KEY.sign(rfc8785.dumps(record("signed")))).decode()
            asked = {**record("signed"), "auth": {"signature": signature}}
            forged = {**asked, "name": "Somebody else"}
            assert (await refused(signer.ask("agent/register", agent=forged))).code == -32003
            await signer.ask("agent/register", agent=asked)
        async with there.socket(token="read-token") as reader:
            entries = (await reader.ask("resources/read", uri="agent://directory"))["contents"][0]["text"]
            assert "signed" in entries and signature not in entries and "paint-token" not in entries


async def test_a_session_of_http_is_no_credential() -> None:
    async with rig(access=ACCESS) as there, there.http(token="paint-token", hello=AGENT) as painter:
        await painter.register("painter")
        (session,) = [one.id for one in there.inbound.server.sessions]
        headers = {"Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-11-25", "Accept": ACCEPT}
        params = {"target": "echo", "content": request(), "source": "painter"}
        async with httpx2.AsyncClient(timeout=30) as http:
            for token, said in ((None, '"code":-32003'), ("read-token", '"code":-32003'), ("paint-token", '"result"')):
                sent = headers if token is None else {**headers, "Authorization": f"Bearer {token}"}
                message = {"jsonrpc": "2.0", "id": f"stolen {token}", "method": "agent/message", "params": params}
                answer = await http.post(there.url, json=message, headers=sent)
                assert said in answer.text, (token, answer.text)


async def test_access_that_is_revoked_is_gone_at_once_and_can_be_given_back() -> None:
    async with (
        rig(access=ACCESS) as there,
        there.socket(token="paint-token", hello=AGENT) as painter,
        there.socket(token="boss-token") as boss,
    ):
        painter.on["agent/message"] = _never
        await painter.register("painter")
        assert (await refused(painter.ask("agent/revoke", agentId="echo"))).code == -32003
        async with there.http(token="paint-token") as client:
            asked = await client.begin("agent/message", target="painter", content=request())
            await until(lambda: bool(painter.asked))
            assert await boss.ask("agent/revoke", agentId="painter", reason="it lies") == {
                "status": "revoked",
                "known": True,
            }
            assert (await refused(asked)).code == -32800
            assert (await refused(client.message("painter"))).code == -32003
        for method, params in (("agent/message", {"target": "echo", "content": request()}), ("tools/list", {})):
            assert (await refused(painter.ask(method, **params))).code == -32003
        await painter.tell("agent/heartbeat", agentId="painter")
        assert (await painter.hears("agent/error"))[0]["error"]["code"] == -32003
        entry = await entry_in(boss, "painter")
        assert entry is not None and entry["status"] == "revoked"
        assert await boss.ask("agent/restore", agentId="painter") == {"status": "restored"}
        assert text_of(await painter.message("echo")) == "hello "


async def _never(params: dict[str, Any]) -> Any:
    return None


async def test_who_learns_of_agents_that_come_and_go() -> None:
    async with rig() as there, there.socket() as client:
        await client.ask("resources/subscribe", uri="agent://directory")
        async with there.socket(hello=AGENT) as painter:
            await painter.register("painter")
            told = await client.hears("notifications/resources/updated")
            assert {each["uri"] for each in told} == {"agent://directory"}
            await client.hears("notifications/resources/list_changed")
            client.told.clear()
            await painter.ask("agent/unregister", agentId="painter")
            await client.hears("notifications/resources/updated")
            await client.hears("notifications/resources/list_changed")
            await painter.register("painter")
            await client.hears("notifications/resources/updated", 2)
            client.told.clear()
        await client.hears("notifications/resources/updated")  # its connection has ended
        await client.ask("resources/unsubscribe", uri="agent://directory")
        client.told.clear()
        async with there.socket(hello=AGENT) as writer:
            await writer.register("writer")
            await client.hears("notifications/resources/list_changed")
            assert client.params_of("notifications/resources/updated") == []
