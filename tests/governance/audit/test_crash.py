"""Nothing that was acknowledged is lost by a kill, wherever it comes, and what it tore is found."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.core.errors import Unavailable
from gateway.governance.audit import AuditBroken, AuditEntry, LogHead, verify
from gateway.governance.audit.files import log_path
from tests.governance.audit.support import appender, files_of, piece, write_log
from tests.support.processes import ROOT, environment

WITHIN = 60.0


def test_a_writer_killed_at_any_step_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.governance.audit.crash", str(tmp_path)],
        check=False,
        cwd=ROOT,
        env=environment({"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=WITHIN,
    )
    assert done.returncode == 0, done.stderr
    first, second = map(int, done.stdout.split())
    assert first > 20 and second > 20


ENDLESS = """
import asyncio, sys
from pathlib import Path
from gateway.governance.audit import AuditLog
from tests.governance.audit.support import event

async def main():
    async with AuditLog(Path(sys.argv[1]), rotate_bytes=20_000) as log:
        async def one():
            while True:
                print((await log.append(event(metadata={"acme": {"x": "y" * 5000}}))).head, flush=True)
        await asyncio.gather(*(one() for _ in range(20)))

asyncio.run(main())
"""


def test_a_log_whose_process_is_killed_from_outside_goes_on_where_it_was(tmp_path: Path) -> None:
    told: list[LogHead] = []
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", ENDLESS, str(log_path(tmp_path, 1))],
            cwd=ROOT,
            env=environment({"PYTHONPATH": str(ROOT)}),
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            told += [LogHead.parse(process.stdout.readline()) for _ in range(150)]
            process.kill()
            told += [LogHead.parse(line) for line in process.stdout if line.endswith("\n") and line.count(":") == 1]
            assert process.wait(WITHIN) == -signal.SIGKILL
    log = appender(tmp_path)
    log.open(told[-1], 0)
    log.close()
    files = files_of(tmp_path)
    assert len(files) > 10
    for head in (told[0], told[150], told[-1]):
        assert verify(files, head=head).mistakes == []
    assert [head.seq for head in told] == sorted({head.seq for head in told})


OPEN = """
import asyncio, sys
from pathlib import Path
from gateway.governance.audit import AuditLog

asyncio.run(AuditLog(Path(sys.argv[1])).open())
"""


def test_a_process_that_ends_without_closing_its_log_ends(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(log_path(tmp_path, 1))],
        check=False,
        cwd=ROOT,
        env=environment({"PYTHONPATH": str(ROOT)}),
        timeout=WITHIN,
    )
    assert done.returncode == 0


def reopened(folder: Path, known: LogHead | None = None) -> list[AuditEntry]:
    """Open it, append one, and give the entries of the log's own note, if any, and of that."""
    log = appender(folder)
    log.open(known, 0)
    try:
        return [each for each in log.write([piece()]) if isinstance(each, AuditEntry)]
    finally:
        log.close()


@pytest.mark.parametrize("torn", [b'{"$schema":"agent', b"\0\0\0\0", b'\0\0\0"}\n{"x":1}\n', b"{}"])
def test_a_torn_end_is_moved_aside_and_the_log_says_so(tmp_path: Path, torn: bytes) -> None:
    entries = write_log(tmp_path, 2)
    path = tmp_path / "audit-log.jsonl"
    with path.open("ab") as file:
        file.write(torn)
    (entry,) = reopened(tmp_path, entries[-1].head)
    assert entry.seq == 3  # 2 is the note
    assert verify([path], head=entry.head).mistakes == []
    aside = tmp_path / f"audit-log.000000000002.{hashlib.sha256(torn).hexdigest()[:8]}.torn"
    assert aside.read_bytes() == torn
    assert f'"file":"{aside.name}"' in path.read_text() and f'"bytes":{len(torn)},' in path.read_text()

    aside.rename(aside.with_suffix(".torn.new"))  # as a kill leaves it that comes right after the note
    (entry,) = reopened(tmp_path, entry.head)
    assert entry.seq == 4 and aside.read_bytes() == torn


def test_an_entry_that_was_known_to_be_written_is_never_taken_for_torn(tmp_path: Path) -> None:
    entries = write_log(tmp_path, 2)
    path = tmp_path / "audit-log.jsonl"
    before = path.read_bytes()[:-10]
    path.write_bytes(before)
    with pytest.raises(AuditBroken, match="entry 1 was written: it was cut off"):
        reopened(tmp_path, entries[-1].head)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir() if "torn" in each.name] == []


def test_a_log_that_was_changed_does_not_open(tmp_path: Path) -> None:
    write_log(tmp_path, 3)
    path = tmp_path / "audit-log.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"n":1', b'"n":7'))
    with pytest.raises(AuditBroken, match=r"audit-log\.jsonl#L2:hash chain\.tampered"):
        reopened(tmp_path)
    path.rename(tmp_path / "audit-log.000000000000.jsonl")
    path.write_bytes(b"")
    reopened(tmp_path)  # of a full file the last line is looked at; `audit verify` reads all of it
    path.unlink()
    full = tmp_path / "audit-log.000000000000.jsonl"
    full.write_bytes(full.read_bytes().replace(b'"n":2', b'"n":7'))
    with pytest.raises(AuditBroken, match=r"000000000000\.jsonl: its last line: .* changed"):
        reopened(tmp_path)


@pytest.mark.parametrize(("count", "last"), [(0, "nothing"), (1, "entry 0"), (2, "entry 1")])
def test_a_log_that_ends_before_what_is_known_says_with_what(tmp_path: Path, count: int, last: str) -> None:
    write_log(tmp_path, count)
    with pytest.raises(AuditBroken, match=f"it ends with {last}, and entry 5 was written"):
        reopened(tmp_path, LogHead(5, "0" * 64))


@pytest.mark.parametrize("gone", [0, 1, -1])
def test_a_log_that_lacks_what_is_known_does_not_open(tmp_path: Path, gone: int) -> None:
    entries = write_log(tmp_path, 9, rotate_bytes=1000)
    files_of(tmp_path)[gone].unlink()
    with pytest.raises(AuditBroken):
        reopened(tmp_path, entries[1 if gone == 0 else -1].head)


def test_a_known_entry_is_found_in_a_file_that_is_full(tmp_path: Path) -> None:
    entries = write_log(tmp_path, 9, rotate_bytes=1000)
    for entry in entries:
        reopened(tmp_path, entry.head)
    with pytest.raises(AuditBroken, match="do not hold entry 4"):
        reopened(tmp_path, LogHead(4, "0" * 64))


@pytest.mark.parametrize(("before", "size"), [(1, 65_535), (1, 65_536), (0, 65_536), (0, 65_537)])
def test_the_last_entry_of_a_full_file_may_be_of_any_length(tmp_path: Path, before: int, size: int) -> None:
    path, shortest = tmp_path / "audit-log.jsonl", 0
    for text in ("", "x"):
        path.unlink(missing_ok=True)
        write_log(tmp_path, before)
        write_log(tmp_path, 1, metadata={"a": "x" * 50_000, "b": text * (size - shortest)})
        shortest = len(path.read_bytes().splitlines()[-1]) + 1
    assert shortest == size
    path.rename(tmp_path / "audit-log.000000000000.jsonl")
    reopened(tmp_path)


def test_one_process_writes_a_log_at_a_time(tmp_path: Path) -> None:
    log = appender(tmp_path)
    log.open(None, 0)
    with pytest.raises(Unavailable, match=r"process \d+ writes this audit log already"):
        reopened(tmp_path)
    log.close()
    reopened(tmp_path)
