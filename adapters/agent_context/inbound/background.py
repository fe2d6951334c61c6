"""Serves notifications that take a while as calls without an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Raw
from msgspec.structs import replace

from gateway.core.types import JsonObject
from gateway.mcp import versions
from gateway.mcp.server.contract import McpClient, McpSession, ProgressToken
from gateway.mcp.wire import PROGRESS_TOKEN, meta_of
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id

log = logging.getLogger(__name__)


class Aside:
    """See `gateway.mcp.server.contract.McpCall`: everything goes over the session instead of an answer's stream."""

    def __init__(self, session: McpSession, method: str, params: Raw) -> None:
        self.session = session
        self.client: McpClient = _unasked(session.client)
        self.id: Id = None
        self.method = method
        self.params = params or Raw(b"{}")
        self.meta: JsonObject = meta_of(self.params)
        self.bearer: str | None = session.bearer

    @property
    def progress_token(self) -> ProgressToken | None:
        token = self.meta.get(PROGRESS_TOKEN)
        return token if isinstance(token, str | int | float) and not isinstance(token, bool) else None

    @property
    def log_level(self) -> str | None:
        return self.session.log_level

    @property
    def can_ask(self) -> bool:
        return self.session.can_ask

    def notify(self, method: str, params: Any = None) -> None:
        self.session.tell(method, params)

    def send(self, notification: bytes) -> None:
        message = jsonrpc.decode(notification)
        if isinstance(message, jsonrpc.Notification):
            self.session.tell(message.method, message.params)

    async def drain(self) -> None:
        """See `Call`. What a session cannot take is dropped."""

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        return await self.session.ask(method, params, timeout=timeout)


def _unasked(client: McpClient) -> McpClient:
    """The client; in 2026-07-28 one is asked by the answer to its request, of which there is none here."""
    if not versions.modern(client.version):
        return client
    rest = {key: value for key, value in client.capabilities.items() if key != "elicitation"}
    return replace(client, capabilities=rest)


class Background:
    """Tasks that sessions need beside their requests; they end with their session."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[McpSession, set[asyncio.Task[None]]] = WeakKeyDictionary()
        self._all: set[asyncio.Task[None]] = set()

    def do(self, session: McpSession | None, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Begin. `session`: whose end cancels it; None for what goes on."""
        task = asyncio.create_task(work, name=name)
        self._all.add(task)
        if session is not None:
            self._of.setdefault(session, set()).add(task)
        task.add_done_callback(self._done)
        return task

    def left(self, session: McpSession) -> None:
        """The session has ended."""
        for task in self._of.pop(session, ()):
            task.cancel()

    def stop(self) -> None:
        """The gateway stops."""
        for task in tuple(self._all):
            task.cancel()

    async def settled(self) -> None:
        """Until nothing is being done any more."""
        while self._all:
            await asyncio.wait(self._all)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._all.discard(task)
        for tasks in self._of.values():
            tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)
