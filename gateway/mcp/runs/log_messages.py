"""Log messages of a run beside its answer: `notifications/message`, from the level that the client asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.errors import Denied
from gateway.core.types import Run
from gateway.mcp.server.contract import McpCall
from gateway.mcp.wire import MESSAGE

DEBUG: Final = "debug"
INFO: Final = "info"
WARNING: Final = "warning"
ERROR: Final = "error"

_LEVEL_OF: Final[Mapping[type[e.Event], str]] = {
    e.ToolCallStarted: INFO,
    e.ToolCallUpdated: DEBUG,
    e.ToolCallEnded: INFO,
    e.PlanUpdated: INFO,
    e.UsageReported: DEBUG,
    e.Custom: DEBUG,
}
"""Events that no output can say. Thoughts are told apart by their part; the rest is output, or asked, or the end."""


class _Leveled(msgspec.Struct):
    level: str = INFO


def heard(call: McpCall, params: Raw) -> bool:
    """`McpCall.wants` of a message that the agent made."""
    try:
        return call.wants(msgspec.json.decode(params, type=_Leveled).level)
    except (ValueError, RecursionError):
        return False


class Log:
    """The messages about one run to one call's client."""

    def __init__(self, call: McpCall, run: Run) -> None:
        self._call = call
        self._run = run
        self._thoughts: set[str] = set()
        self.on = call.wants(INFO)
        """Whether anything is told of what happens on the way."""

    def feed(self, events: Iterable[tuple[int, e.Event]]) -> None:
        """Tell what of these is told; every event of the run, in order, if it is on. Tokens of thoughts should come
        joined.
        """
        for _, event in events:
            if isinstance(event, e.PartStarted) and event.kind == "thought":
                self._thoughts.add(event.part)
            level = _LEVEL_OF.get(type(event))
            if isinstance(event, e.PartDelta | e.PartReplaced) and event.part in self._thoughts:
                level = DEBUG
            if level is not None and self._call.wants(level):
                self._say(level, {"event": Raw(e.encode(replace(event, origin=None)))})

    def lost(self, what: Mapping[str, int]) -> None:
        """Something could not be said: how often, by name."""
        if what and self._call.wants(WARNING):
            self._say(WARNING, {"lost": dict(what)})

    def failed(self, run: Run) -> None:
        """The run has ended, and not well."""
        if self._call.wants(ERROR):
            said = {"status": run.status.value}
            if run.failure is not None:
                said |= {"code": run.failure.code, "message": run.failure.message}
            self._say(ERROR, {"failure": said})

    def refused(self, interrupt: str, error: Denied) -> None:
        """Tell that the client's answer to a question is denied; the question stays open for others."""
        if self._call.wants(WARNING):
            self._say(WARNING, {"refused": {"interrupt": interrupt, "code": error.code, "message": str(error)}})

    def _say(self, level: str, data: dict[str, Any]) -> None:
        self._call.notify(MESSAGE, {"level": level, "logger": self._run.agent, "data": {"run": self._run.id, **data}})
