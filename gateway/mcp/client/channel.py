"""How a session's messages travel; piped.py and http/streamable.py are what there is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Raw

from gateway.core.errors import AgentGone
from gateway.core.types import JsonObject
from gateway.mcp.client.calls import OutgoingCall


class Channel(Protocol):
    """One connection to a server. Made by opening.py, used by one session.

    version: the revision that is spoken; "" until that is known.
    """

    @property
    def version(self) -> str: ...

    def speak(self, version: str) -> None:
        """From now on this revision is spoken, none as long as it is "". Called by the session."""

    def on_lost(self, renew: Callable[[], Awaitable[None]]) -> None:
        """`renew` shakes hands again, for a server that has forgotten the session: only Streamable HTTP does."""

    @property
    def name(self) -> str:
        """The name of the other end, for logs and error messages."""

    @property
    def closed(self) -> asyncio.Future[AgentGone]:
        """Done, with the reason, once it is all over."""

    @property
    def alive(self) -> bool:
        """False once nothing more can come of it."""

    @property
    def lasting(self) -> bool:
        """See `UpstreamSession`."""

    @property
    def shared(self) -> bool:
        """Whether each request of the server's says which call it belongs to, so that a session takes any number."""

    async def request(self, method: str, params: JsonObject, call: OutgoingCall | None) -> Raw:
        """Ask, and wait for the result. Given up, the server is told so, except of `initialize`.

        Raises as `UpstreamSession.call` does.
        """

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Tell. Raises AgentGone."""

    async def aclose(self) -> None:
        """End it, bounded in time; requests under way fail with AgentGone."""
