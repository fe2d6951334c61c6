"""Notifications about a run before its end: its text as it grows, and any other event as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_context.wire.constants import MESSAGE
from gateway.core import delta as deltas
from gateway.core import events as e
from gateway.core.types import Agent, JsonObject
from gateway.mcp.runs.tools import text_in, tool_progress
from gateway.mcp.server.contract import McpCall
from gateway.mcp.wire import META
from gateway.wire import jsonrpc

EVENT = "interlingua/event"
"""Key of an update's `_meta`: an event that text cannot express, in the form of gateway/core/events.py."""

_BESIDE = (
    e.ToolCallStarted,
    e.ToolCallUpdated,
    e.ToolCallEnded,
    e.PlanUpdated,
    e.ArtifactAdded,
    e.UsageReported,
    e.Custom,
    e.PartReplaced,
)


class RunNotifications:
    """Notifications about one run to one client: `notifications/progress` if it sent a token, and `agent/message` of
    type `update` if it declared that it speaks this protocol. New text is told once: the progress of who gets updates
    has no `message`.
    """

    def __init__(self, call: McpCall, agent: Agent, head: JsonObject, meta: JsonObject) -> None:
        """`head`: source and target of its messages; `meta`: their `_meta`."""
        self._version = call.client.version
        self._token = call.progress_token
        self._speaks = call.client.can("agent")
        self._head = head
        self._meta = meta
        self._steps = deltas.split(agent.text_output or "")
        self._kinds: dict[str, str] = {}

    @property
    def on(self) -> bool:
        """Whether anything is told at all."""
        return self._token is not None or self._speaks

    def feed(self, events: Iterable[tuple[int, e.Event]]) -> list[bytes]:
        """Whole notifications for these events: every one of the run, in order."""
        return list(self._told(events)) if self.on else []

    def _told(self, events: Iterable[tuple[int, e.Event]]) -> Iterator[bytes]:
        for number, event in events:
            text, beside = self._said(event)
            if text and self._token is not None:
                yield tool_progress(self._token, number, None if self._speaks else text, self._version)
            if self._speaks and (text or beside is not None):
                yield self._update(text, beside)

    def _said(self, event: e.Event) -> tuple[str, e.Event | None]:
        """The text that an event adds, and what is told of it besides."""
        if isinstance(event, e.PartStarted):
            self._kinds[event.part] = event.kind
            if event.value is None:
                return "", None
            if event.kind == "text" and isinstance(event.value, str):
                return event.value, None
            return "", event
        if isinstance(event, e.PartDelta):
            kind = self._kinds.get(event.part, "text")
            if kind == "text" and isinstance(event.delta, str):
                return event.delta, None
            text = text_in(event.delta, self._steps) if kind == "data" else ""
            return (text, None) if text else ("", event)
        return "", event if isinstance(event, _BESIDE) else None

    def _update(self, text: str, event: e.Event | None) -> bytes:
        payload: JsonObject = {"messages": [{"text": text}]} if text else {}
        meta = self._meta
        if event is not None:
            meta = {**meta, EVENT: Raw(e.encode(replace(event, origin=None)))}
        params = {**self._head, "content": {"type": "update", "payload": payload}, META: meta}
        return jsonrpc.notification(MESSAGE, params)
