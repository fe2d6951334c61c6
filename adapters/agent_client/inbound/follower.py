"""Tells one client of one run: its updates in order, its questions, and in the end the answer of the prompt.

Here as in version 1, which answers a prompt at the end of its run; updates_v2.py has what differs in version 2.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import operator
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from adapters.agent_client.codec import questions as codec
from adapters.agent_client.codec import turn
from adapters.agent_client.codec.event_forms import kind_of
from adapters.agent_client.codec.updates_out import UpdateEncoder
from adapters.agent_client.codec.updates_out_v1 import V1UpdateEncoder
from adapters.agent_client.codec.version import V1
from adapters.agent_client.inbound import turns
from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.inbound.updates import STATES, SessionUpdates
from adapters.agent_client.wire import NOTIFICATION, PROTOCOL
from gateway.contract import Batch, Snapshot, Watch
from gateway.core import events as e
from gateway.core.errors import AgentBroken, Denied, InterlinguaError, Invalid, Unavailable
from gateway.core.stream import coalesce
from gateway.core.types import Agent, Answer, Interrupt, JsonObject, Outcome, Run, RunStatus
from gateway.transport.waiting import Flag
from gateway.wire import jsonrpc

log = logging.getLogger(__name__)

TRIES = 3
"""How often a form is shown whose answers do not fit the question; then it is declined."""
UNKNOWN_TO_CLIENT = (jsonrpc.METHOD_NOT_FOUND,)
LAGGING = 32
"""Events at once from which on neighbouring chunks are joined, whoever the agent is."""
_APART = frozenset({e.Interrupted, e.Resumed, e.Custom})
_event: Final[Callable[[tuple[int, e.Event]], e.Event]] = operator.itemgetter(1)


# --- the open questions of the run ----------------------------------------------------------------------------------
# Each that the client has a form for is asked in a task of its own; an answer from elsewhere withdraws it. What no form
# can show is told as text: that ends the turn, and the next prompt is the answer.


class RunQuestions:
    """Told of every interrupt and answer of the run in order; calls nobody before `ask` is called."""

    def __init__(
        self,
        session: SessionContext,
        updates: SessionUpdates,
        follower: PromptFollower,
        told: Callable[[], None],
    ) -> None:
        """`told` is called when the client has been told a question that its next prompt answers."""
        self._session = session
        self._updates = updates
        self._version = updates.version
        self._run_id = follower.run.id
        self._follower = follower
        self._told = told
        self.open: dict[str, Interrupt] = {}
        """Those that are not answered, by id."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asked: set[str] = set()
        self._answering: set[str] = set()
        self._by_text: set[str] = set()
        self._shown: set[str] = set()
        self._left = False

    @property
    def waiting(self) -> Interrupt | None:
        """The question whose answer the next prompt is: the oldest that has no form, once no form is open."""
        if self._tasks:
            return None
        return next((i for i in self.open.values() if i.id not in self._answering and self._form(i) is None), None)

    def opened(self, event: e.Interrupted) -> list[bytes]:
        interrupt = event.interrupt
        self.open[interrupt.id] = interrupt
        call = codec.asked_call(interrupt) if self._as_call(self._form(interrupt)) else None
        return [] if call is None else [call]

    def closed(self, event: e.Resumed) -> list[bytes]:
        """It has been answered, here or elsewhere. Returns what the client is told of that."""
        interrupt = self.open.pop(event.interrupt, None)
        if interrupt is None:
            return []
        task = self._tasks.get(interrupt.id)
        here = interrupt.id in self._answering
        if task is not None and not here:
            task.cancel()
        self._answering.discard(interrupt.id)
        found = self._form(interrupt)
        resumed = self._follower.resumed(event.answer, open=bool(self.open))
        if found is not None:
            call = codec.answered_call(interrupt, event.answer) if self._as_call(found) else None
            return [*resumed, *([] if call is None else [call])]
        told = [] if interrupt.id in self._shown else self._question(interrupt)
        return [*told, *self._follower.replied(interrupt, _said(event.answer), here=here), *resumed]

    def ask(self) -> None:
        """Ask what is open. To be called when the client has been told everything that came before."""
        if not self.open:
            return
        for interrupt in self.open.values():
            found = self._form(interrupt)
            if found is not None and interrupt.id not in self._asked:
                self._asked.add(interrupt.id)
                task = asyncio.create_task(self._ask(interrupt, found), name=f"question {interrupt.id}")
                self._tasks[interrupt.id] = task
                task.add_done_callback(functools.partial(self._over, interrupt.id))
                self._follower.waits()
        self._tell()

    async def answer(self, interrupt: Interrupt, text: str) -> None:
        """Take a prompt as the answer to `waiting`. Raises Invalid, and then it stays open; Conflict."""
        answer = codec.answer_from_text(interrupt, text)
        self._answering.add(interrupt.id)
        try:
            await self._hand_on(interrupt, answer)
        except InterlinguaError:
            self._answering.discard(interrupt.id)
            raise

    def again(self, interrupt: Interrupt, why: Invalid) -> list[bytes]:
        """The client's prompt was no answer: what it is told of that, with the question again."""
        said = f"{why}\n\n{codec.as_text(interrupt)}"
        return self._version.text(said, f"{self._run_id}-question-{uuid.uuid4().hex}")

    def leave(self) -> None:
        """Stop asking. Open questions stay open."""
        self._left = True
        for task in self._tasks.values():
            task.cancel()

    # --- inside -----------------------------------------------------------------------------------------------

    def _form(self, interrupt: Interrupt) -> codec.Form | None:
        if interrupt.id in self._by_text:
            return None
        return self._version.form(interrupt, codec.elicitation_modes(self._session.client.capabilities))

    def _as_call(self, found: codec.Form | None) -> bool:
        """Whether a question of this form goes with a tool call. Where rules govern only the agent's calls are told."""
        asks = found is not None and found[0] == codec.PERMISSION
        return asks and self._session.governor is None and self._version.asks_as_calls

    def _question(self, interrupt: Interrupt) -> list[bytes]:
        return self._version.text(codec.as_text(interrupt), f"{self._run_id}-question-{interrupt.id}")

    def _over(self, interrupt_id: str, task: asyncio.Task[None]) -> None:
        del self._tasks[interrupt_id]
        if not self._left:
            self._tell()

    def _tell(self) -> None:
        """Tell the oldest question that only text can put, once nothing else waits for the client."""
        interrupt = self.waiting
        if interrupt is None:
            return
        if interrupt.id not in self._shown:
            self._shown.add(interrupt.id)
            self._updates.say(*self._question(interrupt))
        self._told()

    async def _ask(self, interrupt: Interrupt, found: codec.Form) -> None:
        method, params, read = found
        for _ in range(TRIES):
            answer = await self._answer_to(interrupt, method, params, read)
            refused = await self._commit(interrupt, answer) if answer is not None else None
            if refused is None:
                return
            if "message" in params:
                params = {**params, "message": f"{refused}\n\n{found[1]['message']}"}
        await self._commit(interrupt, Answer(outcome=Outcome.DECLINED))

    async def _answer_to(
        self, interrupt: Interrupt, method: str, params: JsonObject, read: Callable[[Interrupt, Any], Answer]
    ) -> Answer | None:
        session = self._session
        try:
            result = await session.client.put(method, jsonrpc.raw({"sessionId": session.id, **params}))
            return read(interrupt, jsonrpc.unpack(result))
        except Unavailable:
            return None  # the client has gone
        except jsonrpc.RpcError as error:
            if error.error.code in UNKNOWN_TO_CLIENT:
                self._by_text.add(interrupt.id)
                return None
            log.info("session %s: %s was answered %s", session.id, method, error)
        except (AgentBroken, ValueError) as error:
            log.info("session %s: the answer to %s cannot be read: %s", session.id, method, error)
        return Answer(outcome=Outcome.DECLINED)

    async def _commit(self, interrupt: Interrupt, answer: Answer) -> Invalid | None:
        """Hand the answer on; Invalid where it does not fit, which leaves the question open."""
        self._answering.add(interrupt.id)
        try:
            await self._hand_on(interrupt, answer)
        except Invalid as error:
            self._answering.discard(interrupt.id)
            return error
        except Denied as error:  # somebody else may answer it
            self._answering.discard(interrupt.id)
            self._updates.say(*self._version.text(str(error), f"{self._run_id}-question-{uuid.uuid4().hex}"))
        except InterlinguaError as error:
            self._answering.discard(interrupt.id)
            log.info("session %s: an answer came to nothing: %s", self._session.id, error)
        return None

    async def _hand_on(self, interrupt: Interrupt, answer: Answer) -> None:
        session = self._session
        known = session.client.visitor.known
        answer = replace(answer, by=None if known is None else known.who)
        await session.client.clients.whole(session.gateway.runs.answer(self._run_id, answer, interrupt.id))


