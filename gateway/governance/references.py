"""Resolves references between documents, which may lead to files of the workspace only.

The workspace is the folder that documents may refer to. The loader of a document may name it; otherwise `workspace_of`
finds it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from gateway.governance import front_matter

GOVERNANCE_FILE = "GOVERNANCE.md"
OPERATOR_FILE = "OPERATOR.md"
_OPERATOR = re.compile(r"^ws://operators/([a-z][a-z0-9-]*)$")
_CONSUMER = re.compile(r"^ws://(operators|companies|skills)/([a-z][a-z0-9-]*)$")
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")


class Misplaced(ValueError):
    """A reference that leads to no file of the workspace. `missing`: the path is allowed, but has no file."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


def workspace_of(path: Path, top: Path | None = None) -> Path:
    """Find the workspace of a document, if it is not named.

    It is the nearest folder at or above the document with a GOVERNANCE.md of its own: one without `extends`, AIP-7's
    workspace root. Nothing above `top` is looked at, if it is given and the document is below it. Without such a folder
    it is `top`, else the document's own.
    """
    folder = Path(os.path.abspath(path)).parent
    last = Path(os.path.abspath(top)) if top is not None else None
    if last is not None and not folder.is_relative_to(last):
        last = None
    for candidate in (folder, *folder.parents):
        root = candidate / GOVERNANCE_FILE
        if root.is_file() and "extends" not in front_matter.read(root).raw:
            return candidate
        if candidate == last:
            return candidate
    return folder


def resolve(reference: str, *, of: Path, workspace: Path) -> Path:
    """Resolve a reference in the document `of` to a file.

    `./x` and `../x` start from the document, `x` from the workspace, `ws://operators/x` is the OPERATOR.md of the
    workspace's folder operators/x. Raises Misplaced.
    """
    if match := _OPERATOR.match(reference):
        start, relative = workspace, f"operators/{match[1]}/{OPERATOR_FILE}"
    elif _SCHEME.match(reference) or os.path.isabs(reference) or "\0" in reference or "\\" in reference:
        raise Misplaced(f"'{reference}' is not a path inside the workspace: write ./FILE or ../FILE")
    else:
        start, relative = (of.parent if reference.startswith(("./", "../")) else workspace), reference
    # `..` goes by the text, so that what is asked here is what will be opened; then where the links on the way lead.
    target = Path(os.path.normpath(start / relative))
    real, root = Path(os.path.realpath(target)), Path(os.path.realpath(workspace))
    if not _exists(real):
        bare = relative == reference and not relative.startswith(".") and start != of.parent
        hint = f"; beside this file it is written ./{relative}" if bare else ""
        raise Misplaced(f"there is no {front_matter.shown(target)}{hint}", missing=True)
    if not target.is_relative_to(Path(os.path.normpath(workspace))) and not target.is_relative_to(root):
        raise Misplaced(f"leads out of the workspace {front_matter.shown(workspace)}")
    if not real.is_relative_to(root):
        raise Misplaced(f"leads out of the workspace {front_matter.shown(workspace)} by a link")
    if not real.is_file():
        raise Misplaced(f"{front_matter.shown(target)} is not a file")
    return target


def found_file(reference: str, *, of: Path, workspace: Path) -> Path | None:
    """Resolve a reference, or return None where `resolve` raises."""
    try:
        return resolve(reference, of=of, workspace=workspace)
    except Misplaced:
        return None


def consumer_exists(reference: str, *, of: Path, workspace: Path) -> bool:
    """Whether an entry of `appliesTo` names something of the workspace: a folder of operators, companies, skills."""
    match = _CONSUMER.match(reference)
    target = workspace / match[1] / match[2] if match else of.parent / reference
    return _exists(target) and Path(os.path.realpath(target)).is_relative_to(os.path.realpath(workspace))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # no file can have such a name
        return False
