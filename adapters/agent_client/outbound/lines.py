"""What an agent sends, read in one go where it is what nearly everything is: a chunk of text."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct

from adapters.agent_client.codec.updates_in import Chunk
from gateway.transport.pipe import Unreadable

UPDATE: Final = "session/update"


class Said(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """The `params` of a `session/update` that is a chunk of text, and not a key more."""

    session_id: str
    update: Chunk


class _Line(Struct, forbid_unknown_fields=True, gc=False):
    jsonrpc: Literal["2.0"]
    method: Literal["session/update"]
    params: Said


_line: Final = msgspec.json.Decoder(_Line).decode


def said(line: bytes | Unreadable) -> Said | None:
    """The chunk of text that a message is; None for anything else.

    Else a line is read three times, for its envelope, for whose session it is, and for what it says.
    """
    try:
        return _line(line).params  # type: ignore[arg-type]
    except (ValueError, TypeError, RecursionError):
        return None
