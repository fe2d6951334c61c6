"""Version 2: other words, and prompts that are acknowledged (docs: v2/migration)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client.codec.v2 import agents, questions, requests, shapes, updates_in
from adapters.agent_client.codec.v2 import turn as turns
from adapters.agent_client.codec.v2.wire import MODE, ORIGIN_V2, STATE, VERSION
from adapters.agent_client.outbound import raw
from adapters.agent_client.outbound.dialects.foreground import Acknowledged, Foreground
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Agent, Interrupt, JsonObject, ThreadUpdate
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id, RpcError

if TYPE_CHECKING:
    from adapters.agent_client.outbound.session import Session
    from adapters.agent_client.outbound.turn import Turn

PERMISSION = "session/request_permission"
GONE = ("fs/", "terminal/")
"""Beginnings of what version 1's agents ask of their clients, and version 2's do not."""


class Version2:
    """See `Dialect`."""

    version = VERSION

    def greeting(self, client: JsonObject, info: JsonObject) -> JsonObject:
        return agents.hello(client, info)

    def read_agent(self, initialized: JsonObject, source: str) -> Agent:
        return agents.agent_of(initialized, source)

    def decoder(self, session: Session) -> updates_in.UpdateDecoder:
        assert session.foreground is not None
        return updates_in.UpdateDecoder(session.foreground.known)

    def stray(self, session: Session, update: Raw) -> Sequence[ThreadUpdate]:
        assert session.foreground is not None
        state = turns.state_of(update)
        if state is not None:  # of work that is no run's: only clients of this version have a word for it
            return (ThreadUpdate(protocol=ORIGIN_V2, kind=STATE, data=delta.sound(state)),)
        return updates_in.stray(update, session.foreground.known)

    def aside(self, update: ThreadUpdate) -> e.Custom | None:
        return updates_in.aside(update)

    def foreground(self) -> Foreground:
        return Foreground()

    def prompt(self, turn: Turn, session: Session) -> Acknowledged:
        assert session.foreground is not None
        return Acknowledged(turn, session, session.foreground)

    def request(self, method: str, params: Any, sessions: Mapping[str, Session]) -> tuple[str, Any]:
        if method not in requests.CHANGED:
            return method, params
        said = jsonrpc.unpack(params or raw.NOTHING) if isinstance(params, Raw) else params
        if not isinstance(said, dict):
            return method, params
        session = sessions.get(str(said.get("sessionId")))
        mode = shapes.mode_option(session.options) if session is not None and session.options else None
        return requests.to_v2(method, said, mode=(shapes.option_id(mode) if mode else None) or MODE)

    def result(self, method: str, result: Raw) -> Raw:
        if method not in requests.CHANGED or not result:
            return result
        # a mode is an option here, and the answer says what became of all options
        method = requests.SET_OPTION if method == "session/set_mode" else method
        return _raw(requests.result_to_v1(method, jsonrpc.unpack(result)))

    def asked(self, method: str, params: Raw, id: Id = None) -> tuple[str, Raw]:
        if id is not None and method.startswith(GONE):
            raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})
        if method == PERMISSION and params:
            said = jsonrpc.unpack(params)
            if isinstance(said, dict):
                return method, _raw({**said, "toolCall": questions.tool_call_of(said, f"permission-{id}")})
        return method, params

    def answered(self, method: str, answer: Any) -> Any:
        return answer

    def permission(self, asked: JsonObject, id: str, known: str | None) -> Interrupt:
        return replace(questions.permission(asked, asked["toolCall"]["toolCallId"], known), id=id)


def _raw(value: Any) -> Raw:
    return Raw(delta.encode(value))


V2 = Version2()
