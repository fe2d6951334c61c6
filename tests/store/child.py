"""The other process of a store's contract tests: opens the store at the place, does one thing, says what came of it.

    python -P child.py '{"maker": ..., "url": ..., "command": ..., "arguments": {...}}'

It speaks in lines of JSON and waits for a line where the test must come first. What opens a run here is left open: the
test kills this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from gateway.core.errors import InterlinguaError
from gateway.core.types import IfBusy, RunStatus, ThreadChange, ThreadUpdate
from gateway.store import Allowance, Delivery, Message, Registration, RunChange, Store, suffice, write_queue
from tests.store import (
    makers,  # noqa: F401 - is imported before this is forked off
    place,
)

RESERVED = 1_000_000


def say(what: Any) -> None:
    print(json.dumps(what), flush=True)


async def told() -> None:
    await asyncio.to_thread(sys.stdin.readline)


async def stream(store: Store, *, run: str) -> None:
    """Tokens without end; a commit now and then, told once it has returned with the highest number it covers. Every
    other one is only written by then.
    """
    await store.create_run(place.make_run(run), [place.entry(1)], reserved=RESERVED)
    number = 2
    while True:
        for _ in range(10):
            store.append(run, place.tokens(number, 20))
            number += 20
            await asyncio.sleep(0)
        await store.commit(run, RunChange(events=(place.entry(number),)), soon=bool(number % 2))
        say(number)
        number += 1


async def hold(
    store: Store, *, run: str, thread: str, queued: str, ended: str, other: str, delivery: str, name: str
) -> None:
    """One of everything that a dead process may leave behind, then nothing."""
    await store.create_thread(place.make_thread(thread))
    await store.create_run(place.make_run(run, thread=thread), [place.entry(1)], reserved=50)
    await store.create_run(place.make_run(queued, thread=thread), [], reserved=10)
    running = place.make_run(run, thread=thread, status=RunStatus.RUNNING)
    owed = Delivery(id=delivery, run=running, due_at=place.NOW)
    await store.commit(run, RunChange(run=running, events=(place.entry(2),), delivery=owed))
    await store.create_thread(place.make_thread(other))
    await store.create_run(place.make_run(ended, thread=other), [], reserved=10)
    await store.commit(ended, RunChange(run=place.make_run(ended, thread=other, status=RunStatus.SUCCESS)))
    await store.put_registration(
        Registration(name=name, protocol="plain", owner=store.owner, data={}, created_at=place.NOW)
    )
    say(store.owner)
    await told()


async def begin(store: Store, *, runs: list[str], ends: str, then: str = "") -> None:
    """Runs that nobody is told of, of which one ends. Once told, another."""
    write_queue.SECONDS = 3600.0
    for run in runs:
        made = place.make_run(run, status=RunStatus.RUNNING)
        await store.create_run(made, [place.entry(1)], reserved=99, soon=True)
    over = RunChange(run=place.make_run(ends, status=RunStatus.SUCCESS), release=True)
    await store.commit(ends, over, soon=True)
    say(store.owner)
    await told()
    if then:
        await store.create_run(place.make_run(then, status=RunStatus.RUNNING), [place.entry(1)], reserved=99, soon=True)
        say("begun")
        await told()


async def upload(store: Store, *, artifact: str) -> None:
    """Half a file, then nothing."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"x" * (1 << 20)
        await store.flush()
        say("half")
        await told()
        yield b"the rest"

    await store.put_artifact(place.make_artifact(artifact), pieces(), max_bytes=1 << 24)


async def create(store: Store, *, thread: str, run: str, if_busy: str) -> None:
    """Ask for the thread when told to, and say what came of it."""
    say("ready")
    await told()
    try:
        one = place.make_run(run, thread=thread, if_busy=IfBusy(if_busy))
        created = await store.create_run(one, [], reserved=10)
        say(created.active)
    except InterlinguaError as error:
        say(error.code)
    await told()


async def change(store: Store, *, thread: str, name: str, times: int) -> None:
    """Change a thread many times when told to, each time with another key and another update."""
    say("ready")
    await told()
    for number in range(times):
        key = f"{name}{number}"
        update = ThreadUpdate(protocol="plain", kind=key, kept=True)
        await store.update_thread(
            thread,
            ThreadChange(metadata={key: 1}, attributes={key: 1}, upstream={key: {}}, updates=(update,)),
            at=place.NOW,
        )
    say("done")
    await told()


async def claim(store: Store) -> None:
    """Claim when told to, and say which runs came."""
    say("ready")
    await told()
    say([recovered.run.id for recovered in await store.claim()])
    await told()


async def correspond(store: Store, *, bell: bool) -> None:
    """Say the owner, then answer every message, and say the names of the runs that are rung for, by what was sent: the
    number of names that are to be rung for before they are said. `bell`: look at the mailbox only when it is rung for.
    """
    heard: list[str | None] = []
    woken = asyncio.Event()

    def hears(name: str | None) -> None:
        heard.append(name)
        woken.set()

    store.mailbox.listen(hears)
    await store.open()

    async def rings() -> bool:
        return store.mailbox.has_bell

    if bell:
        await place.eventually(rings)
    say(store.owner)
    wanted = 0
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if bell else 0.02):
                await woken.wait()
        woken.clear()
        for message in await store.mailbox.receive():
            if message.body.isdigit():
                wanted = int(message.body)
            answer = Message(id=f"re {message.id}", sender=store.owner, body=message.body, answers=message.id)
            await store.mailbox.send(message.sender, answer, seconds=60)
        runs = sorted({name for name in heard if name})
        if wanted and len(runs) >= wanted:
            say(runs)
            wanted = 0


async def spend(store: Store, *, limit: int) -> None:
    """Spend two allowances at once, many at a time, in this order and in that, until the smaller is used up. Say how
    much of it had been used before each; then nothing.
    """
    until = time.time() + 3600
    few = Allowance(name="few", limit=limit, until=until)
    many = Allowance(name="many", limit=limit + 50, until=until)
    say("ready")
    await told()
    found: list[int] = []

    async def spends(*wanted: Allowance) -> None:
        while suffice(wanted, used := await store.spend(wanted)):
            found.append(used[wanted.index(few)])

    await asyncio.gather(*(spends(*order) for order in ((few, many), (many, few)) * 4))
    say(found)
    await told()


COMMANDS = {work.__name__: work for work in (stream, hold, begin, upload, create, change, claim, correspond, spend)}
OPENED_BY_THEMSELVES = (correspond.__name__,)


async def main(call: dict[str, Any]) -> None:
    arguments = call["arguments"]
    options = arguments.pop("options", {})
    store = place.Place(call["maker"], call["url"]).store(**options)
    if call["command"] not in OPENED_BY_THEMSELVES:
        await store.open()
    await COMMANDS[call["command"]](store, **arguments)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
