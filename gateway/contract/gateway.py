"""The gateway as inbound adapters see it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from gateway.contract.backchannel import Caller, ThreadWatch
from gateway.core.events import Event
from gateway.core.files import Attachment
from gateway.core.types import (
    Agent,
    Answer,
    Artifact,
    ChatMessage,
    Checkpoint,
    Json,
    JsonObject,
    Run,
    RunQuery,
    RunRequest,
    Thread,
    ThreadQuery,
    ThreadUpdate,
)

LIST_SECONDS = 5.0
"""How long a list of agents waits for a target that has never described its own."""
LONGEST_PAGE = 3200

Q = TypeVar("Q", RunQuery, ThreadQuery)
T = TypeVar("T")


async def paged(fetch: Callable[[Q], Awaitable[Sequence[T]]], query: Q) -> AsyncIterator[T]:
    """All that a query finds, read page by page by `fetch` (`list` of `GatewayRuns`, `GatewayThreads`).

    The first page is as long as the query says; pages grow, since what comes before one is skipped over again for each.
    """
    while True:
        page = await fetch(query)
        for one in page:
            yield one
        if len(page) < query.limit:
            return
        query = replace(query, offset=query.offset + query.limit, limit=min(2 * query.limit, LONGEST_PAGE))


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
    """Events that a watcher gets at once: (number, event), in order.

    `snapshot` is given where the batch reaches the newest event of a live or finished run. `skipped` is true where
    deltas were left out (only if the watch was opened with `deltas=False` and lagged): take the snapshot instead.
    `last` is the number to resume after.
    """

    events: tuple[tuple[int, Event], ...]
    last: int
    snapshot: Any = None
    skipped: bool = False


Take = Callable[[Batch], Awaitable[None] | None]
"""Takes a batch. Where it has to wait it returns what for: the next batch comes after that."""


class Watch(Protocol):
    """A cursor into one run's log."""

    @property
    def run(self) -> Run:
        """The run as it is now."""

    @property
    def newest(self) -> int:
        """Number of the newest event that is known of, be it on its way to the disk."""

    async def follow(self, take: Take, timeout: float | None = None) -> bool:
        """Give every batch to `take`, in order, until the terminal event was given (True) or `stop` is called (False).

        What is said in one turn of the loop is one batch, and needs no task to be taken. What `take` raises is raised
        here. Raises TimeoutError if it waits when `timeout` seconds have passed. Follow again to go on.
        """

    def stop(self) -> None:
        """Have `follow` return after the batch in hand. Called by `take`, or while `follow` waits."""


async def next_batch(watch: Watch, timeout: float | None = None) -> Batch | None:
    """The watch's next batch, for a caller that takes them one by one; None after the terminal event.

    Raises TimeoutError after `timeout` seconds.
    """
    found: list[Batch] = []

    def take(batch: Batch) -> None:
        found.append(batch)
        watch.stop()

    await watch.follow(take, timeout)
    return found[0] if found else None


class Watched(Protocol):
    """One JSON-RPC request that is traced and counted."""

    def tool_failed(self) -> None:
        """It is answered with a result which says that the tool has failed."""


class Requests(Protocol):
    """Traces and counts the JSON-RPC requests of one protocol's clients."""

    def __call__(
        self, method: str, params: msgspec.Raw, id: Any, *, session: str = "", version: str = ""
    ) -> AbstractContextManager[Watched]:
        """To be entered around all the work of one request, in the request's own task.

        An exception that leaves it is what the request is answered with. `session` and `version`: the session's id and
        the revision that it speaks, where the protocol has them.
        """


def unguessable() -> str:
    """A new id, of a gateway that is alone on its port (`Gateway.new_id`)."""
    return uuid.uuid4().hex


class Kept(msgspec.Struct, frozen=True):
    """A record that an inbound half keeps under a name. Read only: every caller gets the same object.

    `owner` may replace it. `expires_at` (seconds since the epoch) None: it is kept until it is forgotten. Who has
    kept a record under a higher `number` than another could read that one when it was kept.
    """

    name: str
    owner: str
    data: JsonObject
    number: int
    expires_at: float | None = None


