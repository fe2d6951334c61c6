"""Runs that another gateway process drives: started there, and what is done to them, by asking it.

Whoever drives a run may die or stop at any time, and another takes the run over. What was not delivered by then goes to
that one. What was delivered and not answered may have been done, so that only a cancel, which can be done twice, is
sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.contract import Caller
from gateway.core.errors import NotFound, Unavailable
from gateway.core.files import Attachment
from gateway.core.types import Answer, Run, RunRequest
from gateway.runs.bells import FollowedRuns
from gateway.runs.callers import LentCaller, Lobby
from gateway.runs.post import ANSWER_SECONDS, PostOffice, Unanswered
from gateway.store import Store, Undelivered
from gateway.transport.tasks import TaskSet

TAKEN_OVER_SECONDS: Final = 20.0
"""How long a dead process's runs may wait for another: longer than its lease."""
REMEMBERED: Final = 1000
"""Runs that were started elsewhere of which it is known where."""
MOMENT: Final = 0.1
"""Between two looks at who drives a run."""


class StartRun(msgspec.Struct, frozen=True):
    """Start a run of an agent that is connected to the asked process. Answered with the run."""

    run: str
    """The id that it gets."""
    request: RunRequest
    files: tuple[Attachment, ...] = ()
    caller: LentCaller | None = None


class AnswerRun(msgspec.Struct, frozen=True):
    """Answer an open question of a run. Answered with the run."""

    run: str
    answer: Answer
    interrupt: str | None = None


class CancelRun(msgspec.Struct, frozen=True):
    """Cancel a run; with `wait`, wait until it has ended. Answered with the run."""

    run: str
    reason: str
    wait: bool = False


class LoseOfRun(msgspec.Struct, frozen=True):
    """Count something of a run in progress that its client cannot be told."""

    run: str
    what: str
    count: int = 1


def not_here(run_id: str) -> Undelivered:
    """The refusal of a process that is asked for a run which it does not drive, or not for much longer."""
    return Undelivered(f"run {run_id} is between two gateway processes; try again")


class RunsElsewhere:
    """Asks whoever drives a run. One per engine."""

    def __init__(
        self,
        store: Store,
        post: PostOffice,
        followed: FollowedRuns,
        lobby: Lobby,
        adopt: Callable[[], Awaitable[None]],
    ) -> None:
        """`adopt` takes over what dead processes left, if anything."""
        self._store = store
        self._post = post
        self._followed = followed
        self._lobby = lobby
        self._adopt = adopt
        self._lending = TaskSet()
        self._started: dict[str, str] = {}
        """Where the last runs were started that were not started here."""

    async def start(self, process: str, call: StartRun, caller: Caller | None) -> Run:
        """Start a run there, whose agent may ask `caller` until it has ended. Raises what `GatewayRuns.start` raises;
        Undelivered where the process did nothing, Unavailable where that died and the run is not there.
        """
        with contextlib.ExitStack() as stack:
            if caller is not None:
                call = replace(call, caller=stack.enter_context(self._lobby.lend(caller)))
            run = await self._start(process, call)
            if caller is not None:
                self._lending.start(self._lend(run, stack.pop_all()))
        return run

    async def _lend(self, run: Run, lent: contextlib.ExitStack) -> None:
        with lent, contextlib.suppress(NotFound):
            while True:
                try:
                    await self.until(run.id, lambda run: run.status.ended, None)
                    return
                except Unavailable:  # the store will be back
                    await asyncio.sleep(1.0)

    async def close(self) -> None:
        """Lend nobody any more."""
        self._lending.cancel()
        await self._lending.settled()

    async def _start(self, process: str, call: StartRun) -> Run:
        self._started[call.run] = process
        if len(self._started) > REMEMBERED:
            del self._started[next(iter(self._started))]
        try:
            return await self._post.ask(process, call, Run, within=None)
        except Unanswered as error:  # the process has died: whoever takes the run over ends it, if it is there
            try:
                return await self._store.run(call.run)
            except NotFound:
                raise Unavailable(str(error), detail=error.detail) from error

    def lost(self, run_id: str, what: str, count: int) -> None:
        """Count a loss of a run that is followed or was started here; of others nothing is lost here."""
        if process := self._started.get(run_id) or self._followed.owner_of(run_id):
            self._post.tell(process, LoseOfRun(run_id, what, count))

    async def answer(self, run_id: str, answer: Answer, interrupt_id: str | None) -> Run:
        """Raises what `GatewayRuns.answer` raises; Unavailable where it may have been answered or not."""
        return await self._asked(run_id, AnswerRun(run_id, answer, interrupt_id))

    async def cancel(self, run_id: str, reason: str, *, wait: bool) -> Run:
        """The run may have ended by then; with `wait` it has. Raises NotFound, Unavailable."""
        return await self._asked(run_id, CancelRun(run_id, reason, wait))

    async def until(self, run_id: str, true: Callable[[Run], bool], timeout: float | None) -> Run | None:
        """The run once something is true of it; None when `timeout` seconds passed first."""
        loop = asyncio.get_running_loop()
        due = math.inf if timeout is None else loop.time() + timeout
        if true(run := await self._store.run(run_id)):
            return run
        with self._followed.following(run_id) as followed:
            while True:
                mark = followed.mark
                if true(run := await self._store.run(run_id)):
                    return run
                if loop.time() >= due:
                    return None
                await followed.news(mark, due - loop.time())

    async def _asked(self, run_id: str, call: AnswerRun | CancelRun) -> Run:
        loop = asyncio.get_running_loop()
        within = None if isinstance(call, CancelRun) and call.wait else ANSWER_SECONDS
        due: float | None = None
        while True:
            try:
                return await self._post.ask(await self._store.owner_of(run_id), call, Run, within=within)
            except (Undelivered, Unanswered) as error:
                if isinstance(error, Unanswered) and isinstance(call, AnswerRun):
                    raise
                due = loop.time() + TAKEN_OVER_SECONDS if due is None else due
                if loop.time() >= due:
                    raise Unavailable(str(error)) from error
            await self._adopt()
            await asyncio.sleep(MOMENT)
