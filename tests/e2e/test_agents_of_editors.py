"""Agents made for editors, behind other protocols and behind their own: real SDK agents, and their processes."""

from __future__ import annotations

import itertools
import json
import re
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import interlingua
from tests.support.agent_client import (
    SDKS,
    Line,
    Sdk,
    agent_client_agent_command,
    agent_client_agent_server,
    agent_client_client,
    agent_client_conversations,
    errors,
    example_agent_command,
    example_client,
    example_remote_client,
    results,
    text,
    updates,
)
from tests.support.forking import standing_in
from tests.support.peers import agent_connect_conversations
from tests.support.processes import PROGRAM, Gateway, start
from tests.transport.stdio_support import marked

PATIENCE = 60.0
WRAPPER = Path(__file__).parent / "wrapper.sh"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Every SDK's agent as a subprocess, and the Python and newest TypeScript ones as servers."""
    folder = tmp_path_factory.mktemp("agents")
    with agent_client_agent_server("py") as py, agent_client_agent_server("ts-2") as ts:
        targets: dict[str, dict[str, Any]] = {
            **{sdk: {"command": agent_client_agent_command(sdk)} for sdk in SDKS},
            **{f"example-{sdk}": {"command": example_agent_command(sdk)} for sdk in SDKS},
            "py-http": {"url": f"{py.url}/acp"},
            "py-ws": {"url": f"{py.url.replace('http', 'ws')}/acp"},
            "ts-http": {"url": f"{ts.url}/acp"},
            "ts-ws": {"url": f"{ts.url.replace('http', 'ws')}/acp"},
            "locked": {"command": agent_client_agent_command("py", "--auth")},
            "free": {"command": agent_client_agent_command("py"), "permissions": {"allow": ["read"]}},
        }
        routes = [
            {"name": name, "target": {"protocol": "agent_client", "cwd": str(folder), **target}}
            for name, target in targets.items()
        ]
        with Gateway(json.dumps({"routes": routes}), folder) as running:
            yield running


AGENTS = ("py", "ts-0", "ts-2", "py-http", "py-ws", "ts-http", "ts-ws")


def http(gateway: Gateway) -> httpx2.Client:
    return httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=PATIENCE, trust_env=False)


def run_request(agent: str, message: str) -> dict[str, Any]:
    return {"agent_id": agent, "input": {"message": message}, "on_disconnect": "continue"}


@pytest.fixture(scope="module")
def streamed(gateway: Gateway) -> dict[str, list[Line]]:
    """What the agntcy client was streamed by each agent; in one process, since importing it takes seconds."""
    each = [("stream", "--name", agent, "--message", "think tool hello my friend") for agent in AGENTS]
    return dict(zip(AGENTS, agent_connect_conversations(f"{gateway.url}/agent-connect", *each), strict=True))


@pytest.mark.parametrize("agent", AGENTS)
def test_the_agntcy_client_gets_values_that_grow_to_the_whole(streamed: dict[str, list[Line]], agent: str) -> None:
    lines = streamed[agent]
    events = {line["event"]["id"]: line["event"] for line in lines if "event" in line}
    said = [event["data"]["values"]["message"] for event in events.values() if event["data"]["type"] == "values"]
    assert said and said[-1].split() == ["think", "tool", "hello", "my", "friend"]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(said))


@pytest.mark.parametrize(("agent", "option"), [*((agent, "ok") for agent in AGENTS), ("py", "no")])
def test_its_permission_question_is_an_interrupt_whose_answer_is_the_chosen_option(
    gateway: Gateway, agent: str, option: str
) -> None:
    with http(gateway) as client:
        asked = client.post("/runs/wait", json=run_request(agent, "perm")).json()
        question = asked["output"]["interrupt"]["permission"]
        assert [choice["optionId"] for choice in question["options"]] == ["ok", "no"]
        assert question["message"].startswith("The agent asks for permission: "), (
            "the call may be there by its id alone"
        )
        run_id = asked["run"]["run_id"]
        wrong = client.post(f"/runs/{run_id}", json={"optionId": "everything"})
        assert wrong.status_code == 422, wrong.text
        assert client.post(f"/runs/{run_id}", json={"optionId": option}).status_code == 200
        ended = client.get(f"/runs/{run_id}/wait", params={"timeout": PATIENCE}).json()
        assert ended["run"]["status"] == "success"
        assert f'"{option}"' in ended["output"]["values"]["message"]


