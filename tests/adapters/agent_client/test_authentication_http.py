"""Who may connect over Streamable HTTP and WebSocket: tokens in headers, connection ids, streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from adapters.agent_client.inbound import AgentClientInbound
from adapters.agent_client.options import AgentClientServe, AgentClientTarget
from adapters.agent_client.outbound import AgentClientOutbound
from gateway.config import Route
from gateway.core.errors import AgentGone
from gateway.core.types import ThreadQuery
from gateway.transport.websocket.client import UpgradeRefused, connect
from tests.adapters.agent_client.authentication_rig import (
    ANA,
    AUTHENTICATION,
    BOB,
    METHOD,
    UNKNOWN,
    lasting,
    later,
    log_in,
    token,
)
from tests.adapters.agent_client.editor import Editor, Refused
from tests.adapters.agent_client.http_rig import CONNECTION, EVENTS, INITIALIZE, MOUNT, SESSION, Client, closed
from tests.adapters.agent_client.inbound_rig import native, rig
from tests.support import scripted
from tests.support.aio import run
from tests.support.serving import serving

PROMPT = {"prompt": [{"type": "text", "text": "hello"}]}


def shown(bearer: str | None) -> dict[str, str]:
    """The header of a token."""
    return {} if bearer is None else {"Authorization": f"Bearer {bearer}"}


@contextlib.asynccontextmanager
async def gateway(**options: Any) -> AsyncIterator[tuple[AgentClientInbound, str]]:
    """A gateway with an agent of this protocol, `scripted`; and its URL."""
    async with scripted.engine(native(scripted.echo), native(scripted.echo, "other")) as engine:
        serve = AgentClientServe.model_validate({"authentication": AUTHENTICATION, **options})
        inbound = AgentClientInbound(serve, engine)
        async with serving(Starlette(routes=[Mount(MOUNT, routes=list(inbound.routes()))])) as url:
            try:
                yield inbound, f"{url}{MOUNT}/scripted"
            finally:
                await closed(inbound._http)


@contextlib.asynccontextmanager
async def client(url: str, bearer: str | None) -> AsyncIterator[Client]:
    """A connection that was opened with this token; each of its requests shows it."""
    async with httpx2.AsyncClient(timeout=30, headers=shown(bearer)) as http:
        answer = await http.post(url, json=INITIALIZE)
        assert answer.status_code == 200, answer.text
        methods = [each["id"] for each in answer.json()["result"]["authMethods"]]
        assert (METHOD in methods) is (bearer is None)
        yield Client(http, url, answer.headers[CONNECTION])


async def opened(here: Client) -> str:
    """A new session's id."""
    async with here.stream() as main:
        asked = await here.ask("session/new", {"cwd": "/", "mcpServers": []})
        while (message := await main.next()).get("id") != asked:
            pass
        return str(message["result"]["sessionId"])


async def status(url: str, method: str, bearer: str | None, connection: str, session: str | None = None) -> int:
    """What a request with these headers is answered; 200 is a stream."""
    headers = {CONNECTION: connection, **EVENTS, **shown(bearer), **({SESSION: session} if session else {})}
    body = {"jsonrpc": "2.0", "id": 9, "method": "session/prompt", "params": {"sessionId": session, **PROMPT}}
    content = json.dumps(body) if method == "POST" else None
    headers |= {"Content-Type": "application/json"} if content else {}
    async with (
        httpx2.AsyncClient(timeout=30) as http,
        http.stream(method, url, headers=headers, content=content) as answer,
    ):
        return answer.status_code


async def test_a_connection_and_its_sessions_are_not_there_for_anybody_else() -> None:
    async with gateway() as (_, url), client(url, ANA) as ana, client(url, BOB) as bob:
        session = await opened(ana)
        asked = {"POST": 202, "GET": 200}
        for method, good in asked.items():
            for bearer in (BOB, None, token()):
                assert await status(url, method, bearer, ana.connection, session) == 404, (method, bearer)
                assert await status(url, method, bearer, "0" * 32, session) == 404, "as one that there is not"
            assert await status(url, method, BOB, bob.connection, session) == 404, "nor on a connection of his own"
            assert await status(url, method, BOB, bob.connection, "never-made") == 404
            assert await status(url, method, "stolen", ana.connection, session) == 401
            assert await status(url, method, ANA, ana.connection, session) == good
            assert await status(url, method, token(sub="ana", roles="x"), ana.connection, session) == good
        for bearer, found in ((BOB, 404), (None, 404), ("stolen", 401), (ANA, 202), (ANA, 404)):
            assert await status(url, "DELETE", bearer, ana.connection) == found


def test_a_stream_gives_only_what_its_own_client_is_told() -> None:
    async def main() -> None:
        async with gateway() as (_, url), client(url, ANA) as ana, client(url, BOB) as bob:
            session, own = await opened(ana), await opened(bob)
            async with bob.stream() as main, bob.stream(own) as his, ana.stream(session) as hers:
                await ana.prompt(session, "secret")
                await bob.prompt(own, "plain")
                assert (await hers.text()).strip() == "secret"
                assert (await his.text()).strip() == "plain"
                for method in ("session/load", "session/resume"):
                    asked = await bob.ask(method, {"sessionId": session, "cwd": "/", "mcpServers": []})
                    answer = await main.next()
                    assert (answer["id"], answer["error"]["code"]) == (asked, -32002)
                assert "stopReason" in (await his.next())["result"]

    run(main())


