"""GOVERNANCE.md: a workspace root, or a view that extends one, merged as AIP-7 says ("Composition semantics").

`load_workspace` reads a chain of `extends` and gives the merged posture with where each key of it comes from. What
the specification lets a host be lenient about is a caution and is told; what it forbids raises DocumentError:

- `governance_workspace_invalid`: a file of the chain does not fit its schema;
- `governance_append_only_relaxation`, `governance_signing_downgrade`: a one-way switch turned back, against any
  ancestor;
- `governance_appliesto_unresolvable`: a view for a consumer that does not exist;
- `policy.not_found`: a policy that is named and not there.

A chain that ends before its root (no such parent, a cycle, more than eight files) is merged as far as it goes: so the
locks that were found hold.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.core.types import JsonObject
from gateway.governance import schemas
from gateway.governance.audit import Terms
from gateway.governance.audit.canonical import ALGORITHMS
from gateway.governance.front_matter import MarkdownPage, Misplaced, consumer_exists, found_file, resolve, shown
from gateway.governance.manifests import Policy, load_policy, read_document
from gateway.governance.matching import ASKED, RISKS, action_matches, is_of_actions
from gateway.yaml_document import DocumentError, Mistake, Where, dotted

DEPTH: Final = 8
"""Files in a chain, the view itself among them."""
INVALID = "governance_workspace_invalid"
MISSING = "governance_extends_missing"
CYCLE = "governance_extends_cycle"
TOO_DEEP = "governance_extends_depth_exceeded"
UNRESOLVABLE = "governance_appliesto_unresolvable"
DRIFT = "governance_keyring_drift"
LOOSER = "governance_view_looser"
NO_POLICY = "policy.not_found"
LOCAL_ONLY: Final = ("extends", "appliesTo")
BY_LEAF: Final = ("autonomy", "signing", "audit", "display")
BY_ID: Final = ("policies", "approvers")
SWITCHES: Final[Mapping[tuple[str, str], str]] = {
    ("audit", "appendOnly"): "governance_append_only_relaxation",
    ("signing", "required"): "governance_signing_downgrade",
}
DAYS: Final = "days:"
NO_KEY: Final = "say with which key in the route table's audit.key"


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
        return self.levels[-1].effective

    @property
    def policies(self) -> tuple[RegisteredPolicy, ...]:
        """Those in force here."""
        return self.levels[-1].policies

    # --- demands on whoever keeps the audit log ------------------------------------------------------------------

    @property
    def terms(self) -> Terms:
        """How the log is to be kept. An append-only log is kept whole, whatever its retention."""
        return Terms(
            algorithm=self._said("audit", "hashAlgo", "sha256"),
            days=None if self._said("audit", "appendOnly") is True else self._days,
            pointer=self._said("audit", "headPointerSign") is True,
        )

    def unmet(self, *, key: bool) -> Iterator[Mistake]:
        """Yield the demands that cannot be met: with one the gateway does not start. `key`: whether there is one to
        sign entries with.
        """
        required, pointer = self._said("signing", "required") is True, self.terms.pointer
        if required and not key:
            yield self._at("signing.required", f"has every audit entry signed: {NO_KEY}")
        if pointer and not key:
            yield self._at("audit.headPointerSign", f"has the log's head signed: {NO_KEY}")
        if (algorithm := self._said("signing", "algo", "ed25519")) != "ed25519" and (key or pointer or required):
            yield self._at("signing.algo", f"'{algorithm}' is not what is signed with here: write ed25519")
        if (algorithm := self.terms.algorithm) not in ALGORITHMS:
            message = f"'{algorithm}' is nothing that an audit event can name: write {' or '.join(ALGORITHMS)}"
            yield self._at("audit.hashAlgo", message)
        if self._days == 0:
            yield self._at("audit.retention", "would keep nothing: write days:1 or more, or forever")

    def met_otherwise(self, folder: Path | None) -> Iterator[Mistake]:
        """Warn of demands that are met in a way the author may not have meant. `folder`: the audit log's."""
        if self._said("audit", "appendOnly") is True and (days := self._days):
            message = f"nothing is removed after {days} days: audit.appendOnly lets nothing be deleted"
            yield self._at("audit.retention", message)
        if self._said("audit", "storage") is not None and folder == self.path.parent:
            message = f"the log is written to {shown(folder)}: only file:///FOLDER has it written elsewhere"
            yield self._at("audit.storage", message)

    @property
    def _days(self) -> int | None:
        said: str = self._said("audit", "retention", "forever")
        return int(said.removeprefix(DAYS)) if said.startswith(DAYS) else None

    def _said(self, section: str, key: str, default: Any = None) -> Any:
        return self.effective.get(section, {}).get(key, default)

    def _at(self, key: str, message: str) -> Mistake:
        origin = self.origin[key]
        return Mistake(shown(origin.path), origin.line, key, message)


