"""A Markdown file that begins with YAML between two lines of `---`: what every document of governance is.

`read` is called once for each file; what is wrong with it is collected in its `Document` by everyone who looks at it,
and told together (`DocumentError`), a line each: `FILE:LINE key: what is wrong`.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

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
        """The directory that it lies in."""
        return self.path.parent

    def mistake(self, where: Where, message: str, code: str = "") -> Mistake:
        """One at a key, which is noted nowhere."""
        return self.document.mistake(where, message, code=code)

    def refuse(self, where: Where, message: str, code: str = "") -> None:
        """Note a mistake at a key."""
        self.document.refuse(where, message, code=code)


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
