"""The messages of the example protocol: requests, and the lines that answer them. No logic."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from pydantic import Base64Bytes, BaseModel, ConfigDict


class FileBody(BaseModel):
    """A file that a client sends with its run; `data` is base64."""

    model_config = ConfigDict(extra="forbid")

    name: str
    media_type: str = "application/octet-stream"
    data: Base64Bytes


class RunBody(BaseModel):
    """POST /{agent}: start a run."""

    model_config = ConfigDict(extra="forbid")

    input: Any
    thread: str | None = None
    metadata: dict[str, Any] = {}
    files: list[FileBody] = []


class AnswerBody(BaseModel):
    """POST /runs/{run}/answer: answer a question."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = None
    answer: Any = None
    declined: bool = False


class Ask(msgspec.Struct, omit_defaults=True):
    """A question of the agent's."""

    id: str
    question: str = ""
    kind: str = "input"
    payload: Any = None
    schema: dict[str, Any] = {}


class FileLine(msgspec.Struct, omit_defaults=True):
    """A file. Between agents and the gateway `data` holds it, as base64; clients fetch it by its `id`."""

    name: str
    media_type: str = "application/octet-stream"
    data: bytes = b""
    id: str = ""
    size: int = 0


class ExampleLine(msgspec.Struct, omit_defaults=True):
    """One line of a run. Exactly one of delta, value, ask, file, done, error, cancelled is set; `run` on the first.

    `n` numbers a client's lines so that it can come back with `?after=`.
    """

    n: int = 0
    run: str = ""
    part: str = ""
    delta: Any = UNSET
    pointer: str = ""
    value: Any = UNSET
    ask: Ask | None = None
    file: FileLine | None = None
    done: Raw = Raw(b"")
    error: str | UnsetType = UNSET
    cancelled: bool = False


class AgentRun(msgspec.Struct, omit_defaults=True):
    """A run, as the gateway POSTs it to an agent."""

    input: Any
    run: str
    thread: str = ""
    files: list[FileLine] = []


class ToldAnswer(msgspec.Struct):
    """An answer, as the gateway POSTs it to an agent's `/answer`."""

    run: str
    id: str
    answer: Any
    declined: bool
