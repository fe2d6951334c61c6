"""The model's records: agents, interrupts, runs, threads, artifacts.

Immutable records (`msgspec` structs); change one with `msgspec.structs.replace`. Times are seconds since the
epoch (float, UTC). JSON values are plain Python objects, except documents that pass through untouched: those
stay encoded (`msgspec.Raw`) so that nobody parses them on the way.
"""

import enum
import uuid
from functools import lru_cache
from typing import Any, Self, TypeVar

import msgspec
from msgspec.structs import replace

from gateway.core.errors import InterlinguaError

Json = Any
JsonObject = dict[str, Any]

NULL = msgspec.Raw(b"null")


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every record here."""


AGENT_NAMESPACE = uuid.UUID("6f1c0f53-5a0a-5d3e-9b53-0d4b7c9d6f2a")


@lru_cache(1024)
def agent_id(name: str) -> str:
    """The UUID of an agent where a protocol wants one: UUIDv5 of the route name, the same on every replica."""
    return str(uuid.uuid5(AGENT_NAMESPACE, name))


def description(name: str, *said: str | None) -> str:
    """The first description of the agent `name` that says anything; a default where none does."""
    return next((each for each in said if each and not each.isspace()), f"The agent {name}, through Interlingua.")


class InterruptSpec(Record, frozen=True, kw_only=True):
    """One kind of question an agent may ask, as published."""

    kind: str
    payload_schema: JsonObject
    answer_schema: JsonObject


class AgentCapabilities(Record, frozen=True, kw_only=True):
    """The agent's own abilities. The gateway adds callbacks and waiting to every agent."""

    threads: bool = False
    interrupts: bool = False
    streaming: bool = False
    custom_streaming: bool = False
    cancel: bool = False
    artifacts: bool = False
    """It may produce files."""
    files: tuple[str, ...] = ()
    """Media ranges (`image/*`, `*/*`) of the files that it takes by its protocol's own means, beside its input. Without
    any, its input schema may have places for files: see `core.files`."""
    rollback: bool = False
    tool: bool = False
    """It is a plain tool: it takes arguments, no conversation. Earlier turns are never put into its input."""


class Standing(Record, frozen=True, kw_only=True):
    """How an agent is weighed against others when nobody names the one that is to do a task. None: not known.

    `quality` and `security` are ratings from 0 to 10, more is better; `cost` is what a token costs, in the one
    currency of the operator's choice; `speed` is tokens a second.
    """

    approve: bool = False
    """A person must approve before it is given a task."""
    quality: float | None = None
    cost: float | None = None
    speed: float | None = None
    security: float | None = None


class ModelTraits(Record, frozen=True, kw_only=True):
    """Traits of a language model, each from 0 to 1 relative to other models (an expensive one has `cost` 1)."""

    cost: float = 0.5
    speed: float = 0.5
    intelligence: float = 0.5


class Agent(Record, frozen=True, kw_only=True):
    """An agent as it is published, in every protocol's own form.

    `name` is the route's name, what clients call it. Schemas are JSON Schemas. `text_input` and `text_output`
    are JSON pointers to the text inside the documents, None where a document has none (see projection.py).
    `input_assumed` and `output_assumed`: the agent publishes no such schema, and the gateway's stands in for it.
    `extra` holds what the target's protocol publishes beyond this, by protocol id, verbatim. `model` is given where
    the agent stands for a language model: then it may serve requests to complete a text. `converses`: earlier turns of
    a thread reach it, by its own memory or by replay. `thread_schema`: of the state of a thread, where the agent keeps
    it; `{}` where it does not say what that is.
    """

    name: str
    version: str = "0.0.0"
    description: str = ""
    input_schema: JsonObject
    output_schema: JsonObject
    config_schema: JsonObject = {}
    thread_schema: JsonObject | None = None
    update_schema: JsonObject | None = None
    interrupts: tuple[InterruptSpec, ...] = ()
    capabilities: AgentCapabilities = AgentCapabilities()
    labels: dict[str, list[str]] = {}
    text_input: str | None = None
    text_output: str | None = None
    input_assumed: bool = False
    output_assumed: bool = False
    url: str | None = None
    extra: dict[str, JsonObject] = {}
    standing: Standing = Standing()
    model: ModelTraits | None = None
    converses: bool = False

    @property
    def id(self) -> str:
        """Its UUID (see `agent_id`)."""
        return agent_id(self.name)


