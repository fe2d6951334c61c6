"""An attempt at a task: a run of the chosen agent, started once, followed to its end, also after a restart.

The task says what the attempt says: the text of the agent's output in one part, which begins anew with every attempt;
thoughts, files' descriptions, tool calls, plans, usage and artifacts one for one, under names of the attempt's own, so
that after a restart the count of them in the task's log tells where to go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from msgspec.structs import replace

from adapters.agent_context.codec import content
from adapters.agent_context.coordination.task_record import HOPS, NAMESPACE, TARGET, Attempt
from adapters.agent_context.wire import PROTOCOL
from adapters.agent_context.wire.messages import DelegatedTask
from gateway.contract import Batch, Gateway, RunContext
from gateway.core import delta as deltas
from gateway.core import events as e
from gateway.core import projection
from gateway.core.errors import AgentFailed, Conflict, Denied, InterlinguaError, NotFound, Unavailable
from gateway.core.output import Output
from gateway.core.types import Agent, Interrupt, Outcome, Role, Run, RunRequest
from gateway.mcp.runs.tools import text_in
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)

MARK: Final = "interlingua/attempt"
"""Key of the metadata of an attempt's run: "<run of the task>/<number>". Also the name of the `Custom` event that says
which agent has the task from here on: {"attempt", "agent"}."""
TASK: Final = "task"
"""Key of its attributes: the task, as it was delegated. Not of its metadata: there it names the task's own run."""
ATTEMPT: Final = "attempt"
"""Key of them too: the attempt's number."""
TEXT: Final = "text"
"""The task's part with the text of its output."""

AGAIN_SECONDS: Final = 0.05
ELSEWHERE_SECONDS: Final = 10.0
"""How long a run that was taken up after a restart may be on its way into this process."""
TRIES: Final = 3
"""How often a task's client is asked what only somebody else may answer, or not alone; then the attempt fails."""


class OverLimit(AgentFailed):
    """It took more tokens than the task allows, and is still at work."""


# --- its run ---------------------------------------------------------------------------------------------------------


def run_of(task_run: str, attempt: Attempt) -> str:
    """The id of an attempt's run, of which there is one, however often and wherever it is started."""
    return attempt.run or str(uuid.uuid5(NAMESPACE, f"{task_run}/{attempt.number}/{attempt.agent}"))


async def start(gateway: Gateway, context: RunContext, task: DelegatedTask, attempt: Attempt, hops: int) -> None:
    """Start the run of an attempt that has been written down, unless it was. Raises the other errors of
    `Gateway.runs.start`, and Invalid if the agent does not take the payload after all.
    """
    agent = await gateway.agents.get(attempt.agent, PROTOCOL)
    begun = content.task_of(agent, task.payload, at="/task/payload")
    for what in begun.losses:
        context.lost(what)
    whole = context.run.request
    request = RunRequest(
        agent=attempt.agent,
        input=begun.input,
        protocol=PROTOCOL,
        metadata={
            **{key: value for key, value in whole.metadata.items() if key != TASK},
            MARK: f"{context.run.id}/{attempt.number}",
        },
        principal=whole.principal,
        tools=whole.tools,
        traceparent=context.traceparent,
        creation=whole.creation if whole.protocol == PROTOCOL else {},
        attributes={
            **{key: value for key, value in whole.attributes.items() if key != TARGET},
            TASK: task.document,
            ATTEMPT: attempt.number,
            HOPS: hops,
        },
        id=run_of(context.run.id, attempt),
        part_of=context.run.id,
    )
    with contextlib.suppress(Conflict):  # it was started before, and its starter did not hear of it
        await gateway.runs.start(request, files=begun.files, caller=context.caller)


async def cancel(gateway: Gateway, run_id: str, reason: str) -> None:
    """Cancel an attempt's run. Nothing is raised: it may have ended, or gone, or not been started."""
    with contextlib.suppress(InterlinguaError):
        await _here(lambda: gateway.runs.cancel(run_id, reason=reason))


async def described(gateway: Gateway, name: str) -> Agent:
    """The agent, as far as it is known; one whose route has gone says messages."""
    try:
        return await gateway.agents.get(name, PROTOCOL)
    except NotFound:
        schema = projection.MESSAGE_OUTPUT_SCHEMA
        return Agent(name=name, input_schema=projection.MESSAGE_SCHEMA, output_schema=schema, text_output="/message")


async def _here(change: Callable[[], Coroutine[Any, Any, Run]]) -> Run:
    """Change a run that may still be on its way into this process, after a restart."""
    loop = asyncio.get_running_loop()
    until = loop.time() + ELSEWHERE_SECONDS
    while True:
        try:
            return await change()
        except Unavailable:
            if loop.time() > until:
                raise
        await asyncio.sleep(AGAIN_SECONDS)


# --- followed to its end ---------------------------------------------------------------------------------------------


