"""Keeps the newest entry's hash outside of the log, which shows if the log's end is cut off."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from gateway.core.errors import InterlinguaError, Invalid, NotFound, Unavailable
from gateway.core.types import JsonObject
from gateway.governance.audit.event import LogHead
from gateway.governance.audit.files import log_number, log_path

EVERY_SECONDS = 0.1
RETRY_SECONDS = 1.0
SCOPE = "audit"
"""The scope of log heads in the store."""
OWNER = "audit-log"
"""One owner for all processes, since a log's lock admits one at a time."""

logger = logging.getLogger(__name__)


class HeadKeeper:
    """Calls `on_head` with the newest head, one call at a time, until it succeeds.

    Calls are at least `every` seconds apart, so that the store does not sync for every batch.
    """

    def __init__(
        self,
        on_head: Callable[[int, str], Awaitable[None]],
        *,
        every: float = EVERY_SECONDS,
    ) -> None:
        self._on_head = on_head
        self._every = every
        self._waiting: LogHead | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._taken = -1
        self._moved = asyncio.Event()

    def put(self, head: LogHead) -> None:
        """Give a newer head. It replaces one that waits."""
        self._waiting = head
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def reached(self, seq: int) -> None:
        """Wait until that entry's head, or a newer one, is kept."""
        while self._taken < seq:
            self._moved.clear()
            await self._moved.wait()

    async def aclose(self) -> None:
        """Wait until the newest head is kept, or has failed once more."""
        self._closing.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while (head := self._waiting) is not None:
            self._waiting = None
            pause = self._every
            try:
                await self._on_head(head.seq, head.hash)
                self._taken = head.seq
                self._moved.set()
            except Exception as error:
                logger.warning("the head of the audit log was not kept: %s", error)
                if self._closing.is_set():
                    return
                self._waiting = self._waiting or head
                pause = RETRY_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()


class Keeping(Protocol):
    """The part of `gateway.contract.GatewayRecords` that is used here."""

    async def keep(self, protocol: str, name: str, data: JsonObject, *, owner: str) -> None: ...

    async def kept(self, protocol: str) -> Sequence[Any]: ...


def head_name(folder: str, number: int) -> str:
    """The name in the store of a folder's log: `folder` is the folder's, and that of its first log."""
    return folder if number == 1 else f"{folder}/{log_path(Path(), number)}"


def _numbered(name: str) -> tuple[str, int]:
    """The folder's name, and the log's number, of a name in the store."""
    folder, _, file = name.rpartition("/")
    number = log_number(Path(file))
    return (folder, number) if number > 1 else (name, 1)


async def kept_numbers(records: Keeping, folder: str) -> set[int]:
    """The numbers of a folder's logs whose heads the store knows."""
    names = [_numbered(kept.name) for kept in await records.kept(SCOPE)]
    return {number for name, number in names if name == folder}


class KeptHead:
    """The head of the log `name` in the gateway's store, for `AuditLog(head=await kept.newest(), on_head=kept.keep)`.

    Each log has a name of its own in the store; two that share one would take each other for cut off.
    """

    def __init__(self, records: Keeping, name: str) -> None:
        self._records = records
        self._name = name

    async def newest(self) -> LogHead | None:
        """Return the newest head that was kept. Raises Unavailable, and Invalid if the record is malformed."""
        found = [kept.data for kept in await self._records.kept(SCOPE) if kept.name == self._name]
        return _head(self._name, found[0]) if found else None

    async def keep(self, seq: int, value: str) -> None:
        """Keep a newer head durably."""
        await self._records.keep(SCOPE, self._name, {"seq": seq, "hash": value}, owner=OWNER)


async def stored_heads(url: str, name: str | None) -> dict[int, LogHead]:
    """Return the heads of a folder's logs, by number, from the store at `url`. Without a name of the folder there must
    be only one.

    Raises Unavailable, NotFound, Invalid (several folders, a malformed URL).
    """
    from gateway.store.opening import open_store

    try:
        store = open_store(url)
    except ValueError as error:
        raise Invalid(str(error)) from error
    await store.open()
    try:
        there = {
            one.name.removeprefix(f"{SCOPE}/"): one.data
            for one in await store.registrations(0)
            if one.protocol == SCOPE
        }
    finally:
        try:
            await store.close()
        except InterlinguaError as error:
            raise Unavailable(str(error)) from error
    folders = dict.fromkeys(_numbered(each)[0] for each in there)
    if name is None and len(folders) > 1:
        raise Invalid(f"the store knows the heads of several logs, name one: {', '.join(folders)}")
    name = name if name is not None else next(iter(folders), "")
    if name not in folders:
        raise NotFound(f"the store knows the head of no log{f' {name}' if name else ''}")
    found = {number: each for each in there for folder, number in [_numbered(each)] if folder == name}
    return {number: _head(each, there[each]) for number, each in sorted(found.items())}


def _head(name: str, data: JsonObject) -> LogHead:
    try:
        return LogHead.parse(f"{data['seq']}:{data['hash']}")
    except (KeyError, ValueError) as error:
        raise Invalid(f"what the store has for the audit log {name} is no head") from error
