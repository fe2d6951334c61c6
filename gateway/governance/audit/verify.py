"""Verifies a log line by line, in constant memory for files of any size."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from gateway.core.errors import Unavailable
from gateway.governance.audit.chain import ChainCheck, Fault
from gateway.governance.audit.event import LogHead
from gateway.governance.audit.files import CHUNK_BYTES, LogFiles
from gateway.governance.audit.keys import Keyring
from gateway.governance.audit.line import LONGEST

MOST_MISTAKES = 100


class LogMistake(msgspec.Struct, frozen=True):
    """One mistake in a log: its place (`line` from 1, 0 for the whole file), AIP-7's code, and the reason."""

    file: str
    line: int
    field: str
    code: str
    what: str

    def __str__(self) -> str:
        place = f"#L{self.line}" if self.line else ""
        return f"{self.file}{place}{f':{self.field}' if self.field else ''} {self.code} {self.what}"


class Report(msgspec.Struct):
    """The result of a verification. `more`: it stopped at the limit of mistakes. The log is sound if there is none."""

    files: int = 0
    entries: int = 0
    signed: int = 0
    unsigned: int = 0
    head: LogHead | None = None
    removed: LogHead | None = None
    """The last of the entries that were removed as too old, according to the log itself."""
    mistakes: list[LogMistake] = []
    more: bool = False


def expand(paths: Iterable[Path]) -> list[Path]:
    """List the files of a log. A folder stands for all logs in it; full files come before the active one."""
    found: list[Path] = []
    for path in paths:
        found += LogFiles(path).files() if path.is_dir() else [path]
    numbered = {path: _number(path) for path in found}
    return sorted(found, key=lambda path: numbered[path])  # a stable sort: files of other names stay as they were given


def verify(
    paths: Iterable[Path],
    *,
    after: LogHead | None = None,
    head: LogHead | None = None,
    keyring: Keyring | None = None,
    any_form: bool = False,
    most: int = MOST_MISTAKES,
) -> Report:
    """Read files, in the order of `expand`, as one log, and report its mistakes.

    `after` is the entry before the first, where older files are elsewhere. `head`, `keyring` and `any_form` are
    `ChainCheck`'s. Raises Unavailable for a file that cannot be read.
    """
    walk = ChainCheck(after, head=head, keyring=keyring, any_form=any_form)
    report = Report()
    path, first = Path(), ""
    for path in paths:
        first = first or str(path)
        report.files += 1
        try:
            with path.open("rb") as file:
                number = _file(path, file, walk, report, most)
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}") from error
        if report.more:
            break
    else:
        report.mistakes += [
            LogMistake(str(path), number if report.files else 0, *_parts(fault)) for fault in walk.end()
        ]
        report.mistakes[:0] = [LogMistake(first, 1, *_parts(fault)) for fault in walk.beginning()]
    report.signed, report.unsigned = walk.signed, walk.unsigned
    report.head = LogHead(walk.seq, walk.hash) if report.entries else None
    report.removed = walk.before if walk.vouched else None
    return report


def _file(path: Path, file: BinaryIO, walk: ChainCheck, report: Report, most: int) -> int:
    """Verify one file. Returns the number of its last line."""
    number = 0
    for number, raw in _lines(file):
        faults = walk.feed(raw) if raw is not None else walk.skip(f"longer than {LONGEST} bytes")
        report.entries += walk.line is not None
        report.mistakes += [LogMistake(str(path), number, *_parts(fault)) for fault in faults]
        first = _number(path) if number == 1 else None
        if first is not None and first != walk.seq and first != float("inf"):
            what = f"the file is named after entry {int(first)} and begins with {walk.seq}"
            report.mistakes.append(LogMistake(str(path), 1, "seq", "chain.seq_gap", what))
        if len(report.mistakes) >= most:
            report.more = True
            break
    return number


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield lines with their numbers from 1; None for one that is too long to be an entry."""
    number = 0
    while raw := file.readline(LONGEST + 1):
        number += 1
        if len(raw) <= LONGEST:
            yield number, raw
            continue
        while raw and not raw.endswith(b"\n"):
            raw = file.readline(CHUNK_BYTES)
        yield number, None


def _parts(fault: Fault) -> tuple[str, str, str]:
    return fault.field, fault.code, fault.what


def _number(path: Path) -> float:
    name = os.path.basename(path).removesuffix(".jsonl").rpartition(".")[2]
    return int(name) if len(name) >= 12 and name.isascii() and name.isdigit() else float("inf")
