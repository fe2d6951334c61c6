"""What goes out on one stream: kept, in order, until it is written."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

VACATE_SECONDS = 1.0


class Lane:
    """The messages of one stream. It outlives the GETs that read it, of which there is one at a time.

    `moved` is told how many bytes have left, and of every other change (0).
    """

    def __init__(self, moved: Callable[[int], None]) -> None:
        self._moved = moved
        self._waiting: deque[bytes] = deque()
        self._taken: list[bytes] = []
        self._reader: asyncio.Task[None] | None = None
        self.some = asyncio.Event()
        """There may be something to take, or the end."""
        self.ended = False
        """Who reads now is done once everything is written."""
        self._closed = False

    @property
    def empty(self) -> bool:
        """Whether everything is written."""
        return not self._waiting and not self._taken

    @property
    def read(self) -> bool:
        """Whether a client has the stream open."""
        return self._reader is not None

    def put(self, message: bytes) -> None:
        """Send it when somebody reads."""
        if not self._closed:
            self._waiting.append(message)
            self.some.set()

    def take(self, most: int) -> list[bytes]:
        """The next messages, about `most` bytes of them, for `written` or `restore`."""
        waiting, taken = self._waiting, self._taken
        while waiting and most > 0:
            most -= len(waiting[0])
            taken.append(waiting.popleft())
        if not waiting and not self.ended:
            self.some.clear()
        return taken

    def written(self) -> None:
        """What was taken is on its way."""
        size = sum(map(len, self._taken))
        self._taken = []
        self._moved(size)

    def restore(self) -> None:
        """What was taken could not be written; the next reader gets it."""
        self._waiting.extendleft(reversed(self._taken))
        self._taken = []
        self.some.set()

    async def vacate(self) -> None:
        """Have whoever reads stop: a client opens a stream a second time when it has lost the first."""
        while (reader := self._reader) is not None:
            reader.cancel()
            await asyncio.wait([reader], timeout=VACATE_SECONDS)
            self.left(reader)

    def attach(self, reader: asyncio.Task[None]) -> None:
        """`reader` reads from now on; nobody else does."""
        self._reader = reader
        self._moved(0)

    def left(self, reader: asyncio.Task[None]) -> None:
        """It does not any more."""
        if self._reader is reader:
            self._reader = None
            self.ended = self._closed
            self._moved(0)

    def finish(self) -> None:
        """Who reads gets what is left, and the end."""
        self.ended = True
        self.some.set()

    def close(self) -> None:
        """The same, for good: nothing more is put in."""
        self._closed = True
        self.finish()

    def abort(self) -> None:
        """The end, at once."""
        self.close()
        size = sum(map(len, self._waiting))
        self._waiting.clear()
        self._moved(size)
        if self._reader is not None:
            self._reader.cancel()
