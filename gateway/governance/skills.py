"""The skills of an operator: SKILL.md (AIP-3), whose instructions its agent is given.

A skill is a folder of the workspace (`.skills/ID` or `skills/ID`), one beside the OPERATOR.md (`skills/ID`), or the
file that its `source` names. Nothing is fetched, and no code of a skill is run.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

from gateway.governance import schemas
from gateway.governance.front_matter import MarkdownPage, Misplaced, resolve, shown
from gateway.governance.manifests import GovernanceDocument, Operator, finished, read_document
from gateway.yaml_document import DocumentError, Where

SKILL_FILE: Final = "SKILL.md"
MOST_BYTES: Final = 64 * 1024
"""Of one skill's instructions."""
MOST_IN_ALL: Final = 256 * 1024
FAILED: Final = "skill-load-failed"
TOO_LARGE: Final = "body_too_large"


class Skill(GovernanceDocument, frozen=True, kw_only=True):
    """A SKILL.md. `body` is the instructions, in Markdown; `uses` are the skills that it builds on."""

    id: str
    body: str
    version: str | None
    uses: tuple[str, ...]

    @property
    def ref(self) -> str:
        """The name that other documents refer to it by."""
        return f"ws://skills/{self.id}"

    @property
    def sha256(self) -> str:
        """Of its instructions, in hex."""
        return hashlib.sha256(self.body.encode()).hexdigest()


def load_skills(operator: Operator, workspace: Path) -> tuple[Skill, ...]:
    """Those of an operator in their order, each behind those that it builds on. Raises DocumentError."""
    found = _Loading(operator, workspace)
    for name in found.named:
        found.add(name, operator.page, ())
    size = sum(len(skill.body.encode()) for skill in found.skills.values())
    if size > MOST_IN_ALL:
        operator.page.refuse(("skills",), f"{size} bytes of instructions: at most {MOST_IN_ALL}", TOO_LARGE)
    mistakes = [*found.mistakes, *operator.page.document.mistakes]
    if mistakes:
        raise DocumentError(mistakes)
    return tuple(found.skills.values())


class _Loading:
    """One call of `load_skills`."""

    def __init__(self, operator: Operator, workspace: Path) -> None:
        self.skills: dict[str, Skill] = {}
        self.mistakes: list[Any] = []
        self.named: dict[str, tuple[dict[str, Any], Where]] = {}
        """Load the operator's skills and those that they build on."""
        self._operator = operator
        self._workspace = workspace
        self._seen: set[str] = set()
        for index, entry in enumerate(operator.raw.get("skills", ())):
            wanted = entry if isinstance(entry, dict) else {"id": entry}
            self.named.setdefault(wanted["id"], (wanted, ("skills", index)))

    def add(self, name: str, page: MarkdownPage, where: Where) -> None:
        """The skill that `page` wants at `where`, unless the operator names it, behind those that it builds on."""
        if name in self._seen:
            return
        self._seen.add(name)
        wanted: dict[str, Any] = {}
        if name in self.named:
            (wanted, where), page = self.named[name], self._operator.page
        path = self._file(name, wanted.get("source"), page, where)
        if path is None:
            return
        try:
            skill = load_skill(path)
        except DocumentError as error:
            self.mistakes += error.mistakes
            return
        if skill.id != name:
            page.refuse((*where, "source"), f"{shown(path)} is the skill '{skill.id}', not '{name}'", FAILED)
        if wanted.get("version", skill.version) != skill.version:
            has = skill.version or "no version"
            page.refuse((*where, "version"), f"{shown(path)} has {has}, not {wanted['version']}", FAILED)
        for at, other in enumerate(skill.uses):
            self.add(other, skill.page, ("metadata", "aip3", "uses", at))
        if skill.page is not page:
            self.mistakes += [one for one in skill.page.document.mistakes if one not in self.mistakes]
        self.skills[name] = skill

    def _file(self, name: str, source: str | None, page: MarkdownPage, where: Where) -> Path | None:
        """Noted where there is none. A `source` that is no file of the workspace may have been put there."""
        if source is not None and "://" not in source:
            try:
                return resolve(source, of=page.path, workspace=self._workspace)
            except Misplaced as error:
                page.refuse((*where, "source"), str(error), FAILED)
                return None
        beside = self._operator.page.folder / "skills" / name / SKILL_FILE
        for place in (f".skills/{name}/{SKILL_FILE}", f"skills/{name}/{SKILL_FILE}"):
            try:
                return resolve(place, of=self._workspace / "x", workspace=self._workspace)
            except Misplaced as error:
                if not error.missing:
                    page.refuse(where, str(error), FAILED)
                    return None
        if beside.is_file() and beside.resolve().is_relative_to(self._workspace.resolve()):
            return beside
        from_where = "" if source is None else f", and nothing is fetched from {source}"
        message = f"there is no skill '{name}' in the workspace: put it into skills/{name}/{SKILL_FILE}{from_where}"
        page.refuse(where, message, FAILED)
        return None


def load_skill(path: Path) -> Skill:
    """A SKILL.md. Raises DocumentError."""
    page = read_document(path, schemas.SKILL)
    name = page.raw.get("name")
    if isinstance(name, str) and name != page.folder.name:
        page.refuse(("name",), f"'{name}' is not the folder's name, '{page.folder.name}'")
    body = page.body.strip()
    if len(body.encode()) > MOST_BYTES:
        page.refuse((), f"{len(body.encode())} bytes of instructions: at most {MOST_BYTES}", TOO_LARGE)
    finished(page)
    own = page.raw.get("metadata", {}).get("aip3", {})
    return Skill(page=page, id=page.raw["name"], body=body, version=own.get("version"), uses=tuple(own.get("uses", ())))
