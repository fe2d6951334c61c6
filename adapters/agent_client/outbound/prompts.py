"""A prompt at an agent. The answer of one of version 1 is its end; foreground.py has those that are acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias

from msgspec import Raw

from adapters.agent_client.codec import turn
from gateway.core import events as e
from gateway.core.errors import AgentGone

Send: TypeAlias = Callable[[], Coroutine[Any, Any, Raw]]
"""Sends a prompt's request and waits for the answer. Raises RpcError, and the errors of the tree."""


class PromptOwner(Protocol):
    """The run that sends a prompt. The prompt tells it which of the agent's updates are its own."""

    def begins(self) -> None:
        """From here on they are."""

    def waits(self) -> None:
        """They are not, until it begins."""

    def ends(self) -> None:
        """The agent has done what it was prompted to: what comes next is not the prompt's."""

    def take(self, update: Raw) -> Awaitable[None] | None:
        """An update that was held, to whom it is for now. What is returned may be awaited before the next."""

    def stray(self, update: Raw) -> None:
        """An update that was held, and is not the prompt's."""


class SentPrompt(Protocol):
    """One prompt at the agent. `run` is called once.

    answered: whether the request has been answered, so that it cannot be withdrawn any more.
    """

    @property
    def answered(self) -> bool: ...

    async def run(self, send: Send, closed: asyncio.Future[AgentGone]) -> list[e.Event]:
        """Send it; its end, last a RunFinished, RunCancelled or RunFailed. `closed` is done once the agent has gone.

        Raises what `send` does.
        """

    def cancelling(self) -> None:
        """The agent was told to cancel."""


class AnsweredPrompt:
    """A prompt whose answer is its end. See `SentPrompt`."""

    answered = False

    def __init__(self, owner: PromptOwner) -> None:
        self._owner = owner

    async def run(self, send: Send, closed: asyncio.Future[AgentGone]) -> list[e.Event]:
        """See `SentPrompt`. The end is where the answer stands among the messages, not when the run has seen it."""
        self._owner.begins()
        try:
            answer = await send()
        finally:
            self._owner.ends()
        return turn.ended(answer)

    def cancelling(self) -> None:
        """See `SentPrompt`: the answer says what came of it."""
