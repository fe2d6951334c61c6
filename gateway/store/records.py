"""How records are named and encoded, as JSON, and which of them a search wants."""

import math
import os
import time
from collections.abc import Callable, Sequence
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from gateway.core.json_match import contains
from gateway.core.types import (
    NULL,
    OWNER,
    Artifact,
    Checkpoint,
    Failure,
    Interrupt,
    JsonObject,
    Run,
    RunQuery,
    RunRequest,
    RunStatus,
    StopReason,
    Thread,
    ThreadChange,
    ThreadQuery,
    ThreadStatus,
)
from gateway.store import LogEntry, Registration

QUEUED, ACTIVE, RELEASED = 0, 1, 2
"""A run's place: waits for its thread, occupies it, has released it."""


def new_id() -> str:
    """A UUID (version 7): random, and later ones sort after earlier ones, which keeps the store's indexes compact."""
    if not _random:
        block = os.urandom(2560)
        _random.extend([block[at : at + 10].hex() for at in range(0, 2560, 10)])
    ms, chance = time.time_ns() // 1_000_000, _random.pop()
    return f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7{chance[:3]}-{_VARIANT[chance[3]]}{chance[4:7]}-{chance[7:19]}"


_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
_random: list[str] = []
"""Randomness for the next ids: one call of the system's serves a few hundred."""


_encoder = msgspec.json.Encoder()
_encode = _encoder.encode
decode_run = msgspec.json.Decoder(Run).decode
decode_artifact = msgspec.json.Decoder(Artifact).decode
decode_checkpoint = msgspec.json.Decoder(Checkpoint).decode
decode_registration = msgspec.json.Decoder(Registration).decode
_decode_thread = msgspec.json.Decoder(Thread).decode


def encode(record: msgspec.Struct) -> bytearray:
    """Encode a record as JSON, as a `bytearray`: for `bytes` the sqlite3 module looks up adapters first."""
    encoded = bytearray()
    _encoder.encode_into(record, encoded)
    return encoded


FEW_BYTES = 2048
"""The most bytes of entries that go into their run's own row."""

_data: Callable[[LogEntry], bytes] = attrgetter("data")
_encode_entries = msgspec.msgpack.Encoder().encode
_decode_entries = msgspec.msgpack.Decoder(list[LogEntry]).decode


def size_of(entries: Sequence[LogEntry]) -> int:
    """Bytes that entries have, all told."""
    return sum(map(len, map(_data, entries)))


def few(entries: Sequence[LogEntry]) -> bytearray | None:
    """Encode entries for their run's own row, written with its creation and its end anyway. None for none, or too
    many.
    """
    return bytearray(_encode_entries(entries)) if 0 < size_of(entries) <= FEW_BYTES else None


def of_few(data: bytes | None) -> list[LogEntry]:
    """The entries in a run's own row."""
    return _decode_entries(data) if data is not None else []


class _BriefRequest(msgspec.Struct):
    agent: str
    protocol: str
    thread: str | None = None
    principal: str | None = None


class _BriefRun(msgspec.Struct):
    """What is read of a run's record for a list."""

    id: str
    request: _BriefRequest
    created_at: float
    updated_at: float
    status: RunStatus = RunStatus.PENDING
    stop_reason: StopReason | None = None
    failure: Failure | None = None
    interrupts: tuple[Interrupt, ...] = ()
    losses: dict[str, int] = {}


_decode_brief = msgspec.json.Decoder(_BriefRun).decode


def decode_brief(record: bytes) -> Run:
    """Decode a run as `RunQuery.brief` has it. What is left out is skipped over, and not held."""
    read = msgspec.structs.asdict(_decode_brief(record))
    return Run(**{**read, "request": RunRequest(**msgspec.structs.asdict(read["request"]), input=None)})


class ThreadRecord(Thread, frozen=True, kw_only=True):
    """A thread with its state left encoded: the state may be large, and most changes do not touch it."""

    values: msgspec.Raw = NULL


NO_CHANGE = ThreadChange()
_STATUSES = {str(status): status for status in ThreadStatus}
_decode_thread_record = msgspec.json.Decoder(ThreadRecord).decode