@pytest.mark.parametrize("agent", SDKS)
def test_a_question_says_what_only_the_content_of_its_call_says(gateway: Gateway, agent: str) -> None:
    with httpx2.Client(timeout=PATIENCE, trust_env=False) as client:
        tasks = f"{gateway.url}/agent-protocol/{agent}/ap/v1/agent/tasks"
        task = client.post(tasks, json={"input": "vague"}).json()["task_id"]
        asked = client.post(f"{tasks}/{task}/steps", json={}).json()
        assert "permission: Bash\n\nRequesting approval to Running: rm -rf build\n\n1. " in asked["output"]
        [call] = asked["additional_output"]["tool_calls"]
        assert (call["title"], call["content"][0]["content"]["text"][-12:]) == ("Bash", "rm -rf build")
        answered = client.post(f"{tasks}/{task}/steps", json={"input": "no"}).json()["output"]
        assert '"no"' in answered


def test_what_a_question_says_of_its_call_is_told_where_the_route_has_answered_it(gateway: Gateway) -> None:
    done = interlingua("run", "free", "vague", "--gateway", gateway.url)
    assert (done.returncode, done.stderr) == (0, "tool: Reading file\ntool: Bash\n")
    url = f"{gateway.url.replace('http', 'ws')}/agent-client/free"
    lines = agent_client_client("py", "--say", "vague", url=url)
    assert [each.get("title") for each in updates(lines, "tool_call_update")] == ["Bash", None, None]


@pytest.mark.parametrize("agent", SDKS)
def test_a_question_shows_the_change_that_it_is_about(gateway: Gateway, agent: str) -> None:
    with httpx2.Client(timeout=PATIENCE, trust_env=False) as client:
        tasks = f"{gateway.url}/agent-protocol/{agent}/ap/v1/agent/tasks"
        task = client.post(tasks, json={"input": "edit"}).json()["task_id"]
        asked = client.post(f"{tasks}/{task}/steps", json={}).json()["output"]
        assert asked.startswith("The agent asks for permission: Edit notes\n\n```diff\n")
        assert "\n one\n-two\n+2\n```\n\n1. Allow\n2. Reject" in asked


def test_a_model_that_has_a_change_refused_is_told_so_in_a_line(gateway: Gateway) -> None:
    with httpx2.Client(timeout=PATIENCE, trust_env=False) as client:

        def called(name: str, **arguments: Any) -> Any:
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
            return client.post(f"{gateway.url}/agent-communication/mcp", json=call).json()["result"]

        asked = called("py", message="edit")
        assert "\n-two\n+2\n" in asked["content"][0]["text"]
        refused = called("interlingua_answer", resume=asked["_meta"]["interlingua/resume"], outcome="declined")
        assert refused["content"][-1]["text"] == '"The agent asks for permission: Edit notes" was declined.'


@pytest.mark.parametrize("agent", SDKS)
def test_what_a_tool_is_called_with_is_told_also_where_its_agent_says_it_late(gateway: Gateway, agent: str) -> None:
    with http(gateway) as client:
        tasks = f"{gateway.url}/agent-protocol/{agent}/ap/v1/agent/tasks"
        task = client.post(tasks, json={"input": "late"}).json()["task_id"]
        [call] = client.post(f"{tasks}/{task}/steps", json={}).json()["additional_output"]["tool_calls"]
        assert (call["title"], call["input"], call["status"]) == ("Edit: notes", {"file": "notes"}, "completed")
        request = {**run_request(agent, "late"), "stream_mode": ["custom"]}
        with client.stream("POST", "/runs/stream", json=request) as stream:
            said = [json.loads(line[5:]).get("update", {}) for line in stream.iter_lines() if line.startswith("data:")]
        inputs = [each["input"] for each in said if each.get("call") == "call_l" and "input" in each]
        assert inputs == [{}, {"file": "notes"}]
    done = interlingua("run", agent, "late", "--gateway", gateway.url)
    assert done.stderr == "tool: Edit\ntool: Edit: notes\n"


@pytest.mark.parametrize("way", ["--gateway", "--routes"])
def test_a_terminal_names_a_tool_that_fails_as_it_did_when_it_began(gateway: Gateway, way: str) -> None:
    done = interlingua(
        "run", "py", "perm", "--answer", "no", way, {"--gateway": gateway.url}.get(way, str(gateway.file))
    )
    assert (done.returncode, done.stderr) == (0, "tool: Reading file\ntool failed: Reading file\n")


