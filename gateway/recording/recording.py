"""What was said of one run: messages, times of its events, losses, in the order in which they came. In memory alone."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gateway.runs.live import LiveRun
from gateway.transport.tap import NotedWork, Said, Side
from gateway.transport.waiting import Flag

if TYPE_CHECKING:
    from gateway.recording.redaction import SecretRemover

MESSAGE_BYTES: Final = 32 * 1024
"""How much of one message is kept."""
HEADERS: Final = 100
"""How many headers of one message are kept."""
BEGINNING: Final = 200
"""Entries that are kept whatever comes: how the run began."""
RUN_ENTRIES: Final = 5000
RUN_BYTES: Final = 2 * 1024 * 1024
"""How much is kept of one run: its beginning, and of the rest the newest."""
LINGER_SECONDS: Final = 2.0
"""For how long whoever follows is told what is still said when the run has ended."""
OVERHEAD: Final = 120
"""Bytes that an entry costs beside its own."""


class RunRecording:
    """Implements `gateway.runs.log.LogReader`, and `gateway.transport.tap.WireNotes`. Call `tell` once it is made.

    An entry has a number, `n`, counted from 1, and is kept as the JSON that the API says.
    """

    def __init__(self, live: LiveRun, redactor: SecretRemover, grown: Callable[[int], None]) -> None:
        """`grown` is told by how many bytes it grew or shrank."""
        self.agent = live.agent.name
        self.route = live.entry.route.name
        self.after = 0
        """The newest event whose time is known."""
        self.open = True
        """Whether more is noted."""
        self.over = False
        """Whether nothing more is to be waited for."""
        self.bytes = 0
        self.said = NotedWork(self, calls=True)
        """Of the run's own task."""
        self.told = NotedWork(self)
        """Of those who tell its clients."""
        self._log = live.log
        self._losses = live.record.losses
        self._counted: dict[str, int] = {}
        self._redactor = redactor
        self._grown = grown
        self.last = 0
        """The number of the newest entry."""
        self._begun: list[tuple[int, bytes]] = []
        self._rest: deque[tuple[int, bytes]] = deque()
        self._news = Flag()
        self._log.waiting.add(self)

    # --- what goes in ------------------------------------------------------------------------------------------------

    def tell(self) -> None:
        """See `LogReader`: note when its events came."""
        self.look()
        if self._log.last > self.after:
            self.after = self._log.last
            self._add({"kind": "events", "last": self.after})
        if self._log.ended or self._log.left:
            self._log.waiting.discard(self)
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self.finish)

    def note(self, said: Said, side: Side) -> None:
        if not self.open:
            return
        self.look()
        self._redactor.see(said.headers)
        bare = side == "agent" and said.form == "request"
        entry: dict[str, Any] = {
            "at": said.at,
            "kind": "message",
            "side": side,
            "sent": said.sent,
            "form": said.form,
            "title": self._redactor.title(said.title, bare=bare)[:500],
            "bytes": said.size,
        }
        if said.headers:
            entry["headers"] = self._redactor.headers(said.headers[:HEADERS])
        text = self._redactor.body(said.data, said.media) if said.data else None
        if text is not None:
            entry["text"] = text[:MESSAGE_BYTES]
            entry["cut"] = len(text) > MESSAGE_BYTES
        self._add(entry)

    def look(self) -> None:
        """Note what was lost since the last look."""
        for what, count in self._losses.items():
            if (more := count - self._counted.get(what, 0)) > 0:
                self._counted[what] = count
                self._add({"kind": "lost", "what": what, "count": more})

    def _add(self, entry: dict[str, Any]) -> None:
        if not self.open:
            return
        self.last += 1
        data = msgspec.json.encode({"n": self.last, "at": time.time(), **entry})
        size = len(data) + OVERHEAD
        beginning = len(self._begun) < BEGINNING and self.bytes + size <= RUN_BYTES // 4
        (self._begun if beginning and not self._rest else self._rest).append((self.last, data))
        dropped = 0
        while self._rest and (len(self._rest) > RUN_ENTRIES or self.bytes + size - dropped > RUN_BYTES):
            dropped += len(self._rest.popleft()[1]) + OVERHEAD
        self.bytes += size - dropped
        self._grown(size - dropped)
        self._news.set()

    def close(self) -> None:
        """Note nothing more."""
        self.open = False
        self._log.waiting.discard(self)
        self.finish()

    def finish(self) -> None:
        """The run has ended, or is not recorded any more: whoever follows has seen it all."""
        self.over = True
        self._news.set()

    def forget(self) -> None:
        """Let go of all of it, and note nothing more."""
        self.close()
        self._begun.clear()
        self._rest.clear()
        self._grown(-self.bytes)
        self.bytes = 0

    # --- what comes out ----------------------------------------------------------------------------------------------

    def page(self, after: int, most: int) -> Sequence[tuple[int, bytes]]:
        """The entries above a number, about `most` bytes of them, each with its number."""
        found: list[tuple[int, bytes]] = []
        for entries in (self._begun, self._rest):
            if not entries or entries[-1][0] <= after:
                continue
            for number, data in entries:
                if number <= after:
                    continue
                if most <= 0:
                    return found
                found.append((number, data))
                most -= len(data)
        return found

    async def news(self, after: int, timeout: float) -> bool:
        """Wait for an entry above a number, or the end. False when `timeout` seconds passed first."""
        try:
            async with asyncio.timeout(timeout):
                while self.last <= after and not self.over:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True