class AttemptFollower:
    """Follows one attempt: `go` returns its run once it has ended. `limit` is the most output tokens."""

    def __init__(
        self,
        gateway: Gateway,
        context: RunContext,
        attempt: Attempt,
        speech: AttemptSpeech,
        limit: int | None,
    ) -> None:
        self._gateway = gateway
        self._context = context
        self._attempt = attempt
        self._run_id = run_of(context.run.id, attempt)
        self._speech = speech
        self._limit = limit
        self._questions: dict[str, asyncio.Task[None]] = {}
        self._answering = TaskSet()

    async def go(self, told: Sequence[e.Event] | None) -> Run:
        """Pass on what the attempt says. Raises OverLimit, NotFound if it was deleted.

        `told`: what the task has said of it before a restart, None if nothing.
        """
        after = await self._begin(told)
        try:
            async with self._gateway.runs.watch(self._run_id) as watch:

                async def take(batch: Batch) -> None:
                    await self._speech.feed([event for number, event in batch.events if number > after])
                    await self._context.drain()
                    self._take_questions(batch)
                    limit, used = self._limit, self._speech.used.output_tokens
                    if limit is not None and used is not None and used > limit:
                        raise OverLimit(f"the task took {used} tokens, more than its limit of {limit}")

                await watch.follow(take)
                return watch.run
        finally:
            for question in self._questions.values():
                question.cancel()

    async def _begin(self, told: Sequence[e.Event] | None) -> int:
        """Number of the last event of the attempt that needs not be passed on any more."""
        attempt = self._attempt
        if told is not None:
            theirs = await self._gateway.runs.events(self._run_id)
            await self._speech.resume(told, [event for _, event in theirs])
            return theirs[-1][0] if theirs else 0
        if attempt.number > 1:  # what an earlier one said is taken back
            self._context.emit(e.PartReplaced(part=TEXT, value=""))
        self._context.emit(e.Custom(name=MARK, data={"attempt": attempt.number, "agent": attempt.agent}))
        return 0

    def _take_questions(self, batch: Batch) -> None:
        for _, event in batch.events:
            if isinstance(event, e.Interrupted):
                question = event.interrupt
                self._questions[question.id] = asyncio.create_task(self._ask(question), name=f"question {question.id}")
            elif isinstance(event, e.Resumed) and (asked := self._questions.pop(event.interrupt, None)) is not None:
                self._answering.start(self._answered_there(event, asked))

    def _names(self, interrupt_id: str) -> list[str]:
        """The ids under which the task's client is asked a question of the agent's, again and again."""
        name = f"{self._attempt.number}:{interrupt_id}"
        return [name, *(f"{name}~{number}" for number in range(2, TRIES + 1))]

    async def _ask(self, question: Interrupt) -> None:
        """Put the agent's question to the task's client, and the answer to the agent.

        An answer that does not end it, since somebody else has to give it, is followed by the question anew.
        """
        why = ""
        for name in self._names(question.id):
            put = replace(question, id=name, message=f"{why}\n\n{question.message}".strip())
            why = await self._asked(question.id, put)
            if not why:
                return
        await cancel(self._gateway, self._run_id, why)

    async def _asked(self, question_id: str, put: Interrupt) -> str:
        """Ask once, and answer the agent. Why it still waits for an answer; "" if it does not."""
        try:
            answer = await self._context.ask(put)
            if answer.outcome is Outcome.CANCELLED and self._context.cancelled:
                return ""  # the attempt is cancelled as well, and with it the question
            run = await _here(lambda: self._gateway.runs.answer(self._run_id, answer, question_id))
        except (Denied, Unavailable) as error:
            return str(error)
        except InterlinguaError as error:
            log.info("task %s: the answer to %s came too late: %s", self._context.run.id, question_id, error)
            return ""
        waits = any(each.id == question_id for each in run.interrupts)
        return "the answer counts, and others have to give theirs" if waits else ""

    async def _answered_there(self, event: e.Resumed, asked: asyncio.Task[None]) -> None:
        """The attempt's own question was answered: by us a moment ago, or by somebody else."""
        names = self._names(event.interrupt)
        ours = [each.id for each in self._context.run.interrupts if each.id in names]
        if not asked.done() and ours:
            with contextlib.suppress(InterlinguaError):
                await self._gateway.runs.answer(self._context.run.id, event.answer, ours[0])
                return
        asked.cancel()


def begun_at(log: Sequence[e.Event], number: int) -> int | None:
    """Where in a task's log attempt `number` began; None if it did not."""
    for at in range(len(log) - 1, -1, -1):
        event = log[at]
        if isinstance(event, e.Custom) and event.name == MARK and (event.data or {}).get("attempt") == number:
            return at
    return None


def used_in(log: Sequence[e.Event]) -> e.UsageReported:
    """What a task's attempts have used, by its log."""
    return next((event for event in reversed(log) if isinstance(event, e.UsageReported)), e.UsageReported())


# --- what it says ----------------------------------------------------------------------------------------------------


