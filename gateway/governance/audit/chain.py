"""Checks the chain of a log, line by line, in constant memory."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import msgspec

from gateway.governance.audit.canonical import GENESIS, canonical, digest
from gateway.governance.audit.event import AuditLine, LogHead, decode
from gateway.governance.audit.keys import Keyring

REMOVED = "removed"
"""The key in a note's `metadata.interlingua` for files removed as too old, each with its last entry (SEQ:HASH)."""


class Fault(msgspec.Struct, frozen=True):
    """A mistake in a line: the field, AIP-7's code, and the reason in words."""

    field: str
    code: str
    what: str


class ChainCheck:
    """Feed it the lines of a log in order, from the first or from the one that follows `after`, of the time `ts`.

    `head`: an entry that is known from elsewhere, which the log must hold. With a `keyring` signatures are checked, and
    no entry may be unsigned from the first signed one on: an earlier one is vouched for by the chain. `any_form` takes
    the lines of other programs, which need not be canonical JSON as long as what is hashed is.
    """

    def __init__(
        self, after: LogHead | None = None, *, head: LogHead | None = None, keyring: Keyring | None = None,
        any_form: bool = False, ts: datetime | None = None,
    ) -> None:  # fmt: skip
        self.seq = -1 if after is None else after.seq
        """The number in the last line; -1 before the first."""
        self.hash = GENESIS if after is None else after.hash
        self.ts = ts
        self.line: AuditLine | None = None
        """The last line, if it was an entry."""
        self.signed = 0
        self.unsigned = 0
        self.before: LogHead | None = None
        """The hash and number of the entry before the first, from that entry itself, if `after` was not given."""
        self.vouched = False
        """Whether a later entry says that those before the first were removed."""
        self._open = after is None
        self._head = head
        self._keyring = keyring
        self._any_form = any_form
        self._linked = True
        """Whether `hash` is what the next line must name: after a line that is wrong itself nobody knows."""

    @classmethod
    def at(cls, raw: bytes) -> ChainCheck | Fault:
        """A walk that stands at a line that is right in itself, whatever comes before it."""
        try:
            line = msgspec.json.decode(raw, type=AuditLine)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return Fault("", "schema.invalid", f"no audit event: {error}")
        walk = cls(LogHead(line.seq - 1, line.prevHash) if line.seq else None)
        faults = walk.feed(raw)
        return faults[0] if faults else walk

    def feed(self, raw: bytes) -> list[Fault]:
        """Check a line with its line feed, and return its mistakes."""
        self.line = None
        if not raw.endswith(b"\n"):
            return [Fault("", "chain.truncated", "the line is cut off: it has no end")]
        try:
            entry = decode(raw[:-1])
            line = msgspec.convert(entry, AuditLine)
            stated = entry.pop("hash")
            intact = exact = digest(_hashed(raw, stated), line.hashAlg) == stated
            if not intact:  # something is wrong, or it was written by somebody who writes in another order
                intact = digest(canonical(entry), line.hashAlg) == stated
                exact = canonical({**entry, "hash": stated}) == raw[:-1]
        except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors
            return self.skip(str(error))
        faults: list[Fault] = []
        if self._open and line.seq > 0:
            self.before = LogHead(line.seq - 1, line.prevHash)
            self.seq, self.hash = self.before.seq, self.before.hash
        self._open = False
        if not intact:
            faults.append(Fault("hash", "chain.tampered", "the line is not what was hashed: it was changed"))
        elif not exact and not (self._any_form and _unambiguous(raw)):
            faults.append(Fault("", "chain.tampered", "the line means what was hashed, in other bytes"))
        faults += self._order(line)
        if self._keyring is not None:
            faults += self._signature(self._keyring, entry, line)
        if self._head is not None and line.seq == self._head.seq and stated != self._head.hash:
            faults.append(Fault("hash", "chain.broken", f"entry {line.seq} is not the one of the head that is known"))
        if self.before is not None and line.action == "audit.note" and not faults:
            self.vouched = self.vouched or str(self.before) in _removed(line)
        self.seq, self.hash, self.line, self._linked = line.seq, stated, line, intact
        return faults

    def skip(self, why: str) -> list[Fault]:
        """Go on behind a line that is no entry."""
        self.line = None
        self._open = False
        self.seq += 1
        self._linked = False
        return [Fault("", "schema.invalid", f"no audit event: {why}")]

    def end(self) -> list[Fault]:
        """Check the end of the log. Called once, after the last line."""
        if self._head is not None and self.seq < self._head.seq:
            last = f"the last entry is {self.seq}" if self.seq >= 0 else "there is none"
            what = f"the log was cut off: {last}, and entry {self._head.seq} is known to have been written"
            return [Fault("seq", "chain.truncated", what)]
        if self._keyring is not None and self.unsigned and not self.signed:
            return [Fault("metadata", "signature.invalid", "no entry is signed")]
        return []

    def beginning(self) -> list[Fault]:
        """Check the beginning of the log, if it is not entry 0. Called once, after the last line."""
        if self.before is None:
            return []
        first = self.before.seq + 1
        if not self.vouched:
            return [Fault("seq", "chain.seq_gap", _missing(0, first))]
        if self._head is not None and self._head.seq <= self.before.seq and self._head != self.before:
            what = f"the log begins with entry {first}: whether it held the known entry {self._head.seq} cannot be seen"
            return [Fault("seq", "chain.truncated", what)]
        return []

    def _order(self, line: AuditLine) -> list[Fault]:
        faults = []
        expected = self.seq + 1
        if line.seq > expected:
            faults.append(Fault("seq", "chain.seq_gap", _missing(expected, line.seq)))
        elif line.seq < expected:
            what = f"entry {line.seq} comes after entry {self.seq}: it is there twice, or out of order"
            faults.append(Fault("seq", "chain.seq_gap", what))
        elif self._linked and line.prevHash != self.hash:
            what = "it does not follow the entry before: one of them was put in or replaced"
            faults.append(Fault("prevHash", "chain.broken", what))
        if self.ts is not None and line.ts < self.ts:
            faults.append(Fault("ts", "chain.broken", "it is dated before the entry before"))
        else:
            self.ts = line.ts
        return faults

    def _signature(self, keyring: Keyring, entry: dict[str, Any], line: AuditLine) -> list[Fault]:
        own = entry.get("metadata", {}).get("interlingua")
        block = own.pop("signature", None) if isinstance(own, dict) else None
        if block is None:
            self.unsigned += 1
            if not self.signed:
                return []
            return [Fault("metadata.interlingua.signature", "signature.invalid", "it is not signed; earlier ones are")]
        self.signed += 1
        wrong = keyring.check(block, canonical(entry), line.ts)
        return [Fault("metadata.interlingua.signature", *wrong)] if wrong else []


def _missing(first: int, found: int) -> str:
    which = f"entry {first} is" if found == first + 1 else f"entries {first} to {found - 1} are"
    return f"{which} missing before entry {found}"


def _removed(line: AuditLine) -> list[str]:
    """The last entries of the files that a note says were removed."""
    own = line.metadata.get("interlingua")
    named = own.get(REMOVED) if isinstance(own, dict) else None
    return [str(one.get("last")) for one in named if isinstance(one, dict)] if isinstance(named, list) else []


def _hashed(raw: bytes, stated: str) -> bytes:
    """The line without its hash, which is what was hashed if the line is canonical JSON."""
    before = b'"doctype":"audit-event",'
    return raw[:-1].replace(b'%s"hash":"%s",' % (before, stated.encode()), before, 1)


def _unambiguous(raw: bytes) -> bool:
    """Whether a line that is no canonical JSON says the same to everyone: no key stands in it twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) != len(pairs):
            raise ValueError("a key stands there twice")
        return dict(pairs)

    try:
        json.loads(raw, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        return False
    return raw.strip() == raw[:-1]
