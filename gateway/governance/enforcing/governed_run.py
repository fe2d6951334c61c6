"""One run of a governed route: what its agent says passes a gate, and what becomes of it is audited.

A transition is audited before it is committed. What cannot be audited does not happen, and the run fails.

    engine --RunInterceptor--> GovernedRun --gate, judge--> audit log
    engine <--InterceptedRun-- GovernedContext <--RunContext-- the half that is wrapped
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final, Unpack, cast

from gateway.contract import RunContext, Runner, ThreadContext
from gateway.contract.governing import Governor, RuleKeeping, RunGovernor
from gateway.contract.interception import InterceptedRun
from gateway.contract.outbound import FileDetails
from gateway.contract.wrapping import Wrapped
from gateway.core import events as e
from gateway.core import projection
from gateway.core.delta import ABSENT
from gateway.core.errors import InterlinguaError
from gateway.core.memory import Recalled
from gateway.core.types import Answer, Artifact, Failure, Interrupt, JsonObject, Run, RunStatus, ThreadUpdate
from gateway.governance.audit.aip44 import State
from gateway.governance.enforcing.calls import own
from gateway.governance.enforcing.gate import RunGate
from gateway.governance.enforcing.governor import RouteGovernor
from gateway.governance.enforcing.session import SKILLS, by, instructions, session_of
from gateway.governance.skills import Skill

log = logging.getLogger(__name__)

MOVES: Final[dict[tuple[RunStatus, RunStatus], State]] = {
    (RunStatus.RUNNING, RunStatus.INTERRUPTED): "suspended",
    (RunStatus.INTERRUPTED, RunStatus.RUNNING): "resumed",
}
"""The audited action for each change of a run's status, except its start and end."""


class RuledContext(Wrapped[ThreadContext]):
    """A `RunContext` or `ThreadContext` with the rules of its route, and what judges the run where that is done."""

    governed: RunGovernor | None = None

    def __init__(self, context: ThreadContext, governor: Governor) -> None:
        super().__init__(context)
        self.governor = governor


class GovernedRun:
    """Implements `gateway.contract.interception.RunInterceptor`. The wrapped half gets `context`, not the engine's."""

    def __init__(self, run: InterceptedRun, half: Runner, keeping: RuleKeeping | None, governor: RouteGovernor) -> None:
        self._run = run
        self._half = half
        self._governor = governor
        self._prefaces = keeping is not None and keeping.prefaces
        self.session = governor.session(session_of(run.run))
        self.gate = RunGate(
            run, lambda: governor.current.rules, self.session, self._tell, keeping.tool_call_of if keeping else None
        )
        self.judge = self.gate.judge
        self.context = cast(RunContext, GovernedContext(run, governor, self))
        self._began = self._moved = False
        self._tells: Sequence[Skill] = ()

    # --- in place of the wrapped half ----------------------------------------------------------------------------

    async def run(self, context: RunContext) -> None:
        """The run is over when all that was said has passed the gate."""
        await self._half.run(self.context)
        await self.gate.settled()

    async def attach(self, context: RunContext) -> None:
        await self._half.attach(self.context)
        await self.gate.settled()

    async def cancel(self, context: RunContext) -> None:
        await self._half.cancel(self.context)

    # --- what the engine asks ------------------------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        return self.judge.gated

    async def ready(self) -> None:
        await self.judge.turn()

    @contextlib.asynccontextmanager
    async def starting(self) -> AsyncIterator[None]:
        request = self._run.run.request
        self._moved = await self.session.begins(by(request.principal, request.protocol))
        self._began = True
        try:
            yield
        except BaseException:
            if self._moved:
                await self.session.moved("interrupted", {"error": "the run was not started"})
            raise

    async def changing(self, events: Sequence[e.Event], run: Run) -> None:
        self.judge.noted(events)
        after = MOVES.get((self._run.run.status, run.status))
        if after is not None and run.cancel_reason is None:
            await self.session.moved(after, _about(events))

    async def accepts(self, interrupt: Interrupt, answer: Answer) -> bool:
        return await self.judge.answering(interrupt, answer)

    @contextlib.asynccontextmanager
    async def concluding(self, end: e.Event) -> AsyncIterator[e.Event]:
        try:
            await self.judge.over()
            if self._began:
                await self.session.moved(*_last(end))
        except InterlinguaError as error:
            log.error("run %s: its end is not audited: %s %s", self._run.run.id, error, error.detail)
            if isinstance(end, e.RunFinished):
                end = e.RunFailed(failure=Failure.of(error))
        try:
            yield end
            if self._tells and self._run.run.status is RunStatus.SUCCESS:
                self.session.told(self._tells)
        except InterlinguaError as error:
            if isinstance(end, e.RunFinished):
                with contextlib.suppress(InterlinguaError):
                    await self.session.moved(*_last(e.RunFailed(failure=Failure.of(error))))
            raise
        finally:
            if self._run.run.thread is None:
                self.session.forget()

    def replay(self, events: Sequence[e.Event]) -> None:
        for event in events:
            self.judge.replay(event)
        status = self._run.run.status
        if status in (RunStatus.RUNNING, RunStatus.INTERRUPTED):
            self.judge.goes_on("suspended" if status is RunStatus.INTERRUPTED else "running")
            self._began = True

    def close(self) -> None:
        self.judge.close()

    # --- skills --------------------------------------------------------------------------------------------------

    async def recall(self, *, fresh: bool, knows: bool) -> Recalled:
        """Tell the agent its operator's skills, unless it remembers them: by the half, or in the text of the input.

        Raises Unavailable if that cannot be audited.
        """
        recalled = await self._run.recall(fresh=fresh, knows=knows)
        skills = self._governor.skills
        told = instructions(skills)
        if not told or (self.session.told_of(skills) and not fresh):
            return recalled
        if self._prefaces:
            await self._tell()
            return recalled
        text = "\n\n".join(one.plain for one in told)
        given = projection.preceded(recalled.input, self._run.agent.text_input, text)
        if given is ABSENT:
            self._run.lost(SKILLS, len(told))
            return recalled
        if not self._tells:
            await self.session.tells(skills)
            self._tells = skills
        before = f"{text}\n\n{recalled.before}" if recalled.before else text
        return Recalled(input=given, before=before)

    async def _tell(self) -> None:
        """Have the half tell the agent its operator's skills, as in a first turn. Raises Unavailable."""
        skills = self._governor.skills
        if not self._tells and (told := instructions(skills)):
            await self.session.tells(skills)
            self.judge.tell_first(told)
            self._tells = skills


