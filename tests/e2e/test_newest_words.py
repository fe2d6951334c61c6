"""What the newest SDK says that older ones do not know goes through the gateway as it is: a real client and agent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.doors import way
from tests.support.peers import lines_of, node, peer_modules
from tests.support.processes import PEERS, Gateway, start

PATIENCE = 100.0
Lines = list[dict[str, Any]]


def program(name: str, *args: str) -> list[str]:
    """One of the pair, on the newest TypeScript SDK."""
    sdk = str(peer_modules("agent-client-ts-2"))
    return [str(node()), str(PEERS / f"agent_client_newest_{name}.mjs"), "--sdk", sdk, *args]


def held(command: list[str], *options: str) -> Lines:
    """The client's conversation with who is behind the command; its session is called `s0` wherever it is named."""
    with start(program("client", *options, "--", *command)) as process:
        lines = lines_of(process, PATIENCE)
    [made] = [line["result"]["sessionId"] for line in lines if line["op"] == "session/new"]
    return [json.loads(json.dumps(line).replace(made, "s0")) for line in lines]


def of(lines: Lines, op: str) -> list[Any]:
    """What came of each request of that method, or of the notifications what each said."""
    return [line.get("params", line.get("result", line.get("code"))) for line in lines if line["op"] == op]


def said(lines: Lines) -> dict[str, Any]:
    """What the agent knew at the end of the turn: its client's capabilities and its sessions."""
    known: dict[str, Any] = json.loads(of(lines, "session/update")[-1]["update"]["content"]["text"])
    return known


@pytest.fixture(scope="module")
def directly() -> Lines:
    """Without a gateway between them."""
    return held(program("agent"))


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lines]:
    """The same through a gateway, and that of a client that shows subagents, too."""
    folder = tmp_path_factory.mktemp("newest")
    target = {"protocol": "agent_client", "cwd": str(folder), "command": program("agent")}
    with Gateway(json.dumps({"routes": [{"name": "newest", "target": target}]}), folder) as gateway:
        command = way(gateway, "pipe", "newest")["command"]
        return {"same": held(command), "subagents": held(command, "--also", '{"subagents": {}}')}


def test_the_pair_says_all_of_it_without_a_gateway(directly: Lines) -> None:
    kinds = {each["update"]["sessionUpdate"] for each in of(directly, "session/update")}
    assert {"notice", "compaction_update", "compaction_summary_chunk", "plan_update", "plan_removed"} <= kinds
    assert said(directly)["sessions"][0]["systemPrompt"]["mode"] == "append"
    assert of(directly, "session/list") == [
        {"sessions": []},
        {"sessions": [{"sessionId": "s0", "cwd": "/", "title": "Named", "archived": True}]},
    ]


def test_through_a_gateway_each_answer_and_update_is_the_same(directly: Lines, through: dict[str, Lines]) -> None:
    ops = {line["op"] for line in directly}
    assert {line["op"] for line in through["same"]} == ops
    for op in ops - {"initialize"}:
        assert of(through["same"], op) == of(directly, op)


def test_what_the_agent_offers_is_offered_on(directly: Lines, through: dict[str, Lines]) -> None:
    [offered], [of_it] = of(directly, "initialize"), of(through["same"], "initialize")
    of_sessions = of_it["agentCapabilities"]["sessionCapabilities"]
    assert of_it["agentCapabilities"]["auth"] == offered["agentCapabilities"]["auth"]
    assert of_it["authMethods"] == offered["authMethods"] != [], "the login that only clients with this capability have"
    assert of_sessions.items() >= offered["agentCapabilities"]["sessionCapabilities"].items()


def test_no_agent_is_told_of_subagents_whose_sessions_a_gateway_cannot_pass_on(through: dict[str, Lines]) -> None:
    lines = through["subagents"]
    assert said(lines)["declared"] == said(through["same"])["declared"]
    assert {each["sessionId"] for each in of(lines, "session/update")} == {"s0"}