def named(policies: Iterable[RegisteredPolicy], name: str) -> RegisteredPolicy | None:
    """The policy of that id, else the first of that slug."""
    found = [one for one in policies if name in (one.id, one.policy.slug)]
    return next((one for one in found if one.id == name), found[0] if found else None)


def load_workspace(path: Path, workspace: Path, *, consumers: Iterable[str] = ()) -> Governance:
    """The posture that a GOVERNANCE.md stands for. Raises DocumentError.

    `workspace` is what references may lead into (see `front_matter.py`); `consumers` are `ws://` references that exist
    although they have no folder there.
    """
    return _Loading(workspace, frozenset(consumers)).load(path)


class _Loading:
    """One call of `load_workspace`."""

    def __init__(self, workspace: Path, consumers: frozenset[str]) -> None:
        self.workspace = workspace
        self.consumers = consumers
        self.cautions: list[Mistake] = []
        self.mistakes: list[Mistake] = []
        self.policies: dict[Path, Policy | None] = {}

    def load(self, path: Path) -> Governance:
        chain = self.chain(path)
        if self.mistakes:
            raise DocumentError(self.mistakes)
        origin: dict[str, Origin] = {}
        levels: list[Level] = []
        effective: JsonObject = {}
        bound: dict[str, RegisteredPolicy] = {}
        for page in chain:
            _check_switches(page, effective, origin)
            effective = _merged(effective, page, origin)
            bound |= self.registered(page)
            own = tuple(bound[entry["id"]] for entry in effective.get("policies", ()) if entry["id"] in bound)
            approvers = tuple(_approver(entry) for entry in effective.get("approvers", ()))
            levels.append(Level(effective=effective, policies=own, approvers=approvers))
            self.default(page, levels[-1])
            self.escalation(page)
            if len(levels) > 1:
                self.looser(page, levels[-2], levels[-1])
            self.keys(page, chain[: len(levels) - 1])
        for reference in chain[-1].raw.get("appliesTo", ()):
            known = reference in self.consumers
            if not known and not consumer_exists(reference, of=chain[-1].path, workspace=self.workspace):
                index = chain[-1].raw["appliesTo"].index(reference)
                chain[-1].refuse(("appliesTo", index), f"there is no {reference}", UNRESOLVABLE)
        found = [*self.mistakes, *(mistake for page in chain for mistake in page.document.mistakes)]
        if found:
            raise DocumentError(found)
        return Governance(
            origin=origin,
            chain=tuple(chain),
            levels=tuple(levels),
            cautions=tuple(dict.fromkeys(self.cautions)),
        )

    # --- the chain ----------------------------------------------------------------------------------------------

    def chain(self, path: Path) -> list[MarkdownPage]:
        """Root first. Ends early with a caution where it is broken."""
        page = self.page(path)
        chain, seen = [page], {os.path.realpath(page.path)}
        while isinstance(extends := page.raw.get("extends"), str) and not self.mistakes:
            try:
                parent = resolve(extends, of=page.path, workspace=self.workspace)
            except Misplaced as error:
                if error.missing:
                    self.caution(page, ("extends",), f"{error}; going on without it", MISSING)
                else:
                    page.refuse(("extends",), str(error))
                    self.mistakes += page.document.mistakes
                break
            if os.path.realpath(parent) in seen:
                self.caution(page, ("extends",), f"{shown(parent)} is in the chain already; going on without", CYCLE)
                break
            if len(chain) == DEPTH:
                self.caution(page, ("extends",), f"more than {DEPTH} files; going on without {shown(parent)}", TOO_DEEP)
                break
            page = self.page(parent)
            chain.insert(0, page)
            seen.add(os.path.realpath(page.path))
        return chain

    def page(self, path: Path) -> MarkdownPage:
        page = read_document(path, schemas.GOVERNANCE, "workspace", INVALID)
        for key in BY_ID:
            _once(page, key)
        self.mistakes += page.document.mistakes
        return page

    def caution(self, page: MarkdownPage, where: Where, message: str, code: str) -> None:
        self.cautions.append(page.mistake(where, message, code))

    # --- what it refers to --------------------------------------------------------------------------------------

    def registered(self, page: MarkdownPage) -> dict[str, RegisteredPolicy]:
        """The policies of one file, by id."""
        found: dict[str, RegisteredPolicy] = {}
        for index, entry in enumerate(page.raw.get("policies", ())):
            where: Where = ("policies", index, "ref")
            try:
                file = resolve(entry["ref"], of=page.path, workspace=self.workspace)
            except Misplaced as error:
                page.refuse(where, str(error), NO_POLICY)
                continue
            policy = self.policy(file)
            if policy is None:
                continue
            found[entry["id"]] = RegisteredPolicy(
                id=entry["id"],
                policy=policy,
                applies_to=entry.get("appliesTo", "*"),
                severity=entry.get("severity", "error"),
            )
            if policy.decision == "allow" and policy.budget is None and "*" in policy.action + (policy.subject or "*"):
                self.caution(page, where, f"{policy.slug} allows without a budget whatever its wildcard matches", "")
        return found

    def policy(self, file: Path) -> Policy | None:
        if file not in self.policies:
            try:
                self.policies[file] = load_policy(file)
            except DocumentError as error:
                self.mistakes += error.mistakes
                self.policies[file] = None
        return self.policies[file]

    def default(self, page: MarkdownPage, level: Level) -> None:
        name = (page.raw.get("autonomy", {}).get("defaultApproval") or "").partition("policy:")[2]
        if name and named(level.policies, name) is None:
            have = ", ".join(one.id for one in level.policies) or "none"
            message = f"no policy '{name}' is registered; have {have}"
            page.refuse(("autonomy", "defaultApproval"), message, NO_POLICY)

    def escalation(self, page: MarkdownPage) -> None:
        """An escalation of approvals that nobody here is ever asked for is a promise that is not kept."""
        name: str = page.raw.get("autonomy", {}).get("approvalEscalation", {}).get("from", "")
        if is_of_actions(name) and not any(action_matches(name, action, RISKS[-1]) for action in ASKED):
            message = (
                f"nobody is asked about '{name}' here: write {' or '.join(ASKED)}, or a class such as mutates or *"
            )
            page.refuse(("autonomy", "approvalEscalation", "from"), message)

    def looser(self, page: MarkdownPage, parent: Level, child: Level) -> None:
        """Cautions for what a view says more loosely than its parent: merged as said, without effect on decisions."""
        note = "looser than what it extends: decisions stay as strict as there"
        before, after = parent.autonomy, child.autonomy
        if before is not None and after is not None and after > before:
            self.caution(page, ("autonomy", "level"), f"{after} is {note} ({before})", LOOSER)
        ranks = {"auto": 0, "on-mutate": 1, "always": 2}
        was, now = parent.default_approval or "", child.default_approval or ""
        if ranks.get(now, 2) < ranks.get(was, 0):
            self.caution(page, ("autonomy", "defaultApproval"), f"{now} is {note} ({was})", LOOSER)
        severities = ("info", "warn", "error")
        decisions = ("allow", "require-approval", "escalate", "deny")
        own = {entry["id"]: index for index, entry in enumerate(page.raw.get("policies", ()))}
        for old in parent.policies:
            new = next((one for one in child.policies if one.id == old.id), old)
            if decisions.index(new.policy.decision) < decisions.index(old.policy.decision):
                message = f"{new.policy.decision} is {note} ({old.policy.decision})"
                self.caution(page, ("policies", own[new.id], "ref"), message, LOOSER)
            if severities.index(new.severity) < severities.index(old.severity):
                where: Where = ("policies", own[new.id], "severity")
                self.caution(page, where, f"{new.severity} is {note} ({old.severity})", LOOSER)

    def keys(self, page: MarkdownPage, above: Iterable[MarkdownPage]) -> None:
        """A keyring is in the workspace. Cautions: there is none, or it has keys that the one before has not."""
        where: Where = ("signing", "keyring")
        given = page.raw.get("signing", {}).get("keyring")
        if given is None:
            return
        try:
            has = _key_ids(resolve(given, of=page.path, workspace=self.workspace))
        except Misplaced as error:
            if error.missing:
                self.caution(page, where, str(error), "")
            else:
                page.refuse(where, str(error))
            return
        before = [(one, one.raw.get("signing", {}).get("keyring")) for one in above]
        for parent, keyring in reversed([(one, keyring) for one, keyring in before if keyring is not None]):
            had = _key_ids(found_file(keyring, of=parent.path, workspace=self.workspace))
            if more := sorted(has - had):
                self.caution(page, where, f"has keys that {shown(parent.path)} has not: {', '.join(more)}", DRIFT)
            return


