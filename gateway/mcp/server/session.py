"""A client that shakes hands (2024-11-05 to 2025-11-25), whatever it is connected by."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from msgspec import UNSET, Raw

from gateway.core.errors import InterlinguaError, Invalid, Refused
from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.server.call import EMPTY, UNASKED_LEVEL, Nowhere, failure, noted, read, refused, serve
from gateway.mcp.server.contract import McpCall, McpClient, McpSession, Out
from gateway.mcp.server.hub import Hub
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Request, RpcError

log = logging.getLogger(__name__)


NOBODY = McpClient(versions.V2025_03_26)
"""Before `initialize`: what a client speaks that does not say."""


class HandshakeSession(McpSession):
    """The session of such a client, but for what carries it."""

    def __init__(self, hub: Hub, agent: str | None) -> None:
        self.hub = hub
        self.id = hub.new_id()
        self.agent = agent
        self.client = NOBODY
        self.over = False
        """Whether it has ended."""

    @property
    def initialized(self) -> bool:
        """Whether requests may come: `initialize` was answered, which may come again."""
        return self.client is not NOBODY and not self.over

    def call(self, out: Out, request: Request, meta: JsonObject, bearer: str | None) -> McpCall:
        """A request that has come, with this token."""
        level = self.log_level or UNASKED_LEVEL
        return McpCall(self, out, request, meta, log_level=level, bearer=bearer)

    async def serve(self, call: McpCall) -> Any:
        """Its result. Raises RpcError. What needs no service is done before the first wait."""
        version = self.client.version if self.initialized else ""
        with self.hub.requests(call.method, call.params, call.id, session=self.id, version=version) as request:
            own = self._own(call)
            return own if own is not None else noted(request, await serve(self.hub.service, call))

    def _own(self, call: McpCall) -> Any:
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

    def initialize(self, call: McpCall) -> wire.InitializeResult:
        """Agree on a revision. May come again: the last one holds. Raises RpcError, Invalid."""
        before, self.client = self.client, self._client(read(call.params, wire.InitializeParams))
        try:
            identity = self.hub.service.identity(self)
        except Exception as error:
            self.client = before
            raise failure(self.hub.service, call, error) from error
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
