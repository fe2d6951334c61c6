"""Lines of the example protocol, read and written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adapters.example import codec
from gateway.core import events as e
from gateway.wire import ndjson


def _read(chunks: Iterable[bytes], given: Any) -> list[e.Event]:
    decoder = ndjson.NdjsonDecoder()
    lines = [line for chunk in chunks for line in decoder.feed(chunk)] + decoder.close()
    return [event for line in lines for event in codec.decode(codec.parse(line))]


def _write(events: list[tuple[int, e.Event]], given: Any) -> bytes:
    lines = [codec.encode(number, event) for number, event in events]
    return b"".join(ndjson.encode(codec.dump(line)) for line in lines if line is not None)


READ = {"lines": _read}
WRITE = {"lines": _write}
