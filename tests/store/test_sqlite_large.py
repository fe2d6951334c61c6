"""SQLite: a transaction that writes much is the thread's: the event loop does not wait for the disk to take it."""

from __future__ import annotations

import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from gateway.core.types import Checkpoint, ThreadChange
from gateway.store import RunChange
from gateway.store.sqlite import SqliteStore, disk_thread
from gateway.store.write_queue import SMALL_BYTES
from tests.store.place import NOW, content, entry, make_artifact, make_run, make_thread

LARGE = {"text": "x" * SMALL_BYTES}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each transaction, whether the event loop wrote it."""
    found: list[bool] = []
    write = disk_thread.DiskThread.write

    def noted(*args: Any, **named: Any) -> Any:
        found.append(threading.current_thread() is threading.main_thread())
        return write(*args, **named)

    monkeypatch.setattr(disk_thread.DiskThread, "write", noted)
    return found


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("how", ["metadata", "checkpoint", "run's end", "run's start", "end's event", "start's event"])
async def test_a_large_record_is_not_written_on_the_event_loop(
    tmp_path: Path, written: list[bool], how: str, large: bool
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    thread, one = make_thread("t"), make_run(thread="t")
    await store.create_thread(thread)
    values = LARGE if large else {"text": "x"}
    point = Checkpoint(id="c", thread="t", created_at=1.0, values=values)
    said = [entry(1, "x" * (SMALL_BYTES + 1) if large else "x")]
    if how in ("run's end", "end's event"):
        await store.create_run(one, [], reserved=1)
    written.clear()
    match how:
        case "metadata":
            await store.update_thread("t", ThreadChange(metadata=values), at=NOW)
        case "checkpoint":
            await store.update_thread("t", ThreadChange(), point, at=NOW)
        case "run's end":
            await store.commit(one.id, RunChange(checkpoint=point, release=True))
        case "run's start":
            await store.create_run(replace(one, request=replace(one.request, input=values)), [], reserved=1)
        case "end's event":
            await store.commit(one.id, RunChange(events=tuple(said), release=True))
        case "start's event":
            await store.create_run(one, said, reserved=1)
    assert written == [not large]
    thread = await store.thread("t")
    assert (thread.values, thread.metadata) == {
        "metadata": (None, values),
        "run's start": (None, {}),
        "end's event": (None, {}),
        "start's event": (None, {}),
    }.get(how, (values, {}))
    await store.close()


async def test_a_thread_is_deleted_with_the_output_of_one_of_its_runs_in_memory_at_a_time(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    await store.create_thread(make_thread("t"))
    made = [make_run(thread="t") for _ in range(16)]
    for one in made:
        await store.create_run(one, [], reserved=1)
        await store.commit(one.id, RunChange(run=replace(one, output=Raw(b'"%b"' % (b"x" * (1 << 20)))), release=True))
    tracemalloc.start()
    try:
        await store.delete_thread("t")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert [(await store.run(one.id)).thread for one in made] == [None] * 16
    await store.close()


async def test_the_log_of_a_large_upload_is_moved_to_the_file_while_it_comes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    await store.put_artifact(make_artifact(), content(*[b"x" * (1 << 20)] * 24), max_bytes=1 << 30)
    assert (tmp_path / "store.db-wal").stat().st_size < 16 << 20
    await store.close()
