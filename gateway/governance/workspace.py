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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from gateway.core.types import JsonObject
from gateway.governance import schemas
from gateway.governance.front_matter import MarkdownPage, shown
from gateway.governance.manifests import Policy, load_policy, read_document
from gateway.governance.matching import action_matches, is_of_actions
from gateway.governance.policy import ASKED, RISKS
from gateway.governance.posture import Approver, Governance, Level, Origin, RegisteredPolicy, named
from gateway.governance.references import Misplaced, consumer_exists, found_file, resolve
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


def load_workspace(path: Path, workspace: Path, *, consumers: Iterable[str] = ()) -> Governance:
    """The posture that a GOVERNANCE.md stands for. Raises DocumentError.

    `workspace` is what references may lead into (see `references.py`); `consumers` are `ws://` references that exist
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
