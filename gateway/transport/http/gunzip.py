"""gzip and zlib bodies in bounded pieces, so that a small answer cannot become a large memory."""

from __future__ import annotations

import zlib

from gateway.core.errors import AgentBroken

PIECE = 256 * 1024
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS  # told apart by their first bytes
_MAX_MEMBERS = 16  # a gzip file may be several; each one costs a copy of what follows it


class Gunzip:
    """One body's decompressor: `feed` what came, `take` until it gives nothing, `finish` at the end.

    Everything that can be wrong with the body raises AgentBroken.
    """

    __slots__ = ("_input", "_members", "_started", "_z")

    def __init__(self) -> None:
        self._z = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._input = b""
        self._members = 1
        self._started = False

    def feed(self, data: bytes) -> None:
        """More of the compressed body."""
        self._started = True
        self._input = self._input + data if self._input else data

    def take(self) -> bytes:
        """The next piece, of at most PIECE bytes; b"" means that more input is needed."""
        while self._input:
            if self._z.eof:
                self._members += 1
                if self._members > _MAX_MEMBERS:
                    raise AgentBroken("the agent's answer is compressed in too many pieces")
                self._z = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                piece = self._z.decompress(self._input, PIECE)
            except zlib.error as exc:
                message = "the agent's answer cannot be decompressed"
                raise AgentBroken(message, detail=str(exc)) from exc
            self._input = self._z.unused_data if self._z.eof else self._z.unconsumed_tail
            if piece:
                return piece
        return b""

    def finish(self) -> None:
        """The body ended. Raises AgentBroken if the compressed data did not."""
        if self._started and not self._z.eof:
            raise AgentBroken("the agent's compressed answer ends too early")
