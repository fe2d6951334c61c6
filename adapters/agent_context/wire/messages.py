"""The params of the protocol's methods (sections 3.1 to 3.5, 4.3), and the arguments of the standard tools (4.2).

tools.json has the definitions of the tools: `agentSearch` in the protocol's own words, the others in its manner.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, model_validator

from adapters.agent_context.wire.base import (
    ID_LENGTH,
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
    checked,
    seconds_of,
)
from gateway.contract import fitting
from gateway.core import delta
from gateway.core.types import JsonObject

# --- the JSON Schemas that agents publish of their documents ---------------------------------------------------------


_VALUES: Final = ("const", "enum", "default", "examples")
"""Keywords whose values are no schemas."""
_REFERENCES: Final = ("$ref", "$dynamicRef")
_SAMPLES: Final[tuple[Any, ...]] = ({}, [], "", 0, None)


def usable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema. Raises ValueError for one that is invalid, refers to something outside of it, or cannot be applied.

    Agents are not trusted, and their schemas are applied to other clients' data: a schema may refer to nothing outside
    (a reference would be fetched), and must not fail only once it is applied.
    """
    if why := fitting.fault(schema):
        raise ValueError(f"no JSON Schema: {why[:200]}")
    try:
        for key, value in _keywords(schema):
            _check(key, value, schema)
        judge = fitting.SchemaJudge(schema)
        for sample in _SAMPLES:
            judge.fits(sample)
    except RecursionError:
        raise ValueError("no JSON Schema: it never ends") from None
    except fitting.Inapplicable as error:
        why = "it never ends" if isinstance(error.__cause__, RecursionError) else str(error)[:200]
        raise ValueError(f"no JSON Schema that can be used: {why}") from None
    return schema


