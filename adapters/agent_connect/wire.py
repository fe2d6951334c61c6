"""The messages of Agent Connect 0.2.3, without logic. Names are those of `openapi.json`'s schemas.

Requests that clients send us are `TypedDict`s, read by pydantic (`TypeAdapter`): what comes out is a plain dict with
exactly the keys that were sent, unknown ones too, so that it is at once validated and the verbatim `creation`.

What we say to clients are msgspec structs; documents that pass through stay encoded (`msgspec.Raw`). What agents say to
us is read with more patience, by the structs of `wire_stream.py`. Stream updates are put together from bytes in
`codec_stream.py`: they are the protocol's hot path.

Three conventions join the halves, so that Agent Connect to Agent Connect loses nothing:

- `Agent.extra["agent_connect"]` is the agent's descriptor as it came, `{"metadata": ..., "specs": ...}`.
- What an upstream run output says beyond the core (`messages`, `errcode`, unknown members) is kept verbatim in
  `Run.upstream[UPSTREAM_OUTPUT]`, and what a stream update says beyond it in the event's `origin`. The
  inbound half lays both over what it writes, except the members that the gateway itself decides (`GATEWAY_MEMBERS`).
- A `custom` update of an agent is the event `Custom(name="agent_connect", data=update)`.
"""

from typing import Annotated, Any, Literal, NotRequired
from urllib.parse import urlsplit

import msgspec
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StringConstraints, TypeAdapter
from typing_extensions import TypedDict

from gateway.core.types import JsonObject
from gateway.wire import strict

PROTOCOL = "agent_connect"
EVENT = "agent_event"
"""The one value of `event:` in its streams; the kind is `type` inside the data."""
UPSTREAM_OUTPUT = "agent_connect.output"

STATE_UNREAD = "interlingua.state"
"""Key of a thread's metadata as clients are told it: why the agent did not give the state that it keeps."""
ROLLBACK = "rollback"
"""`Run.cancel_reason` of a cancel with `action=rollback`, which an agent of this protocol is asked for too."""
GATEWAY_MEMBERS = frozenset({"type", "run_id", "status", "values", "interrupt", "update", "description"})

# --- requests ----------------------------------------------------------------------------------------------------

_OPEN = ConfigDict(extra="allow", strict=True, defer_build=True)
"""Said of each type: of one that inherits it pydantic would make the validator at once, with the module."""

Mode = Literal["values", "custom"]
MODES: tuple[Mode, ...] = ("values", "custom")

Whole = Annotated[int, BeforeValidator(strict.whole)]
Limit = Annotated[Whole, Field(ge=1, le=1000)]
MOST = 2**63 - 1
"""The greatest whole number that the store holds."""
Offset = Annotated[Whole, Field(ge=0), AfterValidator(lambda value: min(value, MOST))]
"""Beyond `MOST` there is nothing, as there is at it."""
_UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
Uuid = Annotated[str, StringConstraints(pattern=_UUID, to_lower=True)]


def _modes(value: Any) -> Any:
    for mode in value if isinstance(value, list) else [value]:
        if value is not None and mode not in MODES:
            raise ValueError("Input should be 'values', 'custom' or a list of them")
    return value


def _web_address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("Input should be an http or https URL")
    return value


Modes = Annotated[Any, AfterValidator(_modes)]
Webhook = Annotated[str, StringConstraints(min_length=1, max_length=65536), AfterValidator(_web_address)]


class RunConfig(TypedDict, total=False):
    """`RunCreate.config`."""

    __pydantic_config__ = _OPEN  # type: ignore[misc]
    tags: list[str] | None
    recursion_limit: Whole | None
    configurable: JsonObject | None


class RunCreate(TypedDict, total=False):
    """Fields that both kinds of run have. `callback` is the older documentation's name for `webhook`."""

    __pydantic_config__ = _OPEN  # type: ignore[misc]
    agent_id: str | None
    input: Any
    metadata: JsonObject | None
    config: RunConfig | None
    webhook: Webhook | None
    callback: Any
    stream_mode: Modes
    on_disconnect: Literal["cancel", "continue"] | None
    multitask_strategy: Literal["reject", "rollback", "interrupt", "enqueue"] | None
    after_seconds: Annotated[Whole, Field(ge=0, le=MOST)] | None


class RunCreateStateless(RunCreate, total=False):
    """`POST /runs`, `/runs/wait`, `/runs/stream`."""

    __pydantic_config__ = _OPEN  # type: ignore[misc]
    on_completion: Literal["delete", "keep"] | None


class RunCreateStateful(RunCreate, total=False):
    """The same on a thread."""

    __pydantic_config__ = _OPEN  # type: ignore[misc]
    stream_subgraphs: bool | None
    if_not_exists: Literal["create", "reject"] | None


class RunSearchRequest(TypedDict, total=False):
    """`POST /runs/search`."""

    __pydantic_config__ = _OPEN  # type: ignore[misc]
    agent_id: str | None
    status: Literal["pending", "error", "success", "timeout", "interrupted"] | None
    metadata: JsonObject | None
    limit: Limit | None
    offset: Offset | None


class AgentSearchRequest(TypedDict, total=False):
    """`POST /agents/search`."""

    __pydantic_config__ = _OPEN  # type: ignore[misc]
    name: str | None
    version: str | None
    limit: Limit | None
    offset: Offset | None


class InstanceCreate(TypedDict, total=False):
    """`POST /agents/{agent_id}/instances`, this gateway's own."""

    __pydantic_config__ = _OPEN  # type: ignore[misc]
    config: RunConfig | None


