"""A lean translator of tool calls, the floor of a gateway in Python on the way of MCP: Streamable HTTP in, stdio out.

It reads a `tools/call` as JSON, calls the agent with a request of its own, `agents/run`, and writes its output as the
result of the tool. There are no routes, no schemas, no checks, no limits and no store: what a call costs beyond this is
what the gateway adds to translating.

`--rows FILE`: two rows a call in SQLite, one on disk before the agent is asked, the other, with what it said, before
its answer is told, as the gateway promises; calls at the same time share a commit.
`python -m bench.agent_communication.lean --port N [--rows FILE] COMMAND ...`.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from bench.rpc.lean import Behind, run
from bench.rpc.wires import Program

_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "lean", "version": "1.0.0"}}
_SERVER = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "lean"}}
_encode = msgspec.json.encode


class Params(Struct):
    """Of a `tools/call`."""

    name: str = ""
    arguments: Raw = Raw(b"{}")


class Request(Struct):
    method: str
    id: int | str | UnsetType = UNSET
    params: Params = msgspec.field(default_factory=Params)


class Output(Struct):
    output: Raw


class Said(Struct):
    """A notification of the agent's, or its answer."""

    id: int | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET


class Record(Struct):
    """A call as it is kept."""

    id: str
    name: str
    input: Raw
    said: list[Raw]
    output: Raw | UnsetType = UNSET


_request = msgspec.json.Decoder(Request).decode
_said = msgspec.json.Decoder(Said).decode
_output = msgspec.json.Decoder(Output).decode


class Translator:
    """The ASGI application."""

    def __init__(self, behind: Behind) -> None:
        self._behind = behind
        self._ids = itertools.count()
        self._asked: dict[int, tuple[asyncio.Future[Raw], Record]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        body += message.get("body", b"")
        if scope["method"] != "POST":
            return await _reply(send, 200, b"")
        asked = _request(body)
        if asked.method == "tools/call":
            result: Any = await self._call(asked.params)
        elif asked.id is UNSET:
            return await _reply(send, 202, b"")
        else:
            result = _SERVER
        await _reply(send, 200, _encode({"jsonrpc": "2.0", "id": asked.id, "result": result}))

    async def _call(self, asked: Params) -> Any:
        record = Record(str(uuid.uuid4()), asked.name, asked.arguments, [])
        agent = await self._behind.agent(self._start)
        if self._behind.rows is not None:
            await self._behind.rows.ended(record.id, _encode(record))
        answer = await self._ask(agent, record)
        record.output = _output(answer).output
        if self._behind.rows is not None:
            await self._behind.rows.ended(record.id, _encode(record))
        text = bytes(record.output).decode()
        content = [{"type": "text", "text": text}]
        return {"content": content, "structuredContent": record.output, "isError": False, "_meta": {"run": record.id}}

    async def _ask(self, agent: Program, record: Record) -> Raw:
        number = next(self._ids)
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._asked[number] = future, record
        params = {"name": record.name, "input": record.input, "_meta": {"progressToken": number}}
        agent.send(_encode({"jsonrpc": "2.0", "id": number, "method": "agents/run", "params": params}))
        return await future

    async def _start(self, command: Sequence[str]) -> Program:
        agent = await Program.start(command, ".", self._says, print)
        ready = asyncio.get_running_loop().create_future()
        self._asked[number := next(self._ids)] = ready, Record("", "", Raw(b""), [])
        agent.send(_encode({"jsonrpc": "2.0", "id": number, "method": "initialize", "params": _HELLO}))
        await ready
        agent.send(_encode({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        return agent

    def _says(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            said = _said(line)
            if isinstance(said.id, int) and isinstance(said.result, Raw):
                self._asked.pop(said.id)[0].set_result(said.result)
            elif isinstance(said.params, Raw):
                token = msgspec.json.decode(said.params)["progressToken"]
                self._asked[token][1].said.append(said.params)


async def _reply(send: Any, status: int, body: bytes) -> None:
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    run(Translator)
