"""What the gateway answers and tells: for the published schema, and for tests that hold it against that.

Nothing is made of these: answers are put together where they come from.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from adapters.agent_context.wire.base import AgentIdentifier, DateTime, Params, Positive, Score, Unit, Whole, Wire
from adapters.agent_context.wire.messages import Requirements, TextMessage
from adapters.agent_context.wire.records import AgentRecord, Evaluation

Count = Annotated[Whole, Field(ge=0)]

# --- answers of the protocol's own methods ---------------------------------------------------------------------------


class AgentFeatures(Wire):
    """`capabilities.agent`: of the gateway, what it serves; of a client, `messages`: it can be sent agent/message."""

    discovery: bool | None = None
    evaluation: bool | None = None
    coordination: bool | None = None
    monitoring: bool | None = None
    messages: Any = None
    protocols: list[str] | None = None


class Capabilities(Wire):
    """Those of MCP, and `agent`."""

    agent: AgentFeatures


class RegisterResult(Params):
    """Answer of agent/register (appendix B)."""

    status: Literal["registered"]
    directory: Literal["agent://directory"]
    capabilities: Capabilities


class UnregisterResult(Params):
    """Answer of agent/unregister."""

    status: Literal["unregistered"]


class HeartbeatResult(Params):
    """Answer of agent/heartbeat, where it came as a request."""


class RevokeResult(Params):
    """Answer of agent/revoke."""

    status: Literal["revoked"]
    known: bool = Field(description="false: nobody has this id now; it is refused all the same.")


class RestoreResult(Params):
    """Answer of agent/restore."""

    status: Literal["restored"]


class Answered(Wire):
    """Content of an answer."""

    type: Literal["response", "request", "update"]
    payload: Any = Field(description="Any JSON value; of the gateway's answers a ResponsePayload.")


class MessageResult(Params):
    """Answer of agent/message.

    An agent may answer with content of type request (it asks: the next message is the answer), or only acknowledge
    (a status such as accepted, or nothing): then an agent/message of type response with the same correlationId follows.
    """

    status: str | None = Field(
        default=None, description="completed, with content; accepted, received, ...: it follows."
    )
    content: Answered | None = None


class ResponsePayload(Wire):
    """What an agent answered, of whatever protocol it is."""

    messages: list[TextMessage]
    output: Any = Field(default=None, description="Its output document, where it is more than the text.")
    artifacts: list[Artifact] | None = None


class Artifact(Wire):
    """A file."""

    name: str
    url: str
    mime_type: str | None = None
    size: Count | None = None


class Question(Wire):
    """Payload of an agent/message of type request by which the gateway asks an agent in the middle of its request."""

    messages: list[TextMessage]
    kind: str = Field(description="permission, elicitation, input, or the asking agent's own name for it.")
    answer_schema: dict[str, Any] = Field(description="JSON Schema of the answer.")
    question: Any = Field(default=None, description="As the asking agent put it.")


class AnswerPayload(Wire):
    """Payload of the answer to it, of type response. Where it has neither member it is the answer itself."""

    answer: Any = None
    outcome: Literal["answered", "declined", "cancelled"] | None = None


# --- tasks -----------------------------------------------------------------------------------------------------------


class Attempt(Wire):
    """An agent that was given the task."""

    number: Annotated[Whole, Field(ge=1)]
    agent: AgentIdentifier
    status: str
    error: str | None = None


class OpenQuestion(Wire):
    """What a task waits for."""

    id: str
    kind: str
    message: str


class TaskError(Wire):
    """Why a task failed."""

    code: Whole
    message: str


class TaskState(Params):
    """A task as it is told. What it says, and what came of it, is told to who delegated it only."""

    id: str
    type: str
    status: Literal["pending", "running", "awaiting_approval", "completed", "failed", "cancelled", "expired"]
    priority: Whole
    deadline: DateTime | None = None
    requirements: Requirements
    agent: AgentIdentifier | None = None
    attempts: list[Attempt]
    created_at: DateTime
    updated_at: DateTime
    payload: Any = None
    result: Any = Field(default=None, description="A ResponsePayload, or what the agent's answer consists of.")
    error: TaskError | None = None
    reason: str | None = Field(default=None, description="Why it was cancelled.")
    interrupts: list[OpenQuestion] | None = None


class DelegateResult(Params):
    """Answer of agent/delegate. `_meta` has the Assignment as interlingua/assignment."""

    task: TaskState


class Ranked(Wire):
    """An agent that fits."""

    agent: AgentIdentifier
    score: Unit
    factors: dict[str, Unit]


class LeftOut(Wire):
    """An agent that does not, or not now."""

    agent: AgentIdentifier
    reason: str


class Assignment(Wire):
    """Why an agent was chosen: `interlingua/assignment` of `_meta`."""

    agent: AgentIdentifier | None = None
    weights: dict[str, Positive]
    ranked: list[Ranked]
    left_out: list[LeftOut]
    considered: Count | None = None


# --- resources -------------------------------------------------------------------------------------------------------


class DirectoryEntry(AgentRecord):
    """An agent of the directory, of whatever protocol it is. Never with auth."""

    status: Literal["active", "busy", "inactive", "offline", "revoked"]


class DirectoryBody(Wire):
    """Text of agent://directory."""

    agents: list[DirectoryEntry]


