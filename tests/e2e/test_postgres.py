"""A gateway whose store is a PostgreSQL database: killed and started again, and while the database is away."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.sync.client import connect

from tests.cli.conftest import interlingua
from tests.e2e.conftest import routes
from tests.e2e.doors import way
from tests.support.agent_client import agent_client_conversations, results, text
from tests.support.peers import agent_connect_conversations
from tests.support.postgres import PostgresServer
from tests.support.processes import Gateway, Process

PATIENCE = 60.0
PASSWORD = "s3cret"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        server.sql(f"ALTER ROLE guarded SUPERUSER PASSWORD '{PASSWORD}'")
        yield server


@pytest.fixture
def table(agent_protocol_server: Process, agent_connect_agent: Process) -> str:
    """Routes, and a store whose URL comes from the environment."""
    return routes(agent_protocol_server, agent_connect_agent) + 'store: {url: "${DATABASE_URL}"}\n'


@pytest.fixture
def gateway(server: PostgresServer, table: str, tmp_path: Path) -> Iterator[Gateway]:
    url = server.database().replace("postgres@", f"guarded:{PASSWORD}@")
    with Gateway(table, tmp_path, env={"DATABASE_URL": url}) as gateway:
        yield gateway


def becomes(gateway: Gateway, status: int) -> None:
    """Wait until `/readyz` answers with that."""

    def answers() -> bool:
        return httpx2.get(f"{gateway.url}/readyz").status_code == status

    gateway.process.wait_until(answers, f"{status}", PATIENCE)


def test_clients_of_the_sdks_find_everything_again_after_a_kill_and_a_run_goes_on(gateway: Gateway) -> None:
    door = f"{gateway.url}/agent-connect"
    before = agent_connect_conversations(door, ["wait", "--name", "echo"], ["say", "--name", "echo"])
    assert not [line for said in before for line in said if "error" in line], before
    (edited,) = agent_client_conversations("py", {"steps": ("--say", "one"), **way(gateway, "ws", "echo")})
    session = results(edited, "session/new")[0]["sessionId"]
    with httpx2.Client(base_url=door, timeout=PATIENCE) as client:
        body = {"agent_id": "slow", "input": {"message": "3 seconds"}, "on_disconnect": "continue"}
        going = client.post("/runs", json=body).json()["run_id"]
        asking = client.post("/runs/wait", json={"agent_id": "asker", "input": {"message": "please"}}).json()
        with contextlib.suppress(httpx2.TransportError), client.stream("GET", f"/runs/{going}/stream") as stream:
            for line in stream.iter_lines():
                if "tick 5" in line:
                    gateway.kill9()
        gateway.restart()
        whole = client.get(f"/runs/{going}/wait", params={"timeout": PATIENCE}).json()
        assert whole["run"]["status"] == "success", whole
        said = " ".join(f"tick {n}" for n in range(1, 31)) + " done"
        assert whole["output"]["values"]["message"] == said
        assert asking["output"]["type"] == "interrupt"
        answer = {"approved": True, "reason": "after the crash"}
        assert client.post(f"/runs/{asking['run']['run_id']}", json=answer).status_code == 200
        assert "after the crash" in client.get(f"/runs/{asking['run']['run_id']}/wait").text
    thread = next(line["result"]["thread_id"] for line in before[1] if "thread_id" in (line.get("result") or {}))
    (after,) = agent_connect_conversations(door, ["say", "--name", "echo", "--thread", thread])
    assert not [line for line in after if "error" in line], after
    steps = ("--session", session, "--do", "load", "--say", "two")
    (again,) = agent_client_conversations("py", {"steps": steps, **way(gateway, "ws", "echo")})
    assert text(again).endswith("two") and "one" in json.dumps(again)


class Doors:
    """A new run by each door, as a client of it hears that there is none now."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def agent_connect(self) -> httpx2.Response:
        body = {"agent_id": "echo", "input": {"message": "hi"}}
        return httpx2.post(f"{self._gateway.url}/agent-connect/runs", json=body, timeout=PATIENCE)

    def agent_protocol(self) -> httpx2.Response:
        body = {"input": "hi"}
        url = f"{self._gateway.url}/agent-protocol/echo/ap/v1/agent/tasks"
        return httpx2.post(url, json=body, timeout=PATIENCE)

    def agent_context(self) -> dict[str, Any]:
        params = {"target": "echo", "content": {"type": "request", "payload": {"messages": [{"text": "hi"}]}}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "agent/message", "params": params}
        answer = httpx2.post(f"{self._gateway.url}/agent-context", json=body, timeout=PATIENCE).json()
        return dict(answer["error"])

    def agent_client(self) -> dict[str, Any]:
        url = f"{self._gateway.url.replace('http', 'ws')}/agent-client/echo"
        with connect(url, proxy=None) as connection:
            for number, (method, params) in enumerate(
                [("initialize", {"protocolVersion": 1}), ("session/new", {"cwd": "/tmp", "mcpServers": []})]
            ):
                connection.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
                while (answer := json.loads(connection.recv(timeout=PATIENCE))).get("id") != number:
                    pass
        return dict(answer["error"])


