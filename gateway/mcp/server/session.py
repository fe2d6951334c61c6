"""A client that shook hands (2024-11-05 to 2025-11-25), whatever it is connected by; and the states of its session.

A session is ready once `initialize` was answered, which may come again.
"""

from __future__ import annotations

import contextlib
import enum
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, Raw

from gateway.access import Visit
from gateway.core.errors import InterlinguaError, Invalid, Refused
from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.server.call import (
    EMPTY,
    UNASKED_LEVEL,
    Nowhere,
    Out,
    ServedCall,
    failure,
    noted,
    read,
    refused,
    serve,
)
from gateway.mcp.server.contract import McpClient
from gateway.mcp.server.hub import Hub
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Request, RpcError

log = logging.getLogger(__name__)


class McpSessionState(enum.StrEnum):
    """Where a session is."""

    NEW = "not initialized"
    READY = "initialized"
    ENDED = "ended"


class SessionEvent(enum.StrEnum):
    """The events that change a session's state."""

    INITIALIZED = "an answered initialize"
    GONE = "the end of its connection"


TABLE: Final[Mapping[tuple[McpSessionState, SessionEvent], McpSessionState]] = {
    (McpSessionState.NEW, SessionEvent.INITIALIZED): McpSessionState.READY,
    (McpSessionState.READY, SessionEvent.INITIALIZED): McpSessionState.READY,
    (McpSessionState.NEW, SessionEvent.GONE): McpSessionState.ENDED,
    (McpSessionState.READY, SessionEvent.GONE): McpSessionState.ENDED,
}


def after(state: McpSessionState, event: SessionEvent) -> McpSessionState:
    """Return the state that follows. Raises Refused where the event may not happen."""
    if (state, event) not in TABLE:
        raise Refused(f"{event} in a session that is {state}")
    return TABLE[state, event]


NOBODY = McpClient(versions.V2025_03_26)
"""Before `initialize`: what a client speaks that does not say."""


class HandshakeSession(ABC):
    """See `gateway.mcp.server.contract.McpSession`."""

    def __init__(self, hub: Hub, agent: str | None) -> None:
        self.hub = hub
        self.id = hub.new_id()
        self.agent = agent
        self.client = NOBODY
        self.log_level: str | None = None
        self.bearer: str | None = None
        self.visit: Visit | None = None
        self._state = McpSessionState.NEW

    @property
    def initialized(self) -> bool:
        """Whether requests may come."""
        return self._state is McpSessionState.READY

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._state is McpSessionState.ENDED

    def moved(self, event: SessionEvent) -> None:
        """Something happened to it. Raises Refused where that may not be."""
        self._state = after(self._state, event)

    @property
    @abstractmethod
    def alive(self) -> bool:
        """See `McpSession`."""

    @property
    @abstractmethod
    def can_ask(self) -> bool:
        """See `McpSession`."""

    @abstractmethod
    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        """See `McpSession`."""

    @property
    def resources(self) -> frozenset[str]:
        return frozenset()

    def subscribed(self, uri: str) -> bool:
        return False

    @abstractmethod
    def tell(self, method: str, params: Any = None) -> None:
        """See `McpSession`."""

    def call(self, out: Out, request: Request, meta: JsonObject, bearer: str | None) -> ServedCall:
        """A request that has come, with this token."""
        level = self.log_level or UNASKED_LEVEL
        return ServedCall(self, out, request, meta, log_level=level, bearer=bearer)

    async def serve(self, call: ServedCall) -> Any:
        """Its result. Raises RpcError. What needs no service is done before the first wait."""
        version = self.client.version if self.initialized else ""
        with self.hub.requests(call.method, call.params, call.id, session=self.id, version=version) as request:
            own = self._own(call)
            return own if own is not None else noted(request, await serve(self.hub.service, call))

    def _own(self, call: ServedCall) -> Any:
        """The result of a request that needs no service; None for any other. Raises RpcError."""
        if call.method == wire.PING:
            return {}
        try:
            jsonrpc.check(call.params)
            if call.method == wire.INITIALIZE:
                return self.initialize(call)
            if not self.initialized:
                early = Refused(f"{wire.INITIALIZE} must come first")
                raise refused(self.hub.service, call, jsonrpc.INVALID_REQUEST, early)
            if call.method == wire.SET_LEVEL:
                self.log_level = checked_level(read(call.params, wire.SetLevel).level)
                return {}
        except Invalid as wrong:
            raise refused(self.hub.service, call, jsonrpc.INVALID_PARAMS, wrong) from None
        return None

    def untaken(self, request: Request, why: InterlinguaError) -> RpcError:
        """The answer to a request that is not taken, whatever it asks."""
        call = self.call(Nowhere(), request, wire.meta_of(request.params), self.bearer)
        service, wrong = self.hub.service, isinstance(why, Refused)
        error = refused(service, call, jsonrpc.INVALID_REQUEST, why) if wrong else failure(service, call, why)
        with contextlib.suppress(RpcError), self.hub.requests(call.method, call.params, call.id, session=self.id):
            raise error
        return error

    def initialize(self, call: ServedCall) -> wire.InitializeResult:
        """Agree on a revision. May come again: the last one holds. Raises RpcError, Invalid."""
        before, self.client = self.client, self._client(read(call.params, wire.InitializeParams))
        try:
            identity = self.hub.service.identity(self)
        except Exception as error:
            self.client = before
            raise failure(self.hub.service, call, error) from error
        self.moved(SessionEvent.INITIALIZED)
        self.hub.join(self)
        return wire.InitializeResult(
            self.client.dialect or self.client.version,
            identity.capabilities,
            identity.info,
            identity.instructions or UNSET,
        )

    def _client(self, given: wire.InitializeParams) -> McpClient:
        capabilities = given.capabilities if isinstance(given.capabilities, dict) else {}
        info = given.clientInfo if isinstance(given.clientInfo, dict) else {}
        dialect = versions.dialect(given.protocolVersion, self.hub.dialects)
        version = versions.agreed(given.protocolVersion) if dialect is None else self.hub.dialects[dialect]
        return McpClient(version, capabilities, info, dialect)

    def heard(self, method: str, params: Raw) -> None:
        """A notification that is not about a request."""
        if method == wire.INITIALIZED or not self.initialized:
            return
        try:
            self.hub.service.notification(self, method, params or EMPTY)
        except Exception:
            log.exception("handling %s failed", method)


def checked_level(level: Any) -> str:
    """A level that there is. Raises Invalid."""
    if level in wire.LEVELS:
        return str(level)
    raise Invalid(f"no such level; there are {', '.join(wire.LEVELS)}")
