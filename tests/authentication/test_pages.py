"""A whole gateway: its own pages name agents to whoever may know them, by the token of any door, and each door asks."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from gateway import registry
from gateway.app import App
from gateway.config import loads
from gateway.tracing import metrics
from tests.support.aio import run

FILE = """
inbound:
  agent_client: {authentication: {clients: [{name: ann, token: client-token, agents: ["mail*"]}]}}
  agent_communication: {authentication: {clients: [{name: ann, token: communication-token, agents: ["mail*"]}]}}
  agent_connect: {authentication: {clients: [{name: ann, token: connect-token, agents: ["mail*"]}]}}
  agent_context: {access: {clients: [{name: ann, token: context-token, agents: ["mail*"]},
    {name: deaf, token: deaf-token, may: [register]}], anonymous: [read]}}
  agent_protocol: {authentication: {clients: [{name: ann, token: protocol-token, agents: ["mail*"]}]}}
routes:
  - {name: mail, target: &nowhere {protocol: agent_protocol, url: "http://127.0.0.1:9"}}
  - {name: code, target: *nowhere}
store: {url: "sqlite://"}
telemetry: {monitors: {tokens: [scraper-token]}}
"""


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    """Runs of both agents."""
    metrics.clear()
    for agent in ("mail", "code"):
        metrics.runs_started.add(1, agent, "agent_connect")
    yield
    metrics.clear()


async def named(token: str | None, host: str = "203.0.113.7") -> tuple[set[str], set[str]]:
    """The agents that somebody finds at `/readyz`, and at `/metrics`."""
    app = App(loads(FILE, registry.scan(), {}))
    try:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        transport = httpx2.ASGITransport(app.asgi, client=(host, 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            ready = (await client.get("/readyz")).json()
            page = await client.get("/metrics")
        assert page.status_code == 200 and ready["counts"]["agents"] == 2
        at_metrics = {agent for agent in ("mail", "code") if f'agent="{agent}"' in page.text}
        others = 2 - len(at_metrics)
        assert not others or f'started_total{{agent="(others)",protocol="agent_connect"}} {others}\n' in page.text
        return set(ready.get("agents", ())), at_metrics
    finally:
        await app.stop()


@pytest.mark.parametrize("door", ["client", "communication", "connect", "context", "protocol"])
def test_a_token_of_each_door_is_known_on_the_gateways_own_pages(door: str) -> None:
    assert run(named(f"{door}-token")) == ({"mail"}, {"mail"})


def test_a_client_that_may_not_read_about_agents_is_told_of_none() -> None:
    assert run(named("deaf-token")) == (set(), set())


@pytest.mark.parametrize("token", [None, "nobodys-token"])
def test_everybody_else_is_told_how_many_there_are_and_what_all_of_them_did(token: str | None) -> None:
    assert run(named(token)) == (set(), set())


def test_a_scraper_with_the_token_of_the_file_and_one_on_this_machine_are_told_every_agent() -> None:
    assert run(named("scraper-token")) == ({"mail", "code"}, {"mail", "code"})
    assert run(named(None, host="127.0.0.1")) == ({"mail", "code"}, {"mail", "code"})


@pytest.mark.parametrize(
    ("path", "door"),
    [
        ("/agent-connect/agents/search", "connect"),
        ("/agent-protocol/mail/ap/v1/agent/tasks", "protocol"),
        ("/agent-communication/mcp", "communication"),
    ],
)
def test_every_door_that_asks_refuses_whom_it_does_not_know(path: str, door: str) -> None:
    async def answers() -> list[int]:
        app = App(loads(FILE, registry.scan(), {}))
        try:
            transport = httpx2.ASGITransport(app.asgi)
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
                shown = [None, "nobodys-token", f"{door}-token"]
                headers = [{} if token is None else {"authorization": f"Bearer {token}"} for token in shown]
                return [(await client.post(path, json={}, headers=each)).status_code for each in headers]
        finally:
            await app.stop()

    *refused, served = run(answers())
    assert refused == [401, 401] and served != 401
