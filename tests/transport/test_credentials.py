"""Tokens that are asked for, and certificates that are shown: by HTTP, event streams and WebSockets."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest
from pydantic import ValidationError
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from gateway.contract.options import OAuth2, TargetOptions, TlsOptions
from gateway.core.errors import AgentBroken, AgentError, AgentFailed, AgentGone
from gateway.transport.http import HttpClient, Unreachable, credentials, credentials_of
from gateway.transport.http.credentials import ReloadedTls
from gateway.transport.websocket.client import connect
from tests.support import certificates
from tests.support.aio import run
from tests.support.peers import oidc_provider
from tests.support.processes import Process

AUDIENCE = "https://agents.example.com"


@pytest.fixture(scope="module")
def provider() -> Iterator[Process]:
    with oidc_provider() as running:
        yield running


class Server:
    """Plain HTTP. `answers`: what it says next, by path: status and body. `seen`: heads and bodies that came."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, bytes]]] = {}
        self.seen: list[tuple[str, bytes]] = []
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().partition("content-length: ")[2].partition("\r")[0] or 0)
                self.seen.append((head, await reader.readexactly(length)))
                status, body = self.answers.get(head.split()[1], []).pop(0)
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        except (asyncio.IncompleteReadError, ConnectionError, IndexError):
            pass
        finally:
            writer.transport.abort()

    def tokens(self) -> list[str]:
        """Those that came to the agent, in order."""
        heads = [head for head, _ in self.seen if head.split()[1] != "/token"]
        return [head.partition("uthorization: Bearer ")[2].partition("\r")[0] for head in heads]


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    async with await asyncio.start_server(server.handle, "127.0.0.1", 0) as listening:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server


def target(token_url: str, **more: Any) -> TargetOptions:
    given = {"token_url": token_url, "client_id": "robot", "client_secret": "secret", **more}
    return TargetOptions(protocol="x", auth={"oauth2": given})


def answer(token: str, **more: Any) -> tuple[int, bytes]:
    return 200, json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 600, **more}).encode()


async def test_one_token_is_asked_for_by_all_who_wait_and_used_until_shortly_before_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(credentials, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async with serving() as server:
        server.answers = {"/token": [answer("one"), answer("two")], "/": [(200, b"")] * 12}
        async with HttpClient(server.url, auth=credentials_of(target(f"{server.url}/token"))) as client:
            await asyncio.gather(*(client.request("POST", "/", json=b"{}") for _ in range(10)))
            for now[0] in (1569.0, 1571.0):
                await client.request("GET", "/")
        assert server.tokens() == ["one"] * 11 + ["two"]
        asked = [(head, parse_qs(body.decode())) for head, body in server.seen if head.split()[1] == "/token"]
        assert [fields for _, fields in asked] == [{"grant_type": ["client_credentials"]}] * 2
        assert "uthorization: Basic cm9ib3Q6c2VjcmV0\r\n" in asked[0][0]


async def test_a_refused_token_is_asked_for_once_more_and_no_oftener() -> None:
    async with serving() as server:
        server.answers = {
            "/token": [answer("old"), answer("new"), answer("newer")],
            "/": [(401, b""), (200, b"in"), (401, b""), (401, b"no")],
        }
        async with HttpClient(server.url, auth=credentials_of(target(f"{server.url}/token"))) as client:
            first = await client.request("POST", "/", json=b'{"a":1}')
            second = await client.request("POST", "/", json=b'{"a":2}')
        assert (first.body, second.status, second.body) == (b"in", 401, b"no")
        assert server.tokens() == ["old", "new", "new", "newer"]
        assert [body for head, body in server.seen if head.startswith("POST / ")] == [b'{"a":1}'] * 2 + [b'{"a":2}'] * 2


async def test_the_client_is_shown_in_the_body_where_the_server_wants_that() -> None:
    async with serving() as server:
        server.answers = {"/token": [answer("x")], "/": [(200, b"")]}
        made = target(f"{server.url}/token", send="body", scope="a b", audience="me")
        async with HttpClient(server.url, auth=credentials_of(made)) as client:
            await client.request("GET", "/")
        head, body = server.seen[0]
        assert "uthorization" not in head
        assert parse_qs(body.decode()) == {
            "grant_type": ["client_credentials"],
            "client_id": ["robot"],
            "client_secret": ["secret"],
            "scope": ["a b"],
            "audience": ["me"],
        }


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ((400, b'{"error": "invalid_client", "error_description": "who?"}'), AgentFailed, "400: invalid_client: who?"),
        ((503, b"busy"), AgentGone, "it answered 503"),
        ((200, b"hello"), AgentBroken, "not JSON"),
        ((200, b'{"token_type": "Bearer"}'), AgentBroken, "no access_token"),
        ((200, b'{"access_token": "a\\nb", "token_type": "Bearer"}'), AgentBroken, "no access_token"),
        ((200, b'{"access_token": "a", "token_type": "mac"}'), AgentBroken, "not Bearer"),
    ],
)
async def test_what_keeps_a_token_from_being_had_is_told_without_the_secret(
    said: tuple[int, bytes], kind: type[AgentError], told: str
) -> None:
    async with serving() as server:
        server.answers = {"/token": [said]}
        async with HttpClient(server.url, auth=credentials_of(target(f"{server.url}/token"))) as client:
            with pytest.raises(kind, match=told) as raised:
                await client.request("POST", "/", json=b"{}")
        assert raised.value.untaken and f"no token could be had of {server.url[7:]}" in str(raised.value)
        assert "secret" not in f"{raised.value} {raised.value.detail} {raised.value.__cause__}"
        assert len(server.seen) == 1, "the agent is not asked without"


