"""Messages that are handled as they are read, before who receives them has woken: `Direct` pipes, `Swift` handlers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from gateway.transport.pipe import LIMIT, Unreadable
from gateway.transport.rpc import Peer, incoming
from gateway.transport.stdio.lines import HELD, LineReader
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id
from tests.support.rpc import Recorder, settled

ARRIVED = 20.0
SWIFT = b'{"jsonrpc":"2.0","method":"swift"}'
SLOW = b'{"jsonrpc":"2.0","method":"slow"}'
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":null}'


async def until(true: Callable[[], bool]) -> None:
    """Wait until it is."""
    async with asyncio.timeout(ARRIVED):
        while not true():  # noqa: ASYNC110 - a pipe tells nobody but its reader
            await asyncio.sleep(0.001)


class Half:
    """A pipe whose messages come out of a real one; what it is sent is kept."""

    name = "the other end"

    def __init__(self) -> None:
        source, self.far = os.pipe()
        self.reader = LineReader(source, LIMIT)
        self.sent: list[bytes] = []
        self.received: list[bytes | Unreadable] = []

    def say(self, *lines: bytes) -> None:
        """As the other end: in one write."""
        os.write(self.far, b"".join(line + b"\n" for line in lines))

    def direct(self, take: Callable[[Sequence[bytes | Unreadable]], Sequence[bytes | Unreadable]]) -> None:
        self.reader.direct(take)

    async def receive(self) -> Sequence[bytes | Unreadable]:
        received = await self.reader.take()
        self.received += received
        return received

    async def send(self, messages: Sequence[bytes]) -> None:
        self.sent += messages

    async def aclose(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.far)
        self.reader.discard()
        self.reader.finish()


class Quick(Recorder):
    """Takes what is SWIFT, and says in `heard` that it did. `offered`: how many messages it was shown, each time."""

    def __init__(self, **on: Any) -> None:
        super().__init__(**on)
        self.offered: list[int] = []

    def take(self, messages: Sequence[bytes | Unreadable], start: int) -> int:
        self.offered.append(len(messages) - start)
        while start < len(messages) and messages[start] == SWIFT:
            self.heard.append(("taken",))
            start += 1
        return start

    @property
    def order(self) -> list[str]:
        """What came, in short."""
        return [each[0] if each[0] == "taken" else str(each[1]) for each in self.heard]


@asynccontextmanager
async def peer_of(handler: Recorder) -> AsyncIterator[tuple[Peer, Half]]:
    half = Half()
    async with Peer(half, handler, grace=1.0) as peer:
        await settled()
        yield peer, half


async def test_what_comes_while_somebody_waits_is_shown_first_and_what_is_left_is_received_in_order() -> None:
    half = Half()
    shown: list[list[bytes]] = []

    def take(lines: Sequence[bytes | Unreadable]) -> Sequence[bytes | Unreadable]:
        shown.append([line for line in lines if isinstance(line, bytes)])
        return lines[2:]

    half.direct(take)
    received = asyncio.create_task(half.reader.take())
    await settled()
    half.say(b"1", b"2")
    await until(lambda: len(shown) == 1)
    await settled()
    assert not received.done()  # nobody is woken for nothing
    half.say(b"3", b"4", b"5")
    assert await received == [b"5"]
    half.say(b"6", b"7")  # nobody waits
    await until(lambda: bool(half.reader._lines))
    assert await half.reader.take() == [b"6", b"7"]
    assert shown == [[b"1", b"2"], [b"3", b"4", b"5"]]
    await half.aclose()


async def test_a_pipe_whose_messages_are_all_taken_is_read_on_however_much_comes() -> None:
    half, left = Half(), 0
    line = b"x" * 4095

    def take(lines: Sequence[bytes | Unreadable]) -> Sequence[bytes | Unreadable]:
        nonlocal left
        left -= len(lines)
        return []

    def all_taken() -> bool:
        return left == 0

    half.direct(take)
    received = asyncio.create_task(half.reader.take())
    await settled()
    for _ in range(3 * HELD // (8 * len(line))):
        left = 8
        half.say(*[line] * left)
        await until(all_taken)
    os.close(half.far)
    assert await received == []
    await half.aclose()


async def test_what_a_swift_handler_takes_and_what_it_leaves_stay_in_order() -> None:
    handler = Quick()
    async with peer_of(handler) as (_, half):
        half.say(SWIFT, SWIFT)
        await until(lambda: len(handler.heard) == 2)
        half.say(SWIFT, SLOW, SWIFT, SWIFT, SLOW, SLOW, SWIFT)
        await until(lambda: len(handler.heard) == 9)
        assert handler.order == ["taken"] * 3 + ["slow", "taken", "taken", "slow", "slow", "taken"]


async def test_nothing_is_taken_before_who_was_answered_has_gone_on() -> None:
    handler = Quick()
    async with peer_of(handler) as (peer, half):

        async def ask() -> None:
            await peer.request("m")
            handler.heard.append(("request", "gone on"))

        asking = asyncio.create_task(ask())
        await until(lambda: bool(half.sent))
        half.say(SWIFT, ANSWER, SWIFT)
        await asking
        await until(lambda: len(handler.heard) == 3)
        assert [each[1] if len(each) > 1 else each[0] for each in handler.heard] == ["taken", "gone on", "taken"]


async def test_nothing_is_taken_while_a_notification_before_it_is_waited_for() -> None:
    handler = Quick()
    handler.hold = asyncio.Event()
    async with peer_of(handler) as (_, half):
        half.say(SLOW)
        await until(lambda: handler.order == ["slow"])
        half.say(SWIFT)
        await settled(50)
        assert handler.order == ["slow"]
        handler.hold.set()
        await until(lambda: handler.order == ["slow", "taken"])


async def test_a_handler_that_is_not_swift_hears_everything_the_usual_way() -> None:
    handler = Recorder()
    async with peer_of(handler) as (_, half):
        half.say(SWIFT, SLOW)
        await until(lambda: len(handler.heard) == 2)
        assert [each[1] for each in handler.heard] == ["swift", "slow"]


async def test_requests_answers_and_notifications_that_nothing_waits_for_do_not_wake_the_reader() -> None:
    handler = Recorder()
    async with peer_of(handler) as (peer, half):
        asking = asyncio.create_task(peer.request("m"))
        await until(lambda: bool(half.sent))
        half.say(SLOW, b'{"jsonrpc":"2.0","id":7,"method":"theirs"}', ANSWER)
        assert bytes(await asking) == b"null"
        await until(lambda: len(half.sent) == 2)
        assert [each[1] for each in handler.heard] == ["slow", "theirs"] and half.received == []
        half.say(b"no message", SLOW)
        await until(lambda: len(handler.heard) == 4)
        assert half.received == [b"no message", SLOW]


async def test_what_comes_after_a_notification_that_is_waited_for_waits_and_the_end_comes_after_both() -> None:
    handler = Recorder()
    handler.hold = asyncio.Event()
    async with peer_of(handler) as (peer, half):
        half.say(SLOW, SLOW)
        await until(lambda: bool(half.received))
        os.close(half.far)
        await settled(50)
        assert len(handler.heard) == 1 and peer.gone is None
        handler.hold.set()
        async with asyncio.timeout(ARRIVED):
            await peer.wait_closed()
        assert len(handler.heard) == 2


async def test_a_notification_that_is_waited_for_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def decode(data: bytes) -> jsonrpc.Message:
        decoded.append(data)
        return jsonrpc.decode(data)

    monkeypatch.setattr(incoming, "jsonrpc", SimpleNamespace(**{**vars(jsonrpc), "decode": decode}))
    handler = Recorder()
    handler.hold = asyncio.Event()
    handler.hold.set()
    async with peer_of(handler) as (_, half):
        half.say(SLOW, SLOW)
        await until(lambda: len(handler.heard) == 2)
        await settled()
    assert decoded == [SLOW, SLOW]


async def test_a_handler_that_fails_at_what_it_takes_ends_the_connection_and_loses_nothing_silently() -> None:
    class Broken(Quick):
        def take(self, messages: Sequence[bytes | Unreadable], start: int) -> int:
            raise RuntimeError("a defect")

    async with peer_of(Broken()) as (peer, half):
        half.say(SWIFT)
        async with asyncio.timeout(ARRIVED):
            gone = await peer.wait_closed()
        assert "failed" in str(gone) and "a defect" in gone.detail


async def test_a_handler_may_send_while_it_handles_a_message_as_it_is_read() -> None:
    class Echo(Recorder):
        peer: Peer

        def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
            self.peer.notify(method)
            return super().notification(method, params)

    handler = Echo()
    async with peer_of(handler) as (handler.peer, half):
        half.say(SLOW)
        await until(lambda: bool(half.sent))
        assert half.sent == [SLOW] and len(handler.heard) == 1


async def test_what_arrives_while_a_connection_is_closed_is_not_begun_and_nothing_is_left_of_it() -> None:
    cancelled, stop = asyncio.Event(), asyncio.Event()

    async def stubborn(params: Raw, id: Id) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await stop.wait()

    async def late(params: Raw, id: Id) -> None:
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    handler = Recorder(stubborn=stubborn, late=late)
    async with peer_of(handler) as (peer, half):
        half.say(b'{"jsonrpc":"2.0","id":7,"method":"stubborn"}')
        await until(lambda: len(handler.heard) == 1)
        closing = asyncio.create_task(peer.aclose())
        await cancelled.wait()
        half.say(b'{"jsonrpc":"2.0","id":8,"method":"late"}', SLOW)
        await settled(50)
        stop.set()
        await closing
        assert len(handler.heard) == 1 and asyncio.all_tasks() == before
