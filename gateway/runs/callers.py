"""Clients of other gateway processes, as agents here ask and tell them through the mailbox; and which process has the
conversation of a thread.

    here: Lobby --ThreadJoined, ThreadLeft--> there: Lobby, which has a RemoteWatcher watch the thread
    here: the client <------------ AskCaller, TellCaller -- there: CallerElsewhere
    here: the watcher <------------------ TellWatcher ----- there: RemoteWatcher

Each process numbers its changes, so that the others notice what they have missed; they ask for everything then.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import msgspec
from msgspec import Raw

from gateway.agents.entry import Entry
from gateway.contract import Caller, News
from gateway.core.errors import InterlinguaError, Unavailable
from gateway.core.types import JsonObject, Run, ThreadUpdate
from gateway.runs.post import PostOffice, Unanswered
from gateway.runs.threads import ThreadWatcher, ThreadWatchers
from gateway.store import Store, Undelivered
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often it is looked who the other processes are."""
SAY_SECONDS: Final = 10.0
"""How often a process says how many changes there were."""


HOLDER: Final = "interlingua.holder"
"""Key in what is recorded of a thread's conversation: the process that has it open, and the number of that change."""


class LentCaller(msgspec.Struct, frozen=True):
    """A client that another process may ask under this id (see `gateway.contract.Caller`)."""

    id: str
    protocol: str
    capabilities: JsonObject
    tools: tuple[str, ...] | None = None


class ThreadJoined(msgspec.Struct, frozen=True):
    """Somebody watches a thread, and may be asked if there is a `caller`; or the conversation with `agent` is here.

    `change` is its number, from 1 on, which no other change of its process has: `id` says the same.
    """

    change: int
    id: str
    thread: str
    caller: LentCaller | None = None
    agent: str = ""


class ThreadLeft(msgspec.Struct, frozen=True):
    """What had that id is no more."""

    change: int
    id: str


class ChangeCount(msgspec.Struct, frozen=True):
    """So many changes there were."""

    change: int


class WhoJoined(msgspec.Struct, frozen=True):
    """Answered with all there are."""


class AllJoined(msgspec.Struct, frozen=True):
    """All there are after so many changes."""

    change: int
    joined: tuple[ThreadJoined, ...]


class TellWatcher(msgspec.Struct, frozen=True):
    """News of a thread: one of the two."""

    watcher: str
    update: ThreadUpdate | None = None
    run: Run | None = None


class AskCaller(msgspec.Struct, frozen=True):
    """Send a client a request. Answered with its answer, or its error."""

    caller: str
    method: str
    params: Raw


class TellCaller(msgspec.Struct, frozen=True):
    """Send a client a notification."""

    caller: str
    method: str
    params: Raw


class CallerElsewhere:
    """See `gateway.contract.Caller`: a client of another process, which is waited for as long as that lives."""

    def __init__(self, process: str, lent: LentCaller, post: PostOffice) -> None:
        self.protocol = lent.protocol
        self.capabilities = lent.capabilities
        self.tools = lent.tools
        self._process = process
        self._id = lent.id
        self._post = post

    async def ask(self, method: str, params: Raw) -> Raw:
        try:
            return await self._post.ask(self._process, AskCaller(self._id, method, params), Raw, within=None)
        except (Undelivered, Unanswered) as error:
            raise Unavailable("the client has gone", detail=str(error)) from error

    def tell(self, method: str, params: Raw) -> None:
        self._post.tell(self._process, TellCaller(self._id, method, params))


class RemoteWatcher:
    """Watches a thread for a client of another process."""

    def __init__(self, process: str, joined: ThreadJoined, post: PostOffice) -> None:
        self.caller: Caller | None = None
        if joined.caller is not None:
            self.caller = CallerElsewhere(process, joined.caller, post)
        self._process = process
        self._id = joined.id
        self._post = post

    def tell(self, news: News) -> None:
        update, run = (None, news) if isinstance(news, Run) else (news, None)
        self._post.tell(self._process, TellWatcher(self._id, update, run))


