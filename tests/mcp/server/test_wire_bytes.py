"""A conversation over Streamable HTTP, byte for byte as the server's end says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.mcp.server.rig import SESSION, VERSION, initialize, modern_tool, rig, stated, tool
from tests.support.wire_log import RawConnection, WireLog, told

RECORDED = Path(__file__).parent / "transcripts"
BOTH = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
EVENTS = {"Accept": "text/event-stream"}


def message(id: int | None, method: str, params: Any = None) -> bytes:
    said: dict[str, Any] = {"jsonrpc": "2.0", **({} if id is None else {"id": id}), "method": method}
    return json.dumps(said if params is None else {**said, "params": params}).encode()


async def test_a_session_is_said_as_it_was_recorded() -> None:
    log = WireLog()
    async with rig() as there:
        url = there.mcp
        hello = json.dumps(initialize()).encode()
        session = {SESSION: (await told(log, "POST", url, BOTH, hello)).headers[SESSION.lower()]}
        said = {**session, VERSION: "2025-11-25"}
        await told(log, "POST", url, {**BOTH, **said}, message(None, "notifications/initialized"))
        get = await RawConnection.send(log, "GET", url, {**EVENTS, **said})
        await get.read(b"\n\n")
        await told(log, "POST", url, {**BOTH, **said}, message(1, "tools/call", tool("news")))
        await get.read(b'list_changed"}\n\n')
        await told(log, "POST", url, {**BOTH, **said}, message(2, "tools/call", tool("say", "t", words="ä b c")))
        lost = message(3, "tools/call", tool("lose", "t"))
        await told(log, "POST", url, {**BOTH, **said}, lost)
        await told(log, "GET", url, {**EVENTS, **said, "Last-Event-ID": "3-1"})
        await told(log, "GET", url, {**EVENTS, **said, "Last-Event-ID": "9-1"})
        await told(log, "POST", url, {**BOTH, **said}, b"[]")
        await told(log, "POST", url, {**BOTH, **said}, b"{")
        await told(log, "POST", url, {**BOTH, **said}, message(4, "nothing"))
        await told(log, "DELETE", url, said)
        await get.read()
        get.drop()
        await told(log, "POST", url, {**BOTH, **said}, message(5, "ping"))
        await told(log, "PUT", url, said)
        page = {"Origin": "http://127.0.0.1:1", "Access-Control-Request-Headers": "x"}
        await told(log, "OPTIONS", url, page)
    log.matches(RECORDED / "session.txt")


async def test_requests_without_a_session_are_answered_as_they_were_recorded() -> None:
    log = WireLog()
    async with rig() as there:
        url = there.mcp
        plain = {"Content-Type": "application/json"}
        await told(log, "POST", url, plain, message(1, "tools/call", tool("say", words="a")))
        said = {**BOTH, VERSION: "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "say"}
        await told(log, "POST", url, said, message(2, "tools/call", modern_tool("say", "t", words="a b")))
        await told(log, "POST", url, said, message(3, "tools/call", modern_tool("ask")))
        asked = {**said, "Mcp-Name": "ask"}
        await told(log, "POST", url, asked, message(4, "tools/call", modern_tool("ask")))
        listen = {**BOTH, VERSION: "2026-07-28", "Mcp-Method": "subscriptions/listen"}
        wanted = {**stated(), "notifications": {"toolsListChanged": True}}
        heard = await RawConnection.send(log, "POST", url, listen, message(5, "subscriptions/listen", wanted))
        await heard.read(b"\n\n")
        there.server.quiet()
        await heard.read()
        heard.drop()
        await told(log, "POST", url, plain, message(6, "ping"))
    log.matches(RECORDED / "sessionless.txt")
