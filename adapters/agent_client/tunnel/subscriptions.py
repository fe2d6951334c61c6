"""Resources that MCP clients follow: `resources/subscribe` up to 2025-11-25, `subscriptions/listen` in 2026-07-28."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from gateway.core.errors import InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp import versions
from gateway.mcp.server.contract import McpSession
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

if TYPE_CHECKING:
    from adapters.agent_client.tunnel.upstream import UpstreamEnd

log = logging.getLogger(__name__)

SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
FILTER: Final = "resourceSubscriptions"
ACKNOWLEDGED_WITHIN: Final = 10.0
_DONE: Final = Raw(b"{}")


class Subscriptions:
    """Of all MCP clients of one `Proxy`: its server is asked, in its revision's way, for what any of them follows."""

    def __init__(self, upstream: UpstreamEnd) -> None:
        self._upstream = upstream
        self._followers: dict[str, set[McpSession]] = {}
        self._changing = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._work = TaskSet()

    def follows(self, session: McpSession, uri: Any) -> bool:
        """Whether it wants to know of changes of this resource."""
        return session in self._followers.get(uri, ()) if isinstance(uri, str) else False

    async def subscribe(self, session: McpSession, uri: Any, send: Callable[[], Awaitable[Raw]] | None = None) -> Raw:
        """`resources/subscribe`. `send` asks a server of such a revision.

        Raises RpcError for a resource that the server does not tell of, and the errors of the tree.
        """
        if not isinstance(uri, str):
            raise RpcError(jsonrpc.INVALID_PARAMS, "uri: the resource is not named", {"path": "/uri"})
        async with self._changing:
            result = _DONE
            if uri not in self._followers:
                if versions.modern(self._upstream.version):
                    await self._listen({*self._followers, uri}, uri)
                else:
                    result = await (send() if send else self._upstream.beside(SUBSCRIBE, {"uri": uri}))
            self._followers.setdefault(uri, set()).add(session)
            return result

    async def unsubscribe(self, session: McpSession, uri: Any) -> Raw:
        """`resources/unsubscribe`: the server is told when nobody follows it any more."""
        async with self._changing:
            there = self._followers.get(uri, set()) if isinstance(uri, str) else set()
            there.discard(session)
            if there or uri not in self._followers:
                return _DONE
            del self._followers[uri]
            if not versions.modern(self._upstream.version):
                return await self._upstream.beside(UNSUBSCRIBE, {"uri": uri})
            await self._listen(self._followers.keys())
            return _DONE

    def joined(self, session: McpSession) -> None:
        """A client is there; one of 2026-07-28 that listens has said what it follows."""
        for uri in sorted(session.resources):
            self._keep(partial(self.subscribe, session, uri))

    def left(self, session: McpSession) -> None:
        """It has gone."""
        self._keep(partial(self._left, session))

    def close(self) -> None:
        """The server is not there any more."""
        for task in (*self._work, *([self._listening] if self._listening is not None else [])):
            task.cancel()

    async def _left(self, session: McpSession) -> None:
        async with self._changing:  # behind what it has only begun to follow
            uris = [uri for uri, there in self._followers.items() if session in there]
        for uri in uris:
            self._keep(partial(self.unsubscribe, session, uri))

    async def _listen(self, uris: Collection[str], new: str | None = None) -> None:
        """Listen anew; what was listened to is let go when that is acknowledged. Raises RpcError if `new` is not."""
        before, self._listening = self._listening, None
        try:
            if uris:
                self._listening = await self._acknowledged({FILTER: sorted(uris)}, new)
        except BaseException:
            self._listening, before = before, None
            raise
        finally:
            if before is not None:
                before.cancel()

    async def _acknowledged(self, wanted: JsonObject, new: str | None) -> asyncio.Task[None]:
        told: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()

        def acknowledged(agreed: JsonObject) -> None:
            if FILTER in agreed and not told.done():  # else it is about other news
                told.set_result(agreed)

        listening = asyncio.create_task(self._upstream.listen(wanted, acknowledged))
        try:
            waited: list[asyncio.Future[Any]] = [listening, told]
            await asyncio.wait(waited, timeout=ACKNOWLEDGED_WITHIN, return_when=asyncio.FIRST_COMPLETED)
            if new is not None and not (told.done() and new in told.result()[FILTER]):
                raise RpcError(jsonrpc.INVALID_PARAMS, f"{new}: the server does not tell of its changes")
        except BaseException:
            listening.cancel()
            raise
        return listening

    def _keep(self, work: Callable[[], Awaitable[Any]]) -> None:
        async def quietly() -> None:
            try:
                await work()
            except (InterlinguaError, RpcError) as error:
                log.info("an MCP server is not asked for news of a resource: %s", error)

        self._work.start(quietly())
