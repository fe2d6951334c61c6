"""Options of a protocol over MCP's transports, in `routes.yaml`; apart from both ends, which are loaded when needed."""

from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from gateway.contract.options import Bytes, Count, MessageDoor, ProgramOrUrl, Seconds


class McpServeOptions(MessageDoor):
    """An `inbound:` section whose clients are MCP clients.

    max_sessions: how many clients may be connected at a time; one more is refused.
    max_calls: how many requests of one client may be under way.
    idle: seconds after which a Streamable HTTP session without any open request is ended, and its calls with it.
    max_stream: seconds after which a stream of Streamable HTTP is ended, though its requests go on: its client resumes
        it (`Last-Event-ID`). Left out: never.
    replay: bytes of each answer's stream that are kept for a Streamable HTTP client that lost its connection.
    """

    max_sessions: Count = 1000
    max_calls: Count = 1000
    max_stream: Seconds | None = None
    replay: Bytes = 1024 * 1024


class McpTarget(ProgramOrUrl):
    """A `target:` that is an MCP server: either `command` or `url`.

    url: a remote server: ws:// and wss:// a WebSocket, http:// and https:// Streamable HTTP or HTTP+SSE.
    transport: how a remote server is spoken to. `auto`: a WebSocket where the url says so; else Streamable HTTP, and
        HTTP+SSE where the server does not know that, or the path ends in /sse.
    sessions: how many sessions there may be with a remote server at a time; a call that the server may have questions
        about has one to itself as long as there are enough. A started process serves all calls alone.
    idle: seconds a session or process is kept after it was last used.
    warm: 1: the process is started with the gateway, instead of with the first call, and again when it ends.
    """

    KIND: ClassVar[str] = "a server"
    transport: Literal["auto", "streamable", "sse", "ws"] = "auto"
    sessions: Count = 100
    warm: Annotated[int, Field(ge=0, le=1)] = 0

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if self.url is None:
            if self.transport != "auto":
                raise ValueError("transport is for a server with a url")
        elif self.transport != "auto" and (self.transport == "ws") != (urlsplit(self.url).scheme in ("ws", "wss")):
            raise ValueError(f"transport {self.transport} does not go with {urlsplit(self.url).scheme}://")
        return self
