"""Replaces what must not, or cannot, be in a log before it is hashed, and notes that in the log.

AIP-7: the key stays, the value becomes `{"$redacted": true, "reason": ...}`. A value over the limit leaves its SHA-256
behind, in the entry's `metadata.interlingua.sha256`: whoever has the value can show that it was this one. A secret
leaves none: short ones could be guessed from it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.core.errors import Invalid
from gateway.core.types import JsonObject
from gateway.governance.audit.canonical import LARGEST, canonical, digest
from gateway.governance.audit.event import AuditEvent

SECRETS = frozenset((
    "access_token", "api_key", "api-key", "apikey", "authorization", "client_secret", "cookie", "credentials",
    "passphrase", "passwd", "password", "private_key", "proxy-authorization", "refresh_token", "secret", "set-cookie",
    "token", "x-api-key",
))  # fmt: skip
"""Keys whose values are left out; upper and lower case are the same."""

DEEPEST = 64
LONGEST_VALUE = 64 * 1024
"""Bytes of a value that is written whole."""


def snapshot(event: AuditEvent) -> bytes:
    """The event as it is now, as JSON: who recorded it may change its arguments the moment after."""
    try:
        return msgspec.json.encode(event)
    except (UnicodeEncodeError, RecursionError, TypeError, OverflowError, ValueError):
        return msgspec.json.encode(
            msgspec.structs.replace(
                event, input=_sayable(event.input), output=_sayable(event.output), metadata=_sayable(event.metadata)
            )
        )


class Ready(msgspec.Struct, frozen=True):
    """An event as it may be written. `simple` is canonical JSON's: it has no floats."""

    event: JsonObject
    simple: bool


class Redactor:
    """Makes of a snapshot what may be written."""

    def __init__(self) -> None:
        self._typed = msgspec.json.Decoder(AuditEvent)
        self._decoder = msgspec.json.Decoder(float_hook=self._float)
        self._floats = 0

    def __call__(self, raw: bytes) -> Ready:
        """The event with what had to be replaced replaced. Raises Invalid where it is none by AIP-7's schema."""
        try:
            self._typed.decode(raw)
        except msgspec.ValidationError as error:
            raise Invalid(f"audit event: {error}") from error
        before = self._floats
        event: JsonObject = self._decoder.decode(raw)
        simple = self._floats == before
        metadata = event["metadata"]
        parts = [(event, "input"), (event, "output"), *((metadata, vendor) for vendor in metadata)]
        hashes: dict[str, str] = {}
        for holder, key in parts:
            value = holder.get(key)
            if value is None:
                continue
            value = holder[key] = self._clean(value, DEEPEST)
            if len(raw) > LONGEST_VALUE:
                encoded = canonical({"": value}, simple=simple)[len('{"":') : -1]
                if len(encoded) > LONGEST_VALUE:
                    hashes[key if holder is event else f"metadata.{key}"] = digest(encoded)
                    holder[key] = redacted(f"{len(encoded)} bytes, over the limit of {LONGEST_VALUE}")
        if hashes:
            metadata.setdefault("interlingua", {})["sha256"] = hashes
        return Ready(event, simple)

    def _float(self, text: str) -> float:
        self._floats += 1
        return float(text)

    def _clean(self, value: Any, depth: int) -> Any:
        if type(value) is str:  # most are
            return value
        if isinstance(value, dict):
            if not depth:
                return redacted(f"nested more than {DEEPEST} deep")
            return {
                key: redacted("secret") if key.casefold() in SECRETS else self._clean(each, depth - 1)
                for key, each in value.items()
            }
        if isinstance(value, list):
            if not depth:
                return redacted(f"nested more than {DEEPEST} deep")
            return [self._clean(each, depth - 1) for each in value]
        if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
            return redacted(f"an integer that canonical JSON has not: {value}")
        return value


def redacted(reason: str) -> JsonObject:
    """AIP-7's placeholder."""
    return {"$redacted": True, "reason": reason}


def _sayable(value: Any, depth: int = DEEPEST) -> Any:
    """Return the nearest JSON value of `value`."""
    if isinstance(value, dict | list | tuple) and not depth:
        return redacted(f"nested more than {DEEPEST} deep")
    if isinstance(value, dict):
        return {_text(str(key)): _sayable(each, depth - 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_sayable(each, depth - 1) for each in value]
    if isinstance(value, str):
        return value if _text(value) == value else redacted("no Unicode text")
    if value is None or isinstance(value, bool | int | float):
        return value
    return redacted(f"no JSON: {type(value).__name__}")


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode("utf-8")
