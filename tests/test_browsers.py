"""What pages in browsers may ask: a whole gateway behind its doorkeeper, as a browser would ask it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from gateway import registry
from gateway.app import App
from gateway.browsers import Names
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
    path: str, headers: Mapping[str, str], method: str = "GET", more: str = "", **options: Any
) -> httpx2.Response:
    """What a gateway answers that listens for this machine only, unless `options` say otherwise."""
    app = App(
        loads(FILE + more, registry.scan(), {}), **{"private": True, "address": "http://127.0.0.1:8080", **options}
    )
    await app.start()
    try:
        transport = httpx2.ASGITransport(app.asgi, client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            return await client.request(
                method, path, headers=dict(headers), content=b"{}" if method == "POST" else None
            )
    finally:
        await app.stop()


@pytest.mark.parametrize(("protocol", "method", "path"), DOORS, ids=lambda value: value.strip("/").replace("/", " "))
def test_a_name_that_is_made_to_lead_here_is_refused_in_the_words_of_each_door(
    protocol: str, method: str, path: str
) -> None:
    answer = run(asked(path, {"host": "evil.example:8080"}, method))
    why = "Host: 'evil.example:8080' is no name of this gateway (see `hosts` in routes.yaml)"
    assert (answer.status_code, answer.json()) == (403, in_the_words_of(protocol, why))


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
    assert Names(()).asked("")


def test_a_page_of_nobodys_is_not_the_gateways_own_where_no_name_is_asked() -> None:
    answer = run(asked("/agent-connect/agents/search", {"host": "", "origin": "null"}, "POST"))
    assert answer.status_code == 403


def test_a_name_in_the_file_may_end_with_a_dot_as_a_host_may() -> None:
    assert Names(["gateway.example."]).asked("gateway.example:8080")
