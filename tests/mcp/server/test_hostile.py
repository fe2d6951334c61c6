"""Clients that mean harm, or were made in a hurry."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from msgspec import Raw
from starlette.types import Message
from websockets.asyncio.client import connect

from gateway.mcp import versions
from gateway.mcp.server.http.streams import numbered
from gateway.transport.asgi import HttpRequest
from gateway.transport.streamable_http import server as streams
from tests.mcp.server.rig import SESSION, Client, client, initialize, modern_client, rig, stated, tool
from tests.support.aio import run


async def test_sessions_that_were_left_behind_take_nobodys_place_on_any_transport() -> None:
    async with (
        rig(max_sessions=2) as there,
        client(there.mcp) as first,
        client(there.mcp) as second,
        modern_client(there.mcp) as modern,
        connect(there.url.replace("http", "ws", 1) + "/ws") as socket,
    ):
        await socket.send('{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
        assert await socket.recv() == '{"jsonrpc":"2.0","id":1,"result":{}}'
        assert (await first.post(first.request("ping"))).status_code == 404
        assert (await second.post(second.request("ping"))).status_code == 200
        assert "result" in await modern.ask("tools/list", stated())
        assert (await second.post(second.request("ping"))).status_code == 404


async def test_a_stream_of_which_nothing_went_out_yet_cannot_be_taken_by_a_guess() -> None:
    async with rig() as there, client(there.mcp) as caller:
        asked = caller.request("agents/run", {"name": "wait", "input": {}}, id="w")
        waiting = asyncio.create_task(caller.post(asked))
        await there.saw("waits w")
        for guess in ("1-0", "2-0", "3-0", "4-0"):
            answer = await caller.http.get(
                there.mcp, headers=caller.headers(Accept="text/event-stream", Last_Event_ID=guess)
            )
            assert answer.status_code == 400
        there.words.go.set()
        assert (await waiting).status_code == 200


async def test_params_that_are_null_are_none() -> None:
    async with rig() as there, client(there.mcp) as caller:
        answer = await caller.post(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": null}')
        assert "result" in answer.json(), answer.text
        assert there.words.calls[-1].params == Raw(b"{}")


@pytest.mark.parametrize("number", ["NaN", "-Infinity"])
def test_what_is_no_json_is_refused_under_its_id_and_told_in_one_line(
    number: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway")

    async def case() -> None:
        async with rig() as there, client(there.mcp) as caller:
            body = f'{{"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {{"x": {number}}}}}'
            answer = await caller.post(body.encode())
            assert (answer.status_code, answer.json()["id"], answer.json()["error"]["code"]) == (400, 7, -32700)

    run(case())
    told = [record.levelname for record in caplog.records if "no message" in record.getMessage()]
    assert told == ["INFO"]


@pytest.mark.parametrize("method", ["tools/list", "initialize", "logging/setLevel"])
@pytest.mark.parametrize(
    ("params", "path"),
    [
        (rb'{"cursor": null, "_meta": {"x": "\ud800"}}', "/_meta/x"),
        (rb'{"\udfff": "\ud83d\ude00"}', ""),
        (b'{"x": {"y": [1e400]}}', "/x/y/0"),
    ],
)
def test_params_that_nobody_can_store_are_refused_with_their_place(
    method: str, params: bytes, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway")

    async def case() -> None:
        async with rig() as there, client(there.mcp) as caller:
            body = b'{"jsonrpc": "2.0", "id": 1, "method": "%b", "params": %b}' % (method.encode(), params)
            answer = await caller.post(body)
            error = answer.json()["error"]
            assert error["code"] == -32602 and error["message"].startswith(path or "params: half")
            assert "result" in (await caller.post(caller.request("tools/list", {}))).json()

    run(case())
    told = [(record.levelname, record.getMessage()) for record in caplog.records if method in record.getMessage()]
    assert len(told) == 1 and told[0][0] == "INFO" and path in told[0][1]


async def test_a_session_cannot_be_chosen_by_its_client_nor_used_at_another_agents_address() -> None:
    async with rig() as there, client(there.mcp) as caller:
        fixed = Client(caller.http, there.mcp, versions.V2025_11_25, "chosen")
        answer: Any = await fixed.post(initialize())
        assert answer.status_code == 404 and SESSION not in answer.headers
        elsewhere = Client(caller.http, there.mcp + "/say", versions.V2025_11_25, caller.session)
        for message in (initialize(), elsewhere.request("tools/call", tool("say", words="x"))):
            assert (await elsewhere.post(message)).status_code == 404


async def test_a_slow_reader_gets_the_end_of_its_stream_however_long_the_last_of_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A response without its end looks broken off: clients then doubt what they have."""
    sent: list[Message] = []
    taken, away = asyncio.Event(), asyncio.Event()

    async def receive() -> Message:
        await away.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message.get("body") == b"":
            await taken.wait()
        sent.append(message)

    monkeypatch.setattr(streams, "END_SECONDS", 0.01)
    for gone in (False, True):
        stream = streams.MessageStream("1", numbered("1"))
        stream.put(b"{}")
        stream.end()
        writing = asyncio.create_task(stream.write(HttpRequest({"headers": []}, receive, send), 15.0))
        assert not (await asyncio.wait([writing], timeout=0.1))[0]
        (away if gone else taken).set()
        await writing
        assert (sent[-1].get("body") == b"") is not gone
        taken.clear()
