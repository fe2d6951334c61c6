"""An agent's JSON, decoded one level at a time: members stay encoded (`msgspec.Raw`) until somebody needs them."""

from __future__ import annotations

import json
import re
from typing import NoReturn

import msgspec

from adapters.agent_connect.wire_stream import ABSENT, Fields, StreamedMessage, decode_fields
from gateway.core import delta as deltas
from gateway.core.errors import AgentBroken
from gateway.core.types import Json, JsonObject

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_KNOWN = {"type", "run_id", "status", "values", "result", "update"}


def fields(data: bytes, what: str) -> Fields:
    """The members of an object. Raises AgentBroken for anything else: "`what` that is not JSON", and why."""
    try:
        return decode_fields(data)
    except msgspec.ValidationError:
        raise AgentBroken(f"{what} that is not a JSON object", detail=repr(data[:200])) from None
    except RecursionError:
        raise AgentBroken(f"{what} that is nested too deep") from None
    except ValueError as error:
        return _mended(data) or _no_json(what, error, data)


def _mended(data: bytes) -> Fields | None:
    """Half of a surrogate pair, which msgspec refuses and servers in use send when they cut a text in two."""
    if not _SURROGATE.search(data):
        return None
    try:
        whole = deltas.decode(data)
    except AgentBroken:
        return None
    if not isinstance(whole, dict):
        return None
    return {name: msgspec.Raw(json.dumps(member).encode()) for name, member in whole.items()}


def _no_json(what: str, error: Exception, data: bytes) -> NoReturn:
    raise AgentBroken(f"{what} that is not JSON: {error}", detail=repr(data[:200])) from None


def value(raw: msgspec.Raw | None, name: str) -> Json:
    """The value of the member of that name, None if it is not there. Raises AgentBroken."""
    return None if raw is None or raw is ABSENT else deltas.sound(deltas.decode(bytes(raw), f"`{name}`"))


def document(raw: msgspec.Raw) -> msgspec.Raw:
    """A whole document as it came, known to be one. Raises AgentBroken if it is none.

    Half a surrogate pair is mended here: its other half will not come any more.
    """
    data = bytes(raw)
    try:
        msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return msgspec.Raw(deltas.encode(value(raw, "values")))
    return msgspec.Raw(data)


def text(raw: msgspec.Raw | None, name: str) -> str | None:
    """A member that is a string, else None."""
    found = value(raw, name) if raw is not None and bytes(raw)[:1] == b'"' else None
    return found if isinstance(found, str) else None


def beyond(members: Fields) -> JsonObject | None:
    """The fields of a message that have no place in the core."""
    return {name: value(raw, name) for name, raw in members.items() if name not in _KNOWN} or None


def messages(said: Json) -> tuple[StreamedMessage, ...]:
    """A list of messages; empty if it is none."""
    try:
        return tuple(msgspec.convert(said, list[StreamedMessage])) if said else ()
    except msgspec.ValidationError:
        return ()
