"""The interface of one version of the protocol: between its words and the core's events, requests and questions.

`v1` and `v2` implement it, side by side, without IO. Everything else is written once and asks the version that a
connection speaks. Requests and answers between an agent and a client of this protocol, and the records of sessions, are
in version 1's words on our side, with what version 2 says beyond them kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec.questions import Form
from adapters.agent_client.codec.updates_in import UpdateDecoder
from gateway.core import events as e
from gateway.core.types import Agent, Interrupt, Json, JsonObject, ThreadUpdate
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

OptionsOf: TypeAlias = Callable[[str], list[Any] | None]
"""The options of an open session, by the agent's own id; None if it has no options."""
Noted: TypeAlias = Callable[[str, JsonObject], Json]
"""Notes what an answer says of a session (its id) that is open, and returns the session's modes as they are now."""


class SpokenSession(Protocol):
    """Decodes the updates of one session."""

    def decoder(self) -> UpdateDecoder:
        """For the updates of one run."""

    def stray(self, update: Raw) -> Sequence[ThreadUpdate]:
        """Decode an update that belongs to no run. Raises AgentBroken."""

    def aside(self, update: ThreadUpdate) -> e.Custom | None:
        """Convert a result of `stray` to an event of the run that waits for its prompt to be taken. None to note it."""


class ProtocolVersion(Protocol):
    """One version. It has no state of a connection's: there is one for all. What a version has no words of its own for
    is passed on as it is.

    acknowledges: whether a prompt is answered when it is taken, and updates tell what becomes of it.
    asks_as_calls: whether a question is shown as a tool call.
    """

    number: int
    acknowledges: bool
    asks_as_calls: bool

    # --- an agent speaks it --------------------------------------------------------------------------------------

    def greeting(self, client: JsonObject, info: JsonObject) -> JsonObject:
        """The params of `initialize`, for a client with these capabilities."""

    def read_agent(self, initialized: JsonObject, source: str) -> Agent:
        """The agent that answered `initialize` so. Raises AgentBroken; `source` is its name there."""

    def session(self) -> SpokenSession:
        """For one session that is open."""

    def to_agent(self, method: str, params: Any, options: OptionsOf) -> tuple[str, Any]:
        """A request or notification to the agent, as it is sent."""
        return method, params

    def agent_answer(self, method: str, result: Raw) -> Raw:
        """The agent's answer to a request that we call so, as we take it."""
        return result

    def from_agent(self, method: str, params: Raw, id: jsonrpc.Id = None) -> tuple[str, Raw]:
        """A request or notification of the agent's, as we take it; `id` is the request's.

        Raises RpcError for what the version has not.
        """
        return method, params

    def permission(self, asked: JsonObject, id: str, known: str | None) -> Interrupt:
        """The question of a `session/request_permission` that was `asked`. See `codec.questions.permission`."""

    # --- a client speaks it --------------------------------------------------------------------------------------

    def capabilities(self, asked: wire.Initialize) -> JsonObject:
        """The client's declared capabilities, as we take them."""

    def initialized(self, agent: Agent | None, answer: JsonObject) -> JsonObject:
        """The answer of `initialize` as it is sent, given version 1's."""
        return answer

    def from_client(self, method: str, params: Raw) -> tuple[str, Raw]:
        """A client's request, as we take it. Raises RpcError for a method that this version has not."""

    def client_answer(self, method: str, params: Raw, result: Any, noted: Noted) -> Any:
        """The answer of a request that we call so, as it is sent."""

    def to_client(self, method: str, params: Raw) -> Raw:
        """Params of an agent's request to the client, as they are sent. Raises RpcError for what it has not."""
        return params

    def form(self, interrupt: Interrupt, modes: frozenset[str]) -> Form | None:
        """How a client that declared these modes of elicitation is asked; None if it cannot be."""

    def text(self, said: str, id: str) -> list[bytes]:
        """A text of the gateway's own. `id` names it, the same for every client and each time it is told."""

    def user(self, blocks: Sequence[JsonObject], id: str) -> list[bytes]:
        """The words of a person."""


def unknown(method: str) -> RpcError:
    """Make the error for an unknown method."""
    return RpcError(jsonrpc.METHOD_NOT_FOUND, f"unknown method {method}", {"method": method})
