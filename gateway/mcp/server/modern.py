"""2026-07-28, whatever it is carried by: every request says who sends it, and is a session of its own."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway.access import Visit
from gateway.core.errors import Invalid, Limited, Unsupported
from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.server.call import failure, noted, read, refused, serve
from gateway.mcp.server.contract import (
    EMPTY,
    MOST_SUBSCRIPTIONS,
    SUBSCRIBED,
    InputRequired,
    McpCall,
    McpClient,
    McpSession,
    Out,
    ServerIdentity,
)
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.session import checked_level
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id, Notification, Request, RpcError

ENVELOPE: Final = (wire.META_VERSION, wire.META_CAPABILITIES)
PLAIN: Final[JsonObject] = {wire.META_VERSION: versions.V2026_07_28, wire.META_CAPABILITIES: {}}
"""The `_meta` that a plain JSON-RPC request, which says nothing of its client, counts as having."""
LISTS: Final = ("/list",)
"""How the requests end whose results say how long they may be kept."""

OFFERED: Final[Mapping[str, tuple[str, ...]]] = {
    "toolsListChanged": ("tools", "listChanged"),
    "resourcesListChanged": ("resources", "listChanged"),
    wire.RESOURCE_SUBSCRIPTIONS: ("resources", "subscribe"),
}
"""The capabilities that members of that filter go with."""

log = logging.getLogger(__name__)

_members = msgspec.json.Decoder(dict[str, Raw]).decode


class _Listen(Struct, gc=False):
    notifications: dict[str, Any]


class Carrier(Protocol):
    """The connection that a message of such a client came over."""

    @property
    def alive(self) -> bool:
        """See `McpSession`."""

    @property
    def bearer(self) -> str | None:
        """See `McpSession`."""

    @property
    def visit(self) -> Visit | None:
        """See `McpSession`."""


class Wanted(Struct, frozen=True, gc=False):
    """The filter of a subscription: kinds of SUBSCRIBED, and the URIs of resources whose changes are wanted."""

    kinds: frozenset[str] = frozenset()
    uris: frozenset[str] = frozenset()

    def said(self) -> JsonObject:
        resources: JsonObject = {wire.RESOURCE_SUBSCRIPTIONS: sorted(self.uris)} if self.uris else {}
        return {**dict.fromkeys(sorted(self.kinds), True), **resources}


def enveloped(meta: JsonObject) -> bool:
    """Whether a request is one of these revisions: no other says its version there."""
    return wire.META_VERSION in meta


def check(meta: JsonObject) -> None:
    """Whether what every request must say of itself is there. Raises RpcError."""
    missing = [key for key in ENVELOPE if key not in meta]
    if missing:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")


def unsupported(requested: str, hub: Hub) -> RpcError:
    data = {"supported": hub.versions, "requested": requested}
    return RpcError(wire.UNSUPPORTED_VERSION, "Unsupported protocol version", data)


class ModernSession(McpSession):
    """See `gateway.mcp.server.contract.McpSession`. One request of such a client; raises RpcError if it may not be one.

    plain: the request named no revision (`meta` has PLAIN), so its result has none of this revision's own members.
    """

    def __init__(self, hub: Hub, agent: str | None, meta: JsonObject, carrier: Carrier, *, plain: bool = False) -> None:
        check(meta)
        version, capabilities, info = meta[wire.META_VERSION], meta[wire.META_CAPABILITIES], meta.get(wire.META_CLIENT)
        if not isinstance(version, str) or not isinstance(capabilities, dict):
            raise RpcError(jsonrpc.INVALID_PARAMS, f"params._meta: {' or '.join(ENVELOPE)} is of the wrong type")
        if version not in versions.MODERN:
            raise unsupported(version, hub)
        self.hub = hub
        self.id = uuid.uuid4().hex
        self.agent = agent
        self.client = McpClient(version, capabilities, info if isinstance(info, dict) else {})
        self.bearer = carrier.bearer
        self.visit = carrier.visit
        self._carrier = carrier
        self._plain = plain
        self._over = False
        self._wanted = Wanted()
        self._listens: tuple[Id, Out] | None = None

    @property
    def alive(self) -> bool:
        return not self._over and self._carrier.alive

    @property
    def can_ask(self) -> bool:
        return False

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        raise Unsupported(f"a client of {self.client.version} cannot be asked {method}")

    @property
    def resources(self) -> frozenset[str]:
        return self._wanted.uris

    def tell(self, method: str, params: Any = None) -> None:
        if self._listens is None:
            return
        id, out = self._listens
        said = params if isinstance(params, dict) else {}
        wanted = self._wanted
        told = said.get("uri") in wanted.uris if method == wire.UPDATED else SUBSCRIBED.get(method) in wanted.kinds
        if told and not out.full:
            meta = {**(said.get(wire.META) or {}), wire.META_SUBSCRIPTION: id}
            out.put(jsonrpc.notification(method, {**said, wire.META: meta}))

    def end(self) -> None:
        """Its only message is served. Again: no effect."""
        self._over = True

    async def serve(self, out: Out, request: Request, meta: JsonObject) -> Any:
        """The result of the request, with all that results of these revisions have. Raises RpcError.

        A plain client also gets an answer to `ping`, and cannot listen: it reads nothing but the answer.
        """
        try:
            seen = self.hub.requests(request.method, request.params, request.id, version=self.client.version)
            with seen as told:
                return noted(told, await self._serve(out, request, meta))
        finally:
            self.end()

    async def _serve(self, out: Out, request: Request, meta: JsonObject) -> Any:
        method = request.method
        call = McpCall(self, out, request, meta, log_level=None, bearer=self.bearer)
        try:
            jsonrpc.check(call.params)
            if (level := meta.get(wire.META_LOG_LEVEL)) is not None:
                self.log_level = checked_level(level)
                call.log_from(self.log_level)
            identity = self.hub.service.identity(self)
            wanted = _wanted(call.params, identity) if method == wire.LISTEN and not self._plain else None
        except Invalid as wrong:
            raise refused(self.hub.service, call, jsonrpc.INVALID_PARAMS, wrong) from None
        except Exception as error:
            raise failure(self.hub.service, call, error) from error
        if wanted is not None:
            return await self._listen(wanted, identity, call, out)
        if method == wire.PING and self._plain:
            return {}
        if method == wire.DISCOVER:
            found = wire.DiscoverResult(self.hub.versions, identity.capabilities, identity.instructions or UNSET)
            return _whole(found, wire.COMPLETE, identity.info)
        try:
            value = await serve(self.hub.service, call)
        except InputRequired as asked:
            needed = wire.InputRequiredResult(asked.requests or UNSET, asked.state)
            return _whole(needed, wire.INPUT_REQUIRED, identity.info)
        if self._plain:
            return value
        extra: JsonObject = {"ttlMs": 0, "cacheScope": "private"} if method.endswith(LISTS) else {}
        return _whole(value, wire.COMPLETE, identity.info, extra)

    async def _listen(self, wanted: Wanted, identity: ServerIdentity, call: McpCall, out: Out) -> Any:
        """Tell what was subscribed to, until the gateway stops or the client has heard enough."""
        belongs = {wire.META_SUBSCRIPTION: call.id}
        out.put(jsonrpc.notification(wire.ACKNOWLEDGED, {"notifications": wanted.said(), wire.META: belongs}))
        self._listens, self._wanted = (call.id, out), wanted
        over = asyncio.Event()
        try:
            with self.hub.stopping(over.set):
                self.hub.join(self)
                await over.wait()
        finally:
            self._listens, self._wanted = None, Wanted()
            self.hub.leave(self)
        return _whole({wire.META: belongs}, wire.COMPLETE, identity.info)


def notified(hub: Hub, agent: str | None, told: Notification, meta: JsonObject, carrier: Carrier) -> None:
    """A notification of such a client. The protocol knows none but `cancelled`; what adapters know may come."""
    method = told.method
    if method in (wire.CANCELLED, wire.INITIALIZED) or not enveloped(meta):
        return
    try:
        session = ModernSession(hub, agent, meta, carrier)
    except RpcError as error:
        log.debug("%s is dropped: %s", method, error)
        return
    try:
        hub.service.notification(session, method, told.params or EMPTY)
    except Exception:
        log.exception("handling %s failed", method)
    finally:
        session.end()


def _wanted(params: Raw, identity: ServerIdentity) -> Wanted:
    """The part of the client's subscription that the server offers. Raises Invalid, Limited."""
    given = read(params, _Listen).notifications
    offered = identity.capabilities
    kinds = {
        key for key in SUBSCRIBED.values() if given.get(key) is True and wire.declares(offered, *OFFERED.get(key, ()))
    }
    uris = given.get(wire.RESOURCE_SUBSCRIPTIONS) or []
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise Invalid(f"{wire.RESOURCE_SUBSCRIPTIONS} must be an array of URIs")
    if not wire.declares(offered, *OFFERED[wire.RESOURCE_SUBSCRIPTIONS]):
        uris = []
    if len(uris) > MOST_SUBSCRIPTIONS:
        raise Limited(f"no more than {MOST_SUBSCRIPTIONS} subscriptions")
    return Wanted(frozenset(kinds), frozenset(uris))


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
