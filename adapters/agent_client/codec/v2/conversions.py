"""Shapes that version 1 and 2 call by different names: options, modes, commands, MCP servers, ways to authenticate.

Every function leaves what it does not know as it is. Nothing here raises.
"""

from __future__ import annotations

from typing import Any

from adapters.agent_client.codec.v2.wire import MODE
from adapters.agent_client.wire import ORIGIN_V2, without
from gateway.core.types import Json, JsonObject

# --- options and modes -------------------------------------------------------------------------------------------


def options_to_v1(options: Any) -> list[JsonObject]:
    """Session config options as version 1 says them.

    One of a type that it has not stands in its place as `{ORIGIN_V2: the option}`, of which `known_to_v1` is rid.
    """
    return [_option_to_v1(option) for option in options] if isinstance(options, list) else []


def options_to_v2(options: Any, modes: Any = None) -> list[JsonObject]:
    """The same back; `modes` are version 1's, which become an option unless there is one of that category."""
    found = [_option_to_v2(option) for option in _objects(options)]
    mode = None if mode_option(found) is not None else _as_option(modes, found)
    return found if mode is None else [mode, *found]


def known_to_v1(options: list[Any]) -> list[Any]:
    """Options as a client of version 1 is told them: without those of types that it has not. The same list if it has
    all."""
    if any(isinstance(option, dict) and ORIGIN_V2 in option for option in options):
        return [option for option in options if not (isinstance(option, dict) and ORIGIN_V2 in option)]
    return options


def mode_option(options: Any) -> JsonObject | None:
    """The option that is the session's mode: the first list of that category. Of version 1 or 2."""
    return next(
        (each for each in _objects(options) if each.get("category") == MODE and each.get("type") == "select"), None
    )


def modes_of(options: Any) -> JsonObject | None:
    """The option that is the session's mode as version 1's `modes`; None if there is none."""
    option = mode_option(options)
    if option is None or not isinstance(option.get("currentValue"), str):
        return None
    modes = []
    for value in _values(option.get("options")):
        if isinstance(value.get("value"), str) and isinstance(value.get("name"), str):
            described = {"description": value["description"]} if isinstance(value.get("description"), str) else {}
            modes.append({"id": value["value"], "name": value["name"], **described})
    return {"currentModeId": option["currentValue"], "availableModes": modes}


def option_id(option: JsonObject) -> str | None:
    found = option.get("configId", option.get("id"))
    return found if isinstance(found, str) else None


def _option_to_v1(option: Any) -> JsonObject:
    if not isinstance(option, dict) or option.get("type") not in ("select", "boolean"):
        return {ORIGIN_V2: option}
    return _groups(_renamed(option, "configId", "id"), "groupId", "group")


def _option_to_v2(option: JsonObject) -> Any:
    if ORIGIN_V2 in option:
        return option[ORIGIN_V2]
    return _groups(_renamed(option, "id", "configId"), "group", "groupId")


def _as_option(modes: Any, others: list[JsonObject]) -> JsonObject | None:
    if not isinstance(modes, dict) or not isinstance(modes.get("currentModeId"), str):
        return None
    if any(option.get("configId") == MODE for option in _objects(others)):
        return None
    values = []
    for mode in _objects(modes.get("availableModes")):
        if isinstance(mode.get("id"), str) and isinstance(mode.get("name"), str):
            described = {"description": mode["description"]} if isinstance(mode.get("description"), str) else {}
            values.append({"value": mode["id"], "name": mode["name"], **described})
    return {
        "configId": MODE,
        "name": "Mode",
        "category": MODE,
        "type": "select",
        "currentValue": modes["currentModeId"],
        "options": values,
    }


def _groups(option: JsonObject, old: str, new: str) -> JsonObject:
    values = option.get("options")
    if not isinstance(values, list) or not any(isinstance(each, dict) and old in each for each in values):
        return option
    renamed = [_renamed(each, old, new) if isinstance(each, dict) else each for each in values]
    return {**option, "options": renamed}


def _values(options: Any) -> list[JsonObject]:
    """The values of a list, whether they stand in groups or not."""
    found: list[JsonObject] = []
    for each in _objects(options):
        found += _objects(each["options"]) if isinstance(each.get("options"), list) else [each]
    return found


# --- commands ----------------------------------------------------------------------------------------------------


def commands_to_v1(commands: Any) -> list[JsonObject]:
    """Slash commands as version 1 says them: an input that is no text is left out, the command is not."""
    found = []
    for command in _objects(commands):
        said = command.get("input")
        if isinstance(said, dict):
            inner = without(said, "type")
            command = {**command, "input": inner if said.get("type") == "text" else None}  # noqa: PLW2901
        found.append(command)
    return found


def commands_to_v2(commands: Any) -> list[JsonObject]:
    found = []
    for command in _objects(commands):
        said = command.get("input")
        if isinstance(said, dict) and "type" not in said:
            command = {**command, "input": {"type": "text", **said}}  # noqa: PLW2901
        found.append(command)
    return found


# --- MCP servers -------------------------------------------------------------------------------------------------


def servers_to_v1(servers: Any) -> list[Json]:
    """`mcpServers` as version 1 says them: a command has no type, and no list is left out."""
    found: list[Json] = []
    for server in servers if isinstance(servers, list) else []:
        kind = server.get("type") if isinstance(server, dict) else None
        if kind == "stdio":
            rest = without(server, "type")
            found.append({**rest, "args": rest.get("args") or [], "env": rest.get("env") or []})
        elif kind == "http":
            found.append({**server, "headers": server.get("headers") or []})
        else:
            found.append(server)
    return found


def servers_to_v2(servers: Any) -> list[Json]:
    return [
        {"type": "stdio", **server} if isinstance(server, dict) and "type" not in server else server
        for server in (servers if isinstance(servers, list) else [])
    ]


# --- ways to authenticate ----------------------------------------------------------------------------------------


def auth_to_v1(methods: Any) -> list[JsonObject]:
    """`authMethods` as version 1 says them; a way that it has not is left out, its own way has no type."""
    found = []
    for method in _objects(methods):
        if method.get("type") in ("agent", "terminal"):
            method = _renamed(method, "methodId", "id")  # noqa: PLW2901
            found.append(without(method, "type") if method.get("type") == "agent" else method)
    return found


def auth_to_v2(methods: Any) -> list[JsonObject]:
    return [{"type": "agent", **_renamed(method, "id", "methodId")} for method in _objects(methods)]


# --- inside ------------------------------------------------------------------------------------------------------


def _objects(values: Any) -> list[JsonObject]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _renamed(value: JsonObject, old: str, new: str) -> JsonObject:
    """With a key called otherwise, in its place; as it is where it has the new one already."""
    if old not in value or new in value:
        return value
    return {new if key == old else key: each for key, each in value.items()}
