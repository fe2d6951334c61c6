"""Flag: an event that costs little while nobody waits for it."""

from __future__ import annotations

import asyncio


class Flag:
    """As `asyncio.Event`, for what there are thousands of: that one has a queue for waiters from the outset, which is
    most of an idle session.
    """

    __slots__ = ("_set", "_waiting")

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        """Whether `wait` would return at once."""
        return self._set

    def set(self) -> None:
        """Let everybody who waits go on, and who comes later."""
        self._set = True
        waiting, self._waiting = self._waiting, None
        for future in waiting or ():
            if not future.done():
                future.set_result(None)

    def clear(self) -> None:
        """Have who comes from now on wait."""
        self._set = False

    async def wait(self) -> None:
        """Wait until it is set; it may be cleared again by the time that the waiter goes on."""
        if self._set:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(future)
        try:
            await future
        finally:
            if self._waiting is not None and future in self._waiting:
                self._waiting.remove(future)
