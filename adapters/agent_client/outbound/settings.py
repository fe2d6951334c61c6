"""What a run's `config` sets of its session before the prompt: the agent's mode and options (docs: session-modes,
session-config-options)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.agent_client.outbound.connection import Connection
from adapters.agent_client.outbound.session import Session
from gateway.core.errors import Invalid
from gateway.core.types import Json, JsonObject
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError


async def configure(session: Session, connection: Connection, config: Mapping[str, Any], timeout: float) -> bool:
    """Set the options that `config` names, where they are not so already. True.

    Raises Invalid for what the agent does not take, RpcError, and the errors of the tree.
    """
    for name, value in config.items():
        option = next((each for each in session.options or () if _named(each, name)), None)
        if option is not None and option.get("currentValue") == value and type(value) in (str, bool):
            continue
        if option is None and name == "mode" and session.modes is not None:
            if session.modes.get("currentModeId") == value:
                continue
            method, params = "session/set_mode", {"modeId": value}
        else:
            method, params = "session/set_config_option", {"configId": name, **_value(name, value)}
        try:
            result = await connection.ask(method, {"sessionId": session.name, **params}, timeout=timeout)
        except RpcError as error:
            if error.error.code not in (jsonrpc.INVALID_PARAMS, jsonrpc.METHOD_NOT_FOUND):
                raise
            raise Invalid(f"the agent does not take {name}: {error}", path=f"/config/{name}") from error
        session.settle(jsonrpc.unpack(result), in_run=True)
    return True


def _named(option: Any, name: str) -> bool:
    return isinstance(option, dict) and option.get("id") == name


def _value(name: str, value: Json) -> JsonObject:
    if isinstance(value, bool):
        return {"type": "boolean", "value": value}
    if isinstance(value, str):
        return {"value": value}
    raise Invalid(f"option {name} is a text or a boolean", path=f"/config/{name}")
