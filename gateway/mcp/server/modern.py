"""2026-07-28, whatever it is carried by: every request says who sends it, and is a session of its own."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.server.call import Out, ServedCall, failure, read, serve
from gateway.mcp.server.contract import SUBSCRIBED, Client, Identity, InputRequired
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.session import checked_level
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id, Request, RpcError

ENVELOPE: Final = (wire.META_VERSION, wire.META_CAPABILITIES)
LISTS: Final = ("/list",)
"""How the requests end whose results say how long they may be kept."""

_members = msgspec.json.Decoder(dict[str, Raw]).decode


class _Listen(Struct, gc=False):
    notifications: dict[str, Any]


def enveloped(meta: JsonObject) -> bool:
    """Whether a request is one of these revisions: no other says its version there."""
    return wire.META_VERSION in meta


def check(meta: JsonObject) -> None:
    """Whether what every request must say of itself is there. Raises RpcError."""
    missing = [key for key in ENVELOPE if key not in meta]
    if missing:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")


def unsupported(requested: str) -> RpcError:
    """The error for a revision that is not served."""
    data = {"supported": list(versions.ALL), "requested": requested}
    return RpcError(wire.UNSUPPORTED_VERSION, "Unsupported protocol version", data)


class ModernSession:
    """See `gateway.mcp.server.contract.Session`. One request of such a client; raises RpcError if it may not be one."""

    def __init__(self, hub: Hub, agent: str | None, meta: JsonObject) -> None:
        check(meta)
        version, capabilities, info = meta[wire.META_VERSION], meta[wire.META_CAPABILITIES], meta.get(wire.META_CLIENT)
        if not isinstance(version, str) or not isinstance(capabilities, dict):
            raise RpcError(jsonrpc.INVALID_PARAMS, f"params._meta: {' or '.join(ENVELOPE)} is of the wrong type")
        if version not in versions.MODERN:
            raise unsupported(version)
        level = meta.get(wire.META_LOG_LEVEL)
        self.hub = hub
        self.id = uuid.uuid4().hex
        self.agent = agent
        self.client = Client(version, capabilities, info if isinstance(info, dict) else {})
        self.log_level = None if level is None else checked_level(level)
        self._listens: tuple[Id, frozenset[str], Out] | None = None

    def tell(self, method: str, params: Any = None) -> None:
        """See `Session`."""
        if self._listens is None:
            return
        id, wanted, out = self._listens
        if SUBSCRIBED.get(method) in wanted and not out.full:
            said = params if isinstance(params, dict) else {}
            meta = {**(said.get(wire.META) or {}), wire.META_SUBSCRIPTION: id}
            out.put(jsonrpc.notification(method, {**said, wire.META: meta}))

    async def serve(self, out: Out, request: Request, meta: JsonObject) -> Any:
        """The result of the request, with all that results of these revisions have. Raises RpcError."""
        method = request.method
        call = ServedCall(self, out, request, meta, self.log_level)
        try:
            identity = self.hub.service.identity(self)
        except Exception as error:
            raise failure(self.hub.service, call, error) from error
        if method == wire.LISTEN:
            return await self._listen(identity, call, out)
        if method == wire.DISCOVER:
            found = wire.DiscoverResult(list(versions.ALL), identity.capabilities, identity.instructions or UNSET)
            return _whole(found, wire.COMPLETE, identity.info)
        try:
            value = await serve(self.hub.service, call)
        except InputRequired as asked:
            needed = wire.InputRequired(asked.requests or UNSET, asked.state)
            return _whole(needed, wire.INPUT_REQUIRED, identity.info)
        extra: JsonObject = {"ttlMs": 0, "cacheScope": "private"} if method.endswith(LISTS) else {}
        return _whole(value, wire.COMPLETE, identity.info, extra)

    async def _listen(self, identity: Identity, call: ServedCall, out: Out) -> Any:
        """Tell what was subscribed to, until the gateway stops or the client has heard enough."""
        wanted = _wanted(call.params, identity)
        belongs = {wire.META_SUBSCRIPTION: call.id}
        accepted = {"notifications": dict.fromkeys(sorted(wanted), True), wire.META: belongs}
        out.put(jsonrpc.notification(wire.ACKNOWLEDGED, accepted))
        self._listens = (call.id, wanted, out)
        over = asyncio.Event()
        try:
            with self.hub.told(over.set):
                self.hub.join(self)
                await over.wait()
        finally:
            self._listens = None
            self.hub.leave(self)
        return _whole({wire.META: belongs}, wire.COMPLETE, identity.info)


def _wanted(params: Raw, identity: Identity) -> frozenset[str]:
    """What is told of what the client wants to be told. Raises RpcError."""
    given = read(params, _Listen).notifications
    told = set(SUBSCRIBED.values())
    tools = identity.capabilities.get("tools")
    if not (isinstance(tools, dict) and tools.get("listChanged")):
        told.discard("toolsListChanged")
    return frozenset(key for key in told if given.get(key) is True)


def _whole(value: Any, kind: str, info: JsonObject, extra: JsonObject | None = None) -> JsonObject:
    """A result with its kind, and who gives it. What the service said itself of those is kept."""
    members = value if isinstance(value, dict) else _read(value)
    meta = members.get(wire.META)
    if isinstance(meta, Raw):
        meta = jsonrpc.unpack(meta)
    meta = {wire.META_SERVER: info, **(meta if isinstance(meta, dict) else {})}
    return {"resultType": kind, **(extra or {}), **members, wire.META: meta}


def _read(value: Any) -> JsonObject:
    """The members of a result that is no dictionary yet. Raises a ValueError where it is no object."""
    if not isinstance(value, Raw):
        value = msgspec.json.encode(value)
    try:
        return dict(_members(value))
    except ValueError:  # half a surrogate pair
        return jsonrpc.unpack(value, dict[str, Any])