def _once(page: MarkdownPage, key: str) -> None:
    """Ids are what merging goes by: each once in a file."""
    seen: set[str] = set()
    entries = page.raw.get(key)
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        name = entry.get("id") if isinstance(entry, dict) else None
        if isinstance(name, str) and name in seen:
            page.refuse((key, index, "id"), f"'{name}' is in the list already", INVALID)
        if isinstance(name, str):
            seen.add(name)


def _approver(entry: JsonObject) -> Approver:
    return Approver(
        id=entry["id"],
        role=entry.get("role", ""),
        may=tuple(entry.get("canApprove", ())),
        quorum=int(entry.get("quorum", "1").partition("-")[0]),
    )


def _key_ids(file: Path | None) -> set[str]:
    """The ids of the keys in a keyring; none where there is none to read."""
    try:
        found = json.loads(file.read_bytes()) if file else {}
    except (OSError, ValueError):
        return set()
    keys = found.get("keys") if isinstance(found, dict) else None
    return {str(key["id"]) for key in keys or () if isinstance(key, dict) and "id" in key}


def _check_switches(page: MarkdownPage, above: JsonObject, origin: Mapping[str, Origin]) -> None:
    """Refuse a page that turns back a one-way switch. `above` is the merged posture of its ancestors."""
    for (section, key), code in SWITCHES.items():
        if above.get(section, {}).get(key) is True and page.raw.get(section, {}).get(key) is False:
            locked = origin[f"{section}.{key}"]
            message = f"cannot be turned off: {shown(locked.path)}:{locked.line} has locked it"
            page.refuse((section, key), message, code)


