"""What the gateway talks about: agents, runs, threads, interrupts, artifacts.

Immutable records (`msgspec` structs); change one with `msgspec.structs.replace`. Times are seconds since the
epoch (float, UTC). JSON values are plain Python objects, except documents that pass through untouched: those
stay encoded (`msgspec.Raw`) so that nobody parses them on the way.
"""

from __future__ import annotations

import enum
import uuid
from typing import Any

import msgspec

Json = Any
JsonObject = dict[str, Any]

NULL = msgspec.Raw(b"null")
AGENT_NAMESPACE = uuid.UUID("6f1c0f53-5a0a-5d3e-9b53-0d4b7c9d6f2a")
OWNER = "owner"
"""Key of `Thread.attributes`: whose it is, nobody's without it. The store finds and counts threads by it."""


def agent_id(name: str) -> str:
    """The UUID of an agent where a protocol wants one: UUIDv5 of the route name, the same on every replica."""
    return str(uuid.uuid5(AGENT_NAMESPACE, name))


class RunStatus(enum.StrEnum):
    """`pending -> running -> (interrupted <-> running) -> success | error | cancelled | timeout`."""

    PENDING = "pending"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    SUCCESS = "success"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"

    @property
    def ended(self) -> bool:
        """True for the four statuses that never change again."""
        return self in ENDED

    @property
    def stopped(self) -> bool:
        """True when nothing happens without the client: ended or interrupted."""
        return self in ENDED or self is RunStatus.INTERRUPTED


ENDED = frozenset({RunStatus.SUCCESS, RunStatus.ERROR, RunStatus.CANCELLED, RunStatus.TIMEOUT})


class Role(enum.StrEnum):
    """Who speaks in a message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class StopReason(enum.StrEnum):
    """Why a run that did not fail stopped."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    MAX_TURN_REQUESTS = "max_turn_requests"
    REFUSAL = "refusal"
    CANCELLED = "cancelled"


class IfBusy(enum.StrEnum):
    """What a run does when its thread already has an active one."""

    REJECT = "reject"
    ENQUEUE = "enqueue"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"


class ThreadStatus(enum.StrEnum):
    """What a thread is doing: the state of its newest run."""

    IDLE = "idle"
    BUSY = "busy"
    INTERRUPTED = "interrupted"
    ERROR = "error"


class Outcome(enum.StrEnum):
    """How an interrupt ended. Only `answered` carries a value; nothing else is ever approval."""

    ANSWERED = "answered"
    DECLINED = "declined"
    CANCELLED = "cancelled"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every record here."""


class InterruptSpec(Record, frozen=True, kw_only=True):
    """One kind of question an agent may ask, as published."""

    kind: str
    payload_schema: JsonObject
    answer_schema: JsonObject


class AgentCapabilities(Record, frozen=True, kw_only=True):
    """What the agent itself can do. The gateway adds callbacks and waiting for every agent."""

    threads: bool = False
    interrupts: bool = False
    streaming: bool = False
    custom_streaming: bool = False
    cancel: bool = False
    artifacts: bool = False
    """It may produce files."""
    files: bool = False
    """It takes uploaded files as input."""
    rollback: bool = False


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
    """What a language model is like beside others: each from 0 to 1, more is more (an expensive model has `cost` 1)."""

    cost: float = 0.5
    speed: float = 0.5
    intelligence: float = 0.5


class Agent(Record, frozen=True, kw_only=True):
    """An agent as it is published, in every protocol's own form.

    `name` is the route's name, what clients call it. Schemas are JSON Schemas. `text_input` and `text_output`
    are JSON pointers to the text inside the documents, None where a document has none (see projection.py).
    `extra` holds what the target's protocol publishes beyond this, by protocol id, verbatim. `model` is given where
    the agent stands for a language model: then it may serve requests to complete a text.
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
    url: str | None = None
    extra: dict[str, JsonObject] = {}
    standing: Standing = Standing()
    model: ModelTraits | None = None

    @property
    def id(self) -> str:
        """Its UUID (see `agent_id`)."""
        return agent_id(self.name)