def test_a_run_that_an_operator_cancels_is_cancelled_for_all_who_are_told(gateway: Gateway) -> None:
    there = ["--gateway", gateway.url]
    tasks = f"{gateway.url}/agent-protocol/py/ap/v1/agent/tasks"
    with (
        httpx2.Client(timeout=PATIENCE, trust_env=False) as client,
        ThreadPoolExecutor() as pool,
        start([*PROGRAM, "run", "py", "slow", *there]) as running,
    ):
        params = {"name": "py", "input": {"message": "slow"}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "agents/run", "params": params}
        task = client.post(tasks, json={"input": "slow"}).json()["task_id"]
        step = pool.submit(client.post, f"{tasks}/{task}/steps", json={})
        calls = pool.submit(client.post, f"{gateway.url}/agent-communication/mcp", json=call)
        waits = pool.submit(client.post, f"{gateway.url}/agent-connect/runs/wait", json=run_request("py", "slow"))

        def open_runs() -> list[str]:
            found = client.get(f"{gateway.url}/admin/runs", params={"status": "running"}).json()["runs"]
            return [run["id"] for run in found]

        running.wait_until(lambda: "0 " in running.stdout() and len(open_runs()) == 4, "all of them at work")
        for one in open_runs():
            assert interlingua("cancel", one, "--reason", "winter", *there).returncode == 0
        assert (running.wait(PATIENCE), running.stderr()) == (130, "cancelled: winter\n")
        ended = step.result().json()["additional_output"]["error"]
        assert (ended["code"], ended["message"]) == ("cancelled", "cancelled: winter")
        assert calls.result().json()["error"]["message"] == "cancelled: winter"
        assert waits.result().json()["output"]["description"] == "cancelled: winter"


@pytest.mark.parametrize("agent", AGENTS)
def test_a_cancelled_run_ends_at_the_agent_too(gateway: Gateway, agent: str) -> None:
    with http(gateway) as client:
        run_id = client.post("/runs", json=run_request(agent, "slow")).json()["run_id"]
        assert client.post(f"/runs/{run_id}/cancel", params={"wait": "true"}).status_code == 204
        ended = client.get(f"/runs/{run_id}/wait", params={"timeout": PATIENCE}).json()
        assert ended["output"]["type"] == "error" and "cancel" in ended["output"]["description"]
        assert client.get(f"/runs/{run_id}").json()["status"] == "error"


@pytest.mark.parametrize("agent", ("py", "ts-0", "ts-2"))
def test_an_agent_that_exits_in_mid_turn_fails_the_run_and_the_next_one_works(gateway: Gateway, agent: str) -> None:
    with http(gateway) as client:
        ended = client.post("/runs/wait", json=run_request(agent, "exit")).json()
        assert ended["output"]["type"] == "error" and "exited with 3" in ended["output"]["description"]
        again = client.post("/runs/wait", json=run_request(agent, "hello")).json()
        assert again["output"]["values"]["message"].split() == ["hello"]


@pytest.fixture(scope="module")
def examples(gateway: Gateway) -> Iterator[dict[tuple[str, Sdk], Future[Any]]]:
    """What comes of each SDK's examples. They mostly sleep, to look like work, so many run at once."""

    def agent(sdk: Sdk) -> Any:
        with http(gateway) as client:
            answer = client.post("/runs/wait", json=run_request(f"example-{sdk}", "hello")).json()
            if answer["output"]["type"] == "interrupt":
                run_id = answer["run"]["run_id"]
                option = answer["output"]["interrupt"]["permission"]["options"][0]["optionId"]
                assert client.post(f"/runs/{run_id}", json={"optionId": option}).status_code == 200
                answer = client.get(f"/runs/{run_id}/wait", params={"timeout": PATIENCE}).json()
            return answer

    with ThreadPoolExecutor(max_workers=8) as pool:
        begun: dict[tuple[str, Sdk], Future[Any]] = {}
        for sdk in SDKS:
            begun["agent", sdk] = pool.submit(agent, sdk)
            typed = "hello there\n" if sdk == "py" else "1\n"
            through = standing_in([*PROGRAM, "stdio", f"example-{sdk}", "--gateway", gateway.url])
            begun["through", sdk] = pool.submit(example_client, sdk, through, typed)
            begun["direct", sdk] = pool.submit(example_client, sdk, example_agent_command(sdk), typed)
            url = f"{gateway.url.replace('http', 'ws')}/agent-client/py"
            begun["remote", sdk] = pool.submit(example_remote_client, sdk, url)
        yield begun


@pytest.mark.parametrize("sdk", SDKS)
def test_the_sdk_s_own_example_agent_works_unchanged(examples: dict[tuple[str, Sdk], Future[Any]], sdk: Sdk) -> None:
    answer = examples["agent", sdk].result()
    assert answer["output"]["type"] == "result" and answer["output"]["values"]["message"]


