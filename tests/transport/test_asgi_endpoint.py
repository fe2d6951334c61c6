"""One path of a REST protocol, driven without a server."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping, Sequence
from typing import Any

import pytest
from starlette.types import Scope

from gateway.core.errors import InterlinguaError, Invalid, NotFound
from gateway.transport.asgi import HttpRequest, Reply, RestEndpoint, WhileConnected
from gateway.transport.asgi.request import EventStream
from tests.support.aio import run

Message = MutableMapping[str, Any]


class Echo:
    """What serves the client: its operations."""

    async def say(self, request: HttpRequest) -> Reply:
        return Reply(200, await request.body(10), [(b"x-query", (request.query("q") or "").encode())])

    async def fail(self, request: HttpRequest) -> Reply:
        raise Invalid("it does not fit", detail="a secret")

    async def break_(self, request: HttpRequest) -> Reply:
        raise ValueError("a secret")

    async def break_off(self, request: HttpRequest) -> None:
        await EventStream(request).sent(b"data: 1\n\n")
        raise ValueError("a secret")

    async def refuse_late(self, request: HttpRequest) -> None:
        await EventStream(request).sent(b"data: 1\n\n")
        raise Invalid("too late to be a status")

    async def wait(self, request: HttpRequest) -> Reply:
        await request.body(10)
        with WhileConnected(request):
            await asyncio.Event().wait()
        return Reply(200)


def refusal(error: InterlinguaError) -> Reply:
    return Reply(
        422 if isinstance(error, Invalid) else 404 if isinstance(error, NotFound) else 500, str(error).encode()
    )


def serving(scope: Scope) -> Echo:
    if (b"authorization", b"nobody") in scope["headers"]:
        raise NotFound("nobody is served")
    return Echo()


ENDPOINT = RestEndpoint(
    {
        "GET": Echo.wait,
        "POST": Echo.say,
        "PUT": Echo.fail,
        "PATCH": Echo.break_,
        "DELETE": Echo.break_off,
        "LOCK": Echo.refuse_late,
    },
    serving,
    refusal,
)
WHOLE: Message = {"type": "http.request", "body": b"hello", "more_body": False}
GONE: Message = {"type": "http.disconnect"}


def ask(
    method: str, *came: Message, headers: Sequence[tuple[bytes, bytes]] = (), query: bytes = b"", sent: Any = None
) -> list[Any]:
    """The messages of the answer; they are put into `sent` too."""
    coming, said = list(came or (WHOLE,)), [] if sent is None else sent

    async def receive() -> Message:
        return coming.pop(0)

    async def send(message: Message) -> None:
        said.append(message)

    scope: Scope = {"method": method, "path": "/it", "path_params": {}, "query_string": query, "headers": headers}
    run(ENDPOINT(scope, receive, send))
    return list(said)


def test_an_operation_is_answered_by_two_messages_with_the_length_of_its_body() -> None:
    head, body = ask("POST", query=b"q=1&q=two")
    assert head == {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"x-query", b"two"), (b"content-length", b"5"), (b"content-type", b"application/json")],
    }
    assert body == {"type": "http.response.body", "body": b"hello"}


@pytest.mark.parametrize(
    ("method", "status", "said"), [("PUT", 422, b"it does not fit"), ("PATCH", 500, b"internal error")]
)
def test_an_error_is_answered_in_the_protocols_words_without_its_detail(method: str, status: int, said: bytes) -> None:
    head, body = ask(method)
    assert (head["status"], body["body"]) == (status, said)


def test_a_client_that_is_not_served_is_told_so() -> None:
    head, body = ask("POST", headers=[(b"authorization", b"nobody")])
    assert (head["status"], body["body"]) == (404, b"nobody is served")


def test_a_method_that_the_path_does_not_have_is_405_with_all_that_it_has() -> None:
    head, body = ask("TRACE", headers=[(b"authorization", b"nobody")])
    assert head["status"] == 405 and (b"allow", b"GET, POST, PUT, PATCH, DELETE, LOCK") in head["headers"]
    assert body["body"] == b"TRACE /it is no operation of this protocol"


@pytest.mark.parametrize(("method", "error"), [("DELETE", ValueError), ("LOCK", Invalid)])
def test_an_answer_that_has_begun_is_broken_off_and_no_other_follows(method: str, error: type[Exception]) -> None:
    sent: list[Message] = []
    with pytest.raises(error):
        ask(method, sent=sent)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


def test_a_client_that_goes_while_it_sends_or_waits_is_not_answered() -> None:
    assert ask("POST", {**WHOLE, "more_body": True}, GONE) == []
    assert ask("GET", WHOLE, GONE) == []


@pytest.mark.parametrize(("encoding", "status"), [(b"gzip", 422), (b"identity", 200), (b"Identity", 200), (b"", 200)])
def test_a_body_that_is_compressed_is_refused(encoding: bytes, status: int) -> None:
    assert ask("POST", headers=[(b"content-encoding", encoding)])[0]["status"] == status


def test_a_query_of_too_many_parameters_is_refused() -> None:
    assert ask("POST", query=b"&".join(b"%d=1" % each for each in range(101)))[0]["status"] == 422
