"""Version 2 (a draft): requests and answers are turned into version 1's and back; sessions are told in its words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec import agents as agents_v1
from adapters.agent_client.codec.v2 import agents, requests
from adapters.agent_client.inbound.dialects import Asker
from adapters.agent_client.inbound.dialects.v1 import unknown
from adapters.agent_client.inbound.dialects.v2.voice import V2Voice, whole
from adapters.agent_client.inbound.encoding import encoded
from adapters.agent_client.wire import JsonObject
from gateway.core.errors import Invalid
from gateway.core.types import Agent
from gateway.wire import jsonrpc

if TYPE_CHECKING:
    from adapters.agent_client.inbound.connection import Connection
    from adapters.agent_client.inbound.session import Session

V1_ONLY: Final = frozenset(("authenticate", "logout", "session/load", "session/set_mode"))
NOT_ASKED: Final = ("fs/", "terminal/")
"""What of a client only version 1 has."""


class V2:
    """See `Dialect`."""

    version = 2

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def request(self, method: str, params: Raw) -> tuple[str, Raw]:
        """See `Dialect.request`. Raises Invalid (path /replayFrom) for a place to replay from that is not the start."""
        if method in V1_ONLY:
            raise unknown(method)
        if method not in requests.CHANGED:
            return method, params
        asked = _object(params)
        method, turned = requests.to_v1(method, asked)
        if method == "session/resume" and turned.get("replayFrom") is not None:
            raise Invalid("replayFrom: there is no such place; there is start", path="/replayFrom/type")
        return method, encoded(turned)

    def result(self, method: str, params: Raw, result: Any) -> Any:
        """See `Dialect.result`. What it says of modes and options is remembered for the session."""
        if method not in requests.CHANGED:
            return result
        said = jsonrpc.unpack(result) if isinstance(result, Raw) else result
        if not isinstance(said, dict):
            return said
        name = said.get("sessionId") or _object(params).get("sessionId")
        session = self._connection.sessions.here(name) if isinstance(name, str) else None
        voice = session.voice if session is not None else None
        if not isinstance(voice, V2Voice):
            return requests.result_to_v2(method, said)
        voice.remember(said)
        return requests.result_to_v2(method, said, modes=voice.modes)

    def capabilities(self, asked: wire.Initialize, params: Raw) -> JsonObject:
        """See `Dialect.capabilities`."""
        return agents.capabilities_v1(asked.capabilities or {})

    def initialized(self, agent: Agent | None, answer: JsonObject) -> JsonObject:
        """See `Dialect.initialized`. An agent of version 2 has its own words, unless the gateway has changed them."""
        if agents.speaks_v2(agent) and answer == agents_v1.initialize_result(agent):
            return agents.initialize_result(agent)
        return agents.result_to_v2(answer, agent)

    async def ask(self, method: str, params: Raw, ask: Asker) -> Raw:
        """See `Dialect.ask`. It has neither files nor terminals, and declared none."""
        if method.startswith(NOT_ASKED):
            raise unknown(method)
        if method == "elicitation/create":
            params = encoded(whole(_object(params)))
        answer: Raw = await ask(method, params)
        return answer

    def voice(self, session: Session) -> V2Voice:
        """See `Dialect.voice`."""
        return V2Voice(session)


def _object(params: Raw) -> JsonObject:
    try:
        found = jsonrpc.unpack(params)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
