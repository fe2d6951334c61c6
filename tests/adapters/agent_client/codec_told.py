"""What a client is told of a run, from its first event to its end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from adapters.agent_client import ADAPTER
from adapters.agent_client.codec.updates_out_v1 import V1UpdateEncoder
from gateway.core import events as e
from gateway.core.output import Output
from gateway.core.stream import Opener
from gateway.core.types import Agent, Json, Run, RunRequest, RunStatus
from tests.adapters.agent_client.codec_cases import FOREIGN, text_of, valid


class Told:
    """What a client was told of a run, from its first event to its end."""

    def __init__(
        self, events: Sequence[e.Event], agent: Agent | None = FOREIGN, size: int = 2, output: Json = None
    ) -> None:
        opener, self.output = Opener(), Output(agent or FOREIGN)
        end = e.RunFinished(
            output=msgspec.Raw(msgspec.json.encode(output)) if output is not None else msgspec.Raw(b"null")
        )
        over = bool(events) and isinstance(events[-1], e.TERMINAL)
        legal = opener.feed(events if over else [*events, end])
        encoder = V1UpdateEncoder(agent)
        self.updates: list[Any] = []
        numbered = list(enumerate(legal, 1))
        for at in range(0, len(numbered), size):
            batch = numbered[at : at + size]
            for _, event in batch:
                self.output.apply(event)
            self._take(encoder.feed(batch, self.output))
        ended = legal[-1]
        status = RunStatus.SUCCESS if isinstance(ended, e.RunFinished) else RunStatus.ERROR
        self.run = run(status=status, output=msgspec.Raw(self.output.encoded))
        self._take(encoder.finish(self.run))
        assert encoder.finish(self.run) == []
        assert encoder.end is ended
        self.losses = dict(encoder.losses)
        self.encoder = encoder
        assert self.losses.keys() <= ADAPTER.losses.keys()

    def _take(self, updates: list[bytes]) -> None:
        for update in updates:
            assert b"\n" not in update
            self.updates.append(valid("SessionUpdate", json.loads(update)))

    @property
    def text(self) -> str:
        return text_of(self.updates)

    @property
    def corrected(self) -> str | None:
        """The message that corrects the ones before it."""
        found = [update for update in self.updates if "messageId" in update]
        return text_of(found) if found else None


def run(**changes: Any) -> Run:
    request = RunRequest(agent="writer", input={"message": "x"}, protocol="agent_client")
    return Run(**{"id": "r", "request": request, "created_at": 0.0, "updated_at": 0.0, **changes})


def kinds(told: Told) -> list[str]:
    return [update["sessionUpdate"] for update in told.updates]
