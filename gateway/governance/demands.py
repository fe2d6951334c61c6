"""A posture's demands on the gateway that keeps its audit log. If one cannot be met, the gateway does not start.

`terms` returns those that are met, `unmet` those that cannot be, as mistakes in the file that makes them, and
`cautions` warns of demands that a reader might understand differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gateway.governance.audit import Terms
from gateway.governance.audit.canonical import ALGORITHMS
from gateway.governance.front_matter import shown
from gateway.governance.posture import Governance
from gateway.yaml_document import Mistake

DAYS: Final = "days:"
NO_KEY: Final = "say with which key in the route table's audit.key"


def terms(governance: Governance | None) -> Terms:
    """Return how a log is to be kept. An append-only log is kept whole, whatever its retention."""
    if governance is None:
        return Terms()
    audit = _section(governance, "audit")
    return Terms(
        algorithm=audit.get("hashAlgo", "sha256"),
        days=None if governance.append_only else _days(governance),
        pointer=audit.get("headPointerSign") is True,
    )


def unmet(governance: Governance | None, *, key: bool) -> Iterator[Mistake]:
    """Yield the demands that cannot be met. `key`: whether there is one to sign entries with."""
    if governance is None:
        return
    audit, signing = _section(governance, "audit"), _section(governance, "signing")
    pointer = audit.get("headPointerSign") is True
    if governance.signing_required and not key:
        yield _at(governance, "signing.required", f"has every audit entry signed: {NO_KEY}")
    if pointer and not key:
        yield _at(governance, "audit.headPointerSign", f"has the log's head signed: {NO_KEY}")
    if (algorithm := signing.get("algo", "ed25519")) != "ed25519" and (key or pointer or governance.signing_required):
        yield _at(governance, "signing.algo", f"'{algorithm}' is not what is signed with here: write ed25519")
    if (algorithm := audit.get("hashAlgo", "sha256")) not in ALGORITHMS:
        message = f"'{algorithm}' is nothing that an audit event can name: write {' or '.join(ALGORITHMS)}"
        yield _at(governance, "audit.hashAlgo", message)
    if _days(governance) == 0:
        yield _at(governance, "audit.retention", "would keep nothing: write days:1 or more, or forever")


def cautions(governance: Governance | None, folder: Path | None) -> Iterator[Mistake]:
    """Warn of demands that are met in a way the author may not have meant. `folder`: the audit log's."""
    if governance is None:
        return
    audit = _section(governance, "audit")
    if governance.append_only and (days := _days(governance)):
        message = f"nothing is removed after {days} days: audit.appendOnly lets nothing be deleted"
        yield _at(governance, "audit.retention", message)
    stored = audit.get("storage")
    if stored is not None and folder == governance.path.parent:
        message = f"the log is written to {shown(governance.path.parent)}: only file:///FOLDER has it written elsewhere"
        yield _at(governance, "audit.storage", message)


def _section(governance: Governance, name: str) -> dict[str, Any]:
    found: dict[str, Any] = governance.effective.get(name, {})
    return found


def _days(governance: Governance) -> int | None:
    said: str = _section(governance, "audit").get("retention", "forever")
    return int(said.removeprefix(DAYS)) if said.startswith(DAYS) else None


def _at(governance: Governance, key: str, message: str) -> Mistake:
    origin = governance.origin[key]
    return Mistake(shown(origin.path), origin.line, key, message)
