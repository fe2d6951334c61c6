"""Requests between client and agent, version 1 to 2 and back (docs: migration; schema: meta.json).

Between the halves of the adapter requests are version 1's. The inbound half turns what a client of version 2 asks into
that (`to_v1`) and answers it (`result_to_v2`); the outbound half asks an agent of version 2 (`to_v2`) and turns its
answer back (`result_to_v1`). A method that is not in CHANGED is the same in both, params and result. Unknown keys are
kept. Nothing here raises.
"""

from __future__ import annotations

from typing import Any, Final

from adapters.agent_client.codec.v2 import conversions
from adapters.agent_client.codec.v2.wire import MODE
from adapters.agent_client.wire import OPENING, OPTIONS
from gateway.core.types import JsonObject

SET_OPTION: Final = "session/set_config_option"
_NAMES_V1: Final = {"auth/login": "authenticate", "auth/logout": "logout"}
_NAMES_V2: Final = {old: new for new, old in _NAMES_V1.items()}
CHANGED: Final = frozenset((*_NAMES_V1, *_NAMES_V2, *OPTIONS))
"""Methods of version 1 and 2 whose name, params or result differ. `initialize` is agents.py's."""
_START: Final[JsonObject] = {"type": "start"}


def to_v1(method: str, params: JsonObject) -> tuple[str, JsonObject]:
    """A client's request of version 2 in version 1's words: (method, params).

    `session/resume` from the start is `session/load`. Where an agent has modes and no option for them, setting the
    option "mode" is `set_mode` (below) instead.
    """
    if method in _NAMES_V1:
        return _NAMES_V1[method], params
    if method in OPENING:
        params = {**params, "mcpServers": conversions.servers_to_v1(params.get("mcpServers"))}
        start = params.get("replayFrom")
        if method == "session/resume" and isinstance(start, dict) and start.get("type") == "start":
            rest = {key: value for key, value in params.items() if key != "replayFrom" or start != _START}
            return "session/load", rest
        return method, params
    if method == SET_OPTION and params.get("type") == "id":
        return method, {key: value for key, value in params.items() if key != "type"}
    return method, params


def to_v2(method: str, params: JsonObject, *, mode: str = MODE) -> tuple[str, JsonObject]:
    """A request of version 1 for an agent of version 2. `mode` is the id of its option that is the mode."""
    if method in _NAMES_V2:
        return _NAMES_V2[method], params
    if method in OPENING:
        if "mcpServers" in params:
            params = {**params, "mcpServers": conversions.servers_to_v2(params["mcpServers"])}
        if method == "session/load":
            return "session/resume", {**params, "replayFrom": params.get("replayFrom", _START)}
        return method, params
    if method == SET_OPTION and "type" not in params:
        kind = "boolean" if isinstance(params.get("value"), bool) else "id"
        return method, {**params, "type": kind}
    if method == "session/set_mode":
        rest = {key: value for key, value in params.items() if key != "modeId"}
        return SET_OPTION, {**rest, "configId": mode, "type": "id", "value": params.get("modeId")}
    return method, params


def result_to_v1(method: str, result: Any) -> Any:
    """Convert a version 2 agent's answer to a request that is called `method` in version 1.

    The option that is the mode is told as `modes` too where a session is opened. A mode that is set is an option
    there, and the answer says what became of all options.
    """
    if not isinstance(result, dict) or method not in OPTIONS or not isinstance(result.get("configOptions"), list):
        return result
    options = conversions.options_to_v1(result["configOptions"])
    modes = conversions.modes_of(options) if method in OPENING else None
    return {**result, "configOptions": options, **({"modes": modes} if modes is not None else {})}


def result_to_v2(method: str, result: Any, *, modes: Any = None) -> Any:
    """The answer of a request that is called `method` in version 1, for a client of version 2.

    The session's modes become an option, unless there is one for them. `modes`: as they are now, where the result does
    not say them (`session/set_config_option`; and `session/set_mode`, after which `states.options` has them).
    """
    if not isinstance(result, dict) or method not in OPTIONS:
        return result
    modes = result.get("modes", modes)
    options = conversions.options_to_v2(result.get("configOptions"), modes)
    rest = {key: value for key, value in result.items() if key not in ("modes", "configOptions")}
    said = bool(options) or isinstance(result.get("configOptions"), list) or method not in OPENING
    return {**rest, "configOptions": options} if said else rest
