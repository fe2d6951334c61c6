"""Following a run that another gateway process drives: that one rings when the log has grown, and the log is read here.

    here:  FollowedRuns --WatchRun, every 10 s--> there: RemoteReaders, a reader of the run's log
    here:  FollowedRun is woken <----------bell-- there: what was said is written, sooner than else

A bell may be lost and a process may die, so a followed run is looked at now and then all the same; often while nobody
rings for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from gateway.core.errors import InterlinguaError
from gateway.runs.log import RunLog
from gateway.runs.post import PostOffice
from gateway.store import Store
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)

RENEW_SECONDS: Final = 10.0
"""How often a process says that it follows a run."""
WATCHED_SECONDS: Final = 3 * RENEW_SECONDS
"""How long a process is rung at that does not say so again."""
ALIVE_SECONDS: Final = 1.0
"""How often it is looked whether those that ring are alive."""
LOOK_SECONDS, POLL_SECONDS = 5.0, 0.2
"""How often a run is looked at that is rung for, and one that is not."""
PAUSE_SECONDS: Final = 0.02
"""Between two writes of what is said for the sake of followers elsewhere. The first is at once."""


class WatchRun(msgspec.Struct, frozen=True):
    """Ring for a run for half a minute."""

    run: str


class FollowedRun:
    """A run that is driven elsewhere, as far as it is followed here."""

    def __init__(self, run_id: str) -> None:
        self.id = run_id
        self.owner = ""
        """The process that rings for it; "" if none does."""
        self.mark = 0
        """How often there may have been news. To be read before the log is, and given to `news`."""
        self._waiting: set[asyncio.Future[None]] = set()

    def rung(self) -> None:
        """There may be news."""
        self.mark += 1
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def served(self, owner: str) -> None:
        """Another process rings for it from now on, or ("") none does: what was said before has not been rung for."""
        if owner != self.owner:
            self.owner = owner
            self.rung()

    async def news(self, mark: int, seconds: float) -> None:
        """Wait until there may be news since `mark`, or so many seconds have passed, or it is time to look."""
        if self.mark != mark:
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await asyncio.wait([waiting], timeout=min(seconds, LOOK_SECONDS if self.owner else POLL_SECONDS))
        finally:
            self._waiting.discard(waiting)


class FollowedRuns:
    """All that are followed here. One per engine."""

    def __init__(self, store: Store, post: PostOffice) -> None:
        self._store = store
        self._post = post
        self._runs: dict[str, FollowedRun] = {}
        self._followers: Counter[str] = Counter()
        self._asking = TaskSet()
        self._caring: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def following(self, run_id: str) -> Iterator[FollowedRun]:
        """Follow a run until the context is left."""
        followed = self._runs.get(run_id)
        if followed is None:
            followed = self._runs[run_id] = FollowedRun(run_id)
            self._asking.start(self._ask(followed))
        if self._caring is None or self._caring.done():
            self._caring = asyncio.create_task(self._care(), name="followed runs")
        self._followers[run_id] += 1
        try:
            yield followed
        finally:
            self._followers[run_id] -= 1
            if not self._followers[run_id]:
                del self._runs[run_id], self._followers[run_id]

    def owner_of(self, run_id: str) -> str:
        """The process that rings for a run; "" if none does."""
        return self._runs[run_id].owner if run_id in self._runs else ""

    def rung(self, run_id: str | None) -> None:
        """The bell has been rung for a run, or (None) there is something to look at for all of them."""
        if run_id is None:
            for followed in self._runs.values():
                followed.rung()
        elif (found := self._runs.get(run_id)) is not None:
            found.rung()

    async def close(self) -> None:
        """Follow nothing any more."""
        if self._caring is not None:
            self._caring.cancel()
            await asyncio.gather(self._caring, return_exceptions=True)
        self._asking.cancel()
        await self._asking.settled()

    async def _care(self) -> None:
        """Say now and then what is followed, and ask whoever has it by now for what nobody rings for."""
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while self._runs:
            unheard = [one for one in self._runs.values() if not one.owner]
            await asyncio.sleep(POLL_SECONDS if unheard else ALIVE_SECONDS)
            due = loop.time() - renewed >= RENEW_SECONDS
            if due:
                renewed = loop.time()
            gone = await self._silent({one.owner for one in self._runs.values() if one.owner})
            for one in list(self._runs.values()):
                if one.owner in gone:
                    one.served("")
            asked = [self._ask(one) for one in list(self._runs.values()) if due or not one.owner]
            await asyncio.gather(*asked)

    async def _silent(self, owners: set[str]) -> set[str]:
        """Those of the processes that cannot ring here."""
        if not self._store.mailbox.has_bell:
            return owners
        try:
            return {owner for owner in owners if not await self._store.lives(owner)}
        except InterlinguaError:
            return owners

    async def _ask(self, followed: FollowedRun) -> None:
        """Ask whoever drives a run to ring for it."""
        owner = ""
        try:
            if self._store.mailbox.has_bell:
                owner = await self._store.owner_of(followed.id)
                await self._post.ask(owner, WatchRun(followed.id), bool, within=RENEW_SECONDS)
        except InterlinguaError as error:  # it is between two processes, or theirs is an older version
            log.debug("nobody rings for run %s: %s", followed.id, error)
            owner = ""
        followed.served(owner)


class RemoteReader:
    """Reads a run's log for other processes (see `gateway.runs.log.LogReader`)."""

    def __init__(self, log: RunLog, told: Callable[[RemoteReader], None]) -> None:
        self.log = log
        self.after = log.last
        self.until: dict[str, float] = {}
        """When who has to have said again that they follow (loop time)."""
        self._told = told

    def tell(self) -> None:
        self._told(self)

    def read(self) -> list[str]:
        """All that is said is written. Returns the processes to ring at."""
        self.after = self.log.last
        now = asyncio.get_running_loop().time()
        self.until = {process: until for process, until in self.until.items() if until > now}
        return list(self.until)


