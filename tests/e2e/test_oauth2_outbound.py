"""A gateway whose agents are behind another gateway's doors, which take only tokens of a real issuer: OAuth 2 client
credentials over REST, event streams, Streamable HTTP and WebSockets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import interlingua
from tests.support.peers import oidc_provider
from tests.support.processes import Gateway, Process

AUDIENCE = "https://gateway.example.com"


def targets(inner: str, issuer: str, secret: str) -> list[dict[str, Any]]:
    credentials = {
        "token_url": f"{issuer}/token", "client_id": "robot", "client_secret": secret, "resource": AUDIENCE
    }  # fmt: skip
    sockets = inner.replace("http:", "ws:")
    places = {
        "connect": {"protocol": "agent_connect", "url": f"{inner}/agent-connect", "agent": "echo"},
        "task": {"protocol": "agent_protocol", "url": f"{inner}/agent-protocol/echo"},
        "streamable": {"protocol": "agent_communication", "url": f"{inner}/agent-communication/mcp", "agent": "echo"},
        "socket": {"protocol": "agent_communication", "url": f"{sockets}/agent-communication/ws", "agent": "echo"},
        "editor": {"protocol": "agent_client", "url": f"{sockets}/agent-client/echo"},
        "editor-http": {"protocol": "agent_client", "url": f"{inner}/agent-client/echo"},
    }
    return [{"name": name, "target": {**place, "auth": {"oauth2": credentials}}} for name, place in places.items()]


@pytest.fixture(scope="module")
def scene(agent_connect_agent: Process, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, str, str]]:
    """The outer gateway, the inner one's address, the issuer's."""
    folder = tmp_path_factory.mktemp("guarded")
    for name in ("inner", "outer"):
        (folder / name).mkdir()
    with oidc_provider() as issuer:
        people = {"jwt": {"discovery": issuer.url, "algorithms": ["RS256"], "audience": AUDIENCE}}
        doors = ("agent_connect", "agent_protocol", "agent_communication", "agent_client")
        guarded = {
            "inbound": {door: {"authentication": people} for door in doors},
            "routes": [
                {
                    "name": "echo",
                    "target": {"protocol": "agent_connect", "url": agent_connect_agent.url, "agent": "echo"},
                }
            ],
        }
        with (
            Gateway(json.dumps(guarded), folder / "inner") as inner,
            Gateway(json.dumps({"routes": targets(inner.url, issuer.url, "secret")}), folder / "outer") as outer,
        ):
            yield outer, inner.url, issuer.url


@pytest.mark.parametrize("agent", [one["name"] for one in targets("", "", "")])
def test_an_agent_behind_a_guarded_door_is_called_with_a_token(scene: tuple[Gateway, str, str], agent: str) -> None:
    outer, inner, _ = scene
    refused = httpx2.post(f"{inner}/agent-connect/agents/search", json={}, timeout=60)
    assert refused.status_code == 401
    body = {"agent_id": agent, "input": {"message": "hello there"}}
    whole = httpx2.post(f"{outer.url}/agent-connect/runs/wait", json=body, timeout=60).json()
    assert whole["run"]["status"] == "success", whole
    assert "hello there" in json.dumps(whole["output"]["values"])


def test_an_agent_that_refuses_the_gateway_is_no_refusal_of_the_client(
    scene: tuple[Gateway, str, str], tmp_path: Path
) -> None:
    _, inner, issuer = scene
    strangers = targets(inner, issuer, "")
    for route in strangers:
        del route["target"]["auth"]
    with Gateway(json.dumps({"routes": strangers}), tmp_path) as outer:
        for route in strangers:
            body = {"agent_id": route["name"], "input": {"message": "hello"}}
            answer = httpx2.post(f"{outer.url}/agent-connect/runs/wait", json=body, timeout=60)
            told = answer.json()
            failed = answer.status_code, told if isinstance(told, str) else told["output"].get("errcode")
            assert failed in ((502, told), (200, 502)), (route["name"], failed, told)
            assert "401" in json.dumps(told) or "authenticated" in json.dumps(told), told


def test_check_names_a_secret_that_the_issuer_refuses_and_does_not_print_it(
    scene: tuple[Gateway, str, str], tmp_path: Path
) -> None:
    _, inner, issuer = scene
    file = tmp_path / "routes.yaml"
    file.write_text(json.dumps({"routes": targets(inner, issuer, "not-the-secret")[:1]}))
    done = interlingua("check", str(file), "--connect")
    assert done.returncode == 1 and "no token could be had of 127.0.0.1" in done.stderr, done
    assert "invalid_client" in done.stderr and "not-the-secret" not in done.stdout + done.stderr
