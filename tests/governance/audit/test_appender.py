"""What stays in the files of a log when its disk, its clock or somebody else does what it should not."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.core.errors import TooLarge, Unavailable, Unsupported
from gateway.governance.audit import AuditBroken, AuditEntry, files, verify
from gateway.governance.audit import appender as writing
from gateway.governance.audit.event import decode
from gateway.governance.audit.files import LogFiles, log_path
from tests.governance.audit.support import appender, files_of, piece, write_log

DAY = 86_400.0


def fails(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def half(fd: int, data: bytes) -> None:
    """As a disk does that is full in the middle of a batch."""
    os.write(fd, data[: len(data) // 2])
    fails()


def opened() -> int:
    return len(os.listdir("/dev/fd"))


def more(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more\n")


@pytest.mark.parametrize("truncated", [True, False])
def test_half_a_batch_is_taken_back_at_once_or_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, truncated: bool
) -> None:
    log = appender(tmp_path)
    log.open(None, 0)
    log.write([piece()])
    size = (tmp_path / "audit-log.jsonl").stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr(files, "write", half)
        if not truncated:
            patch.setattr(os, "ftruncate", fails)
        with pytest.raises(Unavailable):
            log.write([piece()])
    assert ((tmp_path / "audit-log.jsonl").stat().st_size == size) is truncated
    [entry] = log.write([piece()])
    log.close()
    assert isinstance(entry, AuditEntry) and entry.seq == 1
    assert verify(files_of(tmp_path), head=entry.head).mistakes == []


def test_what_somebody_wrote_into_the_file_is_found_and_never_taken_for_half_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(_log: writing.Appender) -> None: ...

    def failed(log: writing.Appender) -> None:
        with monkeypatch.context() as patch, pytest.raises(Unavailable):
            patch.setattr(files, "write", half)
            log.write([piece()])

    befores: list[Callable[[writing.Appender], None]] = [nothing, failed]
    for index, before in enumerate(befores):
        log = appender(tmp_path / str(index))
        log.open(None, 0)
        before(log)
        more(tmp_path / str(index) / "audit-log.jsonl")
        with pytest.raises(AuditBroken, match="5 bytes where 0 were written"):
            log.write([piece()])
        log.close()


def test_a_file_that_is_in_the_way_of_a_full_one_is_not_written_over(tmp_path: Path) -> None:
    log = appender(tmp_path, rotate_bytes=1)
    log.open(None, 0)
    log.write([piece()])
    there = tmp_path / "audit-log.000000000000.jsonl"
    there.write_text("somebody's")
    with pytest.raises(AuditBroken, match="it is there before it was written"):
        log.write([piece()])
    log.close()
    assert there.read_text() == "somebody's"


def test_a_file_is_a_day_old_a_day_after_its_first_entry_and_only_where_days_count(tmp_path: Path) -> None:
    for by_day, closed in ((True, 1), (False, 0)):
        log = appender(tmp_path / str(by_day))
        log.open(None, 0)
        if by_day:
            log.keep("sha256", by_day=True)
        for at in (0.0, 0.6, 1.1):
            log.write([piece(at=2_000_000_000 + at * DAY)])
        log.close()
        assert len(LogFiles(log_path(tmp_path / str(by_day), 1)).closed()) == closed


def test_an_event_that_makes_no_entry_is_refused_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LONGEST", 1000)
    log = appender(tmp_path)
    log.open(None, 0)
    first, late, long, last = log.write([piece(), piece(at=1e12), piece(input={"text": "x" * 1000}), piece()])
    log.close()
    assert isinstance(late, TooLarge) and "it cannot be written: year" in str(late)
    assert isinstance(long, TooLarge) and "over the limit of 1000" in str(long)
    assert isinstance(first, AuditEntry) and isinstance(last, AuditEntry) and (first.seq, last.seq) == (0, 1)
    assert verify(files_of(tmp_path), head=last.head).mistakes == []


def test_half_a_line_is_noted_later_if_it_cannot_be_noted_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, 1)
    with (tmp_path / "audit-log.jsonl").open("ab") as file:
        file.write(b"half")
    before = opened()
    with monkeypatch.context() as patch, pytest.raises(TooLarge):
        patch.setattr(writing, "LONGEST", 10)
        appender(tmp_path).open(None, 0)
    assert opened() == before
    assert len(LogFiles(log_path(tmp_path, 1)).torn()) == 1
    log = appender(tmp_path)
    log.open(None, 0)
    log.close()
    assert LogFiles(log_path(tmp_path, 1)).torn() == [] and log.head is not None and log.head.seq == 1


def test_a_log_leaves_no_file_open_and_its_names_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    sync_folder = files.sync_folder

    def sync(folder: Path) -> None:
        synced.append(folder)
        sync_folder(folder)

    monkeypatch.setattr(files, "sync_folder", sync)
    before = opened()
    write_log(tmp_path, 1)
    assert synced == [tmp_path], "the new log's name"
    write_log(tmp_path, 1)
    assert synced == [tmp_path], "it was there"
    write_log(tmp_path, 3, rotate_bytes=1)
    assert synced == [tmp_path] * 4 and len(LogFiles(log_path(tmp_path, 1)).closed()) == 3
    (tmp_path / "other" / "audit-log.jsonl").mkdir(parents=True)
    with pytest.raises(Unavailable, match="cannot be opened"):
        appender(tmp_path / "other").open(None, 0)
    assert opened() == before


def test_a_log_that_is_locked_says_by_which_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "audit-log.lock").write_text("1234567890 of a process that is gone\n")
    log = appender(tmp_path)
    log.open(None, 0)
    before = opened()
    with pytest.raises(Unavailable, match=f"process {os.getpid()} writes this audit log already"):
        appender(tmp_path).open(None, 0)
    assert opened() == before
    log.close()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(Unsupported, match="flock"):
        appender(tmp_path).open(None, 0)


def test_files_are_told_by_the_numbers_in_their_names(tmp_path: Path) -> None:
    place = LogFiles(log_path(tmp_path, 1))
    assert (files.first_entry(place.closed_name(42)), files.first_entry(place.active)) == (42, None)
    names = [place.torn_name(seq, "1f2e3d4c").with_suffix("") for seq in (4, 5, 6)]
    for name in names:
        name.touch()
    assert sorted(place.torn_until(5)) == names[:2]


@pytest.mark.parametrize(
    ("line", "why"),
    [(b"[1]", "no JSON object"), (b"{", "no JSON: "), (b"\xff", "no JSON: "), (b"[" * 100_000, "nested too deeply")],
)
def test_a_line_that_is_no_json_object_is_no_entry(line: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode(line)
