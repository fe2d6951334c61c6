"""An attempt: a run of the chosen agent, started once, found again after a restart, and followed to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec.structs import replace

from adapters.agent_context.codec import content
from adapters.agent_context.coordination.job import HOPS, TARGET, Attempt, Job
from adapters.agent_context.coordination.mirror import BEGUN, Mirror, since_begun
from adapters.agent_context.wire.constants import PROTOCOL
from gateway.contract import Batch, Gateway
from gateway.core import events as e
from gateway.core import projection
from gateway.core.errors import AgentFailed, Denied, InterlinguaError, NotFound, Unavailable
from gateway.core.types import Agent, Interrupt, Json, Outcome, Run, RunQuery, RunRequest

log = logging.getLogger(__name__)

MARK: Final = "interlingua/attempt"
"""Key of the metadata of an attempt's run: "<run of the task>/<number>"."""
TASK: Final = "task"
"""Key of its attributes: the task, as it was delegated. Not of its metadata: there it names the task's own run."""
ATTEMPT: Final = "attempt"
"""Key of them too: the attempt's number."""

AGAIN_SECONDS: Final = 0.05
ELSEWHERE_SECONDS: Final = 10.0
"""How long a run that was taken up after a restart may be on its way into this process."""
TRIES: Final = 3
"""How often a task's client is asked what only somebody else may answer, or not alone; then the attempt fails."""


class OverLimit(AgentFailed):
    """It took more tokens than the task allows."""


def request(job: Job, attempt: Attempt, given: Json) -> RunRequest:
    """What the agent is asked. `given`: its input."""
    task, whole = job.task, job.context.run.request
    marks = {key: value for key, value in whole.attributes.items() if key != TARGET}
    beside = {key: value for key, value in whole.metadata.items() if key != TASK}
    return RunRequest(
        agent=attempt.agent,
        input=given,
        protocol=PROTOCOL,
        metadata={**beside, MARK: job.mark(attempt)},
        principal=whole.principal,
        tools=whole.tools,
        traceparent=job.context.traceparent,
        creation=whole.creation if whole.protocol == PROTOCOL else {},
        attributes={
            **marks,
            TASK: task.model_dump(by_alias=True, exclude_unset=True),
            ATTEMPT: attempt.number,
            HOPS: job.hops + 1,
        },
    )


async def described(gateway: Gateway, name: str) -> Agent:
    """The agent, as far as it is known; one whose route has gone says messages."""
    try:
        return await gateway.agent(name, PROTOCOL)
    except NotFound:
        schema = projection.MESSAGE_OUTPUT_SCHEMA
        return Agent(name=name, input_schema=projection.MESSAGE_SCHEMA, output_schema=schema, text_output="/message")


async def start(gateway: Gateway, job: Job, attempt: Attempt) -> None:
    """Start the attempt's run; `attempt` must be among what is kept by now. Raises the errors of `Gateway.start`, and
    Invalid if the agent does not take the payload after all.

    A start that is under way goes through whatever happens here: a run whose task is cancelled meanwhile is cancelled.
    """
    agent = await gateway.agent(attempt.agent, PROTOCOL)
    begun = content.task_of(agent, job.task.payload, at="/task/payload")
    for what in begun.losses:
        job.context.lost(what)
    asked = request(job, attempt, begun.input)
    starting = asyncio.ensure_future(gateway.start(asked, files=begun.files, caller=job.context.caller))
    try:
        run = await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(lambda done: _unwanted(gateway, job, done))
        raise
    attempt.run = run.id
    await job.save()
    if job.context.cancelled:  # meanwhile, when there was nothing to cancel yet
        await cancel(gateway, run.id, job.context.run.cancel_reason or "")


def _unwanted(gateway: Gateway, job: Job, started: asyncio.Future[Run]) -> None:
    if started.cancelled() or started.exception() is not None:
        return
    if job.over or job.context.cancelled:  # else the gateway stops, and finds it again
        job.keep(asyncio.ensure_future(cancel(gateway, started.result().id, "its task is over")))


async def find(gateway: Gateway, job_id: str, attempt: Attempt) -> str | None:
    """The id of the attempt's run; None if it was never started."""
    if attempt.run is not None:
        return attempt.run
    metadata = {MARK: f"{job_id}/{attempt.number}"}
    found = await gateway.runs(RunQuery(agent=attempt.agent, protocol=PROTOCOL, metadata=metadata, limit=1))
    return found[0].id if found else None


async def stop(gateway: Gateway, job_id: str, attempt: Attempt, reason: str) -> None:
    """Cancel an attempt, if it was started."""
    run_id = await find(gateway, job_id, attempt)
    if run_id is not None:
        await cancel(gateway, run_id, reason)


