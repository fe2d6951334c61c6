"""THE contract between the gateway and its adapters. Above it: engine, router, store. Below it: one folder a protocol.

An adapter folder exports one value, `ADAPTER`. Its inbound half turns requests into calls of `Gateway` and events
into answers; its outbound half turns a run into calls of an agent and what the agent says into events. Neither half
knows any other protocol, and neither touches a run's state: only the engine does.

    client -> Inbound -> Gateway (engine) -> Outbound -> agent
    client <- Inbound <- Watch (run log)  <- RunContext.emit <- agent
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import msgspec
from pydantic import AfterValidator, AnyHttpUrl, BaseModel, ConfigDict, Field, SecretStr, TypeAdapter
from starlette.responses import Response
from starlette.routing import BaseRoute

from gateway.core.errors import InterlinguaError
from gateway.core.events import Event
from gateway.core.types import (
    Agent,
    Answer,
    Artifact,
    Checkpoint,
    Interrupt,
    JsonObject,
    Run,
    RunQuery,
    RunRequest,
    Thread,
    ThreadQuery,
)

# --- options: what an adapter understands in routes.yaml -------------------------------------------------------


class Options(BaseModel):
    """Base of every options model. Unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class InboundOptions(Options):
    """What every inbound section takes."""

    path: str | None = None
    """Where the protocol is mounted, instead of its own path."""


class Auth(Options):
    """How the gateway authenticates to an agent. At most one of the two."""

    bearer: SecretStr | None = None
    """Sent as `Authorization: Bearer ...`."""
    api_key: SecretStr | None = None
    """Sent the way the target's protocol has for keys."""


_any_http_url = TypeAdapter(AnyHttpUrl)


def _http_url(text: str) -> str:
    _any_http_url.validate_python(text)
    return text.rstrip("/")


HttpUrl = Annotated[str, AfterValidator(_http_url), Field(json_schema_extra={"format": "uri"})]
"""An http or https URL, kept as written less a trailing slash."""


class TargetOptions(Options):
    """What every target takes."""

    protocol: str
    """Which adapter calls the agent."""
    agent: str | None = None
    """The agent's name there, if several live at the target."""
    auth: Auth = Auth()
    """How the gateway authenticates to the agent."""


# --- outbound: calling agents ----------------------------------------------------------------------------------


class RunContext(Protocol):
    """What an outbound adapter sees of one run. Made by the engine, valid until `Outbound.run` returns."""

    @property
    def run(self) -> Run:
        """The run as it is now (a new record after every change)."""

    @property
    def agent(self) -> Agent:
        """The agent as published, with its schemas and text pointers."""

    @property
    def thread(self) -> Thread | None:
        """The thread the run is on, None for a stateless run."""

    @property
    def upstream_thread(self) -> JsonObject | None:
        """What `set_upstream(thread=...)` last recorded for this thread and agent."""

    @property
    def traceparent(self) -> str | None:
        """W3C header to send to the agent; None when nothing is traced."""

    @property
    def cancelled(self) -> bool:
        """True once a cancel was asked for."""

    def emit(self, *events: Event) -> None:
        """Append events to the run's log. Never blocks; follow every burst with one `drain()`.

        The engine opens and closes messages and parts that the events imply, so `PartDelta(part="output",
        delta=...)` alone is enough: a part that was never started is an assistant's, text if the delta is a string
        and data otherwise. After a terminal event (or a cancel's fence) everything is dropped and counted.
        Interrupts go through `ask`, artifacts through `add_artifact`. Raises IllegalEvent.
        """

    async def drain(self) -> None:
        """Wait until the log may grow again (disk, and readers where the route says so). Cancellable."""

    async def set_upstream(self, upstream: JsonObject, *, thread: JsonObject | None = None) -> None:
        """Record how to find the run again. Call it as soon as the agent has named it; written behind.

        `thread` is recorded on the thread under this agent's name.
        """

    async def ask(self, interrupt: Interrupt) -> Answer:
        """Put the agent's question to the caller and wait, however long it takes.

        Returns what was answered, after it was committed; a cancel answers every open question `cancelled`. Several
        may wait at once, each in its own task. On a re-attached run, a question with the id of one that is still
        open is the same question; one answered but not yet delivered returns at once.
        """

    async def add_artifact(
        self,
        name: str,
        content: AsyncIterator[bytes] | bytes,
        *,
        media_type: str = "application/octet-stream",
        relative_path: str | None = None,
        metadata: JsonObject | None = None,
    ) -> Artifact:
        """Store a file the agent made and emit `ArtifactAdded`. Raises TooLarge; nothing is kept then."""

    async def uploads(self) -> Sequence[Artifact]:
        """Files the client put on the run's thread, oldest first."""

    def open_artifact(self, artifact_id: str) -> AsyncIterator[bytes]:
        """The content of a stored file, in chunks."""

    def lost(self, what: str, count: int = 1) -> None:
        """Count something that could not be said. `what` is one of the codec's named losses."""