class Outcome(enum.StrEnum):
    """How an interrupt ended. Only `answered` carries a value; nothing else is ever approval."""

    ANSWERED = "answered"
    DECLINED = "declined"
    CANCELLED = "cancelled"


class Interrupt(Record, frozen=True, kw_only=True):
    """A question the agent asks in mid-run. `kind` is `permission`, `elicitation`, `input`, or the agent's own name.

    `payload` is the question as the agent put it; `message` the same for a person to read.
    """

    id: str
    kind: str
    payload: Json = None
    message: str = ""
    answer_schema: JsonObject = {}


class Identity(Record, frozen=True, kw_only=True):
    """An authenticated person or program: an id, and the roles that the authentication vouches for."""

    id: str
    roles: tuple[str, ...] = ()


class Answer(Record, frozen=True, kw_only=True):
    """The answer to an interrupt. `value` is None unless `outcome` is answered.

    `by` is the one who answered, None if not authenticated.
    """

    outcome: Outcome = Outcome.ANSWERED
    value: Json = None
    by: Identity | None = None


class RunStatus(enum.StrEnum):
    """`pending -> running -> (interrupted <-> running) -> success | error | cancelled | timeout`."""

    PENDING = "pending"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    SUCCESS = "success"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"

    ended: bool
    """True for the four statuses that never change again."""
    stopped: bool
    """True when nothing happens without the client: ended or interrupted."""

    def __init__(self, word: str) -> None:
        self.ended = word in {"success", "error", "cancelled", "timeout"}
        self.stopped = self.ended or word == "interrupted"


ENDED = frozenset(status for status in RunStatus if status.ended)
UNFINISHED = tuple(status for status in RunStatus if not status.ended)


class StopReason(enum.StrEnum):
    """Why a run that did not fail stopped."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    MAX_TURN_REQUESTS = "max_turn_requests"
    REFUSAL = "refusal"
    CANCELLED = "cancelled"


class IfBusy(enum.StrEnum):
    """The choices for a run whose thread already has an active one."""

    REJECT = "reject"
    ENQUEUE = "enqueue"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"


class Webhook(Record, frozen=True, kw_only=True):
    """A callback to make when the run's status changes. `protocol` is the inbound whose form the body takes."""

    url: str
    protocol: str


class RunRequest(Record, frozen=True, kw_only=True):
    """A client's request for a run, independent of any protocol.

    `prompt` is set where the client sent words and no document: the engine makes the input of them, and of what the
    client said besides as a document (`input`, None if nothing), and asks for what is missing before it sends the run.
    From then on `input` is what it has made. Left out, `input` is the client's own and is refused if it does not fit.
    `creation` is the client's own request, kept verbatim for protocols that echo it. `attributes` are the
    inbound adapter's own marks on the run (string keys it alone reads). `principal` is who asked, if anybody knows,
    and `tools` patterns of the tools that may be called for them, where that is decided (None: all).
    `native` names losses that the run has unless its agent speaks the client's protocol, too. `files` are the ids of
    the artifacts that the run was given (set by the engine). `id` is the run's, where the inbound half derives it from
    what there may be one run of: a second one is a Conflict, whichever process is asked. Left out, it is a new one.
    `part_of` is the run that this one does the work of: for the client and its door that counts, for the route both do.
    """

    agent: str
    input: Json
    protocol: str
    prompt: str | None = None
    thread: str | None = None
    config: JsonObject = {}
    metadata: JsonObject = {}
    start_at: float | None = None
    if_busy: IfBusy = IfBusy.REJECT
    webhook: Webhook | None = None
    traceparent: str | None = None
    principal: str | None = None
    tools: tuple[str, ...] | None = None
    native: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    creation: JsonObject = {}
    attributes: JsonObject = {}
    id: str | None = None
    part_of: str | None = None


