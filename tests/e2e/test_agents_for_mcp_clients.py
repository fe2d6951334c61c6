"""Agents of every protocol for BeeAI clients, and as tools for any MCP client: the real SDKs, over every transport."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gateway.core.delta import ABSENT, combine
from tests.support.agent_client import agent_client_agent_command
from tests.support.agent_communication import (
    Client,
    Line,
    agents_server,
    asked,
    client,
    clients,
    conversation,
    deltas,
    results,
    told,
)
from tests.support.forking import standing_in
from tests.support.peers import lines_of
from tests.support.processes import PROGRAM, Gateway, Process

ROUTES = """\
routes:
  - name: writer
    target: {{protocol: agent_protocol, url: "{agent_protocol}"}}
  - name: echo
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: echo}}
  - name: editor
    target: {{protocol: agent_client, command: {agent_client}}}
  - name: bee
    target: {{protocol: agent_communication, url: "{bee}/sse", agent: stream}}
  - name: asker
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: asker}}
  - name: failing
    target: {{protocol: agent_communication, url: "{bee}/sse", agent: fail}}
  - name: slow
    target: {{protocol: agent_communication, url: "{bee}/sse", agent: slow}}
"""
RUNS = (
    'writer {"message": "write a haiku"}',
    'echo {"message": "hello"}',
    'editor {"message": "hello"}',
    'bee {"prompt": "hello"}',
)
"""One agent of each protocol."""
ANSWERING = ("--elicitation", '{"approved": true, "reason": "blue"}')
MORE = (
    *("--run", 'nobody {"prompt": "x"}', "--run", 'bee {"wrong": 1}', "--run", 'failing {"prompt": "x"}'),
    *("--cancel-after", "2", "--run", 'slow {"prompt": "x"}'),
    *ANSWERING,
    *("--run", 'asker {"message": "hello"}'),
)
UNKNOWN, WRONG, FAILING, SLOW, ASKER = range(5, 10)
STORY = ("--do", "list", *(step for run in RUNS for step in ("--run", run)), *MORE)
TOOL_STORY = (
    *(*ANSWERING, "--do", "tools", *(step for run in RUNS for step in ("--tool", run))),
    *("--tool", 'asker {"message": "hello"}'),
)
Talk = tuple[Client, str]
DOORS: dict[Client, tuple[str, ...]] = {
    "py": ("stdio", "sse"),
    "ts": ("pipe", "ws"),
    "mcp-1": ("stdio", "http"),
    "mcp-2": ("pipe", "http"),
}
"""Two transports of each client. `stdio`: the gateway in its own process; `pipe`: a thin pipe to the running one."""
MCP = ("mcp-1", "mcp-2")
TOOLED: tuple[Talk, ...] = (("mcp-1", "http"), ("mcp-2", "pipe"))
"""Where the agents are called as tools too."""
BEES, MCPS = (
    [(kind, door) for kind, doors in DOORS.items() for door in doors if (kind in MCP) is mcp] for mcp in (False, True)
)


@pytest.fixture(scope="module")
def bee() -> Iterator[Process]:
    with agents_server("py") as process:
        yield process


@pytest.fixture(scope="module")
def gateway(
    bee: Process, agent_protocol_server: Process, agent_connect_agent: Process, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    text = ROUTES.format(
        agent_protocol=agent_protocol_server.url,
        agent_connect=agent_connect_agent.url,
        agent_client=json.dumps(agent_client_agent_command("ts-2")),
        bee=bee.url,
    )
    with Gateway(text, tmp_path_factory.mktemp("mcp")) as running:
        yield running


def way(gateway: Gateway, how: Talk) -> dict[str, Any]:
    """The `command` or `url` of a client's conversation through one of the gateway's doors.

    A gateway in the client's own process has a store of its own: else the other one takes up what it leaves.
    """
    kind, door = how
    base = f"{gateway.url}/agent-communication"
    if door in ("stdio", "pipe"):
        own = gateway.file.parent / kind
        own.mkdir(exist_ok=True)
        routes = shutil.copy(gateway.file, own)
        there = ["--gateway", gateway.url] if door == "pipe" else ["--routes", str(routes)]
        return {"command": standing_in([*PROGRAM, "stdio", "--protocol", "agent_communication", *there])}
    urls = {"sse": f"{base}/sse", "ws": f"{base.replace('http', 'ws')}/ws", "http": f"{base}/mcp"}
    return {"url": urls[door]}


def talk(gateway: Gateway, how: Talk, *steps: str) -> list[Line]:
    """What a client saw of a conversation with the gateway."""
    return client(how[0], *steps, **way(gateway, how))


@pytest.fixture(scope="module")
def stories(gateway: Gateway) -> dict[tuple[Talk, bool], list[Line]]:
    """What every client saw of the story, and MCP clients also of the agents as tools (True), by its way.

    One process a client where it can hold several conversations, all clients at once.
    """

    def tell(kind: Client) -> dict[tuple[Talk, bool], list[Line]]:
        wanted = [((kind, door), False) for door in DOORS[kind]]
        wanted += [(how, True) for how in TOOLED if how[0] == kind]
        steps = {False: STORY, True: (*STORY[:2], *TOOL_STORY)}
        if kind == "ts":
            return {one: talk(gateway, one[0], *steps[one[1]]) for one in wanted}
        each = [{"steps": steps[tools], **way(gateway, how)} for how, tools in wanted]
        return dict(zip(wanted, clients(kind, *each), strict=True))

    with ThreadPoolExecutor() as pool:
        return {one: lines for told in pool.map(tell, DOORS) for one, lines in told.items()}


@pytest.fixture(scope="module", params=[*BEES, *MCPS], ids="-".join)
def lines(stories: dict[tuple[Talk, bool], list[Line]], request: pytest.FixtureRequest) -> list[Line]:
    """The whole story, as one client of either kind saw it."""
    return stories[request.param, False]


@pytest.fixture(scope="module", params=TOOLED, ids="-".join)
def tooled(stories: dict[tuple[Talk, bool], list[Line]], request: pytest.FixtureRequest) -> list[Line]:
    """The same agents as tools."""
    return stories[request.param, True]


def end(lines: list[Line], number: int) -> Line:
    """How the call of that number ended."""
    (ended,) = (line for line in lines if line.get("run") == number and ("result" in line or "error" in line))
    return ended


def folded(pieces: list[Any]) -> Any:
    document: Any = ABSENT
    for piece in pieces:
        document = combine(document, piece)
    return document


def text_of(output: Any) -> str:
    return str(output.get("message") or output.get("text"))


def test_agents_of_every_protocol_are_listed(lines: list[Line]) -> None:
    (listed,) = results(lines, "agents/list")
    assert [agent["name"] for agent in listed["agents"]][:5] == ["writer", "echo", "editor", "bee", "asker"]


@pytest.mark.parametrize("number", range(1, 5), ids=["agent_protocol", "agent_connect", "agent_client", "own"])
def test_each_answers_and_its_deltas_add_up_to_its_output(lines: list[Line], number: int) -> None:
    output = end(lines, number)["result"]["output"]
    assert ("haiku" if number == 1 else "hello") in text_of(output)
    assert folded(deltas(lines, f"run-{number}")) == output


def test_mistakes_are_told_with_what_and_where(lines: list[Line]) -> None:
    unknown, wrong = end(lines, UNKNOWN)["error"], end(lines, WRONG)["error"]
    assert unknown["code"] == -32602 and "nobody" in unknown["message"] and "bee" in unknown["message"]
    assert wrong["code"] == -32602 and "prompt" in wrong["message"]


def test_a_failure_of_the_agent_is_told_in_its_words(lines: list[Line]) -> None:
    assert end(lines, FAILING)["error"]["message"].endswith("Error running agent fail: boom")


def test_a_cancelled_call_ends_and_the_connection_goes_on(lines: list[Line]) -> None:
    assert len(deltas(lines, f"run-{SLOW}")) >= 2
    assert "result" not in end(lines, SLOW)


def test_a_question_is_put_to_who_can_be_asked_and_handed_to_who_cannot(
    gateway: Gateway, lines: list[Line], request: pytest.FixtureRequest
) -> None:
    ended = end(lines, ASKER)
    how = request.node.callspec.params["lines"]
    if how[0] == "mcp-1":
        assert len(asked(lines, "elicitation/create")) == 1
        assert "approved" in text_of(ended["result"]["output"])
        return
    assert not asked(lines, "elicitation/create")
    if how[0] == "mcp-2":  # whose SDK works off what a tool requires, but not what a method does that it does not know
        required = ended["result"]
        assert required["inputRequests"] and required["requestState"], required
        if how != MCPS[-1]:
            return  # answered once: the answer is a call like any other
        ((key, _),) = required["inputRequests"].items()
        content = {"approved": True, "reason": "blue"}
        responses = {key: {"action": "accept", "content": content}}
        params = {"name": "asker", "input": {"message": "hello"}, "requestState": required["requestState"]}
        call = f"agents/run {json.dumps({**params, 'inputResponses': responses})}"
        (again,) = results(talk(gateway, how, "--call", call), "agents/run")
        assert "approved" in text_of(again["output"])
        return
    question = ended["error"]["data"]
    assert question["interrupt"]["answerSchema"], question
    resume = json.dumps({"interlingua/resume": question["resume"]})
    for _ in range(5):
        answered = talk(gateway, how, "--meta", resume, "--run", 'asker {"approved": true, "reason": "blue"}')
        if not end(answered, 1).get("error", {}).get("data", {}).get("retryable"):
            break  # else the gateway that was asked first, a process of the client's own, is still on its way out
    assert "result" in end(answered, 1), end(answered, 1)
    output = end(answered, 1)["result"]["output"]
    assert "approved" in text_of(output) and folded(deltas(answered, "run-1")) == output


def test_any_mcp_client_calls_agents_of_every_protocol_as_tools(tooled: list[Line]) -> None:
    (listed,) = results(tooled, "tools/list")
    tools = {tool["name"]: tool for tool in listed["tools"]}
    assert tools["bee"]["inputSchema"]["required"] == ["prompt"]
    called = [end(tooled, number)["result"] for number in range(1, 6)]
    assert not any(result.get("isError") for result in called), called
    for result in called:
        assert text_of(result["structuredContent"]) in result["content"][0]["text"]
    assert "approved" in called[-1]["content"][0]["text"], "it asked on the way"
    assert told(tooled, "notifications/progress"), "it says how far it is"


def test_a_bee_agent_is_the_same_through_the_gateway_as_directly(gateway: Gateway, bee: Process) -> None:
    runs = [(name, '{"prompt": "big world"}') for name in ("stream", "fail")]
    there = client(
        "ts", "--do", "list", *(s for name, x in runs for s in ("--run", f"{name} {x}")), url=f"{bee.url}/sse"
    )
    named = {"stream": "bee", "fail": "failing"}
    ours = talk(gateway, ("ts", "ws"), "--do", "list", *(s for n, x in runs for s in ("--run", f"{named[n]} {x}")))
    assert end(ours, 1)["result"] == end(there, 1)["result"] | {"_meta": end(ours, 1)["result"].get("_meta")}
    assert deltas(ours, "run-1") == deltas(there, "run-1")
    wanted, got = end(there, 2)["error"], end(ours, 2)["error"]
    assert (got["code"], got["message"]) == (wanted["code"], wanted["message"])
    direct = {agent["name"]: agent for agent in results(there, "agents/list")[0]["agents"]}
    served = {agent["name"]: agent for agent in results(ours, "agents/list")[0]["agents"]}
    assert served["bee"] == {**direct["stream"], "name": "bee"}


def test_a_reload_is_told_to_every_client_that_is_there(bee: Process, tmp_path: Path) -> None:
    one = f'  - name: bee\n    target: {{protocol: agent_communication, url: "{bee.url}/sse", agent: stream}}\n'
    with Gateway(f"routes:\n{one}", tmp_path) as running:
        url = f"{running.url}/agent-communication/sse"
        steps = ("--do", "list", "--await", "list_changed", "--do", "list")
        with conversation("ts", *steps, url=url) as process:
            process.wait_until(lambda: "agents/list" in process.stdout(), "the first list")
            running.file.write_text(f"routes:\n{one}{one.replace('name: bee', 'name: second')}")
            seen = lines_of(process, 100)
    before, after = results(seen, "agents/list")
    assert [agent["name"] for agent in before["agents"]] == ["bee"]
    assert [agent["name"] for agent in after["agents"]] == ["bee", "second"]
