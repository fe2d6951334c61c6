"""What a process prints is taken as it comes, up to its end, once."""

from __future__ import annotations

import asyncio
import os

import pytest

from gateway.transport.stdio import reader
from gateway.transport.stdio.reader import BLOCK, OutputReader


class Taken:
    """A pipe's reader, and what it has given out."""

    def __init__(self, most: int = 1024 * 1024) -> None:
        out, self.fd = os.pipe()
        self.out = out
        self.data = b""
        self.ends = 0
        self.over = asyncio.Event()
        self.reader = OutputReader(out, self._take, self._ended, most=most)

    def _take(self, data: bytes) -> None:
        self.data += data

    def _ended(self) -> None:
        self.ends += 1
        self.over.set()

    def shut(self) -> None:
        """The process is gone."""
        os.close(self.fd)


async def test_all_of_it_comes_and_then_its_end() -> None:
    said = os.urandom(3 * BLOCK + 7)
    taken = Taken()
    await asyncio.to_thread(_say, taken.fd, said)
    taken.shut()
    async with asyncio.timeout(30):
        await taken.over.wait()
    assert taken.data == said and taken.ends == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(taken.out)
    taken.reader.finish()
    assert taken.ends == 1


async def test_who_drains_is_given_what_is_there_and_at_most_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BLOCK", 4)

    taken = Taken(most=8)
    os.write(taken.fd, b"0123456789abcdef!")
    for count in (8, 16, 17, 17):
        taken.reader.drain()
        assert taken.data == b"0123456789abcdef!"[:count]
    assert taken.ends == 0
    taken.shut()
    taken.reader.drain()
    assert taken.ends == 1


async def test_who_finishes_is_given_what_is_there_and_not_what_comes_after() -> None:
    taken = Taken()
    os.write(taken.fd, b"before")
    taken.reader.finish()
    assert (taken.data, taken.ends) == (b"before", 1)
    with pytest.raises(BrokenPipeError):
        os.write(taken.fd, b"after")
    taken.shut()


def _say(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
