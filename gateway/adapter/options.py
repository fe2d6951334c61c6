"""Options: what an adapter understands in routes.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, AnyHttpUrl, BaseModel, ConfigDict, Field, SecretStr, TypeAdapter


class Options(BaseModel):
    """Base of every options model. Unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class InboundOptions(Options):
    """What every inbound section takes."""

    path: str | None = None
    """Where the protocol is mounted, instead of its own path."""

    @property
    def authenticates(self) -> bool:
        """Whether nobody gets further than its door over the network who has not shown who it is."""
        return False


class Auth(Options):
    """How the gateway authenticates to an agent. At most one of the two."""

    bearer: SecretStr | None = None
    """Sent as `Authorization: Bearer ...`."""
    api_key: SecretStr | None = None
    """Sent the way the target's protocol has for keys."""


_any_http_url = TypeAdapter(AnyHttpUrl)


def _http_url(text: str) -> str:
    _any_http_url.validate_python(text)
    return text.rstrip("/")


HttpUrl = Annotated[str, AfterValidator(_http_url), Field(json_schema_extra={"format": "uri"})]
"""An http or https URL, kept as written less a trailing slash."""


class TargetOptions(Options):
    """What every target takes."""

    protocol: str
    """Which adapter calls the agent."""
    agent: str | None = None
    """The agent's name there, if several live at the target."""
    auth: Auth = Auth()
    """How the gateway authenticates to the agent."""

    @property
    def describe_timeout(self) -> float:
        """Seconds that `Outbound.describe` may take."""
        return 10.0
