"""Options: what an adapter understands in routes.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, AnyHttpUrl, BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, TypeAdapter


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

    @property
    def judges_pages(self) -> bool:
        """Whether the inbound half knows itself which web pages may connect (`Origin`). Else the gateway does."""
        return False

    @property
    def brings(self) -> tuple[str, ...]:
        """Names of the agents that the inbound half is or has itself, before anybody registers: no route's."""
        return ()

    @property
    def sends(self) -> Mapping[tuple[str | int, ...], str]:
        """Where the inbound half sends tokens of its own: the URL by the token's place in these options."""
        return {}


_UNSENDABLE = r"[\x00-\x08\x0a-\x1f\x7f]"


def _header_value(secret: SecretStr) -> SecretStr:
    if re.search(_UNSENDABLE, secret.get_secret_value()):
        raise ValueError("has a line break or another character that no header can have")
    return secret


HeaderSecret = Annotated[
    SecretStr,
    AfterValidator(_header_value),
    Field(json_schema_extra={"not": {"pattern": _UNSENDABLE}}),
]
"""A secret that is sent in a header."""


class Auth(Options):
    """How the gateway authenticates to an agent. At most one of the two."""

    bearer: HeaderSecret | None = None
    """Sent as `Authorization: Bearer ...`."""
    api_key: HeaderSecret | None = None
    """Sent the way the target's protocol has for keys."""


_any_http_url = TypeAdapter(AnyHttpUrl)


def _http_url(text: str) -> str:
    _any_http_url.validate_python(text)
    if "?" in text or "#" in text:
        raise ValueError("should end with a host or path: what is asked for is put after it")
    return text.rstrip("/")


HttpUrl = Annotated[str, AfterValidator(_http_url), Field(json_schema_extra={"format": "uri"})]
"""An http or https URL that paths are put after, kept as written less a trailing slash."""


class TargetOptions(Options):
    """What every target takes."""

    protocol: str
    """Which adapter calls the agent."""
    agent: str | None = None
    """The agent's name there, if several live at the target."""
    auth: Auth = Auth()
    """How the gateway authenticates to the agent."""

    _route: str = PrivateAttr(default="")

    @property
    def route(self) -> str:
        """The name of the route that the target is of, for logs; "" where it is of none."""
        return self._route

    def belongs(self, route: str) -> None:
        """Called once, by the route."""
        self._route = route

    @property
    def describe_timeout(self) -> float:
        """Seconds that `Outbound.describe` may take."""
        return 10.0
