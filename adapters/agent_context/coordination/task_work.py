"""The work on one task, which is a retry policy over attempts.

An agent is chosen, a person approves it where that is wanted, the agent tries, and the next does when it fails. What is
kept of the task (task_record.py) is written down before anything that may not be done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_context.codec import content
from adapters.agent_context.codec.errors import Expired, NoMatch
from adapters.agent_context.codec.ranking import Needs, Ranking
from adapters.agent_context.coordination import attempt_run
from adapters.agent_context.coordination import task_record as record
from adapters.agent_context.coordination.attempt_run import AttemptFollower, AttemptSpeech, OverLimit
from adapters.agent_context.coordination.choosing import AgentChooser, TakesPayload
from adapters.agent_context.coordination.task_record import Attempt, KeptTask
from adapters.agent_context.options import AgentContextServe
from adapters.agent_context.wire.messages import DelegatedTask
from gateway.access.patterns import fits
from gateway.contract import Gateway, RunContext
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import AgentFailed, AgentGone, Denied, InterlinguaError, NotFound, Unavailable
from gateway.core.types import Agent, Failure, Interrupt, Run, RunStatus
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)

MAX_HOPS: Final = 8
"""How often work may be delegated because of other work."""
PERMANENT: Final = frozenset(("invalid", "denied", "too_large"))
"""Failures of the task itself: another agent would say the same."""
AWAY: Final = frozenset((AgentGone.code, Unavailable.code))
PASSED: Final = "the deadline has passed"
SPENT: Final = "more tokens than the task allows"
PAUSE_SECONDS: Final = 0.25
"""Before the gateway is asked again for a run that it could not start."""
STOP_SECONDS: Final = 6.0
"""How long a task that is stopped waits for its attempt's end. The gateway ends a run 5 s after it was cancelled."""

Failed = Callable[[str, str], None]


