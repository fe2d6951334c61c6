"""BeeAI agents behind the other protocols and in an editor: the real SDKs' servers over every transport they have."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from tests.e2e.doors import way
from tests.support import agent_client, agent_communication
from tests.support.agent_communication import agents_command, agents_server, mcp_agents_server
from tests.support.peers import agent_connect_conversations
from tests.support.processes import Gateway

PATIENCE = 60.0
SAID = "many words that come one by one, and fast, while somebody looks on " * 8
"""So long that not all of it is there when the gateway gets round to telling it, however busy the machine is."""
LOGS = [{"message": word} for word in SAID.split()]
ADA = ("--elicitation", '{"name": "Ada"}')
OUTPUT = {"text": SAID, "logs": LOGS}
STREAMING = ("py-stdio", "py-sse", "py-ws", "ts-stdio", "ts-sse", "mcp-1", "mcp-2")
"""One route for each real server and transport, to its agent `stream`."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    servers = [agents_server("py"), agents_server("ts"), mcp_agents_server("1"), mcp_agents_server("2")]
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        py, ts, mcp_1, mcp_2 = pool.map(stack.enter_context, servers)
        targets: dict[str, dict[str, Any]] = {
            "py-stdio": {"command": agents_command("py")},
            "py-sse": {"url": f"{py.url}/sse"},
            "py-ws": {"url": f"{py.url.replace('http', 'ws')}/ws"},
            "ts-stdio": {"command": agents_command("ts")},
            "ts-sse": {"url": f"{ts.url}/sse"},
            "mcp-1": {"url": f"{mcp_1.url}/mcp"},
            "mcp-2": {"url": f"{mcp_2.url}/mcp"},
        }
        routes: list[dict[str, Any]] = [
            {"name": name, "target": {"protocol": "agent_communication", "agent": "stream", **target}}
            for name, target in targets.items()
        ]
        others = {"elicit-1": ("mcp-1", "elicit"), "elicit-2": ("mcp-2", "elicit")}
        others |= {f"{name}-{on}": (on, name) for on in ("py-stdio", "ts-sse") for name in ("fail", "slow")}
        others |= {"die": ("py-stdio", "die"), "count": ("py-sse", "count"), "nested": ("ts-stdio", "nested")}
        routes += [
            {"name": name, "target": {"protocol": "agent_communication", "agent": agent, **targets[on]}}
            for name, (on, agent) in others.items()
        ]
        routes.append(
            {"name": "bee", "target": {"protocol": "agent_communication", "agents": "*", **targets["py-sse"]}}
        )
        with Gateway(json.dumps({"routes": routes}), tmp_path_factory.mktemp("born-in-mcp")) as running:
            yield running


def http(gateway: Gateway) -> httpx2.Client:
    return httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=PATIENCE, trust_env=False)


def run_request(agent: str, **input: Any) -> dict[str, Any]:
    return {"agent_id": agent, "input": input, "on_disconnect": "continue"}


@pytest.fixture(scope="module")
def streamed(gateway: Gateway) -> dict[str, list[Any]]:
    """What the agntcy client was streamed by each agent; in one process, since importing it takes seconds."""
    asked = json.dumps({"prompt": SAID.strip()})
    each = [("stream", "--name", agent, "--input", asked) for agent in STREAMING]
    return dict(zip(STREAMING, agent_connect_conversations(f"{gateway.url}/agent-connect", *each), strict=True))


@pytest.mark.parametrize("agent", STREAMING)
def test_behind_agent_connect_the_values_grow_to_the_agents_own_output(
    streamed: dict[str, list[Any]], agent: str
) -> None:
    lines = streamed[agent]
    events = {line["event"]["id"]: line["event"] for line in lines if "event" in line}
    values = [event["data"]["values"] for event in events.values() if event["data"]["type"] == "values"]
    wanted = OUTPUT if not agent.startswith("mcp") else {"text": values[-1]["text"]}
    assert values[-1] == wanted and values[-1]["text"].split() == SAID.split()
    assert values[0] != values[-1], "it came as it was said"
    assert all(later["text"].startswith(earlier["text"]) for earlier, later in itertools.pairwise(values))


LONG = SAID * 18
"""For editors, which are told as much at a time as there is: its deltas are more than a pipe holds."""
SAYING = {agent: ("--say", LONG.strip()) for agent in ("py-stdio", "py-sse")}
ASKED = {agent: (*ADA, "--say", "who?") for agent in ("elicit-1", "elicit-2")}
EDITORS: dict[agent_client.Sdk, tuple[str, dict[str, tuple[str, ...]]]] = {
    "ts-0": ("ws", SAYING),
    "ts-2": ("http", SAYING | ASKED),
}
"""Each client's door, and what it says to which agent."""


