"""An agent's registration as it is kept and as it is shown, and the names that records are kept under."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from adapters.agent_context.wire.constants import ACTIVE
from gateway.core import delta
from gateway.core.types import JsonObject

AGENT: Final = "agent/"
"""`agent/<id>`: a `Joined`, owned by who registered it."""
EVALUATION: Final = "evaluation/"
"""`evaluation/<id>`: the votes on an agent (evaluation.py)."""
GONE: Final = "revoked/"
"""`revoked/<id>`: its access is revoked; whether there is such an agent does not matter."""
PROCESS: Final = "process/"
"""`process/<process>`: owned by a gateway process as long as it lives."""
EVERYBODY: Final = "gateway"
"""Owner of what every process may write."""

MOST_BYTES: Final = 64 * 1024
"""Largest size of an agent's record."""
MOST_LEVELS: Final = 100
"""Deepest nesting of a record: it becomes part of larger documents, which every client must be able to parse."""


class Member(Protocol):
    """Anything with a name: a principal of `security`."""

    @property
    def name(self) -> str: ...


class Joined(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A registration as every replica sees it.

    `record` is the agent's own less `auth`. `process` is the gateway process that it is connected to, "" while it is
    connected to none. `seen` (epoch seconds) is when it was last heard of, as far as was written down; `status` what
    its last heartbeat said.
    """

    record: JsonObject
    process: str = ""
    seen: float = 0.0
    status: str = ACTIVE

    @property
    def id(self) -> str:
        """The agent's id."""
        return str(self.record["id"])

    @property
    def endpoint(self) -> JsonObject | None:
        """Where it can be called; None for one that is reached over its connection."""
        endpoint = self.record.get("endpoint")
        return endpoint if isinstance(endpoint, dict) else None

    def data(self) -> JsonObject:
        """As it is kept."""
        return dict(msgspec.to_builtins(self))


class Revocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An access that is revoked, as every replica sees it. `at` (epoch seconds) is when, `reason` as it was given.

    `until` (epoch seconds) is when it is given back by itself; None for one that stays.
    """

    at: float = 0.0
    reason: str = ""
    until: float | None = None


def joined(data: Mapping[str, Any], agent: str) -> Joined | None:
    """Read the stored registration of `agent`; None where it is none."""
    try:
        found = msgspec.convert(data, Joined)
    except msgspec.ValidationError:
        return None
    return found if found.record.get("id") == agent else None


def plain(record: Any) -> JsonObject:
    """The record that is stored of an agent as it registered: all but `auth`."""
    public = record.public() if hasattr(record, "public") else dict(record)
    return {key: value for key, value in delta.sound(public).items() if key != "auth" and value is not None}


def deeper(value: Any, levels: int) -> bool:
    """Whether a document is nested deeper than so many levels."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (levels == 0 or any(deeper(each, levels - 1) for each in inner))


def shown(record: JsonObject, seen: float | None = None) -> JsonObject:
    """The public part of a record: no `auth`, and an endpoint without credentials and query.

    `seen`: when it was last heard of, for `meta.lastActive`.
    """
    out = {key: value for key, value in record.items() if key != "auth"}
    if isinstance(endpoint := out.get("endpoint"), dict):
        bare = {key: endpoint[key] for key in ("transport",) if key in endpoint}
        out["endpoint"] = {"url": without_secrets(str(endpoint.get("url", ""))), **bare}
    if seen is not None:
        meta = out.get("meta")
        out["meta"] = {**(meta if isinstance(meta, dict) else {}), "lastActive": time_of(seen)}
    return out


def without_secrets(url: str) -> str:
    """A URL less user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return ""
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def time_of(seconds: float) -> str:
    """Epoch seconds as the protocol writes times: UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def digest(text: str) -> str:
    """Stands for a name that is not to be told."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
