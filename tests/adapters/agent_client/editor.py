"""A client that speaks raw JSON-RPC over one end of a pipe in memory.

Whatever the gateway says to it is checked against the protocol's schema: a message that is none fails the test.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from jsonschema import Draft202012Validator

from gateway.core.errors import AgentGone
from gateway.transport.pipe import Unreadable
from gateway.wire import jsonrpc

SCHEMA = json.loads((Path(__file__).parents[2] / "specs/agent-client/v1/schema.json").read_text(encoding="utf-8"))
WITHIN = 30.0
CAPABILITIES: dict[str, Any] = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
FORMS: dict[str, Any] = {**CAPABILITIES, "elicitation": {"form": {}}}

RESULTS = {
    "initialize": "InitializeResponse",
    "authenticate": "AuthenticateResponse",
    "logout": "LogoutResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/resume": "ResumeSessionResponse",
    "session/list": "ListSessionsResponse",
    "session/close": "CloseSessionResponse",
    "session/delete": "DeleteSessionResponse",
    "session/set_mode": "SetSessionModeResponse",
    "session/set_config_option": "SetSessionConfigOptionResponse",
    "session/prompt": "PromptResponse",
}
PARAMS = {
    "session/update": "SessionNotification",
    "session/request_permission": "RequestPermissionRequest",
    "elicitation/create": "CreateElicitationRequest",
    "$/cancel_request": "CancelRequestNotification",
}


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})


def check(name: str, value: Any) -> None:
    """AssertionError if it is no such thing of the schema."""
    mistakes = [f"/{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in _validator(name).iter_errors(value)]
    assert not mistakes, f"no {name}: {json.dumps(value)}: {mistakes}"


class Refused(Exception):
    """An error answer."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Editor:
    """Use as an async context manager; begins to read then, and closes its pipe (a `Pipe`) at the end.

    updates: of every `session/update`, in order.   asked: requests of the gateway's, as they are.
    told: other notifications.                      garbage: answers without an id.
    order: the method of everything that came, of answers too.
    reads: while this is not set it leaves what comes unread.
    lenient: whether what it is told may be none of the schema's (an agent of this protocol may say anything).
    """

    results: ClassVar[dict[str, str]] = RESULTS
    params: ClassVar[dict[str, str]] = PARAMS
    check = staticmethod(check)

    def __init__(self, pipe: Any, capabilities: dict[str, Any] | None = None) -> None:
        self.pipe = pipe
        self.capabilities = CAPABILITIES if capabilities is None else capabilities
        self.updates: list[dict[str, Any]] = []
        self.sessions: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []
        self.order: list[str] = []
        self.garbage: list[dict[str, Any]] = []
        self.ended = False
        self.lenient = False
        self.on_ask: Callable[[dict[str, Any]], Any] | None = None
        self.reads = asyncio.Event()
        self.reads.set()
        self._id = -1
        self._waiting: dict[Any, tuple[str, asyncio.Future[Any]]] = {}
        self._changed = asyncio.Event()
        self._broken: BaseException | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Editor:
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        assert self._reader is not None
        self._reader.cancel()
        await self.pipe.aclose()
        if kind is None and self._broken is not None:
            raise self._broken

    # --- what it says -----------------------------------------------------------------------------------------

    async def raw(self, data: bytes | str) -> None:
        """Send this as one message, whatever it is."""
        await self.pipe.send([data.encode() if isinstance(data, str) else data])

    async def begin(self, method: str, params: Any = None, *, id: Any = None) -> asyncio.Future[Any]:
        """Send a request; what is returned is its answer to come."""
        if id is None:
            self._id += 1
            id = self._id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[id] = (method, future)
        await self._say(
            {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}
        )
        return future

    async def request(self, method: str, params: Any = None, *, id: Any = None) -> Any:
        """The result. Raises Refused."""
        future = await self.begin(method, params, id=id)
        async with asyncio.timeout(WITHIN):
            return await future

    async def refused(self, method: str, params: Any = None) -> Refused:
        """The error that a request is answered with."""
        try:
            answer = await self.request(method, params)
        except Refused as error:
            return error
        raise AssertionError(f"{method} was answered {answer}")

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        await self._say({"jsonrpc": "2.0", "method": method, "params": params})

    async def answer(self, asked: dict[str, Any], result: Any) -> None:
        """Answer a request of the gateway's."""
        await self._say({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    async def choose(self, asked: dict[str, Any], option: str) -> None:
        """Answer a permission question."""
        await self.answer(asked, {"outcome": {"outcome": "selected", "optionId": option}})

    async def fail(self, asked: dict[str, Any], code: int, message: str = "no") -> None:
        """Answer with an error."""
        await self._say({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": code, "message": message}})

    async def _say(self, message: dict[str, Any]) -> None:
        await self.pipe.send([jsonrpc.encoded(message)])

    # --- what people do ---------------------------------------------------------------------------------------

    async def initialize(self, **params: Any) -> Any:
        """Shake hands."""
        return await self.request(
            "initialize", {"protocolVersion": 1, "clientCapabilities": self.capabilities, **params}
        )

    async def new(self, **params: Any) -> str:
        """A new session's id."""
        result = await self.request("session/new", {"cwd": "/work", "mcpServers": [], **params})
        return str(result["sessionId"])

    async def load(self, session: str, method: str = "session/load") -> Any:
        """Load a session; `updates` is what was replayed."""
        self.updates.clear()
        return await self.request(method, {"sessionId": session, "cwd": "/work", "mcpServers": []})

    async def prompt(self, session: str, text: str = "hello there") -> Any:
        """The answer of a prompt."""
        return await self.request("session/prompt", said(session, text))

    async def start(self, session: str, text: str = "hello there", *, id: Any = None) -> asyncio.Future[Any]:
        """A prompt whose answer is to come."""
        return await self.begin("session/prompt", said(session, text), id=id)

    # --- what it hears ----------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that came made it true."""
        async with asyncio.timeout(WITHIN):
            while not condition():
                if self._broken is not None:
                    raise self._broken
                self._changed.clear()
                await self._changed.wait()

    async def next_asked(self, number: int = 1) -> dict[str, Any]:
        """The request of the gateway's with that number, from 1."""
        await self.until(lambda: len(self.asked) >= number)
        return self.asked[number - 1]

    async def heard(self, text: str) -> None:
        """Wait until it was told this text."""
        await self.until(lambda: text in self.text())

    def text(self, kind: str = "agent_message_chunk") -> str:
        """All text of such chunks."""
        blocks = [update["content"] for update in self.updates if update["sessionUpdate"] == kind]
        return "".join(block["text"] for block in blocks if block["type"] == "text")

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The updates of one kind."""
        return [update for update in self.updates if update["sessionUpdate"] == kind]

    def kinds(self) -> list[str]:
        """The kinds of all updates."""
        return [update["sessionUpdate"] for update in self.updates]

    async def _read(self) -> None:
        try:
            while True:
                await self.reads.wait()
                messages = await self.pipe.receive()
                if not messages:
                    break
                for data in messages:
                    assert not isinstance(data, Unreadable)
                    self._take(msgspec.json.decode(data))
                self._changed.set()
        except (AgentGone, asyncio.CancelledError):
            pass
        except BaseException as error:
            self._broken = error
            for _, future in self._waiting.values():
                if not future.done():
                    future.set_exception(error)
            raise
        finally:
            self.ended = True
            self._changed.set()

    def _take(self, message: dict[str, Any]) -> None:
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            self.order.append(message["method"])
            name = self.params.get(message["method"])
            if name is not None and not self.lenient:
                self.check(name, message["params"])
            if "id" in message:
                self.asked.append(message)
                if self.on_ask is not None and (result := self.on_ask(message)) is not None:
                    self.pipe.inject(msgspec.json.encode({"jsonrpc": "2.0", "id": message["id"], "result": result}))
            elif message["method"] == "session/update":
                self.sessions.append(message["params"]["sessionId"])
                self.updates.append(message["params"]["update"])
            else:
                self.told.append(message)
            return
        if message["id"] is None:
            self.check("Error", message["error"])
            self.garbage.append(message["error"])
            return
        method, future = self._waiting.pop(message["id"])
        self.order.append(method)
        if future.done():
            return
        if "error" in message:
            self.check("Error", message["error"])
            future.set_exception(Refused(message["error"]))
        else:
            if method in self.results:
                self.check(self.results[method], message["result"])
            future.set_result(message["result"])


def said(session: str, text: str) -> dict[str, Any]:
    """Params of a prompt."""
    return {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
