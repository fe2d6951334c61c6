"""What the versions of the protocol do differently, seen from the agent's client.

Between the two halves of the gateway everything has the shapes of version 1. Each connection has one `AgentDialect`,
chosen by the agent's answer of `initialize`: it translates what goes over the wire. Each session has a `SessionSpeech`
of it, which reads the agent's updates and knows how a prompt lives.

v1.py  a prompt is a request, and its answer the end     v2/  a prompt is acknowledged; updates tell what becomes of it
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Raw

from adapters.agent_client.codec.updates_in import Chunk
from gateway.core import events as e
from gateway.core.errors import AgentGone
from gateway.core.types import Agent, Interrupt, JsonObject, ThreadUpdate
from gateway.wire.jsonrpc import Id

T = TypeVar("T")
Send: TypeAlias = Callable[[], Coroutine[Any, Any, Raw]]
"""Sends a prompt's request and waits for the answer. Raises RpcError, and the errors of the tree."""
OptionsOf: TypeAlias = Callable[[str], list[Any] | None]
"""The options of an open session, by the agent's own id; None if there are none."""


class RunDecoder(Protocol):
    """One run's updates to events: see `codec.updates_in.UpdateDecoder`, whose methods these are."""

    def feed(self, update: Raw | bytes) -> list[e.Event | ThreadUpdate]: ...

    def more(self, chunk: Chunk) -> e.PartDelta | None: ...

    def title(self, tool_call_id: str) -> str | None: ...

    def close(self, *, failed: bool = False) -> list[e.Event]: ...


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


class SessionSpeech(Protocol):
    """How the agent speaks in one session."""

    def decoder(self) -> RunDecoder:
        """For the updates of one run."""

    def stray(self, update: Raw) -> Sequence[ThreadUpdate]:
        """What an update means that belongs to no run. Raises AgentBroken."""

    def aside(self, update: ThreadUpdate) -> e.Custom | None:
        """What `stray` gave while a run waits for its prompt to be taken, as an event of the run; None to note it."""

    def prompt(self, owner: PromptOwner) -> SentPrompt:
        """A prompt that is about to be sent."""


class AgentWork(Protocol):
    """What an agent works on in one session, where that can be something else than a prompt."""

    @property
    def working(self) -> bool:
        """Whether it said that it works."""

    @property
    def busy(self) -> bool:
        """Whether it works, or has a prompt that it may not have taken yet."""

    def more(self, chunk: Chunk) -> bool:
        """A chunk of text. False if it is to be given to `update`."""

    def update(self, update: Raw, take: Callable[[Raw], T]) -> T | None:
        """Any update; `take` passes it on, unless it is held."""

    def of_subagent(self, name: str, update: Raw) -> bool:
        """Whether an update of a session that no client opened is of a subagent that was announced here, or by one."""


class AgentDialect(Protocol):
    """One version. It has no state of a connection's: there is one for all.

    Methods, params and results are version 1's on our side and the version's own on the wire.
    """

    @property
    def version(self) -> int: ...

    def greeting(self, client: JsonObject, info: JsonObject) -> JsonObject:
        """The params of `initialize`, for a client with these capabilities."""

    def read_agent(self, initialized: JsonObject, source: str) -> Agent:
        """The agent that answered `initialize` so. Raises AgentBroken; `source` is its name there."""

    def opened(self) -> tuple[SessionSpeech, AgentWork | None]:
        """For one session that is open; without work where there is none beside prompts."""

    def request(self, method: str, params: Any, options: OptionsOf) -> tuple[str, Any]:
        """A request or notification to the agent, as it is sent."""

    def result(self, method: str, result: Raw) -> Raw:
        """The agent's answer to a request that we call so."""

    def asked(self, method: str, params: Raw, id: Id = None) -> tuple[str, Raw]:
        """A request or notification of the agent's, as we take it; `id` is the request's.

        Raises RpcError for what the version has not.
        """

    def answered(self, method: str, answer: Any) -> Any:
        """Our answer to a request that the agent calls so, as it is sent."""

    def permission(self, asked: JsonObject, id: str, known: str | None) -> Interrupt:
        """The question of a `session/request_permission` that was `asked`. See `codec.questions.permission`."""
