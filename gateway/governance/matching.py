"""Whether a policy speaks of an action (AIP-7, `match`): pure text.

Actions are classes with dots (`tool.call`). A pattern's `*` stands for one segment or a part of one; as its last
segment, for any number of them, at least one. The classes `mutates` and `irreversible` are those of risk 1 and 3.
Subjects are ids or workspace paths; patterns that begin with `/` or `workspace:` are of paths, where `*` stays within a
segment and `**` does not.
"""

from __future__ import annotations

import functools
import posixpath
import re
from typing import Final

TOOL_CALL: Final = "tool.call"
TURN: Final = "operator.turn"
ASKED: Final = (TOOL_CALL, TURN)
"""Every action that `PolicyRules` is asked about here."""
RISKS: Final = range(4)
"""0 reads, 1 changes, 2 changes what others see or is hard to undo, 3 cannot be undone."""
MUTATES: Final = 1
"""The lowest risk of an action that changes something."""
IRREVERSIBLE: Final = 3
WORKSPACE: Final = "workspace:"
_CLASSES: Final = {"mutates": MUTATES, "irreversible": IRREVERSIBLE}


def action_matches(pattern: str, action: str, risk: int) -> bool:
    """Whether the class `pattern` (of a policy, its registration or an approver) has `action` in it."""
    if pattern in ("*", action):
        return True
    if pattern in _CLASSES:
        return risk >= _CLASSES[pattern]
    if "*" not in pattern:
        return False
    wanted, given = pattern.split("."), action.split(".")
    if wanted[-1] == "*" and len(given) > len(wanted):
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(map(_segment, wanted, given))


def is_of_actions(name: str) -> bool:
    """Whether it means actions at all: a class of them, or one by its name."""
    return name == "*" or name in _CLASSES or "." in name


def _segment(pattern: str, given: str) -> bool:
    return pattern == given or ("*" in pattern and _stars(pattern).fullmatch(given) is not None)


@functools.lru_cache(maxsize=1024)
def _stars(pattern: str) -> re.Pattern[str]:
    """Only `*` is special."""
    return re.compile(_glob(pattern, "."), re.DOTALL)


def _glob(pattern: str, any_one: str) -> str:
    """A regular expression in which each `*` is any number of `any_one`.

    What stands between two of them is found at its first place and looked for nowhere else: names are an agent's, and
    it could choose one that takes for ever.
    """
    first, *rest = map(re.escape, pattern.split("*"))
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>{any_one}*?{piece})" for piece in middle if piece) + f"{any_one}*{last}"


def subject_matches(pattern: str | None, subject: str) -> bool:
    """Whether a policy's `match.subject` takes in what is acted on. None and `*`: everything."""
    if pattern is None or pattern in ("*", "**"):
        return True
    if pattern.startswith(("/", WORKSPACE)):
        return _path_pattern(_as_path(pattern)).fullmatch(_as_path(subject)) is not None
    return _segment(pattern, subject)


def specificity(subject: str | None, risk_min: int) -> tuple[int, int]:
    """Rank how narrow a policy is: an exact subject, a pattern, none; then the higher risk."""
    exact = 0 if subject in (None, "*", "**") else 1 if "*" in (subject or "") else 2
    return exact, risk_min


def _as_path(text: str) -> str:
    """A workspace path in one spelling: absolute, without `.`, `..`, doubled slashes and the scheme."""
    return posixpath.normpath("/" + text.removeprefix(WORKSPACE).replace("\\", "/").lstrip("/"))


@functools.lru_cache(maxsize=1024)
def _path_pattern(pattern: str) -> re.Pattern[str]:
    runs: list[str] = [""]
    for step in pattern.strip("/").split("/"):
        if step == "**":
            runs.append("")
        else:
            runs[-1] += "/" + _glob(step, "[^/]")
    first, *rest = runs
    if not rest:
        return re.compile(first or "/", re.DOTALL)
    *middle, last = rest
    found = "".join(rf"(?>(?:/.*?)??{run}(?=/|\Z))" for run in middle if run)
    return re.compile(f"{first}{found}(?:/.*)?{last}", re.DOTALL)
