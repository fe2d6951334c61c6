"""The base protocol's own messages, as both ends read and write them: names, codes, keys, handshake and discovery.

What an adapter says over it (tools, agents, ...) is not here. Sources: the schema of each revision, and of 2026-07-28
also the transports page (headers).
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gateway.core import delta
from gateway.core.types import JsonObject
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id

# --- methods ----------------------------------------------------------------------------------------------------------

INITIALIZE: Final = "initialize"
PING: Final = "ping"
SET_LEVEL: Final = "logging/setLevel"
DISCOVER: Final = "server/discover"
"""2026-07-28, as is the next."""
LISTEN: Final = "subscriptions/listen"
ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
ROOTS: Final = "roots/list"
ASKED: Final = frozenset({ELICIT, SAMPLE, ROOTS})
"""Requests that a server may send its client, besides `ping`."""

GREETINGS: Final = (INITIALIZE, DISCOVER)
"""Requests that begin a session: nothing else is asked before their answer."""

INITIALIZED: Final = "notifications/initialized"
CANCELLED: Final = "notifications/cancelled"
PROGRESS: Final = "notifications/progress"
MESSAGE: Final = "notifications/message"
UPDATED: Final = "notifications/resources/updated"
RESOURCE_SUBSCRIPTIONS: Final = "resourceSubscriptions"
"""2026-07-28: the member of the filter of `subscriptions/listen` that is no flag, but the URIs of resources."""
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

OWN: Final = frozenset({INITIALIZE, PING, SET_LEVEL, DISCOVER, LISTEN})
"""The requests that a server answers without its service."""
NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""2026-07-28: the requests of which `Mcp-Name` repeats a member of the params."""

# --- error codes, besides those of JSON-RPC ---------------------------------------------------------------------------

HEADER_MISMATCH: Final = -32020
"""2026-07-28: a header is missing or says other than the body. HTTP 400, as for the next two."""
MISSING_CAPABILITY: Final = -32021
"""`data.requiredCapabilities`: what the client would have to declare."""
UNSUPPORTED_VERSION: Final = -32022
"""`data`: {"supported": [...], "requested": ...}."""
REQUEST_CANCELLED: Final = jsonrpc.REQUEST_CANCELLED
"""The code that answers a cancelled request: the schemas name none, and some clients wait for an answer."""

STATUS: Final = {
    jsonrpc.PARSE_ERROR: 400,
    jsonrpc.INVALID_REQUEST: 400,
    jsonrpc.INVALID_PARAMS: 400,
    jsonrpc.METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}
"""2026-07-28 over HTTP: the status of an error that is the whole answer. Every other code is 200."""

# --- HTTP headers -----------------------------------------------------------------------------------------------------

SESSION_HEADER: Final = "Mcp-Session-Id"
VERSION_HEADER: Final = "MCP-Protocol-Version"
METHOD_HEADER: Final = "Mcp-Method"
"""2026-07-28: the method again. Required."""
NAME_HEADER: Final = "Mcp-Name"
"""2026-07-28: see NAMED."""
RESUME_HEADER: Final = "Last-Event-ID"

SUBPROTOCOL: Final = "mcp"
"""Of a WebSocket."""

# --- keys of `_meta` --------------------------------------------------------------------------------------------------

META: Final = "_meta"
PROGRESS_TOKEN: Final = "progressToken"
META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
"""2026-07-28, in every request; the next as well, the third should be there."""
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_CLIENT: Final = "io.modelcontextprotocol/clientInfo"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
"""2026-07-28: from which level on the client wants `notifications/message` for this request."""
META_SERVER: Final = "io.modelcontextprotocol/serverInfo"
"""2026-07-28, in every result."""
META_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
"""2026-07-28: the id of the `subscriptions/listen` that a notification, or its result, belongs to."""

# --- 2026-07-28: members of results -----------------------------------------------------------------------------------

