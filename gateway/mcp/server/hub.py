"""Shared by all transports of one server: the service, the clients that are connected, and how many may be."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from starlette.types import Scope

from gateway.access import Visit, visit_of
from gateway.contract import Requests, unguessable, unwatched
from gateway.core.errors import Unavailable
from gateway.mcp import versions, wire
from gateway.mcp.options import McpServeOptions
from gateway.mcp.server.contract import McpSession, Service
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)


class Watching(Protocol):
    """`gateway.contract.Gateway.requests` of one protocol."""

    def __call__(
        self, methods: Collection[str], code: Callable[[Exception], int], *, mcp: bool = False
    ) -> Requests: ...


def nobody_watches(methods: Collection[str], code: Callable[[Exception], int], *, mcp: bool = False) -> Requests:
    """A `Watching` that neither traces nor counts."""
    return unwatched


Admit = Callable[[McpSession], None]
"""Called for each request on a WebSocket. Raises Unavailable where its client, or everybody, has asked too much."""


def anything(session: McpSession) -> None:
    """An `Admit` of everything."""


AdmitSession = Callable[[McpSession, Callable[[str | None], int], Callable[[str], bool]], str | None]
"""Called for each new session of Streamable HTTP. Returns whose it is, None for a client that nobody knows.

Its arguments say how many sessions a client has, and end one of them that is idle. Raises Unavailable where it may have
no more.
"""


def anybodys(session: McpSession, held: Callable[[str | None], int], spare: Callable[[str], bool]) -> str | None:
    """An `AdmitSession` of everything."""
    return None


class Hub:
    """One per server."""

    def __init__(
        self,
        service: Service,
        options: McpServeOptions | None = None,
        dialects: Mapping[str, str] = MappingProxyType({}),
        asks: bool = False,
        watching: Watching = nobody_watches,
        *,
        admit: Admit = anything,
        admit_session: AdmitSession = anybodys,
        new_id: Callable[[], str] = unguessable,
    ) -> None:
        if unknown := set(dialects.values()) - set(versions.HANDSHAKE):
            raise ValueError(f"dialects of revisions that are not agreed on by a handshake: {unknown}")
        self.service = service
        self.options = options or McpServeOptions()
        self.dialects = dialects
        self.admit = admit
        self.admit_session = admit_session
        self.new_id = new_id
        self._asks = asks
        self.requests = watching({*service.methods, *wire.OWN}, _code, mcp=True)
        self.quiet = False
        """The gateway stops, and serves no further client."""
        self.joined: dict[McpSession, None] = {}
        self._make_room: Callable[[], None] = _nobody
        self._clients = 0
        self._ends: dict[Callable[[], None], None] = {}

    def enter(self, scope: Scope) -> Visit | None:
        """Return the client of a request by its token; None where clients are not asked. Raises Unauthenticated."""
        return visit_of(scope) if self._asks else None

    @property
    def versions(self) -> list[str]:
        """All that is served, as clients are told."""
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
        """One has gone."""
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
        """End what is open."""
        self.quiet = True
        for end in list(self._ends):
            end()


def _code(error: Exception) -> int:
    """The code of the error that answers a request. Any exception but an RpcError is a fault of ours."""
    return error.error.code if isinstance(error, RpcError) else jsonrpc.INTERNAL_ERROR


def _nobody() -> None:
    """There is none."""