async def test_a_real_server_gives_tokens_for_requests_streams_and_websockets(provider: Process) -> None:
    told: list[str | None] = []

    async def upgrade(connection: ServerConnection, request: Request) -> Response | None:
        told.append(request.headers.get("Authorization"))
        return connection.respond(401, "another") if len(told) == 1 else None

    async def idle(connection: ServerConnection) -> None:
        await connection.wait_closed()

    auth = credentials_of(target(f"{provider.url}/token", resource=AUDIENCE))
    async with serving() as server, serve(idle, "127.0.0.1", 0, process_request=upgrade) as sockets:
        server.answers = {"/": [(200, b"whole"), (200, b"stream")]}
        async with HttpClient(server.url, auth=auth) as client:
            assert (await client.request("POST", "/", json=b"{}")).body == b"whole"
            async with client.stream("GET", "/") as response:
                assert await response.read() == b"stream"
        (first, second) = server.tokens()
        assert first == second and first.count(".") == 2, "a JWT, and one for both"
        port = next(iter(sockets.sockets)).getsockname()[1]
        socket = await connect(f"ws://127.0.0.1:{port}", auth=auth)
        await socket.aclose()
        assert told[0] == f"Bearer {first}" and told[1] not in (None, told[0])


async def test_a_wrong_secret_is_refused_by_a_real_server(provider: Process) -> None:
    made = credentials_of(target(f"{provider.url}/token", client_secret="wrong"))
    async with HttpClient("http://127.0.0.1:9", auth=made) as client:
        with pytest.raises(AgentFailed, match="invalid_client"):
            await client.request("GET", "/")


def test_the_secret_is_in_no_text_of_the_options() -> None:
    made = OAuth2(token_url="https://x/t?a=1", client_id="a", client_secret="hidden-secret")
    assert "hidden-secret" not in f"{made!r} {made} {made.model_dump_json()}"
    with pytest.raises(ValidationError, match="name one of bearer and oauth2"):
        TargetOptions(protocol="x", auth={"bearer": "b", "oauth2": made.model_dump()})


# --- certificates -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """By name: the authority's certificate, and a pair that it vouches for."""
    folder = tmp_path_factory.mktemp("authorities")
    return {name: certificates.authority(folder, name) for name in ("server", "client", "stranger")}


