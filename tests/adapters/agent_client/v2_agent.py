"""An agent of version 2 in the test's own process: `outbound_agent.Rig` with other words."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from adapters.agent_client.codec.event_forms import beyond
from adapters.agent_client.wire import ORIGIN_V2
from gateway.core import events as e
from gateway.core.types import JsonObject
from tests.adapters.agent_client.outbound_agent import Rig, Wire
from tests.support.context import FakeContext

INITIALIZED: JsonObject = {
    "protocolVersion": 2,
    "info": {"name": "wire", "version": "2"},
    "capabilities": {"session": {"prompt": {"image": {}}, "delete": {}}},
}


class Agent:
    """What an agent says of one session, in the order in which it is called."""

    def __init__(self, wire: Wire, session: str = "s1") -> None:
        self.wire = wire
        self.session = session

    def update(self, kind: str, /, **fields: Any) -> None:
        """Any update."""
        self.wire.update(self.session, kind, **fields)

    def state(self, state: str, **fields: Any) -> None:
        """`running`, `requires_action`, or `idle` with what stands beside it."""
        self.update("state_update", state=state, **fields)

    def idle(self, reason: str | None = "end_turn", **fields: Any) -> None:
        """The next prompt may come."""
        self.state("idle", **({"stopReason": reason} if reason is not None else {}), **fields)

    def user(self, message: str = "u1") -> None:
        """The user's message is in the conversation."""
        self.update("user_message", messageId=message, content=[{"type": "text", "text": "hello"}])

    def say(self, text: str, message: str = "m1") -> None:
        """A piece of an answer."""
        self.update("agent_message_chunk", messageId=message, content={"type": "text", "text": text})

    def accept(self, prompt: JsonObject, **result: Any) -> None:
        """Acknowledge a prompt."""
        self.wire.say({"id": prompt["id"], "result": result})

    def refuse(self, prompt: JsonObject, code: int = -32602, message: str = "not this one") -> None:
        """Answer it with an error."""
        self.wire.say({"id": prompt["id"], "error": {"code": code, "message": message}})

    async def turn(self, *texts: str, reason: str = "end_turn") -> JsonObject:
        """All of the next prompt's work, as the protocol has it; the prompt."""
        prompt = await self.wire.prompt()
        self.accept(prompt, messageId=f"u{prompt['id']}")
        self.user(f"u{prompt['id']}")
        self.state("running")
        for text in texts:
            self.say(text, f"m{prompt['id']}")
        self.idle(reason)
        return prompt


def spare(context: FakeContext) -> list[Any]:
    """What the agent said that was not for the run: while it waited for its prompt to be taken, then after it."""
    asides = [event for event in context.said(e.Custom) if (beyond(event, ORIGIN_V2) or {}).get("aside")]
    return [*(event.data for event in asides), *(note.data for note in context.notes if note.kind == "output")]


@contextlib.asynccontextmanager
async def rig(**target: Any) -> AsyncIterator[Rig]:
    """A rig that asks for version 2 and gets it; closed in the end."""
    made = Rig(v2=True, **target)
    made.initialized = INITIALIZED
    try:
        yield made
    finally:
        await made.outbound.aclose()
