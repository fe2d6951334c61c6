"""The documents that govern one route: an ACP.md with everything that it refers to, read and checked.

`bind` is called when routes.yaml is read; the result is immutable, and equal for files that say the same in the same
places.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from gateway.core.errors import Denied
from gateway.governance import tiers
from gateway.governance.audit import Terms
from gateway.governance.front_matter import GOVERNANCE_FILE
from gateway.governance.manifests import (
    AIP44,
    Manifest,
    McpDocument,
    Operator,
    Sandbox,
    folder_of,
    load_manifest,
    load_operator,
    load_sandbox,
    load_servers,
)
from gateway.governance.posture import NO_POLICY, Governance, load_workspace, named
from gateway.governance.skills import Skill, load_skills
from gateway.governance.tiers import ANOTHER as DIFFERS
from gateway.governance.tiers import REVISION, speaks
from gateway.yaml_document import DocumentError, Mistake

T = TypeVar("T")
ANOTHER = "governance_view_of_another"


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """The documents that govern a route."""

    manifest: Manifest
    operator: Operator | None
    governance: Governance | None
    sandbox: Sandbox | None
    skills: tuple[Skill, ...]
    """The skills that the agent is told, in this order."""
    servers: tuple[McpDocument, ...]
    """The documents of the manifest's `mcp_servers`, in its order."""

    @property
    def cautions(self) -> tuple[Mistake, ...]:
        """Warnings: deviations that are not mistakes."""
        demanded = self.governance.met_otherwise(self.audit_folder) if self.governance is not None else ()
        return (*self._revision(), *self._posture(), *demanded)

    @property
    def terms(self) -> Terms:
        """How the audit log is to be kept."""
        return self.governance.terms if self.governance is not None else Terms()

    def unmet(self, *, key: bool) -> Iterator[Mistake]:
        """Yield the posture's demands that cannot be met. `key`: whether there is one to sign entries with."""
        if self.governance is not None:
            yield from self.governance.unmet(key=key)

    def _revision(self) -> tuple[Mistake, ...]:
        pinned = self.manifest.acp_rev
        if speaks(pinned):
            return ()
        message = f"pins {pinned}, and {REVISION[:12]} is spoken here: what differs between them is not known"
        return (self.manifest.page.mistake((*AIP44, "acp_rev"), message, DIFFERS),)

    def _posture(self) -> tuple[Mistake, ...]:
        if self.governance is None:
            return ()
        view = self.governance.chain[-1]
        consumers = view.raw.get("appliesTo", ())
        if self.operator is None or not consumers or self.operator.ref in consumers:
            return self.governance.cautions
        if not all(consumer.startswith("ws://operators/") for consumer in consumers):
            return self.governance.cautions  # a company's or a skill's view: who belongs to those is not said here
        own = view.mistake(("appliesTo",), f"is for others than {self.operator.ref}", ANOTHER)
        return (*self.governance.cautions, own)

    @property
    def governed(self) -> bool:
        """Whether there is a posture to go by: then every transition and tool call is audited."""
        return self.governance is not None or (self.operator is not None and self.operator.audit_log is not None)

    @property
    def roots(self) -> Roots:
        """The paths that may be worked on."""
        return roots_of(self.manifest.workspace, self.sandbox)

    @property
    def documents(self) -> tuple[Path, ...]:
        """Every file that was read, each once."""
        papers = [self.manifest, self.operator, self.sandbox]
        found = [paper.path for paper in (*papers, *self.skills, *self.servers) if paper is not None]
        if self.governance is not None:
            found += [page.path for page in self.governance.chain]
            found += [bound.policy.path for level in self.governance.levels for bound in level.policies]
        return tuple(dict.fromkeys(found))

    @property
    def audit_folder(self) -> Path | None:
        """Where the audit log is written: in the manifest's external folder, else where the posture's `audit.storage`
        says, if that is a folder of this machine, else beside the GOVERNANCE.md, else beside the OPERATOR.md. None:
        nothing is audited, since nothing governs.
        """
        if not self.governed:
            return None
        if self.manifest.audit_kind == "external":
            return self.manifest.audit_folder
        if self.governance is None:
            assert self.operator is not None, "or nothing would govern"
            return self.operator.page.folder
        stored = folder_of(str(self.governance.effective.get("audit", {}).get("storage", "")))
        return stored or self.governance.path.parent


