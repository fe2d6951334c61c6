"""JSON pointers (RFC 6901): "" is the whole document, "/a/0" the first item of its key "a"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.core.delta.values import ABSENT, Json
from gateway.core.errors import Invalid

END: Final = "-"  # as an array's last step: the place after its last item


def escape(step: str) -> str:
    """A key as it is written between the slashes of a pointer."""
    return step.replace("~", "~0").replace("/", "~1") if "~" in step or "/" in step else step


def join(path: Iterable[str | int]) -> str:
    """The pointer of a path of keys and indexes."""
    return "".join(["/" + escape(str(step)) for step in path])


def split(pointer: str) -> list[str]:
    """The steps of a pointer. Raises Invalid if it is not one."""
    if pointer == "":
        return []
    if pointer[0] != "/":
        raise Invalid(f"not a JSON pointer, it must start with '/': {pointer!r}", path=pointer)
    steps = pointer[1:].split("/")
    if "~" not in pointer:
        return steps
    for step in steps:
        if "~" in step.replace("~0", "").replace("~1", ""):
            raise Invalid(f"not a JSON pointer, '~' must be '~0' or '~1': {pointer!r}", path=pointer)
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def index(step: str, length: int) -> int | None:
    """The array index that a step names, or None: no sign, no leading zero, below `length`."""
    if step.isascii() and step.isdigit() and (step == "0" or step[0] != "0") and len(step) < 19:
        number = int(step)
        return number if number < length else None
    return None


def pointer_get(document: Json, pointer: str) -> Json:
    """The value at the pointer, or ABSENT. Raises Invalid for what is not a pointer."""
    value = document
    for step in split(pointer):
        if isinstance(value, dict):
            value = value.get(step, ABSENT)
        elif isinstance(value, list) and (at := index(step, len(value))) is not None:
            value = value[at]
        else:
            return ABSENT
    return value


def pointer_set(document: Json, pointer: str, value: Json) -> Json:
    """A new document with `value` at the pointer; what lies beside the path is shared, nothing is mutated.

    Replaces, adds a key, or appends to an array ("-" or its length). Raises Invalid if what should hold it is not
    there.
    """
    return _set(document, split(pointer), 0, value, pointer)


def _set(document: Json, steps: list[str], depth: int, value: Json, pointer: str) -> Json:
    if depth == len(steps):
        return value
    step = steps[depth]
    last = depth + 1 == len(steps)
    if isinstance(document, dict) and (last or step in document):
        return {**document, step: _set(document.get(step), steps, depth + 1, value, pointer)}
    if isinstance(document, list):
        at = index(step, len(document))
        if at is not None:
            changed = _set(document[at], steps, depth + 1, value, pointer)
            return [*document[:at], changed, *document[at + 1 :]]
        if last and step in (END, str(len(document))):
            return [*document, value]
    raise Invalid(f"nothing at {join(steps[: depth + 1])!r}", path=pointer)