def decode_thread(record: bytes, status: str, updated_at: float) -> Thread:
    """Decode a thread. Its columns change with its runs, so they replace what its record says."""
    return replace(_decode_thread(record), status=_STATUSES[status], updated_at=updated_at)


def changed_thread(record: bytes, change: ThreadChange, checkpoint: Checkpoint | None) -> ThreadRecord:
    """Apply a change, and a checkpoint that becomes the newest, to a thread's encoded record."""
    changed = _decode_thread_record(record)
    if change is not NO_CHANGE:
        changed = change.of(changed)
    if checkpoint is not None:
        changed = replace(changed, checkpoint=checkpoint.id)
        if checkpoint.values is not None:
            changed = replace(changed, values=checkpoint.values)
    return changed


def whose(attributes: JsonObject) -> str | None:
    """The value of column `whose` for a thread with these marks."""
    owner = attributes.get(OWNER)
    return owner if isinstance(owner, str) else None


class RegistrationCache:
    """All registrations, expired ones too, as of `changes`: how often they had been written.

    They are asked for often and change seldom. Records are shared with the callers, so they never change.
    """

    def __init__(self, changes: int = -1, records: dict[bytes, Registration] | None = None) -> None:
        self.changes = changes
        self._records = records or {}
        self._list: list[Registration] = []
        self._since, self._until = math.inf, -math.inf

    def newer(self, changes: int, records: Sequence[bytes]) -> "RegistrationCache":
        """The cache of the records, by name, as of `changes`. A record that has not changed stays the same object.

        Returns this one if a later read was faster.
        """
        if changes <= self.changes:
            return self
        known = self._records
        return RegistrationCache(changes, {one: known.get(one) or decode_registration(one) for one in records})

    def at(self, now: float) -> list[Registration]:
        """List those that have not expired. Returns the same list object while its members are the same."""
        if not self._since <= now < self._until:
            ends = [one.expires_at for one in self._records.values() if one.expires_at is not None]
            self._since = max((end for end in ends if end <= now), default=-math.inf)
            self._until = min((end for end in ends if end > now), default=math.inf)
            self._list = [one for one in self._records.values() if one.expires_at is None or one.expires_at > now]
        return self._list


# --- searches: what columns cannot say is compared in Python. In SQL's JSON `true` may equal 1, and paths cannot name
# every key.


class _Request(msgspec.Struct):
    metadata: JsonObject = {}


class _RunParts(msgspec.Struct):
    """The fields of a run's record that a search needs, decoded without the rest."""

    request: _Request


class _ThreadParts(msgspec.Struct):
    metadata: JsonObject = {}
    attributes: JsonObject = {}


_run_parts = msgspec.json.Decoder(_RunParts).decode
_thread_parts = msgspec.json.Decoder(_ThreadParts).decode

Wanted = Callable[[bytes], bool]
"""Whether a search wants a record."""


def wanted_run(query: RunQuery) -> Wanted | None:
    """Conditions of a search for runs that are not columns; None for none."""
    if not query.metadata:
        return None

    def wanted(record: bytes) -> bool:
        return contains(_run_parts(record).request.metadata, query.metadata)

    return wanted


def wanted_thread(query: ThreadQuery) -> Wanted | None:
    """Conditions of a search for threads that are not columns (`whose` is one); None for none."""
    attributes = query.attributes
    if whose(attributes) is not None:
        attributes = {key: value for key, value in attributes.items() if key != OWNER}
    if not query.metadata and not attributes:
        return None
    marks = _marks(attributes)

    def wanted(record: bytes) -> bool:
        if not all(mark in record for mark in marks):
            return False
        parts = _thread_parts(record)
        return contains(parts.metadata, query.metadata) and contains(parts.attributes, attributes)

    return wanted


def _marks(wanted: JsonObject) -> list[bytes]:
    """Strings that every record with these keys and values contains, so that most others need not be decoded."""
    return [_encode(key) + b":" + _encode(value) for key, value in wanted.items() if isinstance(value, str)]
