"""Registered agents: what is kept of each, what it says and misses, which connection is whose.

Times are of a clock that only goes forward. An agent was last heard of when it sent a heartbeat or its connection
anything at all; an agent of another process, when that process last wrote it down.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Set
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec.structs import replace

from adapters.agent_context.outbound.links import RegisteredLink
from adapters.agent_context.wire import ACTIVE, BUSY, INACTIVE, OFFLINE
from gateway.contract import Hosted
from gateway.core import delta
from gateway.core.types import Agent, JsonObject
from gateway.mcp.server.contract import McpSession

# --- an agent's registration as it is kept and as it is shown, and the names that records are kept under --------------


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


class Joined(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A registration as every replica sees it. `record` is the agent's own less `auth`.

    `process` is the gateway process that can ask it over its connection, "" while none can. `seen` (epoch seconds) is
    when it was last heard of, as far as was written down; `status` what its last heartbeat said.
    """

    record: JsonObject
    process: str = ""
    seen: float = 0.0
    status: str = ACTIVE

    @property
    def id(self) -> str:
        return str(self.record.get("id"))

    @property
    def endpoint(self) -> JsonObject | None:
        """Where it can be called; None for one that is reached over its connection."""
        endpoint = self.record.get("endpoint")
        return endpoint if isinstance(endpoint, dict) else None


class Revocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An access that is revoked, as every replica sees it. `at` (epoch seconds) is when, `reason` as it was given.

    `until` (epoch seconds) is when it is given back by itself; None for one that stays.
    """

    at: float = 0.0
    reason: str = ""
    until: float | None = None


T = TypeVar("T")


def stored(data: Mapping[str, Any], kind: type[T]) -> T | None:
    """What was stored; None where it cannot be read (another version's, say)."""
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(data, kind)
    return None


def plain(record: JsonObject) -> JsonObject:
    """The record that is stored of an agent as it registered: all but `auth`."""
    return {key: value for key, value in delta.sound(record).items() if key != "auth" and value is not None}


def deeper(value: Any, levels: int) -> bool:
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


# --- which registered agents are there --------------------------------------------------------------------------------


LATE: Final = 5.0
"""Seconds that a write of another process may take to be seen here."""
AWAY: Final = frozenset({INACTIVE, OFFLINE, "unavailable", "stopped", "shutdown"})
"""Statuses of a heartbeat that mean inactive; any other but active means busy."""


class RegisteredConnection(msgspec.Struct):
    """One client's session on which agents registered. `heard` is when it last said anything."""

    session: McpSession
    link: RegisteredLink
    heard: float
    agents: set[str] = msgspec.field(default_factory=set)

    def hear(self, now: float) -> float:
        """Note that it has said something; returns the seconds since the last time."""
        since, self.heard = now - self.heard, now
        return since


class RegisteredAgent(msgspec.Struct):
    """One registered agent as this process sees it. It changes itself: every change is a method.

    `owner` is the principal's name. `connection` is the one here that it registered on, while that lasts; `beat` when
    it was last heard of otherwise. `agent` and `hosted` are made of the record: the core's agent, and what the engine
    gets of it. `saved` is when it was last written down, `told` the status that was last made known.
    """

    id: str
    owner: str
    joined: Joined
    agent: Agent
    hosted: Hosted
    beat: float
    saved: float
    connection: RegisteredConnection | None = None
    told: str = ""

    @property
    def heard(self) -> float:
        return self.beat if self.connection is None else max(self.beat, self.connection.heard)

    def say(self, now: float) -> None:
        self.beat = now

    def read(self, joined: Joined, *, beat: float, now: float) -> None:
        """Its registration is there again, with the same record."""
        self.joined, self.beat, self.saved = joined, max(beat, self.beat), now

    def hear_elsewhere(self, found: Joined, now: float) -> None:
        """Note a heartbeat that came to another process."""
        self.joined = replace(self.joined, status=found.status, seen=found.seen)
        self.beat = self.saved = now

    def note(self, joined: Joined, now: float) -> None:
        self.joined, self.saved = joined, now

    def bind(self, connection: RegisteredConnection) -> None:
        """Reach it over this connection from now on."""
        connection.agents.add(self.id)
        self.connection = connection

    def unbind(self) -> None:
        """Stop reaching it over its connection."""
        connection, self.connection = self.connection, None
        if connection is not None:
            self.beat = max(self.beat, connection.heard)
            connection.agents.discard(self.id)

    def host(self, hosted: Hosted) -> None:
        self.hosted = hosted

    def tell(self, status: str) -> bool:
        """Note the status that is told. Returns whether it differs from the last."""
        before, self.told = self.told, status
        return before != status


class Liveness:
    """Decides by silence whether agents are there. One per directory. `others`: the other processes that live."""

    def __init__(self, heartbeat: float, missed: int, monotonic: Callable[[], float]) -> None:
        self.heartbeat = heartbeat
        self.now = monotonic
        self.allowed = heartbeat * missed
        """Seconds of silence."""
        self.others: Set[str] = frozenset()

    def live(self, others: Set[str]) -> None:
        self.others = others

    def elsewhere(self, member: RegisteredAgent) -> bool:
        """Whether another process has its connection."""
        return member.connection is None and member.joined.process in self.others

    def silent(self, member: RegisteredAgent) -> bool:
        """Whether it has missed its beats."""
        allowed = self.allowed
        if self.elsewhere(member):  # that process writes once per interval
            allowed += self.heartbeat + LATE
        return self.now() - member.heard > allowed

    def deaf(self, member: RegisteredAgent) -> bool:
        """Whether it is reached over a connection that takes no requests now: one of HTTP, without its GET."""
        return (
            member.connection is not None and member.joined.endpoint is None and not member.connection.session.can_ask
        )

    def status(self, member: RegisteredAgent) -> str:
        """active, busy, inactive or offline; revoked is not looked at."""
        connection = member.connection
        there = self.elsewhere(member) if connection is None else connection.session.alive
        if not there and member.joined.endpoint is None:
            return OFFLINE
        said = member.joined.status.casefold()
        if self.silent(member) or said in AWAY or self.deaf(member):
            return INACTIVE
        return ACTIVE if said == ACTIVE else BUSY

    def holds(self, member: RegisteredAgent) -> bool:
        """Whether nobody else may connect as it: its connection is there now and heard of."""
        if self.silent(member):
            return False
        if member.connection is None:
            return self.elsewhere(member)
        return member.connection.session.alive and member.connection.session.connected