def test_while_the_database_is_away_nothing_new_begins_and_what_runs_is_written_when_it_is_back(
    server: PostgresServer, gateway: Gateway
) -> None:
    with httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=PATIENCE) as client:
        body = {"agent_id": "slow", "input": {"message": "8 seconds"}, "on_disconnect": "continue"}
        going = client.post("/runs", json=body).json()["run_id"]
        server.stop()
        becomes(gateway, 503)
        doors = Doors(gateway)
        for answer in (doors.agent_connect(), doors.agent_protocol()):
            assert answer.status_code == 503 and answer.headers["retry-after"], answer.text
        for error in (doors.agent_context(), doors.agent_client()):
            assert "store" in json.dumps(error), error
        server.start()
        becomes(gateway, 200)
        whole = client.get(f"/runs/{going}/wait", params={"timeout": PATIENCE}).json()
        said = " ".join(f"tick {n}" for n in range(1, 81)) + " done"
        assert whole["run"]["status"] == "success" and whole["output"]["values"]["message"] == said
    assert PASSWORD not in gateway.process.stderr() + gateway.process.stdout()
    assert "is away" in gateway.process.stderr() and "is back" in gateway.process.stderr()


def test_a_gateway_whose_database_is_full_is_not_ready_until_what_it_refused_could_be_written(
    server: PostgresServer, gateway: Gateway
) -> None:
    database = server.sql("SELECT datname FROM pg_stat_activity WHERE usename = 'guarded'")[0][0]

    def ask(statement: str) -> list[Any]:
        return server.sql(statement, database)

    ask(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END$$"
    )
    ask("CREATE TRIGGER full_disk BEFORE INSERT ON interlingua.runs EXECUTE FUNCTION full_disk()")
    assert Doors(gateway).agent_connect().status_code == 503
    expires_at = "SELECT expires_at FROM interlingua.leases ORDER BY expires_at DESC LIMIT 1"
    for _ in range(2):
        lease = ask(expires_at)
        gateway.process.wait_until(lambda lease=lease: ask(expires_at) != lease, "the lease is written", PATIENCE)
    answer = httpx2.get(f"{gateway.url}/readyz")
    assert answer.status_code == 503 and answer.json()["reason"] == "the store failed: no space is left on its disk"
    ask("DROP TRIGGER full_disk ON interlingua.runs")
    becomes(gateway, 200)
    assert Doors(gateway).agent_connect().status_code == 200


def test_a_database_that_cannot_be_used_is_one_line_of_check_and_of_serve(
    server: PostgresServer, table: str, tmp_path: Path
) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(table)
    for place, why, code in (
        (f"{PASSWORD}x@127.0.0.1:{server.port}/postgres", "password authentication failed", 2),
        (f"{PASSWORD}@127.0.0.1:{server.port}/nowhere", "does not exist", 2),
        (f"{PASSWORD}@127.0.0.1:1/postgres", "Connection refused", 2),
        (f"{PASSWORD}/@127.0.0.1/postgres", "percent-encode", 1),
        (f"{PASSWORD}@127.0.0.1:x/postgres", "postgresql://USER:PASSWORD@HOST:PORT/DATABASE", 1),
    ):
        env = {"DATABASE_URL": f"postgresql://guarded:{place}"}
        checked = interlingua("check", str(file), "--connect", env=env)
        served = interlingua("serve", str(file), "--port", "0", env=env)
        assert (checked.returncode, served.returncode) == (code, 2), (checked, served)
        for done in (checked, served):
            assert len([line for line in done.stderr.splitlines() if why in line]) == 1, done
            assert PASSWORD not in done.stdout + done.stderr
    done = interlingua("check", str(file), "--connect", env={"DATABASE_URL": server.url()})
    assert done.returncode == 0, done
