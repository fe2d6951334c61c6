"""A string that grows: its characters, and beside them its JSON, escaped and encoded once."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.core.delta.values import escape_lines

BATCH: Final = 256  # chunks that wait one by one before they are joined
_FIRST_CAPACITY: Final = 256
_encode = msgspec.json.Encoder().encode


class Text:
    """A growing string leaf; what is appended is copied a bounded number of times, however often it is read encoded.

    Only sound text (values.py) may be appended to `pending`; `held` is the half of a surrogate pair that came last
    and is no part of the text yet. Who appends calls `settle` now and then (each BATCH chunks).
    """

    __slots__ = ("_buffer", "_filled", "_joined", "_unencoded", "_view", "_whole", "held", "pending")

    def __init__(self, text: str, held: str = "") -> None:
        self.held = held
        self.pending: list[str] = []
        self._joined = [text]
        self._unencoded = [text]
        self._buffer = bytearray()
        self._filled = 0
        self._whole = self._view = memoryview(b"")

    def settle(self) -> None:
        """Join the chunks that wait."""
        if self.pending:
            block = "".join(self.pending)
            self.pending.clear()
            self._joined.append(block)
            self._unencoded.append(block)

    def text(self) -> str:
        """The characters."""
        self.settle()
        if len(self._joined) > 1:
            self._joined = ["".join(self._joined)]
        return self._joined[0]

    def encoded(self) -> memoryview:
        """Its JSON without the quotes, read-only; what the view shows stays as it is when the text grows."""
        if self.pending:
            self.settle()
        if self._unencoded:
            added = self._unencoded
            data = _encode(added[0] if len(added) == 1 else "".join(added))
            if not data.isascii():
                data = escape_lines(data)
            added.clear()
            start = self._filled
            end = self._filled = start + len(data) - 2
            if end > len(self._buffer):
                # A new buffer, never a resized one: views of the old one may be on their way to a socket.
                grown = bytearray(max(_FIRST_CAPACITY, end + end // 2))
                grown[:start] = self._view
                self._buffer, self._whole = grown, memoryview(grown).toreadonly()
            self._buffer[start:end] = data[1:-1]
            self._view = self._whole[:end]
        return self._view
