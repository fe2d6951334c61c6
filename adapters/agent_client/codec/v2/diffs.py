"""Changes of files: version 1's texts before and after, version 2's changes with a patch (RFD: diff file states).

There is no way from a patch back to whole texts: version 1 is told it as text.
"""

from __future__ import annotations

import difflib
from typing import Any, Final

from adapters.agent_client.codec import event_forms
from gateway.core.types import JsonObject

_MOST: Final = 2000
"""Lines up to which changes that lie apart are told apart; more of them are one change."""
_AROUND: Final = 3
_PATHS: Final = ("path", "oldPath")


def to_v2(diff: JsonObject) -> JsonObject:
    """A `diff` of version 1: the file is made where it has no text before."""
    path, old, new = diff["path"], diff.get("oldText"), diff["newText"]
    rest = {key: value for key, value in diff.items() if key not in ("path", "oldText", "newText")}
    change = {"operation": "add" if old is None else "modify", "path": path, "fileType": "text"}
    found: JsonObject = {**rest, "changes": [change]}
    text = patch(path, old, new)
    return found if text is None else {**found, "patch": {"format": "git_patch", "text": text}}


def as_text(diff: JsonObject) -> str:
    """A `diff` of version 2 as a person may read it: its patch, or else which files it changes."""
    text = diff.get("patch")
    text = text.get("text") if isinstance(text, dict) else None
    if isinstance(text, str) and text:
        return event_forms.fenced(text.rstrip("\n"), "diff")
    changes = diff.get("changes")
    return "\n".join(map(_line, changes if isinstance(changes, list) else []))


def _line(change: Any) -> str:
    change = change if isinstance(change, dict) else {}
    said = [change[key] for key in ("operation", "oldPath", "path") if isinstance(change.get(key), str)]
    return " ".join(said)


def patch(path: str, old: str | None, new: str) -> str | None:
    """One `diff --git` section, None where nothing has changed."""
    before, after = (old or "").splitlines(keepends=True), new.splitlines(keepends=True)
    if old == new:
        return None
    head = f"diff --git {path} {path}\n" + ("new file mode 100644\n" if old is None else "")
    if not before and not after:
        return head
    body = _short(before, after) if len(before) + len(after) <= _MOST else _long(before, after)
    return f"{head}--- {'/dev/null' if old is None else path}\n+++ {path}\n{body}"


def _short(before: list[str], after: list[str]) -> str:
    lines = list(difflib.unified_diff(before, after, n=_AROUND))[2:]
    return "".join(map(_ended, lines))


def _long(before: list[str], after: list[str]) -> str:
    """All that differs, from the first line to the last, as one change."""
    start, most = 0, min(len(before), len(after))
    while start < most and before[start] == after[start]:
        start += 1
    end = 0
    while end < most - start and before[-1 - end] == after[-1 - end]:
        end += 1
    first, tail = max(0, start - _AROUND), min(_AROUND, end)
    gone, made = before[start : len(before) - end], after[start : len(after) - end]
    kept = before[first:start], before[len(before) - end : len(before) - end + tail]
    sizes = [len(kept[0]) + len(lines) + len(kept[1]) for lines in (gone, made)]
    span = [f"{first + 1 if size else first},{size}" for size in sizes]
    lines = [f"@@ -{span[0]} +{span[1]} @@\n"]
    for mark, some in ((" ", kept[0]), ("-", gone), ("+", made), (" ", kept[1])):
        lines += [mark + line for line in some]
    return "".join(map(_ended, lines))


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