def _said(answer: Answer) -> str | None:
    """An answer that came from elsewhere, as a person would have typed it here."""
    if answer.outcome is not Outcome.ANSWERED:
        return None
    if isinstance(answer.value, str):
        return answer.value
    return bytes(jsonrpc.raw(answer.value)).decode()


# --- the run --------------------------------------------------------------------------------------------------------


class PromptFollower:
    """Made for one run, used once: `go`."""

    _questions: RunQuestions | None = None
    _open: Mapping[str, Interrupt] = MappingProxyType({})
    """The open questions of the run."""
    _counts: Counter[str] | None = None
    _watch: Watch | None = None
    _told = 0
    _head: Callable[[], Awaitable[None]] | None = None
    _quiet = False

    def __init__(
        self,
        session: SessionContext,
        updates: SessionUpdates,
        run: Run,
        agent: Agent | None,
        *,
        mine: bool,
        past: bool = False,
    ) -> None:
        """`mine`: it was started by a prompt of this client, which knows what it said. `past`: the run is history."""
        self.run = run
        self._session = session
        self._updates = updates
        self._agent = agent
        self._mine = mine
        self._past = past
        self.encoder = self._make_encoder()
        self._native = agent is not None and PROTOCOL in agent.extra
        self._begun = Flag()
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []

    @property
    def questions(self) -> RunQuestions:
        """Made when there is one, or somebody asks."""
        if self._questions is None:
            self._questions = RunQuestions(self._session, self._updates, self, self._asked)
            self._open = self._questions.open
        return self._questions

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
            await self.begin()
            async with session.gateway.runs.watch(self.run.id) as watch:
                self._watch = watch
                self._begun.set()
                if watch.run.status is RunStatus.PENDING:
                    await self._at_head()
                await watch.follow(self._take)
                self.run = watch.run
            rest = self.encoder.finish(self.run)
            if not self._quiet:
                if (waiting := self.tell(rest)) is not None:
                    await waiting
                await self.close()
            await self._at_head()
            self.over()
        finally:
            if self._questions is not None:
                self._questions.leave()
            self._watch = None
            self._begun.set()
            self._wake()

    # --- in the words of the client's version ---------------------------------------------------------------------

    def _make_encoder(self) -> UpdateEncoder:
        return V1UpdateEncoder(self._agent, replay=not self._mine)

    async def begin(self) -> None:
        """The run is about to be told from its first event on: say what started it, unless the client knows."""
        if not (self._mine or self._quiet):
            blocks = await turns.said(self._session.gateway, self.run, self._agent)
            self._updates.say(*V1.user(blocks, turns.message_id(self.run.id)))

    def tell(self, updates: Sequence[bytes]) -> Awaitable[None] | None:
        """Say updates of the run. Returns what is to be awaited before the next, if there is anything."""
        if updates:
            self._updates.say(*updates)
        return None

    def state_of(self, event: e.Custom) -> list[bytes] | None:
        """Updates for an agent's word of the session's state that the encoder is not to see; None for all else."""
        return None

    def resumed(self, answer: Answer, *, open: bool) -> list[bytes]:
        """Updates for a question that has been answered. `open`: others are not."""
        return []

    def replied(self, interrupt: Interrupt, said: str | None, *, here: bool) -> list[bytes]:
        """Updates for an answer in words: what the person said, if anything. `here`: by a prompt of this client."""
        name = turns.answer_id(self.run.id, interrupt.id)
        return [] if here or said is None else V1.user([{"type": "text", "text": said}], name)

    def waits(self) -> None:
        """The client is being asked: say that the run waits for it."""

    def snapshot(self, *, asks: bool) -> None:
        """Everything that has happened by now was told; say how it stands. `asks`: questions are open."""

    async def close(self) -> None:
        """The run has ended, and was told."""

    def over(self) -> None:
        """Answer the prompt, or say how the run ended. Called last."""
        mine = self._session.turn
        if mine is not None and self._session.owns(self.run):
            mine.end(self._result(self._with_losses()))

    def _with_losses(self) -> Run:
        """The run with all losses: the last ones came too late to be counted in the record."""
        lossy, run = self.encoder.lossy, self.run
        return replace(run, losses={**self.encoder.losses, **run.losses}) if lossy else run

    def _result(self, run: Run) -> JsonObject | jsonrpc.RpcError:
        """How the prompt is answered at the run's end."""
        try:
            return turn.prompt_result(run, self.encoder.end, agent=self._agent, usage=self.encoder.usage)
        except jsonrpc.RpcError as error:
            return error

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
        head, self._head = self._head, None
        if head is not None:
            self.snapshot(asks=bool(self._open))
            await head()
            self._quiet = False

    def _take(self, batch: Batch) -> Awaitable[None] | None:
        if not _APART.isdisjoint(map(type, map(_event, batch.events))):
            return self._take_apart(batch)
        updates = self.encoder.feed(self._packed(batch.events), batch.snapshot)
        waiting = self._say(updates) if updates or self.encoder.lossy else None
        if waiting is None and self._head is None and not self._open and self._session.client.flowing:
            self._passed(batch)
            return None
        return self._finish(batch, waiting)

    async def _take_apart(self, batch: Batch) -> None:
        await self._finish(batch, self._say(await self._pieces(batch)))

    def _say(self, updates: Sequence[bytes]) -> Awaitable[None] | None:
        if self.encoder.lossy and self._session.owns(self.run):
            self._count()
        return None if self._quiet else self.tell(updates)

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
        if self._open:
            self.questions.ask()

    def _packed(self, events: Sequence[tuple[int, e.Event]]) -> Sequence[tuple[int, e.Event]]:
        """An agent of this protocol is told chunk by chunk as it spoke, unless this client lags."""
        return events if self._native and len(events) < LAGGING else coalesce(events)

    async def _pieces(self, batch: Batch) -> list[bytes]:
        """A batch cut where a question comes or goes, or the agent notifies: each has its place among the updates."""
        updates: list[bytes] = []
        piece: list[tuple[int, e.Event]] = []

        def flush(snapshot: Snapshot | None = None) -> None:
            updates.extend(self.encoder.feed(self._packed(piece), snapshot))
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
                    if (waiting := self.tell(updates)) is not None:
                        await waiting
                    updates.clear()
                    self._session.client.tell(event.data[NOTIFICATION], jsonrpc.raw(event.data["params"]))
            elif not isinstance(event, e.Custom):
                piece.append((number, event))
            elif self._is_told(event):
                if (said := self.state_of(event)) is None:
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
        kind = kind_of(event.data)
        return kind is not None and not (self._past and kind in STATES)

    def _count(self) -> None:
        """Have what could not be said counted, by the client that asked for it."""
        losses = self.encoder.losses
        for what, count in (losses - (self._counts or Counter())).items():
            self._session.gateway.runs.lost(self.run.id, what, count)
        self._counts = losses

    def _asked(self) -> None:
        self._updates.asked(self._session.turn if self._session.owns(self.run) else None)