class TaskWork:
    """The work on one task. `go` returns the task's last event, or raises what the task fails with.

    `failed` is told each agent that failed it, and the code of its failure.
    """

    def __init__(
        self,
        gateway: Gateway,
        chooser: AgentChooser,
        options: AgentContextServe,
        context: RunContext,
        *,
        task: DelegatedTask,
        kept: KeptTask,
        failed: Failed,
    ) -> None:
        self._gateway = gateway
        self._chooser = chooser
        self._options = options
        self._context = context
        self._task = task
        self._told_failed = failed
        self._record = kept
        self._takes = TakesPayload(task.payload)
        self._agent: str | None = None  # which has it, as far as the queue is told
        self._unfit: dict[str, str] = {}  # agents that do not take it, and why
        self._approved: list[str] = []  # agents that a person has approved
        self._used = e.UsageReported()  # what the attempts that have ended used
        self._told: Sequence[e.Event] | None = None  # what was said before a restart of the attempt under way
        self._starting: asyncio.Future[None] | None = None  # the run of the attempt under way
        self._over = False
        self._refused_since: float | None = None  # loop time at which the gateway first would not start a run
        self._background = TaskSet()

    @property
    def _id(self) -> str:
        return self._context.run.id

    async def go(self, *, again: bool) -> e.Event:
        """See to the task, until its deadline. `again`: after a restart."""
        deadline = self._task.needs.deadline_at
        left = None if deadline is None else deadline - time.time()
        try:
            async with asyncio.timeout(left) as limit:
                return await self._done_or_failed(again=again)
        except TimeoutError:
            if not limit.expired():
                raise
            return await self._expired()
        finally:
            self._over = self._over or self._context.cancelled
            self._leave()

    async def _done_or_failed(self, *, again: bool) -> e.Event:
        if self._record.failure is not None:
            return e.RunFailed(failure=self._record.failure)
        if (hops := self._hops()) >= MAX_HOPS:
            raise Denied(f"the work was delegated {hops} times already, each time because of the other")
        if again:
            await self._take_up()
        while not self._context.cancelled:
            if self._record.attempt is None and not await self._begin():
                continue
            end = await self._follow()
            self._leave()
            if end is not None:
                return end
        return e.RunCancelled(reason=self._context.run.cancel_reason or "")

    async def _expired(self) -> e.Event:
        if (settled := self._record.failure) is not None:  # it was just being written down
            return e.RunFailed(failure=settled)
        done = "before it was done" if self._record.attempts else "before an agent had it"
        message = f"the deadline {self._task.needs.deadline} has passed {done}"
        failure = Failure(code=Expired.code, message=message)
        await self._stop(failure, PASSED, PASSED)
        return e.RunFailed(failure=failure, timeout=True)

    async def _stop(self, failure: Failure, reason: str, error: str) -> None:
        """The task fails: the attempt under way is cancelled for a reason, ends with the error, and is waited for."""
        attempt = self._record.attempt
        if attempt is not None:
            if self._starting is not None:
                await asyncio.wait((self._starting,), timeout=STOP_SECONDS)
            self._over = True
            await attempt_run.cancel(self._gateway, attempt_run.run_of(self._id, attempt), reason)
            self._record = self._record.end(RunStatus.CANCELLED, error)
        await self._keep(replace(self._record, failure=failure))
        if attempt is not None:
            with contextlib.suppress(InterlinguaError):  # it is not there, or the gateway stops
                await self._gateway.runs.wait(attempt_run.run_of(self._id, attempt), STOP_SECONDS)

    async def _keep(self, record: KeptTask) -> None:
        self._record = record
        await self._context.set_upstream(record.told())

    # --- attempts ----------------------------------------------------------------------------------------------------

    async def _take_up(self) -> None:
        """The attempt that was under way, if it was started; as if there were none, if it was not. Raises Denied for an
        agent that was not approved.
        """
        attempt = self._record.attempt
        if attempt is not None:  # at once: tasks that wait for its agent are taken up at the same time
            self._agent = attempt.agent
            self._chooser.queue.take(self._agent)
        said = [event for _, event in await self._gateway.runs.events(self._id)]
        self._approved = record.approved_in(said)
        begun = None if attempt is None else attempt_run.begun_at(said, attempt.number)
        self._used = attempt_run.used_in(said[:begun])
        if begun is not None:
            self._told = said[begun + 1 :]
        elif attempt is not None:
            try:
                await self._gateway.runs.get(attempt_run.run_of(self._id, attempt))
            except NotFound:
                self._record = self._record.withdraw()
                self._leave()

    async def _begin(self) -> bool:
        """Choose an agent and have it begin. False if that is to be done again, or the task was cancelled.

        Raises what the task fails with where nobody is left.
        """
        if (asked := record.open_approval(self._context.run)) is not None:  # since before a restart
            await self._ask_approval(asked)
            return False
        ranking = await self._place()
        agent = self._agent
        if ranking is None or agent is None:
            return False
        unfit = await self._chooser.why_not(agent, self._takes)
        if unfit is not None:
            self._leave()
            self._unfit[agent] = unfit
            return False
        standing = next(one.candidate.standing for one in ranking.ranked if one.candidate.id == agent)
        wanted, why = standing.approve or fits(agent, self._options.approve), ranking.explanation(agent)
        if wanted and agent not in self._approved:
            self._leave()  # a person may take days
            await self._keep(replace(self._record, assignment=why))
            number = len(self._record.attempts) + 1
            await self._ask_approval(record.approval_question(self._task, number, agent, why))
            return False
        self._told = None
        await self._keep(self._record.choose(agent, why))
        return await self._start(self._record.attempts[-1])

    async def _start(self, attempt: Attempt) -> bool:
        """Whether the attempt has begun. It begins whatever happens here: a run whose task is cancelled meanwhile is
        cancelled.
        """
        if self._context.cancelled:  # while it was written down
            self._record = self._record.withdraw()
            self._leave()
            return False
        start = attempt_run.start(self._gateway, self._context, self._task, attempt, self._hops() + 1)
        self._starting = asyncio.ensure_future(start)
        try:
            await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            self._starting.add_done_callback(partial(self._unwanted, attempt))
            raise
        except Unavailable as error:  # the gateway's own trouble, not the agent's: it stops, say
            log.info("task %s: no run of %s can be started: %s", self._id, attempt.agent, error)
            self._record = self._record.withdraw()
            self._leave()
            now = asyncio.get_running_loop().time()
            self._refused_since = now if self._refused_since is None else self._refused_since
            if now - self._refused_since > self._options.patience:
                raise
            await asyncio.sleep(PAUSE_SECONDS)
            return False
        except InterlinguaError as error:
            self._leave()
            await self._failed(Failure.of(error))
            return False
        if self._context.cancelled:  # meanwhile, when there was nothing to cancel yet
            reason = self._context.run.cancel_reason or ""
            await attempt_run.cancel(self._gateway, attempt_run.run_of(self._id, attempt), reason)
        return True

    def _unwanted(self, attempt: Attempt, started: asyncio.Future[None]) -> None:
        if started.cancelled() or started.exception() is not None:
            return
        if self._over or self._context.cancelled:  # else the gateway stops, and finds it again
            run_id = attempt_run.run_of(self._id, attempt)
            self._background.start(attempt_run.cancel(self._gateway, run_id, "its task is over"))

    async def _follow(self) -> e.Event | None:
        """The task's end, or None if another agent is to try."""
        attempt = self._record.attempt
        assert attempt is not None
        agent = await attempt_run.described(self._gateway, attempt.agent)
        try:
            run = await self._followed(attempt, agent)
        except OverLimit as error:
            failure = Failure(code=error.code, message=str(error))
            await self._stop(failure, SPENT, str(error))
            return e.RunFailed(failure=failure)
        except NotFound:
            await self._failed(Failure(code=AgentFailed.code, message="its run was deleted"))
            return None
        if run.status is RunStatus.SUCCESS:
            end = e.RunFinished(output=Raw(delta.encode(content.payload_of(agent, run.output))))
            return end if run.stop_reason is None else replace(end, stop_reason=run.stop_reason)
        if self._context.cancelled:
            return None
        failure = run.failure or Failure(code=AgentFailed.code, message="it failed")
        if run.status is RunStatus.CANCELLED:
            why = f"its run was cancelled: {run.cancel_reason or 'no reason'}"
            failure = Failure(code=AgentFailed.code, message=why)
        await self._failed(failure, run.status)
        if failure.code not in PERMANENT:
            return None
        await self._keep(replace(self._record, failure=failure))
        return e.RunFailed(failure=failure)

    async def _followed(self, attempt: Attempt, agent: Agent) -> Run:
        speech = AttemptSpeech(self._context, self._gateway, agent, attempt.number, self._used)
        limit = self._task.needs.max_tokens
        try:
            return await AttemptFollower(self._gateway, self._context, attempt, speech, limit).go(self._told)
        finally:
            self._used = speech.used

    async def _failed(self, failure: Failure, status: RunStatus = RunStatus.ERROR) -> None:
        agent = self._record.attempts[-1].agent
        if status is not RunStatus.CANCELLED:  # what somebody else has cancelled is no fault of the agent's
            self._told_failed(agent, failure.code)
        log.info("task %s: agent %s failed: %s", self._id, agent, failure.message)
        await self._keep(self._record.end(status, failure.message, failure.code))

    def _leave(self) -> None:
        agent, self._agent = self._agent, None
        if agent is not None:
            self._chooser.queue.release(agent)

    # --- choosing ----------------------------------------------------------------------------------------------------

    async def _place(self) -> Ranking | None:
        """Wait for an agent that has room: the task has it then. None where the task was cancelled.

        Raises NoMatch where nobody can have it, what the last agent failed with where nobody else can, Unavailable
        where all who can are away or busy for longer than a task without a deadline waits.
        """
        if len(self._record.attempts) >= self._options.attempts:
            raise self._given_up()
        loop = asyncio.get_running_loop()
        patience = self._options.patience
        until = None if self._task.needs.deadline is not None else loop.time() + patience
        priority = self._task.needs.priority
        with self._chooser.queue.enter(priority, self._context.run.created_at, self._id) as place:
            while True:
                ranking = await self._rank()
                failed = self._failures()
                if not ranking.ranked and (failed or not ranking.away):
                    await self._keep(replace(self._record, assignment=ranking.explanation()))
                    raise self._given_up() if failed else NoMatch(ranking.why_nobody())
                place.want([one.candidate for one in ranking.ranked])
                told = await place.news(None if until is None else until - loop.time())
                if self._context.cancelled:
                    return None
                if (agent := place.taken()) is not None:
                    self._agent = agent
                    return ranking
                if not told:
                    raise Unavailable(f"no agent that can do it was free within {patience:g} s")

    async def _rank(self) -> Ranking:
        """Rank the agents that may have the task; an approved one that is there comes before all others."""
        failed = self._failures()
        for agent in reversed(self._approved):
            if agent not in failed:
                ranking = await self._chooser.rank(self._needs(only=agent), self._takes)
                if ranking.ranked:
                    return ranking
        return await self._chooser.rank(self._needs(), self._takes)

    def _needs(self, only: str | None = None) -> Needs:
        """The task's requirements. `only`: this agent and no other."""
        request = self._context.run.request
        excluded = {request.agent: "is the coordinator itself", **self._unfit}
        excluded |= {agent: f"has failed already: {why}" for agent, why in self._failures().items()}
        source, target = request.attributes.get(record.SOURCE), request.attributes.get(record.TARGET)
        if isinstance(source, str):
            excluded[source] = "delegates the task itself"
        allowed = request.attributes.get(record.ALLOWED)
        return Needs(
            capabilities=self._task.needs.capabilities,
            min_score=self._task.needs.min_score,
            max_cost=self._task.needs.max_cost,
            only=only or (target if isinstance(target, str) else None),
            excluded=excluded,
            allowed=allowed if isinstance(allowed, list) else ("*",),
        )

    def _failures(self) -> dict[str, str]:
        return {one.agent: one.error or "failed" for one in self._record.attempts if one.status is not None}

    def _hops(self) -> int:
        hops = self._context.run.request.attributes.get(record.HOPS)
        return hops if isinstance(hops, int) else 0

    def _given_up(self) -> InterlinguaError:
        """The error of a task that agents have failed, with no other left to try."""
        tried, last = len(self._record.attempts), self._record.attempts[-1]
        why = last.error or "the agent failed"
        told = f"agent {last.agent} failed: {why}"
        if tried > 1:
            told = f"{tried} agents failed; the last, {last.agent}: {why}"
        return AgentGone(told) if last.code in AWAY else AgentFailed(told)

    async def _ask_approval(self, asked: Interrupt) -> None:
        """Raises Denied unless the agent is approved."""
        answer = await self._context.ask(asked)
        if not self._context.cancelled:
            self._approved.append(record.approved(asked, answer))
