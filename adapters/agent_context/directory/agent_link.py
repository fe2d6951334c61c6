"""The link to a registered agent, which opens only while the agent may be given work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from adapters.agent_context.outbound.link import AgentLine, AgentLink, Listener
from gateway.core.errors import InterlinguaError, Unavailable
from gateway.core.types import JsonObject


class GuardedLink:
    """The link of one registered agent, whichever connection that has at the moment. See `AgentLink`.

    `refusal` says why no run may be sent now, None if one may. `find`: the link over the agent's connection, None
    while it has none. `own`: the link to its endpoint instead.
    """

    def __init__(
        self,
        refusal: Callable[[], InterlinguaError | None],
        find: Callable[[], AgentLink | None],
        own: AgentLink | None = None,
    ) -> None:
        self._refusal = refusal
        self._find = find
        self._own = own

    @property
    def reachable(self) -> bool:
        if self._refusal() is not None:
            return False
        link = self._link()
        return link is not None and link.reachable is not False

    def open(
        self, correlation: str, listener: Listener, capabilities: JsonObject | None = None
    ) -> AbstractAsyncContextManager[AgentLine]:
        """See `AgentLink.open`. Raises Denied for a revoked agent, Unavailable while it is not there."""
        if (error := self._refusal()) is not None:
            raise error
        if (link := self._link()) is None:
            raise Unavailable("the agent is not connected")
        return link.open(correlation, listener, capabilities)

    async def aclose(self) -> None:
        """See `AgentLink`. The connection that an agent registered on is its own."""
        if self._own is not None:
            await self._own.aclose()

    def _link(self) -> AgentLink | None:
        return self._own or self._find()
