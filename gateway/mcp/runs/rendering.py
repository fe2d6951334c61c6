"""A run in the words of who called it. Here: those of a tool (`tools/call`); an adapter brings its own besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from gateway.contract import Snapshot
from gateway.core import choices
from gateway.core import events as e
from gateway.core.types import Agent, Answer, Artifact, Interrupt, JsonObject, Outcome, Run
from gateway.mcp.runs.client_runs import ClientRuns
from gateway.mcp.runs.tools import ToolProgress
from gateway.mcp.server.contract import McpCall

Events = Sequence[tuple[int, e.Event]]
_NONE: Final[Counter[str]] = Counter()


class Rendering(Protocol):
    """How a run is told. Made for one call; called by `RunFollower` alone, in the order of the run."""

    @property
    def tells(self) -> bool:
        """Whether anything is told before the end. Does not change."""

    @property
    def losses(self) -> Counter[str]:
        """Losses so far, by name."""

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        """Whole JSON-RPC notifications for these events: every one of the run, in order.

        Tokens may come joined. `snapshot` is the document after the last of them, where it is known.
        """

    def last(self, run: Run) -> list[bytes]:
        """The same for what was held back until the end."""

    async def result(self, run: Run, end: e.Event | None) -> Any:
        """The answer for a run that has ended, or the error that is it. `end` is its last event, where it was seen."""

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> Any:
        """The answer that carries a question, or the error that does; `output` is the document so far (JSON)."""


class Refusals:
    """The questions of a run that were not granted, for the model that reads the result of its tool call. Fed every
    event of the run, in order.
    """

    def __init__(self) -> None:
        self._open: dict[str, Interrupt] = {}
        self._said: dict[str, None] = {}

    def feed(self, events: Iterable[tuple[int, e.Event]]) -> None:
        """Note the questions, and what became of them."""
        for _, event in events:
            if type(event) is e.Interrupted:
                self._open[event.interrupt.id] = event.interrupt
            elif type(event) is e.Resumed:
                asked = self._open.pop(event.interrupt, None)
                if asked is not None and (said := _refusal(asked, event.answer)) is not None:
                    self._said[said] = None

    def told(self, result: JsonObject) -> JsonObject:
        """The result of a tool with a text that says what was refused; as it was if nothing was."""
        if not self._said:
            return result
        return {**result, "content": [*result["content"], {"type": "text", "text": "\n".join(self._said)}]}


def _refusal(asked: Interrupt, answer: Answer) -> str | None:
    """One line about an answer that refuses; None for any other."""
    question = asked.message or f"The agent asks: {asked.kind}"
    if answer.outcome is not Outcome.ANSWERED:
        return f'"{question}" was {answer.outcome.value}.'
    found = choices.offered(asked.answer_schema)
    if found is None:
        return None
    value = answer.value.get(found[1]) if found[1] is not None and isinstance(answer.value, dict) else answer.value
    chosen = next((choice for choice in found[0] if choice.value == value), None)
    return f'"{question}" was answered "{chosen.label}".' if chosen is not None and chosen.refuses else None


class ToolRendering:
    """Renders a run for a model, as the result of a tool."""

    def __init__(self, runs: ClientRuns, call: McpCall, agent: Agent) -> None:
        self._agent = agent
        self._version = call.client.version
        self._tools = runs.tools
        token = call.progress_token
        self._refusals = Refusals()
        self._made: list[Artifact] = []
        self._progress = None if token is None else ToolProgress(agent, self._version, token)

    @property
    def tells(self) -> bool:
        return self._progress is not None

    @property
    def losses(self) -> Counter[str]:
        return _NONE  # the result has it all

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        self._refusals.feed(events)
        for _, event in events:
            if type(event) is e.ArtifactAdded:
                self._made.append(event.artifact)
        return [] if self._progress is None else self._progress.feed(events)

    def last(self, run: Run) -> list[bytes]:
        return []

    async def result(self, run: Run, end: e.Event | None) -> JsonObject:
        return self._refusals.told(self._tools.result(self._agent, run, self._version, self._made))

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> JsonObject:
        return self._tools.interrupted(self._agent, run, interrupt, output)