class RemoteReaders:
    """Rings at other processes that follow runs of this one. One per engine."""

    def __init__(self, store: Store, rung: Callable[[str], None]) -> None:
        """`rung` is called for a run of this process that is followed here all the same: it was another's before."""
        self._store = store
        self._rung = rung
        self._readers: dict[str, RemoteReader] = {}
        self._news: dict[str, RemoteReader] = {}
        self._ringing: asyncio.Task[None] | None = None

    def add(self, log: RunLog, process: str) -> None:
        """Ring for a run at a process from now on."""
        reader = self._readers.get(log.run_id)
        if reader is None or reader.log is not log:
            reader = self._readers[log.run_id] = RemoteReader(log, self._told)
            log.waiting.add(reader)
        reader.until[process] = asyncio.get_running_loop().time() + WATCHED_SECONDS
        self._told(reader)  # what is said already may not be written yet

    async def close(self) -> None:
        """Ring no more."""
        if self._ringing is not None:
            self._ringing.cancel()
            await asyncio.gather(self._ringing, return_exceptions=True)

    def _told(self, reader: RemoteReader) -> None:
        self._news[reader.log.run_id] = reader
        if self._ringing is None or self._ringing.done():
            self._ringing = asyncio.create_task(self._ring(), name="bells of followed runs")

    async def _ring(self) -> None:
        """Write what was said, of all such runs together, and ring; and again after a pause while more is said."""
        while self._news:
            news, self._news = self._news, {}
            await asyncio.gather(*(self._store.flush(run_id) for run_id in news), return_exceptions=True)
            for run_id, reader in news.items():
                for process in (processes := reader.read()):
                    if process == self._store.owner:
                        self._rung(run_id)
                    else:
                        self._store.mailbox.ring(process, run_id)
                if reader.log.ended or reader.log.left or not processes:
                    reader.log.waiting.discard(reader)
                    if self._readers.get(run_id) is reader:
                        del self._readers[run_id]
            await asyncio.sleep(PAUSE_SECONDS)
