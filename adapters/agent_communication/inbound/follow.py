"""One run as the client of one call is told of it: what is said on the way, its questions, and last the answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, TypeGuard

from msgspec.structs import replace

from adapters.agent_communication.codec.deltas_out import NOTIFICATION
from adapters.agent_communication.inbound.asking import Questions
from adapters.agent_communication.inbound.house import House
from adapters.agent_communication.inbound.speaking import INFO, Log, wanted
from adapters.agent_communication.inbound.waiting import state_of
from adapters.agent_communication.inbound.words import Events, Words
from adapters.agent_communication.wire import PROTOCOL, RUN
from gateway.adapter import Batch, Snapshot, Watch
from gateway.core import events as e
from gateway.core.errors import AgentGone
from gateway.core.stream import coalesce
from gateway.core.types import Agent, Interrupt, Run, RunStatus
from gateway.mcp import versions
from gateway.mcp.server.contract import Call, InputRequired
from gateway.mcp.wire import MESSAGE, PROGRESS, PROGRESS_TOKEN

LAGGING = 32
"""Events at once from which on neighbouring deltas are joined, whoever the agent is."""


class Follow:
    """Made for one call, used once: `go`."""

    def __init__(self, house: House, call: Call, agent: Agent, run: Run, words: Words) -> None:
        self._house = house
        self._call = call
        self._run = run
        self._words = words
        self._native = PROTOCOL in agent.extra
        self._log = Log(call, run)
        self._questions = Questions(house, call, run.id)
        self._counted: Counter[str] = Counter()
        self._end: e.Event | None = None
        self._news: asyncio.Task[Batch | None] | None = None
        self._snapshot: Snapshot | None = None

    async def go(self) -> Any:
        """Tell the client of the run from its beginning, and return the answer of its call, or raise it.

        A run whose client wants no answer any more is cancelled; one that waits for another call goes on waiting.
        """
        try:
            return await self._follow()
        except (asyncio.CancelledError, AgentGone):
            self._house.cancel(self._run.id)
            raise
        finally:
            self._questions.leave()
            if self._news is not None:
                self._news.cancel()

    # --- inside -----------------------------------------------------------------------------------------------

    async def _follow(self) -> Any:
        gateway = self._house.gateway
        if not (self._words.tells or self._log.on or self._native):  # then nothing is worth a look before it stops
            run = await gateway.wait(self._run.id)
            if run is not None and run.status.ended:
                return await self._ended(run)
        async with gateway.watch(self._run.id) as watch:
            while True:
                question = self._questions.under_way
                batch = await self._next(watch, question)
                if batch is None:
                    break
                if isinstance(batch, Batch):
                    self._take(batch)
                    await self._call.drain()
                    if batch.snapshot is None:
                        continue
                    self._snapshot = batch.snapshot
                if self._questions.any and not watch.run.status.ended:
                    interrupt = self._ask(watch.run)
                    if interrupt is not None:
                        return self._words.interrupted(watch.run, interrupt, self._so_far())
            run = watch.run
        for notification in self._words.last(run):
            self._call.send(notification)
        self._count(run)
        return await self._ended(run)

    async def _next(self, watch: Watch, question: asyncio.Task[None] | None) -> Batch | bool | None:
        """The next events; True once the question under way is over; None at the end."""
        if self._news is None and question is None:
            return await watch.next()
        if self._news is None:
            self._news = asyncio.create_task(watch.next())
        if question is not None:
            await asyncio.wait((self._news, question), return_when=asyncio.FIRST_COMPLETED)
        if question is not None and not self._news.done():
            return True
        news, self._news = self._news, None
        return await news

    def _take(self, batch: Batch) -> None:
        events = batch.events
        if not events:  # nothing but a snapshot: of a run taken up again, say
            self._tell((), batch.snapshot)
            return
        self._questions.feed(events)
        joined: Events = events
        if (self._words.tells or self._log.on) and not (self._native and len(events) < LAGGING):
            joined = coalesce(events)
        if self._native and any(_passed_on(event) for _, event in events):
            for at, (_, event) in enumerate(joined):
                self._tell(joined[at : at + 1], None)
                if _passed_on(event):
                    self._pass_on(event)
            self._tell((), batch.snapshot)
        else:
            self._tell(joined, batch.snapshot)
        if isinstance(events[-1][1], e.TERMINAL):
            self._end = events[-1][1]
        if len(events) > 1 or type(events[0][1]) is not e.PartDelta:
            self._count(None)

    def _tell(self, events: Events, snapshot: Snapshot | None) -> None:
        for notification in self._words.feed(events, snapshot):
            self._call.send(notification)
        if self._log.on:
            self._log.feed(events)

    def _pass_on(self, event: e.Custom) -> None:
        """A notification of an agent of this protocol, in its own words."""
        method, params = event.data[NOTIFICATION], event.data.get("params")
        token = self._call.progress_token
        if method == MESSAGE:
            if not isinstance(params, dict) or not wanted(self._call.log_level, params.get("level", INFO)):
                return
        elif token is None or self._call.method != RUN:
            return
        elif method == PROGRESS:
            params = {**(params if isinstance(params, dict) else {}), PROGRESS_TOKEN: token}
        self._call.notify(method, params)

    def _ask(self, run: Run) -> Interrupt | None:
        """Put what is open to the client; a question that it cannot be asked is returned. Raises InputRequired."""
        questions = self._questions
        if versions.modern(self._call.client.version) and (forms := questions.forms()):
            raise InputRequired(forms, state_of(run.id))
        return questions.ask()

    def _so_far(self) -> bytes:
        return b"null" if self._snapshot is None else self._snapshot.encoded

    def _count(self, run: Run | None) -> None:
        """Have what could not be said counted; what is found at the end is too late for the record."""
        new = self._words.losses - self._counted
        if not new:
            return
        self._counted = self._words.losses.copy()
        if run is None:
            for what, count in new.items():
                self._house.gateway.lost(self._run.id, what, count)
        self._log.lost(new)

    async def _ended(self, run: Run) -> Any:
        if run.status is not RunStatus.SUCCESS:
            self._log.failed(run)
        losses = Counter(run.losses)
        return await self._words.result(replace(run, losses={**(losses | self._words.losses)}), self._end)


def _passed_on(event: e.Event) -> TypeGuard[e.Custom]:
    return isinstance(event, e.Custom) and event.name == PROTOCOL and NOTIFICATION in (event.data or ())
