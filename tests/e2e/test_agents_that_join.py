"""Agents that join of themselves, at work in every protocol: those of examples/joining, and the real SDKs' clients, of
the gateway that the agents have joined and of another one on its store.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets import Subprotocol
from websockets.asyncio.server import ServerConnection, serve

from tests.e2e.doors import way
from tests.support import agent_client, agent_communication
from tests.support.peers import agent_connect_conversations, run_program
from tests.support.processes import ROOT, Gateway, Process, start

ROUTES = """\
inbound:
  agent_client: {{}}
  agent_communication: {{}}
  agent_connect: {{}}
  agent_context: {{coordinator: team}}
routes:
  - name: writer
    description: An agent made with the agent-protocol SDK
    target: {{protocol: agent_protocol, url: "{agent_protocol}"}}
    labels: {{specializations: [writing]}}
  - name: careful
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: echo}}
    labels: {{specializations: [secrets]}}
    delegation: {{approve: true}}
"""
PATIENCE = 60.0
VERSION = "2026-07-28"
WORDS = " ".join(f"word{n}" for n in range(40))
HAIKU = [f"step {n} of 3: write a haiku" for n in (1, 2, 3)]


@contextlib.contextmanager
def member(name: str, gateway: Gateway, *args: str) -> Iterator[Process]:
    """One of the agents that join, registered."""
    address = f"{gateway.url.replace('http', 'ws')}/agent-context/ws"
    argv = [sys.executable, str(ROOT / "examples/joining" / f"{name}.py"), address, *args]
    with start(argv) as process:
        process.wait_until(lambda: "registered" in process.stdout(), "registered")
        yield process


@pytest.fixture(scope="module", params=["joined", "another on SQLite", "another on PostgreSQL"])
def gateways(
    request: pytest.FixtureRequest,
    agent_protocol_server: Process,
    agent_connect_agent: Process,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Gateway, Gateway]]:
    """The gateway that agents join, and the one that clients use."""
    routes = ROUTES.format(agent_protocol=agent_protocol_server.url, agent_connect=agent_connect_agent.url)
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path_factory.mktemp('store') / 'shared.db'}"
        if request.param == "another on PostgreSQL":
            url = request.getfixturevalue("postgres").database()
        routes += f"store: {{url: '{url}'}}\n"
        joined = gateway = stack.enter_context(Gateway(routes, tmp_path_factory.mktemp("joined")))
        if request.param != "joined":
            gateway = stack.enter_context(Gateway(routes, tmp_path_factory.mktemp("asked")))
        for name, *words in (("analyst",), ("planner", "writing")):
            stack.enter_context(member(name, joined, *words))
        until("agents that are active", lambda: {"analyst", "planner"} <= active(gateway))
        yield joined, gateway


@pytest.fixture(scope="module")
def joined(gateways: tuple[Gateway, Gateway]) -> Gateway:
    return gateways[0]


@pytest.fixture(scope="module")
def gateway(gateways: tuple[Gateway, Gateway]) -> Gateway:
    return gateways[1]


@dataclass(frozen=True)
class Seen:
    """What each real client saw, one process each: of the planner and the analyst, or of the directory."""

    editor: list[list[Any]]
    streamed: list[Any]
    bee: list[Any]
    mcp_1: dict[str, Any]
    mcp_2: dict[str, Any]


@pytest.fixture(scope="module")
def seen(gateway: Gateway) -> Seen:
    directory = ("--http", f"{gateway.url}/agent-context", "--message", WORDS, "word-count")
    talks: Any = (
        {"steps": ("--say", "write a haiku"), **way(gateway, "ws", "planner")},
        {"steps": ("--say", WORDS), **way(gateway, "http", "analyst")},
    )
    stream = ("stream", "--name", "analyst", "--message", WORDS)
    steps = ("--do", "list", "--run", f"analyst {json.dumps({'message': WORDS})}")
    bee = {"steps": steps, "url": f"{gateway.url}/agent-communication/sse"}
    with ThreadPoolExecutor() as pool:
        editor = pool.submit(agent_client.agent_client_conversations, "py", *talks)
        streamed = pool.submit(agent_connect_conversations, f"{gateway.url}/agent-connect", stream)
        bees = pool.submit(agent_communication.clients, "py", bee)
        mcp_1 = pool.submit(run_program, "mcp-1", "mcp_directory_client_1.py", *directory)
        mcp_2 = pool.submit(run_program, "mcp-2", "mcp_directory_client_2.py", *directory)
        return Seen(editor.result(), streamed.result()[0], bees.result()[0], mcp_1.result()[0], mcp_2.result()[0])


def connect(gateway: Gateway) -> httpx2.Client:
    return httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=PATIENCE, trust_env=False)


def asked(gateway: Gateway, agent: str, **input: Any) -> dict[str, Any]:
    """What an Agent Connect client is answered that waits for the run."""
    with connect(gateway) as client:
        answer: dict[str, Any] = client.post("/runs/wait", json={"agent_id": agent, "input": input}).json()
        return answer


def context(gateway: Gateway, method: str, **params: Any) -> Any:
    """The result of one request of MCP 2026-07-28 to the agent_context door."""
    headers = {"mcp-protocol-version": VERSION, "mcp-method": method, "accept": "application/json, text/event-stream"}
    headers["mcp-name"] = params.get("name") or params.get("uri") or ""
    meta = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    answer = httpx2.post(f"{gateway.url}/agent-context", json=body, headers=headers, timeout=PATIENCE).json()
    assert "result" in answer, answer
    return answer["result"]


def read(gateway: Gateway, uri: str) -> Any:
    """A resource."""
    (content,) = context(gateway, "resources/read", uri=uri)["contents"]
    return json.loads(content["text"])


def statuses(gateway: Gateway) -> dict[str, str]:
    """The status of each agent of the directory."""
    return {each["id"]: each["status"] for each in read(gateway, "agent://directory")["agents"]}


def active(gateway: Gateway) -> set[str]:
    """The agents of the directory that are active."""
    return {agent for agent, status in statuses(gateway).items() if status == "active"}


def until(what: str, found: Callable[[], Any]) -> Any:
    """The first that is found, within some seconds."""
    end = time.monotonic() + PATIENCE
    while not (it := found()):
        assert time.monotonic() < end, f"no {what}"
        time.sleep(0.05)
    return it


def test_one_has_the_best_match_do_its_work_which_is_an_agent_protocol_agent(seen: Seen) -> None:
    assert agent_client.text(seen.editor[0]) == "writer says: " + "\n\n".join(HAIKU)


def test_an_editor_talks_to_one(seen: Seen) -> None:
    assert agent_client.text(seen.editor[1]) == "40 words"


def test_behind_agent_connect_its_words_come_as_it_says_them(seen: Seen) -> None:
    events = {line["event"]["id"]: line["event"]["data"] for line in seen.streamed if "event" in line}
    values = [data["values"]["message"] for data in events.values() if data["type"] == "values" and data["values"]]
    assert values[-1] == "40 words"
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(values))


def test_a_bee_client_runs_one_and_its_deltas_add_up(seen: Seen) -> None:
    (listed,) = agent_client.results(seen.bee, "agents/list")
    assert {"writer", "analyst", "planner", "team"} <= {agent["name"] for agent in listed["agents"]}
    (result,) = agent_client.results(seen.bee, "agents/run")
    assert result["output"] == {"message": "40 words"}
    assert "".join(delta.get("message", "") for delta in agent_communication.deltas(seen.bee)) == "40 words"


@pytest.mark.parametrize("version", ["mcp_1", "mcp_2"])
def test_a_client_of_mcp_alone_lists_and_searches_the_directory_and_has_a_task_done(seen: Seen, version: str) -> None:
    client = getattr(seen, version)
    listed = {agent["id"]: agent for agent in client["resources"]["agent://directory"]["agents"]}
    assert {"writer", "careful", "analyst", "planner"} <= listed.keys()
    assert listed["analyst"]["status"] == listed["writer"]["status"] == "active"
    (found,) = client["found"]["meta"]["agents"]
    assert (found["id"], found["name"], found["costPerToken"]) == ("analyst", "Analyst", 0.0001)
    assert client["said"] == {"text": "40 words", "isError": False}
    assert set(client["updated"]) <= {"agent://directory", "agent://tasks"} and client["updated"]


def test_a_task_that_must_be_approved_waits_for_it_in_whatever_protocol_it_came(gateway: Gateway) -> None:
    needed = {"capabilities": ["secrets"]}
    task = {"id": "approved", "type": "errand", "requirements": needed, "payload": {"message": "tell"}}
    waiting = asked(gateway, "team", task=task)
    assert waiting["output"]["type"] == "interrupt" and "careful" in json.dumps(waiting["output"])
    (told,) = (each for each in read(gateway, "agent://tasks")["tasks"] if each["id"] == "approved")
    assert told["status"] == "awaiting_approval"
    with connect(gateway) as client:
        run = waiting["run"]["run_id"]
        assert client.post(f"/runs/{run}", json={"optionId": "approve"}).status_code == 200
        ended = client.get(f"/runs/{run}/wait", params={"timeout": PATIENCE}).json()
    assert ended["run"]["status"] == "success" and "tell" in json.dumps(ended["output"]["values"])


def test_a_task_of_one_that_dies_goes_to_another(joined: Gateway, gateway: Gateway) -> None:
    with member("analyst", joined, "a-first-analyst") as dying, ThreadPoolExecutor() as pool:
        until("agent that is active", lambda: "a-first-analyst" in active(gateway))
        for job in "abc":  # the better one is asked first; a vote is for a task that it had
            done = {"id": job, "message": WORDS, "agentId": "a-first-analyst"}
            context(gateway, "tools/call", name="taskAssign", arguments=done)
            praise = {"agentId": "a-first-analyst", "score": 10, "taskId": job}
            context(gateway, "tools/call", name="agentEvaluate", arguments=praise)
        metrics = "agent://metrics/a-first-analyst"
        until("votes", lambda: read(joined, metrics).get("evaluation", {}).get("evaluationCount") == 3)
        dying.signal(signal.SIGSTOP)
        task = {"message": WORDS, "capabilities": ["word-count"], "id": "moving"}
        work = pool.submit(context, gateway, "tools/call", name="taskAssign", arguments=task)

        def first() -> Any:
            tasks = [each for each in read(gateway, "agent://tasks")["tasks"] if each["id"] == "moving"]
            return tasks and [attempt["agent"] for attempt in tasks[0]["attempts"]] == ["a-first-analyst"]

        until("attempt", first)
        dying.kill9()
        result = work.result(PATIENCE)
    assert result["content"][0]["text"] == "40 words", result
    (told,) = (each for each in read(gateway, "agent://tasks")["tasks"] if each["id"] == "moving")
    assert [(each["agent"], each["status"]) for each in told["attempts"]] == [
        ("a-first-analyst", "failed"),
        ("analyst", "completed"),
    ]


def test_one_is_known_after_a_restart_and_works_again_once_it_is_back(
    agent_protocol_server: Process, agent_connect_agent: Process, tmp_path: Path
) -> None:
    routes = ROUTES.format(agent_protocol=agent_protocol_server.url, agent_connect=agent_connect_agent.url)

    with Gateway(routes, tmp_path) as gateway:
        with member("analyst", gateway):
            assert statuses(gateway)["analyst"] == "active"
            gateway.kill9()
        gateway.restart()
        assert statuses(gateway)["analyst"] == "offline"
        failed = asked(gateway, "analyst", message=WORDS)
        assert failed["run"]["status"] == "error" and "not connected" in failed["output"]["description"]
        with member("analyst", gateway):
            assert asked(gateway, "analyst", message=WORDS)["output"]["values"] == {"message": "40 words"}


def test_a_member_that_nobody_asks_says_that_it_is_there() -> None:
    beats: list[dict[str, Any]] = []

    async def main() -> None:
        there = asyncio.Event()

        async def gateway(socket: ServerConnection) -> None:
            async for line in socket:
                message = json.loads(line)
                if message.get("id") == "join":
                    await socket.send(json.dumps({"jsonrpc": "2.0", "id": "join", "result": {}}))
                elif message["method"] == "agent/heartbeat":
                    beats.append(message["params"])
                    if len(beats) == 2:
                        there.set()

        async with serve(gateway, "127.0.0.1", 0, subprotocols=[Subprotocol("mcp")]) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            script = str(ROOT / "examples/joining/analyst.py")
            with start([sys.executable, script, f"ws://127.0.0.1:{port}", "ann", "0.01"]):
                await asyncio.wait_for(there.wait(), PATIENCE)

    asyncio.run(main())
    assert beats[0] == {"agentId": "ann", "status": "active"}
