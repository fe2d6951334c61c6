"""Who is there: the watchers of each thread, and the client that its agent may ask now. In this process only."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator

from gateway.contract import Caller, News
from gateway.core.types import ThreadUpdate

BEHIND = 1000
"""News that a watcher may be behind before it loses updates."""


class Listener:
    """See `gateway.contract.ThreadWatch`."""

    def __init__(self, caller: Caller | None) -> None:
        self.caller = caller
        self._news: deque[News] = deque()
        self._ready = asyncio.Event()

    async def next(self) -> News:
        while not self._news:
            self._ready.clear()
            await self._ready.wait()
        return self._news.popleft()

    @property
    def behind(self) -> int:
        return len(self._news)

    def tell(self, news: News) -> None:
        """Add to what `next` gives. Never blocks."""
        if len(self._news) >= BEHIND:
            oldest = next((item for item in self._news if isinstance(item, ThreadUpdate)), None)
            if oldest is not None:
                self._news.remove(oldest)
        self._news.append(news)
        self._ready.set()


class Listeners:
    """All listeners, by thread."""

    def __init__(self) -> None:
        self._by_thread: dict[str, list[Listener]] = {}

    @contextlib.contextmanager
    def join(self, thread_id: str, caller: Caller | None) -> Iterator[Listener]:
        """A new listener of the thread, until the context is left."""
        listener = Listener(caller)
        there = self._by_thread.setdefault(thread_id, [])
        there.append(listener)
        try:
            yield listener
        finally:
            there.remove(listener)
            if not there:
                self._by_thread.pop(thread_id, None)

    def callers(self, thread_id: str) -> list[Caller]:
        """The thread's clients that may be asked, the newest first."""
        there = self._by_thread.get(thread_id, ())
        return [listener.caller for listener in reversed(there) if listener.caller is not None]

    def tell(self, thread_id: str, news: News) -> None:
        """Tell everyone who watches the thread."""
        for listener in self._by_thread.get(thread_id, ()):
            listener.tell(news)
