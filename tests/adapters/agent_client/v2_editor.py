"""The client in memory, of version 2. What either side says is checked against that version's schema."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from jsonschema import Draft202012Validator

from adapters.agent_client.inbound.visitor import Visitor
from tests.adapters.agent_client.editor import Editor, said
from tests.adapters.agent_client.inbound_rig import Rig
from tests.support.pipes import LIMIT, pair

SCHEMA = json.loads((Path(__file__).parents[2] / "specs/agent-client/v2/schema.json").read_text(encoding="utf-8"))
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
METHODS = {
    "initialize": "Initialize",
    "auth/login": "LoginAuth",
    "auth/logout": "LogoutAuth",
    "session/new": "NewSession",
    "session/resume": "ResumeSession",
    "session/list": "ListSessions",
    "session/close": "CloseSession",
    "session/delete": "DeleteSession",
    "session/set_config_option": "SetSessionConfigOption",
    "session/prompt": "Prompt",
}
START = {"type": "start"}
RUNNING = {"sessionUpdate": "state_update", "state": "running"}
WAITING = {"sessionUpdate": "state_update", "state": "requires_action"}


def idle(reason: str | None = "end_turn") -> dict[str, Any]:
    """The update that says so."""
    update: dict[str, Any] = {"sessionUpdate": "state_update", "state": "idle"}
    return update if reason is None else {**update, "stopReason": reason}


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})


def check(name: str, value: Any) -> None:
    """AssertionError if it is no such thing of the schema."""
    mistakes = [f"/{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in _validator(name).iter_errors(value)]
    assert not mistakes, f"no {name}: {json.dumps(value)}: {mistakes}"


class EditorV2(Editor):
    """See `Editor`.

    free: whether what it asks may be none of the schema's.   take_batch: is told of arrays of answers.
    """

    results: ClassVar[dict[str, str]] = {method: f"{name}Response" for method, name in METHODS.items()}
    params: ClassVar[dict[str, str]] = {
        "session/update": "UpdateSessionNotification",
        "session/request_permission": "RequestPermissionRequest",
        "elicitation/create": "CreateElicitationRequest",
        "$/cancel_request": "CancelRequestNotification",
    }
    check = staticmethod(check)

    def __init__(self, pipe: Any, capabilities: dict[str, Any] | None = None) -> None:
        super().__init__(pipe, {} if capabilities is None else capabilities)
        self.free = False
        self.take_batch: Callable[[list[Any]], None] | None = None

    def _take(self, message: Any) -> None:
        if isinstance(message, list) and self.take_batch is not None:
            self.take_batch(message)
        else:
            super()._take(message)

    async def _say(self, message: dict[str, Any]) -> None:
        name = METHODS.get(message.get("method", ""))
        if name is not None and not self.free:
            check(f"{name}Request", message.get("params"))
        await super()._say(message)

    async def initialize(self, **params: Any) -> Any:
        """Shake hands."""
        info = {"name": "editor", "version": "1"}
        return await self.request(
            "initialize", {"protocolVersion": 2, "info": info, "capabilities": self.capabilities, **params}
        )

    async def load(self, session: str, method: str = "session/resume") -> Any:
        """Resume a session from its start; `updates` is what was replayed."""
        return await self.resume(session, replayFrom=START)

    async def resume(self, session: str, **params: Any) -> Any:
        """Resume a session."""
        self.updates.clear()
        return await self.request("session/resume", {"sessionId": session, "cwd": "/work", **params})

    async def turn(self, session: str, text: str = "hello there") -> dict[str, Any]:
        """A prompt and what came of it: the state that it ended in."""
        seen = len(self.updates)
        await self.request("session/prompt", said(session, text))
        return await self.over(seen)

    async def over(self, seen: int = 0) -> dict[str, Any]:
        """The idle state that was told after the first `seen` updates."""

        def found() -> list[dict[str, Any]]:
            return [one for one in self.updates[seen:] if one.get("state") == "idle"]

        await self.until(lambda: bool(found()))
        return found()[-1]

    def states(self) -> list[str]:
        """All states that it was told."""
        return [update["state"] for update in self.of("state_update")]

    def messages(self, kind: str = "agent_message") -> dict[str, str]:
        """The texts of the messages of a kind, by id, as they stand after all updates."""
        found: dict[str, str] = {}
        for update in self.updates:
            name = str(update.get("messageId"))
            if update["sessionUpdate"] == kind and "content" in update:
                found[name] = "".join(block["text"] for block in update["content"] or [])
            elif update["sessionUpdate"] == f"{kind}_chunk":
                found[name] = found.get(name, "") + update["content"]["text"]
        return found

    def heard_all(self, kind: str = "agent_message") -> str:
        """The same as one text."""
        return "".join(self.messages(kind).values())

    async def heard(self, text: str) -> None:
        """Wait until it was told this text."""
        await self.until(lambda: text in self.heard_all())


async def connect(
    gateway: Rig,
    agent: str | None = "scripted",
    *,
    capabilities: dict[str, Any] | None = None,
    limit: int = LIMIT,
    visitor: Visitor | None = None,
    **params: Any,
) -> EditorV2:
    """A client that has agreed on version 2."""
    editor = await raw(gateway, agent, capabilities=capabilities, limit=limit, visitor=visitor)
    assert (await editor.initialize(**params))["protocolVersion"] == 2
    return editor


async def opened(gateway: Rig, agent: str | None = "scripted", **how: Any) -> tuple[EditorV2, str]:
    """A client that has agreed on version 2, and its new session."""
    editor = await connect(gateway, agent, **how)
    return editor, await editor.new()


async def raw(
    gateway: Rig,
    agent: str | None = "scripted",
    *,
    capabilities: dict[str, Any] | None = None,
    limit: int = LIMIT,
    visitor: Visitor | None = None,
) -> EditorV2:
    """A client that has said nothing yet."""
    ours, theirs = pair(limit)
    editor = EditorV2(ours, capabilities)
    await gateway.enter(editor)
    gateway.serve(theirs, agent, visitor)
    return editor
