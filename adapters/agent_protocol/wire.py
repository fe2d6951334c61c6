"""Agent Protocol's own messages (`openapi.yml` v1, components/schemas). No logic.

Requests of clients are strict: what is wrong is answered 422. What agents say is read leniently, as servers in use
leave fields out and add their own; `model_extra` keeps what no field names.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, StrictBool, StrictStr

Status = Literal["created", "running", "completed"]


class TaskRequestBody(BaseModel):
    """Body of `POST tasks`; every field may be missing, and so may the body."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    input: StrictStr | None = None
    additional_input: dict[str, Any] | None = None


class StepRequestBody(TaskRequestBody):
    """Body of `POST steps`."""


def named(value: Any) -> Any:
    """The specification's examples, and old servers, give ids where its schema says objects."""
    return {"artifact_id": value, "file_name": value} if isinstance(value, str) else value


class AgentAnswer(BaseModel):
    """Base of what agents answer."""

    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True, defer_build=True)


class TaskArtifact(AgentAnswer):
    """A file of a task's."""

    artifact_id: str
    file_name: str = ""
    agent_created: bool = True
    relative_path: str | None = None


ArtifactItem = Annotated[TaskArtifact, BeforeValidator(named)]


def _list(value: Any) -> Any:
    return [] if value is None else value


class Task(AgentAnswer):
    """A task; `steps` is what the reference server adds."""

    task_id: str
    input: Any = None
    additional_input: Any = None
    artifacts: Annotated[list[ArtifactItem], BeforeValidator(_list)] = []


class Step(AgentAnswer):
    """A step, planned or executed. `output` is a string by the schema and anything in practice."""

    step_id: str
    task_id: str = ""
    name: str | None = None
    status: Status = "completed"
    input: Any = None
    additional_input: Any = None
    output: Any = None
    additional_output: Any = None
    artifacts: Annotated[list[ArtifactItem], BeforeValidator(_list)] = []
    is_last: StrictBool = False
