"""Verifies a log line by line, in constant memory for files of any size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from gateway.core.errors import Unavailable
from gateway.governance.audit.chain import ChainCheck, Fault
from gateway.governance.audit.event import LONGEST, LogHead
from gateway.governance.audit.files import CHUNK_BYTES, LogFiles, first_entry, log_number, log_numbers, log_path
from gateway.governance.audit.keys import Keyring

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


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a verification. `more`: it stopped at the limit of mistakes. The log is sound if there is none."""

    files: int
    entries: int
    signed: int
    unsigned: int
    head: LogHead | None
    removed: LogHead | None
    """The last of the entries that were removed as too old, according to the log itself."""
    mistakes: list[LogMistake]
    more: bool


def logs(paths: Iterable[Path]) -> dict[int, list[Path]]:
    """The files of each log among these, in order, by the log's number. A folder stands for all logs in it."""
    found: dict[int, list[Path]] = {}
    for path in paths:
        for number in sorted(log_numbers(path)) if path.is_dir() else [log_number(path)]:
            files = LogFiles(log_path(path, number)).files() if path.is_dir() else [path]
            if files:
                found.setdefault(number, []).extend(files)
    return {number: sorted(files, key=_place) for number, files in sorted(found.items())}


def _place(path: Path) -> float:
    """Full files come before the active one. Files of other names stay as they were given, since sorts are stable."""
    first = first_entry(path)
    return float("inf") if first is None else first


def verify(
    paths: Iterable[Path],
    *,
    after: LogHead | None = None,
    head: LogHead | None = None,
    keyring: Keyring | None = None,
    any_form: bool = False,
) -> Report:
    """Read files, in the order of `logs`, as one log, and report its mistakes.

    `after` is the entry before the first, where older files are elsewhere. `head`, `keyring` and `any_form` are
    `ChainCheck`'s. Raises Unavailable for a file that cannot be read.
    """
    verification = _Verification(ChainCheck(after, head=head, keyring=keyring, any_form=any_form))
    for path in paths:
        try:
            with path.open("rb") as file:
                verification.read(path, file)
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}") from error
        if verification.more:
            break
    return verification.report()


class _Verification:
    """The files of one log, read in order until there are MOST_MISTAKES (`more`)."""

    def __init__(self, chain: ChainCheck) -> None:
        self.more = False
        self._chain = chain
        self._mistakes: list[LogMistake] = []
        self._files = self._entries = self._number = 0
        self._first = self._path = Path()

    def read(self, path: Path, file: BinaryIO) -> None:
        """Check the lines of the next file."""
        self._files += 1
        self._first = path if self._files == 1 else self._first
        self._path, self._number = path, 0
        for self._number, raw in _lines(file):
            faults = self._chain.feed(raw) if raw is not None else self._chain.skip(f"longer than {LONGEST} bytes")
            self._entries += self._chain.line is not None
            self._note(path, self._number, faults)
            named = first_entry(path) if self._number == 1 else None
            if named is not None and named != self._chain.seq:
                what = f"the file is named after entry {named} and begins with {self._chain.seq}"
                self._mistakes.append(LogMistake(str(path), 1, "seq", "chain.seq_gap", what))
            if len(self._mistakes) >= MOST_MISTAKES:
                self.more = True
                return

    def report(self) -> Report:
        """Check the ends of the log, unless it was not read to its end, and report."""
        chain = self._chain
        if not self.more:
            self._note(self._path, self._number, chain.end())
            mistakes, self._mistakes = self._mistakes, []
            self._note(self._first, 1, chain.beginning())
            self._mistakes += mistakes
        return Report(
            files=self._files,
            entries=self._entries,
            signed=chain.signed,
            unsigned=chain.unsigned,
            head=LogHead(chain.seq, chain.hash) if self._entries else None,
            removed=chain.before if chain.vouched else None,
            mistakes=self._mistakes,
            more=self.more,
        )

    def _note(self, path: Path, number: int, faults: Iterable[Fault]) -> None:
        self._mistakes += [LogMistake(str(path), number, fault.field, fault.code, fault.what) for fault in faults]


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