class GatewayRuns(Protocol):
    """Starts runs, finds them, follows them, answers and ends them."""

    async def start(
        self,
        request: RunRequest,
        *,
        files: Sequence[Attachment] = (),
        caller: Caller | None = None,
        told: bool = True,
    ) -> Run:
        """Validate, commit and start a run.

        `files` are given to the agent with it, and belong to the run and its thread (see `RunContext.uploads`).
        `caller` is whom the agent may ask while the run lasts, where nobody on the run's thread can be asked. Without
        `told` nobody is told that there is a run before it has stopped, or is watched: then one without a thread does
        not wait for the disk, neither for its creation nor for its end, which are there moments later.
        Raises Invalid (with path), NotFound, Conflict (busy thread), TooLarge, and Unsupported, also for
        a file that the agent does not take unless its route is `lossy: allow`.
        """

    async def get(self, run_id: str) -> Run: ...

    async def list(self, query: RunQuery) -> Sequence[Run]: ...

    async def count(self, query: RunQuery) -> int: ...

    async def wait(self, run_id: str, timeout: float | None = None) -> Run | None:
        """The run once it has stopped (ended or interrupted); None when `timeout` seconds passed first."""

    async def ended(self, run_id: str, beside: Collection[type[Event]]) -> Run | None:
        """The run once it has ended, for who tells of nothing else. None as soon as there may be more to tell: a
        question, or an event of the types in `beside` (`Custom`, `ArtifactAdded`). Then watch it.
        """

    def watch(self, run_id: str, after: int = 0, *, deltas: bool = True) -> AbstractAsyncContextManager[Watch]:
        """Follow a run from event `after` + 1. With `deltas=False` a lagging watcher skips text deltas.

        A run that was started without `told` is on the disk when the block begins, and its end before anybody is told.
        """

    async def events(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Event]]:
        """The run's log so far, whole."""

    async def answer(self, run_id: str, answer: Answer, interrupt_id: str | None = None) -> Run:
        """Answer an open interrupt (the oldest if not named).

        Raises Conflict if none is open, Invalid if the value does not fit (it stays open).
        """

    async def cancel(self, run_id: str, *, reason: str = "", wait: bool = False) -> Run:
        """Store the wish, tell the agent. With `wait`, returns when the run has ended. Ended runs: no effect."""

    async def delete(self, run_id: str) -> None:
        """Cancel it if need be, then remove it with its log and artifacts."""

    def lost(self, run_id: str, what: str, count: int = 1) -> None:
        """Count something of a run in progress that its client cannot be told (see `RunContext.lost`)."""


