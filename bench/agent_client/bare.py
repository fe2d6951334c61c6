"""A proxy that knows nothing but who asked what: WebSocket on one side, one agent on stdio on the other.

It is measured beside the gateway because it costs what the gateway's server costs on this machine at this moment. What
an agent says of a session goes to the connection that has made it, unread; requests get ids of the proxy's own.
`python -m bench.agent_client.bare --port N COMMAND ...`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import uvicorn
from msgspec import Raw

from bench.rpc.wires import Program

_UPDATE = b'"session/update"'
_SESSION = b'"sessionId":"'


class Client:
    """One WebSocket; what is to be sent waits here for its task."""

    def __init__(self) -> None:
        self.some = asyncio.Event()
        self.waiting: list[bytes] = []

    def put(self, message: bytes) -> None:
        """Send soon."""
        self.waiting.append(message)
        self.some.set()

    async def write(self, send: Any) -> None:
        """Until cancelled."""
        while True:
            await self.some.wait()
            self.some.clear()
            messages, self.waiting = self.waiting, []
            for message in messages:
                await send({"type": "websocket.send", "text": message.decode()})


class Proxy:
    """The ASGI application."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._agent: asyncio.Task[Program] | None = None
        self._ids = itertools.count()
        self._asked: dict[int, tuple[Client, Raw]] = {}
        self._sessions: dict[bytes, Client] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await receive()
        await send({"type": "websocket.accept"})
        agent = await self._started()
        client = Client()
        writer = asyncio.create_task(client.write(send))
        try:
            while (message := await receive())["type"] == "websocket.receive":
                self._asks(agent, client, message["text"].encode())
        finally:
            writer.cancel()

    async def _started(self) -> Program:
        if self._agent is None:
            self._agent = asyncio.create_task(Program.start(self._command, ".", self._says, print))
            gc.collect()
            gc.freeze()
        return await self._agent

    def _asks(self, agent: Program, client: Client, data: bytes) -> None:
        message: dict[str, Raw] = msgspec.json.decode(data, type=dict[str, Raw])
        if "id" in message:
            number = next(self._ids)
            self._asked[number] = client, message["id"]
            message["id"] = Raw(b"%d" % number)
        agent.send(msgspec.json.encode(message))

    def _says(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            if line.find(_UPDATE) >= 0:
                at = line.find(_SESSION) + len(_SESSION)
                self._sessions[line[at : line.find(b'"', at)]].put(line)
                continue
            message: dict[str, Raw] = msgspec.json.decode(line, type=dict[str, Raw])
            client, message["id"] = self._asked.pop(int(bytes(message["id"])))
            at = line.find(_SESSION)
            if at >= 0:
                at += len(_SESSION)
                self._sessions[line[at : line.find(b'"', at)]] = client
            client.put(msgspec.json.encode(message))


def main(proxy: Callable[[Sequence[str]], Proxy] = Proxy) -> None:
    """The process. `proxy` makes one of an agent's command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    uvicorn.run(
        proxy(options.command),
        port=options.port,
        http="httptools",
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
    )


if __name__ == "__main__":
    main()
