"""One line of a log as it is read: AIP-7's `audit-event` schema as a type, much faster than a schema validator."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from gateway.core.types import JsonObject
from gateway.governance.audit.event import Action, Actor, AppliedPolicy, AuditSubject

SCHEMA = "agentgovernance/v1"
DOCTYPE = "audit-event"
LONGEST = 8 * 1024 * 1024
"""Bytes of a line that is still read: bounds the memory of who reads a log that somebody tampered with."""


class AuditLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry as AIP-7 requires it. Strings stay as they are, so that the line can be written again unchanged."""

    schema: Literal["agentgovernance/v1"] = msgspec.field(name="$schema")
    doctype: Literal["audit-event"]
    seq: Annotated[int, msgspec.Meta(ge=0)]
    ts: Annotated[datetime, msgspec.Meta(tz=True)]
    actor: Actor
    action: Action
    subject: AuditSubject
    input: JsonObject | msgspec.UnsetType = msgspec.UNSET
    output: JsonObject | msgspec.UnsetType = msgspec.UNSET
    policy: AppliedPolicy | msgspec.UnsetType = msgspec.UNSET
    signatures: list[str] | msgspec.UnsetType = msgspec.UNSET
    prevHash: Annotated[str, msgspec.Meta(pattern=r"^(GENESIS|[0-9a-f]{32,128})\Z")]
    hash: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32,128}\Z")]
    hashAlg: Literal["sha256", "sha512", "blake2b-256"] = "sha256"
    metadata: JsonObject = {}


def decode(data: bytes) -> dict[str, Any]:
    """The object on a line. Raises ValueError with the reason."""
    try:
        entry = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"no JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(entry, dict):
        raise ValueError("no JSON object")
    return entry