class GatewayThreads(Protocol):
    """Conversations: their records, and the state that each has come to."""

    async def create(self, thread: Thread, *, or_get: bool = False) -> Thread:
        """Raises Conflict if the id exists, unless `or_get`."""

    async def get(self, thread_id: str) -> Thread: ...

    async def list(self, query: ThreadQuery) -> Sequence[Thread]: ...

    async def count(self, query: ThreadQuery) -> int: ...

    async def update(
        self,
        thread_id: str,
        *,
        metadata: JsonObject | None = None,
        attributes: JsonObject | None = None,
    ) -> Thread:
        """Merge keys into metadata and attributes."""

    async def patch(
        self,
        thread_id: str,
        *,
        metadata: JsonObject | None = None,
        base: str | None = None,
        values: Json = None,
        messages: Sequence[ChatMessage] | None = None,
    ) -> Thread:
        """Change the thread's state, at its agent where that keeps it: all later runs start from the new one.

        It starts from the state of checkpoint `base` (None: the newest); values and messages replace its own (None:
        they stay). Raises Invalid, NotFound, AgentError, and Unsupported where the agent keeps the state and takes no
        changes.
        """

    async def copy(self, thread_id: str) -> Thread:
        """A new thread with the same record and state, copied at its agent where that keeps it. Raises AgentError."""

    async def state(self, thread_id: str, *, ask: bool = True) -> Checkpoint:
        """The thread's whole state: values in the schema of its newest turn's agent (`thread_state.schema_of`), None
        where that publishes none; messages are the conversation.

        Read from the agent if that keeps it. Raises AgentError then. Without `ask` no agent is asked: values that are
        not here are None.
        """

    async def states(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> Sequence[Checkpoint]:
        """The whole states after each run and patch, newest first, those older than checkpoint `before`.

        Read as `state` is. Raises NotFound for an unknown `before`, AgentError.
        """

    async def delete(self, thread_id: str) -> None:
        """Remove the thread, its checkpoints and uploads. Raises Conflict while a run is active on it."""

    async def history(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> Sequence[Checkpoint]:
        """Checkpoints of the gateway's own record, newest first."""


class GatewayFiles(Protocol):
    """Files that clients upload and agents make."""

    async def add(self, artifact: Artifact, content: AsyncIterator[bytes]) -> Artifact:
        """Store an uploaded file; id, size, url and time are set here.

        Raises TooLarge, and Unsupported where the agent of the file's thread takes no files.
        """

    async def list(self, *, run: str | None = None, thread: str | None = None) -> Sequence[Artifact]:
        """Files of a run, or of a thread (uploads and those of its runs), oldest first."""

    async def get(self, artifact_id: str) -> Artifact: ...

    def open(self, artifact_id: str) -> AsyncIterator[bytes]: ...


class GatewayAgents(Protocol):
    """The agents that there are, of routes, found, hosted and created."""

    def names(self, protocol: str) -> Sequence[str]:
        """Names of the agents that clients of `protocol` may call, in route order."""

    async def list(self, protocol: str, names: Sequence[str] | None = None) -> Sequence[Agent]:
        """Those agents, or those of `names`, described: asks the targets if need be. One that is down, or has not
        answered within LIST_SECONDS, is described by its route alone.
        """

    async def get(self, name: str, protocol: str, *, within: float | None = None) -> Agent:
        """One of them, by name or by UUID. `within`: seconds that its target may take, as in a list; else as long as
        it may take to answer at all.
        """

    async def create(self, template: str, protocol: str, config: JsonObject, *, owner: str | None = None) -> Agent:
        """A new agent: the agent `template` with a configuration that every run of it gets. `owner`: whose it is.

        It has a name of its own, is there for the clients that may call `template`, in every protocol, and stays
        until it is destroyed, over restarts and on every replica. Raises NotFound, Invalid (with path), Unsupported
        for an agent that publishes no config schema, Unavailable when there are too many.
        """

    async def destroy(self, name: str, protocol: str) -> None:
        """Remove an agent that was created so. Raises NotFound, Unsupported for one of the route table.

        Its runs go on.
        """

    def created(self, name: str) -> tuple[str, str | None] | None:
        """The template and the owner (or None) of a created agent; None for any other agent."""

    def hosted_changed(self, protocol: str, described: Collection[str] | None = None) -> None:
        """Called when the agents that the inbound half of `protocol` hosts, or their descriptions, have changed.

        `Hosting.hosted` is asked before this returns. Agents that stay are described anew when next needed: those
        named in `described`, or all if that is left out (where there are many, listing them then takes its time).
        """

    def extension(self, name: str, protocol: str, key: str) -> Any:
        """The object that an agent's outbound half offers under a key (`Extended`); None if there is none.

        The agent is given by name or UUID. Sends nothing. Raises NotFound.
        """

    def routed(self, name: str) -> bool:
        """Whether `name` is the route table's, or that of an agent found at a target or created: nobody may take it."""

    def reachable(self, name: str, protocol: str) -> bool:
        """Whether the agent is there, as far as is known now: nobody is asked.

        False for an unknown one, and for one of the route table that has not been described yet.
        """

    def noticed(self, agent: str, what: str) -> None:
        """Count, for metrics, something that an agent did and that its protocol watches it for."""


class GatewayRecords(Protocol):
    """Durable records of inbound halves, under names, for every process on the store."""

    async def keep(
        self, protocol: str, name: str, data: JsonObject, *, owner: str, expires_at: float | None = None
    ) -> None:
        """Keep `data` under a name, durably, for every process on the store, in place of what `owner` kept there.

        Names are any text; each protocol has its own. An `owner` that is a gateway's `process` owns it as long as
        that lives. Times are seconds since the epoch; `created_at` is that of the first record of the name.
        Raises Conflict if the name is taken by another owner's that has not expired.
        """

    async def kept(self, protocol: str) -> Sequence[Kept]:
        """Everything kept for `protocol` that has not expired, by name. Cheap while nothing has changed."""

    async def forget(self, protocol: str, name: str) -> None:
        """Keep it no longer, whoever's it is. No error if it is gone."""


class GatewayBackchannel(Protocol):
    """Messages between a client and an agent beside runs."""

    def join(self, thread_id: str, caller: Caller | None = None) -> AbstractAsyncContextManager[ThreadWatch]:
        """Watch a thread, which need not be stored yet. `caller` is whom its agent may ask from now on, until it leaves
        or a newer one joins.
        """

    async def relay(
        self,
        agent: str,
        protocol: str,
        method: str,
        params: msgspec.Raw,
        *,
        thread: str | Thread | None = None,
        caller: Caller | None = None,
        told: Callable[[ThreadUpdate], None] | None = None,
    ) -> msgspec.Raw:
        """Hand a request of `protocol`'s own to an agent that speaks it too (`protocol` is among `Agent.extra`).

        A `Thread` begins with the request: it is stored when the agent has answered, with what was noted of it by then.
        `caller` is only needed without a thread. With `told`, what the agent notes of the thread before it answers, and
        what it retells later, is history that was asked for: `told` alone is given it, and what is `kept` is not
        recorded again.

        Raises Unsupported for an agent of another protocol, `gateway.wire.jsonrpc.RpcError` with the agent's own error.
        """

    async def forward(
        self, agent: str, protocol: str, method: str, params: msgspec.Raw, *, thread: str | None = None
    ) -> None:
        """The same for a notification."""


class GatewayLimits(Protocol):
    """Counts what clients use that the gateway itself does not see, and refuses what is too much."""

    def request(self, door: str, client: str | None) -> None:
        """Count a request of a client (None: nobody asked who it is) at a protocol's door.

        For JSON-RPC on a WebSocket: HTTP requests are counted in front of the routes. Raises Limited for a client that
        is over its limit, Unavailable where the door is.
        """

    def session(self, door: str, client: str | None, held: int, spare: Callable[[], bool]) -> None:
        """Admit a session over HTTP of a client that holds so many at the door.

        Raises Limited where it may have no more, and `spare` ended none of its own that is idle.
        """


class Gateway(Protocol):
    """The gateway as an inbound adapter sees it, by subject.

    Every method raises errors of the tree, NotFound for unknown ids.
    """

    public_url: str

    @property
    def process(self) -> str:
        """This gateway process: no other one on the store has the same, nor has this one after a restart."""

    def new_id(self) -> str:
        """An unguessable id, for what only this process keeps, like a session over HTTP.

        A request that has it as the value of a header, in its path or in its query comes to this process, whichever of
        several workers its client connects to. Where this process has ended it comes to any.
        """

    def requests(
        self, protocol: str, methods: Collection[str], code: Callable[[Exception], int], *, mcp: bool = False
    ) -> Requests:
        """For the JSON-RPC requests of the clients of `protocol`, whatever carries them.

        methods: those that are known; all others are traced under one name. code: the JSON-RPC error code that an
        exception is answered with. mcp: the methods are those of the Model Context Protocol.
        """

    @property
    def runs(self) -> GatewayRuns: ...

    @property
    def threads(self) -> GatewayThreads: ...

    @property
    def files(self) -> GatewayFiles: ...

    @property
    def agents(self) -> GatewayAgents: ...

    @property
    def records(self) -> GatewayRecords: ...

    @property
    def backchannel(self) -> GatewayBackchannel: ...

    @property
    def limits(self) -> GatewayLimits: ...
