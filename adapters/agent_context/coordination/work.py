"""A task from its beginning, or from a restart, to its end: choose, ask a person if need be, have an agent try it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from msgspec import Raw

from adapters.agent_context.codec import content
from adapters.agent_context.codec.errors import Expired, NoMatch
from adapters.agent_context.codec.ranking import Ranking
from adapters.agent_context.coordination import attempts, consent
from adapters.agent_context.coordination.attempts import Following, OverLimit
from adapters.agent_context.coordination.choosing import Chooser
from adapters.agent_context.coordination.job import RUNNING, WAITING, Asking, Attempt, Job
from adapters.agent_context.options import AgentContextServe
from gateway.access.patterns import fits
from gateway.contract import Gateway
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import AgentFailed, AgentGone, Denied, InterlinguaError, NotFound, Unavailable
from gateway.core.types import Failure, Run, RunStatus

log = logging.getLogger(__name__)

MAX_HOPS: Final = 8
"""How often work may be delegated because of other work."""
PERMANENT: Final = frozenset(("invalid", "denied", "too_large"))
"""Failures of the task itself: another agent would say the same."""
AWAY: Final = frozenset((AgentGone.code, Unavailable.code))
PASSED: Final = "the deadline has passed"
PAUSE_SECONDS: Final = 0.25
"""Before the gateway is asked again for a run that it could not start."""


Failed = Callable[[str, str], None]


class Work:
    """On one task. `go` returns its last event, or raises what it fails with."""

    def __init__(
        self, gateway: Gateway, chooser: Chooser, options: AgentContextServe, job: Job, failed: Failed
    ) -> None:
        self._gateway = gateway
        self._chooser = chooser
        self._options = options
        self._job = job
        self._told_failed = failed
        self._refused_since: float | None = None  # loop time at which the gateway first would not start a run

    async def go(self, *, again: bool) -> e.Event:
        """See to the task. `again`: after a restart."""
        job = self._job
        if job.kept.failure is not None:
            return e.RunFailed(failure=job.kept.failure)
        if job.hops >= MAX_HOPS:
            raise Denied(f"the work was delegated {job.hops} times already, each time because of the other")
        if again:
            await self._take_up()
        while not job.context.cancelled:
            if job.attempt is None and not await self._begin():
                continue
            end = await self._follow()
            if end is not None:
                return end
        return e.RunCancelled(reason=job.context.run.cancel_reason or "")

    async def expired(self) -> e.Event:
        """The deadline has passed: what is under way is stopped."""
        job, attempt = self._job, self._job.attempt
        job.over = True
        done = "before it was done" if job.kept.attempts else "before an agent had it"
        failure = Failure(code=Expired.code, message=f"the deadline {job.task.constraints.deadline} has passed {done}")
        job.kept.failure = failure
        if attempt is not None:
            attempt.status, attempt.error = RunStatus.CANCELLED.value, PASSED
            job.keep(asyncio.ensure_future(attempts.stop(self._gateway, job.id, attempt, PASSED)))
        await job.save()
        return e.RunFailed(failure=failure, timeout=True)

    # --- attempts ----------------------------------------------------------------------------------------------------

    async def _take_up(self) -> None:
        """The attempt that was under way, if it was started; as if there were none, if it was not."""
        job = self._job
        log_so_far = await self._gateway.events(job.id)
        job.given = {event.interrupt: event.answer for _, event in log_so_far if isinstance(event, e.Resumed)}
        attempt = job.attempt
        if attempt is None:
            return
        known, attempt.run = attempt.run, await attempts.find(self._gateway, job.id, attempt)
        if attempt.run is None:
            job.kept.attempts.remove(attempt)
            return
        if attempt.run != known:
            await job.save()
        job.resumed = True
        job.slot = self._chooser.queue.take(attempt.agent)

    async def _begin(self) -> bool:
        """Choose an agent and have it begin. False if that is to be done again, or the task was cancelled.

        Raises what the task fails with where nobody is left.
        """
        job = self._job
        if job.kept.asking is not None:  # since before a restart: it is the same question still
            await self._ask(job.kept.asking)
            return False
        ranking = await self._place()
        if ranking is None or job.slot is None:
            return False
        agent, number = job.slot.agent, len(job.kept.attempts) + 1
        unfit = await self._chooser.why_not(agent, job.takes)
        if unfit is not None:
            self._leave()
            job.unfit[agent] = unfit
            return False
        if self._to_approve(agent, ranking):
            self._leave()  # a person may take days
            await self._ask(Asking(number=number, agent=agent, why=ranking.explanation(agent)))
            return False
        attempt = Attempt(number=number, agent=agent)
        job.kept.attempts.append(attempt)
        job.kept.assignment = ranking.explanation(agent)
        job.kept.state = RUNNING
        job.resumed = False
        await job.save()  # before it is started: whoever finds this looks for the run
        try:
            await attempts.start(self._gateway, job, attempt)
        except Unavailable as error:  # the gateway's own trouble, not the agent's: it stops, say
            log.info("task %s: no run of %s can be started: %s", job.id, agent, error)
            job.kept.attempts.remove(attempt)
            self._leave()
            now = asyncio.get_running_loop().time()
            self._refused_since = now if self._refused_since is None else self._refused_since
            if now - self._refused_since > self._options.patience:
                raise
            await asyncio.sleep(PAUSE_SECONDS)
            return False
        except InterlinguaError as error:
            self._leave()
            await self._failed(Failure(code=error.code, message=str(error), retryable=error.retryable))
            return False
        return True

    async def _follow(self) -> e.Event | None:
        """The task's end, or None if another agent is to try."""
        job, attempt = self._job, self._job.attempt
        assert attempt is not None
        try:
            run = await Following(self._gateway, job, attempt).go()
        except OverLimit as error:
            attempt.status, attempt.error = RunStatus.CANCELLED.value, str(error)
            return await self._settled(Failure(code=error.code, message=str(error)))
        except NotFound:
            await self._failed(Failure(code=AgentFailed.code, message="its run was deleted"))
            return None
        finally:
            self._leave()
        if run.status is RunStatus.SUCCESS:
            return await self._done(attempt, run)
        if job.context.cancelled:
            return None
        failure = run.failure or Failure(code=AgentFailed.code, message="it failed")
        if run.status is RunStatus.CANCELLED:
            failure = Failure(
                code=AgentFailed.code, message=f"its run was cancelled: {run.cancel_reason or 'no reason'}"
            )
        await self._failed(failure, run.status)
        return await self._settled(failure) if failure.code in PERMANENT else None

    async def _done(self, attempt: Attempt, run: Run) -> e.Event:
        agent = await attempts.described(self._gateway, attempt.agent)
        payload = content.payload_of(agent, bytes(run.output))
        end = e.RunFinished(output=Raw(delta.encode(payload)))
        return e.RunFinished(output=end.output, stop_reason=run.stop_reason) if run.stop_reason is not None else end

    async def _failed(self, failure: Failure, status: RunStatus = RunStatus.ERROR) -> None:
        """The attempt under way has failed."""
        job, attempt = self._job, self._job.attempt
        assert attempt is not None
        self._told_failed(attempt.agent, failure.code)
        log.info("task %s: agent %s failed: %s", job.id, attempt.agent, failure.message)
        attempt.status, attempt.code, attempt.error = status.value, failure.code, failure.message
        job.failed[attempt.agent] = failure.message
        job.last = failure
        await job.save()

    async def _settled(self, failure: Failure) -> e.Event:
        self._job.kept.failure = failure
        await self._job.save()
        return e.RunFailed(failure=failure)

    def _leave(self) -> None:
        slot, self._job.slot = self._job.slot, None
        if slot is not None:
            slot.release()

    # --- choosing ----------------------------------------------------------------------------------------------------

    async def _place(self) -> Ranking | None:
        """Wait for an agent that has room: the job has its slot then. None where the task was cancelled.

        Raises NoMatch where nobody can have it, what the last agent failed with where nobody else can, Unavailable
        where all who can are away or busy for longer than a task without a deadline waits.
        """
        job = self._job
        if len(job.kept.attempts) >= self._options.attempts:
            raise self._given_up()
        if job.kept.state != WAITING:
            job.kept.state = WAITING
            await job.save()
        loop = asyncio.get_running_loop()
        patience = self._options.patience
        until = None if job.left is not None else loop.time() + patience
        with self._chooser.queue.enter(job.priority, job.context.run.created_at, job.id) as place:
            while True:
                ranking = await self._rank()
                if not ranking.ranked and (job.failed or not ranking.away):
                    job.kept.assignment = ranking.explanation()
                    await job.save()
                    raise self._given_up() if job.failed else NoMatch(ranking.why_nobody())
                place.want([one.candidate for one in ranking.ranked])
                told = await place.news(None if until is None else until - loop.time())
                if job.context.cancelled:
                    return None
                if place.slot is not None:
                    job.slot, place.slot = place.slot, None
                    return ranking
                if not told:
                    raise Unavailable(f"no agent that can do it was free within {patience:g} s")

    async def _rank(self) -> Ranking:
        """Who may have the task; an agent that was approved for it before all others, as long as it is there."""
        job = self._job
        for agent in reversed(job.kept.approved):
            if agent not in job.failed:
                ranking = await self._chooser.rank(job.needs(only=agent), job.takes)
                if ranking.ranked:
                    return ranking
        return await self._chooser.rank(job.needs(), job.takes)

    def _given_up(self) -> InterlinguaError:
        """What a task fails with when agents have failed it and no other is left."""
        job, tried = self._job, len(self._job.kept.attempts)
        last = job.last or Failure(code=AgentFailed.code, message="it failed")
        agent = job.kept.attempts[-1].agent
        told = f"agent {agent} failed: {last.message}"
        if tried > 1:
            told = f"{tried} agents failed; the last, {agent}: {last.message}"
        return AgentGone(told) if last.code in AWAY else AgentFailed(told)

    # --- consent -----------------------------------------------------------------------------------------------------

    def _to_approve(self, agent: str, ranking: Ranking) -> bool:
        if agent in self._job.kept.approved:
            return False
        standing = next(one.candidate.standing for one in ranking.ranked if one.candidate.id == agent)
        return standing.approve or fits(agent, self._options.approve)

    async def _ask(self, asking: Asking) -> None:
        """Raises Denied unless it is approved."""
        job = self._job
        job.kept.asking, job.kept.assignment = asking, asking.why
        await job.save()
        answer = await job.ask(consent.question(job, asking.agent, asking.number, asking.why))
        if job.context.cancelled:
            return
        if not consent.approved(answer):
            raise Denied(f"the task was not approved for agent {asking.agent}")
        job.kept.asking = None
        job.kept.approved.append(asking.agent)
        await job.save()
