"""What the versions of the protocol do differently, seen from the agent's client.

Between the two halves of the gateway everything has the shapes of version 1. Each connection has one `Dialect`, chosen
by the agent's answer of `initialize`: it translates what goes over the wire, and it knows how a prompt lives.

v1.py  a prompt is a request, and its answer the end     v2.py  a prompt is acknowledged; what becomes of it is told
foreground.py  whose the work is that an agent of version 2 tells about
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw

from adapters.agent_client.codec.updates_in import Chunk
from gateway.core import events as e
from gateway.core.types import Agent, Interrupt, JsonObject, ThreadUpdate
from gateway.wire.jsonrpc import Id

if TYPE_CHECKING:
    from adapters.agent_client.outbound.connection import Connection
    from adapters.agent_client.outbound.dialects.foreground import Foreground
    from adapters.agent_client.outbound.session import Session
    from adapters.agent_client.outbound.turn import Turn


class Decoder(Protocol):
    """One run's updates to events: see `codec.updates_in.UpdateDecoder`, whose methods these are."""

    def feed(self, update: Raw | bytes) -> list[e.Event | ThreadUpdate]: ...

    def more(self, chunk: Chunk) -> e.PartDelta | None: ...

    def title(self, tool_call_id: str) -> str | None: ...

    def close(self, *, failed: bool = False) -> list[e.Event]: ...


class Prompt(Protocol):
    """One prompt at the agent. `run` is called once.

    answered: whether the request has been answered, so that it cannot be withdrawn any more.
    """

    @property
    def answered(self) -> bool: ...

    async def run(self, connection: Connection, params: JsonObject, named: Callable[[Id], None]) -> list[e.Event]:
        """Send it; its end, last a RunFinished, RunCancelled or RunFailed. Meanwhile `Session.turn` is its turn.

        `named` is told the request's id. Raises RpcError where the agent refuses it, and the errors of the tree.
        """

    def cancelling(self) -> None:
        """The agent was told to cancel."""


class Dialect(Protocol):
    """One version. It has no state of a connection's: there is one for all.

    Methods, params and results are version 1's on our side and the version's own on the wire.
    """

    @property
    def version(self) -> int: ...

    def greeting(self, client: JsonObject, info: JsonObject) -> JsonObject:
        """The params of `initialize`, for a client with these capabilities."""

    def read_agent(self, initialized: JsonObject, source: str) -> Agent:
        """The agent that answered `initialize` so. Raises AgentBroken; `source` is its name there."""

    def decoder(self, session: Session) -> Decoder:
        """For the updates of one run."""

    def stray(self, session: Session, update: Raw) -> Sequence[ThreadUpdate]:
        """What an update means that belongs to no run. Raises AgentBroken."""

    def aside(self, update: ThreadUpdate) -> e.Custom | None:
        """What `stray` gave while a run waits for its prompt to be taken, as an event of it; None where it is noted."""

    def foreground(self) -> Foreground | None:
        """What is to be known of a session's work beside its prompts; None where there is no such work."""

    def prompt(self, turn: Turn, session: Session) -> Prompt:
        """A prompt that is about to be sent."""

    def request(self, method: str, params: Any, sessions: Mapping[str, Session]) -> tuple[str, Any]:
        """A request or notification to the agent, as it is sent. `sessions` are open there, by the agent's ids."""

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
