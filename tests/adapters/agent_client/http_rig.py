"""What the tests of Streamable HTTP talk to and with: a scripted agent behind HttpServer, and a raw client.

| prompt | the agent |
|---|---|
| `say A B ...` | says the words one by one |
| `ask` | asks for permission, and says the option that was chosen |
| `wait` | waits for `session/cancel`, and ends `cancelled` |
| `flood N` | N chunks of 1,000 characters |
| anything else | says it |

`session/new` with `_meta: {"early": TEXT}` says TEXT about the new session before it answers, `"fail": true`
beside it with an error. `session/load` of a
session whose id begins with `old` says two things and answers; of any other it fails. That of `old flood` says 30,000
chunks more. `_echo` answers with its params.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from unittest.mock import patch

import httpx2
import msgspec
from msgspec import Raw
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from adapters.agent_client.inbound import http_connection
from adapters.agent_client.inbound.http import HttpServer
from adapters.agent_client.options import AgentClientServe
from gateway.access import Authenticator, UsageLimits
from gateway.contract import unguessable
from gateway.core.errors import NotFound, Unavailable
from gateway.core.types import Agent, Thread
from gateway.transport.pipe import Pipe
from gateway.transport.rpc import Peer
from gateway.wire.jsonrpc import RpcError
from tests.support.scripted import until
from tests.support.serving import serving

WITHIN = 30.0
CONNECTION, SESSION = "Acp-Connection-Id", "Acp-Session-Id"
EVENTS = {"Accept": "text/event-stream"}
MOUNT = "/agent-client"


class ScriptedAgent:
    """A Handler. One per connection."""

    def __init__(self, rig: Rig, agent: str | None) -> None:
        self.rig = rig
        self.agent = agent
        self.peer: Peer
        self.cancelled: dict[str, asyncio.Event] = {}
        self.floods = 0

    async def request(self, method: str, params: Raw, id: object) -> Any:
        given: dict[str, Any] = msgspec.json.decode(params) if params else {}
        if method == "initialize":
            return {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}, "agent": self.agent}
        if method == "session/new":
            return await self.new(given)
        if method == "session/load":
            if not given["sessionId"].startswith("old"):
                raise RpcError(-32002, "no such session")
            for text in ("first", "second"):
                self.say(given["sessionId"], text)
            if given["sessionId"] == "old flood":
                await self.prompt(given["sessionId"], "flood 30000")
            return {}
        if method == "session/prompt":
            return {"stopReason": await self.prompt(given["sessionId"], given["prompt"][0]["text"])}
        return given if method == "_echo" else {}

    async def new(self, params: dict[str, Any]) -> dict[str, Any]:
        self.rig.sessions += 1
        name = f"made{self.rig.sessions}"
        if early := params.get("_meta", {}).get("early"):
            self.say(name, early)
            await self.peer.drain()
        if params.get("_meta", {}).get("fail"):
            raise RpcError(-32603, "no session after all")
        return {"sessionId": name}

    async def prompt(self, session: str, text: str) -> str:
        what, _, rest = text.partition(" ")
        if what == "ask":
            options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
            params = {"sessionId": session, "toolCall": {"toolCallId": "c"}, "options": options}
            answer = await self.peer.request("session/request_permission", params)
            self.say(session, msgspec.json.decode(answer)["outcome"]["optionId"])
        elif what == "wait":
            self.say(session, "waiting")
            await self.cancelled.setdefault(session, asyncio.Event()).wait()
            return "cancelled"
        elif what == "flood":
            for number in range(int(rest)):
                self.say(session, f"{number:<1000}")
                self.floods = number
                await self.peer.drain()
        else:
            for word in rest.split() if what == "say" else [text]:
                self.say(session, word)
        return "end_turn"

    def say(self, session: str, text: str) -> None:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        self.peer.notify("session/update", {"sessionId": session, "update": update})

    def notification(self, method: str, params: Raw) -> None:
        self.rig.notified.append(method)
        if method == "session/cancel":
            session = msgspec.json.decode(params)["sessionId"]
            self.cancelled.setdefault(session, asyncio.Event()).set()

    def unreadable(self, what: object) -> None:
        raise AssertionError(what)


class RigAgents:
    """The agents of the server's gateway."""

    def __init__(self) -> None:
        self.extra: dict[str, Any] = {}

    def names(self, protocol: str) -> list[str]:
        return ["rig", "other"]

    def created(self, name: str) -> None:
        return None

    async def get(self, name: str, protocol: str, *, within: float | None = None) -> Agent:
        return Agent(name=name, input_schema={}, output_schema={}, extra=self.extra)


class RigThreads(set[str]):
    """The threads of the server's gateway, by id."""

    async def get(self, thread_id: str) -> Thread:
        if thread_id in self:
            return Thread(id=thread_id, created_at=0, updated_at=0)
        raise NotFound(thread_id)