def bind(path: Path, workspace: Path | None = None) -> Binding:
    """The ACP.md at `path` and all that it names. Raises DocumentError with the mistakes of all the files.

    Where it names no GOVERNANCE.md, that of the operator's folder governs, else that of the workspace, if any does.
    """
    manifest = load_manifest(path, workspace)
    root, page = manifest.workspace, manifest.page
    mistakes: list[Mistake] = []

    def loaded(load: Callable[[], T]) -> T | None:
        try:
            return load()
        except DocumentError as error:
            mistakes.extend(error.mistakes)
            return None

    operator_file, sandbox_file = manifest.operator, manifest.sandbox
    operator = loaded(lambda: load_operator(operator_file)) if operator_file else None
    sandbox = loaded(lambda: load_sandbox(sandbox_file, root)) if sandbox_file else None
    skills = loaded(lambda: load_skills(operator, root)) if operator is not None else ()
    governance_file = manifest.governance or _nearest(manifest, operator)
    consumers = [operator.ref] if operator else []
    governance = loaded(lambda: load_workspace(governance_file, root, consumers=consumers)) if governance_file else None
    if operator is not None and (governance is not None or governance_file is None):
        mistakes += _policies(operator, governance)
    servers = loaded(lambda: load_servers(manifest))
    binding = Binding(
        manifest=manifest,
        operator=operator,
        governance=governance,
        sandbox=sandbox,
        skills=skills or (),
        servers=servers or (),
    )
    if binding.governed and manifest.tier == tiers.BASIC:
        page.refuse((*AIP44, "tier"), f"basic is for what nothing governs: write {tiers.GOVERNANCE_AWARE}")
    if binding.governed and manifest.audit_kind == "off":
        page.refuse((*AIP44, "audit", "kind"), "what is governed is audited: write governance or external")
    mistakes += page.document.mistakes
    if mistakes:
        raise DocumentError(mistakes)
    return binding


def _nearest(manifest: Manifest, operator: Operator | None) -> Path | None:
    folders = [operator.page.folder] if operator else []
    found = [folder / GOVERNANCE_FILE for folder in (*folders, manifest.workspace)]
    return next((file for file in found if file.is_file()), None)


def _policies(operator: Operator, governance: Governance | None) -> list[Mistake]:
    """The policies that the operator must consult are registered: silently passing one over would be a hole."""
    for index, name in enumerate(operator.policies):
        if governance is None:
            message = f"there is no {GOVERNANCE_FILE} that registers it"
        elif named(governance.policies, name) is None:
            have = ", ".join(one.id for one in governance.policies) or "none"
            message = f"{governance.chain[-1].document.file} registers no '{name}'; have {have}"
        else:
            continue
        operator.page.refuse(("governance", "policies", index), message, NO_POLICY)
    return operator.page.document.mistakes


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """A folder. `here`: a path of this machine, whose links are followed."""

    path: str
    writable: bool = True
    here: bool = True

    def holds(self, path: str) -> bool:
        """Whether an absolute path is the folder or below it, `..` and links considered."""
        tidy, top = posixpath.normpath(path), posixpath.normpath(self.path)
        if self.here:
            tidy, top = os.path.realpath(path), os.path.realpath(self.path)
        return tidy == top or tidy.startswith(top.rstrip("/") + "/")


class Roots(msgspec.Struct, frozen=True):
    """All there are. None: nowhere."""

    roots: tuple[Root, ...]

    def admit(self, path: str, *, write: bool = False) -> str:
        """The path with its links and `..` gone. Raises Denied if it is not absolute, outside, or not to be written.

        The innermost root that holds a path decides whether it may be written. What has no file yet is judged by the
        folders that there are.
        """
        if not posixpath.isabs(path) or "\0" in path:
            raise Denied("not an absolute path", detail=path)
        holding = [root for root in self.roots if root.holds(path)]
        if not holding:
            raise Denied("outside of the workspace", detail=path)
        innermost = max(holding, key=lambda root: len(posixpath.normpath(root.path)))
        if write and not innermost.writable:
            raise Denied("not to be written", detail=path)
        return os.path.realpath(path) if innermost.here else posixpath.normpath(path)


def roots_of(workspace: Path, sandbox: Sandbox | None) -> Roots:
    """The roots of a workspace, or of the sandbox that it is worked on in."""
    if sandbox is None:
        return Roots((Root(path=str(workspace)),))
    return Roots(
        tuple(
            Root(path=mount.at, writable=mount.writable and not sandbox.read_only, here=sandbox.local)
            for mount in sandbox.mounts
        )
    )
