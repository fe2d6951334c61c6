"""The messages of the plain protocol: a request, and the lines that answer it. No logic."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from pydantic import BaseModel, ConfigDict


class RunBody(BaseModel):
    """POST /{agent}: start a run."""

    model_config = ConfigDict(extra="forbid")

    input: Any
    thread: str | None = None
    metadata: dict[str, Any] = {}


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


class PlainLine(msgspec.Struct, omit_defaults=True):
    """One line of a run. Exactly one of delta, value, ask, done, error, cancelled is set (`run` on the first line).

    `n` numbers a client's lines so that it can come back with `?after=`.
    """

    n: int = 0
    run: str = ""
    part: str = ""
    delta: Any = UNSET
    pointer: str = ""
    value: Any = UNSET
    ask: Ask | None = None
    done: Raw = Raw(b"")
    error: str | UnsetType = UNSET
    cancelled: bool = False