@pytest.mark.parametrize("sdk", SDKS)
def test_the_sdk_s_own_example_client_works_unchanged(examples: dict[tuple[str, Sdk], Future[Any]], sdk: Sdk) -> None:
    shown = examples["remote", sdk].result()
    assert "end_turn" in shown, shown


TYPESCRIPT = (
    "Permission requested: Modifying critical configuration file",
    "Perfect! I've successfully updated the configuration",
    "Agent completed with: end_turn",
)
SHOWN = {"py": ("| Agent: Client sent:\n| Agent: hello there\n",), "ts-0": TYPESCRIPT, "ts-2": TYPESCRIPT}
"""What the examples make of each other, among other things."""


@pytest.mark.parametrize("sdk", SDKS)
def test_the_sdk_s_own_example_client_on_stdio_drives_its_own_example_agent(
    examples: dict[tuple[str, Sdk], Future[Any]], sdk: Sdk
) -> None:
    through, direct = examples["through", sdk].result(), examples["direct", sdk].result()
    assert re.sub("session: .*", "", through) == re.sub("session: .*", "", direct)
    assert all(words in through for words in SHOWN[sdk]), through


# --- the same protocol on both sides ---------------------------------------------------------------------------------

EVERYTHING = (
    *("--say", "think plan commands usage title mode option tool hello"),
    *("--permission", "allow", "--say", "perm"),
    *("--permission", "reject", "--say", "perm"),
    *("--elicitation", '{"name": "Ada"}', "--say", "elicit"),
    *("--file", "x=FILE BODY", "--say", "fs term"),
    *("--say", "ext blocks meta picture link embed where"),
    *("--set-mode", "code", "--set-option", "model=big", "--set-option", "loud=true", "--say", "hello"),
    *("--say", "refuse", "--say", "max", "--say", "fail"),
    *("--start", "slow", "--await", '"3 "', "--do", "cancel", "--finish"),
    *("--call", '_rig/hello {"a": 1}'),
)


def normal(lines: list[Line]) -> list[Line]:
    """Without what differs from one conversation to the next: the session's id, and times."""
    said = re.sub(r'"updatedAt": "[^"]*"', '"updatedAt": "TIME"', json.dumps(lines))
    for line in lines:
        if isinstance(line.get("result"), dict) and "sessionId" in line["result"]:
            said = said.replace(line["result"]["sessionId"], "SESSION")
    return [line for line in json.loads(said) if line["op"] not in ("initialize", "exit")]


PAIRS: list[tuple[Sdk, Sdk]] = [("py", "py"), ("ts-0", "ts-0"), ("ts-2", "ts-2"), ("py", "ts-2")]


@pytest.fixture(scope="module")
def compared(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[Sdk, Sdk], list[list[Line]]]:
    """What each pair said directly and through the gateway; one process a client, all of them at once."""
    root = tmp_path_factory.mktemp("compared")

    def converse(client: Sdk) -> list[list[Line]]:
        there: list[dict[str, Any]] = []
        for _, agent in (pair for pair in PAIRS if pair[0] == client):
            there += [{"command": agent_client_agent_command(agent)}]
            there += [{"url": f"{gateway.url.replace('http', 'ws')}/agent-client/{agent}"}]
        (root / client).mkdir()
        steps = ("--root", str(root / client), *EVERYTHING)
        return agent_client_conversations(client, *({"steps": steps, **way} for way in there))

    with ThreadPoolExecutor() as pool:
        said = dict(zip(SDKS, map(iter, pool.map(converse, SDKS)), strict=True))
    return {pair: [normal(next(said[pair[0]])), normal(next(said[pair[0]]))] for pair in PAIRS}


@pytest.mark.parametrize(("client", "agent"), PAIRS)
def test_a_proxy_changes_nothing_that_client_or_agent_sees(
    compared: dict[tuple[Sdk, Sdk], list[list[Line]]], client: Sdk, agent: Sdk
) -> None:
    direct, through = compared[client, agent]
    assert [line for line in through if "told" in line] == [line for line in direct if "told" in line]
    assert _in_order(through) == _in_order(direct)


def _sorted(word: str) -> str:
    """An answer that an agent says again, whatever the order of its members."""
    return json.dumps(json.loads(word), sort_keys=True) if word.startswith("{") and word.endswith("}") else word


