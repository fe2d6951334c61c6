"""Ed25519 signatures of entries, and the keyring of public keys that checks them (AIP-7's `governance-keys.json`).

An entry's signature is in its `metadata.interlingua.signature`: what is signed is the canonical JSON of the entry
without `hash` and without the signature itself, so that number and `prevHash` are signed, and the hash covers both.
"""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_private_key,
)

from gateway.core.errors import Invalid
from gateway.core.types import JsonObject
from gateway.governance.audit.canonical import canonical, digest

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
RAW_BYTES = 32


class EntrySigner:
    """A private key, and the name under which the keyring has its public half: its RFC 7638 thumbprint."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.key_id = thumbprint(key.public_key())

    @classmethod
    def load(cls, path: Path) -> EntrySigner:
        """Read a PEM file without a password. Raises Invalid."""
        try:
            key = load_pem_private_key(path.read_bytes(), None)
        except OSError as error:
            raise Invalid(f"{path}: no private key that can be read: {reason(error)}") from error
        except TypeError as error:  # how the library says that a passphrase is missing
            raise Invalid(f"{path}: no private key that can be read: it is encrypted") from error
        except (ValueError, UnsupportedAlgorithm) as error:
            raise Invalid(f"{path}: no private key in PEM form") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise Invalid(f"{path}: not an Ed25519 key")
        return cls(key)

    def sign(self, payload: bytes) -> JsonObject:
        """AIP-7's signature block over `payload`."""
        return {"alg": "Ed25519", "value": _encode(self._key.sign(payload)), "publicKeyRef": self.key_id}

    def public(self) -> JsonObject:
        der = self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return {"id": self.key_id, "alg": "Ed25519", "publicKey": _encode(der)}


class _Key(msgspec.Struct, frozen=True):
    id: str
    publicKey: str
    alg: str = "Ed25519"
    validFrom: Moment | None = None
    expiresAt: Moment | None = None


class _Ring(msgspec.Struct, frozen=True):
    keys: list[_Key]
    schema: str = msgspec.field(default="agentgovernance/v1", name="$schema")


class _Named(msgspec.Struct, frozen=True):
    id: str


class _Revoked(msgspec.Struct, frozen=True):
    keys: list[str | _Named]


class _Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    alg: Literal["Ed25519"]
    value: str
    publicKeyRef: str


class Keyring:
    """Public keys by id. What a revoked key signed is worth nothing; what one signed that expired later still is."""

    def __init__(self, keys: list[_Key], revoked: frozenset[str] = frozenset()) -> None:
        """Raises Invalid for a malformed Ed25519 key and for two keys of one id. Keys of other kinds are unknown."""
        self._revoked = revoked
        self._keys: dict[str, tuple[_Key, Ed25519PublicKey]] = {}
        for index, key in enumerate(keys):
            if key.id in self._keys:
                raise Invalid(f"keys[{index}].id: {key.id} is there twice", path=f"/keys/{index}/id")
            if key.alg == "Ed25519":
                self._keys[key.id] = (key, _public(key.publicKey, index))

    @classmethod
    def load(cls, path: Path) -> Keyring:
        """Read AIP-7's `governance-keys.json`, and `governance-revoked.json` beside it. Raises Invalid."""
        revoked = path.with_name("governance-revoked.json")
        try:
            keys = msgspec.json.decode(path.read_bytes(), type=_Ring).keys
            gone: list[str | _Named] = []
            if revoked.exists() and revoked != path:
                gone = msgspec.json.decode(revoked.read_bytes(), type=_Revoked).keys
            return cls(keys, frozenset(key if isinstance(key, str) else key.id for key in gone))
        except (OSError, ValueError) as error:
            raise Invalid(f"{path}: no keyring: {reason(error)}") from error
        except Invalid as error:
            raise Invalid(f"{path}: {error}", path=error.path) from error

    def check(self, block: object, payload: bytes, at: datetime) -> tuple[str, str] | None:
        """None if `block` signs `payload` with a key that was good at `at`; else AIP-7's code and the reason."""
        try:
            signature = msgspec.convert(block, _Block)
        except msgspec.ValidationError as error:
            return "signature.invalid", f"no signature: {error}"
        name = signature.publicKeyRef
        if name in self._revoked:
            return "signature.invalid", f"its key {name} was revoked"
        if name not in self._keys:
            return "signature.unknown_key", f"its key {name} is not in the keyring"
        key, public = self._keys[name]
        try:
            public.verify(_decode(signature.value), payload)
        except (InvalidSignature, ValueError):
            return "signature.invalid", f"it was not signed with the key {name}"
        if (key.expiresAt is not None and at > key.expiresAt) or (key.validFrom is not None and at < key.validFrom):
            return "signature.invalid", f"its key {name} was not valid at that time"
        return None


def keyring(*signers: EntrySigner) -> bytes:
    ring = {"$schema": "agentgovernance/v1", "doctype": "keyring", "keys": [signer.public() for signer in signers]}
    return json.dumps(ring, indent=2).encode() + b"\n"


def reason(error: Exception) -> str:
    """Why a file cannot be used, without its name."""
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)


def thumbprint(key: Ed25519PublicKey) -> str:
    """The JWK thumbprint (RFC 7638) of a public key."""
    x = _encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw))
    return _encode(bytes.fromhex(digest(canonical({"crv": "Ed25519", "kty": "OKP", "x": x}))))


def _public(text: str, index: int) -> Ed25519PublicKey:
    path = f"/keys/{index}/publicKey"
    try:
        data = _decode(text)
        key = Ed25519PublicKey.from_public_bytes(data) if len(data) == RAW_BYTES else load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Invalid(f"keys[{index}].publicKey: no public key: {error}", path=path) from error
    if not isinstance(key, Ed25519PublicKey):
        raise Invalid(f"keys[{index}].publicKey: not an Ed25519 key", path=path)
    return key


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decode(text: str) -> bytes:
    """Base64 in either alphabet, padded or not. Raises ValueError."""
    try:
        plain = text.rstrip("=").replace("-", "+").replace("_", "/").encode("ascii")
        return base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(str(error)) from error