def demanding(authorities: dict[str, tuple[Path, Path]]) -> ssl.SSLContext:
    """A server's, which takes no client without a certificate of the authority `client`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authorities["server"][1])
    context.load_verify_locations(authorities["client"][0])
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_a_certificate_is_shown_to_a_server_that_demands_it_and_changed_files_are_taken(
    authorities: dict[str, tuple[Path, Path]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = tmp_path / "mine.pem"

    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.transport.abort()

    async def idle(connection: ServerConnection) -> None:
        await connection.wait_closed()

    context = demanding(authorities)
    mine.write_bytes(authorities["stranger"][1].read_bytes())
    made = TargetOptions(protocol="x", tls=TlsOptions(ca=authorities["server"][0], cert=mine))
    auth = credentials_of(made)
    async with (
        await asyncio.start_server(hello, "127.0.0.1", 0, ssl=context) as plain,
        serve(idle, "127.0.0.1", 0, ssl=context) as sockets,
    ):
        url = f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}"
        there = f"wss://127.0.0.1:{next(iter(sockets.sockets)).getsockname()[1]}"
        async with HttpClient(url, auth=auth, timeout=20) as client:
            with pytest.raises(AgentGone):
                await client.request("GET", "/")
            mine.write_bytes(authorities["client"][1].read_bytes())
            assert (await client.request("GET", "/")).body == b"hi"
            async with client.stream("GET", "/") as response:
                assert await response.read() == b"hi"
            await (await connect(there, auth=auth)).aclose()
            mine.write_bytes(b"half a file")
            assert (await client.request("GET", "/")).body == b"hi"
        assert "TLS goes on with the files of before" in caplog.text
        for other in (TlsOptions(ca=authorities["stranger"][0]), TlsOptions(ca=authorities["server"][0])):
            async with HttpClient(url, auth=credentials_of(TargetOptions(protocol="x", tls=other))) as client:
                with pytest.raises(AgentGone):
                    await client.request("GET", "/")


def test_the_certificate_is_shown_to_the_token_server_too_and_stands_for_a_secret(
    authorities: dict[str, tuple[Path, Path]],
) -> None:
    async def scene() -> None:
        server = Server()
        server.answers["/token?tenant=a"] = [answer("of-the-certificate"), answer("by-both")]
        async with await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=demanding(authorities)) as listening:
            url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}/token?tenant=a"

            async def token(name: str, **more: Any) -> str:
                shown = {"ca": authorities["server"][0], "cert": authorities[name][1]}
                tokens = credentials_of(target(url, tls=shown, **more)).tokens
                assert tokens is not None
                return await tokens.token()

            assert await token("client", client_secret=None) == "of-the-certificate"
            assert await token("client") == "by-both"
            with pytest.raises(AgentGone, match="no token could be had"):
                await token("stranger")
        (alone, form), (both, _) = server.seen
        assert "authorization" not in alone.lower() and parse_qs(form.decode())["client_id"] == ["robot"]
        assert b"client_secret" not in form and "Authorization: Basic" in both

    run(scene())
    for tls in (None, {"ca": authorities["server"][0]}):
        with pytest.raises(ValidationError, match="needs a client_secret, or a certificate"):
            target("https://x/t", client_secret=None, tls=tls)


def test_files_that_cannot_be_used_are_mistakes_that_name_them(
    authorities: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    known, pair = authorities["client"]
    for given, told in (
        ({"ca": tmp_path / "none.pem"}, "none.pem: no such file"),
        ({"ca": pair.with_name("nothing"), "cert": pair}, "nothing: no such file"),
        ({"cert": known}, "no certificate with its key"),
        ({"key": pair}, "has a key and no cert"),
    ):
        with pytest.raises(ValidationError, match=told):
            TlsOptions.model_validate(given)


def test_a_file_that_goes_while_there_is_no_connection_yet_is_told() -> None:
    def gone() -> ssl.SSLContext:
        raise ValueError("x.pem: no such file")

    with pytest.raises(Unreachable, match=r"no TLS connection can be made: x\.pem"):
        ReloadedTls((), gone).context()
