"""Agent Protocol to core and back: what both halves share. Pure.

Here are the errors' statuses, the form of `origin`, and files and plan entries on the wire. steps.py turns a run's log
into steps, requests.py a request into a run, upstream.py an agent's step into events.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from adapters.agent_protocol import wire
from gateway.core import errors
from gateway.core import events as e
from gateway.core.delta import encode
from gateway.core.types import Artifact, Interrupt, Json, JsonObject, Thread

PROTOCOL: Final = "agent_protocol"
TASK: Final = "task"
"""The thread attribute that holds the body a task was created with."""
STEPS: Final = "steps"
"""The thread attribute that lists the names of the steps that an agent of this protocol planned when it got the task.

On a run, the attribute that holds the task's id: its steps have the ids under which those were listed.
"""
CREATE: Final = "POST tasks"
"""The method that is relayed to an agent of this protocol when a client creates a task."""
STEP: Final = "step"
"""Kind of the question an agent driven one step at a time asks: what is the next step's input?"""
PERMISSION: Final = "permission"
"""Kind of the question whether an agent may go on to its next step."""
ADDITIONAL_OUTPUT: Final = "agent_protocol.additional_output"
"""Name of the `Custom` event that carries a step's `additional_output`."""

ERRORS: Final[dict[type[errors.InterlinguaError], int]] = {
    errors.InterlinguaError: 500,
    errors.Refused: 422,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.TooLarge: 413,
    errors.Denied: 403,
    errors.Unauthenticated: 401,
    errors.AgentError: 502,
    errors.AgentBusy: 503,
    errors.AgentTimeout: 504,
    errors.Unavailable: 503,
    errors.Limited: 429,
}
"""HTTP status of an error that keeps a request from being carried out. A run that fails is a step, not an error."""

_DRIVE = re.compile(r"^[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MEDIA_TYPE = re.compile(r"^[\w!#$&^.+-]+/[\w!#$&^.+-]+(\s*;\s*[\w!#$&^.+-]+=[\w!#$&^.+-]+)*$", re.ASCII)
_PLAN: Final = {"created": "pending", "running": "in_progress", "completed": "completed"}
UNKNOWN_MEDIA: Final = "application/octet-stream"
STEP_BODY: Final[JsonObject] = {
    "type": "object",
    "title": "StepRequestBody",
    "properties": {"input": {"type": "string", "title": "Input for the next step"}},
}
"""Answer schema of a `step` question: the body of the next `POST steps`, which may have `additional_input` too.

That is left out here: a form can only be made of an object of plain values.
"""


GO_ON: Final = "continue"
APPROVAL: Final[JsonObject] = {
    "title": "Approval",
    "type": "string",
    "oneOf": [{"const": GO_ON, "title": "Continue"}, {"const": "stop", "title": "Stop here"}],
}
"""Answer schema of a `permission` question."""


def origin(**said: Json) -> JsonObject:
    """The rest of a message beyond an event's fields, in the form that only this codec reads."""
    return {PROTOCOL: said}


def said(event: e.Event) -> JsonObject | None:
    """The `origin` of an event, if this codec has made it."""
    found = (event.origin or {}).get(PROTOCOL)
    return found if isinstance(found, dict) else None


def task_body(thread: Thread) -> JsonObject:
    """The body that a client created the task with. It is the one mark this protocol leaves on a thread."""
    body = thread.attributes.get(TASK)
    return body if isinstance(body, dict) else {}


def planned(thread: Thread) -> list[str | None] | None:
    """Names of the steps that the agent listed when the task was created; None where it did not list any then."""
    found = thread.attributes.get(STEPS)
    return found if isinstance(found, list) else None


def task_json(thread: Thread, artifacts: Sequence[Artifact]) -> JsonObject:
    """`Task`. `additional_input` is always an object: the schema does not allow null."""
    body = task_body(thread)
    return {
        "task_id": thread.id,
        "input": body.get("input"),
        "additional_input": body.get("additional_input") or {},
        "artifacts": [artifact_json(artifact) for artifact in artifacts],
    }


def artifact_json(artifact: Artifact) -> JsonObject:
    """`Artifact`, with the two times that clients in use require beside it. A file never changes here."""
    made = datetime.fromtimestamp(artifact.created_at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "artifact_id": artifact.id,
        "agent_created": artifact.agent_created,
        "file_name": artifact.name,
        "relative_path": artifact.relative_path,
        "created_at": made,
        "modified_at": made,
    }


def page_json(name: str, items: Sequence[JsonObject], total: int, page: int, size: int) -> JsonObject:
    """A `...ListResponse`: one page of `total` items, pages counted from 1, the last one maybe short."""
    pagination = {
        "total_items": total,
        "total_pages": math.ceil(total / size),
        "current_page": page,
        "page_size": size,
    }
    return {name: list(items), "pagination": pagination}


def plan(steps: Sequence[wire.Step]) -> e.PlanUpdated:
    """An agent's own list of steps, as a plan whose entries are named by step id."""
    entries = [
        e.PlanEntry(content=step.name or f"Step {number}", status=_PLAN[step.status], id=step.step_id)
        for number, step in enumerate(steps, 1)
    ]
    return e.PlanUpdated(entries=tuple(entries), origin=origin(names=[step.name for step in steps]))


def is_step_question(interrupt: Interrupt) -> bool:
    """Whether this asks for the next step of an Agent Protocol agent, or whether it may be executed."""
    title = interrupt.answer_schema.get("title")
    return (interrupt.kind, title) in ((STEP, STEP_BODY["title"]), (PERMISSION, APPROVAL["title"]))


# --- files: names and paths are labels, and still nobody downstream should trip over them ------------------------


def file_label(name: str | None) -> str:
    """A file's name without folders and control characters, at most 255 characters, never empty."""
    last = re.split(r"[\\/]", _CONTROL.sub("", name or ""))[-1].strip()
    return last[-255:] if last not in ("", ".", "..") else "file"


def relative_path(path: str | None) -> str | None:
    """A path below the task's workspace, as it was given; None if empty. Raises Invalid if it may lead out of it."""
    if not path:
        return None
    if _CONTROL.search(path) or "\\" in path:
        raise errors.Invalid("relative_path has a backslash or a control character", path="/relative_path")
    if path.startswith("/") or _DRIVE.match(path) or ".." in path.split("/"):
        raise errors.Invalid("relative_path must stay below the task's folder", path="/relative_path")
    if len(path) > 1024:
        raise errors.Invalid("relative_path is longer than 1024 characters", path="/relative_path")
    return path


def media_type(value: str | None) -> str:
    """A content type that is safe as a header, UNKNOWN_MEDIA where it is none."""
    value = (value or "").strip()
    return value if len(value) < 256 and _MEDIA_TYPE.match(value) else UNKNOWN_MEDIA


def disposition(name: str) -> str:
    """`Content-Disposition` for a download (RFC 6266): the name for every client, and in full for those that can."""
    label = file_label(name)
    ascii_name = "".join(c if c.isascii() and c not in '"\\%;' else "_" for c in label)
    header = f'attachment; filename="{ascii_name}"'
    return header if ascii_name == label else f"{header}; filename*=UTF-8''{quote(label, safe='')}"


def as_text(value: Any) -> str | None:
    """A value that should be a string, as text: itself, or its JSON. None for null."""
    if value is None or isinstance(value, str):
        return value
    return encode(value).decode()
