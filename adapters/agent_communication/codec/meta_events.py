"""Events that are not output (tool calls, plans, thoughts), as another Interlingua puts them in `_meta`, read back.

deltas_out.py writes them. Only what says nothing of the output, of questions or of the run's end is taken; of parts
only those it has started.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Artifact, Role

FILES: Final = "files"
"""The message that files belong to."""
_ALONE: Final = (
    e.ToolCallStarted,
    e.ToolCallUpdated,
    e.ToolCallEnded,
    e.PlanUpdated,
    e.UsageReported,
    e.Custom,
)


class MetaEvents:
    """Of one run. `output` is the part that has the output, of which nothing is taken."""

    def __init__(self, output: str) -> None:
        self._messages: set[str] = set()  # not the agent's
        self._kinds: dict[str, str] = {output: ""}  # of parts

    def read(self, told: Any) -> e.Event | None:
        """The event; None if it is none that is taken. A file is where the other gateway has it."""
        try:
            event: e.Event = msgspec.convert(delta.sound(told), e.AnyEvent)
        except (msgspec.ValidationError, RecursionError):
            return None
        event = msgspec.structs.replace(event, origin=None)
        match event:
            case e.MessageStarted() if event.role is not Role.ASSISTANT:
                self._messages.add(event.message)
            case e.PartStarted() if event.part not in self._kinds and self._is_beside(event):
                self._kinds[event.part] = event.kind
            case e.PartDelta() | e.PartReplaced() if self._kinds.get(event.part) in ("text", "thought"):
                value = event.delta if isinstance(event, e.PartDelta) else event.value
                return event if isinstance(value, str) else None
            case e.PartDelta() | e.PartReplaced() if self._kinds.get(event.part) in ("data", "file"):
                pass
            case e.ArtifactAdded():
                return _file(event.artifact)
            case _ if not isinstance(event, _ALONE):
                return None
        return event

    def _is_beside(self, event: e.PartStarted) -> bool:
        return event.kind in ("thought", "file") or event.message in self._messages


def _file(artifact: Artifact) -> e.PartStarted:
    link = {
        "type": "resource_link",
        "uri": artifact.url,
        "name": artifact.name,
        "mimeType": artifact.media_type,
        "size": artifact.size,
    }
    return e.PartStarted(part=f"file-{artifact.id}", message=FILES, kind="file", value=link)
