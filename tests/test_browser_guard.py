"""What pages in browsers may ask: a whole gateway behind its guard, as a browser would ask it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx2
import pytest

from gateway import registry
from gateway.app import App
from gateway.browser_guard import HostNames
from gateway.config import loads
from tests.support.aio import run

FILE = """
routes: [{name: mail, target: {protocol: agent_protocol, url: "http://127.0.0.1:9"}}]
store: {url: "sqlite://"}
"""
ASKING = """
inbound: {agent_connect: {authentication: {clients: [{name: ann, token: hers}]}}, agent_protocol: {}}
"""
DOORS = [
    ("agent_connect", "POST", "/agent-connect/agents/search"),
    ("agent_protocol", "GET", "/agent-protocol/mail/ap/v1/agent/tasks"),
    ("agent_client", "POST", "/agent-client/mail"),
    ("agent_communication", "POST", "/agent-communication/mcp"),
    ("agent_communication", "GET", "/agent-communication/sse"),
    ("agent_context", "POST", "/agent-context"),
]
Headers = Mapping[str, str] | Sequence[tuple[str, str]]
RPC = {"jsonrpc": "2.0", "id": None}


def in_the_words_of(protocol: str, why: str) -> Any:
    match protocol:
        case "agent_connect":
            return why
        case "agent_protocol":
            return {"message": why}
        case "agent_client":
            return {"error": why}
    return {**RPC, "error": {"code": -32600, "message": why}}


async def asked(
    path: str, headers: Headers, method: str = "GET", more: str = "", json: Any = None, **options: Any
) -> httpx2.Response:
    """What a gateway answers that listens for this machine only, unless `options` say otherwise."""
    app = App(
        loads(FILE + more, registry.scan(), {}), **{"private": True, "address": "http://127.0.0.1:8080", **options}
    )
    await app.start()
    try:
        transport = httpx2.ASGITransport(app.asgi, client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            body: dict[str, Any] = {"content": b"{}"} if json is None else {"json": json}
            return await client.request(method, path, headers=headers, **body if method == "POST" else {})
    finally:
        await app.stop()


@pytest.mark.parametrize(("protocol", "method", "path"), DOORS, ids=lambda value: value.strip("/").replace("/", " "))
def test_a_name_that_is_made_to_lead_here_is_refused_in_the_words_of_each_door(
    protocol: str, method: str, path: str
) -> None:
    answer = run(asked(path, {"host": "evil.example:8080"}, method))
    why = "Host: 'evil.example:8080' is no name of this gateway (see `hosts` in routes.yaml)"
    assert (answer.status_code, answer.json()) == (403, in_the_words_of(protocol, why))


@pytest.mark.parametrize("path", [DOORS[0][2], "/healthz", "/nowhere"])
@pytest.mark.parametrize("hosts", [["evil.example", "localhost"], ["localhost", "evil.example"], ["localhost"] * 2])
def test_a_request_under_two_names_is_none(path: str, hosts: list[str]) -> None:
    answer = run(asked(path, [("host", host) for host in hosts], "POST"))
    assert answer.status_code == 400
    twice = [("host", "localhost"), ("accept", "a/a"), ("accept", "b/b")]
    assert run(asked(path, twice, "POST")).status_code != 400


@pytest.mark.parametrize(("protocol", "method", "path"), [door for door in DOORS if door[1] == "POST"])
def test_a_page_of_another_site_is_refused_at_each_door(protocol: str, method: str, path: str) -> None:
    answer = run(asked(path, {"origin": "https://evil.example"}, method))
    assert answer.status_code == 403
    assert "evil.example" in answer.text


@pytest.mark.parametrize(
    "origin",
    ["null", "http://203.0.113.5", "https://localhost.evil.example", "http://[::1", "https://127.0.0.1.evil.example"],
)
def test_so_is_a_page_of_nobodys_or_of_elsewhere(origin: str) -> None:
    answer = run(asked("/agent-connect/agents/search", {"origin": origin}, "POST"))
    assert (answer.status_code, answer.json()) == (
        403,
        f"Origin: pages of {origin} may not ask here (see `hosts` in routes.yaml)",
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost:8080", "origin": "http://localhost:3000"},
        {"host": "[::1]:8080", "origin": "http://[::1]:8080"},
        {"host": "192.168.7.7:8080", "origin": "http://192.168.7.7:8080"},
        {"host": "gateway.localhost", "origin": "http://127.0.0.1"},
        {"host": "agents.example.com", "origin": "https://agents.example.com"},
        {"host": "127.0.0.1:8080", "origin": "https://app.example.org"},
        {"host": "127.0.0.1:8080", "origin": "https://anything.example", "sec-fetch-site": "same-origin"},
        {"host": "LOCALHOST."},
    ],
)
def test_pages_of_this_machine_and_of_names_of_the_gateway_are_served(headers: dict[str, str]) -> None:
    more = "public_url: https://agents.example.com\nhosts: ['*.example.org']\n"
    assert run(asked("/agent-connect/agents/search", headers, "POST", more)).status_code == 200


def test_where_other_machines_reach_the_gateway_any_name_does_unless_the_file_names_some() -> None:
    path, headers = "/agent-connect/agents/search", {"host": "gateway.default.svc:8080"}
    assert run(asked(path, headers, "POST", private=False, address="")).status_code == 200
    named = "hosts: [other.example]\n"
    assert run(asked(path, headers, "POST", named, private=False, address="")).status_code == 403


def test_a_door_that_asks_who_somebody_is_is_kept_by_that() -> None:
    headers = {"host": "evil.example", "origin": "https://evil.example"}
    path = "/agent-connect/agents/search"
    assert run(asked(path, {**headers, "authorization": "Bearer hers"}, "POST", ASKING)).status_code == 200
    assert run(asked(path, headers, "POST", ASKING)).status_code == 401
    assert run(asked("/agent-protocol/mail/ap/v1/agent/tasks", headers, more=ASKING)).status_code == 403


@pytest.mark.parametrize("path", ["/readyz", "/metrics", "/healthz"])
def test_the_gateways_own_pages_answer_under_every_name(path: str) -> None:
    answer = run(asked(path, {"host": "evil.example"}))
    assert answer.status_code == 200
    assert "mail" not in answer.text


def test_a_request_without_a_name_is_no_browsers() -> None:
    assert HostNames(()).asked("")


def test_a_page_of_nobodys_is_not_the_gateways_own_where_no_name_is_asked() -> None:
    for more in ("", "hosts: ['*']\n"):
        answer = run(asked("/agent-connect/agents/search", {"host": "", "origin": "null"}, "POST", more))
        assert answer.status_code == 403


def test_a_name_in_the_file_may_end_with_a_dot_as_a_host_may() -> None:
    assert HostNames(["gateway.example."]).asked("gateway.example:8080")


# --- doors that judge pages themselves, by `origins` ------------------------------------------------------------------

HELLO = {"capabilities": {}, "clientInfo": {"name": "page", "version": "0"}}
JUDGING = ["/agent-communication/mcp", "/agent-context", "/agent-client/mail"]
SOCKETS = ["/agent-communication/ws", "/agent-context/ws", "/agent-client/mail"]
HERE = [
    ("127.0.0.1:8080", "http://127.0.0.1:8080"),
    ("127.0.0.1:8080", "http://localhost:6274"),
    ("localhost:8080", "https://127.0.0.1"),
    ("[::1]:8080", "http://[::1]:3000"),
    ("gateway.localhost", "http://page.localhost"),
]
ELSEWHERE = [
    ("127.0.0.1:8080", "https://evil.example"),
    ("127.0.0.1:8080", "null"),
    ("127.0.0.1:8080", "http://[::1"),
    ("127.0.0.1:8080", "http://localhost.evil.example"),
    ("127.0.0.1:8080", "http://192.168.7.7:8080"),
    ("192.168.7.7:8080", "http://localhost:6274"),
    ("evil.example:8080", "http://localhost:6274"),
    ("evil.example:8080", "http://evil.example:8080"),
    ("", "http://localhost:6274"),
]
GUARDED = "inbound: {agent_communication: {authentication: {clients: [{name: ann, token: hers}]}}}\n"


async def greeted(path: str, host: str, origin: str, method: str = "POST", **how: Any) -> httpx2.Response:
    said = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    headers = {"host": host, "origin": origin, **said, **how.pop("headers", {})}
    version = 1 if "agent-client" in path else "2025-11-25"
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": version, **HELLO}}
    return await asked(path, headers, method, json=initialize if method == "POST" else None, **how)


@pytest.mark.parametrize("path", JUDGING)
@pytest.mark.parametrize(("host", "origin"), HERE)
def test_a_page_of_this_machine_may_connect_and_reads_what_it_needs(path: str, host: str, origin: str) -> None:
    sent = {"access-control-request-method": "POST", "access-control-request-headers": "mcp-session-id, authorization"}
    preflight = run(greeted(path, host, origin, "OPTIONS", headers=sent))
    assert preflight.status_code == 204, preflight.text
    assert preflight.headers["access-control-allow-origin"] == origin
    assert preflight.headers["access-control-allow-headers"] == sent["access-control-request-headers"]
    assert "POST" in preflight.headers["access-control-allow-methods"]
    answer = run(greeted(path, host, origin))
    assert answer.status_code == 200 and "protocolVersion" in answer.json()["result"]
    assert answer.headers["access-control-allow-origin"] == origin
    (session,) = [name for name in answer.headers if name in ("mcp-session-id", "acp-connection-id")]
    assert session in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize("path", JUDGING)
@pytest.mark.parametrize(("host", "origin"), ELSEWHERE)
def test_any_other_page_is_refused_there_and_reads_nothing(path: str, host: str, origin: str) -> None:
    for method in ("POST", "OPTIONS"):
        answer = run(greeted(path, host, origin, method))
        assert answer.status_code == 403
        assert not any(name.startswith("access-control-") for name in answer.headers)


@pytest.mark.parametrize("path", JUDGING)
def test_where_other_machines_reach_the_gateway_no_page_may_connect_that_is_not_named(path: str) -> None:
    shared = {"private": False, "address": "", "more": "hosts: [other.example]\n"}
    assert run(greeted(path, "127.0.0.1:8080", "http://localhost:6274", **shared)).status_code == 403
    assert run(greeted(path, "other.example", "http://localhost:6274", **shared)).status_code == 403


@pytest.mark.parametrize("path", JUDGING)
def test_where_other_machines_reach_the_gateway_its_own_pages_may_connect(path: str) -> None:
    shared = {"private": False, "address": "", "more": "hosts: [gateway.example]\n"}
    for host in ("gateway.example", "192.0.2.7:8080", "localhost:8080"):
        assert run(greeted(path, host, f"https://{host}", **shared)).status_code == 200, host
    unnamed = {**shared, "more": ""}
    assert run(greeted(path, "192.0.2.7:8080", "http://192.0.2.7:8080", **unnamed)).status_code == 200
    for host in ("gateway.example", "evil.example:8080"):
        assert run(greeted(path, host, f"http://{host}", **unnamed)).status_code == 403, host


def test_a_page_of_this_machine_shows_a_token_where_clients_do() -> None:
    async def status(host: str, token: str | None) -> int:
        shown = {} if token is None else {"authorization": f"Bearer {token}"}
        page = "http://localhost:6274"
        return (await greeted("/agent-communication/mcp", host, page, headers=shown, more=GUARDED)).status_code

    assert run(status("127.0.0.1:8080", "hers")) == 200
    assert run(status("127.0.0.1:8080", None)) == 401
    assert run(status("evil.example", "hers")) == 403


async def upgraded(path: str, host: str, origin: str) -> bool:
    """Whether a gateway on this machine takes a page's WebSocket."""
    app = App(loads(FILE, registry.scan(), {}), private=True, address="http://127.0.0.1:8080")
    headers = [(b"host", host.encode()), (b"origin", origin.encode())]
    scope = {
        "type": "websocket", "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"",
        "headers": headers, "subprotocols": [], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8080),
        "scheme": "ws", "http_version": "1.1", "asgi": {"version": "3.0"},
        "extensions": {"websocket.http.response": {}},
    }  # fmt: skip
    coming = iter([{"type": "websocket.connect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(coming, {"type": "websocket.disconnect", "code": 1000})

    async def send(message: Any) -> None:
        sent.append(message)

    await app.start()
    try:
        await app.asgi(scope, receive, send)
    finally:
        await app.stop()
    accepted = sent[0]["type"] == "websocket.accept"
    assert accepted or sent[0]["status"] == 403
    return accepted


@pytest.mark.parametrize("path", SOCKETS)
def test_a_websocket_is_taken_from_a_page_of_this_machine_and_from_no_other(path: str) -> None:
    for host, origin in HERE:
        assert run(upgraded(path, host, origin)), (host, origin)
    for host, origin in ELSEWHERE:
        assert not run(upgraded(path, host, origin)), (host, origin)


def test_a_rest_door_lets_no_page_of_another_origin_read_its_answers() -> None:
    answer = run(asked("/agent-connect/agents/search", {"origin": "http://localhost:6274"}, "POST"))
    assert answer.status_code == 200
    assert not any(name.startswith("access-control-") for name in answer.headers)
    preflight = run(asked("/agent-connect/agents/search", {"origin": "http://localhost:6274"}, "OPTIONS"))
    assert preflight.status_code == 405
