"""AIP-7's `head-pointer.json`: the newest entry, signed, for whoever verifies the log from outside.

Signed is the canonical JSON of the document without its `signature`.
"""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gateway.core.errors import Invalid
from gateway.core.types import JsonObject
from gateway.governance.audit.canonical import canonical
from gateway.governance.audit.event import GATEWAY, LogHead
from gateway.governance.audit.files import log_number, sync_folder, write
from gateway.governance.audit.keys import EntrySigner, Keyring
from gateway.governance.audit.line import SCHEMA

FOLDER = ".well-known"
NAME = "head-pointer"
DOCTYPE = "head-pointer"
EVERY_SECONDS = 10.0
"""The shortest time between two pointers."""


class Pointer:
    """Publishes the head of the log at `chain`, in `.well-known` beside it."""

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
            "doctype": DOCTYPE,
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
    return chain.parent / FOLDER / (f"{NAME}.json" if number == 1 else f"{NAME}-{number}.json")


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
        raise Invalid(f"{path}: no head pointer: {error}") from error
    if keyring is not None:
        payload = canonical({key: value for key, value in document.items() if key != "signature"})
        wrong = keyring.check(said.signature, payload, said.pinned_at)
        if wrong is not None:
            raise Invalid(f"{path}:signature {wrong[0]} {wrong[1]}")
    return head
