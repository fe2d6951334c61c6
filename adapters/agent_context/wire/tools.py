"""The standard tools (section 4.2): their definitions (tools.json), and their arguments as models.

`agentSearch` is defined in the protocol's own words; the others follow its manner.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

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
from adapters.agent_context.wire.messages import DelegatedTask
from gateway.core.types import JsonObject


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


class AgentRevoke(Wire):
    """Arguments of `agentRevoke`, an extension."""

    agent_id: AgentIdentifier
    reason: str | None = None


class AgentRestore(Wire):
    """Arguments of `agentRestore`, an extension."""

    agent_id: AgentIdentifier


TOOLS: Final[tuple[JsonObject, ...]] = tuple(json.loads(Path(__file__).with_name("tools.json").read_text("utf-8")))
"""As `tools/list` has them, for every revision of MCP."""
