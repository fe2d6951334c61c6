"""A run in the words of who called it: as an agent's (`agents/run`), or as a tool's (`tools/call`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from adapters.agent_communication.codec import agents as codec
from adapters.agent_communication.codec import questions, results, tools
from adapters.agent_communication.codec.deltas_out import DeltaEncoder, progress
from adapters.agent_communication.inbound.house import House
from gateway.adapter import Snapshot
from gateway.core import events as e
from gateway.core.types import Agent, Interrupt, JsonObject, Run
from gateway.mcp.server.contract import Call

Events = Sequence[tuple[int, e.Event]]


class Words(Protocol):
    """How a run is told."""

    @property
    def tells(self) -> bool:
        """Whether anything is told before the end."""

    @property
    def losses(self) -> Counter[str]:
        """What could not be said so far, by name."""

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        """Whole notifications for these events: every one of the run, in order."""

    def last(self, run: Run) -> list[bytes]:
        """The same for what was held back until the end."""

    async def result(self, run: Run, end: e.Event | None) -> Any:
        """The answer for a run that has ended, or the error that is it. `end` is its last event, where it was seen."""

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> Any:
        """The answer that carries a question, or the error that does; `output` is the document so far."""


class AgentWords:
    """Deltas, and the output."""

    def __init__(self, call: Call, agent: Agent) -> None:
        self._agent = agent
        self._token = call.progress_token
        self._encoder = DeltaEncoder(agent)

    @property
    def tells(self) -> bool:
        """See `Words`."""
        return self._token is not None

    @property
    def losses(self) -> Counter[str]:
        """See `Words`."""
        return self._encoder.losses

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        """See `Words`."""
        return self._told(self._encoder.feed(events, snapshot)) if self._token is not None else []

    def last(self, run: Run) -> list[bytes]:
        """See `Words`."""
        return self._told(self._encoder.finish(run)) if self._token is not None else []

    async def result(self, run: Run, end: e.Event | None) -> JsonObject:
        """See `Words`."""
        return results.run_result(self._agent, run, end)

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> Any:
        """See `Words`."""
        published = None if output == b"null" else codec.output_of(self._agent, output)
        raise questions.interrupted_error(run, interrupt, published)

    def _told(self, deltas: list[bytes]) -> list[bytes]:
        assert self._token is not None
        return [progress(self._token, delta) for delta in deltas]


class ToolWords:
    """What a model reads."""

    def __init__(self, house: House, call: Call, agent: Agent) -> None:
        self._house = house
        self._agent = agent
        self._version = call.client.version
        token = call.progress_token
        self._progress = None if token is None else tools.ToolProgress(agent, self._version, token)

    @property
    def tells(self) -> bool:
        """See `Words`."""
        return self._progress is not None

    @property
    def losses(self) -> Counter[str]:
        """See `Words`."""
        return Counter() if self._progress is None else self._progress.losses

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        """See `Words`."""
        return [] if self._progress is None else self._progress.feed(events)

    def last(self, run: Run) -> list[bytes]:
        """See `Words`."""
        return []

    async def result(self, run: Run, end: e.Event | None) -> JsonObject:
        """See `Words`."""
        artifacts = await self._house.gateway.artifacts(run=run.id)
        return tools.tool_result(self._agent, run, self._version, artifacts)

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> JsonObject:
        """See `Words`."""
        return tools.interrupted_result(self._agent, run, interrupt, output)
