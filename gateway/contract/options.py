"""Options: what an adapter understands in routes.yaml."""

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError, SchemaValidator, core_schema

from gateway.transport.pipe import LIMIT

if TYPE_CHECKING:
    import ssl


class Options(BaseModel):
    """Base of every options model. Unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def no_flag(value: Any) -> Any:
    """`true` is no 1."""
    if isinstance(value, bool):
        raise ValueError("should be a number, not true or false")
    return value


Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]
Most = Annotated[int, Field(ge=1), BeforeValidator(no_flag)] | None
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(no_flag)] | None
"""Of a second."""


def share(most: int, place: int, workers: int) -> int:
    """What one of several workers has of so many, by its place from 0."""
    return most // workers + (place < most % workers)


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
    """Limits of one client, over all doors that know it. Clients that are not asked who they are have none.

    sessions: how many sessions over HTTP it may have at each door, which last without a connection. One more takes the
        place of the one that has been idle for longest, or is refused. null: any number.
    """

    sessions: Most = None


class RouteLimits(UseLimits):
    """Limits of one route, for all clients together, including agents that are created from it or found at it.

    starts: how many runs may be started a second; as many may be at once. null: any number.
    """

    starts: Rate = None

    def shared_out(self, place: int, workers: int) -> Self:
        """The limits of one of several workers, by its place from 0: all together are these, unless it is less than a
        run for each.
        """
        given: dict[str, float] = {}
        if self.runs is not None:
            given["runs"] = max(1, share(self.runs, place, workers))
        if self.starts is not None:
            given["starts"] = self.starts / workers
        return self.model_copy(update=given)


EVERY_OTHER: Final = None
"""The key of clients that have no limits of their own (`InboundOptions.client_limits`)."""


class InboundOptions(Options):
    """Options of every inbound section. One that is left out has the defaults as they are: nothing validates them."""

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
    def shut(self) -> str:
        """The key below which nobody is let in, with which this is only a mistake; "" if somebody is."""
        return ""

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


class MessageDoor(InboundOptions):
    """Options of a door whose clients send messages, over a WebSocket or Streamable HTTP.

    max_message: greatest message in bytes; a larger one is answered with an error.
    max_body: the same for a POST; larger is 413.
    idle: seconds after which what nobody has a stream or a request open at is ended.
    socket_idle: seconds after which a WebSocket is closed (1001) on which no message went either way, pings aside, and
        nothing is under way. Its client connects again. Left out: never.
    keep_alive: seconds of silence after which a stream gets a comment line.
    origins: web pages that may connect (values of `Origin`), besides the gateway's own and, where no other machine
        reaches it, those of this machine; others are refused, programs send none.
    """

    max_message: Bytes = LIMIT
    max_body: Bytes = LIMIT
    idle: Seconds = 300.0
    socket_idle: Seconds | None = None
    keep_alive: Seconds = 15.0
    origins: tuple[str, ...] = ()

    @property
    def judges_pages(self) -> bool:
        """See `InboundOptions.judges_pages`: by `origins`."""
        return True


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


# pydantic's own types of URLs and networks are in a module that a start would load for them alone
_any_http_url = SchemaValidator(core_schema.url_schema(allowed_schemes=["http", "https"]))


def _a_token_url(text: str) -> str:
    _any_http_url.validate_python(text)
    if "#" in text:
        raise ValueError("should have no fragment")
    return text


def _beside_the_file(path: Path, info: ValidationInfo) -> Path:
    return Path((info.context or {}).get("base", "")) / path


FileBeside = Annotated[Path, AfterValidator(_beside_the_file)]
"""A file, relative to the one that names it."""


class TlsOptions(Options):
    """Whom the gateway trusts behind `https:` and `wss:`, and the certificate that it shows. A file that has changed is
    taken with the next connection.
    """

    ca: FileBeside | None = None
    """Certificates (PEM) of the authorities that may vouch for the other side, else those that this machine knows."""
    cert: FileBeside | None = None
    """The certificate that the gateway shows (PEM), then those between it and its root."""
    key: FileBeside | None = None
    """The key of it, unencrypted (PEM). Left out: it is in the same file."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that there are."""
        return tuple(file for file in (self.ca, self.cert, self.key) if file is not None)

    def context(self) -> "ssl.SSLContext":
        """Read the files. Raises ValueError, with the name of the file that cannot be used."""
        import ssl

        for file in self.files:
            try:
                file.read_bytes()
            except OSError as error:
                raise ValueError(f"{file}: {(error.strerror or str(error)).lower()}") from None
        try:
            made = ssl.create_default_context(cafile=self.ca)
        except (OSError, ValueError):
            raise ValueError(f"{self.ca}: no certificate in PEM form") from None
        if self.cert is not None:
            try:
                made.load_cert_chain(self.cert, self.key, password=lambda: "")
            except (OSError, ValueError):
                why = "no certificate with its key in PEM form, or the key is encrypted"
                raise ValueError(f"{self.key or self.cert}: {why}") from None
        made.set_alpn_protocols(["http/1.1"])
        return made

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.key is not None and self.cert is None:
            raise ValueError("has a key and no cert")
        self.context()
        return self


