"""One version of the protocol: between its words and the core's events, requests and questions.

`ProtocolVersion` is version 1, v2/version.py says where version 2 differs; both are without IO. Everything else is
written once and asks the version that a connection speaks. Requests and answers between an agent and a client of this
protocol, and the records of sessions, are in version 1's words on our side, with what version 2 says beyond them kept
as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec import agents, errors, questions, updates_out_v1
from adapters.agent_client.codec.questions import Form
from adapters.agent_client.codec.updates_in import SpokenSession
from adapters.agent_client.wire import ORIGIN_V2, VERSION
from gateway.core.types import Agent, Interrupt, Json, JsonObject
from gateway.wire import jsonrpc

OptionsOf: TypeAlias = Callable[[str], list[Any] | None]
"""The options of an open session, by the agent's own id; None if it has no options."""
Noted: TypeAlias = Callable[[str, JsonObject], Json]
"""Notes what an answer says of a session (its id) that is open, and returns the session's modes as they are now."""
_V2_ONLY: Final = frozenset(("auth/login", "auth/logout"))
_V2: Final = ORIGIN_V2.encode()


class ProtocolVersion:
    """One version, here the first. It has no state of a connection's: there is one for all. What a version has no words
    of its own for is passed on as it is.

    acknowledges: whether a prompt is answered when it is taken, and updates tell what becomes of it.
    asks_as_calls: whether a question is shown as a tool call.
    """

    number = VERSION
    acknowledges = False
    asks_as_calls = True

    # --- an agent speaks it --------------------------------------------------------------------------------------

    def greeting(self, client: JsonObject, info: JsonObject) -> JsonObject:
        """The params of `initialize`, for a client with these capabilities. `info` is the gateway's own."""
        return {"protocolVersion": VERSION, "clientCapabilities": client, "clientInfo": info}

    def read_agent(self, initialized: JsonObject, source: str) -> Agent:
        """The agent that answered `initialize` so. Raises AgentBroken; `source` is its name there."""
        return agents.agent_of(initialized, source)

    def session(self) -> SpokenSession:
        """For one session that is open."""
        return SpokenSession()

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

    def permission(self, asked: JsonObject, id: str, known: JsonObject | None) -> Interrupt:
        """The question of a `session/request_permission` that was `asked`. See `codec.questions.permission`."""
        return questions.permission(asked, id, known)

    # --- a client speaks it --------------------------------------------------------------------------------------

    def capabilities(self, asked: wire.Initialize) -> JsonObject:
        """The client's declared capabilities, as we take them."""
        return wire.capabilities_of(asked)

    def initialized(self, agent: Agent | None, answer: JsonObject) -> JsonObject:
        """The answer of `initialize` as it is sent, given version 1's."""
        return answer

    def from_client(self, method: str, params: Raw) -> tuple[str, Raw]:
        """A client's request, as we take it. Raises RpcError for a method that this version has not."""
        if method in _V2_ONLY:
            raise errors.unknown(method)
        return method, params

    def client_answer(self, method: str, params: Raw, result: Any, noted: Noted) -> Any:
        """The answer of a request that we call so, as it is sent."""
        # only what is said of options can be more than version 1 knows
        if method not in wire.OPTIONS or (isinstance(result, Raw) and _V2 not in bytes(result)):
            return result
        said = jsonrpc.unpack(result) if isinstance(result, Raw) else result
        return updates_out_v1.told(said)[0] if isinstance(said, dict) else said

    def to_client(self, method: str, params: Raw) -> Raw:
        """Params of an agent's request to the client, as they are sent. Raises RpcError for what it has not."""
        return params

    def form(self, interrupt: Interrupt, modes: frozenset[str]) -> Form | None:
        """How a client that declared these modes of elicitation is asked; None if it cannot be."""
        return questions.form(interrupt, questions.as_elicitation(interrupt, modes), questions.as_permission(interrupt))

    def text(self, said: str, id: str) -> list[bytes]:
        """A text of the gateway's own. `id` names it, the same for every client and each time it is told."""
        return [updates_out_v1.text(said)]

    def user(self, blocks: Sequence[JsonObject], id: str) -> list[bytes]:
        """The words of a person."""
        return updates_out_v1.user(blocks)


V1: Final = ProtocolVersion()
