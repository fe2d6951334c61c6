"""Interceptors, which stand between the engine and the runs of an outbound half.

    engine --Intercepting.intercept--> RunInterceptor --run, attach, cancel--> the half that is wrapped
    engine <--------InterceptedRun-------- RunInterceptor <-----RunContext----- the half that is wrapped

The engine asks the interceptor before it commits what changes a run, and hands it the run in place of the half. The
half gets whatever context the interceptor makes for it. A `RunRecorder` stands beside all runs, and changes none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Final, Protocol, Unpack, runtime_checkable

from gateway.contract.gateway import Watch
from gateway.contract.outbound import FileDetails, RunContext, Runner
from gateway.core.events import Custom, Event
from gateway.core.types import Answer, Artifact, Failure, Interrupt, Outcome, Run, ThreadUpdate


class ApprovalNote(Protocol):
    """Telemetry of an approval."""

    def decided(self, outcome: Outcome, *, approved: bool) -> None:
        """Note the outcome."""


class InterceptedRun(RunContext, Protocol):
    """A run as its interceptor sees it. What it emits is logged as it is."""

    def abort(self, failure: Failure) -> None:
        """End the run as failed: its agent is told to stop, open questions are answered `cancelled`.

        The end is committed when the agent has stopped, or its grace is over. Does nothing if the run is cancelled or
        ends.
        """

    def noted(self, update: ThreadUpdate) -> Custom | None:
        """Do what `note` does, but return the run's event instead of emitting it; None if there is none."""

    async def store_artifact(
        self, name: str, content: AsyncIterator[bytes] | bytes, **about: Unpack[FileDetails]
    ) -> Artifact:
        """Do what `add_artifact` does, but emit nothing."""

    def approval(self, tool: str, call: str, policy: str | None) -> AbstractContextManager[ApprovalNote]:
        """Trace an approval, from its question to its answer."""


class RunInterceptor(Runner, Protocol):
    """One run's. What it raises keeps what it was asked about from being done, unless its method says otherwise."""

    @property
    def holds(self) -> bool:
        """Whether the run is not to be marked as sent when it starts. It is once `ready` has returned."""

    async def ready(self) -> None:
        """Wait until the run may be sent. Called before every run is sent; what it raises ends the run."""

    def starting(self) -> AbstractAsyncContextManager[None]:
        """Entered before the start is committed, and left when it is, or with the error that kept it from being."""

    async def changing(self, events: Sequence[Event], run: Run) -> None:
        """Called before a change of the record is committed, but for its start and end. `run` is the new record."""

    async def accepts(self, interrupt: Interrupt, answer: Answer) -> bool:
        """Called before an answer is committed, for one after the other. False: the question stays open for more."""

    def concluding(self, end: Event) -> AbstractAsyncContextManager[Event]:
        """Entered before the end is committed, and left when it is, or with the error that kept it from being.

        Gives the end to commit. Raises nothing by itself.
        """

    def replay(self, events: Sequence[Event]) -> None:
        """Take in the log of a run of before a restart. Called once, before the run goes on."""

    def close(self) -> None:
        """Let go of the run without ending it: the gateway stops."""


class RunRecorder(Protocol):
    """Records what is said of runs on the wire. The engine calls it only while `on`."""

    @property
    def on(self) -> bool:
        """Whether anything is recorded."""

    def beginning(self, run: InterceptedRun) -> AbstractContextManager[None]:
        """Entered while the run's own task is begun: all that it says to an agent is the run's."""

    def telling(self, run_id: str) -> None:
        """Called in another task of the run's, in which its agent is told to stop."""

    def named(self, run_id: str) -> None:
        """A client's message names the run. Called while it is handled."""

    def watched(self, run_id: str, watch: Watch) -> Watch:
        """The watch for one who tells the run's client."""


class Unrecorded:
    """The `RunRecorder` of a gateway that records nothing."""

    on: Final = False

    def beginning(self, run: InterceptedRun) -> AbstractContextManager[None]:
        return nullcontext()

    def telling(self, run_id: str) -> None:
        """Do nothing."""

    def named(self, run_id: str) -> None:
        """Do nothing."""

    def watched(self, run_id: str, watch: Watch) -> Watch:
        return watch


@runtime_checkable
class Intercepting(Protocol):
    """Offered by outbound halves that stand between the engine and their runs."""

    def intercept(self, run: InterceptedRun) -> RunInterceptor | None:
        """Called once for each run, before anything of it is committed. None: it is run as others are."""