class Rig:
    """A server on a real socket, and what became of its connections. It is the server's gateway too."""

    def __init__(self) -> None:
        self.url = ""
        self.sessions = 0
        self.notified: list[str] = []
        self.threads = RigThreads({"old1"})
        self.agents = RigAgents()
        self.new_id = unguessable
        self.limits = UsageLimits()
        self.alive: set[ScriptedAgent] = set()
        self.most = 1000
        self.server: HttpServer

    async def converse(self, pipe: Pipe, agent: str | None) -> None:
        if agent not in (None, *self.agents.names("agent_client")):
            raise NotFound(f"no agent {agent}; there are rig, other")
        if len(self.alive) >= self.most:
            raise Unavailable("too many clients are connected")
        handler = ScriptedAgent(self, agent)
        handler.peer = Peer(pipe, handler)
        self.alive.add(handler)
        try:
            await handler.peer.run()
        finally:
            self.alive.discard(handler)


@contextlib.asynccontextmanager
async def rig(
    converse: Callable[[Pipe, str | None], Awaitable[None]] | None = None,
    *,
    most: int = 1000,
    buffer: int = 1 << 24,
    stall: float = 60.0,
    back: float = 60.0,
    **options: Any,
) -> AsyncIterator[Rig]:
    """A server with these `inbound:` options, while the block lasts."""
    state = Rig()
    state.most = most
    gateway: Any = state
    state.server = HttpServer(AgentClientServe(**options), gateway, converse or state.converse, Authenticator(None))
    routes = [Route("/", state.server), Route("/{agent}", state.server)]
    with patch.multiple(http_connection, BUFFER_BYTES=buffer, STALL_SECONDS=stall, RETURN_SECONDS=back):
        async with serving(Starlette(routes=[Mount(MOUNT, routes=routes)])) as url:
            state.url = f"{url}{MOUNT}/"
            try:
                yield state
            finally:
                await closed(state.server)


async def closed(server: HttpServer) -> None:
    """End every connection, and wait until none is served any more."""
    server.quiet()
    await server._tasks.settled()


async def dropped(server: HttpServer, session: str | None = None) -> None:
    """Wait until the server has heard that nobody reads this stream of its only connection any more.

    What it writes before it has heard of that is lost.
    """
    (link,) = server._connections.all
    lane = link.main if session is None else link.sessions._sessions[session].lane
    await until(lambda: not lane.read)


class Stream:
    """An open GET. `comments` counts the comment lines, `closed` is set at its end."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.comments = 0
        self.chunks = 0
        self.closed = False
        self._lines = response.aiter_lines()

    async def next(self) -> Any:
        """The next message; None at the end of the stream."""
        async with asyncio.timeout(WITHIN):
            async for line in self._lines:
                if line.startswith(":"):
                    self.comments += 1
                elif line:
                    assert line.startswith("data: ") and line.isascii(), line
                    return msgspec.json.decode(line[6:])
        self.closed = True
        return None

    async def text(self) -> str:
        """What the next message, an update, says."""
        message = await self.next()
        return str(message["params"]["update"]["content"]["text"])


class Client:
    """A connection made by hand."""

    def __init__(self, http: httpx2.AsyncClient, url: str, connection: str) -> None:
        self.http = http
        self.url = url
        self.connection = connection
        self._id = 0

    async def post(self, message: dict[str, Any], session: str | None = None, **headers: str) -> httpx2.Response:
        sent = {CONNECTION: self.connection, **({SESSION: session} if session else {}), **headers}
        return await self.http.post(self.url, json={"jsonrpc": "2.0", **message}, headers=sent)

    async def ask(self, method: str, params: dict[str, Any], session: str | None = None) -> int:
        """POST a request; its id."""
        self._id += 1
        answer = await self.post({"id": self._id, "method": method, "params": params}, session)
        assert (answer.status_code, answer.content) == (202, b""), answer.text
        return self._id

    async def prompt(self, session: str, text: str) -> int:
        params = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
        return await self.ask("session/prompt", params, session)

    @contextlib.asynccontextmanager
    async def stream(self, session: str | None = None) -> AsyncIterator[Stream]:
        headers = {CONNECTION: self.connection, **({SESSION: session} if session else {}), **EVENTS}
        async with self.http.stream("GET", self.url, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            yield Stream(response)

    async def new(self, main: Stream, **params: Any) -> str:
        """Make a session; its id."""
        asked = await self.ask("session/new", {"cwd": "/", "mcpServers": [], **params})
        answer = await main.next()
        assert answer["id"] == asked
        return str(answer["result"]["sessionId"])


INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    """An initialized connection. It is not ended in good order."""
    async with httpx2.AsyncClient(timeout=WITHIN) as http:
        answer = await http.post(url, json=INITIALIZE)
        assert answer.status_code == 200, answer.text
        yield Client(http, url, answer.headers[CONNECTION])
