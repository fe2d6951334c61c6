"""Golden cases: recorded wire beside what it stands for, one file a case, in each adapter's `golden/`.

A file's head says with `# reads: KIND` that its wire is read as what stands below it, with `# writes: KIND` that this
is written as that wire; the kinds are functions of `tests/golden/<adapter>.py`. Below the wire stand either
`--- events`, lines of `NUMBER JSON`, or `--- value`, a record that is no event (an agent, a run, a list) as JSON.
`--- given` holds what the kind needs besides. What is read is read again split at every byte.

`# from: CAPTURE CONNECTION SECONDS` says where in `tests/peers/captures` the wire was cut out: it must be there word
for word, after that block and before the connection's next request. Of a recording of standard input and output it is
`# from: CAPTURE LINE`: from that line on. Wire is text as recorded, with `\\r\\n` where a line ends in a visible `\\r`.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.core import events as e

ADAPTERS = Path(__file__).parents[2] / "adapters"
CAPTURES = Path(__file__).parents[1] / "peers" / "captures"
FILES = sorted(ADAPTERS.glob("*/golden/*.case"))
SECTION = re.compile(r"^--- (\w+)\n", re.MULTILINE)
BLOCK = re.compile(r"^-- \[(\d+) ([\d.]+)\] (>>>|<<<) \w+ (?:EOF|\d+ bytes)\n", re.MULTILINE)

Numbered = list[tuple[int, e.Event]]
Reader = Callable[[Iterable[bytes], Any], Any]
"""(the wire in pieces, what is given) -> list of events, or a value as plain JSON."""
Writer = Callable[[Any, Any], bytes]
"""(numbered events or a value, what is given) -> wire."""


@dataclass(frozen=True)
class Case:
    adapter: str
    wire: bytes
    marks: dict[str, str] = field(default_factory=dict)
    events: Numbered = field(default_factory=list)
    value: Any = None
    given: Any = None

    @property
    def read_as(self) -> Any:
        return [event for _, event in self.events] if self.events else self.value

    @property
    def written_from(self) -> Any:
        return self.events or self.value


@functools.cache
def load(path: Path) -> Case:
    head, *sections = SECTION.split(path.read_text(encoding="utf-8"))
    parts = dict(zip(sections[::2], sections[1::2], strict=True))
    assert parts.keys() <= {"wire", "given", "value", "events"}, path
    marks = dict(line[2:].split(": ", 1) for line in head.splitlines() if re.match(r"# (reads|writes|from): ", line))
    events = []
    for line in filter(None, parts.get("events", "").split("\n")):
        number, _, event = line.partition(" ")
        events.append((int(number), e.decode(event)))
    value, given = (json.loads(parts[name]) if name in parts else None for name in ("value", "given"))
    return Case(path.parts[-3], parts["wire"].replace("\\r\n", "\r\n").encode(), marks, events, value, given)


def hook(case: Case, table: str, kind: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(importlib.import_module(f"tests.golden.{case.adapter}"), table)[kind]
    return found


def cases(mark: str) -> list[Any]:
    found = [path for path in FILES if mark in load(path).marks]
    return [pytest.param(path, id=f"{path.parts[-3]}/{path.stem}") for path in found]


def answer_at(capture: str, connection: str, seconds: str = "") -> str:
    """What a server said on one connection from one moment on, up to the next request there.

    Without `seconds`: what an agent said from that line on.
    """
    if not seconds:
        lines = (CAPTURES / capture).read_text(encoding="utf-8").split("\n")[int(connection) - 1 :]
        return "\n".join(line[11:] for line in lines if line.startswith("<<< agent  "))
    _, *parts = BLOCK.split((CAPTURES / capture).read_text(encoding="utf-8"))
    blocks = [
        (at, way, text)
        for conn, at, way, text in zip(*(parts[i::4] for i in range(4)), strict=True)
        if conn == connection
    ]
    start = next(i for i, (at, way, _) in enumerate(blocks) if at == seconds and way == "<<<")
    said = ""
    for _, way, text in blocks[start:]:
        if way == ">>>":
            break
        said += text
    return said


def test_a_case_says_what_it_is_for() -> None:
    for path in FILES:
        case = load(path)
        assert case.marks.keys() & {"reads", "writes"}, path
        assert case.wire and case.written_from and not (case.events and case.value), path


@pytest.mark.parametrize("path", cases("from"))
def test_wire_that_is_said_to_be_recorded_is_in_the_recording_word_for_word(path: Path) -> None:
    case = load(path)
    said = iter(answer_at(*case.marks["from"].split()).split("\n"))
    missing = [line for line in case.wire.decode().split("\n") if line and line not in said]
    assert not missing, "not there, or not in this order"


@pytest.mark.parametrize("path", cases("reads"))
def test_recorded_wire_is_read_as_its_events_however_it_is_split(path: Path) -> None:
    case = load(path)
    read, wire = hook(case, "READ", case.marks["reads"]), case.wire
    assert read([wire], case.given) == case.read_as
    assert read([wire[i : i + 1] for i in range(len(wire))], case.given) == case.read_as
    for cut in range(1, len(wire), max(1, len(wire) // 200)):
        assert read([wire[:cut], wire[cut:]], case.given) == case.read_as


@pytest.mark.parametrize("path", cases("writes"))
def test_events_are_written_as_the_wire(path: Path) -> None:
    case = load(path)
    assert hook(case, "WRITE", case.marks["writes"])(case.written_from, case.given) == case.wire


@pytest.mark.parametrize("folder", sorted(p.parent.name for p in ADAPTERS.glob("*/__init__.py")))
def test_every_adapter_has_cases_in_both_directions(folder: str) -> None:
    found = [load(path) for path in FILES if path.parts[-3] == folder]
    assert [case for case in found if "reads" in case.marks], f"{folder} has no case that is read"
    assert [case for case in found if "writes" in case.marks], f"{folder} has no case that is written"


@pytest.mark.parametrize("folder", sorted(p.parent.name for p in ADAPTERS.glob("*/__init__.py")))
def test_every_kind_has_a_case(folder: str) -> None:
    kinds = importlib.import_module(f"tests.golden.{folder}")
    found = [load(path) for path in FILES if path.parts[-3] == folder]
    assert {case.marks["reads"] for case in found if "reads" in case.marks} == set(kinds.READ)
    assert {case.marks["writes"] for case in found if "writes" in case.marks} == set(kinds.WRITE)