class GovernedContext(RuledContext):
    """The `RunContext` of a governed run."""

    def __init__(self, run: InterceptedRun, governor: RouteGovernor, governed: GovernedRun) -> None:
        super().__init__(run, governor)
        self.governed = governed.judge
        self._intercepted = run
        self._gate = governed.gate
        self._recall = governed.recall

    @property
    def heard(self) -> int:
        """See `RunContext.heard`. What waits at the gate was heard."""
        return self._gate.taken + self._intercepted.heard

    def emit(self, *events: e.Event) -> None:
        """See `RunContext.emit`. What stands behind a call that waits is judged later."""
        self._gate.take(events)

    def note(self, update: ThreadUpdate) -> None:
        event = self._intercepted.noted(update)
        if event is not None:
            self._gate.take((event,))

    async def add_artifact(
        self, name: str, content: AsyncIterator[bytes] | bytes, **about: Unpack[FileDetails]
    ) -> Artifact:
        artifact = await self._intercepted.store_artifact(name, content, **about)
        self._gate.take((e.ArtifactAdded(artifact=artifact),))
        return artifact

    async def drain(self) -> None:
        """See `RunContext.drain`. Who waits for a person may go on talking, for a while."""
        await self._gate.caught_up()
        await self._intercepted.drain()

    @property
    def flowing(self) -> bool:
        """False while events wait at the gate, so that `drain` is called."""
        return False

    async def ask(self, interrupt: Interrupt) -> Answer:
        """See `RunContext.ask`. No agent's question passes for one of the gate's."""
        return await self._intercepted.ask(own(interrupt))

    async def recall(self, *, fresh: bool, knows: bool = False) -> Recalled:
        return await self._recall(fresh=fresh, knows=knows)


def _about(events: Sequence[e.Event]) -> JsonObject:
    """Say which question suspends, or whose answer resumes."""
    event = next(one for one in events if isinstance(one, e.Interrupted | e.Resumed))
    if isinstance(event, e.Interrupted):
        return {"interrupt": event.interrupt.id, "kind": event.interrupt.kind}
    return {"interrupt": event.interrupt, "outcome": event.answer.outcome.value}


def _last(end: e.Event) -> tuple[State, JsonObject]:
    """Say what the end of a run is to its operator."""
    match end:
        case e.RunFinished():
            return "completed", {"stopReason": end.stop_reason.value}
        case e.RunFailed():
            return "interrupted", {"error": {"code": end.failure.code, "message": end.failure.message}}
        case e.RunCancelled():
            return "interrupted", {"cancelled": end.reason}
    raise AssertionError(f"{end} ends no run")
