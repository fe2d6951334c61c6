"""What whoever appends may rely on: order, durability, refusal, and a loop that never waits for the disk."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.core.errors import Invalid, TooLarge, Unavailable
from gateway.governance.audit import Actor, AuditBroken, AuditEntry, AuditLog, LogHead, Terms, files, heads, verify
from gateway.governance.audit import log as log_module
from gateway.governance.audit.canonical import canonical
from gateway.governance.audit.files import log_path
from gateway.governance.audit.heads import HeadKeeper
from tests.governance.audit.support import event, files_of, write_log
from tests.support.aio import run


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for path in files_of(folder) for line in path.read_bytes().splitlines()]


class Disk:
    """Lets syncs wait, or fail."""

    def __init__(self, real: Callable[[int], None]) -> None:
        self._real = real
        self.go = threading.Event()
        self.go.set()
        self.reached = threading.Event()
        self.full = False
        self.syncs = 0

    def sync(self, fd: int) -> None:
        self.syncs += 1
        self.reached.set()
        assert self.go.wait(60)
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._real(fd)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk(files.sync)
    monkeypatch.setattr(files, "sync", made.sync)
    yield made
    made.go.set()


def test_entries_are_in_the_order_of_calls_over_rotations_and_restarts(tmp_path: Path) -> None:
    async def session(first: int) -> list[AuditEntry]:
        async with AuditLog(log_path(tmp_path, 1), rotate_bytes=30_000) as log:

            async def one(worker: int) -> list[AuditEntry]:
                return [await log.append(event(first + worker)) for _ in range(5)]

            await asyncio.gather(*(one(worker) for worker in range(40)))
            futures = [log.append(event(first + number)) for number in range(100)]
            return list(await asyncio.gather(*futures))

    told = run(session(0)) + run(session(1000))
    lines = lines_of(tmp_path)
    assert [line["seq"] for line in lines] == list(range(600))
    assert len(files_of(tmp_path)) > 2
    assert verify(files_of(tmp_path), head=told[-1].head).mistakes == []
    numbers = [lines[entry.seq]["input"]["n"] for entry in told]
    assert numbers == [*range(100), *range(1000, 1100)]
    assert [(lines[e.seq]["hash"], lines[e.seq]["prevHash"], lines[e.seq]["ts"]) for e in told] == [
        (e.hash, e.prev_hash, e.ts) for e in told
    ]


async def test_nothing_is_acknowledged_before_it_is_on_disk_and_the_loop_does_not_wait(
    tmp_path: Path, disk: Disk
) -> None:
    async with AuditLog(log_path(tmp_path, 1)) as log:
        disk.go.clear()
        disk.reached.clear()
        first = log.append(event(1))
        await asyncio.to_thread(disk.reached.wait, 60)
        rest = [log.append(event(number)) for number in range(500)]  # all this while the disk stands still
        assert not first.done() and log.head is None
        before = disk.syncs
        disk.go.set()
        await asyncio.gather(first, *rest)
        assert disk.syncs - before <= 2, "one sync is for all that waited"
        assert log.head == rest[-1].result().head


async def test_what_a_killed_process_left_is_on_disk_before_anybody_is_told_of_it(tmp_path: Path, disk: Disk) -> None:
    write_log(tmp_path, 2)
    told: list[int] = []

    async def on_head(seq: int, _value: str) -> None:
        told.append(seq)

    disk.go.clear()
    disk.reached.clear()
    log = AuditLog(log_path(tmp_path, 1), on_head=on_head)
    opening = asyncio.ensure_future(log.open())
    await asyncio.to_thread(disk.reached.wait, 60)
    assert not opening.done() and told == []
    disk.go.set()
    await opening
    await log.aclose()
    assert told == [1]


def test_a_full_disk_refuses_and_a_disk_with_room_again_takes(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        async with AuditLog(log_path(tmp_path, 1)) as log:
            kept = await log.append(event(1))
            disk.full = True
            refused = await asyncio.gather(*(log.append(event(2)) for _ in range(3)), return_exceptions=True)
            assert [type(each) for each in refused] == [Unavailable] * 3
            assert "No space left" not in str(refused[0])
            assert log.head == kept.head
            disk.full = False
            assert (await log.append(event(3))).seq == 1

    run(scenario())
    assert [line["input"]["n"] for line in lines_of(tmp_path)] == [1, 3]
    assert verify(files_of(tmp_path)).mistakes == []


async def test_a_new_file_that_cannot_be_made_leaves_the_old_one_growing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more_files(path: Path, *, new: bool = False) -> int:
        if new:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return create(path, new=new)

    create = files.create

    async with AuditLog(log_path(tmp_path, 1), rotate_bytes=500) as log:
        for number in range(4):
            await log.append(event(number))
        before = len(files_of(tmp_path))
        monkeypatch.setattr(files, "create", no_more_files)
        for number in range(4):
            await log.append(event(number))
        assert len(files_of(tmp_path)) == before
        monkeypatch.setattr(files, "create", create)
        await log.append(event())
        assert len(files_of(tmp_path)) == before + 1
        assert verify(files_of(tmp_path), head=log.head).mistakes == []


@pytest.mark.parametrize(
    "tamper",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes() + b"more\n"),
        lambda path: path.rename(path.with_name("elsewhere")) and path.write_bytes(b"x" * 400),
    ],
)
async def test_a_file_that_somebody_else_touched_is_not_written_to_again(
    tmp_path: Path, tamper: Callable[[Path], object]
) -> None:
    async with AuditLog(log_path(tmp_path, 1)) as log:
        await log.append(event())
        tamper(log.path)
        for _ in range(2):
            with pytest.raises(AuditBroken):
                await log.append(event())


async def test_an_event_that_is_none_is_refused_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "WAITING_BYTES", 100_000)

    async with AuditLog(log_path(tmp_path, 1)) as log:
        bad = msgspec.structs.replace(event(), action="NO")
        first, wrong, last = log.append(event(1)), log.append(bad), log.append(event(2))
        assert ((await first).seq, (await last).seq) == (0, 1)
        with pytest.raises(Invalid, match="action"):
            await wrong
        with pytest.raises(Invalid, match="interlingua"):
            log.append(event(metadata={"interlingua": {}}))
        with pytest.raises(Invalid, match="Unicode"):
            log.append(msgspec.structs.replace(event(), actor=Actor("\ud800")))
        with pytest.raises(TooLarge):
            log.append(event(input={"text": "x" * 200_000}))


async def test_more_than_may_wait_is_refused_at_once(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "WAITING_BYTES", 2_000)

    async with AuditLog(log_path(tmp_path, 1)) as log:
        disk.go.clear()
        taken: list[asyncio.Future[AuditEntry]] = []
        with pytest.raises(Unavailable, match="cannot keep up"):
            while len(taken) < 100:
                taken.append(log.append(event(input={"text": "x" * 300})))
        disk.go.set()
        await asyncio.gather(*taken)
        await log.append(event())


def test_what_is_recorded_is_the_event_of_the_moment_of_the_call(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AuditLog(log_path(tmp_path, 1)) as log:
            arguments = {"to": "ada", "n": 1e21}
            future = log.append(event(input=arguments))
            arguments["to"] = "eve"
            await future

    run(scenario())
    (line,) = (tmp_path / "audit-log.jsonl").read_bytes().splitlines()
    assert b'"input":{"n":1e+21,"to":"ada"}' in line and line == canonical(msgspec.json.decode(line))


async def test_a_caller_that_was_cancelled_takes_nothing_back(tmp_path: Path) -> None:
    async with AuditLog(log_path(tmp_path, 1)) as log:
        log.append(event(1)).cancel()
        assert (await log.append(event(2))).seq == 1


async def test_what_was_appended_before_the_close_is_written_and_nothing_after(tmp_path: Path, disk: Disk) -> None:
    before = asyncio.all_tasks()
    log = AuditLog(tmp_path / "deep" / "audit.jsonl")
    with pytest.raises(Unavailable):
        log.append(event())
    await log.aclose()
    await log.open()
    log.keep(Terms(days=1))
    disk.go.clear()
    disk.reached.clear()
    waiting = [log.append(event(0))]
    await asyncio.to_thread(disk.reached.wait, 60)
    waiting += [log.append(event(number)) for number in range(1, 50)]
    closing = asyncio.ensure_future(log.aclose())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(closing), 0.01)
    disk.go.set()
    await closing
    await log.aclose()
    assert [each.result().seq for each in waiting] == list(range(50))
    with pytest.raises(Unavailable):
        log.append(event())
    assert (tmp_path / "deep" / "audit.jsonl").stat().st_mode & 0o077 == 0
    left = asyncio.all_tasks() - before
    assert not left or not (await asyncio.wait(left, timeout=60))[1], "what removes old files has stopped"


def test_a_log_and_all_folders_that_are_made_for_it_are_its_owners_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AuditLog(tmp_path / "not" / "yet" / "there" / "audit.jsonl") as log:
            await log.append(event())
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "not").rglob("*")}
        assert modes.pop("audit.jsonl") == modes.pop("audit.lock") == 0o600
        assert modes == {"yet": 0o700, "there": 0o700} and (tmp_path / "not").stat().st_mode & 0o777 == 0o700

    before = os.umask(0)
    try:
        run(scenario())
    finally:
        os.umask(before)


@pytest.mark.parametrize("sound", [True, False])
def test_a_log_that_nobody_waits_for_any_more_while_it_opens_is_let_go(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture, sound: bool
) -> None:
    async def scenario() -> None:
        disk.go.clear()
        opening = asyncio.ensure_future(AuditLog(log_path(tmp_path, 1)).open())
        await asyncio.to_thread(disk.reached.wait, 60)
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled()
        disk.full = not sound
        disk.go.set()
        (thread,) = [each for each in threading.enumerate() if each.name.startswith("audit-writer")]
        await asyncio.to_thread(thread.join, 60)
        assert not thread.is_alive()
        disk.full = False
        async with AuditLog(log_path(tmp_path, 1)) as log:
            assert (await log.append(event())).seq == 0

    run(scenario())
    gc.collect()
    assert caplog.messages == []


def test_the_logs_of_a_folder_are_told_apart_by_their_numbers(tmp_path: Path) -> None:
    names = {
        "audit-log.jsonl": 1,
        "audit-log.000000000004.jsonl": 1,
        "audit-log-2.jsonl": 2,
        "audit-log-12.000000000004.jsonl": 12,
        "audit-log-3.lock": 3,
    }
    for name, number in names.items():
        assert files.log_number(tmp_path / name) == number
        (tmp_path / name).touch()
    for name in ("other-7.jsonl", "audit-log-x.jsonl", "audit-log-8.txt"):
        assert files.log_number(tmp_path / name) == 1
        (tmp_path / name).touch()
    assert files.log_numbers(tmp_path) == {1, 2, 3, 12} and files.log_numbers(tmp_path / "none") == set()
    assert [files.log_path(tmp_path, number).name for number in (1, 2)] == ["audit-log.jsonl", "audit-log-2.jsonl"]


def test_a_log_that_cannot_be_opened_says_why_and_leaves_no_thread(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AuditLog(log_path(tmp_path, 1)) as log:
            await log.append(event())
            second = AuditLog(log_path(tmp_path, 1))
            with pytest.raises(Unavailable, match="writes this audit log already"):
                await second.open()
            await second.aclose()
        with pytest.raises(AuditBroken, match=r"ends with entry 0, and entry 5 was written: it was cut off$"):
            await AuditLog(log_path(tmp_path, 1), head=LogHead(5, "0" * 64)).open()
        with pytest.raises(AuditBroken, match=r"ends with nothing, .* cut off \(or it is on another gateway's disk"):
            await AuditLog(log_path(tmp_path / "empty", 1), head=LogHead(5, "0" * 64)).open()
        (tmp_path / "file").write_text("")
        with pytest.raises(Unavailable, match="cannot be opened"):
            await AuditLog(log_path(tmp_path / "file" / "log", 1)).open()

    run(scenario())
    for each in threading.enumerate():
        if each.name.startswith("audit-writer"):
            each.join(60)
            assert not each.is_alive()


def test_time_never_goes_back_in_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 2_000_000_000.0
    monkeypatch.setattr("time.time", lambda: now)

    async def scenario() -> None:
        nonlocal now
        async with AuditLog(log_path(tmp_path, 1)) as log:
            assert log.newest == 0
            await log.append(event())
            now -= 3600.5
            await log.append(event())
            assert log.newest == 2_000_000_000

    run(scenario())
    first, second = lines_of(tmp_path)
    assert first["ts"] == second["ts"] == "2033-05-18T03:33:20.000Z"
    assert second["metadata"]["interlingua"]["clock"] == "2033-05-18T02:33:19.500Z"


def test_the_head_is_told_in_order_and_the_last_one_always(tmp_path: Path) -> None:
    told: list[tuple[int, str]] = []

    async def on_head(seq: int, value: str) -> None:
        told.append((seq, value))
        await asyncio.sleep(0)
        if len(told) == 1:
            raise OSError("not now")

    async def scenario() -> LogHead | None:
        async with AuditLog(log_path(tmp_path, 1), on_head=on_head) as log:
            for number in range(20):
                await log.append(event(number))
            with pytest.raises(Invalid):
                await log.append(event(action="NO"))
        return log.head

    head = run(scenario())
    assert head is not None and told[-1] == (head.seq, head.hash) and head.seq == 19
    seqs = [seq for seq, _ in told]
    assert seqs == sorted(seqs) and seqs.count(19) == 1


def test_a_head_is_not_told_again_when_an_event_is_refused(tmp_path: Path) -> None:
    told: list[int] = []
    first = asyncio.Event()

    async def on_head(seq: int, _value: str) -> None:
        told.append(seq)
        first.set()

    async def scenario() -> None:
        async with AuditLog(log_path(tmp_path, 1), on_head=on_head) as log:
            await log.append(event())
            await first.wait()
            with pytest.raises(Invalid):
                await log.append(event(action="NO"))

    run(scenario())
    assert told == [0]


def test_a_head_that_fails_while_its_keeper_closes_is_tried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "RETRY_SECONDS", 60.0)
    told: list[int] = []
    first = asyncio.Event()

    async def on_head(seq: int, _value: str) -> None:
        told.append(seq)
        first.set()
        raise OSError("the store is gone")

    async def scenario() -> None:
        keeper = HeadKeeper(on_head)
        keeper.put(LogHead(7, "0" * 64))
        await first.wait()
        await keeper.aclose()

    run(scenario())
    assert told == [7, 7]


def test_a_head_that_was_not_taken_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "RETRY_SECONDS", 0.001)
    told: list[int] = []
    taken = asyncio.Event()

    async def on_head(seq: int, _value: str) -> None:
        told.append(seq)
        if len(told) < 3:
            raise OSError("not now")
        taken.set()

    async def scenario() -> None:
        keeper = HeadKeeper(on_head)
        keeper.put(LogHead(7, "0" * 64))
        await taken.wait()
        await keeper.aclose()

    run(scenario())
    assert told == [7, 7, 7]


def test_heads_that_come_faster_than_a_store_should_be_asked_become_one() -> None:
    told: list[int] = []
    first = asyncio.Event()

    async def on_head(seq: int, _value: str) -> None:
        told.append(seq)
        first.set()

    async def scenario() -> None:
        keeper = HeadKeeper(on_head, every=60)
        keeper.put(LogHead(0, "0" * 64))
        await first.wait()
        for seq in range(1, 100):
            keeper.put(LogHead(seq, "0" * 64))
            await asyncio.sleep(0)
        assert told == [0]
        await keeper.aclose()

    run(scenario())
    assert told == [0, 99]


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="blake3"):
        AuditLog(log_path(tmp_path, 1), algorithm="blake3")
    with pytest.raises(Invalid, match="blake3"):
        AuditLog(log_path(tmp_path, 1)).keep(Terms(algorithm="blake3"))