class Outbound(Protocol):
    """Calls the agents of one route's target. One instance per route, made at start-up, used by many runs at once."""

    async def describe(self) -> Agent:
        """The agent as its own protocol publishes it (its `name` is replaced by the route's).

        Called before the first run and again after failures. Raises AgentGone, AgentTimeout, AgentBroken, NotFound.
        """

    async def run(self, context: RunContext) -> None:
        """Send the run and see it to its end: emit what the agent says, last a `RunFinished`.

        Called once per run, in a task of its own; a failure is raised as an AgentError (or emitted as `RunFailed`).
        Returning without a terminal event is a failure. The task is cancelled when a cancel's grace or the run's
        timeout is over: clean up, and do not swallow the cancellation.
        """

    async def attach(self, context: RunContext) -> None:
        """Go on with a run that was sent before a restart; `context.run.upstream` says which.

        Emits a `PartReplaced` (or RunFinished) for what was missed. Raises Unsupported where the protocol cannot.
        """

    async def cancel(self, context: RunContext) -> None:
        """Ask the agent to stop the run, while `run` goes on. Called at most once per run; errors are logged."""

    async def aclose(self) -> None:
        """Close connections and processes. Called once, at shutdown or when the route goes."""


# --- inbound: serving clients ----------------------------------------------------------------------------------


class Snapshot(Protocol):
    """The run's output document at the newest event, shared by all watchers: it grows as the run does."""

    @property
    def encoded(self) -> bytes:
        """The document as JSON."""

    @property
    def size(self) -> int:
        """Its length in bytes, known without encoding it."""

    @property
    def empty(self) -> bool:
        """True while nothing has been said yet."""


class Batch(msgspec.Struct, frozen=True):
    """What a watcher gets at once. `events` are (number, event) in order.

    `snapshot` is given where the batch reaches the newest event of a live or finished run. `skipped` is true where
    deltas were left out (only if the watch was opened with `deltas=False` and lagged): take the snapshot instead.
    `last` is the number to resume after.
    """

    events: tuple[tuple[int, Event], ...]
    last: int
    snapshot: Any = None
    skipped: bool = False


class Watch(Protocol):
    """A cursor into one run's log."""

    @property
    def run(self) -> Run:
        """The run as it is now."""

    async def next(self, timeout: float | None = None) -> Batch | None:
        """The next events; None after the terminal event was delivered. Raises TimeoutError after `timeout` seconds."""


