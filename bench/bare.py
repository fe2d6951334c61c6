"""A proxy that knows nothing: uvicorn and aiohttp, whatever the gateway uses, and one function between them.

It is measured beside the gateway because it costs what well-known libraries cost on this machine at this moment: no
store, no routes, no translation, bytes through as they come. `python -m bench.bare --port N --agent PORT`.
"""

from __future__ import annotations

import argparse
import gc
from typing import Any

import aiohttp
import uvicorn

_HEAD = [(b"content-type", b"application/octet-stream")]


class Proxy:
    """The ASGI application."""

    def __init__(self, agent: int) -> None:
        self._agent = f"http://127.0.0.1:{agent}"
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
            gc.collect()
            gc.freeze()
        body = await _body(receive)
        async with self._session.request(scope["method"], self._agent + scope["path"], data=body) as answer:
            await send({"type": "http.response.start", "status": answer.status, "headers": _HEAD})
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


async def _body(receive: Any) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def main() -> None:
    """The process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--agent", type=int, required=True)
    options = parser.parse_args()
    uvicorn.run(
        Proxy(options.agent),
        port=options.port,
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
    )


if __name__ == "__main__":
    main()
