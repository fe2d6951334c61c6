"""A GET: one lane's messages as server-sent events, on ASGI itself."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

from starlette.types import Send

from adapters.agent_client.inbound.http.request_stream import Lane
from gateway.transport.asgi import Exchange
from gateway.transport.streamable_http import EVENTS
from gateway.wire import sse

log = logging.getLogger(__name__)

BATCH = 256 * 1024
END_SECONDS = 1.0

_OUTSIDE = re.compile(r"[^\x00-\x7f]+")

_HEADERS = (
    (b"content-type", EVENTS.encode()),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


async def stream(
    lane: Lane, exchange: Exchange, keep_alive: float, *, opened: Callable[[], None] = lambda: None
) -> None:
    """Answer a GET with what is put into `lane`, until the lane ends, another GET takes its place, or the client goes.

    What was not written by then stays in the lane, which was vacated. `opened` is called before the first wait.
    `keep_alive`: seconds of silence after which a comment is sent.
    """
    watcher = asyncio.create_task(exchange.gone())
    pump = asyncio.create_task(_pump(lane, exchange, keep_alive, watcher.done))
    lane.attach(pump)
    opened()
    try:
        await asyncio.wait([pump, watcher], return_when=asyncio.FIRST_COMPLETED)
        gone = watcher.done()
    finally:
        pump.cancel()
        watcher.cancel()
        await asyncio.wait([pump, watcher], timeout=END_SECONDS)
        lane.left(pump)
    if pump.done() and not pump.cancelled() and (error := pump.exception()) is not None:
        log.error("a stream failed", exc_info=error)
    if not gone:
        with suppress(TimeoutError):  # a client that does not read does not see the end either
            async with asyncio.timeout(END_SECONDS):
                await exchange.send({"type": "http.response.body", "body": b""})


async def _pump(lane: Lane, exchange: Exchange, keep_alive: float, gone: Callable[[], bool]) -> None:
    send = exchange.send
    await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *exchange.extra]})
    while not gone():
        if messages := lane.take(BATCH):
            await _write(lane, send, messages, gone)
        elif lane.ended:
            return
        else:
            try:
                async with asyncio.timeout(keep_alive):
                    await lane.some.wait()
            except TimeoutError:
                await send({"type": "http.response.body", "body": sse.KEEPALIVE, "more_body": True})


async def _write(lane: Lane, send: Send, messages: Sequence[bytes], gone: Callable[[], bool]) -> None:
    """One write for all that is ready.

    A server does not say that it drops what it is given once the client has gone: that is heard a turn later.
    """
    sent = False
    try:
        await send({"type": "http.response.body", "body": frames(messages), "more_body": True})
        sent = True
        await asyncio.sleep(0)
    finally:
        if sent and not gone():
            lane.written()
        else:
            lane.restore()


def frames(messages: Sequence[bytes]) -> bytes:
    """Events, in ASCII: a client exists (the Python SDK 0.12) that decodes each read of its socket by itself, and fails
    where a character is cut in two. JSON has escapes for all of them."""
    return b"".join([sse.encode(message if message.isascii() else _ascii(message)) for message in messages])


def _ascii(message: bytes) -> bytes:
    return _OUTSIDE.sub(_escaped, message.decode()).encode()


def _escaped(found: re.Match[str]) -> str:
    return "\\u" + found[0].encode("utf-16-be").hex(" ", 2).replace(" ", "\\u")
