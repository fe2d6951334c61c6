"""Options of a session (docs: session-config-options): an agent's config schema, and the choice of the agent.

Only for agents of other protocols; one of this protocol has its own. What is offered are the schema's lists of values
and its booleans; other settings have no control in this protocol, and stay at their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.core import choices, delta
from gateway.core.errors import Invalid
from gateway.core.types import Agent, Json, JsonObject

AGENT_OPTION: Final = "agent"
"""Id of the option that chooses the agent."""
_MOST: Final = 1000
UNSET: Final = "default"
"""Value of a list that leaves the setting to the agent."""


def agent_option(names: Mapping[str, str], current: str) -> JsonObject:
    """The select option by which a client chooses the agent. `names`: id -> what a person reads, in route order."""
    return {
        "id": AGENT_OPTION,
        "name": "Agent",
        "type": "select",
        "currentValue": current,
        "options": [{"value": value, "name": name} for value, name in names.items()],
    }


def config_options(agent: Agent, config: Mapping[str, Any], *, booleans: bool) -> list[JsonObject]:
    """The options that an agent's `config_schema` offers, with their values in `config` (what was set) or by default.

    Lists of values and booleans only. `booleans` is whether the client declared them; without, they are lists too. A
    list without a default has one more value, which leaves the setting to the agent.
    """
    return [_option(name, schema, config, booleans) for name, schema in _settings(agent).items()]


def set_option(agent: Agent, config: Mapping[str, Any], option: str, value: str | bool) -> JsonObject:
    """`config` with one option set, for `RunRequest.config`. Raises Invalid (path /configId or /value)."""
    schema = _settings(agent).get(option)
    if schema is None:
        raise Invalid(f"there is no option {option!r}", path="/configId")
    found = choices.choices(schema, _MOST) or []
    if isinstance(value, bool):
        chosen = next((choice for choice in found if choice.value is value), None)
    else:
        chosen = next((choice for choice in found if choice.id == value), None)
        if chosen is None and value == _unset(schema, found):
            return {key: each for key, each in config.items() if key != option}
    if chosen is None:
        raise Invalid(f"the option {option!r} has no value {value!r}", path="/value")
    return {**config, option: chosen.value}


def booleans(capabilities: JsonObject) -> bool:
    """Whether a client declared `session.configOptions.boolean` in its `clientCapabilities`."""
    value: Any = capabilities
    for key in ("session", "configOptions", "boolean"):
        value = value.get(key) if isinstance(value, dict) else None
    return value is not None and value is not False


def _settings(agent: Agent) -> dict[str, JsonObject]:
    properties = agent.config_schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {
        name: schema
        for name, schema in properties.items()
        if isinstance(schema, dict) and choices.choices(schema, _MOST) and name != AGENT_OPTION
    }


def _option(name: str, schema: JsonObject, config: Mapping[str, Any], booleans: bool) -> JsonObject:
    found = choices.choices(schema, _MOST) or []
    value: Json = config.get(name, schema.get("default", delta.ABSENT))
    current = next((choice for choice in found if delta.same(choice.value, value)), None)
    title, description = schema.get("title"), schema.get("description")
    out: JsonObject = {"id": name, "name": title if isinstance(title, str) and title else name}
    if isinstance(description, str):
        out["description"] = description
    if booleans and all(isinstance(choice.value, bool) for choice in found):
        return {**out, "type": "boolean", "currentValue": current is not None and current.value is True}
    options = [{"value": choice.id, "name": choice.label} for choice in found]
    unset = _unset(schema, found)
    if unset is not None:
        options.insert(0, {"value": unset, "name": "Default"})
    elif current is None:
        current = found[0]
    return {
        **out,
        "type": "select",
        "currentValue": unset if current is None else current.id,
        "options": options,
    }


def _unset(schema: JsonObject, found: list[choices.Choice]) -> str | None:
    """The value that leaves the setting to the agent; None where the schema says what that is."""
    if any(delta.same(choice.value, schema.get("default", delta.ABSENT)) for choice in found):
        return None
    name = UNSET
    while any(choice.id == name for choice in found):
        name += "_"
    return name
