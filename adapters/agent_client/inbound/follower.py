"""Tells one client of one run: its updates in order, its questions, and in the end the answer of the prompt."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.inbound.questions import RunQuestions
from adapters.agent_client.inbound.updates import STATES, SessionUpdates
from adapters.agent_client.wire import NOTIFICATION, PROTOCOL
from gateway.contract import Batch, Snapshot, Watch
from gateway.core import events as e
from gateway.core.stream import coalesce
from gateway.core.types import Agent, Run, RunStatus
from gateway.wire import jsonrpc

LAGGING = 32
"""Events at once from which on neighbouring chunks are joined, whoever the agent is."""

_APART = frozenset({e.Interrupted, e.Resumed, e.Custom})


class PromptFollower:
    """Made for one run, used once: `go`."""

    def __init__(
        self, session: SessionContext, updates: SessionUpdates, run: Run, agent: Agent | None, *, past: bool = False
    ) -> None:
        """`past`: the run is history."""
        mine = session.owns(run)  # started by a prompt of this client, which knows what it said
        self.run = run
        self._session = session
        self._updates = updates
        self._past = past
        self._native = agent is not None and PROTOCOL in agent.extra
        self._run_updates = updates.run(run, agent, mine=mine, past=past)
        self._encoder = self._run_updates.encoder
        self._counted: Counter[str] = Counter()
        self._begun = asyncio.Event()
        self._watch: Watch | None = None
        self._told = 0
        self._head: Callable[[], Awaitable[None]] | None = None
        self._quiet = False
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []
        self.questions = RunQuestions(session, updates, run.id, self._run_updates, self._asked)

    async def caught_up(self) -> None:
        """Wait until the client was told every event that the run's log has now; of an ended run, the end too."""
        await self._begun.wait()
        if self._watch is None:
            return
        newest = math.inf if self._watch.run.status.ended else self._watch.newest
        if self._told >= newest:
            return
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((newest, told))
        await told

    async def go(self, *, quiet: bool = False, head: Callable[[], Awaitable[None]] | None = None) -> None:
        """Tell the client of the run from its beginning to its end.

        `head` is awaited once, where everything that has happened by now was told; with `quiet` nothing is told
        before. Returns when the run has ended and, if it was this client's prompt, that is settled. Raises AgentGone.
        """
        session = self._session
        try:
            self._head, self._quiet = head, quiet
            await self._run_updates.begin(quiet=quiet)
            async with session.gateway.runs.watch(self.run.id) as watch:
                self._watch = watch
                self._begun.set()
                if watch.run.status is RunStatus.PENDING:
                    await self._at_head()
                await watch.follow(self._take)
                self.run = watch.run
            rest = self._encoder.finish(self.run)
            if not self._quiet:
                if (waiting := self._run_updates.tell(rest)) is not None:
                    await waiting
                await self._run_updates.close(self.run)
            await self._at_head()
            self._run_updates.over(self.run)
        finally:
            self.questions.leave()
            self._watch = None
            self._begun.set()
            self._wake()

    # --- inside -----------------------------------------------------------------------------------------------

    def _wake(self, last: int | None = None) -> None:
        """Wake the callers that wait for events up to `last`; all if it is None."""
        waiting, self._waiting = self._waiting, []
        for number, told in waiting:
            if last is not None and number > last:
                self._waiting.append((number, told))
            elif not told.done():
                told.set_result(None)

    async def _at_head(self) -> None:
        """Everything that has happened by now was told."""
        head, self._head = self._head, None
        if head is not None:
            self._run_updates.snapshot(asks=bool(self.questions.open))
            await head()
            self._quiet = False

    def _take(self, batch: Batch) -> Awaitable[None] | None:
        if not _APART.isdisjoint([type(event) for _, event in batch.events]):
            return self._take_apart(batch)
        waiting = self._say(self._encoder.feed(self._packed(batch.events), batch.snapshot))
        if waiting is None and self._head is None and not self.questions.open and self._session.client.flowing:
            self._passed(batch)
            return None
        return self._finish(batch, waiting)

    async def _take_apart(self, batch: Batch) -> None:
        await self._finish(batch, self._say(await self._pieces(batch)))

    def _say(self, updates: Sequence[bytes]) -> Awaitable[None] | None:
        if self._encoder.lossy and self._session.owns(self.run):
            self._count()
        if not updates:
            return None
        if self._quiet:
            self._run_updates.skip(updates)
            return None
        return self._run_updates.tell(updates)

    def _passed(self, batch: Batch) -> None:
        self._told = batch.last
        if self._waiting:
            self._wake(batch.last)

    async def _finish(self, batch: Batch, waiting: Awaitable[None] | None) -> None:
        """Wait for what was said, then ask what is open if all that has happened was told."""
        if waiting is not None:
            await waiting
        self._passed(batch)
        if not self._session.client.flowing:
            await self._session.client.drained()
        if batch.snapshot is None or self._watch is None or self._watch.run.status.ended:
            return
        await self._at_head()
        self.questions.ask()

    def _packed(self, events: Sequence[tuple[int, e.Event]]) -> Sequence[tuple[int, e.Event]]:
        """An agent of this protocol is told chunk by chunk as it spoke, unless this client lags."""
        return events if self._native and len(events) < LAGGING else coalesce(events)

    async def _pieces(self, batch: Batch) -> list[bytes]:
        """A batch cut where a question comes or goes, or the agent notifies: each has its place among the updates."""
        updates: list[bytes] = []
        piece: list[tuple[int, e.Event]] = []

        def flush(snapshot: Snapshot | None = None) -> None:
            updates.extend(self._encoder.feed(self._packed(piece), snapshot))
            piece.clear()

        for number, event in batch.events:
            if isinstance(event, e.Interrupted):
                flush()
                updates += self.questions.opened(event)
            elif isinstance(event, e.Resumed):
                flush()
                updates += self.questions.closed(event)
            elif isinstance(event, e.Custom) and event.name == PROTOCOL and NOTIFICATION in (event.data or ()):
                flush()
                if not (self._quiet or self._past):
                    if (waiting := self._run_updates.tell(updates)) is not None:
                        await waiting
                    updates.clear()
                    self._session.client.tell(event.data[NOTIFICATION], jsonrpc.raw(event.data["params"]))
            elif not isinstance(event, e.Custom):
                piece.append((number, event))
            elif self._is_told(event):
                if (said := self._run_updates.state_of(event)) is None:
                    piece.append((number, event))
                else:
                    flush()
                    updates += said
        flush(batch.snapshot)
        return updates

    def _is_told(self, event: e.Custom) -> bool:
        """Not what the halves of the adapter note for each other. Of history no state: the newest is told after it."""
        if event.name != PROTOCOL:
            return True
        kind = event.data.get("sessionUpdate") if isinstance(event.data, dict) else None
        return kind is not None and not (self._past and kind in STATES)

    def _count(self) -> None:
        """Have what could not be said counted, by the client that asked for it."""
        losses = self._encoder.losses
        for what, count in (losses - self._counted).items():
            self._session.gateway.runs.lost(self.run.id, what, count)
        self._counted = losses

    def _asked(self) -> None:
        self._updates.asked(self._session.turn if self._session.owns(self.run) else None)
