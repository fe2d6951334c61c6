"""Messages to frames of the server's end (RFC 6455, section 5): whole, not masked, not compressed. Without IO."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

TEXT = 0x81
"""The first byte of a frame that is a whole text message."""

_SHORT, _LONG = 126, 1 << 16
_middling = Struct("!BBH").pack
_long = Struct("!BBQ").pack


def text_frames(messages: Iterable[bytes]) -> bytes:
    """Each message, UTF-8, as a text frame; all of them as bytes to write at once."""
    pieces: list[bytes] = []
    for message in messages:
        size = len(message)
        if size < _SHORT:
            head = bytes((TEXT, size))
        elif size < _LONG:
            head = _middling(TEXT, 126, size)
        else:
            head = _long(TEXT, 127, size)
        pieces += (head, message)
    return b"".join(pieces)


def in_blocks(messages: Sequence[bytes], most: int) -> Iterator[Sequence[bytes]]:
    """The messages in order, in pieces that are no larger than `most` bytes or a single message."""
    start = size = 0
    for at, message in enumerate(messages):
        size += len(message)
        if size > most and at > start:
            yield messages[start:at]
            start, size = at, len(message)
    if start < len(messages):
        yield messages[start:]
