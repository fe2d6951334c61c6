"""Runs: what is asked for, and what became of it."""

import enum
from typing import Self

import msgspec

from gateway.core.errors import InterlinguaError
from gateway.core.types.questions import Interrupt
from gateway.core.types.records import NULL, Json, JsonObject, Record


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
    """Why a run ended `error` or `timeout`. `code` is a code of the error tree; `message` may be shown."""

    code: str
    message: str
    retryable: bool = False

    @classmethod
    def of(cls, error: InterlinguaError) -> Self:
        return cls(code=error.code, message=str(error), retryable=error.retryable)


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