COMPLETE: Final = "complete"
INPUT_REQUIRED: Final = "input_required"
"""Values of `resultType`; absent is the first."""

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Of `notifications/message`, rising."""


class InitializeParams(Struct, gc=False):
    """The params of `initialize`, as leniently as anything can be made of them."""

    protocolVersion: Any = None
    capabilities: Any = None
    clientInfo: Any = None


class InitializeResult(Struct, omit_defaults=True, gc=False):
    """Its result."""

    protocolVersion: str
    capabilities: JsonObject
    serverInfo: JsonObject
    instructions: str | UnsetType = UNSET


class DiscoverResult(Struct, gc=False):
    """The result of `server/discover`."""

    supportedVersions: list[str]
    capabilities: JsonObject
    instructions: str | UnsetType = UNSET
    ttlMs: int = 0
    cacheScope: str = "private"


class Cancelled(Struct, gc=False):
    """The params of `notifications/cancelled`, as far as they are read."""

    requestId: Id = None


class SetLevel(Struct, gc=False):
    """The params of `logging/setLevel`."""

    level: str


class InputRequiredResult(Struct, gc=False):
    """2026-07-28: a result that asks something first. At least one of the two is there."""

    inputRequests: JsonObject | UnsetType = UNSET
    requestState: str | UnsetType = UNSET


class ReturnedParams(Struct, gc=False):
    """2026-07-28: the params of a request that is sent again, with what its result asked first."""

    inputResponses: JsonObject | None = None
    requestState: str | None = None


class McpMeta(Struct, gc=False):
    """Any `params`, as far as its `_meta` goes."""

    meta: Any = msgspec.field(default=None, name=META)


def server_info(said: JsonObject) -> JsonObject:
    """Who a server says that it is in its answer to `initialize`, or `server/discover`; {} where it does not."""
    meta = said.get(META)
    info = said.get("serverInfo") or (meta.get(META_SERVER) if isinstance(meta, dict) else None)
    return info if isinstance(info, dict) else {}


CONNECTIONS_OWN: Final = ("io.modelcontextprotocol/", "modelcontextprotocol.io/", "interlingua/")
"""Prefixes of keys of `_meta` that are about the connection they were sent on, or meant for a gateway."""
TEXTS: Final = frozenset({"traceparent", "tracestate", "baggage"})
"""Keys of `_meta` that SDKs read as headers: another value than a text ends some of them."""


def meta_of(params: msgspec.Raw) -> JsonObject:
    """`_meta` of encoded params, in sound text; {} where there is none, or it is no object."""
    if not params:
        return {}
    try:
        meta = jsonrpc.unpack(params, McpMeta).meta
    except (ValueError, RecursionError):
        return {}
    return delta.sound(meta) if isinstance(meta, dict) else {}


def cancelled_in(params: msgspec.Raw) -> Id:
    """The request that a `notifications/cancelled` is about; None where it says none, which is no request's id here."""
    try:
        return jsonrpc.unpack(params or b"{}", Cancelled).requestId
    except (ValueError, RecursionError):
        return None


def declares(capabilities: Any, *path: str) -> bool:
    """Whether an end declared a capability, e.g. `"elicitation", "url"`: the key is there and no null or false."""
    for key in path:
        capabilities = capabilities.get(key) if isinstance(capabilities, dict) else None
    return capabilities is not None and capabilities is not False


def header_value(value: str) -> str:
    """How a header says `value` (2026-07-28, `Mcp-Name`): as it is, or in base64 where it would not survive."""
    if _PLAIN.fullmatch(value) and value == value.strip() and not _WRAPPED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def header_said(value: str | None) -> str | None:
    """The value of a header, decoded; None if it was not sent, or cannot be decoded."""
    wrapped = _WRAPPED.fullmatch(value) if value is not None else None
    if wrapped is None:
        return value
    try:
        said = base64.b64decode(wrapped[1], validate=True)
        return said.decode() if base64.b64encode(said).decode() == wrapped[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


_PLAIN = re.compile(r"[\x20-\x7e]*")
_WRAPPED = re.compile(r"=\?base64\?(.*)\?=")


def passed_on(key: str, value: object) -> bool:
    """Whether a member of a client's `_meta` goes along with what the gateway sends for it."""
    return (
        key != PROGRESS_TOKEN and not key.startswith(CONNECTIONS_OWN) and (key not in TEXTS or isinstance(value, str))
    )
