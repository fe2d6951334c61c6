"""The params of the protocol's own methods (sections 3.1 to 3.5)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from adapters.agent_context.wire.base import (
    AgentIdentifier,
    DateTime,
    Number,
    Params,
    Positive,
    Score,
    Text,
    Unit,
    Whole,
    Wire,
    seconds_of,
)
from adapters.agent_context.wire.reading import checked, read
from adapters.agent_context.wire.records import AgentRecord

__all__ = [
    "Constraints",
    "Context",
    "Delegate",
    "DelegatedTask",
    "ErrorBody",
    "ErrorNote",
    "Heartbeat",
    "MessageContent",
    "MessageParams",
    "Payload",
    "Register",
    "Requirements",
    "Restore",
    "Revoke",
    "TextMessage",
    "Unregister",
    "payload_of",
    "read",
]


class Constraints(Wire):
    """Limits of a piece of work. Left out: none."""

    deadline: DateTime | None = Field(default=None, description="A date-time with a time zone, by which it is done.")
    max_tokens: Annotated[Whole, Field(gt=0)] | None = Field(
        default=None, description="Most tokens that it may take: at least 1."
    )
    priority: Whole | None = Field(default=None, description="An integer: higher is done first. Left out: 0.")
    max_cost: Positive | None = Field(default=None, description="Greatest costPerToken. An extension.")
    min_score: Score | None = Field(default=None, description="Least qualityScore. An extension.")

    @property
    def deadline_at(self) -> float | None:
        """The deadline as seconds since the epoch."""
        return None if self.deadline is None else seconds_of(self.deadline)


class Requirements(Wire):
    """Requirements of a piece of work."""

    capabilities: list[str] | None = Field(
        default=None, description="Each is one of the agent's tools, models or specializations."
    )
    constraints: Constraints | None = None


class TextMessage(Wire):
    """One of `payload.messages`."""

    text: str


class Context(Wire):
    """Where a message belongs."""

    session_id: Text | None = Field(default=None, description="Messages with the same one are one conversation.")


class Payload(Wire):
    """The fields that the gateway reads of a payload object; all of it goes to the agent."""

    messages: list[TextMessage] | None = None
    input: Any = Field(default=None, description="The agent's input by its own schema. An extension.")
    context: Context | None = None
    requirements: Requirements | None = None


class MessageContent(Wire):
    """Content object with required fields."""

    type: Literal["request", "response", "update"]
    payload: Any = Field(description="Any JSON value; see Payload for what is read of an object.")


class MessageParams(Params):
    """`agent/message`."""

    source: AgentIdentifier | None = None
    target: AgentIdentifier
    content: MessageContent


class DelegatedTask(Wire):
    """Task object with required fields."""

    id: Text
    type: Text
    payload: Any
    requirements: Requirements | None = None
    status: str | None = None

    @property
    def needed(self) -> tuple[str, ...]:
        """The capabilities that are required."""
        return tuple((self.requirements.capabilities or ()) if self.requirements is not None else ())

    @property
    def constraints(self) -> Constraints:
        """The constraints; none of them set where it has none."""
        return (self.requirements.constraints if self.requirements is not None else None) or Constraints()


class Delegate(Params):
    """`agent/delegate`. `source`, `target` and `wait` are extensions."""

    task: DelegatedTask
    source: AgentIdentifier | None = Field(default=None, description="Who delegates; it is not chosen itself.")
    target: AgentIdentifier | None = Field(default=None, description="The only agent that may do it. Left out: any.")
    wait: bool = Field(
        default=True, description="false: answered at once; the outcome is told by agent/message, type response."
    )


class Register(Params):
    """`agent/register`."""

    agent: AgentRecord


class Unregister(Params):
    """`agent/unregister`."""

    agent_id: AgentIdentifier
    reason: str | None = None


class Heartbeat(Params):
    """`agent/heartbeat`."""

    agent_id: AgentIdentifier
    status: Text = Field(default="active", description="active; with any other the agent is given no tasks.")


class Revoke(Params):
    """`agent/revoke`, an extension."""

    agent_id: AgentIdentifier
    reason: str | None = None


class Restore(Params):
    """`agent/restore`, an extension."""

    agent_id: AgentIdentifier


class ErrorBody(Wire):
    """An error."""

    code: Whole
    message: str
    details: Any = Field(default=None, description="expected and received, where a value did not fit.")


class ErrorNote(Params):
    """`agent/error`: what has no answer to go in. `source` is an extension."""

    error: ErrorBody
    source: AgentIdentifier | None = None


def payload_of(payload: Any, at: str = "/content/payload") -> Payload:
    """Read a payload as far as possible; one that is not an object is empty.

    An agent's own payload may have the same keys with other meanings: what does not have the form of Payload at all
    (a context that is no object, say) is not read, only a requirement that has it and does not fit is refused.
    Raises RpcError as `read`, with the path below `at`.
    """
    if not isinstance(payload, dict):
        return Payload()
    found: dict[str, Any] = {}
    messages, context, requirements = (payload.get(key) for key in ("messages", "context", "requirements"))
    if isinstance(messages, list) and all(isinstance(m, dict) and isinstance(m.get("text"), str) for m in messages):
        found["messages"] = messages
    if isinstance(context, dict):
        session = context.get("sessionId")
        found["context"] = context if session is None or (isinstance(session, str) and session) else {}
    if "input" in payload:
        found["input"] = payload["input"]
    if isinstance(requirements, dict) and isinstance(requirements.get("constraints"), dict | None):
        found["requirements"] = requirements
    return checked(found, Payload, at)


# --- sampling (section 4.3), as MCP has it: what has to be read of it ------------------------------------------------


class Block(Wire):
    """A content block; of any type but text the other members are kept as they are."""

    type: str
    text: str | None = None


class SamplingMessage(Wire):
    """One message of the conversation."""

    role: Literal["user", "assistant"]
    content: Block | list[Block]

    @property
    def blocks(self) -> list[Block]:
        """The content as a list."""
        return self.content if isinstance(self.content, list) else [self.content]


class ModelHint(Wire):
    """A name, or a part of one, of a model that would do."""

    name: str | None = None


class ModelPreferences(Wire):
    """Priorities for the choice of a model; each 0 to 1."""

    hints: list[ModelHint] | None = None
    cost_priority: Unit | None = None
    speed_priority: Unit | None = None
    intelligence_priority: Unit | None = None


class CreateMessage(Params):
    """`sampling/createMessage`."""

    messages: list[SamplingMessage]
    max_tokens: Annotated[Whole, Field(gt=0)]
    system_prompt: str | None = None
    temperature: Number | None = None
    stop_sequences: list[str] | None = None
    model_preferences: ModelPreferences | None = None
    include_context: str | None = None
    metadata: dict[str, Any] | None = None


class MessageCreated(Params):
    """The result of `sampling/createMessage`."""

    role: Literal["user", "assistant"]
    content: Block | list[Block]
    model: str
    stop_reason: str | None = None
