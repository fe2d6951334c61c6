"""Version 2: other words, and prompts that are acknowledged (docs: v2/migration)."""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client.codec.v2 import agents, conversions, questions, requests
from adapters.agent_client.codec.v2.wire import MODE, VERSION
from adapters.agent_client.outbound import forwarded
from adapters.agent_client.outbound.dialect import OptionsOf
from adapters.agent_client.outbound.v2.foreground import Foreground
from gateway.core import delta
from gateway.core.types import Agent, Interrupt, JsonObject
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id, RpcError

PERMISSION = "session/request_permission"
GONE = ("fs/", "terminal/")
"""Beginnings of requests that agents of version 1 make, and those of version 2 do not."""


class Version2:
    """The `AgentDialect` of version 2."""

    version = VERSION

    def greeting(self, client: JsonObject, info: JsonObject) -> JsonObject:
        return agents.hello(client, info)

    def read_agent(self, initialized: JsonObject, source: str) -> Agent:
        return agents.agent_of(initialized, source)

    def opened(self) -> tuple[Foreground, Foreground]:
        foreground = Foreground()
        return foreground, foreground

    def request(self, method: str, params: Any, options: OptionsOf) -> tuple[str, Any]:
        if method not in requests.CHANGED:
            return method, params
        said = jsonrpc.unpack(params or forwarded.NOTHING) if isinstance(params, Raw) else params
        if not isinstance(said, dict):
            return method, params
        found = options(str(said.get("sessionId")))
        mode = conversions.mode_option(found) if found else None
        return requests.to_v2(method, said, mode=(conversions.option_id(mode) if mode else None) or MODE)

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
