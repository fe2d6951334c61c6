"""Events of an agent's updates: growing text, and beside it another gateway's events and a response's files."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from adapters.agent_context.outbound.message_heads import EVENT
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import JsonObject, Role

FILES: Final = "files"
"""The message that files belong to."""
_ALONE: Final = (e.PlanUpdated, e.UsageReported, e.Custom)


class SideEvents:
    """Reads the events beside the text of one run. Output is left out: it comes as text, and whole in the response."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._files: set[str] = set()
        self._tools: dict[str, bool] = {}  # whether they are open

    def read(self, meta: JsonObject) -> list[e.Event]:
        """The events of an update; none where it carries none that is taken."""
        if EVENT not in meta:
            return []
        try:
            event: e.Event = msgspec.convert(delta.sound(meta[EVENT]), e.AnyEvent)
        except (msgspec.ValidationError, RecursionError):
            return []
        event = msgspec.structs.replace(event, origin=None)
        match event:
            case e.PartStarted() if event.kind in ("thought", "file") and event.part not in self._kinds:
                self._kinds[event.part] = event.kind
                return [msgspec.structs.replace(event, part=f"their-{event.part}")]
            case e.PartDelta() if isinstance(event.delta, str):
                return self._thought(event)
            case e.ArtifactAdded():
                artifact = event.artifact
                return self._file(artifact.url, artifact.name, artifact.media_type, artifact.size)
            case e.ToolCallStarted() | e.ToolCallUpdated() | e.ToolCallEnded() if self._takes(event):
                return [event]
            case _ if isinstance(event, _ALONE):
                return [event]
        return []

    def _takes(self, event: e.ToolCallStarted | e.ToolCallUpdated | e.ToolCallEnded) -> bool:
        """Whether it may follow what was told of the same call."""
        known = self._tools.get(event.call)
        if known is not (None if isinstance(event, e.ToolCallStarted) else True):
            return False
        self._tools[event.call] = not isinstance(event, e.ToolCallEnded)
        return True

    def files(self, artifacts: Any) -> list[e.Event]:
        """Those that a payload names, `[{"name", "url", "mimeType"?, "size"?}]`, and that were not told before."""
        events: list[e.Event] = []
        for each in artifacts if isinstance(artifacts, list) else ():
            if isinstance(each, dict) and isinstance(each.get("url"), str):
                events += self._file(each["url"], each.get("name"), each.get("mimeType"), each.get("size"))
        return events

    def _thought(self, event: e.PartDelta) -> list[e.Event]:
        """Text outside the output: a gateway tells that as the text of its updates."""
        part = f"their-{event.part}"
        begin: list[e.Event] = []
        if self._kinds.setdefault(event.part, "") == "":
            self._kinds[event.part] = "thought"
            begin = [e.MessageStarted(message=f"{part}-message", role=Role.ASSISTANT)]
            begin.append(e.PartStarted(part=part, message=f"{part}-message", kind="thought"))
        if self._kinds[event.part] != "thought":
            return []
        return [*begin, e.PartDelta(part=part, delta=event.delta)]

    def _file(self, url: str, name: Any, kind: Any, size: Any) -> list[e.Event]:
        if url in self._files:
            return []
        self._files.add(url)
        named = name if isinstance(name, str) and name else url.rstrip("/").rpartition("/")[2]
        link: JsonObject = {"type": "resource_link", "uri": url, "name": named}
        if isinstance(kind, str):
            link["mimeType"] = kind
        if isinstance(size, int):
            link["size"] = size
        return [e.PartStarted(part=f"file-{len(self._files)}", message=FILES, kind="file", value=link)]


# --- text that grows -------------------------------------------------------------------------------------------------


class GrowingText:
    """The text of one part. Repeated text is held back until it grows further or differs."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._said: list[str] = []
        self._before: str | None = None

    def add(self, text: str) -> list[e.Event]:
        """More of it."""
        self._said.append(text)
        if self._before is None:
            return [e.PartDelta(part=self._part, delta=text)]
        now, before = "".join(self._said), self._before
        if before.startswith(now):
            return []
        self._before = None
        if now.startswith(before):
            return [e.PartDelta(part=self._part, delta=now[len(before) :])]
        return [e.PartReplaced(part=self._part, value=now)]

    def again(self) -> None:
        """From now on it is said again from the start."""
        said = "".join(self._said)
        self._before = max(said, self._before or "", key=len) or None
        self._said = []