class OAuth2(Options):
    """A token that is asked for by client credentials (RFC 6749, section 4.4), and again before it ends."""

    token_url: Annotated[str, AfterValidator(_a_token_url), Field(json_schema_extra={"format": "uri"})]
    """The authorization server's token endpoint."""
    client_id: Annotated[str, Field(min_length=1)]
    """Who the gateway is there."""
    client_secret: Annotated[SecretStr, Field(min_length=1)] | None = None
    """What shows it. Left out: the certificate of `tls` does (RFC 8705)."""
    scope: str | None = None
    """What the token is to allow, words with blanks between them."""
    audience: str | None = None
    """Who the token is for, for servers that take an `audience`."""
    resource: str | None = None
    """The same for servers that take a `resource` (RFC 8707)."""
    send: Literal["header", "body"] = "header"
    """How the client is shown: as `Authorization: Basic`, or in the body of the request."""
    tls: TlsOptions | None = None
    """Whom the gateway trusts at `token_url`, and the certificate that it shows there."""

    @model_validator(mode="after")
    def _shown(self) -> Self:
        if self.client_secret is None and (self.tls is None or self.tls.cert is None):
            raise ValueError("needs a client_secret, or a certificate in tls")
        return self


class Auth(Options):
    """How the gateway authenticates to an agent: by one token at most, and a key."""

    bearer: HeaderSecret | None = None
    """Sent as `Authorization: Bearer ...`."""
    api_key: HeaderSecret | None = None
    """Sent the way the target's protocol has for keys."""
    oauth2: OAuth2 | None = None
    """A token that the gateway asks for, sent as `Authorization: Bearer ...`."""

    @model_validator(mode="after")
    def _one_token(self) -> Self:
        if self.bearer is not None and self.oauth2 is not None:
            raise ValueError("name one of bearer and oauth2")
        return self


def _whole(text: str, schemes: str) -> None:
    if "://" not in text:
        raise ValueError(f"should begin with {schemes}")


def _http_url(text: str) -> str:
    _whole(text, "http:// or https://")
    _any_http_url.validate_python(text)
    if "?" in text or "#" in text:
        raise ValueError("should end with a host or path: what is asked for is put after it")
    return text.rstrip("/")


HttpUrl = Annotated[
    str, AfterValidator(_http_url), Field(json_schema_extra={"format": "uri", "pattern": "^[hH][tT][tT][pP][sS]?://"})
]
"""An http or https URL that paths are put after, kept as written less a trailing slash."""


_any_socket_url = SchemaValidator(core_schema.url_schema(allowed_schemes=["http", "https", "ws", "wss"]))


def _socket_url(text: str) -> str:
    _whole(text, "ws://, wss://, http:// or https://")
    _any_socket_url.validate_python(text)
    return text


SocketUrl = Annotated[
    str, AfterValidator(_socket_url), Field(json_schema_extra={"format": "uri", "pattern": "^[a-zA-Z]+://"})
]
"""ws, wss: a WebSocket; http, https: requests and streams. Kept as written: a path may end in a slash."""


def _network(given: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(given)
    except ValueError:
        raise PydanticCustomError("ip_any_network", "value is not a valid IPv4 or IPv6 network") from None


Network = Annotated[
    ipaddress.IPv4Network | ipaddress.IPv6Network,
    PlainValidator(_network),
    WithJsonSchema({"type": "string", "format": "ipvanynetwork"}),
]
"""A network (CIDR)."""


class TargetOptions(Options):
    """Options of every target."""

    protocol: str
    """Which adapter calls the agent."""
    agent: str | None = None
    """The agent's name there, if several live at the target."""
    auth: Auth = Auth()
    """How the gateway authenticates to the agent."""
    tls: TlsOptions | None = None
    """Whom it trusts behind `https:` and `wss:`, and the certificate that it shows."""
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

    @staticmethod
    def part(most: int, place: int, workers: int) -> int:
        """What one of several workers has of so many."""
        return share(most, place, workers)

    def shared_out(self, place: int, workers: int) -> Self:
        """The target for one of several workers, by its place from 0: what is to be there once is at one of them."""
        return self

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


class ProgramOrUrl(TargetOptions):
    """Options of a target that the gateway starts or connects to: either `command` or `url`.

    command: the program, and its arguments; it speaks on its standard input and output.
    env: variables for it, besides the gateway's own.
    cwd: the folder it is started in; the gateway's own if left out.
    url: where one runs that is not started.
    api_key_header: header that carries `auth.api_key` to the `url`.
    start_timeout: seconds it may take to start and answer `initialize`.
    request_timeout: longest any request may take that does not wait for the agent's work, in seconds.
    idle: seconds it is kept after it was last used.
    warm: how many are started with the gateway, instead of when they are needed, and again when they end.
    stop_timeout: seconds a process has to end after it was told to, before it is killed with all that it started.
    max_message: greatest message in bytes; a larger one is an error.
    """

    KIND: ClassVar[str] = "an agent"
    command: tuple[str, ...] = ()
    env: dict[str, str] = Field(default={})
    cwd: Path | None = None
    url: SocketUrl | None = None
    api_key_header: HeaderName = "x-api-key"
    start_timeout: Seconds = 30.0
    request_timeout: Seconds = 30.0
    idle: Seconds = 300.0
    warm: Annotated[int, Field(ge=0)] = 0
    stop_timeout: Seconds = 3.0
    max_message: Bytes = LIMIT

    @property
    def called(self) -> str:
        """The name of an agent without one, in logs and errors: its program, or its host."""
        return Path(self.command[0]).name if self.url is None else urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def warmed(self) -> bool:
        """See `TargetOptions.warmed`."""
        return self.warm > 0

    def shared_out(self, place: int, workers: int) -> Self:
        """See `TargetOptions.shared_out`. Processes that are started with the gateway are so many in all."""
        return self.model_copy(update={"warm": self.part(self.warm, place, workers)})

    @property
    def describe_timeout(self) -> float:
        """It may have to be started, and fetched before that."""
        return self.start_timeout + self.request_timeout

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if bool(self.command) == (self.url is not None):
            raise ValueError("name either a command or a url")
        if self.warm and self.url is not None:
            raise ValueError(f"warm is for {self.KIND} with a command")
        return self