class TasksBody(Wire):
    """Text of agent://tasks: newest first."""

    tasks: list[TaskState]


class AgentCounts(Wire):
    """How many agents there are, by status."""

    total: Count
    active: Count
    busy: Count
    inactive: Count
    offline: Count
    revoked: Count


class Revoked(Wire):
    """An agent whose access is revoked."""

    agent_id: AgentIdentifier
    since: DateTime
    reason: str | None = None
    until: DateTime | None = Field(default=None, description="When it is given back by itself: a suspension.")


class StatusBody(Wire):
    """Text of agent://status: agents that the reader may read about, all tasks, the connections of this process."""

    protocol: str
    agents: AgentCounts
    tasks: Runs
    connections: Count
    revoked: list[Revoked] | None = Field(default=None, description="For who may revoke them.")


class Runs(Wire):
    """How many runs there were, by what became of them."""

    total: Count
    pending: Count
    running: Count
    interrupted: Count
    success: Count
    error: Count
    cancelled: Count
    timeout: Count


class ExecutionTime(Wire):
    """Of the last runs that succeeded, in seconds."""

    runs: Count
    p50: Positive
    p95: Positive
    max: Positive


class ConductCounts(Wire):
    """What an agent did in the window under way."""

    requests: Count
    refusals: Count
    failures: Count
    window: Positive = Field(description="Seconds that a window lasts.")


class MetricsBody(Wire):
    """Text of agent://metrics/{agentId}: what the gateway measured, and how others evaluated. No user data."""

    agent_id: AgentIdentifier
    status: str
    runs: Runs
    active_runs: Count
    conduct: ConductCounts
    success_rate: Unit | None = None
    last_active: DateTime | None = None
    average_execution_time: Positive | None = Field(default=None, description="Seconds.")
    execution_time: ExecutionTime | None = None
    evaluation: Evaluation | None = None


class ResourceContents(Wire):
    """A resource as text."""

    uri: str
    mime_type: Literal["application/json"]
    text: str


class ReadResult(Params):
    """Answer of resources/read. The text is a DirectoryBody, TasksBody, StatusBody or MetricsBody as JSON."""

    contents: list[ResourceContents]


class Updated(Params):
    """Params of notifications/resources/updated."""

    uri: str


# --- tools -----------------------------------------------------------------------------------------------------------


class Found(Wire):
    """An agent that a search found (appendix B)."""

    id: AgentIdentifier
    name: str
    quality_score: Score | None = None
    cost_per_token: Positive | None = None


class FoundAgents(Wire):
    """`_meta` of a search's result, and its structuredContent."""

    agents: list[Found]


class TextBlock(Wire):
    """A content block."""

    type: Literal["text"]
    text: str


class SearchResult(Wire):
    """Result of the tool agentSearch (appendix B)."""

    content: list[TextBlock]
    structured_content: FoundAgents | None = None
    is_error: bool | None = None
    meta: FoundAgents = Field(alias="_meta")


class EvaluateOutput(Wire):
    """structuredContent of the tool agentEvaluate."""

    agent_id: AgentIdentifier
    evaluation: Evaluation


class EvaluateResult(Params):
    """Result of the tool agentEvaluate."""

    content: list[TextBlock]
    structured_content: EvaluateOutput | None = None
    is_error: bool | None = None


class TaskOutput(Wire):
    """structuredContent of the tools taskAssign, taskAnswer and taskCancel."""

    task: TaskState


class TaskToolResult(Params):
    """Result of the tools taskAssign, taskAnswer and taskCancel.

    isError of taskAssign and taskAnswer where the task failed or waits for an answer.
    """

    content: list[TextBlock]
    structured_content: TaskOutput | None = None
    is_error: bool | None = None


class TaskListResult(Params):
    """Result of the tool taskList."""

    content: list[TextBlock]
    structured_content: TasksBody | None = None
    is_error: bool | None = None


class Access(Wire):
    """structuredContent of the tools agentRevoke and agentRestore."""

    agent_id: AgentIdentifier
    status: Literal["revoked", "restored"]
    known: bool | None = Field(default=None, description="As in the answer of agent/revoke.")


class AccessResult(Params):
    """Result of the tools agentRevoke and agentRestore."""

    content: list[TextBlock]
    structured_content: Access | None = None
    is_error: bool | None = None


class ToolFailure(Params):
    """Result of any tool that was called wrongly: `_meta` tells why as interlingua/failure."""

    content: list[TextBlock]
    is_error: Literal[True]


# --- errors ----------------------------------------------------------------------------------------------------------


class ErrorDetails(Wire):
    """What did not fit."""

    expected: Any = None
    received: Any = None


class ErrorData(Wire):
    """`data` of every error answer."""

    code: str = Field(description="Which error it is, in words: invalid, not_found, denied, ...")
    retryable: bool | None = Field(default=None, description="Whether the same request may succeed later.")
    path: str | None = Field(default=None, description="JSON pointer into the params.")
    details: ErrorDetails | None = None
    correlation_id: str | None = None


class ErrorObject(Wire):
    """`error` of an answer."""

    code: Whole
    message: str
    data: ErrorData | None = None
