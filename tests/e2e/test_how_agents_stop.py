"""An agent that refuses, stops at a limit, or fails with a reason: what the official SDK of each protocol says of it.

The agent is made with an official Agent Client SDK. `refuse`, `max` and `fail` say nothing; `where` says something.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.doors import way
from tests.support import agent_communication
from tests.support.agent_client import agent_client_agent_command, agent_client_client, errors, results
from tests.support.peers import agent_connect_conversations, agent_protocol_client
from tests.support.processes import PROGRAM, Gateway, environment

PROMPTS = ("refuse", "where refuse", "max", "where turns", "fail", "hello")
REFUSED, LIMIT = "the agent refused", "the agent stopped at its limit of"
FAILURES = {
    "refuse": f"{REFUSED} and said nothing",
    "where refuse": f"{REFUSED}: where ",
    "max": f"{LIMIT} tokens and said nothing",
    "fail": "Internal error: boom",
}
"""What the reasons begin with, where the run has failed. `where turns` and `hello` have not."""
SHORT = f"{LIMIT} model requests in a turn"
PATIENCE = 150.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("stops")
    target = {"protocol": "agent_client", "cwd": str(folder), "command": agent_client_agent_command("py")}
    with Gateway(json.dumps({"routes": [{"name": "rig", "target": target}]}), folder) as running:
        yield running


def all_of(say: Any) -> dict[str, Any]:
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(PROMPTS, pool.map(say, PROMPTS), strict=True))


def test_the_agents_own_words_reach_a_client_of_its_protocol(gateway: Gateway) -> None:
    steps = [word for prompt in PROMPTS for word in ("--say", prompt)]
    lines = agent_client_client("py", *steps, **way(gateway, "ws", "rig"))
    said = [each.get("result", each.get("error")) for each in lines if each["op"] == "session/prompt"]
    assert [each.get("stopReason") for each in said] == [
        *("refusal", "refusal", "max_tokens", "max_turn_requests", None, "end_turn")
    ]
    assert "_meta" not in str(said)
    [error] = errors(lines, "session/prompt")
    assert (error["code"], error["message"], error["data"]) == (-32603, "Internal error", {"details": "boom"})


def test_agent_connect_says_error_or_a_result_and_the_reason_beside_it(gateway: Gateway) -> None:
    calls = [("wait", "--name", "rig", "--message", prompt) for prompt in PROMPTS]
    url = f"{gateway.url}/agent-connect"
    stream = ("stream", "--name", "rig", "--message", "where turns", "--stream-mode", "custom")
    *waited, streamed = agent_connect_conversations(url, *calls, stream)
    for prompt, lines in zip(PROMPTS, waited, strict=True):
        [answer] = [
            line["result"] for line in lines if isinstance(line.get("result"), dict) and "run" in line["result"]
        ]
        if prompt in FAILURES:
            assert answer["run"]["status"] == "error" and answer["output"]["type"] == "error"
            assert answer["output"]["errcode"] == 502
            assert answer["output"]["description"].startswith(FAILURES[prompt])
        else:
            assert answer["run"]["status"] == "success" and answer["output"]["values"]["message"]
    updates = [line["event"]["data"].get("update") or {} for line in streamed if "event" in line]
    stops = [each for each in updates if each.get("type") == "run_finished"]
    assert stops == [{"type": "run_finished", "stop_reason": "max_turn_requests", "message": SHORT}]


def test_agent_protocol_says_it_in_the_additional_output_of_the_step(gateway: Gateway) -> None:
    url = f"{gateway.url}/agent-protocol/rig"
    told = all_of(lambda prompt: agent_protocol_client("steps", url, "--input", prompt))
    for prompt, lines in told.items():
        [*_, step] = results(lines, "execute_agent_task_step")
        beside = step["additional_output"] or {}
        assert step["is_last"]
        if prompt in FAILURES:
            assert beside["error"]["message"].startswith(FAILURES[prompt])
        else:
            assert "error" not in beside
        reasons = {"refuse": "refusal", "where refuse": "refusal", "max": "max_tokens"}
        assert beside.get("stop_reason") == {**reasons, "where turns": "max_turn_requests"}.get(prompt)


@pytest.mark.parametrize("kind", ["mcp-1", "mcp-2"])
def test_a_tool_says_to_the_model_that_it_has_failed_or_was_cut_short(
    gateway: Gateway, kind: agent_communication.Client
) -> None:
    steps = [word for prompt in PROMPTS for word in ("--tool", f"rig {json.dumps({'message': prompt})}")]
    lines = agent_communication.client(kind, *steps, url=f"{gateway.url}/agent-communication/mcp")
    for prompt, result in zip(PROMPTS, results(lines, "tools/call"), strict=True):
        texts = [each["text"] for each in result["content"]]
        assert result["isError"] is (prompt in FAILURES)
        if prompt in FAILURES:
            assert texts[0].startswith(f"rig: {FAILURES[prompt]}")
        else:
            assert texts[1:] == ([f"rig: {SHORT}"] if prompt == "where turns" else [])
        stopped = result["_meta"].get("interlingua/stopReason")
        assert (stopped is None) is (prompt in ("fail", "hello"))


def test_agents_run_is_an_error_or_a_result_with_the_reason_in_meta(gateway: Gateway) -> None:
    steps = [word for prompt in PROMPTS for word in ("--run", f"rig {json.dumps({'message': prompt})}")]
    lines = agent_communication.client("py", *steps, url=f"{gateway.url}/agent-communication/sse")
    ended = [line for line in lines if line["op"] == "agents/run"]
    for prompt, line in zip(PROMPTS, ended, strict=True):
        if prompt in FAILURES:
            assert line["error"]["message"].startswith(FAILURES[prompt])
        else:
            meta = line["result"]["_meta"]
            stopped = "max_turn_requests" if prompt == "where turns" else None
            assert meta.get("interlingua/stopReason") == stopped


def test_agent_message_is_an_error_or_an_answer_with_the_reason_in_meta(gateway: Gateway) -> None:
    calls = []
    for prompt in PROMPTS:
        params = {"target": "rig", "content": {"type": "request", "payload": {"message": prompt}}}
        calls += ["--call", f"agent/message {json.dumps(params)}"]
    lines = agent_communication.client("mcp-2", *calls, url=f"{gateway.url}/agent-context")
    ended = [line for line in lines if line["op"] == "agent/message" and "told" not in line]
    for prompt, line in zip(PROMPTS, ended, strict=True):
        if prompt in FAILURES:
            assert line["error"]["message"].startswith(FAILURES[prompt])
        else:
            stopped = "max_turn_requests" if prompt == "where turns" else None
            assert line["result"]["_meta"].get("interlingua/stopReason") == stopped


@pytest.mark.parametrize("place", ["--gateway", "--routes"])
def test_run_says_it_on_standard_error_and_exits_with_1(gateway: Gateway, place: str) -> None:
    there = gateway.url if place == "--gateway" else str(gateway.file)

    def run(prompt: str) -> subprocess.CompletedProcess[str]:
        argv = [*PROGRAM, "run", "rig", prompt, place, there]
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            env=environment(),
            stdin=subprocess.DEVNULL,
        )

    prompts = PROMPTS if place == "--gateway" else ("refuse", "where turns", "fail")
    for prompt in prompts:
        done = run(prompt)
        assert done.returncode == (0 if prompt == "hello" else 1), done
        assert FAILURES.get(prompt, SHORT if prompt == "where turns" else "") in done.stderr