async def cancel(gateway: Gateway, run_id: str, reason: str) -> None:
    """Cancel an attempt's run. Nothing is raised: it may have ended, or gone."""
    with contextlib.suppress(InterlinguaError):
        await here(lambda: gateway.cancel(run_id, reason=reason))


async def here(change: Callable[[], Coroutine[Any, Any, Run]]) -> Run:
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


class Following:
    """One attempt followed: `go` returns its run once it has ended."""

    def __init__(self, gateway: Gateway, job: Job, attempt: Attempt) -> None:
        self._gateway = gateway
        self._job = job
        self._attempt = attempt
        self._questions: dict[str, asyncio.Task[None]] = {}

    async def go(self) -> Run:
        """Pass on what the attempt says. Raises OverLimit (then it was cancelled), NotFound if it was deleted."""
        run_id = self._attempt.run
        assert run_id is not None
        mirror = await self._mirror(run_id)
        try:
            async with self._gateway.watch(run_id) as watch:
                while (batch := await watch.next()) is not None:
                    await mirror.feed(batch)
                    await self._job.context.drain()
                    self._take_questions(batch)
                    await self._within_limit(mirror, run_id)
                return watch.run
        finally:
            self._job.kept.input_tokens = mirror.used.input_tokens
            self._job.kept.output_tokens = mirror.used.output_tokens
            for question in self._questions.values():
                question.cancel()

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _mirror(self, run_id: str) -> Mirror:
        job, number = self._job, self._attempt.number
        kept = job.kept
        used = e.UsageReported(input_tokens=kept.input_tokens, output_tokens=kept.output_tokens)
        agent = await described(self._gateway, self._attempt.agent)
        mirror = Mirror(job.context, self._gateway, agent, number, used)
        own = since_begun(await self._gateway.events(job.id), number) if job.resumed else None
        if own is not None:
            mirror.resume(own, [event for _, event in await self._gateway.events(run_id)])
            return mirror
        if number > 1:
            mirror.begin()
        job.context.emit(e.Custom(name=BEGUN, data={"attempt": number, "agent": self._attempt.agent}))
        return mirror

    async def _within_limit(self, mirror: Mirror, run_id: str) -> None:
        limit, used = self._job.task.constraints.max_tokens, mirror.used.output_tokens
        if limit is None or used is None or used <= limit:
            return
        await cancel(self._gateway, run_id, "more tokens than the task allows")
        raise OverLimit(f"the task took {used} tokens, more than its limit of {limit}")

    def _take_questions(self, batch: Batch) -> None:
        for _, event in batch.events:
            if isinstance(event, e.Interrupted):
                question = event.interrupt
                self._questions[question.id] = asyncio.create_task(self._ask(question), name=f"question {question.id}")
            elif isinstance(event, e.Resumed) and (asked := self._questions.pop(event.interrupt, None)) is not None:
                self._job.keep(asyncio.ensure_future(self._answered_there(event, asked)))

    def _names(self, interrupt_id: str) -> list[str]:
        """What a question of the agent's is called when the task's client is asked it, again and again."""
        name = f"{self._attempt.number}:{interrupt_id}"
        return [name, *(f"{name}~{number}" for number in range(2, TRIES + 1))]

    async def _ask(self, question: Interrupt) -> None:
        """Put the agent's question to the task's client, and the answer to the agent.

        An answer that does not end it, since somebody else has to give it, is followed by the question anew.
        """
        assert self._attempt.run is not None
        why = ""
        for name in self._names(question.id):
            put = replace(question, id=name, message=f"{why}\n\n{question.message}".strip())
            why = await self._asked(question.id, put)
            if not why:
                return
        await cancel(self._gateway, self._attempt.run, why)

    async def _asked(self, question_id: str, put: Interrupt) -> str:
        """Ask once, and answer the agent. Why it still waits for an answer; "" if it does not."""
        context, run_id = self._job.context, self._attempt.run
        assert run_id is not None
        answer = await self._job.ask(put)
        if answer.outcome is Outcome.CANCELLED and context.cancelled:
            return ""  # the attempt is cancelled as well, and with it the question
        try:
            run = await here(lambda: self._gateway.answer(run_id, answer, question_id))
        except Denied as error:
            return str(error)
        except InterlinguaError as error:
            log.info("task %s: the answer to %s came too late: %s", self._job.id, question_id, error)
            return ""
        waits = any(each.id == question_id for each in run.interrupts)
        return "the answer counts, and others have to give theirs" if waits else ""

    async def _answered_there(self, event: e.Resumed, asked: asyncio.Task[None]) -> None:
        """The attempt's own question was answered: by us a moment ago, or by somebody else."""
        names = self._names(event.interrupt)
        ours = [each.id for each in self._job.context.run.interrupts if each.id in names]
        if not asked.done() and ours:
            with contextlib.suppress(InterlinguaError):
                await self._gateway.answer(self._job.id, event.answer, ours[0])
                return
        asked.cancel()