def _in_order(lines: list[Line]) -> list[str]:
    """One string a line, to be read easily.

    Left out are the numbers of the slow turn, a matter of time, and notifications that are no updates: the SDKs hand
    them to the program before or after the updates beside them, as it happens.
    """
    found = []
    for line in lines:
        if "told" in line:
            continue
        update = (line.get("params") or {}).get("update") or {}
        content = update.get("content")
        if isinstance(content, dict) and str(content.get("text", "")).strip().isdigit():
            continue
        if isinstance(content, dict) and "text" in content:
            content["text"] = " ".join(map(_sorted, content["text"].split(" ")))
        found.append(json.dumps(line, sort_keys=True))
    return found


def test_an_agent_that_wants_a_login_is_logged_in_by_the_editor(gateway: Gateway) -> None:
    url = f"{gateway.url.replace('http', 'ws')}/agent-client/locked"
    steps = ("--bare", "--do", "initialize", "--do", "new", "--authenticate", "key", "--do", "new", "--say", "hi")
    lines = agent_client_client("ts-2", *steps, url=url)
    assert [error["code"] for error in errors(lines, "session/new")] == [-32000]
    assert text(lines).split() == ["hi"]


# --- processes -------------------------------------------------------------------------------------------------------


def test_two_hundred_sessions_use_one_process_and_none_is_left_after_a_kill(tmp_path: Path) -> None:
    wrapper = ["sh", str(WRAPPER), *agent_client_agent_command("ts-2")]
    route = {"name": "wrapped", "target": {"protocol": "agent_client", "command": wrapper}}
    with marked() as mark, Gateway(json.dumps({"routes": [route]}), tmp_path, env=mark.env) as gateway:
        with http(gateway) as client:
            for number in range(200):
                answer = client.post("/runs/wait", json=run_request("wrapped", f"hello {number}"))
                assert answer.json()["output"]["values"]["message"].split() == ["hello", str(number)]
            assert len(mark.pids()) < 12, "one agent serves all sessions"
            client.post("/runs", json=run_request("wrapped", "slow"))
        gateway.kill9()
        mark.wait_gone(30)


def test_readiness_tells_of_an_agent_that_cannot_start(tmp_path: Path) -> None:
    routes = [
        {"name": "gone", "target": {"protocol": "agent_client", "command": ["/no/such/agent"]}},
        {"name": "mute", "target": {"protocol": "agent_client", "command": ["cat"], "start_timeout": 1}},
        {"name": "good", "target": {"protocol": "agent_client", "command": agent_client_agent_command("ts-2")}},
    ]
    with Gateway(json.dumps({"routes": routes}), tmp_path) as gateway, http(gateway) as client:
        for name in ("gone", "mute", "good"):
            client.post("/runs/wait", json=run_request(name, "hello"))
        agents = httpx2.get(f"{gateway.url}/readyz").json()["agents"]
        assert agents == {"gone": False, "mute": False, "good": True}


def test_an_open_stream_does_not_hold_up_the_end_of_the_gateway(tmp_path: Path) -> None:
    routes = [{"name": "parrot", "target": {"protocol": "example", "url": "http://127.0.0.1:9"}}]
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
    with (
        Gateway(json.dumps({"routes": routes, "limits": {"shutdown": 60}}), tmp_path) as gateway,
        httpx2.Client(base_url=f"{gateway.url}/agent-client", timeout=PATIENCE) as client,
    ):
        connection = client.post("/parrot", json=hello).headers["acp-connection-id"]
        headers = {"acp-connection-id": connection, "accept": "text/event-stream"}
        with client.stream("GET", "/parrot", headers=headers) as stream:
            assert stream.status_code == 200
            gateway.process.signal(signal.SIGTERM)
            assert gateway.process.wait(60) == 0


def test_nothing_but_the_protocol_is_on_standard_output(tmp_path: Path) -> None:
    routes = [{"name": "loud", "target": {"protocol": "agent_client", "command": agent_client_agent_command("ts-2")}}]
    (tmp_path / "routes.yaml").write_text(json.dumps({"routes": routes}))
    wire = tmp_path / "wire"
    command = [sys.executable, "-m", "gateway", "stdio", "loud", "--log-level", "debug"]
    command += ["--routes", str(tmp_path / "routes.yaml")]
    lines = agent_client_client("ts-2", "--wire", str(wire), "--say", "noise hello", "--say", "fail", command=command)
    assert [line["to"] for line in map(json.loads, wire.read_text().splitlines())]
    assert not errors(lines, "session/new") and results(lines, "initialize")
    assert updates(lines, "agent_message_chunk")
