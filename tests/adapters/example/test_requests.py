"""What a client is told of a request that cannot be read."""

from __future__ import annotations

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.types import Message

from adapters.example.inbound import ExampleInbound
from adapters.example.options import ExampleServe
from tests.support.scripted import Scripted, echo, engine, route


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/scripted", b'{"input": {"message": NaN}}'),
        ("POST", "/scripted", b'{"input": {"message": "x", "n": 1e400}}'),
        ("POST", "/runs/{run}/answer", b'{"answer": -Infinity}'),
        ("GET", "/runs/{run}?after=-1", b""),
        ("GET", "/runs/{run}?after=\N{SUPERSCRIPT TWO}", b""),
        ("GET", f"/runs/{{run}}?after={'9' * 30}", b""),
    ],
)
async def test_what_is_no_number_is_refused(method: str, path: str, body: bytes) -> None:
    async with engine((route(), Scripted(echo))) as gateway:
        app = Starlette(routes=list(ExampleInbound(ExampleServe(), gateway).routes()))
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://gateway") as client:
            started = await client.post("/scripted", json={"input": {"message": "hello"}})
            ident = started.text.partition('{"run":"')[2].partition('"')[0]
            answer = await client.request(method, path.format(run=ident), content=body)
            assert answer.status_code == 422, answer.text


async def test_a_client_that_goes_in_the_middle_of_its_body_is_no_failure_of_ours() -> None:
    heard: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    sent: list[Message] = []

    async def receive() -> Message:
        return heard.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    async with engine((route(), Scripted(echo))) as gateway:
        app = Starlette(routes=list(ExampleInbound(ExampleServe(), gateway).routes()))
        scope = {"type": "http", "method": "POST", "path": "/scripted", "query_string": b"", "headers": []}
        await app(scope, receive, send)
    assert sent == []
