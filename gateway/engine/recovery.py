"""What becomes of the runs that a dead gateway left: re-attached where possible, ended with a reason otherwise."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gateway.adapter import RunContext, TargetOptions
from gateway.config import Route
from gateway.core import events as e
from gateway.core.errors import NotFound
from gateway.core.types import Agent, Failure, Outcome
from gateway.engine.directory import Entry
from gateway.store import Recovered

if TYPE_CHECKING:
    from gateway.engine.engine import Engine
    from gateway.engine.live import LiveRun

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


async def recover(engine: Engine, found: Recovered) -> None:
    """Take one run up again. Its events go on above what was reserved, so no number is ever used twice."""
    run = found.run
    try:
        entry = engine.entry(run.agent, run.request.protocol, run.request.metadata)
    except NotFound as error:
        route = Route(name=run.agent, target=TargetOptions(protocol="none"))
        entry = Entry(route, Missing(str(error)))
    agent = await entry.describe()
    thread = await engine.store.thread(run.thread) if run.thread is not None else None
    live = engine.live_run(run, agent, entry, thread, reserved=found.reserved, last=found.reserved)
    for _, event in await engine.events(run.id):
        live.opener.replay(event)
        live.log.output.apply(event)
        if isinstance(event, e.Resumed) and event.answer.outcome is Outcome.ANSWERED:
            live.answered[event.interrupt] = event.answer
        elif isinstance(event, e.ArtifactAdded):
            live.artifacts.append(event.artifact)
    await live.log.reserve()
    engine.live[run.id] = live
    entry.users += 1
    log.info("run %s of %s: taken up again (%s)", run.id, agent.name, run.status)
    if not run.dispatched:
        work = engine.wait_and_drive(live, turn=False)
    elif run.upstream is None:
        failure = Failure(code="outcome_unknown", message=UNKNOWN)
        work = live.finish(e.RunFailed(failure=failure))
    elif run.cancel_reason is not None:
        work = _cancelled(live)
    else:
        work = live.drive(attach=True)
    live.task = asyncio.create_task(work, name=f"run {run.id}")


async def _cancelled(live: LiveRun) -> None:
    """The cancel was stored; whether the agent heard of it is not known, so it is told again."""
    await live.call_cancel()
    await live.finish(e.RunCancelled(reason=live.run.cancel_reason or ""))