class Lobby:
    """The clients of this process for the others, and theirs for this one. One per engine."""

    def __init__(self, store: Store, post: PostOffice, watchers: ThreadWatchers) -> None:
        self._store = store
        self._post = post
        self._watchers = watchers
        self._lent: dict[str, Caller] = {}
        self._lendings = itertools.count(1)
        self._here: dict[str, ThreadJoined] = {}
        self._told: dict[str, ThreadWatcher] = {}
        self._held: dict[tuple[str, str], list[ThreadJoined]] = {}
        """Conversations that are here, by thread and agent."""
        self._changes = 0
        self._there: dict[str, OtherProcess] = {}
        self._work = TaskSet()
        self._caring: asyncio.Task[None] | None = None
        post.serve(ThreadJoined, self._heard)
        post.serve(ThreadLeft, self._heard)
        post.serve(ChangeCount, self._heard)
        post.serve(WhoJoined, self._who_joined)
        post.serve(TellWatcher, self._tell_watcher)
        post.serve(AskCaller, self._ask_caller)
        post.serve(TellCaller, self._tell_caller)

    def open(self) -> None:
        """Begin to see who the others are. The store is open."""
        self._caring = asyncio.create_task(self._care(), name="clients of other processes")

    async def close(self) -> None:
        """Ask and tell nobody any more."""
        if self._caring is not None:
            self._caring.cancel()
            await asyncio.wait([self._caring])
        self._work.cancel()
        await self._work.settled()

    # --- clients of this process -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lend(self, caller: Caller) -> Iterator[LentCaller]:
        """Let others ask a client until the context is left."""
        lent = self._lend(caller)
        try:
            yield lent
        finally:
            del self._lent[lent.id]

    def _lend(self, caller: Caller) -> LentCaller:
        tools = None if caller.tools is None else tuple(caller.tools)
        lent = LentCaller(str(next(self._lendings)), caller.protocol, caller.capabilities, tools)
        self._lent[lent.id] = caller
        return lent

    def borrow(self, process: str, lent: LentCaller) -> Caller:
        """A client that another process has lent."""
        return CallerElsewhere(process, lent, self._post)

    @contextlib.asynccontextmanager
    async def join(self, thread: str, caller: Caller | None) -> AsyncIterator[ThreadWatcher]:
        """A watcher of the thread, and a client of it for agents of every process, until the context is left."""
        watcher = ThreadWatcher(caller)
        lent = None if caller is None else self._lend(caller)
        joined = self._joined(thread, lent)
        self._told[joined.id] = watcher
        self._watchers.add(thread, watcher)
        try:
            yield watcher
        finally:
            del self._told[joined.id]
            self._left(joined)
            if lent is not None:
                del self._lent[lent.id]
            self._watchers.remove(thread, watcher)

    def hold(self, thread: str, agent: str) -> Callable[[], None]:
        """See `ThreadContext.hold`."""
        joined = self._joined(thread, None, agent)
        self._held.setdefault((thread, agent), []).append(joined)

        def release() -> None:
            if joined.id in self._here:
                self._held[thread, agent].remove(joined)
                if not self._held[thread, agent]:
                    del self._held[thread, agent]
                self._left(joined)

        return release

    def holding(self, thread: str, agent: str) -> JsonObject:
        """What is recorded of a conversation that is here, for those that have not heard of it yet."""
        held = self._held.get((thread, agent))
        return {HOLDER: [self._store.owner, held[0].change]} if held else {}

    def _joined(self, thread: str, lent: LentCaller | None, agent: str = "") -> ThreadJoined:
        self._changes += 1
        joined = ThreadJoined(self._changes, str(self._changes), thread, lent, agent)
        self._here[joined.id] = joined
        self._say(joined)
        return joined

    def _left(self, joined: ThreadJoined) -> None:
        del self._here[joined.id]
        self._changes += 1
        self._say(ThreadLeft(self._changes, joined.id))

    def _say(self, change: ThreadJoined | ThreadLeft) -> None:
        """Tell all others, without waiting for them."""
        for process in self._there:
            self._post.tell(process, change)

    async def _who_joined(self, process: str, _: WhoJoined) -> AllJoined:
        self._of(process)
        return AllJoined(self._changes, tuple(self._here.values()))

    async def _tell_watcher(self, _: str, call: TellWatcher) -> None:
        news = call.run if call.update is None else call.update
        if call.watcher in self._told and news is not None:
            self._told[call.watcher].tell(news)

    async def _ask_caller(self, _: str, call: AskCaller) -> Raw:
        if (caller := self._lent.get(call.caller)) is None:
            raise Undelivered("the client has gone")
        return await caller.ask(call.method, call.params)

    async def _tell_caller(self, _: str, call: TellCaller) -> None:
        if (caller := self._lent.get(call.caller)) is not None:
            caller.tell(call.method, call.params)

    # --- clients of other processes ----------------------------------------------------------------------------------

    async def _heard(self, process: str, change: ThreadJoined | ThreadLeft | ChangeCount) -> None:
        if not self._of(process).take(change):
            self._learn(process)

    def _of(self, process: str) -> OtherProcess:
        if (there := self._there.get(process)) is None:
            there = OtherProcess(process, self._watchers, self._post)
            self._there[process] = there
        return there

    def _learn(self, process: str) -> None:
        """Ask another process for all who watch there."""
        if (there := self._of(process)).ask():
            self._work.start(self._ask(process, there))

    async def _ask(self, process: str, there: OtherProcess) -> None:
        try:
            while there.asked:
                there.take_all(await self._post.ask(process, WhoJoined(), AllJoined))
        except InterlinguaError as error:  # it has died, or says again how many changes there were
            log.debug("who has joined threads at %s is not known: %s", process, error)
            there.silent()

    async def _care(self) -> None:
        """See now and then who the others are, and say how many changes there were."""
        loop = asyncio.get_running_loop()
        said = loop.time()
        while True:
            with contextlib.suppress(InterlinguaError):
                others = await self._store.mailbox.others()
                for gone in self._there.keys() - set(others):
                    self._there.pop(gone).forget()
                for process in others:
                    if process not in self._there:
                        self._learn(process)
            if self._changes and loop.time() - said >= SAY_SECONDS:
                said = loop.time()
                for process in self._there:
                    self._post.tell(process, ChangeCount(self._changes))
            await asyncio.sleep(LOOK_SECONDS)

    async def place(self, entry: Entry, thread: str | None) -> str | None:
        """The other process that has the agent's connection, or its conversation on the thread; None where this one
        serves it. Raises NotFound, Unavailable.
        """
        if entry.placed is not None:
            await entry.placed.known()
            if (process := entry.placed.process) is not None:
                return process
        if thread is None or not self._there:
            return None
        key = thread, entry.route.name
        if key in self._held:
            return None
        known = next((name for name, there in self._there.items() if key in there.held), None)
        if known is not None:
            return known
        record = (await self._store.thread(thread)).upstream.get(entry.route.name) or {}
        process, change = record.get(HOLDER) or ("", 0)
        there = self._there.get(process)
        return process if there is not None and not there.knows(change) else None

    def not_moved(self, entry: Entry) -> None:
        """Raises Undelivered if the agent is connected to another process, which cannot be asked: nothing was done."""
        if entry.placed is not None and entry.placed.process is not None:
            raise Undelivered(f"agent {entry.route.name} cannot be reached now; try again")

    def gone(self, process: str, why: Undelivered, entry: Entry) -> None:
        """Another process has turned out to be dead, or not to have what was asked for."""
        if entry.placed is not None:
            entry.placed.doubt()
        log.info("%s is asked for nothing more: %s", process, why)
        if (there := self._there.pop(process, None)) is not None:
            there.forget()


