"""One run for the client of one call: notifications, questions, and last the answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Any, Final, Protocol

from msgspec.structs import replace

from gateway.contract import Batch, Gateway, Snapshot
from gateway.core import events as e
from gateway.core.errors import AgentGone
from gateway.core.stream import coalesce
from gateway.core.types import Agent, Interrupt, Run, RunStatus
from gateway.mcp import versions
from gateway.mcp.runs.client_runs import ClientRuns, left
from gateway.mcp.runs.log_messages import INFO, Log
from gateway.mcp.runs.open_questions import OpenQuestions
from gateway.mcp.runs.questions import ELICITATION, QuestionFormat, state_of
from gateway.mcp.runs.tools import Events
from gateway.mcp.server.contract import InputRequired, McpCall
from gateway.wire.jsonrpc import REQUEST_CANCELLED, RpcError

LAGGING = 32
"""Events at once from which on neighbouring deltas are joined, for any agent."""
FILES: Final = frozenset({e.ArtifactAdded})
HEARD: Final = e.BESIDE | {e.Interrupted, e.Resumed, *e.TERMINAL}
"""Events that concern a call whose client is told nothing on the way."""


class Rendering(Protocol):
    """How a run is told. Made for one call; called by `RunFollower` alone, in the order of the run."""

    @property
    def tells(self) -> bool:
        """Whether anything is told before the end. Does not change."""

    @property
    def losses(self) -> Counter[str]:
        """Losses so far, by name."""

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        """Whole JSON-RPC notifications for these events: every one of the run, in order.

        Tokens may come joined. `snapshot` is the document after the last of them, where it is known.
        """

    def last(self, run: Run) -> list[bytes]:
        """The same for what was held back until the end."""

    async def result(self, run: Run, end: e.Event | None) -> Any:
        """The answer for a run that has ended, or the error that is it. `end` is its last event, where it was seen."""

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> Any:
        """The answer that carries a question, or the error that does; `output` is the document so far (JSON)."""


class Native(Protocol):
    """Passes on, word for word, messages of an agent of the client's own protocol that are not events of its run.

    Brought by the adapter. A `Custom` event that it takes comes after everything told of earlier events. The rendering
    is fed that event as well.
    """

    @property
    def needed(self) -> bool:
        """Whether it passes on anything at all, or `ends`. Does not change."""

    @property
    def ends(self) -> bool:
        """Whether the answer needs the agent's last event. Does not change."""

    def takes(self, event: e.Custom) -> bool:
        """Whether `pass_on` is for this one."""

    def pass_on(self, event: e.Custom) -> None:
        """Tell the client, if it wants to know."""


class Unanswerable(RpcError):
    """The answer for a client that has said its last word when its run asks something; it may still read."""

    def __init__(self) -> None:
        super().__init__(REQUEST_CANCELLED, "the run is cancelled: it has a question, and its client has gone")