def test_who_shows_no_token_logs_in_on_the_connection_whose_id_only_it_knows() -> None:
    async def main() -> None:
        async with gateway() as (_, url), client(url, None) as stranger:
            async with stranger.stream() as main:
                await stranger.ask("session/new", {"cwd": "/", "mcpServers": []})
                assert (await main.next())["error"]["code"] == UNKNOWN
                await stranger.ask("authenticate", {"methodId": METHOD, "_meta": {"token": ANA}})
                assert (await main.next())["result"] == {}
            session = await opened(stranger)
            async with client(url, ANA) as ana, ana.stream(session) as stream:
                await ana.prompt(session, "hers too")
                assert (await stream.text()).strip() == "hers"
            assert await status(url, "GET", BOB, stranger.connection) == 404
            assert await status(url, "GET", ANA, stranger.connection) == 200

    run(main())


@pytest.mark.parametrize("agent", ["other", "nobody"])
async def test_an_agent_that_is_not_for_somebody_is_a_404_like_one_that_there_is_not(agent: str) -> None:
    async with gateway() as (_, url), httpx2.AsyncClient() as http:
        elsewhere = url.replace("scripted", agent)
        answer = await http.post(elsewhere, json=INITIALIZE, headers=shown(BOB))
        told = {"error": f"no agent {agent}; there are scripted"}
        assert (answer.status_code, answer.json()) == (404, told)
        with pytest.raises(UpgradeRefused) as caught:
            await connect(elsewhere, headers=shown(BOB))
        assert caught.value.status == 404 and b"there are scripted" in caught.value.body


def test_a_flood_of_wrong_tokens_is_refused_and_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with gateway(max_connections=8) as (inbound, url), httpx2.AsyncClient() as http:
            wrong = [f"stolen-{number}" for number in range(60)] + [token(exp=int(time.time()) - 5), token("k" * 64)]
            for bearer in wrong:
                answer = await http.post(url, json=INITIALIZE, headers=shown(bearer))
                assert answer.status_code == 401 and CONNECTION not in answer.headers
                assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
                assert answer.json() == {"error": "the token is not valid"}
            for bearer in wrong[-12:]:
                with pytest.raises(UpgradeRefused) as caught:
                    await connect(url, headers=shown(bearer))
                assert caught.value.status == 401 and "www-authenticate" in caught.value.headers
            assert inbound.clients.connections == 0
            strangers = [await http.post(url, json=INITIALIZE) for _ in range(3)]
            assert [answer.status_code for answer in strangers] == [200, 200, 503]
            async with client(url, ANA) as ana:
                assert await opened(ana)

    run(main())
    ours = [record.getMessage() for record in caplog.records if record.name.startswith(("adapters", "gateway"))]
    for secret in ("stolen-", ANA, token(exp=0)[:30]):
        assert not [line for line in ours if secret in line]


def test_a_connection_ends_with_its_token_unless_a_newer_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.access.visit.LOOK_SECONDS", 0.01)

    async def main() -> None:
        short, long = lasting(60), lasting(600)
        async with (
            gateway() as (inbound, url),
            client(url, short) as first,
            client(url, short) as second,
            first.stream() as main,
        ):
            assert await status(url, "GET", long, second.connection) == 200
            socket = await connect(url, headers=shown(short))
            async with Editor(socket) as editor:
                await editor.initialize()
                with later(inbound.clients.people, 61):
                    await editor.until(lambda: editor.ended)
                    assert await main.next() is None, "the stream has ended"
                    for bearer in (short, long):
                        assert await status(url, "GET", bearer, first.connection) == 404
                    assert await status(url, "GET", long, second.connection) == 200
                    assert await status(url, "GET", short, second.connection) == 200, "it is still the same client's"

    run(main())


async def test_a_socket_is_known_by_its_upgrade_or_by_what_it_says() -> None:
    async with gateway() as (_, url):
        async with Editor(await connect(url, headers=shown(ANA))) as ana:
            assert METHOD not in [each["id"] for each in (await ana.initialize())["authMethods"]]
            session = await ana.new()
        async with Editor(await connect(url)) as later:
            await later.initialize()
            with pytest.raises(Refused) as caught:
                await later.load(session)
            assert caught.value.code == UNKNOWN
            await log_in(later, ANA)
            await later.load(session)
        async with Editor(await connect(url)) as guessing:
            await guessing.initialize()
            for _ in range(3):
                with pytest.raises(Refused):
                    await log_in(guessing, "wrong")
            await guessing.until(lambda: guessing.ended)


async def test_a_socket_that_has_to_end_says_why() -> None:
    options = {**AUTHENTICATION, "grace": 0.05}
    async with gateway(authentication=options) as (_, url):
        socket = await connect(url)
        with pytest.raises(AgentGone, match=r"1008.*nobody has logged in"):
            async with asyncio.timeout(30):
                await socket.receive()
        await socket.aclose()


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_a_gateway_behind_a_gateway_is_shown_the_token_of_the_target(scheme: str) -> None:
    async with gateway() as (inner, url):
        there = url.replace("http", scheme)
        target = AgentClientTarget.model_validate({"protocol": "agent_client", "url": there, "auth": {"bearer": BOB}})
        entry: Any = (Route(name="outer", target=target), AgentClientOutbound(target))
        async with rig(entry) as outer:
            editor = await outer.connect("outer")
            assert METHOD not in [each["id"] for each in (await editor.initialize())["authMethods"]]
            session = await editor.new(cwd="/")
            assert await editor.prompt(session, "through both") == {"stopReason": "end_turn"}
            assert editor.text().strip() == "through both"
            (made,) = await inner.clients.gateway.threads.list(ThreadQuery())
            assert made.attributes["owner"] == "bob"
