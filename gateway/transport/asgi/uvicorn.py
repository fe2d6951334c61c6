"""uvicorn's HTTP protocol with a bound for what it keeps, and a short way for the pieces of a streamed answer.

uvicorn itself sends a piece by a coroutine that looks through a message. Whoever has a piece that is to go out now can
hand it over by a call, which needs no task of its own. And its parser keeps a head or a trailer that never ends, at a
cost that grows with its square. Everything else is uvicorn's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "interlingua.pieces"
"""Among a scope's `extensions`: the connection's `PieceProtocol`, where the server has that."""

HEAD_LIMIT = 64 * 1024
"""Bytes of a head, or of trailers, after which no more of it is taken. What comes in one read is taken whole."""


class PieceProtocol(HttpToolsProtocol):
    """For uvicorn's option `http`."""

    _kept = 0
    """Bytes that came since the parser last gave some on."""

    def data_received(self, data: bytes) -> None:
        """Refuse whoever sends a head that does not end."""
        self._kept += len(data)
        super().data_received(data)
        if self._kept > HEAD_LIMIT and not self.transport.is_closing():
            said = f"A head of more than {HEAD_LIMIT} bytes."
            self.logger.warning(said)
            self.send_400_response(said)

    def on_body(self, body: bytes) -> None:
        """The parser keeps nothing of a body."""
        self._kept = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Nor of a request that is whole."""
        self._kept = 0
        super().on_message_complete()

    def on_message_begin(self) -> None:
        """Tell the application of the short way."""
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: self}  # type: ignore[dict-item]

    @property
    def ready(self) -> bool:
        """Whether a piece of the answer's body may be written now: the client keeps up, and nobody asks for more than
        one answer at once. Where it may not, `send` knows what to do.
        """
        cycle = self.cycle
        return bool(cycle.chunked_encoding) and not (self.flow.write_paused or cycle.disconnected or self.pipeline)

    def put(self, piece: bytes) -> None:
        """Write a piece, which is not empty. While `ready`, after `http.response.start` and before the last message."""
        self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))


def short_way(scope: Mapping[str, Any]) -> PieceProtocol | None:
    """The request's connection, None if its server has no short way."""
    return cast("PieceProtocol | None", scope.get("extensions", {}).get(EXTENSION))
