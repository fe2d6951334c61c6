"""Tool calls, version 1 to 2 and back (RFD: v2 tool call updates).

Version 2 has one update, `tool_call_update`, whose omitted keys leave what is, whose nulls clear it, and whose lists
replace. Version 1 starts a call with `tool_call`, and its nulls say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.v2.wire import CALL
from adapters.agent_client.wire import as_object, without
from gateway.core.types import JsonObject

_MOST: Final = 2000
"""Lines up to which changes that lie apart are told apart; more of them are one change."""
_AROUND: Final = 3
Shown = Callable[[JsonObject], Any]
DELETION: Final = "deletion"
TERMINAL: Final = "terminal"
UNKNOWN: Final = "unknown_content"
WORD: Final = "unknown_word"
_PATCHED: Final = ("title", "kind", "status", "content", "locations", "rawInput", "rawOutput")
_DEFAULTS: Final = {"kind": "other", "status": "pending", "content": [], "locations": []}
_STATUSES: Final = {
    **{name: name for name in ("pending", "in_progress", "completed", "failed")},
    "cancelled": "failed",
    "paused": "in_progress",  # the TypeScript SDK's
}


def diff_to_v2(diff: JsonObject) -> JsonObject:
    """A `diff` of version 1: the file is made where it has no text before."""
    path, old, new = diff["path"], diff.get("oldText"), diff["newText"]
    change = {"operation": "add" if old is None else "modify", "path": path, "fileType": "text"}
    found: JsonObject = {**without(diff, "path", "oldText", "newText"), "changes": [change]}
    text = patch(path, old, new)
    return found if text is None else {**found, "patch": {"format": "git_patch", "text": text}}


def diff_as_text(diff: JsonObject) -> str:
    """A `diff` of version 2 as a person may read it: its patch, or else which files it changes."""
    text = diff.get("patch")
    text = text.get("text") if isinstance(text, dict) else None
    if isinstance(text, str) and text:
        return event_forms.fenced(text.rstrip("\n"), "diff")
    changes = diff.get("changes")
    return "\n".join(map(_line, changes if isinstance(changes, list) else []))


# --- changes of files -----------------------------------------------------------------------------------------------
# There is no way from a patch back to whole texts: version 1 is told it as text.


def _line(change: Any) -> str:
    change = as_object(change)
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
    import difflib

    lines = list(difflib.unified_diff(before, after, n=_AROUND))[2:]
    return "".join(map(_line_ended, lines))


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
    return "".join(map(_line_ended, lines))


def _line_ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


# --- calls ----------------------------------------------------------------------------------------------------------


def to_v1(said: JsonObject, *, first: bool, shown: Shown | None = None) -> tuple[JsonObject, list[str]]:
    """A `tool_call_update` of version 2 in version 1's words, and the names of what they leave out.

    `first`: the call was not heard of before. `said` has a `toolCallId`. `shown`: see `item_to_v1`.
    """
    lost: list[str] = []
    out: JsonObject = {event_forms.KEY: "tool_call" if first else "tool_call_update"}
    for key, value in said.items():
        if key not in _PATCHED:
            out.setdefault(key, value)
        elif value is None:
            if not first and key in _DEFAULTS:
                out[key] = _DEFAULTS[key]
            elif not first:
                lost.append(DELETION)
        elif key == "kind":
            known = isinstance(value, str) and value in event_forms.TOOL_KINDS
            out[key] = value if known else "other"
            lost += [] if known else [WORD]
        elif key == "status":
            found = _STATUSES.get(value) if isinstance(value, str) else None
            out |= {} if found is None else {key: found}
            lost += [WORD] if found is None else []
        elif key == "content":
            out[key], more = items_to_v1(value, shown)
            lost += more
        else:
            out[key] = value
    if first and not isinstance(out.get("title"), str):
        out["title"] = said["toolCallId"]
    return out, lost


def to_v2(said: JsonObject) -> JsonObject:
    """A `tool_call` or `tool_call_update` of version 1 in version 2's words."""
    out: JsonObject = {event_forms.KEY: CALL}
    for key, value in said.items():
        if key == event_forms.KEY or (value is None and key in _PATCHED):
            continue
        out[key] = _items_to_v2(value) if key == "content" else value
    return out


def terminals(said: JsonObject) -> list[str]:
    """The names of what `to_v2` leaves out: the client's terminals, of which version 2 has none."""
    content = said.get("content")
    items = content if isinstance(content, list) else []
    return [TERMINAL for item in items if isinstance(item, dict) and item.get("type") == "terminal"]


# --- content -----------------------------------------------------------------------------------------------------


def items_to_v1(items: Any, shown: Shown | None = None) -> tuple[list[Any], list[str]]:
    found: list[Any] = []
    lost: list[str] = []
    for item in items if isinstance(items, list) else []:
        one, name = item_to_v1(item, shown)
        found += [] if one is None else [one]
        lost += [] if name is None else [name]
    return found, lost


def item_to_v1(item: Any, shown: Shown | None = None) -> tuple[Any, str | None]:
    """One item of it, and the name of what is lost.

    A terminal is the agent's own, which version 1 has not: `shown` gives what stands for it.
    """
    kind = item.get("type") if isinstance(item, Mapping) else None
    if kind == "content":
        block = block_to_v1(item.get("content"))
        if block is None:
            return None, UNKNOWN
        return (item if block is item["content"] else {**item, "content": block}), None
    if kind == "diff":
        if event_forms.is_tool_content(item):
            return item, None
        text = diff_as_text(item)
        meta = {"_meta": item["_meta"]} if isinstance(item.get("_meta"), dict) else {}
        return {"type": "content", "content": {"type": "text", "text": text}, **meta}, None
    if kind == "terminal" and shown is not None:
        found = shown(item)
        return found, TERMINAL if found is None else None
    return None, TERMINAL if kind == "terminal" else UNKNOWN


def block_to_v1(block: Any) -> JsonObject | None:
    """A content block as version 1 takes it, None if it does not: hints that it does not know are left out."""
    if event_forms.is_block(block):
        found: JsonObject = block
        return found
    if isinstance(block, dict) and "annotations" in block:
        rest = without(block, "annotations")
        return rest if event_forms.is_block(rest) else None
    return None


def _items_to_v2(items: Any) -> Any:
    if not isinstance(items, list):
        return items
    out = []
    for item in items:
        kind = item.get("type") if isinstance(item, dict) else None
        if kind == "diff" and event_forms.is_tool_content(item):
            out.append(diff_to_v2(item))
        elif kind != "terminal":
            out.append(item)
    return out
