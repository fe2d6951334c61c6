"""A run in the words of `agents/run`; those of `tools/call` are `gateway.mcp.runs.ToolRendering`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from adapters.agent_communication.codec import agents as codec
from adapters.agent_communication.codec import results
from adapters.agent_communication.codec.deltas_out import DeltaEncoder, progress
from gateway.contract import Snapshot
from gateway.core import events as e
from gateway.core.types import Agent, Interrupt, JsonObject, Run
from gateway.mcp.runs import Events, questions
from gateway.mcp.server.contract import Call


class AgentWords:
    """Deltas, and the output."""

    def __init__(self, call: Call, agent: Agent) -> None:
        self._agent = agent
        self._token = call.progress_token
        self._encoder = DeltaEncoder(agent)

    @property
    def tells(self) -> bool:
        return self._token is not None

    @property
    def losses(self) -> Counter[str]:
        return self._encoder.losses

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        return self._told(self._encoder.feed(events, snapshot)) if self._token is not None else []

    def last(self, run: Run) -> list[bytes]:
        return self._told(self._encoder.finish(run)) if self._token is not None else []

    async def result(self, run: Run, end: e.Event | None) -> JsonObject:
        return results.run_result(self._agent, run, end)

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> Any:
        published = None if output == b"null" else codec.output_of(self._agent, output)
        raise questions.interrupted_error(run, interrupt, published)

    def _told(self, deltas: list[bytes]) -> list[bytes]:
        assert self._token is not None
        return [progress(self._token, delta) for delta in deltas]