class ThreadCreate(TypedDict, total=False):
    """`POST /threads`."""

    __pydantic_config__ = _OPEN  # type: ignore[misc]
    thread_id: Uuid | None
    metadata: JsonObject | None
    if_exists: Literal["raise", "do_nothing"] | None


class ThreadSearchRequest(TypedDict, total=False):
    """`POST /threads/search`."""

    __pydantic_config__ = _OPEN  # type: ignore[misc]
    metadata: JsonObject | None
    values: JsonObject | None
    status: Literal["idle", "busy", "interrupted", "error"] | None
    limit: Limit | None
    offset: Offset | None


class CheckpointRef(TypedDict):
    """`ThreadCheckpoint`."""

    __pydantic_config__ = _OPEN  # type: ignore[misc]
    checkpoint_id: Uuid


class PatchMessage(TypedDict):
    """`Message` as a client may write it: `content` is text or a list of blocks."""

    __pydantic_config__ = _OPEN  # type: ignore[misc]
    role: str
    content: Any
    id: NotRequired[str | None]
    metadata: NotRequired[JsonObject | None]


class ThreadPatch(TypedDict, total=False):
    """`PATCH /threads/{thread_id}`."""

    __pydantic_config__ = _OPEN  # type: ignore[misc]
    checkpoint: CheckpointRef | None
    metadata: JsonObject | None
    values: Any
    messages: list[PatchMessage] | None


stateless: TypeAdapter[RunCreateStateless] = TypeAdapter(RunCreateStateless)
stateful: TypeAdapter[RunCreateStateful] = TypeAdapter(RunCreateStateful)
run_search: TypeAdapter[RunSearchRequest] = TypeAdapter(RunSearchRequest)
agent_search: TypeAdapter[AgentSearchRequest] = TypeAdapter(AgentSearchRequest)
instance_create: TypeAdapter[InstanceCreate] = TypeAdapter(InstanceCreate)
thread_create: TypeAdapter[ThreadCreate] = TypeAdapter(ThreadCreate)
thread_search: TypeAdapter[ThreadSearchRequest] = TypeAdapter(ThreadSearchRequest)
thread_patch: TypeAdapter[ThreadPatch] = TypeAdapter(ThreadPatch)
resume: TypeAdapter[Any] = TypeAdapter(Any)

# --- what we say ----------------------------------------------------------------------------------------------


class _Said(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Base: members that are None are left out."""


class AgentRef(_Said, kw_only=True):
    name: str
    version: str
    url: str | None = None


class AgentMetadata(_Said, kw_only=True):
    ref: AgentRef
    description: str


class ConnectAgent(_Said, kw_only=True):
    """`agent_id` is a UUID."""

    agent_id: str
    metadata: AgentMetadata


class StreamingModes(_Said, kw_only=True):
    values: bool | None = None
    custom: bool | None = None


class ConnectCapabilities(_Said, kw_only=True):
    threads: bool | None = None
    interrupts: bool | None = None
    callbacks: bool | None = None
    streaming: StreamingModes | None = None


class ConnectInterruptSpec(_Said, kw_only=True):
    interrupt_type: str
    interrupt_payload: JsonObject
    resume_payload: JsonObject


class AgentACPSpec(_Said, kw_only=True):
    capabilities: ConnectCapabilities
    input: JsonObject
    output: JsonObject
    config: JsonObject
    custom_streaming_update: JsonObject | None = None
    thread_state: JsonObject | None = None
    interrupts: list[ConnectInterruptSpec] | None = None


class AgentACPDescriptor(_Said, kw_only=True):
    metadata: AgentMetadata
    specs: AgentACPSpec


class ConnectRun(_Said, kw_only=True):
    """`RunStateless` and `RunStateful`. Times are ISO 8601; servers in use write them without a zone (UTC)."""

    run_id: str
    agent_id: str
    created_at: str
    updated_at: str
    status: str
    creation: JsonObject
    thread_id: str | None = None


class ConnectMessage(_Said, kw_only=True):
    """`content` may be a list of blocks when read; it is always text when written."""

    role: str
    content: Any
    id: str | None = None
    metadata: JsonObject | None = None


class ErrorDefinition(_Said, kw_only=True):
    """One kind of error, as the prose documentation wants it defined."""

    errcode: int
    code: str
    description: str
    transient: bool


class RunResult(_Said, kw_only=True, tag_field="type", tag="result"):
    values: msgspec.Raw | None = None
    messages: list[ConnectMessage] | None = None


class RunInterrupt(_Said, kw_only=True, tag_field="type", tag="interrupt"):
    """`interrupt` is mostly an object keyed by the interrupt's type."""

    interrupt: Any


class RunError(_Said, kw_only=True, tag_field="type", tag="error"):
    """`transient` is the prose documentation's: whether the same may succeed when it is tried again."""

    run_id: str
    errcode: int
    description: str
    transient: bool


RunOutput = RunResult | RunInterrupt | RunError


class ThreadCheckpoint(_Said, kw_only=True):
    checkpoint_id: str


class ConnectThread(_Said, kw_only=True):
    thread_id: str
    created_at: str
    updated_at: str
    metadata: JsonObject | None
    status: str
    values: Any = None
    messages: list[ConnectMessage] | None = None


class ThreadState(_Said, kw_only=True):
    checkpoint: ThreadCheckpoint
    values: Any
    messages: list[ConnectMessage] | None = None
    metadata: JsonObject | None = None