class RunFollower:
    """Made for one call, before its run is started or found; used once: `go`.

    `asker`: how the run's questions are put; None: as MCP asks. `native`: used only for an agent of the client's own
    protocol, whose tokens come as they are then, and not joined. `outlives`: the run goes on when the connection of its
    client ends, and is cancelled only if the client takes its call back.
    """

    _counted: Counter[str] | None = None

    def __init__(
        self,
        runs: ClientRuns,
        call: McpCall,
        agent: Agent,
        rendering: Rendering,
        *,
        asker: QuestionFormat | None = None,
        native: Native | None = None,
        outlives: bool = False,
    ) -> None:
        self._runs = runs
        self._call = call
        self._rendering = rendering
        self._asker = asker or ELICITATION
        self._outlives = outlives
        heeded = native is not None and native.needed and runs.documents.native(agent) is not None
        self._native = native if heeded else None
        self._quiet = not (rendering.tells or call.wants(INFO))
        self.hears = not self._quiet or (heeded and native is not None and native.ends)
        """Whether the run is followed from its beginning. If not, its client is told of it once it has stopped, or once
        its agent has said something beside its output.
        """
        self._end: e.Event | None = None
        self._snapshot: Snapshot | None = None

    async def go(self, run: Run) -> Any:
        """Tell the client of the run from its beginning, and return the answer of its call, or raise it.

        A run whose client wants no answer any more, or has gone and cannot answer, is cancelled; one that waits for
        another call goes on waiting, and one whose client's token has expired goes on.
        """
        self._run = run
        self._log = Log(self._call, run)
        gateway = self._runs.of(self._call.session)
        try:
            if not (self.hears or run.interrupts):  # then nothing is worth a look before it stops
                ended = await gateway.runs.ended(run.id, FILES if self._native is None else e.BESIDE)
                if ended is not None:
                    return await self._ended(ended)
            self._questions = OpenQuestions(self._runs, self._call, run.id, self._asker, self._log)
            try:
                return await self._follow(gateway)
            finally:
                self._questions.leave()
        except (asyncio.CancelledError, AgentGone, Unanswerable):
            if not self._left:
                self._runs.cancel(self._run.id)
            raise

    # --- inside -----------------------------------------------------------------------------------------------

    async def _follow(self, gateway: Gateway) -> Any:
        """Event by event. What the questions of a run come to is told with its result."""
        async with gateway.runs.watch(self._run.id) as watch:

            def take(batch: Batch) -> Awaitable[None] | None:
                told = self._take(batch)
                if batch.snapshot is not None:
                    self._snapshot = batch.snapshot
                    if self._questions.any:
                        watch.stop()
                return self._call.drain() if told else None

            while not await watch.follow(take):
                if self._questions.any and not watch.run.status.ended:
                    before = self._questions.under_way
                    interrupt = self._ask(watch.run)
                    if interrupt is not None:
                        return self._rendering.interrupted(watch.run, interrupt, self._so_far())
                    question = self._questions.under_way
                    if question is not None and question is not before:
                        question.add_done_callback(lambda _: watch.stop())
            run = watch.run
        for notification in self._rendering.last(run):
            self._call.send(notification)
        self._count(run)
        return await self._ended(run)

    def _take(self, batch: Batch) -> bool:
        """Tell of what has come. Returns whether anything of it may be told."""
        events = batch.events
        if not events:  # nothing but a snapshot: of a run taken up again, say
            self._tell((), batch.snapshot)
            return True
        if self._quiet and HEARD.isdisjoint([type(event) for _, event in events]):
            return False
        self._questions.feed(events)
        joined: Events = events
        native = self._native
        if (self._rendering.tells or self._log.on) and not (native is not None and len(events) < LAGGING):
            joined = coalesce(events)
        if native is not None and any(isinstance(event, e.Custom) and native.takes(event) for _, event in events):
            for at, (_, event) in enumerate(joined):
                self._tell(joined[at : at + 1], None)
                if isinstance(event, e.Custom) and native.takes(event):
                    native.pass_on(event)
            self._tell((), batch.snapshot)
        else:
            self._tell(joined, batch.snapshot)
        if isinstance(events[-1][1], e.TERMINAL):
            self._end = events[-1][1]
        if len(events) > 1 or type(events[0][1]) is not e.PartDelta:
            self._count(None)
        return True

    def _tell(self, events: Events, snapshot: Snapshot | None) -> None:
        for notification in self._rendering.feed(events, snapshot):
            self._call.send(notification)
        if self._log.on:
            self._log.feed(events)

    def _ask(self, run: Run) -> Interrupt | None:
        """Put what is open to the client; a question that it cannot be asked is returned. Raises InputRequired, and
        Unanswerable where nobody is left who could answer: by a form now, or with a handle later."""
        questions = self._questions
        if not (self._call.session.alive or self._outlives or self._runs.quiet):
            raise Unanswerable()
        if versions.modern(self._call.client.version) and (forms := questions.forms()):
            raise InputRequired(forms, state_of(run.id))
        return questions.ask()

    @property
    def _left(self) -> bool:
        """Whether the run goes on although its call does not."""
        return left(self._call.session, outlives=self._outlives)

    def _so_far(self) -> bytes:
        return b"null" if self._snapshot is None else self._snapshot.encoded

    def _count(self, run: Run | None) -> None:
        """Have what could not be said counted; what is found at the end is too late for the record."""
        losses = self._rendering.losses
        if not losses or not (new := losses - (self._counted or Counter())):
            return
        self._counted = losses.copy()
        if run is None:
            for what, count in new.items():
                self._runs.gateway.runs.lost(self._run.id, what, count)
        self._log.lost(new)

    async def _ended(self, run: Run) -> Any:
        if run.status is not RunStatus.SUCCESS:
            self._log.failed(run)
        if found := self._rendering.losses:
            run = replace(run, losses={**(Counter(run.losses) | found)})
        return await self._rendering.result(run, self._end)
