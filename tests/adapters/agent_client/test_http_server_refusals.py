"""The Streamable HTTP endpoint: what it refuses, and how. Every refusal is `{"error": TEXT}`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest

from gateway.core.errors import Unavailable
from gateway.transport.asgi import request
from gateway.transport.pipe import Pipe
from tests.adapters.agent_client.http_rig import CONNECTION, EVENTS, INITIALIZE, SESSION, Client, Rig, client, rig

Case = Callable[[Rig, Client], Awaitable[httpx2.Response]]

PROMPT = {"sessionId": "old1", "prompt": []}


def _posting(content: bytes | str, **headers: str) -> Case:
    async def post(there: Rig, here: Client) -> httpx2.Response:
        sent = {"Content-Type": "application/json", CONNECTION: here.connection, **headers}
        return await here.http.post(here.url, content=content, headers=sent)

    return post


def _asking(method: str, params: dict[str, Any], session: str | None = None, **headers: str) -> Case:
    async def post(there: Rig, here: Client) -> httpx2.Response:
        return await here.post({"id": 1, "method": method, "params": params}, session, **headers)

    return post


def _getting(**headers: str) -> Case:
    async def get(there: Rig, here: Client) -> httpx2.Response:
        return await here.http.get(here.url, headers=headers)

    return get


def _deleting(**headers: str) -> Case:
    async def delete(there: Rig, here: Client) -> httpx2.Response:
        return await here.http.delete(here.url, headers=headers)

    return delete


async def _getting_here(there: Rig, here: Client) -> httpx2.Response:
    return await here.http.get(here.url, headers={**EVENTS, CONNECTION: here.connection, SESSION: "unheard"})


async def _accepting_json(there: Rig, here: Client) -> httpx2.Response:
    return await here.http.get(here.url, headers={"Accept": "application/json", CONNECTION: here.connection})


async def _without_connection(there: Rig, here: Client) -> httpx2.Response:
    return await here.http.post(here.url, json={"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {}})


async def _no_such_agent(there: Rig, here: Client) -> httpx2.Response:
    return await here.http.post(there.url + "nobody", json=INITIALIZE)


async def _by_another_path(there: Rig, here: Client) -> httpx2.Response:
    message = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {}}
    return await here.http.post(there.url + "other", json=message, headers={CONNECTION: here.connection})


async def _no_id(there: Rig, here: Client) -> httpx2.Response:
    return await here.http.post(here.url, json={**INITIALIZE, "id": None})


async def _put(there: Rig, here: Client) -> httpx2.Response:
    return await here.http.put(here.url, json={})


REFUSED: dict[str, tuple[int, Case]] = {
    "no JSON": (400, _posting(b"{not json")),
    "an empty body": (400, _posting(b"")),
    "a text": (400, _posting(b'"initialize"')),
    "no message": (400, _posting(b'{"jsonrpc": "2.0"}')),
    "not UTF-8": (400, _posting(b'{"jsonrpc": "2.0", "method": "\xff"}')),
    "a wrong content type": (415, _posting(json.dumps(INITIALIZE), **{"Content-Type": "text/plain"})),
    "no content type": (415, _posting(json.dumps(INITIALIZE), **{"Content-Type": ""})),
    "a compressed body": (415, _posting(b"\x1f\x8b", **{"Content-Encoding": "gzip"})),
    "a batch": (501, _posting(json.dumps([INITIALIZE]))),
    "an empty batch": (501, _posting(b" []")),
    "initialize without an id": (400, _no_id),
    "initialize for an agent that there is not": (404, _no_such_agent),
    "a POST without the connection": (400, _without_connection),
    "a POST on an unknown connection": (404, _asking("session/new", {}, **{CONNECTION: "unheard"})),
    "a POST by another path": (404, _by_another_path),
    "a prompt without the session's header": (400, _asking("session/prompt", PROMPT)),
    "a cancel without the session's header": (400, _asking("session/cancel", {"sessionId": "old1"})),
    "a mode without the session's header": (400, _asking("session/set_mode", {"sessionId": "old1"})),
    "a header that contradicts the message": (400, _asking("session/prompt", PROMPT, "old2")),
    "a prompt in an unknown session": (404, _asking("session/prompt", {**PROMPT, "sessionId": "unheard"}, "unheard")),
    "a GET that does not accept events": (406, _accepting_json),
    "a GET that accepts anything": (406, _getting()),
    "a GET without the connection": (400, _getting(**EVENTS)),
    "a GET on an unknown connection": (404, _getting(**EVENTS, **{CONNECTION: "unheard"})),
    "a GET of an unknown session": (404, _getting_here),
    "a DELETE without the connection": (400, _deleting()),
    "a DELETE of an unknown connection": (404, _deleting(**{CONNECTION: "unheard"})),
    "another method": (405, _put),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_is_refused_with_its_status(name: str) -> None:
    status, case = REFUSED[name]

    async with rig() as there, client(there.url) as here:
        answer = await case(there, here)
        assert answer.status_code == status, answer.text
        assert isinstance(answer.json()["error"], str)
        assert answer.headers["content-type"] == "application/json"
        async with here.stream() as main:  # and the connection is none the worse
            assert await here.new(main)


async def test_a_client_that_accepts_json_and_events_is_served() -> None:
    async with rig() as there, httpx2.AsyncClient() as http:
        both = {"Accept": "application/json, text/event-stream"}
        answer = await http.post(there.url, json=INITIALIZE, headers=both)
        assert answer.headers["content-type"] == "application/json"
        here = Client(http, there.url, answer.headers[CONNECTION])
        assert (await here.post({"id": 1, "method": "session/new", "params": {}}, **both)).status_code == 202


async def test_a_content_type_with_a_charset_is_json_too() -> None:
    async with rig() as there, httpx2.AsyncClient() as http:
        headers = {"Content-Type": "Application/JSON; charset=utf-8"}
        answer = await http.post(there.url, content=json.dumps(INITIALIZE), headers=headers)
        assert answer.status_code == 200


async def test_a_body_over_the_limit_is_refused_announced_or_not() -> None:
    async def piecemeal(length: int) -> AsyncIterator[bytes]:
        for _ in range(length):
            yield b" "

    async with rig(max_body=1000) as there, client(there.url) as here, here.stream() as main:
        for content in (b" " * 1001, piecemeal(1001), b" " * (30 << 20)):
            headers = {"Content-Type": "application/json", CONNECTION: here.connection}
            answer = await here.http.post(here.url, content=content, headers=headers)
            assert answer.status_code == 413
            assert "1000 bytes" in answer.json()["error"]
        assert await here.new(main)


async def test_a_client_that_asks_before_it_sends_too_much_is_told_at_once() -> None:
    async with rig(max_body=1000) as there:
        url = httpx2.URL(there.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        head = f"POST {url.path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n".encode())
        async with asyncio.timeout(30):
            assert b" 413 " in await reader.readline()
        writer.close()


async def test_a_body_over_the_limit_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 1001
            await asyncio.sleep(0.01)

    monkeypatch.setattr(request, "DISCARD_SECONDS", 0.1)
    async with rig(max_body=1000) as there, client(there.url) as here:
        headers = {"Content-Type": "application/json"}
        with contextlib.suppress(httpx2.TransportError):  # it is cut off while it writes
            answer = await here.http.post(here.url, content=endless(), headers=headers)
            assert answer.status_code == 413


async def test_pages_of_other_sites_may_not_connect() -> None:
    async with rig() as there, client(there.url) as here:
        host = httpx2.URL(there.url).netloc.decode()
        # the last is what a page sees after DNS rebinding: its own name, which is now ours
        for page in ("https://evil.example", "null", f"http://{host}"):
            answer = await here.http.post(here.url, json=INITIALIZE, headers={"Origin": page})
            assert answer.status_code == 403, page
            assert "error" in answer.json()
        answer = await here.http.delete(here.url, headers={"Origin": "null", CONNECTION: here.connection})
        assert answer.status_code == 403
        assert len(there.alive) == 1


async def test_a_page_that_may_connect_is_told_so() -> None:
    page = "https://ide.example"

    async with rig(origins=(page,)) as there, httpx2.AsyncClient() as http:
        asks = {"Origin": page, "Access-Control-Request-Method": "POST"}
        headers = {**asks, "Access-Control-Request-Headers": "acp-connection-id,content-type"}
        before = await http.options(there.url, headers=headers)
        assert before.status_code == 204
        assert before.headers["access-control-allow-headers"] == "acp-connection-id,content-type"
        assert "DELETE" in before.headers["access-control-allow-methods"]
        answer = await http.post(there.url, json=INITIALIZE, headers={"Origin": page})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == page
        assert "acp-connection-id" in answer.headers["access-control-expose-headers"]


async def test_a_cookie_leads_back_to_the_same_process() -> None:
    async with rig() as there, httpx2.AsyncClient() as http:
        first = await http.post(there.url, json=INITIALIZE)
        assert "HttpOnly" in first.headers["set-cookie"]
        assert http.cookies["interlingua"]
        async with httpx2.AsyncClient() as another:
            second = await another.post(there.url, json=INITIALIZE)
        assert second.headers["set-cookie"] == first.headers["set-cookie"]


async def test_an_agent_that_ends_instead_of_answering_initialize_is_an_error() -> None:
    async def ends(pipe: Pipe, agent: str | None) -> None:
        await pipe.receive()

    async def refuses(pipe: Pipe, agent: str | None) -> None:
        raise Unavailable("too many clients are connected")

    for converse, status in ((ends, 502), (refuses, 503)):
        async with rig(converse) as there, httpx2.AsyncClient() as http:
            answer = await http.post(there.url, json=INITIALIZE)
            assert answer.status_code == status
            assert "error" in answer.json()


async def test_a_client_that_leaves_before_initialize_is_answered_leaves_nothing() -> None:
    came, left = asyncio.Event(), asyncio.Event()

    async def slow(pipe: Pipe, agent: str | None) -> None:
        assert await pipe.receive()
        came.set()
        assert not await pipe.receive()
        left.set()

    async with rig(slow) as there, httpx2.AsyncClient() as http:
        asking = asyncio.create_task(http.post(there.url, json=INITIALIZE))
        async with asyncio.timeout(30):
            await came.wait()
            assert not left.is_set()
            asking.cancel()
            await left.wait()


async def test_initialize_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(pipe: Pipe, agent: str | None) -> None:
        while await pipe.receive():
            pass

    monkeypatch.setattr("adapters.agent_client.inbound.http.INITIALIZE_SECONDS", 0.1)
    async with rig(silent) as there, httpx2.AsyncClient() as http:
        answer = await http.post(there.url, json=INITIALIZE)
        assert answer.status_code == 504
        assert "not answered" in answer.json()["error"]


async def test_a_session_that_only_the_agent_may_know_can_be_asked_for() -> None:
    async with rig() as there, httpx2.AsyncClient() as http:
        abilities: list[dict[str, Any]] = [{"loadSession": True}, {"sessionCapabilities": {"resume": {}}}]
        for can in abilities:
            there.agents.extra = {"agent_client": {"agentCapabilities": can}}
            answer = await http.post(there.url + "rig", json=INITIALIZE)
            here = Client(http, there.url + "rig", answer.headers[CONNECTION])
            async with here.stream("old-of-the-agent") as stream:
                params = {"sessionId": "old-of-the-agent", "cwd": "/", "mcpServers": []}
                await here.ask("session/load", params)
                assert await stream.text() == "first"
