"""Version 2: other words, upserts instead of starts and updates, acknowledged prompts (docs: v2/migration).

Its updates become core events, with what they say beyond them under ORIGIN_V2 ("agent_client.v2"), so that version 2 in
and out loses nothing. Its requests, answers and questions are taken in version 1's words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client import wire
from adapters.agent_client.codec import questions as asking
from adapters.agent_client.codec.v2 import agents, conversions, questions, requests, updates_in, updates_out
from adapters.agent_client.codec.v2.memory import SessionMemory
from adapters.agent_client.codec.v2.wire import MODE, VERSION
from adapters.agent_client.codec.version import Noted, OptionsOf, unknown
from gateway.core import events as e
from gateway.core.errors import Invalid
from gateway.core.types import Agent, Interrupt, JsonObject, ThreadUpdate
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id, RpcError

_NOTHING: Final = Raw(b"{}")
_V1_ONLY: Final = frozenset(("authenticate", "logout", "session/load", "session/set_mode"))
_OF_V1_CLIENTS: Final = ("fs/", "terminal/")
"""Beginnings of requests that are made of clients of version 1 alone."""


class V2Spoken:
    """See `SpokenSession`: what the agent has said there before is remembered."""

    def __init__(self) -> None:
        self._known = SessionMemory()

    def decoder(self) -> updates_in.V2UpdateDecoder:
        return updates_in.V2UpdateDecoder(self._known)

    def stray(self, update: Raw) -> Sequence[ThreadUpdate]:
        return updates_in.stray(update, self._known)

    def aside(self, update: ThreadUpdate) -> e.Custom | None:
        return updates_in.aside(update)


class Version2:
    """See `ProtocolVersion`."""

    number = VERSION
    acknowledges = True
    asks_as_calls = False

    def greeting(self, client: JsonObject, info: JsonObject) -> JsonObject:
        return agents.hello(client, info)

    def read_agent(self, initialized: JsonObject, source: str) -> Agent:
        return agents.agent_of(initialized, source)

    def session(self) -> V2Spoken:
        return V2Spoken()

    def to_agent(self, method: str, params: Any, options: OptionsOf) -> tuple[str, Any]:
        if method not in requests.CHANGED:
            return method, params
        said = jsonrpc.unpack(params or _NOTHING) if isinstance(params, Raw) else params
        if not isinstance(said, dict):
            return method, params
        mode = conversions.mode_option(options(str(said.get("sessionId"))))
        return requests.to_v2(method, said, mode=(conversions.option_id(mode) if mode else None) or MODE)

    def agent_answer(self, method: str, result: Raw) -> Raw:
        if method not in requests.CHANGED or not result:
            return result
        return jsonrpc.raw(requests.result_to_v1(method, jsonrpc.unpack(result)))

    def from_agent(self, method: str, params: Raw, id: Id = None) -> tuple[str, Raw]:
        if id is not None and method.startswith(_OF_V1_CLIENTS):
            raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})
        if method == asking.PERMISSION and params:
            said = _object(params)
            return method, jsonrpc.raw({**said, "toolCall": questions.tool_call_of(said, f"permission-{id}")})
        return method, params

    def permission(self, asked: JsonObject, id: str, known: str | None) -> Interrupt:
        return replace(questions.permission(asked, asked["toolCall"]["toolCallId"], known), id=id)

    def capabilities(self, asked: wire.Initialize) -> JsonObject:
        return agents.capabilities_v1(asked.capabilities or {})

    def initialized(self, agent: Agent | None, answer: JsonObject) -> JsonObject:
        return agents.initialized(agent, answer)

    def from_client(self, method: str, params: Raw) -> tuple[str, Raw]:
        """Raises Invalid (path /replayFrom) for a place to replay from that is not the start."""
        if method in _V1_ONLY:
            raise unknown(method)
        if method not in requests.CHANGED:
            return method, params
        method, said = requests.to_v1(method, _object(params))
        if method == "session/resume" and said.get("replayFrom") is not None:
            raise Invalid("replayFrom: there is no such place; there is start", path="/replayFrom/type")
        return method, jsonrpc.raw(said)

    def client_answer(self, method: str, params: Raw, result: Any, noted: Noted) -> Any:
        if method not in requests.CHANGED:
            return result
        said = jsonrpc.unpack(result) if isinstance(result, Raw) else result
        if not isinstance(said, dict):
            return said
        name = said.get("sessionId") or _object(params).get("sessionId")
        return requests.result_to_v2(method, said, modes=noted(name, said) if isinstance(name, str) else None)

    def to_client(self, method: str, params: Raw) -> Raw:
        """The client has neither files nor terminals, and declared none."""
        if method.startswith(_OF_V1_CLIENTS):
            raise unknown(method)
        return jsonrpc.raw(questions.whole(_object(params))) if method == asking.ELICITATION else params

    def form(self, interrupt: Interrupt, modes: frozenset[str]) -> asking.Form | None:
        elicitation = asking.as_elicitation(interrupt, modes)
        whole = None if elicitation is None else questions.whole(elicitation)
        return asking.form(interrupt, whole, questions.as_permission(interrupt))

    def text(self, said: str, id: str) -> list[bytes]:
        return [updates_out.text(said, id)]

    def user(self, blocks: Sequence[JsonObject], id: str) -> list[bytes]:
        return [updates_out.user(blocks, id)]


def _object(params: Raw) -> JsonObject:
    try:
        found = jsonrpc.unpack(params)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


V2: Final = Version2()
