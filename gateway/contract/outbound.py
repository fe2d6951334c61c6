"""The outbound half: calling agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol, TypedDict, Unpack

from gateway.contract.backchannel import ThreadContext
from gateway.core.events import Event
from gateway.core.memory import Recalled
from gateway.core.types import Agent, Answer, Artifact, Checkpoint, Interrupt, JsonObject, Run


class FileDetails(TypedDict, total=False):
    """Of a file that an agent made. `media_type` is `application/octet-stream` where it is left out."""

    media_type: str
    relative_path: str | None
    metadata: JsonObject


class RunContext(ThreadContext, Protocol):
    """An outbound adapter's view of one run. Made by the engine, valid until `Outbound.run` returns.

    The methods of `ThreadContext` stay valid afterwards.
    """

    @property
    def run(self) -> Run:
        """The run as it is now (a new record after every change)."""

    @property
    def traceparent(self) -> str | None:
        """W3C header to send to the agent; None when nothing is traced."""

    @property
    def cancelled(self) -> bool:
        """True once a cancel was asked for."""

    @property
    def heard(self) -> int:
        """Grows with whatever the agent says of the run: an event, a question, a file, an id."""

    def emit(self, *events: Event) -> None:
        """Append events to the run's log. Never blocks; follow every burst with one `drain()`.

        The engine opens and closes messages and parts that the events imply, so `PartDelta(part="output",
        delta=...)` alone is enough: a part that was never started is an assistant's, text if the delta is a string
        and data otherwise. After a terminal event (or a cancel's fence) everything is dropped and counted.
        Interrupts go through `ask`, artifacts through `add_artifact`. Raises IllegalEvent.
        """

    async def drain(self) -> None:
        """Wait until the log may grow again (disk, and readers where the route says so). Cancellable.

        After the terminal event it commits the end, for who has more to do then; else that is done when `Outbound.run`
        returns, and there is no need to call it.
        """

    async def shown(self) -> None:
        """Wait until the run is on the disk: nobody hears of it before. To be awaited before a client is asked or told
        anything by another way than `emit`, `ask` and the `caller` that the run was started with.
        """

    def afterwards(self, then: Callable[[], None]) -> None:
        """Call `then` when the run's end has been told, at once if it has; once, and it must not raise.

        Not called where the gateway stops and lets go of the run.
        """

    @property
    def flowing(self) -> bool:
        """Whether the log may grow as it is: then a burst need not be followed by `drain`."""

    async def set_upstream(self, upstream: JsonObject, *, thread: JsonObject | None = None, finds: bool = True) -> None:
        """Record how to find the run again. Call it as soon as the agent has named it; written behind, and with the
        run's end where the terminal event was emitted.

        `thread` is recorded on the thread under this agent's name. `finds`: False where the protocol has no way back to
        a run: it is written with the next that is committed of it.
        """

    async def thread_state(self) -> Checkpoint | None:
        """The state that the agent's own thread is to have before this run, in the agent's schema; None if it has it
        already, or there is none for it.

        For outbound halves that are `Stateful`. One that has given it to the agent says so in `recall`.
        """

    async def recall(self, *, fresh: bool, knows: bool = False) -> Recalled:
        """The input to send: the run's own, with what the agent has not been told of the conversation before it.

        Called by `Outbound.run` just before it sends the run; again if the agent then turns out to have forgotten the
        conversation. `fresh`: the agent remembers nothing of this thread (it keeps no threads, or its session is new).
        `knows`: it was given `thread_state`, and is told nothing.
        Turns that cannot be told are counted as `earlier_turns`.
        """

    async def ask(self, interrupt: Interrupt) -> Answer:
        """Put the agent's question to the caller and wait, however long it takes.

        Returns what was answered, after it was committed; a cancel and the run's end answer every question
        `cancelled`. Several may wait at once, each in its own task; cancelling one withdraws its question. On a
        re-attached run, a question with the id of one that is still open is the same question; one answered but not
        yet delivered returns at once. An id may be used again, and by several at once: clients see it with a count.
        """

    async def add_artifact(
        self, name: str, content: AsyncIterator[bytes] | bytes, **about: Unpack[FileDetails]
    ) -> Artifact:
        """Store a file the agent made and emit `ArtifactAdded`. Raises TooLarge; nothing is kept then."""

    async def uploads(self) -> Sequence[Artifact]:
        """Files that clients gave to the run or its thread, oldest first.

        For agents with `AgentCapabilities.files`: an adapter gives each of them to an agent once. Files for a place in
        the agent's input are in what `recall` returns.
        """

    async def contents(self, ids: Sequence[str]) -> Mapping[str, bytes]:
        """The content of stored files, by id. Raises NotFound for one that was removed."""

    def open_artifact(self, artifact_id: str) -> AsyncIterator[bytes]:
        """The content of a stored file, in chunks."""

    def lost(self, what: str, count: int = 1) -> None:
        """Count something that could not be said. `what` is one of the codec's named losses."""


class Runner(Protocol):
    """Carries out runs."""

    async def run(self, context: RunContext) -> None:
        """Send the run and see it to its end: emit what the agent says, last a `RunFinished`.

        Called once per run, in a task of its own; a failure is raised as an AgentError (or emitted as `RunFailed`).
        Returning without a terminal event is a failure. The task is cancelled when a cancel's grace or the run's
        timeout is over: clean up, and do not swallow the cancellation. Nothing that is raised after the terminal event
        changes the end.
        """

    async def attach(self, context: RunContext) -> None:
        """Go on with a run that was sent before a restart; `context.run.upstream` says which.

        Emits a `PartReplaced` (or RunFinished) for what was missed. Raises Unsupported where the protocol cannot.
        """

    async def cancel(self, context: RunContext) -> None:
        """Ask the agent to stop the run, while `run` goes on. Called at most once per run; errors are logged."""


class Outbound(Runner, Protocol):
    """Calls the agents of one route's target. One instance per route, made at start-up, used by many runs at once."""

    async def describe(self) -> Agent:
        """The agent as its own protocol publishes it (its `name` is replaced by the route's).

        Called before the first run and again after failures. Raises AgentGone, AgentTimeout, AgentBroken, NotFound.
        """

    async def aclose(self) -> None:
        """Close connections and processes. Called once, at shutdown or when the route goes."""
