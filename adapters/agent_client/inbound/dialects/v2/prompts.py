"""A prompt of a client of version 2, and the ids of what people say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from adapters.agent_client.inbound.turns import Turn
from adapters.agent_client.wire import JsonObject
from gateway.wire.jsonrpc import RpcError


@dataclass
class Prompt(Turn):
    """A prompt, and the work that it began.

    blocks: what was said.
    message: the id of what was said, where that does not follow from the run.
    accepted: how it is answered.   answered: whether that is on its way, so that the client may be told more.
    """

    blocks: Sequence[JsonObject] = ()
    message: str | None = None
    accepted: asyncio.Future[JsonObject | RpcError] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def accept(self, how: JsonObject | RpcError) -> None:
        """Answer it, once."""
        if not self.accepted.done():
            self.accepted.set_result(how)

    def end(self, how: JsonObject | RpcError) -> None:
        """See `Turn.end`. What was not taken never will be."""
        super().end(how)
        self.accept(how if isinstance(how, RpcError) else {"messageId": self.message or self.mark})


def message_id(run: str) -> str:
    """The id of what was said to start a run, where the agent has none for it."""
    return f"{run}-user"


def answer_id(run: str, question: str) -> str:
    """The id of what was said to answer a question."""
    return f"{run}-answer-{question}"
