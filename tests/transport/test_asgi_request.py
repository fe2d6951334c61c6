"""A request's body, as ASGI hands it over."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.core.errors import TooLarge
from gateway.transport.asgi import HttpRequest
from tests.support.aio import run


async def body(chunks: Sequence[bytes], limit: int, headers: Sequence[tuple[bytes, bytes]] = ()) -> tuple[bytes, int]:
    """The body that came in these chunks, and how many of them were taken. One more is never asked for."""
    taken = 0

    async def receive() -> dict[str, object]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": chunks[taken - 1], "more_body": taken < len(chunks)}

    async def send(message: object) -> None:
        raise AssertionError("a body is only read")

    request = HttpRequest({"type": "http", "headers": list(headers)}, receive, send)
    try:
        return await request.body(limit), taken
    except TooLarge:
        return b"", taken


@pytest.mark.parametrize("chunks", [[b"abc"], [b"a", b"bc"], [b"", b"abc", b""]])
def test_a_body_within_the_limit_is_all_of_its_chunks(chunks: list[bytes]) -> None:
    assert run(body(chunks, 3)) == (b"abc", len(chunks))


@pytest.mark.parametrize("chunks", [[b"abcd"], [b"a", b"bcd"], [b"abcd", b"e", b"f"]])
@pytest.mark.parametrize("headers", [[], [(b"content-length", b"6")]])
def test_one_over_it_is_refused_once_its_last_chunk_has_come(
    chunks: list[bytes], headers: list[tuple[bytes, bytes]]
) -> None:
    assert run(body(chunks, 3, headers)) == (b"", len(chunks))


def test_who_asks_before_it_sends_is_refused_at_once() -> None:
    headers = [(b"content-length", b"6"), (b"expect", b"100-continue")]
    assert run(body([b"abcdef"], 3, headers)) == (b"", 0)