class AttemptSpeech:
    """Says an attempt's events in its task. `feed` it all that the attempt's log has, in order.

    `used` is what earlier attempts used, then what all have used so far.
    """

    def __init__(self, context: RunContext, gateway: Gateway, agent: Agent, number: int, used: e.UsageReported) -> None:
        self.used = used
        self._context = context
        self._gateway = gateway
        self._prefix = f"{number}/"
        self._before = used
        self._output = Output(agent)
        self._pointer = agent.text_output
        self._steps = deltas.split(agent.text_output or "")
        self._messages: dict[str, Role] = {}
        self._beside: set[str] = set()  # parts that are passed on as they are
        self._told: list[str] = []
        self._stale = False

    async def resume(self, own: Sequence[e.Event], theirs: Sequence[e.Event]) -> None:
        """After a restart: `own` is the task's log since the attempt has begun, `theirs` the attempt's so far."""
        passed = 0
        for event in own:
            if isinstance(event, e.PartStarted | e.PartDelta | e.PartReplaced) and event.part == TEXT:
                before = "" if isinstance(event, e.PartReplaced) else "".join(self._told)
                text = event.delta if isinstance(event, e.PartDelta) else event.value
                self._told = [before, text or ""]
            else:
                passed += self._is_ours(event)
        mine = []
        for event in theirs:
            self._output.apply(event)
            if (said := self._passed_on(event, counted=True)) is not None:
                mine.append(said)
        for event in mine[passed:]:
            await self._pass(event)
        self._catch_up()

    async def feed(self, events: Sequence[e.Event]) -> None:
        """Say what has happened. Follow it with a `drain`."""
        said: list[str] = []
        for event in events:
            if self._output.apply(event) and not self._stale:
                piece = self._piece()
                self._stale = piece is None
                said += [piece] if piece else []
            passed = self._passed_on(event)
            if passed is not None:
                self._say(said)
                await self._pass(passed)
        self._say(said)

    def _piece(self) -> str | None:
        """The text that the document has grown by at its end; None where only a look at the whole can tell."""
        if self._pointer is None:
            return ""
        if self._output.delta is deltas.ABSENT or projection.LAST in self._steps:
            return None
        return text_in(self._output.delta, self._steps)

    def _say(self, said: list[str]) -> None:
        if said:
            text = "".join(said)
            said.clear()
            self._told.append(text)
            self._context.emit(e.PartDelta(part=TEXT, delta=text))
        if self._stale:
            self._catch_up()

    def _catch_up(self) -> None:
        """Say the whole text, or what it has become longer by."""
        self._stale = False
        text, told = self._text(), "".join(self._told)
        self._told = [text]
        if text.startswith(told):
            if len(text) > len(told):
                self._context.emit(e.PartDelta(part=TEXT, delta=text[len(told) :]))
        else:
            self._context.emit(e.PartReplaced(part=TEXT, value=text))

    def _text(self) -> str:
        if self._pointer is None or self._output.empty:
            return ""
        text = projection.unwrap(self._output.document, self._pointer)
        return deltas.sound(text) if text else ""

    def _is_ours(self, event: e.Event) -> bool:
        if isinstance(event, e.PartStarted | e.PartDelta | e.PartReplaced):
            return event.part.startswith(self._prefix)
        return isinstance(event, e.DONE_BESIDE)

    def _passed_on(self, event: e.Event, *, counted: bool = False) -> e.Event | None:
        """The event as the task says it; None for what is said as text, or not at all. `counted`: the loss was."""
        if isinstance(event, e.MessageStarted):
            self._messages[event.message] = event.role
        elif isinstance(event, e.PartStarted):
            role = self._messages.get(event.message, Role.ASSISTANT)
            if event.kind in ("thought", "file") and role is Role.ASSISTANT:
                self._beside.add(event.part)
                part = f"{self._prefix}{event.part}"
                return e.PartStarted(part=part, message="message", kind=event.kind, value=event.value)
            if role is not Role.USER and not self._output.holds(event.part) and not counted:
                self._context.lost("task_part")
        elif isinstance(event, e.PartDelta | e.PartReplaced):
            if event.part in self._beside:
                return replace(event, part=f"{self._prefix}{event.part}", origin=None)
        elif isinstance(event, e.TOOL_CALL):
            return replace(event, call=f"{self._prefix}{event.call}", origin=None)
        elif isinstance(event, e.UsageReported):
            self.used = _added(self._before, event)
            return self.used
        return event if isinstance(event, e.DONE_BESIDE) else None

    async def _pass(self, event: e.Event) -> None:
        if not isinstance(event, e.ArtifactAdded):
            self._context.emit(event)
            return
        file = event.artifact
        try:
            await self._context.add_artifact(
                file.name,
                self._gateway.files.open(file.id),
                media_type=file.media_type,
                relative_path=file.relative_path,
                metadata=file.metadata,
            )
        except InterlinguaError:
            self._context.lost("task_artifact")


def _added(before: e.UsageReported, now: e.UsageReported) -> e.UsageReported:
    def both(a: int | None, b: int | None) -> int | None:
        return b if a is None else a if b is None else a + b

    return replace(
        now,
        input_tokens=both(before.input_tokens, now.input_tokens),
        output_tokens=both(before.output_tokens, now.output_tokens),
        origin=None,
    )