class Failure(Record, frozen=True, kw_only=True):
    """Why a run ended `error` or `timeout`. `code` is a code of the error tree; `message` may be shown.

    `retry_after`: in how many seconds the same may be tried again, if the agent said so.
    """

    code: str
    message: str
    retryable: bool = False
    retry_after: float | None = None

    @classmethod
    def of(cls, error: InterlinguaError) -> Self:
        return cls(code=error.code, message=str(error), retryable=error.retryable, retry_after=error.retry_after)


class Run(Record, frozen=True, kw_only=True):
    """One execution. `output` is the encoded output document, `null` until the run has succeeded.

    `interrupts` are the open ones, oldest first. `upstream` is whatever the outbound adapter needs to find the
    run again after a restart; `dispatched` is set before the run is sent. `losses` counts what could not be
    said, by name. `made` is how many files its agent made, of a run that has ended; None where that is not known.
    """

    id: str
    request: RunRequest
    status: RunStatus = RunStatus.PENDING
    created_at: float
    updated_at: float
    output: msgspec.Raw = NULL
    stop_reason: StopReason | None = None
    failure: Failure | None = None
    interrupts: tuple[Interrupt, ...] = ()
    dispatched: bool = False
    upstream: JsonObject | None = None
    cancel_reason: str | None = None
    losses: dict[str, int] = {}
    made: int | None = None

    @property
    def agent(self) -> str:
        """Name of the agent that runs."""
        return self.request.agent

    @property
    def thread(self) -> str | None:
        """Id of the thread it runs on."""
        return self.request.thread


class RunQuery(Record, frozen=True, kw_only=True):
    """Filter for runs; every given field must match. `metadata`: the run's has these keys with these values.

    `principal`: whoever asked for the run. `brief`: the runs found have no output, and of their request only `agent`,
    `protocol`, `thread` and `principal`; so a page of a list is small, whatever was said.
    """

    agent: str | None = None
    thread: str | None = None
    protocol: str | None = None
    threaded: bool | None = None
    """True: only runs on a thread; False: only those without."""
    statuses: tuple[RunStatus, ...] = ()
    principal: str | None = None
    metadata: JsonObject = {}
    limit: int = 10
    offset: int = 0
    oldest_first: bool = False
    brief: bool = False


OWNER = "owner"
"""Key of `Thread.attributes`: the owner's id, left out for none. The store finds and counts threads by it."""


class ThreadStatus(enum.StrEnum):
    """The state of a thread, which is that of its newest run."""

    IDLE = "idle"
    BUSY = "busy"
    INTERRUPTED = "interrupted"
    ERROR = "error"

    @classmethod
    def after(cls, run: RunStatus) -> "ThreadStatus":
        """The status of a thread whose newest run has this one."""
        return _AFTER[run]


_AFTER = {
    RunStatus.PENDING: ThreadStatus.BUSY,
    RunStatus.RUNNING: ThreadStatus.BUSY,
    RunStatus.INTERRUPTED: ThreadStatus.INTERRUPTED,
    RunStatus.SUCCESS: ThreadStatus.IDLE,
    RunStatus.CANCELLED: ThreadStatus.IDLE,
    RunStatus.ERROR: ThreadStatus.ERROR,
    RunStatus.TIMEOUT: ThreadStatus.ERROR,
}

KEPT_UPDATES = 200
"""Updates of a thread that all count; more push out the oldest."""


