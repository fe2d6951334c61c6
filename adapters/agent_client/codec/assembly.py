"""Events put together to the updates that they stand for (see plain.py): of both versions of the protocol."""

from __future__ import annotations

from typing import Final

from adapters.agent_client.codec import plain
from gateway.core import events as e
from gateway.core.types import JsonObject

_CALLS: Final = (e.ToolCallStarted, e.ToolCallUpdated, e.ToolCallEnded)


class Assembly:
    """One run's. `foreign`: the agent speaks another protocol, and says nothing of what its clients are to be shown."""

    def __init__(self, *, foreign: bool) -> None:
        self._foreign = foreign
        self._held: JsonObject | None = None  # an update that the next event goes on with
        self._shown: set[str] = set()  # tool calls with content

    def add(self, event: e.Event, mine: JsonObject | None) -> JsonObject | None:
        """The update that is whole with this event, if one is; `mine` is what the agent said beyond it."""
        said = plain.form(event)
        if said is None or (mine is not None and mine.get("silent")):
            return None
        if self._foreign and isinstance(event, _CALLS):
            said = self._with_content(event, said)
        if self._held is not None:
            said = plain.merged(self._held, said)
        self._held = None
        if mine is not None:
            if mine.get("next"):
                self._held = said
                return None
            said = plain.restored(said, mine)
        return said

    def _with_content(self, event: e.Event, said: JsonObject) -> JsonObject:
        """A tool's result where clients look for it, if it is text and nothing else was shown."""
        call = said["toolCallId"]
        if said.get("content"):
            self._shown.add(call)
        elif isinstance(event, e.ToolCallEnded) and isinstance(event.output, str) and call not in self._shown:
            return {**said, "content": plain.tool_content(event.output)}
        return said
