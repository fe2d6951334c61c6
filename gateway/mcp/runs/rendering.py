"""A run in the words of who called it. Here: those of a tool (`tools/call`); an adapter brings its own besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Protocol

from gateway.contract import Snapshot
from gateway.core import events as e
from gateway.core.types import Agent, Interrupt, JsonObject, Run
from gateway.mcp.runs.client_runs import ClientRuns
from gateway.mcp.runs.refusals import Refusals
from gateway.mcp.runs.tools import ToolProgress, Tools
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


class ToolRendering:
    """Renders a run for a model, as the result of a tool."""

    def __init__(self, runs: ClientRuns, call: McpCall, agent: Agent, tools: Tools | None = None) -> None:
        self._runs = runs
        self._agent = agent
        self._version = call.client.version
        self._tools = runs.tools if tools is None else tools
        token = call.progress_token
        self._refusals = Refusals()
        self._progress = None if token is None else ToolProgress(agent, self._version, token)

    @property
    def tells(self) -> bool:
        return self._progress is not None

    @property
    def losses(self) -> Counter[str]:
        return _NONE  # the result has it all

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        self._refusals.feed(events)
        return [] if self._progress is None else self._progress.feed(events)

    def last(self, run: Run) -> list[bytes]:
        return []

    async def result(self, run: Run, end: e.Event | None) -> JsonObject:
        artifacts = await self._runs.gateway.files.list(run=run.id)
        return self._refusals.told(self._tools.result(self._agent, run, self._version, artifacts))

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> JsonObject:
        return self._tools.interrupted(self._agent, run, interrupt, output)
