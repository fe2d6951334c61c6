"""Newline-delimited JSON: one JSON text a line, no IO. Used by protocols whose frames are lines (stdio, streams)."""

from __future__ import annotations

from gateway.core.errors import AgentBroken

LIMIT = 16 * 1024 * 1024


class Decoder:
    """Bytes in, lines out. Lines longer than `limit` bytes raise AgentBroken; empty lines are passed over."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their ends."""
        if b"\n" not in chunk:
            self._rest += chunk
            self._check()
            return []
        self._rest += chunk
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        self._check()
        return [line for raw in lines if (line := raw.removesuffix(b"\r"))]

    def close(self) -> list[bytes]:
        """The last line, if it lacks its end."""
        rest, self._rest = bytes(self._rest).strip(), bytearray()
        return [rest] if rest else []

    def _check(self) -> None:
        if len(self._rest) > self._limit:
            raise AgentBroken(f"a line of more than {self._limit} bytes")


def encode(data: bytes) -> bytes:
    """One line. `data` is one JSON text without raw newlines, as every JSON encoder here makes it."""
    return data + b"\n"
