"""A lean translator of prompts, the floor of a gateway in Python on the way of editors: WebSocket in, stdio out.

It reads every message as JSON and writes one of its own, with its own ids of sessions and requests. There are no
routes, no checks, no limits and no store: what a prompt costs beyond this is what the gateway adds to translating.

`--rows FILE`: two rows a prompt in SQLite, one on disk before the prompt is sent, the other, with all that the agent
said, before its answer is told, as the gateway promises; prompts at the same time share a commit.
`python -m bench.agent_client.lean --port N [--rows FILE] COMMAND ...`.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from bench.rpc.lean import Behind, run
from bench.rpc.wires import Program
from gateway.transport.websocket.server import EXTENSION
from gateway.transport.websocket.uvicorn import MessageProtocol

_encode = msgspec.json.encode
_Id = int | str | None


class Block(Struct, omit_defaults=True):
    type: str
    text: str | UnsetType = UNSET


class Asked(Struct, rename="camel", omit_defaults=True):
    """Params of a client's request."""

    session_id: str | UnsetType = UNSET
    prompt: list[Block] | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    mcp_servers: list[Raw] | UnsetType = UNSET
    protocol_version: int | UnsetType = UNSET


class Request(Struct, omit_defaults=True):
    method: str
    params: Asked
    jsonrpc: str = ""
    id: _Id | UnsetType = UNSET


class Update(Struct, rename="camel"):
    session_update: str
    content: Block


class Told(Struct, rename="camel"):
    """Params of the agent's notification."""

    session_id: str
    update: Update


class Result(Struct, rename="camel", omit_defaults=True):
    session_id: str | UnsetType = UNSET
    stop_reason: str | UnsetType = UNSET
    protocol_version: int | UnsetType = UNSET
    meta: Raw | UnsetType = msgspec.field(name="_meta", default=UNSET)


class Said(Struct, omit_defaults=True):
    """A notification of the agent's, or its answer."""

    jsonrpc: str = "2.0"
    id: _Id | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Told | UnsetType = UNSET
    result: Result | UnsetType = UNSET


class Record(Struct):
    """A prompt as it is kept."""

    id: str
    session: str
    prompt: list[Block]
    said: list[Update]
    ended: str = ""


_request = msgspec.json.Decoder(Request).decode
_said = msgspec.json.Decoder(Said).decode


Client = Callable[[bytes], object]
"""Writes a message to one WebSocket."""


class Session:
    """`name`: the translator's own; `agents`: the agent's."""

    def __init__(self, client: Client, agents: str) -> None:
        self.client = client
        self.name = str(uuid.uuid4())
        self.agents = agents
        self.record: Record | None = None


class Translator:
    """The ASGI application."""

    def __init__(self, behind: Behind) -> None:
        self._behind = behind
        self._ids = itertools.count()
        self._asked: dict[_Id, tuple[Client, Request, Session | None]] = {}
        self._ours: dict[str, Session] = {}
        self._theirs: dict[str, Session] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await receive()
        await send({"type": "websocket.accept"})
        agent = await self._behind.agent(self._start)
        writer = scope["extensions"][EXTENSION]

        def client(message: bytes) -> None:
            writer.offer([message])

        while (message := await receive())["type"] == "websocket.receive":
            asked = _request(message["text"])
            if asked.method == "session/prompt":
                await self._prompt(agent, client, asked)
            else:
                self._send(agent, client, asked, None)

    async def _start(self, command: Sequence[str]) -> Program:
        return await Program.start(command, ".", self._says, print)

    async def _prompt(self, agent: Program, client: Client, asked: Request) -> None:
        assert isinstance(asked.params.session_id, str) and isinstance(asked.params.prompt, list)
        session = self._ours[asked.params.session_id]
        record = session.record = Record(str(uuid.uuid4()), session.name, asked.params.prompt, [])
        if self._behind.rows is not None:
            await self._behind.rows.ended(record.id, _encode(record))
        asked.params.session_id = session.agents
        self._send(agent, client, asked, session)

    def _send(self, agent: Program, client: Client, asked: Request, session: Session | None) -> None:
        number = next(self._ids)
        self._asked[number] = client, asked, session
        agent.send(_encode(Request(asked.method, asked.params, "2.0", number)))

    def _says(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            said = _said(line)
            if isinstance(said.params, Told):
                session = self._theirs[said.params.session_id]
                if session.record is not None:
                    session.record.said.append(said.params.update)
                said.params.session_id = session.name
                session.client(_encode(said))
            else:
                client, asked, of = self._asked.pop(said.id)  # type: ignore[arg-type]
                said.id = asked.id
                self._answered(client, said, of)

    def _answered(self, client: Client, said: Said, session: Session | None) -> None:
        if session is not None and isinstance(said.result, Result) and session.record is not None:
            session.record.ended = str(said.result.stop_reason)
            if self._behind.rows is not None:
                self._told_later(client, said, self._behind.rows.ended(session.record.id, _encode(session.record)))
                return
        elif isinstance(said.result, Result) and isinstance(said.result.session_id, str):
            made = Session(client, said.result.session_id)
            self._ours[made.name] = self._theirs[made.agents] = made
            said.result.session_id = made.name
        client(_encode(said))

    def _told_later(self, client: Client, said: Said, written: asyncio.Future[None]) -> None:
        written.add_done_callback(lambda _: client(_encode(said)))


if __name__ == "__main__":
    run(Translator, ws=MessageProtocol, ws_per_message_deflate=False)
