"""Two gateway processes on one store: what is asked of one is done, whichever of them drives the run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.e2e.conftest import routes
from tests.support.postgres import PostgresServer
from tests.support.processes import Gateway, Process

PATIENCE = 60.0
LONG = "60 seconds"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def gateways(
    request: pytest.FixtureRequest,
    agent_protocol_server: Process,
    agent_connect_agent: Process,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Gateway, Gateway]]:
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path_factory.mktemp('store') / 'shared.db'}"
        if request.param == "postgresql":
            url = stack.enter_context(PostgresServer()).database()
        table = routes(agent_protocol_server, agent_connect_agent) + f"store: {{url: '{url}'}}\n"
        yield (
            stack.enter_context(Gateway(table, tmp_path_factory.mktemp("one"))),
            stack.enter_context(Gateway(table, tmp_path_factory.mktemp("two"))),
        )


@pytest.fixture
def here(gateways: tuple[Gateway, Gateway]) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{gateways[0].url}/agent-connect", timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def there(gateways: tuple[Gateway, Gateway]) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{gateways[1].url}/agent-connect", timeout=PATIENCE) as client:
        yield client


def test_a_run_of_the_other_process_is_cancelled_interrupted_and_deleted_as_ones_own(
    here: httpx2.Client, there: httpx2.Client
) -> None:
    thread = here.post("/threads", json={}).json()["thread_id"]
    body = {"agent_id": "slow", "input": {"message": LONG}}

    def started(by: httpx2.Client, **more: Any) -> str:
        answer = by.post(f"/threads/{thread}/runs", json={**body, **more})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["run_id"])

    run = started(here)
    still = there.delete(f"/threads/{thread}")
    assert still.status_code == 422 and "active run" in still.text, still.text
    assert there.post(f"/threads/{thread}/runs/{run}/cancel", params={"wait": True}).status_code == 204
    assert here.get(f"/runs/{run}/wait").json()["run"]["status"] == "error", (
        "ended by a cancel, in this protocol's words"
    )

    before = started(here)
    newer = started(there, multitask_strategy="interrupt")
    assert here.get(f"/runs/{before}").json()["status"] == "error"
    assert here.get(f"/runs/{newer}").json()["status"] == "pending"
    assert here.delete(f"/threads/{thread}/runs/{newer}").status_code == 204
    assert there.get(f"/runs/{newer}").status_code == 404
    assert [one["run_id"] for one in there.get(f"/threads/{thread}/runs").json()] == [before, run]
    assert there.delete(f"/threads/{thread}").status_code == 204


def test_a_question_is_answered_in_the_other_process_once(here: httpx2.Client, there: httpx2.Client) -> None:
    run = here.post("/runs", json={"agent_id": "asker", "input": {"message": "go"}}).json()["run_id"]
    asked = there.get(f"/runs/{run}/wait").json()
    assert asked["run"]["status"] == "interrupted", asked
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda client: client.post(f"/runs/{run}", json={"approved": True}), [there, here] * 2))
    assert sorted(each.status_code for each in answers)[0] == 200, [each.text for each in answers]
    assert len([each for each in answers if each.status_code == 200]) == 1, [each.text for each in answers]
    ended = there.get(f"/runs/{run}/wait").json()
    assert ended["run"]["status"] == "success", ended


def test_what_both_patch_of_one_thread_at_the_same_time_is_all_there(here: httpx2.Client, there: httpx2.Client) -> None:
    thread = here.post("/threads", json={"metadata": {"first": True}}).json()["thread_id"]
    run = here.post(f"/threads/{thread}/runs", json={"agent_id": "echo", "input": {"message": "hi"}}).json()["run_id"]

    def patch(number: int) -> None:
        client = (here, there)[number % 2]
        answer = client.patch(f"/threads/{thread}", json={"metadata": {f"key{number}": number}})
        assert answer.status_code == 200 and answer.json()["metadata"][f"key{number}"] == number

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(patch, range(40)))
    assert there.get(f"/runs/{run}/wait").json()["run"]["status"] == "success"
    found = there.get(f"/threads/{thread}").json()
    assert found["metadata"] == {"first": True, **{f"key{number}": number for number in range(40)}}
    assert found["status"] == "idle" and [one["content"] for one in found["messages"]] == ["hi", "hi"]


class Editor:
    """A client of the Agent Client Protocol, by hand."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._id = 0

    def notify(self, method: str, **more: Any) -> None:
        self._connection.send(json.dumps({"jsonrpc": "2.0", "method": method, **more}))

    def send(self, method: str, **params: Any) -> int:
        self._id += 1
        self.notify(method, id=self._id, params=params)
        return self._id

    def until(self, key: str, value: Any) -> dict[str, Any]:
        """The next message that has this."""
        while True:
            message: dict[str, Any] = json.loads(self._connection.recv(timeout=PATIENCE))
            if message.get(key) == value:
                return message

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.until("id", self.send(method, **params))


@contextlib.contextmanager
def editor(gateway: Gateway) -> Iterator[Editor]:
    with connect(f"{gateway.url.replace('http', 'ws')}/agent-client/slow", proxy=None) as connection:
        client = Editor(connection)
        client.ask("initialize", protocolVersion=1)
        yield client


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
def test_a_session_whose_prompt_runs_in_the_other_process_is_closed_and_deleted_from_here(
    gateways: tuple[Gateway, Gateway], tmp_path: Path, method: str
) -> None:
    with editor(gateways[0]) as one, editor(gateways[1]) as two:
        session = one.ask("session/new", cwd=str(tmp_path), mcpServers=[])["result"]["sessionId"]
        prompt = one.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": LONG}])
        one.until("method", "session/update")
        if method == "session/close":
            assert "result" in two.ask("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        answer = two.ask(method, sessionId=session)
        assert "result" in answer, answer
        assert one.until("id", prompt)["result"]["stopReason"] == "cancelled"
