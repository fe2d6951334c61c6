"""Conversations over Streamable HTTP, byte for byte as both of our ends say them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gateway.transport.http import HttpAuth
from tests.adapters.agent_client.http_fake import fake, update
from tests.adapters.agent_client.http_rig import CONNECTION, INITIALIZE, SESSION, rig
from tests.adapters.agent_client.test_http_client import connected
from tests.support.aio import run
from tests.support.wire_log import RawConnection, WireLog, told

RECORDED = Path(__file__).parent / "transcripts" / "http"
JSON = {"Content-Type": "application/json"}
EVENTS = {"Accept": "text/event-stream"}


def message(id: int | None, method: str, params: Any) -> bytes:
    said = {"jsonrpc": "2.0", **({} if id is None else {"id": id}), "method": method, "params": params}
    return json.dumps(said).encode()


def prompt(id: int, text: str) -> bytes:
    return message(id, "session/prompt", {"sessionId": "made1", "prompt": [{"type": "text", "text": text}]})


def test_a_server_says_a_connection_as_it_was_recorded() -> None:
    async def main() -> None:
        log = WireLog()
        async with rig() as there:
            url = there.url
            hello = await told(log, "POST", url, JSON, json.dumps(INITIALIZE).encode())
            said = {CONNECTION: hello.headers[CONNECTION.lower()]}
            main = await RawConnection.send(log, "GET", url, {**EVENTS, **said})
            await told(log, "POST", url, {**JSON, **said}, message(1, "session/new", {"cwd": "/", "mcpServers": []}))
            await main.read(b'made1"}}\n\n')
            named = {**said, SESSION: "made1"}
            own = await RawConnection.send(log, "GET", url, {**EVENTS, **named})
            await told(log, "POST", url, {**JSON, **named}, prompt(2, "say one zwei drüben \U0001f600 \u2028"))
            await own.read(b'end_turn"}}\n\n')
            again = await RawConnection.send(log, "GET", url, {**EVENTS, **named})
            await own.read()
            await again.read(b'end_turn"}}\n\n')  # the last answer once more
            await told(log, "POST", url, {**JSON, **named}, prompt(3, "say two"))
            await again.read(b'end_turn"}}\n\n')
            await told(log, "POST", url, {**JSON, **said}, prompt(4, "say"))
            await told(log, "POST", url, {**JSON, **said}, b"[]")
            await told(log, "POST", url, {**JSON, **said}, b"{")
            await told(log, "POST", url, said, b"{}")
            await told(log, "GET", url, said)
            await told(log, "GET", url, EVENTS)
            await told(log, "PUT", url, said)
            page = {"Origin": "http://127.0.0.1:1", "Access-Control-Request-Headers": "x"}
            await told(log, "OPTIONS", url, page)
            await told(log, "DELETE", url, said)
            await main.read()
            await again.read()
            await told(log, "POST", url, {**JSON, **said}, message(5, "session/new", {}))
            for open_still in (main, own, again):
                open_still.drop()
        log.matches(RECORDED / "server.txt")

    run(main())


async def test_a_client_says_a_connection_as_it_was_recorded() -> None:
    log = WireLog()
    async with fake() as there:
        there.cookie = {"Set_Cookie": "a=0; Path=/"}
        async with connected(there.url, auth=HttpAuth(bearer="key")) as here:
            await here.ask("_one", {"text": "ü"})
            await here.ask("session/prompt", {"sessionId": "s1"})
            there.tell("s1", update("s1", "x"))
            here.peer.notify("session/cancel", {"sessionId": "s1"})
            await here.ask("_two", {})
        for method in ("POST", "GET", "DELETE"):
            for exchange in sorted(there.of(method), key=lambda one: len(one.headers)):
                log.requested(exchange)
    log.matches(RECORDED / "client.txt")
