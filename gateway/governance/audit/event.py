"""Events to record, and entries that are recorded. The shapes are AIP-7's `audit-event`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from gateway.core.errors import GatewayError
from gateway.core.types import JsonObject

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
            raise ValueError(f"{text!r} is not SEQ:HASH")
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
