"""The base of all models of the wire."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.alias_generators import to_camel
from typing_extensions import TypeAliasType


class Wire(BaseModel):
    """Base of every model. Keys are in camel case there; strict as JSON Schema is; unknown keys are kept."""

    model_config = ConfigDict(
        extra="allow", alias_generator=to_camel, strict=True, frozen=True, defer_build=True, hide_input_in_errors=True
    )


ID_PATTERN: Final = r"^[a-zA-Z0-9-_]+$"
ID_LENGTH: Final = 200

AgentIdentifier = TypeAliasType(
    "AgentIdentifier", Annotated[str, Field(pattern=ID_PATTERN, description="A unique identifier for an agent")]
)
"""Appendix A. The names of routes follow the same pattern."""

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE)


def seconds_of(text: str) -> float:
    """A date-time with a time zone (RFC 3339) as seconds since the epoch. Raises ValueError."""
    if not _TIME.fullmatch(text):
        raise ValueError("not a date-time with a time zone, such as 2025-02-22T00:00:00Z")
    try:
        return datetime.fromisoformat(text.upper()).timestamp()
    except (ValueError, OverflowError):
        raise ValueError("no such date or time") from None


def _date_time(text: str) -> str:
    seconds_of(text)
    return text


def _as_written(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    handler(value)
    return value


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


DateTime = Annotated[str, AfterValidator(_date_time), Field(json_schema_extra={"format": "date-time"})]
"""RFC 3339, as it was written; `seconds_of` is its value."""
Whole = Annotated[int, BeforeValidator(_whole)]
"""An integer as JSON Schema has it: 5.0 is one."""
Number = Annotated[float, WrapValidator(_as_written)]
"""A number as it was written: 8 stays 8, and does not become 8.0."""
Unit = Annotated[float, Field(ge=0, le=1), WrapValidator(_as_written)]
Score = Annotated[float, Field(ge=0, le=10), WrapValidator(_as_written)]
Positive = Annotated[float, Field(ge=0), WrapValidator(_as_written)]
Text = Annotated[str, Field(min_length=1)]


class MessageMeta(Wire):
    """The `_meta` of a message. Further keys are kept."""

    correlation_id: Text | None = Field(default=None, description="The same in all messages about one piece of work.")
    progress_token: str | Whole | None = Field(
        default=None, description="Progress is told by notifications/progress with it."
    )
    traceparent: str | None = Field(default=None, description="W3C trace context of the sender.")


class Params(Wire):
    """Base of all params and results."""

    meta: MessageMeta | None = Field(default=None, alias="_meta")

    @property
    def correlation_id(self) -> str | None:
        """`_meta.correlationId`."""
        return self.meta.correlation_id if self.meta is not None else None

    @property
    def beside(self) -> dict[str, Any]:
        """The whole `_meta`, as it was sent."""
        return self.meta.model_dump(by_alias=True, exclude_unset=True) if self.meta is not None else {}