class Role(enum.StrEnum):
    """The speaker of a message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class ThreadUpdate(Record, frozen=True, kw_only=True):
    """A change of a conversation outside its runs: modes, commands, title, stray output.

    `protocol` says whose words `kind` and `data` are in. Of most kinds only the newest counts; where `kept` is true
    every one does. `after` is the run that had last started when it came (set by the engine).
    """

    protocol: str
    kind: str
    data: Json = None
    kept: bool = False
    after: str | None = None


class Thread(Record, frozen=True, kw_only=True):
    """A conversation: what each protocol calls thread, session or task.

    `values` is the newest state that a client gave the thread, beside its messages; the whole state is derived from the
    checkpoints, or is with the agent (`Gateway.threads.state`). `checkpoint` is the newest one's id. `upstream` holds
    the outbound adapters' own ids, by agent name. `attributes` are the inbound adapter's own marks. `agent` is set
    where the protocol binds the thread to one (a task of an agent's), and `protocol` names the inbound that made it.
    `updates` are what came beside its runs, oldest first. `untold` is the oldest checkpoint that an agent has not been
    told of, by the agent's name; agents that know all of them are not in it.
    """

    id: str
    created_at: float
    updated_at: float
    protocol: str = ""
    agent: str | None = None
    metadata: JsonObject = {}
    attributes: JsonObject = {}
    values: Json = None
    checkpoint: str | None = None
    status: ThreadStatus = ThreadStatus.IDLE
    upstream: dict[str, JsonObject] = {}
    untold: dict[str, str] = {}
    updates: tuple[ThreadUpdate, ...] = ()

    @property
    def begun(self) -> bool:
        """Whether it has a state. (Records of older versions have `values` and no `checkpoint`.)"""
        return self.checkpoint is not None or self.values is not None


AnyThread = TypeVar("AnyThread", bound=Thread)


class ThreadChange(Record, frozen=True, kw_only=True):
    """An addition to a thread's record. The store applies it to the newest record, so that changes from several
    processes add up.

    Keys replace those of the same name in `metadata`, `attributes`, `upstream` and `untold`; the others stay. None in
    `untold` removes the key.
    """

    metadata: JsonObject = {}
    attributes: JsonObject = {}
    upstream: dict[str, JsonObject] = {}
    untold: dict[str, str | None] = {}
    updates: tuple[ThreadUpdate, ...] = ()

    def of(self, thread: AnyThread) -> AnyThread:
        """The thread with this change."""
        updates = thread.updates
        for update in self.updates:
            updates = with_update(updates, update)
        return replace(
            thread,
            metadata={**thread.metadata, **self.metadata},
            attributes={**thread.attributes, **self.attributes},
            upstream={**thread.upstream, **self.upstream},
            untold={name: point for name, point in {**thread.untold, **self.untold}.items() if point is not None},
            updates=updates,
        )


def with_update(updates: tuple[ThreadUpdate, ...], update: ThreadUpdate) -> tuple[ThreadUpdate, ...]:
    """The updates with one more: it takes the place of the last one of its kind unless every one counts.

    Of those that all count the oldest go when there are more than KEPT_UPDATES.
    """
    if update.kept:
        kept = [each for each in updates if each.kept]
        gone = kept[: max(0, len(kept) + 1 - KEPT_UPDATES)]
        return (*(each for each in updates if not any(each is old for old in gone)), update)
    same = (update.protocol, update.kind)
    return (*(each for each in updates if each.kept or (each.protocol, each.kind) != same), update)


class ChatMessage(Record, frozen=True, kw_only=True):
    """One message of a thread's record: text only, the rest by reference in `metadata`."""

    role: Role
    content: str
    id: str | None = None
    metadata: JsonObject = {}


class Checkpoint(Record, frozen=True, kw_only=True):
    """The thread's state after one run (or patch), as what this step added.

    `messages` are added to those before, or are all there are if `replaces`. `values` is the state beside the messages
    as a client gave it, None if this step left it as it was. A run's checkpoint has none: what older versions kept
    there is the run's output, and no state.
    """

    id: str
    thread: str
    created_at: float
    run: str | None = None
    values: Json = None
    messages: tuple[ChatMessage, ...] = ()
    replaces: bool = False
    metadata: JsonObject = {}


class Artifact(Record, frozen=True, kw_only=True):
    """A file an agent made or a client uploaded. `name` and `relative_path` are labels, never paths on our disk.

    `size` in bytes. `url` is where the gateway serves it. Belongs to a run, a thread or both.
    """

    id: str
    name: str
    run: str | None = None
    thread: str | None = None
    relative_path: str | None = None
    media_type: str = "application/octet-stream"
    size: int = 0
    agent_created: bool = True
    created_at: float = 0.0
    url: str = ""
    metadata: JsonObject = {}


class ThreadQuery(Record, frozen=True, kw_only=True):
    """Filter for threads; as `RunQuery`. `attributes`: the thread's marks have these keys with these values."""

    agent: str | None = None
    protocol: str | None = None
    status: ThreadStatus | None = None
    metadata: JsonObject = {}
    attributes: JsonObject = {}
    limit: int = 10
    offset: int = 0
    oldest_first: bool = False
