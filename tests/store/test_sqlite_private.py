"""The file of a store is its owner's, and so is what SQLite puts beside it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.store.sqlite import SqliteStore
from tests.store.place import make_thread
from tests.support.aio import run


@pytest.fixture(params=[0o000, 0o022])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


async def used(path: Path, folder: Path) -> dict[str, int]:
    """The modes of all files of a store while it is open, by two."""
    stores = [SqliteStore(path), SqliteStore(path)]
    for store in stores:
        await store.open()
    await stores[0].create_thread(make_thread("t"))
    found = modes(folder)
    for store in stores:
        await store.close()
    return found


@pytest.mark.usefixtures("umask")
def test_what_a_store_creates_is_its_owners_alone(tmp_path: Path) -> None:
    found = run(used(tmp_path / "s.db", tmp_path))
    beside = [name for name in found if name.startswith(("s.db-bell-", "s.db-begun-"))]
    assert len(beside) == 4 and found == dict.fromkeys(["s.db", "s.db-wal", "s.db-shm", *beside], 0o600)
    assert set(modes(tmp_path)) == {"s.db"}, "nothing stays beside it"


@pytest.mark.usefixtures("umask")
def test_a_link_to_a_file_that_is_not_there_yet_makes_a_private_one(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "s.db").symlink_to(folder / "real.db")
    assert set(run(used(tmp_path / "s.db", folder)).values()) == {0o600}


@pytest.mark.usefixtures("umask")
def test_a_file_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.touch()
    path.chmod(0o640)
    assert run(used(path, tmp_path))["s.db"] == 0o640
