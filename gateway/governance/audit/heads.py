"""Keeps the newest entry's number and hash outside of the log, which shows if the log's end is cut off.

They are kept in the store and, where the posture wants it, signed in AIP-7's `head-pointer.json`, for whoever verifies
the log from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import msgspec

from gateway.core.errors import InterlinguaError, Invalid, NotFound, Unavailable
from gateway.core.types import JsonObject
from gateway.governance.audit.canonical import canonical
from gateway.governance.audit.event import GATEWAY, SCHEMA, LogHead
from gateway.governance.audit.files import log_number, log_path, sync_folder, write
from gateway.governance.audit.keys import EntrySigner, Keyring, reason

EVERY_SECONDS = 0.1
RETRY_SECONDS = 1.0
SCOPE = "audit"
"""The scope of log heads in the store."""
OWNER = "audit-log"
"""One owner for all processes, since a log's lock admits one at a time."""

FOLDER = ".well-known"
POINTER = "head-pointer"
POINTER_SECONDS = 10.0
"""The shortest time between two pointers."""

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


class Pointer:
    """Publishes the head of the log at `chain`, in `.well-known` beside it.

    Signed is the canonical JSON of the document without its `signature`.
    """

    def __init__(self, chain: Path, signer: EntrySigner) -> None:
        self.path = path_for(chain)
        self._chain = chain.name
        self._signer = signer

    async def publish(self, seq: int, value: str) -> None:
        """Put the newest entry there, durably, in one step. Raises OSError."""
        await asyncio.to_thread(self._write, self._document(seq, value))

    def _document(self, seq: int, value: str) -> JsonObject:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
        said: JsonObject = {
            "$schema": SCHEMA,
            "doctype": POINTER,
            "chain": self._chain,
            "headSeq": seq,
            "headHash": value,
            "pinnedAt": at,
            "signer": msgspec.to_builtins(GATEWAY),
        }
        return {**said, "signature": self._signer.sign(canonical(said))}

    def _write(self, document: JsonObject) -> None:
        self.path.parent.mkdir(mode=0o755, exist_ok=True)
        fresh = self.path.with_name(f"{self.path.name}.new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write(fd, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(fresh, self.path)
        sync_folder(self.path.parent)


def path_for(chain: Path) -> Path:
    """Return the path of a log's pointer, by its active file."""
    number = log_number(chain)
    return chain.parent / FOLDER / (f"{POINTER}.json" if number == 1 else f"{POINTER}-{number}.json")


class _Said(msgspec.Struct, frozen=True, rename="camel"):
    head_seq: Annotated[int, msgspec.Meta(ge=0)]
    head_hash: str
    pinned_at: Annotated[datetime, msgspec.Meta(tz=True)]
    doctype: Literal["head-pointer"]
    signature: dict[str, Any] = {}


def read(path: Path, keyring: Keyring | None) -> LogHead:
    """The entry that a pointer names; with a keyring its signature is checked. Raises Invalid."""
    try:
        document = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        said = msgspec.convert(document, _Said)
        head = LogHead.parse(f"{said.head_seq}:{said.head_hash}")
    except (OSError, ValueError) as error:
        raise Invalid(f"{path}: no head pointer: {reason(error)}") from error
    if keyring is not None:
        payload = canonical({key: value for key, value in document.items() if key != "signature"})
        wrong = keyring.check(said.signature, payload, said.pinned_at)
        if wrong is not None:
            raise Invalid(f"{path}:signature {wrong[0]} {wrong[1]}")
    return head
