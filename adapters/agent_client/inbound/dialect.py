"""Translates requests and answers between the version that a connection speaks and version 1.

Between the halves of the adapter, and in the gateway's records, requests and answers are version 1's. `v1.py` and `v2/`
make the updates of a session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec import agents as agents_v1
from adapters.agent_client.codec import v2_for_v1
from adapters.agent_client.codec.v2 import agents, questions, requests
from adapters.agent_client.wire import ORIGIN_V2, JsonObject
from gateway.core.errors import Invalid
from gateway.core.types import Agent, Json
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

V1_ONLY: Final = frozenset(("authenticate", "logout", "session/load", "session/set_mode"))
V2_ONLY: Final = frozenset(("auth/login", "auth/logout"))
NOT_ASKED: Final = ("fs/", "terminal/")
"""What of a client only version 1 has."""
_V2: Final = ORIGIN_V2.encode()

Noted = Callable[[str, JsonObject], Json]
"""Notes what an answer says of a session (its id) that is open, and returns the session's modes as they are now."""


class EditorDialect(Protocol):
    """The requests and answers of one version."""

    version: int

    def request(self, method: str, params: Raw) -> tuple[str, Raw]:
        """A client's request in version 1's words. Raises RpcError for a method that this version has not."""

    def result(self, method: str, params: Raw, result: Any, noted: Noted) -> Any:
        """The answer of a request that is called `method` in version 1, in the client's words."""

    def capabilities(self, asked: wire.Initialize) -> JsonObject:
        """What the client declared that it can do, in version 1's words."""

    def initialized(self, agent: Agent | None, answer: JsonObject) -> JsonObject:
        """The answer of `initialize`, given version 1's."""

    def asked(self, method: str, params: Raw) -> Raw:
        """Params of a request to the client, given version 1's. Raises RpcError for one that this version has not."""


def agreed(asked: int, *, v2: bool) -> EditorDialect:
    """The dialect of a client that asks for this version. `v2`: whether version 2 is served."""
    return V2Dialect() if v2 and asked >= 2 else V1Dialect()


class V1Dialect:
    """Version 1: everything passes as it is."""

    version = 1

    def request(self, method: str, params: Raw) -> tuple[str, Raw]:
        if method in V2_ONLY:
            raise unknown(method)
        return method, params

    def result(self, method: str, params: Raw, result: Any, noted: Noted) -> Any:
        """Only what is said of options can be more than version 1 knows."""
        if method not in requests.OPTIONS or (isinstance(result, Raw) and _V2 not in bytes(result)):
            return result
        said = jsonrpc.unpack(result) if isinstance(result, Raw) else result
        return v2_for_v1.told(said)[0] if isinstance(said, dict) else said

    def capabilities(self, asked: wire.Initialize) -> JsonObject:
        return wire.capabilities_of(asked)

    def initialized(self, agent: Agent | None, answer: JsonObject) -> JsonObject:
        return answer

    def asked(self, method: str, params: Raw) -> Raw:
        return params


class V2Dialect:
    """See `EditorDialect`."""

    version = 2

    def request(self, method: str, params: Raw) -> tuple[str, Raw]:
        """Raises Invalid (path /replayFrom) for a place to replay from that is not the start."""
        if method in V1_ONLY:
            raise unknown(method)
        if method not in requests.CHANGED:
            return method, params
        asked = _object(params)
        method, turned = requests.to_v1(method, asked)
        if method == "session/resume" and turned.get("replayFrom") is not None:
            raise Invalid("replayFrom: there is no such place; there is start", path="/replayFrom/type")
        return method, jsonrpc.raw(turned)

    def result(self, method: str, params: Raw, result: Any, noted: Noted) -> Any:
        if method not in requests.CHANGED:
            return result
        said = jsonrpc.unpack(result) if isinstance(result, Raw) else result
        if not isinstance(said, dict):
            return said
        name = said.get("sessionId") or _object(params).get("sessionId")
        modes = noted(name, said) if isinstance(name, str) else None
        return requests.result_to_v2(method, said, modes=modes)

    def capabilities(self, asked: wire.Initialize) -> JsonObject:
        return agents.capabilities_v1(asked.capabilities or {})

    def initialized(self, agent: Agent | None, answer: JsonObject) -> JsonObject:
        """An agent of version 2 has its own words, unless the gateway has changed them."""
        if agents.speaks_v2(agent) and answer == agents_v1.initialize_result(agent):
            return agents.initialize_result(agent)
        return agents.result_to_v2(answer, agent)

    def asked(self, method: str, params: Raw) -> Raw:
        """The client has neither files nor terminals, and declared none."""
        if method.startswith(NOT_ASKED):
            raise unknown(method)
        return jsonrpc.raw(questions.whole(_object(params))) if method == "elicitation/create" else params


def unknown(method: str) -> RpcError:
    """Make the error for an unknown method."""
    return RpcError(jsonrpc.METHOD_NOT_FOUND, f"unknown method {method}", {"method": method})


def _object(params: Raw) -> JsonObject:
    try:
        found = jsonrpc.unpack(params)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
