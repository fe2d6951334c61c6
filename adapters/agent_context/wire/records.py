"""An agent as it registers (section 3.1, appendix A)."""

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, SecretStr

from adapters.agent_context.wire.base import (
    ID_LENGTH,
    AgentIdentifier,
    Positive,
    Score,
    Text,
    Unit,
    Whole,
    Wire,
)
from gateway.contract import fitting
from gateway.core import delta

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