def _check(key: str, value: Any, root: dict[str, Any]) -> None:
    if key in _REFERENCES and isinstance(value, str):
        if not value.startswith("#"):
            raise ValueError("no JSON Schema that can be used: a reference in it leads outside of it")
        if value.startswith("#/") and "$id" not in root and delta.pointer_get(root, value[1:]) is delta.ABSENT:
            raise ValueError("no JSON Schema: a reference in it leads nowhere")
    import regex

    for pattern in [value] if key == "pattern" else value if key == "patternProperties" else ():
        try:
            regex.compile(pattern)
        except (regex.error, TypeError):
            raise ValueError("no JSON Schema that can be used: a pattern in it is no regular expression") from None


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every keyword with its value, however deep."""
    if isinstance(schema, list):
        for item in schema:
            yield from _keywords(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("pattern", *_REFERENCES) and not isinstance(value, str):  # a property of that name
                yield from _keywords(value)
            elif key not in _VALUES:
                yield key, value
                yield from _keywords(value)


def _short(identifier: str) -> str:
    if len(identifier) > ID_LENGTH:
        raise ValueError(f"longer than {ID_LENGTH} characters")
    return identifier


class RecordCapabilities(Wire):
    """Capabilities and features an agent supports"""

    tools: list[str] = Field(description="List of tools the agent can use")
    models: list[str] = Field(description="Language models the agent can work with")
    specializations: list[str] = Field(description="Areas of expertise or specific skills")
    protocols: list[str] = Field(description="Supported protocol versions and extensions")


class AgentMeta(Wire):
    """About the agent, in its own words."""

    version: str | None = None
    provider: str | None = None
    created: str | None = None
    last_active: str | None = None
    description: str | None = Field(default=None, description="What it is for, for people. An extension.")


class AgentAuth(Wire):
    """Credentials of a registration. Never shown."""

    token: SecretStr | None = Field(default=None, description="A token or JWT, as `Authorization: Bearer` would say.")
    signature: Text | None = Field(
        default=None,
        description="Base64 of an Ed25519 signature of the whole agent object less this member (less auth, if nothing "
        "else is in it), as canonical JSON (RFC 8785).",
    )


class Evaluation(Wire):
    """How good it has been, 0 to 10."""

    quality_score: Score | None = None
    evaluation_count: Annotated[Whole, Field(ge=0)] | None = None
    last_evaluated: str | None = None
    reviews: list[str] | None = None


class CostMetrics(Wire):
    """Cost and speed."""

    cost_per_token: Positive | None = None
    average_speed: Positive | None = Field(default=None, description="Tokens per second.")
    average_execution_time: Positive | None = Field(default=None, description="Seconds.")


class Dependency(Wire):
    """A dependency."""

    name: Text
    type: Text
    impact: Unit | None = None
    security_rating: Score | None = Field(default=None, description="0 to 10; the lowest of all is the agent's.")


class AgentEndpoint(Wire):
    """Where it can be called, instead of the connection it registers on. An extension."""

    url: Annotated[str, Field(pattern=r"^(https?|wss?)://[^\s/]", description="http, https, ws or wss.")]
    transport: Literal["auto", "streamable", "sse", "ws"] = Field(
        default="auto", description="How it is spoken to; auto: by its url, and what answers there."
    )


JsonSchema = Annotated[dict[str, Any], AfterValidator(usable)]


class AgentRecord(Wire):
    """Agent object with required fields."""

    id: Annotated[AgentIdentifier, AfterValidator(_short), Field(json_schema_extra={"maxLength": ID_LENGTH})]
    name: Text
    capabilities: RecordCapabilities
    meta: AgentMeta | None = None
    auth: AgentAuth | None = None
    evaluation: Evaluation | None = None
    cost_metrics: CostMetrics | None = None
    dependencies: list[Dependency] | None = None
    endpoint: AgentEndpoint | None = None
    input_schema: JsonSchema | None = Field(
        default=None, description="JSON Schema of the payloads it takes. An extension."
    )
    output_schema: JsonSchema | None = Field(
        default=None, description="JSON Schema of the documents it answers with. An extension."
    )

    def public(self) -> dict[str, Any]:
        """It as it was sent, with every key, less what proves who it is: this may be kept and shown."""
        return self.model_dump(by_alias=True, exclude_unset=True, exclude={"auth"})


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

    @property
    def limits(self) -> Constraints:
        return (self.requirements.constraints if self.requirements is not None else None) or Constraints()


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
        return tuple((self.requirements.capabilities or ()) if self.requirements is not None else ())

    @property
    def constraints(self) -> Constraints:
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


class AgentRestore(Wire):
    """Arguments of `agentRestore`, an extension."""

    agent_id: AgentIdentifier


class AgentRevoke(AgentRestore):
    """Arguments of `agentRevoke`, an extension."""

    reason: str | None = None


class Unregister(AgentRevoke, Params):
    """`agent/unregister`."""


class Heartbeat(AgentRestore, Params):
    """`agent/heartbeat`."""

    status: Text = Field(default="active", description="active; with any other the agent is given no tasks.")


class Revoke(AgentRevoke, Params):
    """`agent/revoke`, an extension."""


class Restore(AgentRestore, Params):
    """`agent/restore`, an extension."""


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


# --- the standard tools (section 4.2) ---------------------------------------------------------------------------------


class ToolCallParams(Params):
    """`tools/call`. The last two are what a client of MCP 2026-07-28 comes back with."""

    name: str
    arguments: dict[str, Any] | None = None
    input_responses: dict[str, Any] | None = None
    request_state: str | None = None


class PageParams(Params):
    """`tools/list`, `resources/list`, `resources/templates/list`, `prompts/list`."""

    cursor: str | None = None


class PromptParams(Params):
    """`prompts/get`."""

    name: str
    arguments: dict[str, str] | None = None


class ResourceParams(Params):
    """`resources/read`, `resources/subscribe`, `resources/unsubscribe`."""

    uri: str


class AgentSearch(Wire):
    """Arguments of `agentSearch`. Left out: every agent matches."""

    capabilities: list[str] | None = Field(
        default=None, description="Each must be one of the agent's tools, models or specializations."
    )
    min_score: Number | None = Field(default=None, description="Least qualityScore, 0 to 10.")
    max_cost: Number | None = Field(default=None, description="Greatest costPerToken.")


class TaskAssign(Wire):
    """Arguments of `taskAssign`: a task, flat; with one of message and payload."""

    id: Text | None = Field(default=None, description="The same id with the same task is the same task.")
    type: Text = "task"
    capabilities: list[str] | None = None
    payload: Any = None
    message: str | None = Field(default=None, description="The task in words, instead of a payload.")
    deadline: DateTime | None = None
    priority: Whole | None = None
    max_tokens: Annotated[Whole, Field(gt=0)] | None = None
    max_cost: Positive | None = None
    min_score: Score | None = None
    agent_id: AgentIdentifier | None = Field(default=None, description="The only agent that may do it.")
    wait: bool = True

    @model_validator(mode="after")
    def _something_to_do(self) -> Self:
        if (self.message is None) == ("payload" not in self.model_fields_set):
            raise ValueError("name one of payload and message")
        return self

    def task(self, identifier: str) -> DelegatedTask:
        """The same as `agent/delegate` has it, under this id."""
        given = self.model_dump(by_alias=True, exclude_none=True)
        limits = ("deadline", "priority", "maxTokens", "maxCost", "minScore")
        needs: JsonObject = {"constraints": {name: given[name] for name in limits if name in given}}
        if self.capabilities is not None:
            needs["capabilities"] = self.capabilities
        payload = self.payload if self.message is None else {"messages": [{"text": self.message}]}
        task = {"id": identifier, "type": self.type, "payload": payload, "requirements": needs}
        return DelegatedTask.model_validate(task)


class AgentEvaluate(Wire):
    """Arguments of `agentEvaluate`."""

    agent_id: AgentIdentifier
    score: Score = Field(description="0 to 10.")
    review: str | None = None
    task_id: Text | None = Field(default=None, description="The task that is judged.")


class TaskAnswer(Wire):
    """Arguments of `taskAnswer`, an extension."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["answer"]},
                {"required": ["outcome"], "properties": {"outcome": {"enum": ["declined", "cancelled"]}}},
            ]
        }
    )

    task_id: Text
    answer: Any = None
    outcome: Literal["answered", "declined", "cancelled"] = "answered"
    interrupt: str | None = Field(default=None, description="Which question, where there are several.")

    @model_validator(mode="after")
    def _an_answer(self) -> Self:
        if self.outcome == "answered" and "answer" not in self.model_fields_set:
            raise ValueError("an answer is missing")
        return self


TaskStatus = Literal["pending", "running", "awaiting_approval", "completed", "failed", "cancelled", "expired"]


class TaskList(Wire):
    """Arguments of `taskList`, an extension. Left out: every task."""

    status: TaskStatus | None = None
    limit: Annotated[Whole, Field(ge=1, le=1000)] = 20


class TaskCancel(Wire):
    """Arguments of `taskCancel`, an extension."""

    task_id: Text
    reason: str | None = None


TOOLS: Final[tuple[JsonObject, ...]] = tuple(json.loads(Path(__file__).with_name("tools.json").read_text("utf-8")))
"""As `tools/list` has them, for every revision of MCP."""
