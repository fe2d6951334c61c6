"""Reads the head of a message without the rest: which run it belongs to, and its kind."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.wire import jsonrpc

EVENT: Final = "interlingua/event"
"""Key of an update's `_meta`: an event that text cannot express, in the form of gateway/core/events.py."""


class _Meta(Struct, gc=False):
    correlationId: Any = None
    progressToken: Any = None


class _Content(Struct, gc=False):
    type: Any = None


class MessageHead(Struct, gc=False):
    """The head of an `agent/message`: `kind` is `content.type`."""

    source: str | None = None
    target: str | None = None
    kind: str | None = None


class _Head(Struct, gc=False):
    source: Any = None
    target: Any = None
    content: _Content | None = None


class _OnlyMeta(Struct, gc=False):
    meta: _Meta | None = msgspec.field(default=None, name="_meta")


class _Token(Struct, gc=False):
    progressToken: Any = None


class _Said(Struct, gc=False, forbid_unknown_fields=True):
    text: str


class _Payload(Struct, gc=False, forbid_unknown_fields=True):
    messages: list[_Said]


class _Update(Struct, gc=False):
    type: Literal["update"]
    payload: _Payload


class _EventMark(Struct, gc=False):
    event: Raw | UnsetType = msgspec.field(default=UNSET, name=EVENT)


class _Plain(Struct, gc=False):
    content: _Update
    meta: _EventMark | UnsetType = msgspec.field(default=UNSET, name="_meta")


_decode_plain = msgspec.json.Decoder(_Plain).decode
_decode_meta = msgspec.json.Decoder(_OnlyMeta).decode
_decode_token = msgspec.json.Decoder(_Token).decode
_decode_head = msgspec.json.Decoder(_Head).decode


def correlation(method: str, params: Raw) -> str | None:
    """The correlation id of anything that may carry one; None where it has none. See `gateway.mcp.client.Keyed`."""
    if b"correlationId" not in bytes(params):
        return None
    meta = _read(params, _decode_meta, _OnlyMeta)
    found = None if meta is None or meta.meta is None else meta.meta.correlationId
    return found if isinstance(found, str) and found else None


def plain_update(params: Raw) -> str | None:
    """The text of an `agent/message` that is an update and nothing but text, as nearly all are; None of any other."""
    try:
        found = _decode_plain(params)
    except (ValueError, RecursionError):
        return None
    if found.meta is not UNSET and found.meta.event is not UNSET:
        return None
    said = found.content.payload.messages
    return said[0].text if len(said) == 1 else "\n".join(each.text for each in said)


def token(params: Raw) -> str | None:
    """The progress token that a `notifications/progress` is about, if it is a text, as ours are."""
    found = _read(params, _decode_token, _Token)
    return found.progressToken if found is not None and isinstance(found.progressToken, str) else None


def head(params: Raw) -> MessageHead:
    """The head of an `agent/message`; an empty one where it cannot be read."""
    found = _read(params, _decode_head, _Head)
    if found is None:
        return MessageHead()
    kind = None if found.content is None else found.content.type
    return MessageHead(*(each if isinstance(each, str) else None for each in (found.source, found.target, kind)))


def _read(params: Raw, decode: Any, kind: Any) -> Any:
    if not params:
        return None
    try:
        return decode(params)
    except (ValueError, RecursionError):
        pass
    try:
        return jsonrpc.unpack(params, kind)
    except (ValueError, RecursionError):
        return None
