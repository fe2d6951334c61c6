"""The standard tools (section 4.2): their definitions, and their arguments as models.

`agentSearch` is defined in the protocol's own words; the others follow its manner.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import ConfigDict, Field, model_validator

from adapters.agent_context.wire.base import (
    AgentIdentifier,
    DateTime,
    Number,
    Params,
    Positive,
    Score,
    Text,
    Whole,
    Wire,
)
from adapters.agent_context.wire.constants import (
    AGENT_EVALUATE,
    AGENT_RESTORE,
    AGENT_REVOKE,
    AGENT_SEARCH,
    TASK_ANSWER,
    TASK_ASSIGN,
    TASK_CANCEL,
    TASK_LIST,
)
from adapters.agent_context.wire.messages import Task
from gateway.core.types import JsonObject


class CallTool(Params):
    """`tools/call`. The last two are what a client of MCP 2026-07-28 comes back with."""

    name: str
    arguments: dict[str, Any] | None = None
    input_responses: dict[str, Any] | None = None
    request_state: str | None = None


class Page(Params):
    """`tools/list`, `resources/list`, `resources/templates/list`, `prompts/list`."""

    cursor: str | None = None


class GetPrompt(Params):
    """`prompts/get`."""

    name: str
    arguments: dict[str, str] | None = None


class Resource(Params):
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

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["message"], "properties": {"message": {"type": "string"}}},
                {"required": ["payload"]},
            ]
        }
    )

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

    def task(self, identifier: str) -> Task:
        """The same as `agent/delegate` has it, under this id."""
        given = self.model_dump(by_alias=True, exclude_none=True)
        limits = ("deadline", "priority", "maxTokens", "maxCost", "minScore")
        needs: JsonObject = {"constraints": {name: given[name] for name in limits if name in given}}
        if self.capabilities is not None:
            needs["capabilities"] = self.capabilities
        payload = self.payload if self.message is None else {"messages": [{"text": self.message}]}
        task = {"id": identifier, "type": self.type, "payload": payload, "requirements": needs}
        return Task.model_validate(task)


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


class AgentRevoke(Wire):
    """Arguments of `agentRevoke`, an extension."""

    agent_id: AgentIdentifier
    reason: str | None = None


class AgentRestore(Wire):
    """Arguments of `agentRestore`, an extension."""

    agent_id: AgentIdentifier


_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_ID: Final = {"type": "string", "pattern": "^[a-zA-Z0-9-_]+$"}

SEARCH_TOOL: Final[JsonObject] = {
    "name": AGENT_SEARCH,
    "description": "Find agents matching specific criteria",
    "inputSchema": {
        "type": "object",
        "properties": {
            "capabilities": _TEXTS,
            "minScore": {"type": "number"},
            "maxCost": {"type": "number"},
        },
    },
}
ASSIGN_TOOL: Final[JsonObject] = {
    "name": TASK_ASSIGN,
    "description": "Assign a task to the best-matching agent",
    "inputSchema": {
        "type": "object",
        "properties": {
            "message": {"type": "string", "description": "The task in words; or payload"},
            "payload": {"description": "The task as JSON; or message"},
            "capabilities": {**_TEXTS, "description": "What the agent must be able to do"},
            "type": {"type": "string", "description": "What kind of task it is"},
            "id": {"type": "string", "description": "The same id with the same task is the same task"},
            "deadline": {"type": "string", "format": "date-time", "description": "By when, with a time zone"},
            "priority": {"type": "integer", "description": "Higher is done first; 0 if left out"},
            "maxTokens": {"type": "integer", "minimum": 1},
            "maxCost": {"type": "number", "minimum": 0, "description": "Greatest cost per token"},
            "minScore": {"type": "number", "minimum": 0, "maximum": 10},
            "agentId": {**_ID, "description": "The only agent that may do it"},
            "wait": {"type": "boolean", "description": "false: do not wait for the result; true if left out"},
        },
    },
}
EVALUATE_TOOL: Final[JsonObject] = {
    "name": AGENT_EVALUATE,
    "description": "Provide feedback on agent performance",
    "inputSchema": {
        "type": "object",
        "properties": {
            "agentId": _ID,
            "score": {"type": "number", "minimum": 0, "maximum": 10},
            "review": {"type": "string"},
            "taskId": {"type": "string"},
        },
        "required": ["agentId", "score"],
    },
}
ANSWER_TOOL: Final[JsonObject] = {
    "name": TASK_ANSWER,
    "description": "Answer the question that a task waits for",
    "inputSchema": {
        "type": "object",
        "properties": {
            "taskId": {"type": "string"},
            "answer": {"description": "As the question wants it"},
            "outcome": {"type": "string", "enum": ["answered", "declined", "cancelled"]},
            "interrupt": {"type": "string", "description": "Which question, where there are several"},
        },
        "required": ["taskId"],
    },
}
LIST_TOOL: Final[JsonObject] = {
    "name": TASK_LIST,
    "description": "List tasks, the newest first",
    "inputSchema": {
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": list(get_args(TaskStatus))},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "20 if left out"},
        },
    },
    "annotations": {"readOnlyHint": True},
}
CANCEL_TOOL: Final[JsonObject] = {
    "name": TASK_CANCEL,
    "description": "Cancel a task of your own",
    "inputSchema": {
        "type": "object",
        "properties": {"taskId": {"type": "string"}, "reason": {"type": "string"}},
        "required": ["taskId"],
    },
    "annotations": {"destructiveHint": True, "idempotentHint": True},
}
REVOKE_TOOL: Final[JsonObject] = {
    "name": AGENT_REVOKE,
    "description": "Revoke the access of an agent: its work is cancelled, and it gets and may do nothing any more",
    "inputSchema": {
        "type": "object",
        "properties": {"agentId": _ID, "reason": {"type": "string"}},
        "required": ["agentId"],
    },
    "annotations": {"destructiveHint": True, "idempotentHint": True},
}
RESTORE_TOOL: Final[JsonObject] = {
    "name": AGENT_RESTORE,
    "description": "Give an agent back the access that was revoked",
    "inputSchema": {"type": "object", "properties": {"agentId": _ID}, "required": ["agentId"]},
    "annotations": {"destructiveHint": False, "idempotentHint": True},
}
TOOLS: Final[tuple[JsonObject, ...]] = (
    SEARCH_TOOL,
    ASSIGN_TOOL,
    EVALUATE_TOOL,
    ANSWER_TOOL,
    LIST_TOOL,
    CANCEL_TOOL,
    REVOKE_TOOL,
    RESTORE_TOOL,
)
"""As `tools/list` has them, for every revision of MCP."""
