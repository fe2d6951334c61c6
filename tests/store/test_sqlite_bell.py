"""The bell of a store in a file: a socket beside it, whatever the file is called and whoever died there."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from gateway.store import Message
from gateway.store.sqlite import SqliteStore, mail
from tests.store.makers import SQLITE
from tests.store.place import Place
from tests.support.aio import run


def sockets(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_socket()]


async def hears(path: Path) -> bool:
    """Whether one store at the file hears another; if it says that it has no bell, it is not to hear anything."""
    one, two = SqliteStore(path), SqliteStore(path, host="elsewhere")
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    one.mailbox.listen(heard.put_nowait)
    await one.open()
    await two.open()
    try:
        await two.mailbox.send(one.owner, Message(id="m", sender=two.owner, body=b""), seconds=60)
        if one.mailbox.has_bell:
            assert await asyncio.wait_for(heard.get(), 30) == ""
            two.mailbox.ring(one.owner, "run")
            assert await asyncio.wait_for(heard.get(), 30) == "run"
        assert len(await one.mailbox.receive()) == 1
        return one.mailbox.has_bell
    finally:
        await one.close()
        await two.close()


def test_a_folder_whose_path_is_longer_than_a_sockets_may_be_has_a_bell(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 100) / ("b" * 100)
    folder.mkdir(parents=True)
    assert run(hears(folder / "s.db"))
    assert sockets(folder) == []


def test_a_file_whose_name_is_too_long_for_a_socket_beside_it_is_looked_at_now_and_then(tmp_path: Path) -> None:
    assert not run(hears(tmp_path / f"{'n' * 100}.db"))


async def test_a_link_and_its_file_have_one_bell(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "data" / "s.db")

    there, here = SqliteStore(tmp_path / "data" / "s.db"), SqliteStore(tmp_path / "link.db", host="elsewhere")
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    there.mailbox.listen(heard.put_nowait)
    await there.open()
    await here.open()
    here.mailbox.ring(there.owner, "run")
    assert await asyncio.wait_for(heard.get(), 30) == "run"
    await there.close()
    await here.close()


async def test_the_socket_of_a_process_that_was_killed_is_removed_by_the_next_and_that_of_a_living_one_is_not(
    tmp_path: Path,
) -> None:
    place = Place(SQLITE, f"sqlite:///{tmp_path / 's.db'}")

    async with place.process("correspond", bell=True) as dead, place.process("correspond", bell=True) as living:
        await dead.said()
        await living.said()
        os.kill(living.pid, signal.SIGSTOP)
        await dead.kill()
        before = set(sockets(tmp_path))
        async with place.opened() as store:
            assert len(before) == 2 and len(before & set(sockets(tmp_path))) == 1
            assert await store.is_orphaned()
        os.kill(living.pid, signal.SIGCONT)


def test_a_folder_that_takes_no_socket_costs_the_bell_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise PermissionError("no sockets here")

    monkeypatch.setattr(mail.os, "chmod", refuses)
    assert not run(hears(tmp_path / "s.db"))
    assert sockets(tmp_path) == []
