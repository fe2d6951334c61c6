"""The requests of a server over Streamable HTTP: a task each, and our answers, a POST each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from gateway.core.errors import InterlinguaError
from gateway.mcp.client.calls import OutgoingCall, OutgoingCalls
from gateway.transport.rpc.incoming import plain_errors
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id, Request, RpcError

log = logging.getLogger(__name__)

MOST = 100
"""Requests under way at once; more are refused."""
CLOSE_SECONDS = 2.0
_CANCELLED = ErrorObject(jsonrpc.REQUEST_CANCELLED, "request cancelled")


class Incoming:
    """Of one session. `post` sends an answer; it raises InterlinguaError where that is not taken. `told` waits until
    what is to be said before the answer to a request that is cancelled was said.
    """

    def __init__(
        self,
        name: str,
        calls: OutgoingCalls,
        post: Callable[[bytes], Awaitable[None]],
        told: Callable[[], Awaitable[None]],
    ) -> None:
        self._name = name
        self._calls = calls
        self._post = post
        self._told = told
        self._tasks: dict[asyncio.Task[None], Id] = {}
        self._cancelled: set[asyncio.Task[None]] = set()
        self._mute = False

    async def accept(self, request: Request, on: OutgoingCall | None, version: str) -> None:
        """Serve a request that came on the stream of the call `on`, or on none's. It has begun when this returns.

        version: the revision that is spoken.
        """
        if self._mute:
            return
        crowded = len(self._tasks) >= MOST
        task = asyncio.create_task(self._serve(request, on, version, crowded), name=f"{self._name} {request.method}")
        if crowded:  # whoever reads goes on when it is answered: then nothing grows
            await asyncio.wait([task])
            return
        self._tasks[task] = request.id
        task.add_done_callback(self._served)
        await asyncio.sleep(0)

    def cancel(self, id: Id) -> None:
        """Cancel a request that the server has taken back. It is answered all the same."""
        for task, its in self._tasks.items():
            if its == id and id is not None:
                self._stop(task)

    async def aclose(self) -> None:
        """Cancel all requests, unanswered."""
        self._mute = True
        tasks = list(self._tasks)
        for task in tasks:
            self._stop(task)
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)

    async def _serve(self, request: Request, on: OutgoingCall | None, version: str, crowded: bool) -> None:
        try:
            if crowded:
                raise RpcError(jsonrpc.INTERNAL_ERROR, "too many requests under way; try again later")
            task = asyncio.current_task()
            assert task is not None
            stop = partial(self._stop, task)
            found = await self._calls.answer(request.method, request.params, version, stop, on)
            answer = jsonrpc.result(request.id, found)
        except asyncio.CancelledError:
            if self._mute:
                raise
            await self._told()
            answer = jsonrpc.error(request.id, _CANCELLED)
        except Exception as error:
            if not isinstance(error, InterlinguaError):
                log.exception("%s: answering %s failed", self._name, request.method)
            answer = jsonrpc.error(request.id, error.error if isinstance(error, RpcError) else plain_errors(error))
        try:
            await self._post(answer)
        except InterlinguaError as error:
            log.warning("%s: the answer to %s was not taken: %s", self._name, request.method, error)

    def _stop(self, task: asyncio.Task[None]) -> None:
        if task not in self._cancelled and task in self._tasks:  # a second time would hit it while it cleans up
            self._cancelled.add(task)
            task.cancel()

    def _served(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._cancelled.discard(task)
