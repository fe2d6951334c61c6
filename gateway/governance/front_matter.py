"""A Markdown file that begins with YAML between two lines of `---`: what every document of governance is.

`read` is called once for each file; what is wrong with it is collected in its `Document` by everyone who looks at it,
and told together (`DocumentError`), a line each: `FILE:LINE key: what is wrong`.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.core.types import JsonObject
from gateway.yaml_document import Document, DocumentError, Mistake, Where, text_of
from gateway.yaml_document import read as read_yaml

LIMIT = 1_000_000
"""Bytes of a file; what is larger is no manifest."""
FENCE = "---"


@dataclass(frozen=True)
class MarkdownPage:
    """A file as it was read. `raw` is the whole front matter ({} if it is none), `body` the Markdown below it."""

    path: Path
    raw: JsonObject
    body: str
    document: Document

    @property
    def folder(self) -> Path:
        return self.path.parent

    def mistake(self, where: Where, message: str, code: str = "") -> Mistake:
        return self.document.mistake(where, message, code=code)

    def refuse(self, where: Where, message: str, code: str = "") -> None:
        self.document.refuse(where, message, code=code)


def at(value: Any, where: Where) -> Any:
    """What is at a path of keys and numbers in a document; None where there is nothing."""
    for step in where:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def shown(path: Path) -> str:
    """A path as people are told it: from here, if it is below here."""
    try:
        return str(Path(os.path.abspath(path)).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def read(path: Path) -> MarkdownPage:
    """The file, with `document.mistakes` saying what is wrong. Never raises for what a file may contain.

    `path` is made absolute; links stay what they are.
    """
    path = Path(os.path.abspath(path))
    document = Document(shown(path))
    try:
        text = text_of(document.file, functools.partial(_content, path))
    except DocumentError as error:
        document.mistakes.extend(error.mistakes)
        return MarkdownPage(path, {}, "", document)
    return _parsed(path, text, document)


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(2, "no such file" if not path.exists() else "not a file")
    with path.open("rb") as file:
        content = file.read(LIMIT + 1)
    if len(content) > LIMIT:
        raise OSError(27, f"larger than {LIMIT} bytes")
    return content


def _parsed(path: Path, text: str, document: Document) -> MarkdownPage:
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        document.refuse((), f"should begin with a line of '{FENCE}' and have its front matter below")
        return MarkdownPage(path, {}, text, document)
    ends = [number for number, line in enumerate(lines) if number and line.rstrip() == FENCE]
    if not ends:
        document.refuse((), f"the front matter does not end: no second line of '{FENCE}'")
        return MarkdownPage(path, {}, "", document)
    # An empty line for the fence, so that the lines of the YAML are those of the file.
    document = read_yaml("\n".join(["", *lines[1 : ends[0]]]), document.file, None)
    body = "\n".join(lines[ends[0] + 1 :])
    if isinstance(document.value, dict):
        return MarkdownPage(path, document.value, body, document)
    if not document.mistakes:
        document.refuse((), "the front matter should be a mapping of keys")
    return MarkdownPage(path, {}, body, document)


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
        if root.is_file() and "extends" not in read(root).raw:
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
        raise Misplaced(f"there is no {shown(target)}{hint}", missing=True)
    if not target.is_relative_to(Path(os.path.normpath(workspace))) and not target.is_relative_to(root):
        raise Misplaced(f"leads out of the workspace {shown(workspace)}")
    if not real.is_relative_to(root):
        raise Misplaced(f"leads out of the workspace {shown(workspace)} by a link")
    if not real.is_file():
        raise Misplaced(f"{shown(target)} is not a file")
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
