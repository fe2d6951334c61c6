"""The posture of a GOVERNANCE.md, merged down a chain of `extends`. Made by `workspace.load_workspace`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from gateway.core.types import JsonObject
from gateway.governance.front_matter import MarkdownPage
from gateway.governance.manifests import Policy
from gateway.yaml_document import Mistake


class Origin(msgspec.Struct, frozen=True):
    """The place where a value was written."""

    path: Path
    line: int


class RegisteredPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy and how the posture binds it."""

    id: str
    policy: Policy
    applies_to: str = "*"
    severity: str = "error"
    """error: it decides; warn and info: it is only told."""


class Approver(msgspec.Struct, frozen=True, kw_only=True):
    """An approver's rights. `quorum`: how many of them are needed. An empty `may` removes an inherited approver."""

    id: str
    role: str = ""
    may: tuple[str, ...] = ()
    quorum: int = 1


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """The posture as it is merged down to one file of the chain."""

    effective: JsonObject
    policies: tuple[RegisteredPolicy, ...]
    approvers: tuple[Approver, ...]

    @property
    def autonomy(self) -> int | None:
        """The ceiling, 0 to 3."""
        level: int | None = self.effective.get("autonomy", {}).get("level")
        return level

    @property
    def default_approval(self) -> str | None:
        """The default for an action that no policy matches: auto, always, on-mutate, policy:NAME."""
        found: str | None = self.effective.get("autonomy", {}).get("defaultApproval")
        return found

    @property
    def escalation(self) -> tuple[str, str] | None:
        """The class of approvals without an approver, and who gets them (`approvalEscalation`)."""
        found: dict[str, str] | None = self.effective.get("autonomy", {}).get("approvalEscalation")
        return (found["from"], found["to"]) if found is not None else None

    @property
    def escalate_to(self) -> str | None:
        """The decider of escalated actions."""
        found: str | None = self.effective.get("escalateTo")
        return found


class Governance(msgspec.Struct, frozen=True, kw_only=True):
    """A merged posture. `levels` and `chain` go from the root to the file that was asked for."""

    origin: Mapping[str, Origin]
    """The origins by dotted key: a leaf of `effective`, or `policies.ID`, `approvers.ID`."""
    chain: tuple[MarkdownPage, ...]
    levels: tuple[Level, ...]
    cautions: tuple[Mistake, ...]

    @property
    def path(self) -> Path:
        """The file that was asked for."""
        return self.chain[-1].path

    @property
    def effective(self) -> JsonObject:
        """Everything that it says, merged."""
        return self.levels[-1].effective

    @property
    def append_only(self) -> bool:
        """Whether the audit log is locked."""
        return self.effective.get("audit", {}).get("appendOnly") is True

    @property
    def signing_required(self) -> bool:
        """Whether every audit event must be signed."""
        return self.effective.get("signing", {}).get("required") is True

    @property
    def policies(self) -> tuple[RegisteredPolicy, ...]:
        """Those in force here."""
        return self.levels[-1].policies


def named(policies: Iterable[RegisteredPolicy], name: str) -> RegisteredPolicy | None:
    """The policy of that id, else the first of that slug."""
    found = [one for one in policies if name in (one.id, one.policy.slug)]
    return next((one for one in found if one.id == name), found[0] if found else None)
