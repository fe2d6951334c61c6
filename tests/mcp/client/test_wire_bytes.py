"""What a server of Streamable HTTP gets from a pool, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.mcp.client.rig import Listens, events, notification, one, request, result, stream
from tests.support.raw_http import Exchange
from tests.support.wire_log import WireLog

RECORDED = Path(__file__).parent / "transcripts" / "session.txt"


async def test_a_session_is_said_as_it_was_recorded() -> None:
    log = WireLog()

    async def get(exchange: Exchange, message: Any) -> None:
        if "last-event-id" in exchange.headers:
            await stream(exchange, result(2, {"content": []}))
            return
        await stream(exchange, notification("notifications/tools/list_changed"), end=False)
        await events(exchange, request("s1", "ping"))
        await exchange.gone()

    async def broken_off(exchange: Exchange, message: Any) -> None:
        await stream(exchange, notification("notifications/message", level="info", data="x"), ids=True)

    on = {"GET": get, "tools/call": broken_off}
    async with one(on, auth={"bearer": "secret"}) as (server, _, session):
        await server.until(lambda: server.got("answer"))
        await session.call("tools/call", {"name": "x", "arguments": {}}, listener=Listens())
    for exchange in server.server.seen:
        log.requested(exchange)
    log.matches(RECORDED)
