"""The way to a registered agent: its link, behind a gate that opens only while the agent may be given work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from adapters.agent_context.options import AgentContextServe
from adapters.agent_context.outbound.link import Line, Link, Listener
from adapters.agent_context.outbound.sessions import Links
from gateway.contract import Hosted, Outbound
from gateway.core.errors import InterlinguaError, Unavailable
from gateway.core.types import JsonObject
from gateway.mcp.server.contract import Session


class Ways(Protocol):
    """How links and outbound halves are made; tests bring their own."""

    def to_session(self, session: Session) -> Link:
        """The link to agents that registered on a connection."""

    def to_endpoint(self, endpoint: JsonObject) -> Link:
        """The link to an endpoint that an agent named: `{url, transport?}`."""

    def outbound(self, record: JsonObject, link: Link) -> Outbound:
        """The outbound half of a registered agent."""


class RealWays:
    """See `Ways`."""

    def __init__(self, options: AgentContextServe, links: Links) -> None:
        self._options = options
        self._links = links

    def to_session(self, session: Session) -> Link:
        """See `Ways`."""
        return self._links.to(session)

    def to_endpoint(self, endpoint: JsonObject) -> Link:
        """See `Ways`. Its connections are guarded: a stranger named the address."""
        from adapters.agent_context.outbound.pools import PoolLink

        return PoolLink.to_endpoint(endpoint, allow=[str(cidr) for cidr in self._options.endpoints])

    def outbound(self, record: JsonObject, link: Link) -> Outbound:
        """See `Ways`."""
        from adapters.agent_context.outbound.registered import make

        return make(record, link)


class Gate:
    """The link of one registered agent, whichever connection that has at the moment. See `Link`.

    `refusal` says why no run may be sent now, None if one may. `find`: the link over the agent's connection, None
    while it has none. `own`: the link to its endpoint instead.
    """

    def __init__(
        self,
        refusal: Callable[[], InterlinguaError | None],
        find: Callable[[], Link | None],
        own: Link | None = None,
    ) -> None:
        self._refusal = refusal
        self._find = find
        self._own = own

    @property
    def reachable(self) -> bool:
        """See `Link`."""
        if self._refusal() is not None:
            return False
        link = self._link()
        return link is not None and link.reachable is not False

    def open(
        self, correlation: str, listener: Listener, capabilities: JsonObject | None = None
    ) -> AbstractAsyncContextManager[Line]:
        """See `Link.open`. Raises Denied for a revoked agent, Unavailable while it is not there."""
        if (error := self._refusal()) is not None:
            raise error
        if (link := self._link()) is None:
            raise Unavailable("the agent is not connected")
        return link.open(correlation, listener, capabilities)

    async def aclose(self) -> None:
        """See `Link`. The connection that an agent registered on is its own."""
        if self._own is not None:
            await self._own.aclose()

    def _link(self) -> Link | None:
        return self._own or self._find()


@dataclass(frozen=True)
class Reach:
    """What the engine gets of one registered agent: a new one for another record, and after a revocation."""

    hosted: Hosted
    record: JsonObject
