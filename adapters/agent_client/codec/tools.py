"""Tool calls: which call of the run an update is about, and what it says in core's words."""

from __future__ import annotations

from adapters.agent_client.codec import event_forms
from adapters.agent_client.wire import AIP44, meta_of
from gateway.core import events as e
from gateway.core.types import JsonObject


def profile(said: JsonObject) -> JsonObject:
    """The members under `_meta.aip44` of a tool call."""
    return meta_of(said, AIP44)


def is_question(said: JsonObject) -> bool:
    """Whether it is no tool call, but stands for a question that a gateway asks (see questions.py)."""
    return profile(said).get("question") is True


def named(said: JsonObject) -> str:
    """The tool that a tool call is of: its `name`, else what the AIP-44 profile says, else its title, else its id."""
    for name in (said.get("name"), profile(said).get("tool"), said.get("title"), said.get("toolCallId")):
        if isinstance(name, str) and name:
            return name
    return ""


def server_of(said: JsonObject) -> str | None:
    """The MCP server whose tool it is, as far as the AIP-44 profile says."""
    server = profile(said).get("server")
    return server if isinstance(server, str) and server else None


class ToolCalls:
    """The tool calls of one run. What they return is None where core has no event for it.

    Agents reuse ids within a run: an id that is started again after it ended is a new call. They also start a call
    that is running already, update one that never started, and one that has ended.
    """

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        self._names: set[str] = set()
        self._ended: set[str] = set()
        self._titles: dict[str, str] = {}

    def call(self, said: JsonObject) -> list[e.Event] | None:
        id = said.get("toolCallId")
        if not isinstance(id, str):
            return None
        if id in self._open:
            return event_forms.joined(self._going_on(id, said), said)
        return self._start(id, said)

    def update(self, said: JsonObject) -> list[e.Event] | None:
        id = said.get("toolCallId")
        if not isinstance(id, str) or (id in self._ended and id not in self._open):
            return None
        if id not in self._open:
            return self._start(id, said)
        return event_forms.joined(self._going_on(id, said), said)

    def title(self, id: str) -> str | None:
        """The last title of an open call."""
        return self._titles.get(self._open.get(id, ""))

    def close(self, failed: bool) -> list[e.Event]:
        """The end of the run, of which the agent says nothing call by call."""
        if not self._open:
            return []
        left, self._open = list(self._open.values()), {}
        return [e.ToolCallEnded(call=name, failed=failed, origin=event_forms.SILENT) for name in left]

    def _start(self, id: str, said: JsonObject) -> list[e.Event]:
        name, count = id, 1
        while name in self._names:
            count += 1
            name = f"{id}#{count}"
        self._names.add(name)
        self._open[id] = name
        title, kind = said.get("title"), said.get("kind")
        title = title if isinstance(title, str) and title else id
        self._titles[name] = title
        started = e.ToolCallStarted(
            call=name,
            name=named(said),
            title=title,
            kind=kind if isinstance(kind, str) else "other",
            input=said.get("rawInput"),
        )
        more = said.get("content") or said.get("rawOutput") is not None or said.get("status") in event_forms.FINAL
        following = self._going_on(id, {**said, "title": None}) if more else []
        return event_forms.joined([started, *following], said)

    def _going_on(self, id: str, said: JsonObject) -> list[e.Event]:
        """The events of an update to an open call."""
        name = self._open[id]
        status, title, content = said.get("status"), said.get("title"), said.get("content")
        final = status in event_forms.FINAL
        if isinstance(title, str):
            self._titles[name] = title
        updated = e.ToolCallUpdated(
            call=name,
            status=status if isinstance(status, str) and not final else None,
            title=title if isinstance(title, str) else None,
            content=content if isinstance(content, list) and content else None,
        )
        if not final:
            return [updated]
        del self._open[id]
        self._titles.pop(name, None)
        self._ended.add(id)
        ended = e.ToolCallEnded(call=name, failed=status == "failed", output=said.get("rawOutput"))
        return [updated, ended] if updated.title is not None or updated.content is not None else [ended]
