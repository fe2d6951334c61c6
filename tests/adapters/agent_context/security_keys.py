"""Credentials for the tests of security: tokens, JSON Web Tokens and signatures, good and bad."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import jwt
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from adapters.agent_context.options import AccessOptions
from adapters.agent_context.security import Access, ClientPrincipal
from adapters.agent_context.wire.messages import read
from gateway.core.types import JsonObject

TOKEN = "planner-token-0123456789"
SECRET = "a secret of the issuer that is long enough for HS512, which wants sixty-four bytes"
ALICE, BOB, STRANGER = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2, 3))


def public(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def pem(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def private_pem(key: Ed25519PrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def access(**options: Any) -> Access:
    clients = [
        {"name": "planner", "token": TOKEN, "may": ["register", "message", "read"], "agents": ["planner-*", "shared"]},
        {"name": "alice", "token": "alice-token", "public_key": public(ALICE)},
        {"name": "bob", "token": "bob-token", "public_key": public(BOB)},
    ]
    return Access(AccessOptions.model_validate({"clients": clients, **options}))


JWT = {"key": SECRET, "algorithms": ["HS256", "HS512"], "audience": "gateway", "issuer": "https://issuer.example"}


def claims(**changes: Any) -> JsonObject:
    now = int(time.time())
    found = {"sub": "visitor", "aud": "gateway", "iss": "https://issuer.example", "exp": now + 86_400, **changes}
    return {key: value for key, value in found.items() if value is not None}


def token(key: str = SECRET, algorithm: str = "HS256", headers: JsonObject | None = None, **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, algorithm=algorithm, headers=headers)


def forged(header: JsonObject, payload: JsonObject, signature: bytes = b"") -> str:
    """A token of these parts, whatever they say."""
    parts = [json.dumps(header).encode(), json.dumps(payload).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def agent(identifier: str = "alice-1", **more: Any) -> JsonObject:
    capabilities: JsonObject = {"tools": [], "models": [], "specializations": ["nlp"], "protocols": ["ACP-0.1"]}
    return {"id": identifier, "name": "An agent", "capabilities": capabilities, **more}


def signed(record: JsonObject, key: Ed25519PrivateKey = ALICE) -> JsonObject:
    """The record with a signature of all of it."""
    auth = record.get("auth", {})
    signature = base64.b64encode(key.sign(rfc8785.dumps(record))).decode()
    return {**record, "auth": {**auth, "signature": signature}}


def register(house: Access, record: JsonObject, bearer: str | None = None) -> ClientPrincipal:
    """Who registers the agent, as the gateway reads it from the wire."""
    return house.principal(bearer, read(json.dumps({"agent": record}).encode(), "Register")["agent"])
