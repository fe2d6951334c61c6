"""Events to record, entries that are recorded, and lines as they are read. The shapes are AIP-7's `audit-event`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from gateway.core.errors import GatewayError
from gateway.core.types import JsonObject

SCHEMA = "agentgovernance/v1"
DOCTYPE = "audit-event"
LONGEST = 8 * 1024 * 1024
"""Bytes of a line that is still read: bounds the memory of who reads a log that somebody tampered with."""

Text32 = Annotated[str, msgspec.Meta(max_length=32)]
Text64 = Annotated[str, msgspec.Meta(max_length=64)]
Text256 = Annotated[str, msgspec.Meta(max_length=256)]
Text1024 = Annotated[str, msgspec.Meta(max_length=1024)]
Principal = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Action = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9._-]*[a-z0-9]\Z", max_length=128)]
Slug = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9-]*[a-z0-9]\Z", min_length=2, max_length=64)]


class AuditBroken(GatewayError):
    """The log on disk is not as it was written. It takes no entries until a person has repaired it."""


class Actor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The actor: `operator:atlas`, `user:abc123`, an e-mail address. `role`: the actor's role at the time."""

    id: Principal
    role: Text64 | msgspec.UnsetType = msgspec.UNSET


GATEWAY = Actor("host:interlingua", "system")
"""The actor of the gateway's own entries."""


class AuditSubject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The object of an event: a tool, a session, a file."""

    kind: Text32
    ref: Text256 | msgspec.UnsetType = msgspec.UNSET
    path: Text1024 | msgspec.UnsetType = msgspec.UNSET


class AppliedPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The slug and decision of the policy that applied."""

    ref: Slug
    decision: Literal["allow", "deny", "require-approval", "escalate"] | msgspec.UnsetType = msgspec.UNSET


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to record. `input` and `output` are JSON objects; None is left out.

    `metadata` has a JSON object per vendor or specification (`aip44`, ...); `interlingua` is the log's own.
    """

    actor: Actor
    action: Action
    subject: AuditSubject
    input: JsonObject | None = None
    output: JsonObject | None = None
    policy: AppliedPolicy | None = None
    signatures: tuple[str, ...] = ()
    """Workspace-relative paths of the approvers' signature files."""
    metadata: JsonObject = {}


class LogHead(msgspec.Struct, frozen=True):
    """The newest entry of a log, or any other: its number, from 0, and its hash in hex."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> LogHead:
        """Parse SEQ:HASH. Raises ValueError."""
        seq, colon, value = text.strip().partition(":")
        if not colon or not seq.isascii() or not seq.isdigit() or not re.fullmatch("[0-9a-f]{32,128}", value):
            raise ValueError(f"{text!r} is not SEQ:HASH, an entry's number and its hash in hex")
        return cls(int(seq), value)


class AuditEntry(msgspec.Struct, frozen=True):
    """An event on disk: its number, its time (RFC 3339, UTC), its hash and that of the entry before."""

    seq: int
    ts: str
    hash: str
    prev_hash: str

    @property
    def head(self) -> LogHead:
        return LogHead(self.seq, self.hash)


class AuditLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry as it is read: AIP-7's schema as a type, much faster than a validator. Strings stay as they are, so that
    the line can be written again unchanged.
    """

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
