"""Options of a protocol over MCP's transports, in `routes.yaml`; apart from both ends, which are loaded when needed."""

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, AnyUrl, Field, TypeAdapter, UrlConstraints, model_validator

from gateway.contract import InboundOptions, TargetOptions
from gateway.transport.pipe import LIMIT

Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]

_any_url = TypeAdapter(Annotated[AnyUrl, UrlConstraints(allowed_schemes=["http", "https", "ws", "wss"])])


def _url(text: str) -> str:
    _any_url.validate_python(text)
    return text


McpUrl = Annotated[str, AfterValidator(_url), Field(json_schema_extra={"format": "uri"})]
"""ws, wss: a WebSocket; http, https: Streamable HTTP or HTTP+SSE. Kept as written: a path may end in a slash."""


class McpServeOptions(InboundOptions):
    """An `inbound:` section whose clients are MCP clients.

    max_message: greatest message in bytes; a larger one is answered with an error.
    max_body: the same for a POST; larger is 413.
    max_sessions: how many clients may be connected at a time; one more is refused.
    max_calls: how many requests of one client may be under way.
    idle: seconds after which a Streamable HTTP session without any open request is ended, and its calls with it.
    socket_idle: seconds after which a WebSocket is closed (1001) on which no message went either way, pings aside, and
        nothing is under way. Its client connects again. Left out: never.
    keep_alive: seconds of silence after which a stream gets a comment line.
    max_stream: seconds after which a stream of Streamable HTTP is ended, though its requests go on: its client resumes
        it (`Last-Event-ID`). Left out: never.
    replay: bytes of each answer's stream that are kept for a Streamable HTTP client that lost its connection.
    origins: web pages that may connect (values of `Origin`), besides the gateway's own and, where no other machine
        reaches it, those of this machine; others are refused, programs send none.
    """

    max_message: Bytes = LIMIT
    max_body: Bytes = LIMIT
    max_sessions: Count = 1000
    max_calls: Count = 1000
    idle: Seconds = 300.0
    socket_idle: Seconds | None = None
    keep_alive: Seconds = 15.0
    max_stream: Seconds | None = None
    replay: Bytes = 1024 * 1024
    origins: tuple[str, ...] = ()

    @property
    def judges_pages(self) -> bool:
        """See `InboundOptions.judges_pages`: by `origins`."""
        return True


class McpTarget(TargetOptions):
    """A `target:` that is an MCP server: either `command` or `url`.

    command: program and arguments of a server that speaks on its standard input and output.
    env: variables for it, besides the gateway's own.
    cwd: the folder it is started in; the gateway's own if left out.
    url: a remote server: ws:// and wss:// a WebSocket, http:// and https:// Streamable HTTP or HTTP+SSE.
    transport: how a remote server is spoken to. `auto`: a WebSocket where the url says so; else Streamable HTTP, and
        HTTP+SSE where the server does not know that, or the path ends in /sse.
    api_key_header: header that carries `auth.api_key` to a remote server.
    sessions: how many sessions there may be with a remote server at a time; a call that the server may have questions
        about has one to itself as long as there are enough. A started process serves all calls alone.
    start_timeout: seconds it may take to start and answer `initialize`.
    request_timeout: longest any request may take that does not wait for the agent's work, in seconds.
    idle: seconds a session or process is kept after it was last used.
    warm: 1: the process is started with the gateway, instead of with the first call, and again when it ends.
    stop_timeout: seconds a process has to end after it was told to, before it is killed with all that it started.
    max_message: greatest message in bytes; a larger one is an error.
    """

    command: tuple[str, ...] = ()
    env: dict[str, str] = Field(default={})
    cwd: Path | None = None
    url: McpUrl | None = None
    transport: Literal["auto", "streamable", "sse", "ws"] = "auto"
    api_key_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] = "x-api-key"
    sessions: Annotated[int, Field(gt=0)] = 100
    start_timeout: Seconds = 30.0
    request_timeout: Seconds = 30.0
    idle: Seconds = 300.0
    warm: Annotated[int, Field(ge=0, le=1)] = 0
    stop_timeout: Seconds = 3.0
    max_message: Bytes = LIMIT

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
            raise ValueError("warm is for a server with a command")
        if self.url is None:
            if self.transport != "auto":
                raise ValueError("transport is for a server with a url")
        elif self.transport != "auto" and (self.transport == "ws") != (urlsplit(self.url).scheme in ("ws", "wss")):
            raise ValueError(f"transport {self.transport} does not go with {urlsplit(self.url).scheme}://")
        return self
