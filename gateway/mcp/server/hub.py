"""Shared by all transports of one server: the service, the clients that are connected, and how many may be."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

import msgspec
from starlette.types import Scope

from gateway.access import Visit, visit_of
from gateway.contract import Gateway, Requests, Watched, unguessable
from gateway.core.errors import Unavailable
from gateway.mcp import versions, wire
from gateway.mcp.options import McpServeOptions
from gateway.mcp.server.contract import McpSession, Service
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)


class _Unwatched:
    def tool_failed(self) -> None:
        return


_UNWATCHED = _Unwatched()


def _unwatched(
    method: str, params: msgspec.Raw, id: Any, *, session: str = "", version: str = ""
) -> AbstractContextManager[Watched]:
    """The `Requests` of no door: neither traced nor counted."""
    return nullcontext(_UNWATCHED)


class Hub:
    """One per server."""

    def __init__(
        self,
        service: Service,
        options: McpServeOptions | None = None,
        gateway: Gateway | None = None,
        protocol: str = "",
        *,
        dialects: Mapping[str, str] = MappingProxyType({}),
        client: Callable[[McpSession], str | None] | None = None,
    ) -> None:
        """gateway: traces, counts and limits what clients of the protocol do; without it nobody does.

        dialects: further versions that a client may propose, oldest first, and the revision of MCP, one with a
        handshake, that each stands for. See `McpClient.dialect` and `gateway.mcp.versions.dialect`.

        client: a client's name, None for one that nobody knows: brought by a protocol that itself sees who its clients
        are. Without it they are asked, if the options say so (`gateway.access.identifying`): see `McpSession.visit`.
        """
        if unknown := set(dialects.values()) - set(versions.HANDSHAKE):
            raise ValueError(f"dialects of revisions that are not agreed on by a handshake: {unknown}")
        self.service = service
        self.options = options or McpServeOptions()
        self.dialects = dialects
        self.new_id = unguessable if gateway is None else gateway.new_id
        self._asks = client is None and self.options.authenticates
        self._gateway = gateway
        self._protocol = protocol
        self._client = client or _visitor
        self.requests: Requests = _unwatched
        if gateway is not None:
            self.requests = gateway.requests(protocol, {*service.methods, *wire.OWN}, _code, mcp=True)
        self.quiet = False
        """The gateway stops, and serves no further client."""
        self.joined: dict[McpSession, None] = {}
        self._make_room: Callable[[], None] = _nobody
        self._clients = 0
        self._ends: dict[Callable[[], None], None] = {}

    def enter(self, scope: Scope) -> Visit | None:
        """Return the client of a request by its token; None where clients are not asked. Raises Unauthenticated."""
        return visit_of(scope) if self._asks else None

    def admit(self, session: McpSession) -> None:
        """Count a request on a WebSocket. Raises Unavailable where its client, or everybody, has asked too much."""
        if self._gateway is not None:
            self._gateway.limits.request(self._protocol, self._client(session))

    def admit_session(
        self, session: McpSession, held: Callable[[str | None], int], spare: Callable[[str], bool]
    ) -> str | None:
        """Admit a session of Streamable HTTP. Returns whose it is, None for a client that nobody knows.

        `held` says how many a client has, `spare` ends one of them that is idle. Raises Limited where it may have no
        more.
        """
        if self._gateway is None:
            return None
        client = self._client(session)
        limits = self._gateway.limits
        limits.session(self._protocol, client, held(client), lambda: client is not None and spare(client))
        return client

    @property
    def versions(self) -> list[str]:
        return [*versions.ALL, *self.dialects]

    @property
    def _full(self) -> bool:
        return self._clients >= self.options.max_sessions

    def connect(self) -> None:
        """One more is connected. Raises Unavailable."""
        if self.quiet:
            raise Unavailable("the gateway is stopping")
        if self._full:
            self._make_room()
        if self._full:
            raise Unavailable("too many clients are connected; try again later")
        self._clients += 1

    def disconnect(self) -> None:
        self._clients -= 1

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """The same for as long as the block lasts."""
        self.connect()
        try:
            yield
        finally:
            self.disconnect()

    def join(self, session: McpSession) -> None:
        """It was initialized, or listens. Again: no effect."""
        if session not in self.joined:
            self.joined[session] = None
            self.service.joined(session)

    def leave(self, session: McpSession) -> None:
        """It has ended, if it had joined."""
        if session in self.joined:
            del self.joined[session]
            try:
                self.service.left(session)
            except Exception:
                log.exception("saying goodbye to session %s failed", session.id)

    @contextlib.contextmanager
    def stopping(self, end: Callable[[], None]) -> Iterator[None]:
        """While the block lasts `end` is called when the gateway stops; at once if it has."""
        self._ends[end] = None
        try:
            if self.quiet:
                end()
            yield
        finally:
            del self._ends[end]

    def on_full(self, make_room: Callable[[], None]) -> None:
        """`make_room` is called when no further client may connect: it ends a session that can be done without."""
        self._make_room = make_room

    def on_stop(self, end: Callable[[], None]) -> None:
        """`end` is called when the gateway stops."""
        self._ends[end] = None

    def stop(self) -> None:
        self.quiet = True
        for end in list(self._ends):
            end()


def _code(error: Exception) -> int:
    """The code of the error that answers a request. Any exception but an RpcError is a fault of ours."""
    return error.error.code if isinstance(error, RpcError) else jsonrpc.INTERNAL_ERROR


def _visitor(session: McpSession) -> str | None:
    return None if session.visit is None else session.visit.principal.who.id


def _nobody() -> None:
    """There is none."""
