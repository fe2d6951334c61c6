"""Recovers the runs that a dead gateway left: re-attached where possible, ended with a reason otherwise."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Sequence

from gateway.agents.entry import Entry
from gateway.config import Route
from gateway.contract import RunContext, TargetOptions
from gateway.core import events as e
from gateway.core.errors import NotFound
from gateway.core.types import Agent, Failure, Outcome, Run
from gateway.runs.live import LiveRun

log = logging.getLogger(__name__)

UNKNOWN = "the gateway stopped after sending the run and before learning its id at the agent: outcome unknown"


class Missing:
    """The target of a route that is no longer in the table."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def describe(self) -> Agent:
        """Raises NotFound."""
        raise NotFound(self._why)

    async def run(self, context: RunContext) -> None:
        """Raises NotFound."""
        raise NotFound(self._why)

    attach = cancel = run

    async def aclose(self) -> None:
        """Nothing to close."""


def entry_gone(run: Run, why: str) -> Entry:
    """A stand-in for the route of a run that is no longer in the table."""
    return Entry(Route(name=run.agent, target=TargetOptions(protocol="none")), Missing(why))


async def taken_up(live: LiveRun, log_so_far: Sequence[tuple[int, e.Event]]) -> None:
    """Bring a run in memory to where its log on disk ends. Its events go on above what was reserved before."""
    for _, event in log_so_far:
        live.log.opener.replay(event)
        live.log.output.apply(event)
        if isinstance(event, e.Resumed) and event.answer.outcome is not Outcome.CANCELLED:
            live.questions.given[event.interrupt] = event.answer
        elif isinstance(event, e.ArtifactAdded):
            live.artifacts.append(event.artifact)
    await live.log.reserve()
    log.info("run %s of %s: taken up again (%s)", live.run.id, live.agent.name, live.run.status)


def goes_on(live: LiveRun) -> Coroutine[None, None, None]:
    """Find a run again that had been started, or end it with a reason. Never sends it twice."""
    if not live.run.dispatched:
        return live.finish(e.RunCancelled(reason=live.run.cancel_reason)) if live.run.cancel_reason else live.drive()
    if live.run.upstream is None:
        return live.finish(e.RunFailed(failure=Failure(code="outcome_unknown", message=UNKNOWN)))
    if live.run.cancel_reason is not None:
        return _cancelled(live)
    return live.drive(attach=True)


async def _cancelled(live: LiveRun) -> None:
    """The cancel was stored; whether the agent heard of it is not known, so it is told again."""
    await live.call_cancel()
    await live.finish(e.RunCancelled(reason=live.run.cancel_reason or ""))
