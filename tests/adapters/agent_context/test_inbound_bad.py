"""What is wrong is refused with a clear error, told where it has an answer to go in or not, and breaks nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from tests.adapters.agent_context.inbound_rig import Rig, rig
from tests.adapters.agent_context.inbound_talker import AGENT, Refused, record, request
from tests.adapters.agent_context.wire_schema import check_answer

VERSION = "2025-11-25"
TASK = {"id": "t", "type": "x", "payload": {"messages": [{"text": "x"}]}}
GOOD: dict[str, dict[str, Any]] = {
    "agent/register": {"agent": record("stranger")},
    "agent/unregister": {"agentId": "nobody"},
    "agent/heartbeat": {"agentId": "nobody", "status": "active"},
    "agent/message": {"target": "echo", "content": request(), "source": None},
    "agent/delegate": {"task": TASK, "wait": True, "target": "echo"},
    "agent/revoke": {"agentId": "nobody"},
    "agent/restore": {"agentId": "nobody"},
    "resources/list": {"cursor": None},
    "resources/read": {"uri": "agent://directory"},
    "resources/subscribe": {"uri": "agent://directory"},
    "tools/call": {"name": "agentSearch", "arguments": {}},
    "sampling/createMessage": {"messages": [], "maxTokens": 5},
}
WRONG: list[Any] = [None, 5, "", "no such thing", [], {}, True, -0.5, {"a": None}, [None]]


@pytest.mark.parametrize("method", sorted(GOOD))
async def test_values_of_wrong_types_are_refused_with_what_was_expected_and_what_came(method: str) -> None:
    async with rig() as there, there.socket() as client:
        for place in _places(GOOD[method]):
            for value in WRONG:
                params = json.loads(json.dumps(GOOD[method]))
                at = params
                for step in place[:-1]:
                    at = at[step]
                at[place[-1]] = value
                try:
                    await client.ask(method, meta={"correlationId": "bad"}, **params)
                    continue
                except Refused as told:
                    error = told
                assert error.data["correlationId"] == "bad", (place, value, error)
                assert error.data["retryable"] is False, (place, value, error)
                assert error.code in (-32001, -32002, -32003, -32005, -32007, -32008, -32601, -32602), (
                    place,
                    value,
                    error,
                )
                if error.code == -32001 and "details" in error.data:
                    assert {"expected", "received"} <= error.data["details"].keys()
                    assert error.data["path"].startswith("/") or place == ()
        assert (await client.message("echo", "still here"))["status"] == "completed"


def _places(value: Any) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    if isinstance(value, dict):
        return [(key, *rest) for key, inner in value.items() for rest in [(), *_places(inner)]]
    if isinstance(value, list):
        return [(at, *rest) for at, inner in enumerate(value) for rest in [(), *_places(inner)]]
    return []


@pytest.mark.parametrize("params", [b"null", b"[]", b"5", b'"x"', b"{}", b'{"_meta": null}', b'{"_meta": 5}'])
async def test_params_that_are_none_are_refused_whatever_the_method(params: bytes) -> None:
    async with rig() as there:
        sent = [
            b'{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}' % (number, method.encode(), params)
            for number, method in enumerate(GOOD, 10)
        ]
        answers = await _raw(there, *sent)
        for method, answer in zip(GOOD, sorted(answers, key=lambda one: one["id"]), strict=True):
            check_answer(answer, VERSION, method, {"name": "agentSearch"})
            if "error" in answer:
                assert answer["error"]["code"] in (-32001, -32602), (method, answer)
            else:
                assert method in ("resources/list", "tools/call")


async def _raw(there: Rig, *messages: bytes, last: int | None = None) -> list[dict[str, Any]]:
    """What comes back for messages as they are, on a connection that has shaken hands: as much, or up to an id."""
    url = there.url.replace("http", "ws", 1) + "/ws"
    hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
    async with connect(url, subprotocols=[Subprotocol("mcp")], close_timeout=1) as socket, asyncio.timeout(30):
        await socket.send(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}))
        await socket.recv()
        for message in messages:
            await socket.send(message.decode("utf-8", "surrogateescape"))
        found: list[dict[str, Any]] = []
        while len(found) < len(messages) if last is None else not (found and found[-1].get("id") == last):
            found.append(json.loads(await socket.recv()))
        return found


async def test_the_same_request_id_twice_at_a_time_is_refused_and_the_first_goes_on() -> None:
    async with rig() as there:
        asked = {"target": "held", "content": request()}
        message = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "agent/message", "params": asked}).encode()
        url = there.url.replace("http", "ws", 1) + "/ws"
        hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
        async with connect(url, subprotocols=[Subprotocol("mcp")]) as socket, asyncio.timeout(30):
            await socket.send(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}))
            await socket.recv()
            await socket.send(message.decode())
            await there.newest("held")
            await socket.send(message.decode())
            error = json.loads(await socket.recv())
            assert error["error"]["code"] == -32600
            there.gate.set()
            assert json.loads(await socket.recv())["result"]["status"] == "completed"
        assert len(there.agents["held"].contexts) == 1


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("agent/message", {}, -32001),
        ("agent/message", {"target": "echo", "content": None}, -32001),
        ("agent/message", {"target": "echo", "content": {"type": "shout", "payload": {}}}, -32001),
        ("agent/message", {"target": "echo", "content": request(), "source": "painter"}, -32003),
        ("agent/delegate", {"task": None}, -32001),
        ("agent/delegate", {"task": {"id": 1, "type": "x", "payload": {}}}, -32001),
        ("agent/heartbeat", {"agentId": "no agent"}, -32001),
        ("agent/heartbeat", {"agentId": "nobody"}, -32002),
        ("agent/register", {"agent": "me"}, -32001),
        ("agent/unregister", {"agentId": []}, -32001),
        ("agent/nothing", {"a": 1}, -32601),
    ],
)
async def test_a_notification_that_is_wrong_is_told_so_by_agent_error(
    method: str, params: dict[str, Any], code: int
) -> None:
    async with rig() as there, there.socket() as client:
        await client.tell(method, meta={"correlationId": "lost"}, **params)
        (told,) = await client.hears("agent/error")
        assert (told["error"]["code"], told["_meta"]) == (code, {"correlationId": "lost"})
        if code == -32001:
            assert told["error"]["message"].startswith("Invalid payload structure")
            assert {"expected", "received"} <= told["error"]["details"].keys()


@pytest.mark.parametrize("method", ["agent/message", "logging/setLevel", "no/such"])
async def test_a_request_before_initialize_is_refused_under_its_correlation_id(method: str) -> None:
    async with rig() as there, there.socket(hello=None) as client:
        with pytest.raises(Refused, match="-32600 initialize must come first") as told:
            await client.ask(method, meta={"correlationId": "early"})
        assert told.value.data == {"correlationId": "early", "code": "refused", "retryable": False}


async def test_the_error_of_the_protocols_own_example() -> None:
    async with rig() as there, there.socket() as client:
        await client.tell("agent/delegate", task=None, meta={"correlationId": "corr-1234"})
        (told,) = await client.hears("agent/error")
        assert told["error"]["code"] == -32001
        assert told["error"]["details"]["expected"].startswith("Task object with required fields")
        assert told["error"]["details"]["received"] == "null"
        assert told["_meta"] == {"correlationId": "corr-1234"}


async def test_what_is_no_message_at_all_is_answered_and_the_connection_goes_on() -> None:
    async with rig() as there:
        bad = (b"{", b"[]", b'{"jsonrpc":"2.0","id":5}', b'{"id":6,"method":5}', b"\x00", b'"text"')
        good = b'{"jsonrpc":"2.0","id":99,"method":"ping"}'
        *errors, pong = await _raw(there, *bad, good, last=99)
        assert pong == {"jsonrpc": "2.0", "id": 99, "result": {}} and len(errors) >= 4
        assert {error["error"]["code"] for error in errors} == {-32700, -32600}


async def test_notifications_of_no_concern_are_passed_over() -> None:
    async with rig() as there, there.socket() as client:
        for method, params in (
            ("notifications/roots/list_changed", {}),
            ("notifications/progress", {"progressToken": "nobody's", "progress": 1}),
            ("notifications/cancelled", {"requestId": 1234}),
            ("agent/error", {"error": {"code": -32001, "message": "?"}, "_meta": {"correlationId": "x"}}),
            ("agent/error", {}),
            ("something/else", {"a": [1]}),
        ):
            await client.tell(method, **params)
        assert await client.ask("ping") == {}
        assert client.told == []


@pytest.mark.parametrize("deep", [500, 100_000])
async def test_payloads_that_are_deep_or_strange_break_nothing(deep: int) -> None:
    nested = '{"a":' * deep + "1" + "}" * deep
    sent = (
        '{"jsonrpc":"2.0","id":1,"method":"agent/message","params":{"target":"echo","content":{"type":"request",'
        f'"payload":{nested}}}}}}}'
    )
    half = (
        '{"jsonrpc":"2.0","id":2,"method":"agent/message","params":{"target":"echo","content":{"type":"request",'
        '"payload":{"messages":[{"text":"\\ud800 half"}]}}}}'
    )
    async with rig() as there:
        answers = await _raw(there, sent.encode(), half.encode())
        assert {answer.get("id") for answer in answers} <= {1, 2, None}
        whole = next(answer for answer in answers if answer.get("id") == 2)
        check_answer(whole, VERSION, "agent/message", {})
        assert whole["error"]["code"] == -32602
        assert whole["error"]["data"]["path"] == "/content/payload/messages/0/text"


async def test_a_client_that_answers_questions_with_nonsense_declines_them() -> None:
    async with rig() as there, there.socket(hello=AGENT) as client:
        for nonsense in (
            {"x": 1},
            {"content": 5},
            {"content": {"type": "request", "payload": {}}},
            {"status": "?"},
            {"content": {}},
        ):

            async def answer(params: dict[str, Any], said: Any = nonsense) -> Any:
                return said

            client.on["agent/message"] = answer
            found = await client.message("asker")
            assert "declined" in found["content"]["payload"]["messages"][0]["text"], nonsense


@pytest.mark.parametrize(
    ("method", "params", "told"),
    [
        ("logging/setLevel", {"level": "loud"}, "no such level"),
        ("logging/setLevel", {}, "params: "),
        ("no/such/method", {}, "no method"),
    ],
)
async def test_what_the_transport_refuses_itself_has_the_correlation_id_too(
    method: str, params: dict[str, Any], told: str
) -> None:
    async with rig() as there, there.socket() as client:
        with pytest.raises(Refused) as refused:
            await client.ask(method, meta={"correlationId": "mine"}, **params)
        assert refused.value.code in (-32602, -32601) and told in str(refused.value)
        assert refused.value.data["correlationId"] == "mine" and refused.value.data["retryable"] is False


async def test_so_has_a_request_whose_id_is_taken() -> None:
    async with rig() as there, there.socket() as client:
        waits = {"target": "held", "content": request()}
        asked = [await client.begin("agent/message", id="one", meta={"correlationId": "a"}, **waits)]
        asked.append(await client.begin("agent/message", id="one", meta={"correlationId": "b"}, **waits))
        with pytest.raises(Refused, match="under way already") as refused:
            async with asyncio.timeout(30):
                await asked[1]
        assert (refused.value.code, refused.value.data["correlationId"]) == (-32600, "b")
