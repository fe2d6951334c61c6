"""Options of a protocol that is served over MCP's transports, in `routes.yaml`. An adapter's options extend them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gateway.contract import InboundOptions
from gateway.transport.pipe import LIMIT

Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]


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
