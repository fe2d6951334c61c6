"""`session/update` to core events, as far as both versions say them alike: a decoder for each run.

Called by the outbound half with the `update` of each notification, in order. `origin` of the events is this codec's own
(see event_forms.py).
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.messages import RunMessages
from adapters.agent_client.codec.tools import ToolCalls
from adapters.agent_client.wire import PROTOCOL
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import AgentBroken
from gateway.core.types import JsonObject, ThreadUpdate
from gateway.wire import jsonrpc

OUTPUT: Final = "output"
"""Kind of a ThreadUpdate that is said content outside of a run."""


class _Text(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["text"]
    text: str


class Chunk(Struct, forbid_unknown_fields=True, gc=False):
    """Nearly every update: text, and not a key more. What is refused here is looked at again, slowly."""

    kind: Literal["agent_message_chunk", "agent_thought_chunk", "user_message_chunk"] = msgspec.field(
        name=event_forms.KEY
    )
    content: _Text
    message_id: str | UnsetType = msgspec.field(default=UNSET, name="messageId")


_chunk = msgspec.json.Decoder(Chunk).decode


class UpdateDecoder:
    """One run's updates. Events are for `RunContext.emit`, ThreadUpdates for `RunContext.note`, in the order given.

    Messages: chunks with the same `messageId` are one; without ids a message ends where another role speaks or a tool
    call starts. Files in messages are parts of kind `file` whose value is the block; `content.file_of(event.value)` of
    such a `PartStarted` gives the bytes, if there are any, for `add_artifact`.

    Tool calls: an id that is started again after it ended gets a number behind it ("call_1#2"). What core has no event
    for (an update of a call that has ended, an image as a thought) is a Custom named by the protocol.
    """

    __slots__ = ("_id", "_kind", "_messages", "_part", "_tools")

    def __init__(self) -> None:
        self._messages = RunMessages()
        self._tools = ToolCalls()
        # the chunk before this one: of what kind it was, with which id, and the part that it went to
        self._kind = ""
        self._id: str | UnsetType = UNSET
        self._part = ""

    def feed(self, update: Raw | bytes) -> list[e.Event | ThreadUpdate]:
        """Decode one update; empty where it says nothing.

        Raises AgentBroken for anything but an object with a `sessionUpdate`: report it and go on.
        """
        try:
            chunk = _chunk(update)
        except (ValueError, RecursionError):
            return self._slowly(update)
        delta = self.more(chunk)
        return self.begun(chunk) if delta is None else [delta]

    def more(self, chunk: Chunk) -> e.PartDelta | None:
        """Decode a chunk that continues the one before it; None if it begins something (`begun`)."""
        if chunk.kind == self._kind and chunk.message_id == self._id:
            return e.PartDelta(part=self._part, delta=chunk.content.text)
        return None

    def title(self, tool_call_id: str) -> str | None:
        """The agent's last title for an open tool call: for `questions.permission`."""
        return self._tools.title(tool_call_id)

    def close(self, *, failed: bool = False) -> list[e.Event]:
        """End the messages and tool calls that the agent left open. Call it before the terminal event.

        `failed` is whether those count as failed. Clients of this protocol are told of them as much as the agent said;
        without this call, say when the agent died, they are told that the calls failed.
        """
        return [*self._messages.close(), *self._tools.close(failed)]

    def begun(self, chunk: Chunk) -> list[e.Event | ThreadUpdate]:
        """Decode the first chunk after something else."""
        name = None if chunk.message_id is UNSET else chunk.message_id
        out: list[e.Event | ThreadUpdate] = [*self._messages.text(chunk.kind, name, chunk.content.text)]
        if self._messages.holding:
            self._kind = ""
        else:
            self._kind, self._id, self._part = chunk.kind, chunk.message_id, self._messages.part
        return out

    def _slowly(self, update: Raw | bytes) -> list[e.Event | ThreadUpdate]:
        """Decode an update that is not a plain chunk of text."""
        raise NotImplementedError


def own(said: JsonObject, name: str = PROTOCOL) -> e.Custom:
    """An update that core has no event for."""
    return e.Custom(name=name, data=delta.sound(said))


def read(update: Raw | bytes) -> JsonObject:
    """The update as an object. Its text may hold half characters, with which it cannot be stored."""
    try:
        said: Any = jsonrpc.unpack(update)
    except (ValueError, RecursionError) as error:
        raise AgentBroken("a session/update that cannot be read", detail=str(error)) from None
    if not isinstance(said, dict) or not isinstance(said.get(event_forms.KEY), str):
        raise AgentBroken("a session/update without a sessionUpdate")
    return said


def plan(said: JsonObject) -> list[e.Event] | None:
    """A `plan`; None if it is none."""
    entries = said.get("entries")
    if not isinstance(entries, list):
        return None
    found = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
            return None
        status, priority = entry.get("status"), entry.get("priority")
        found.append(
            e.PlanEntry(
                content=entry["content"],
                status=status if status in event_forms.PLAN_STATUSES else "pending",
                priority=priority if priority in event_forms.PRIORITIES else "medium",
            )
        )
    return event_forms.joined([e.PlanUpdated(entries=tuple(found))], said)
