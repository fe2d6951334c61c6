"""Options: what an adapter understands in routes.yaml."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AnyHttpUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    TypeAdapter,
)


class Options(BaseModel):
    """Base of every options model. Unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def no_flag(value: Any) -> Any:
    """`true` is no 1."""
    if isinstance(value, bool):
        raise ValueError("should be a number, not true or false")
    return value


Most = Annotated[int, Field(ge=1), BeforeValidator(no_flag)] | None
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(no_flag)] | None
"""Of a second."""


class UseLimits(Options):
    """Base of every section of limits. A key that is left out is as in the section of `limits` for all of its kind.

    runs: how many runs may be unended at a time: in progress, waiting for an answer, for their turn or for their time.
        null: any number.
    """

    runs: Most = None

    def over(self, base: Self) -> Self:
        """These limits, with those of `base` for what is left out."""
        return base.model_copy(update={key: getattr(self, key) for key in self.model_fields_set})


class DoorLimits(UseLimits):
    """Limits of all clients of one protocol together.

    requests: how many requests a second: over HTTP, upgrades to a WebSocket, JSON-RPC on one. As many as in a second
        may come at once. null: any number.
    connections: how many of these may be under way at a time: requests that are not answered yet, streams that have not
        ended, WebSockets. null: any number.
    """

    requests: Rate = None
    connections: Most = None


class ClientLimits(DoorLimits):
    """Limits of one client, over all doors that know it. Clients that are not asked who they are have none."""


class RouteLimits(UseLimits):
    """Limits of one route, for all clients together, including agents that are created from it or found at it.

    starts: how many runs may be started a second; as many may be at once. null: any number.
    """

    starts: Rate = None


EVERY_OTHER: Final = None
"""The key of clients that have no limits of their own (`InboundOptions.client_limits`)."""


class InboundOptions(Options):
    """Options of every inbound section."""

    path: str | None = None
    """Where the protocol is mounted, instead of its own path."""
    limits: DoorLimits = DoorLimits()
    """What all its clients together may ask for."""

    @property
    def client_limits(self) -> Mapping[str | None, ClientLimits]:
        """The limits of its clients by name, and under EVERY_OTHER those of all others."""
        return MappingProxyType({})

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
    """Options of every target."""

    protocol: str
    """Which adapter calls the agent."""
    agent: str | None = None
    """The agent's name there, if several live at the target."""
    auth: Auth = Auth()
    """How the gateway authenticates to the agent."""
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """How many of the runs it gets beside the other `targets` of its route; with 0 only those that no other takes."""

    _route: str = PrivateAttr(default="")

    @property
    def route(self) -> str:
        """The name of the route that the target is of, for logs; "" where it is of none."""
        return self._route

    def belongs(self, route: str) -> None:
        """Called once, by the route."""
        self._route = route

    @property
    def warmed(self) -> bool:
        """Whether the agent is started, and described, with the gateway instead of with its first client."""
        return False

    @property
    def describe_timeout(self) -> float:
        """Seconds that `Outbound.describe` may take."""
        return 10.0

    @property
    def stands_for_many(self) -> bool:
        """Whether the target is all the agents that live there, and none itself."""
        return False

    @property
    def key(self) -> str:
        """What threads and runs are recorded under: the same as long as it is the same agent at the same place."""
        url, command = getattr(self, "url", None), getattr(self, "command", None)
        place = repr((self.protocol, url, command and tuple(command), self.agent))
        return hashlib.sha256(place.encode()).hexdigest()[:16]

    @property
    def shown(self) -> str:
        """Where the agent is: a URL without credentials and query, or the program alone: the rest may have secrets."""
        url, command = getattr(self, "url", None), getattr(self, "command", None)
        if not url:
            return str(command[0]) if command else ""
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname or ""
        netloc = f"{host}:{parts.port}" if parts.port else host
        return str(parts._replace(netloc=netloc, query="", fragment="").geturl())