class Webhook(Record, frozen=True, kw_only=True):
    """A callback to make when the run's status changes. `protocol` is the inbound whose form the body takes."""

    url: str
    protocol: str


class RunRequest(Record, frozen=True, kw_only=True):
    """What a client asked for, in no protocol's words.

    `creation` is the client's own request, kept verbatim for protocols that echo it. `attributes` are the
    inbound adapter's own marks on the run (string keys it alone reads). `principal` is who asked, if anybody knows,
    and `tools` patterns of the tools that a governed agent may call for them (None: all that its operator may).
    `native` names losses that the run has unless its agent speaks the client's protocol, too.
    """

    agent: str
    input: Json
    protocol: str
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
    creation: JsonObject = {}
    attributes: JsonObject = {}


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
    """Somebody whom the gateway knows: an id, and the roles that whoever authenticated them vouches for."""

    id: str
    roles: tuple[str, ...] = ()


class Answer(Record, frozen=True, kw_only=True):
    """What came back for an interrupt. `value` is None unless `outcome` is answered.

    `by` is who answered, None where nobody was authenticated.
    """

    outcome: Outcome = Outcome.ANSWERED
    value: Json = None
    by: Identity | None = None


class Failure(Record, frozen=True, kw_only=True):
    """Why a run ended `error` or `timeout`. `code` is a code of the error tree; `message` may be shown."""

    code: str
    message: str
    retryable: bool = False


class Run(Record, frozen=True, kw_only=True):
    """One execution. `output` is the encoded output document, `null` until the run has succeeded.

    `interrupts` are the open ones, oldest first. `upstream` is whatever the outbound adapter needs to find the
    run again after a restart; `dispatched` is set before the run is sent. `losses` counts what could not be
    said, by name.
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

    @property
    def agent(self) -> str:
        """Name of the agent that runs."""
        return self.request.agent

    @property
    def thread(self) -> str | None:
        """Id of the thread it runs on."""
        return self.request.thread


class ChatMessage(Record, frozen=True, kw_only=True):
    """One message of a thread's record: text only, the rest by reference in `metadata`."""

    role: Role
    content: str
    id: str | None = None
    metadata: JsonObject = {}


class ThreadUpdate(Record, frozen=True, kw_only=True):
    """What changed about a conversation and belongs to none of its runs: its modes, commands, title, stray output.

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

    `values` is the thread's state (the newest checkpoint's). `upstream` holds the outbound adapters' own ids,
    by agent name. `attributes` are the inbound adapter's own marks. `agent` is set where the protocol binds the
    thread to one (a task of an agent's), and `protocol` names the inbound that made it. `updates` are what came
    beside its runs, oldest first.
    """

    id: str
    created_at: float
    updated_at: float
    protocol: str = ""
    agent: str | None = None
    metadata: JsonObject = {}
    attributes: JsonObject = {}
    values: Json = None
    status: ThreadStatus = ThreadStatus.IDLE
    upstream: dict[str, JsonObject] = {}
    updates: tuple[ThreadUpdate, ...] = ()


class Checkpoint(Record, frozen=True, kw_only=True):
    """The thread's state after one run (or patch). `messages` are those that this step added."""

    id: str
    thread: str
    created_at: float
    run: str | None = None
    values: Json = None
    messages: tuple[ChatMessage, ...] = ()
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


class RunQuery(Record, frozen=True, kw_only=True):
    """Filter for runs; every given field must match. `metadata`: the run's has these keys with these values.

    `principal`: whoever asked for the run.
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


class ThreadQuery(Record, frozen=True, kw_only=True):
    """Filter for threads; as `RunQuery`. `attributes`, `values`: the thread's marks, its state, have these keys with
    these values.
    """

    agent: str | None = None
    protocol: str | None = None
    status: ThreadStatus | None = None
    metadata: JsonObject = {}
    attributes: JsonObject = {}
    values: JsonObject = {}
    limit: int = 10
    offset: int = 0
    oldest_first: bool = False