class OtherProcess:
    """What is known of the clients of another process."""

    def __init__(self, process: str, watchers: ThreadWatchers, post: PostOffice) -> None:
        self.asked = False
        """It is asked for everything."""
        self.held: Counter[tuple[str, str]] = Counter()
        """Conversations that are there, by thread and agent."""
        self._process = process
        self._watchers = watchers
        self._post = post
        self._change = self._heard = 0
        """The change up to which everything is known; the newest that has been heard of."""
        self._known: dict[str, ThreadJoined] = {}
        self._watching: dict[str, RemoteWatcher] = {}

    def ask(self) -> bool:
        """It is to be asked for everything; False if it is already."""
        before, self.asked = self.asked, True
        return not before

    def silent(self) -> None:
        """It has not answered."""
        self.asked = False

    def knows(self, change: int) -> bool:
        """Whether that change is known."""
        return self._change >= change

    def take(self, change: ThreadJoined | ThreadLeft | ChangeCount) -> bool:
        """Take a change; False if one before it is not known."""
        self._heard = max(self._heard, change.change)
        if change.change <= self._change:
            return True
        if isinstance(change, ChangeCount) or change.change > self._change + 1:
            return False
        self._change = change.change
        if isinstance(change, ThreadJoined):
            self._add(change)
        else:
            self._remove(change.id)
        return True

    def take_all(self, found: AllJoined) -> None:
        """Take all who watch there. It is asked again if there have been changes since."""
        if found.change >= self._change:
            self._change = found.change
            ids = {joined.id for joined in found.joined}
            for gone in self._known.keys() - ids:
                self._remove(gone)
            for joined in found.joined:
                if joined.id not in self._known:
                    self._add(joined)
        self.asked = self._heard > self._change

    def forget(self) -> None:
        """It has died."""
        for id in list(self._known):
            self._remove(id)

    def _add(self, joined: ThreadJoined) -> None:
        self._known[joined.id] = joined
        if joined.agent:
            self.held[joined.thread, joined.agent] += 1
        else:
            watcher = self._watching[joined.id] = RemoteWatcher(self._process, joined, self._post)
            self._watchers.add(joined.thread, watcher)

    def _remove(self, id: str) -> None:
        joined = self._known.pop(id, None)
        if joined is not None and joined.agent:
            self.held[joined.thread, joined.agent] -= 1
            self.held += Counter()  # without those at 0
        elif joined is not None:
            self._watchers.remove(joined.thread, self._watching.pop(id))
