"""Messages of a pipe that have arrived and are not received yet."""

from __future__ import annotations

import asyncio

from gateway.transport.pipe import Inbox, Unreadable


async def test_what_has_arrived_is_received_at_once_and_in_order() -> None:
    inbox = Inbox(10)
    waiting = asyncio.create_task(inbox.receive())
    await asyncio.sleep(0)
    garbage = Unreadable("none", b"", None)
    inbox.put([b"one", garbage])
    inbox.put([b"two"])
    assert await waiting == [b"one", garbage, b"two"]
    assert inbox.size == 0


async def test_a_writer_waits_while_more_than_the_limit_is_not_received() -> None:
    inbox = Inbox(4)
    inbox.put([b"four"])
    await inbox.room()
    inbox.put([b"5"])
    waiting = asyncio.create_task(inbox.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await inbox.receive()
    await waiting


async def test_the_end_wakes_both_sides_and_what_was_put_in_is_still_received() -> None:
    inbox = Inbox(1)
    inbox.put([b"last"])
    waiting = asyncio.create_task(inbox.room())
    await asyncio.sleep(0)
    inbox.end()
    await waiting
    assert await inbox.receive() == [b"last"]
    assert await inbox.receive() == []