@pytest.fixture(scope="module")
def edited(gateway: Gateway) -> dict[tuple[str, str], list[Any]]:
    """What each client saw of each of its conversations: one process a client, all of them at once."""

    def tell(sdk: agent_client.Sdk) -> dict[tuple[str, str], list[Any]]:
        door, said = EDITORS[sdk]
        each = ({"steps": steps, **way(gateway, door, agent)} for agent, steps in said.items())
        found = agent_client.agent_client_conversations(sdk, *each)
        return {(sdk, agent): lines for agent, lines in zip(said, found, strict=True)}

    with ThreadPoolExecutor() as pool:
        return {pair: lines for told in pool.map(tell, EDITORS) for pair, lines in told.items()}


@pytest.mark.parametrize("sdk", EDITORS)
@pytest.mark.parametrize("agent", ["py-stdio", "py-sse"])
def test_in_an_editor_its_words_come_one_by_one(edited: dict[tuple[str, str], list[Any]], agent: str, sdk: str) -> None:
    lines = edited[sdk, agent]
    assert agent_client.text(lines) == LONG
    assert len(agent_client.updates(lines, "agent_message_chunk")) > 1, "live, not all at the end"


@pytest.mark.parametrize("agent", ["elicit-1", "elicit-2"])
def test_what_it_elicits_is_an_interrupt_and_its_answer_reaches_it(gateway: Gateway, agent: str) -> None:
    with http(gateway) as client:
        asked = client.post("/runs/wait", json=run_request(agent, prompt="who?")).json()
        assert asked["output"]["type"] == "interrupt", asked
        run_id = asked["run"]["run_id"]
        wrong = client.post(f"/runs/{run_id}", json={"name": 7})
        assert wrong.status_code == 422, wrong.text
        assert client.post(f"/runs/{run_id}", json={"name": "Ada"}).status_code == 200
        ended = client.get(f"/runs/{run_id}/wait", params={"timeout": PATIENCE}).json()
        assert ended["run"]["status"] == "success" and "Ada" in ended["output"]["values"]["text"]


@pytest.mark.parametrize("agent", ["elicit-1", "elicit-2"])
def test_in_an_editor_what_it_elicits_is_a_form(edited: dict[tuple[str, str], list[Any]], agent: str) -> None:
    lines = edited["ts-2", agent]
    (form,) = agent_client.asked(lines, "elicitation/create")
    assert "name" in form["requestedSchema"]["properties"]
    assert "Ada" in agent_client.text(lines)


@pytest.mark.parametrize("on", ["py-stdio", "ts-sse"])
def test_a_cancelled_run_ends_at_the_agent_too(gateway: Gateway, on: str) -> None:
    with http(gateway) as client:
        run_id = client.post("/runs", json=run_request(f"slow-{on}", prompt="x")).json()["run_id"]
        assert client.post(f"/runs/{run_id}/cancel", params={"wait": "true"}).status_code == 204
        ended = client.get(f"/runs/{run_id}/wait", params={"timeout": PATIENCE}).json()
        assert ended["output"]["type"] == "error" and "cancel" in ended["output"]["description"]


@pytest.mark.parametrize("on", ["py-stdio", "ts-sse"])
def test_a_failure_is_told_in_the_agents_words(gateway: Gateway, on: str) -> None:
    with http(gateway) as client:
        ended = client.post("/runs/wait", json=run_request(f"fail-{on}", prompt="x")).json()
        assert ended["output"]["type"] == "error" and "boom" in ended["output"]["description"]


def test_an_agent_whose_process_ends_in_mid_run_fails_it_and_the_next_one_works(gateway: Gateway) -> None:
    with http(gateway) as client:
        ended = client.post("/runs/wait", json=run_request("die", prompt="x")).json()
        assert ended["output"]["type"] == "error" and "exited with 3" in ended["output"]["description"]
        again = client.post("/runs/wait", json=run_request("py-stdio", prompt="hello")).json()
        assert again["output"]["values"] == {"text": "hello ", "logs": [{"message": "hello"}]}


def test_all_agents_of_a_server_are_routes(gateway: Gateway) -> None:
    with http(gateway) as client:
        found = [
            agent["metadata"]["ref"]["name"] for agent in client.post("/agents/search", json={"limit": 100}).json()
        ]
    assert {"echo", "stream", "bee-count", "bee-nested", "big"} <= set(found), found


def test_numbers_and_objects_add_up(gateway: Gateway) -> None:
    with http(gateway) as client:
        counted = client.post("/runs/wait", json=run_request("count", upto=4)).json()["output"]["values"]
        assert counted["total"] == 4 and counted["half"] == 2.0
        nested = client.post("/runs/wait", json=run_request("nested", prompt="a b")).json()["output"]["values"]
    direct = agent_communication.client("ts", "--run", 'nested {"prompt": "a b"}', command=agents_command("ts"))
    assert nested == agent_communication.results(direct, "agents/run")[0]["output"]