class Gateway(Protocol):
    """What an inbound adapter may ask for. Every method raises errors of the tree, NotFound for unknown ids."""

    public_url: str

    def names(self, protocol: str) -> Sequence[str]:
        """Names of the agents that clients of `protocol` may call, in route order."""

    async def agents(self, protocol: str) -> Sequence[Agent]:
        """Those agents, described (asks the targets if need be; one that is down is described by its route alone)."""

    async def agent(self, name: str, protocol: str) -> Agent:
        """One of them, by name or by UUID."""

    async def start(self, request: RunRequest) -> Run:
        """Validate, commit and start a run.

        Raises Invalid (with path), NotFound, Conflict (busy thread), Unsupported.
        """

    async def run(self, run_id: str) -> Run: ...

    async def runs(self, query: RunQuery) -> Sequence[Run]: ...

    async def count_runs(self, query: RunQuery) -> int: ...

    async def wait(self, run_id: str, timeout: float | None = None) -> Run | None:
        """The run once it has stopped (ended or interrupted); None when `timeout` seconds passed first."""

    def watch(self, run_id: str, after: int = 0, *, deltas: bool = True) -> AbstractAsyncContextManager[Watch]:
        """Follow a run from event `after` + 1. With `deltas=False` a lagging watcher skips text deltas."""

    async def events(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Event]]:
        """The run's log so far, whole."""

    async def answer(self, run_id: str, answer: Answer, interrupt_id: str | None = None) -> Run:
        """Answer an open interrupt (the oldest if not named).

        Raises Conflict if none is open, Invalid if the value does not fit (it stays open).
        """

    async def cancel(self, run_id: str, *, reason: str = "", wait: bool = False) -> Run:
        """Store the wish, tell the agent. With `wait`, returns when the run has ended. Ended runs: no effect."""

    async def delete_run(self, run_id: str) -> None:
        """Cancel it if need be, then remove it with its log and artifacts."""

    async def create_thread(self, thread: Thread, *, or_get: bool = False) -> Thread:
        """Raises Conflict if the id exists, unless `or_get`."""

    async def thread(self, thread_id: str) -> Thread: ...

    async def threads(self, query: ThreadQuery) -> Sequence[Thread]: ...

    async def count_threads(self, query: ThreadQuery) -> int: ...

    async def update_thread(
        self,
        thread_id: str,
        *,
        metadata: JsonObject | None = None,
        attributes: JsonObject | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Thread:
        """Merge keys into metadata and attributes; a checkpoint becomes the newest state."""

    async def copy_thread(self, thread_id: str) -> Thread:
        """A new thread with the same record."""

    async def delete_thread(self, thread_id: str) -> None:
        """Remove the thread, its checkpoints and uploads. Raises Conflict while a run is active on it."""

    async def history(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> Sequence[Checkpoint]:
        """Checkpoints, newest first."""

    async def add_artifact(self, artifact: Artifact, content: AsyncIterator[bytes]) -> Artifact:
        """Store an uploaded file; id, size, url and time are set here. Raises TooLarge."""

    async def artifacts(self, *, run: str | None = None, thread: str | None = None) -> Sequence[Artifact]:
        """Files of a run, or of a thread (uploads and those of its runs), oldest first."""

    async def artifact(self, artifact_id: str) -> Artifact: ...

    def open_artifact(self, artifact_id: str) -> AsyncIterator[bytes]: ...


@dataclass(frozen=True)
class Callback:
    """A webhook request: POST `body` with `headers`."""

    body: bytes
    headers: Mapping[str, str]


class Inbound(Protocol):
    """Serves one protocol's clients."""

    def routes(self) -> Sequence[BaseRoute]:
        """Starlette routes below the protocol's mount point. Called once."""

    def refusal(self, error: InterlinguaError) -> Response:
        """An error as this protocol answers it; for requests below the mount point that reach no route."""

    def callback(self, run: Run) -> Callback:
        """The webhook request that tells a client of this protocol what became of `run`."""


# --- the value an adapter folder exports -----------------------------------------------------------------------


@dataclass(frozen=True)
class Adapter:
    """One protocol. `name` is its folder, its key in the route table and its id in spans.

    `serve(options, gateway)` makes the inbound half, `call(target)` the outbound half; None where a half does not
    exist. `path` is the default mount point. `losses` names what this
    protocol cannot say, with the reason (docs are made from it). Making the value imports nothing heavy.
    `example` is a shell line to try, shown by `serve`: `{url}` is the mount's address, `{agent}` an agent's name.
    """

    name: str
    title: str
    path: str = ""
    serve: Callable[[Any, Gateway], Inbound] | None = None
    serve_options: type[InboundOptions] = InboundOptions
    call: Callable[[Any], Outbound] | None = None
    target_options: type[TargetOptions] = TargetOptions
    losses: Mapping[str, str] = field(default_factory=dict)
    example: str = ""