def _merged(parent: JsonObject, page: MarkdownPage, origin: dict[str, Origin]) -> JsonObject:
    """Merge a page into its parent's posture, key by key as AIP-7's table says. Notes the origin of each value."""
    result = {key: value for key, value in parent.items() if key not in LOCAL_ONLY}
    for key in LOCAL_ONLY:
        origin.pop(key, None)
    for key, value in page.raw.items():
        if key in BY_LEAF:
            result[key] = {**result.get(key, {}), **value}
            for leaf in value:
                origin[f"{key}.{leaf}"] = Origin(page.path, page.document.line((key, leaf)))
        elif key in BY_ID:
            entries = {entry["id"]: entry for entry in result.get(key, ())}
            for index, entry in enumerate(value):
                entries[entry["id"]] = entry
                origin[f"{key}.{entry['id']}"] = Origin(page.path, page.document.line((key, index)))
            result[key] = list(entries.values())
        elif key == "metadata":
            result[key] = _deep(result.get(key, {}), value, page, ("metadata",), origin)
        else:
            result[key] = value
            origin[key] = Origin(page.path, page.document.line((key,)))
    return result


def _deep(base: Any, top: JsonObject, page: MarkdownPage, where: Where, origin: dict[str, Origin]) -> JsonObject:
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in top.items():
        here = (*where, key)
        if isinstance(value, dict):
            result[key] = _deep(result.get(key), value, page, here, origin)
        else:
            result[key] = value
            origin[dotted(here)] = Origin(page.path, page.document.line(here))
    return result
