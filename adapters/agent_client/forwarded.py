"""Params and results that are passed on: some members are read or set, session ids exchanged; all else stays. What they
say of a session's modes and options is remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from adapters.agent_client.wire import PARAMS_META, CancelRequest, JsonObject, SessionUpdate
from gateway.core.errors import AgentBroken
from gateway.wire import jsonrpc

NOTHING = Raw(b"{}")
_ID = b'"sessionId"'

_objects = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_string = msgspec.json.Decoder(str).decode
_update = msgspec.json.Decoder(SessionUpdate).decode


class _OfSession(Struct, rename="camel", gc=False):
    session_id: str | None = None


_of_session = msgspec.json.Decoder(_OfSession).decode


def session_of(raw: Raw) -> str | None:
    """The session that `params` or a `result` names; None where it names none, or is no object."""
    if not raw:
        return None
    try:
        return _of_session(raw).session_id
    except (ValueError, RecursionError):  # not an object, or half a surrogate pair somewhere
        pass
    try:
        return jsonrpc.unpack(raw, _OfSession).session_id
    except (ValueError, RecursionError):
        return None


def request_of(params: Raw) -> jsonrpc.Id:
    """The request that a cancellation is about; None, which is no request's id, if it names none."""
    try:
        return jsonrpc.unpack(params or NOTHING, CancelRequest).request_id
    except (ValueError, RecursionError):
        return None


def update_of(params: Raw) -> tuple[str, Raw]:
    """The session and the update of a `session/update`, which takes the `_meta` beside it along. Raises AgentBroken."""
    try:
        found = _update(params)
        if found.meta:
            return found.session_id, jsonrpc.replaced(found.update, **{PARAMS_META: found.meta})
        return found.session_id, found.update
    except (ValueError, RecursionError):
        session, update = session_of(params), jsonrpc.members(params).get("update")
        if session is None or not update:
            raise AgentBroken("a session/update without a session or an update") from None
        return session, update


def with_session(params: Raw, session: str) -> Raw:
    """The same params for another session; as they are if they name none."""
    if not params or _ID not in bytes(params):
        return params
    found = jsonrpc.members(params)
    return jsonrpc.replaced(params, sessionId=session) if "sessionId" in found else params


def renamed(result: Raw, name: Callable[[str], str]) -> Raw:
    """An answer with the session ids at its top, and in its list of sessions, exchanged by `name`."""
    if not result or _ID not in bytes(result):
        return result
    found = jsonrpc.members(result)
    changed = _rename(found, name)
    if "sessions" in found:
        try:
            listed = _objects(found["sessions"])
        except (ValueError, RecursionError):
            listed = []
        if any([_rename(each, name) for each in listed]):
            found["sessions"] = jsonrpc.raw(listed)
            changed = True
    return jsonrpc.raw(found) if changed else result


def _rename(found: dict[str, Raw], name: Callable[[str], str]) -> bool:
    try:
        session = _string(found["sessionId"])
    except (KeyError, ValueError):
        return False
    if (new := name(session)) == session:
        return False
    found["sessionId"] = jsonrpc.raw(new)
    return True


class KnownSettings:
    """A session's modes and options as its agent last said, in version 1's words; None where it said nothing."""

    def __init__(self) -> None:
        self.modes: JsonObject | None = None
        self.options: list[Any] | None = None

    def answered(self, result: JsonObject) -> None:
        modes, options = result.get("modes"), result.get("configOptions")
        self.modes = modes if isinstance(modes, dict) else self.modes
        self.options = options if isinstance(options, list) else self.options

    def heard(self, kind: str, data: Any) -> None:
        """Learn from an update, or from what was noted of an answer: `modes`, `config_options`."""
        if kind == "modes":
            self.answered({"modes": data})
        elif kind == "config_options":
            self.answered({"configOptions": data})
        elif kind == "config_option_update" and isinstance(data, dict):
            self.answered({"configOptions": data.get("configOptions")})
        elif kind == "current_mode_update" and isinstance(data, dict) and self.modes is not None:
            current = data.get("currentModeId", self.modes.get("currentModeId"))
            self.modes = {**self.modes, "currentModeId": current}
