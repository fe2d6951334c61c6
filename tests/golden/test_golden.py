"""Golden cases: recorded wire beside the core events it stands for, one file a case, in each adapter's `golden/`.

A file says with `# reads: KIND` that its wire is read as those events, with `# writes: KIND` that those events are
written as that wire; the kinds are functions of `tests/golden/<adapter>.py`. What is read is read again split at every
byte. Event lines are `NUMBER JSON`; wire is text as recorded, with `\\r\\n` where a line ends in a visible `\\r`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.core import events as e

ADAPTERS = Path(__file__).parents[2] / "adapters"
FILES = sorted(ADAPTERS.glob("*/golden/*.case"))

Numbered = list[tuple[int, e.Event]]
Reader = Callable[[Iterable[bytes]], list[e.Event]]
Writer = Callable[[Numbered], bytes]


@dataclass(frozen=True)
class Case:
    adapter: str
    reads: str | None
    writes: str | None
    wire: bytes
    events: Numbered


def load(path: Path) -> Case:
    head, _, rest = path.read_text(encoding="utf-8").partition("--- wire\n")
    wire, _, lines = rest.partition("--- events\n")
    marks = dict(line[2:].split(": ", 1) for line in head.splitlines() if ": " in line and line.startswith("# "))
    events = []
    for line in lines.splitlines():
        number, _, event = line.partition(" ")
        events.append((int(number), e.decode(event)))
    raw = wire.replace("\\r\n", "\r\n").encode()
    return Case(path.parts[-3], marks.get("reads"), marks.get("writes"), raw, events)


def hook(case: Case, table: str, kind: str) -> Callable[..., object]:
    found: Callable[..., object] = getattr(importlib.import_module(f"tests.golden.{case.adapter}"), table)[kind]
    return found


CASES = [pytest.param(path, id=f"{path.parts[-3]}/{path.stem}") for path in FILES]


@pytest.mark.parametrize("path", CASES)
def test_a_case_says_what_it_is_for(path: Path) -> None:
    case = load(path)
    assert case.reads or case.writes
    assert case.wire and case.events


@pytest.mark.parametrize("path", CASES)
def test_recorded_wire_is_read_as_its_events_however_it_is_split(path: Path) -> None:
    case = load(path)
    if case.reads is None:
        return
    read = hook(case, "READ", case.reads)
    expected = [event for _, event in case.events]
    assert read([case.wire]) == expected
    assert read([case.wire[i : i + 1] for i in range(len(case.wire))]) == expected
    for cut in range(1, len(case.wire), max(1, len(case.wire) // 200)):
        assert read([case.wire[:cut], case.wire[cut:]]) == expected


@pytest.mark.parametrize("path", CASES)
def test_events_are_written_as_the_wire(path: Path) -> None:
    case = load(path)
    if case.writes is None:
        return
    assert hook(case, "WRITE", case.writes)(case.events) == case.wire


@pytest.mark.parametrize("folder", sorted(p.parent.name for p in ADAPTERS.glob("*/__init__.py")))
def test_every_adapter_has_cases_in_both_directions(folder: str) -> None:
    cases = [load(path) for path in FILES if path.parts[-3] == folder]
    assert [case for case in cases if case.reads], f"{folder} has no case that is read"
    assert [case for case in cases if case.writes], f"{folder} has no case that is written"
