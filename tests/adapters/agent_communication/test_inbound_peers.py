"""Clients made with the real SDKs, unchanged, over every transport they have, at agents of another protocol.

Starting them takes long: each tells its whole story once, and the tests look at what it saw.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.core.types import RunQuery, RunStatus
from tests.adapters.agent_communication.inbound_server import Served, served
from tests.support.agent_communication import Client, Line, asked, client, deltas, errors, results, told
from tests.support.aio import run

WITHIN = 240.0
RUN = "agents/run"
CALL = "tools/call"
PROGRESS = "notifications/progress"


@dataclass(frozen=True)
class Story:
    """What a client saw, first and when it came back; how the run that it cancelled ended; the server's address."""

    first: list[Line]
    second: list[Line]
    held: RunStatus
    server: str


async def talk(there: Served, kind: Client, path: str, *steps: str) -> list[Line]:
    base = there.socket if path.startswith("/ws") else there.url
    return await asyncio.to_thread(client, kind, *steps, url=base + path)


async def held(there: Served) -> RunStatus:
    """How the only run of `held` has ended."""
    (only,) = await there.engine.runs.list(RunQuery(agent="held"))
    ended = await there.engine.runs.wait(only.id, 30)
    assert ended is not None
    return ended.status


def text(result: Any) -> str:
    return "".join(block["text"] for block in result["content"] if block["type"] == "text")


def said(lines: Sequence[Line], token: Any) -> str:
    """The text that the deltas with a token add up to."""
    return "".join(delta["message"] for delta in deltas(lines, token))


# --- the protocol's own SDKs -------------------------------------------------------------------------------------

TOKENS = ("t", "", 0, 7)


@pytest.fixture(
    scope="module",
    params=[("py", "/sse"), ("ts", "/sse"), ("ts", "/ws")],
    ids=["python-sse", "typescript-sse", "typescript-websocket"],
)
def bee(request: pytest.FixtureRequest) -> Story:
    kind, path = request.param
    steps = ["--do", "list", "--do", "templates", "--token", "none", "--run", 'echo {"message": "no token"}']
    for token in TOKENS:
        steps += ["--token", json.dumps(token), "--run", 'echo {"message": "one two"}']
    steps += ["--token", '"x"', "--run", "nobody {}", "--run", "echo {}", "--run", 'failer {"message": "x"}']
    steps += ["--token", '"a"', "--run", 'asker {"message": "x"}']
    steps += ["--token", '"h"', "--start", 'held {"message": "x"}', "--await", "before", "--cancel", "--finish"]
    steps += ["--create", 'maker {"tone": "low"}', "--do", "tools", "--tool", 'filer {"message": "x"}', "--do", "ping"]

    async def main() -> Story:
        async with served() as there:
            first = await talk(there, kind, path, *steps)
            meta = json.dumps({"interlingua/resume": errors(first, RUN)[3]["data"]["resume"]})
            made = results(first, "agents/create")[0]["agent"]["name"]
            again = ["--meta", meta, "--token", "1", "--run", 'asker {"ok": true}', "--meta", "{}"]
            again += ["--run", f'{made} {{"message": "x"}}', "--destroy", made]
            second = await talk(there, kind, path, *again)
            return Story(first, second, await held(there), there.engine.public_url)

    return run(main(), WITHIN)


def test_a_bee_client_finds_the_agents_and_templates(bee: Story) -> None:
    (listed,) = results(bee.first, "agents/list")
    assert [agent["name"] for agent in listed["agents"]] == ["echo", "asker", "held", "failer", "filer", "maker"]
    (templates,) = results(bee.first, "agents/templates/list")
    assert [template["name"] for template in templates["agentTemplates"]] == ["maker"]


def test_a_bee_client_runs_an_agent_with_any_token_and_without(bee: Story) -> None:
    outputs = [result["output"]["message"] for result in results(bee.first, RUN)]
    assert outputs == ["no token ", *["one two "] * len(TOKENS)]
    assert [said(bee.first, token) for token in TOKENS] == ["one two "] * len(TOKENS)


def test_a_bee_client_is_told_what_was_wrong_and_what_there_was_until_then(bee: Story) -> None:
    unknown, unfit, failed, *_ = errors(bee.first, RUN)
    assert (unknown["code"], unfit["code"], failed["code"]) == (-32602, -32602, -32603)
    assert unfit["data"]["path"] == "/input"
    assert failed["data"]["output"] == {"message": said(bee.first, "x")} == {"message": "so far"}


def test_a_bee_client_gets_a_question_as_an_error_and_answers_it_with_its_next_run(bee: Story) -> None:
    """Its SDK takes no forms; the Python one breaks off if it is shown one."""
    question = errors(bee.first, RUN)[3]
    assert (question["code"], question["data"]["interrupt"]["message"]) == (-32050, "Which one?")
    assert deltas(bee.first, "a") == [question["data"]["output"]] == [{"message": "Let me see. "}]
    output = results(bee.second, RUN)[0]["output"]
    assert output["message"] == "Let me see. answered {'ok': True}. "
    assert said(bee.second, 1).startswith(output["message"])


def test_a_bee_client_cancels_a_run_and_its_session_goes_on(bee: Story) -> None:
    assert bee.held is RunStatus.CANCELLED
    assert said(bee.first, "h") == "before "
    assert results(bee.first, "ping") == [{}]


def test_a_bee_client_makes_an_agent_of_a_template_runs_it_and_destroys_it(bee: Story) -> None:
    assert None in told(bee.first, "notifications/agents/list_changed")
    assert results(bee.second, RUN)[1]["output"] == {"message": "low"}
    assert results(bee.second, "agents/destroy") == [{}]


def test_a_bee_client_calls_agents_as_tools(bee: Story) -> None:
    made = results(bee.first, "agents/create")[0]["agent"]["name"]
    (tools,) = results(bee.first, "tools/list")
    assert [tool["name"] for tool in tools["tools"]][-2:] == [made, "interlingua_answer"]
    (filed,) = results(bee.first, CALL)
    assert text(filed).startswith("see the file") and f"{bee.server}/artifacts/" in text(filed)


# --- any MCP client ----------------------------------------------------------------------------------------------

ANSWERS = ('{"ok": true}', "decline", "cancel", '{"ok": "x"}')


@pytest.fixture(
    scope="module",
    params=[("mcp-1", ()), ("mcp-2", ("--mode", "legacy")), ("mcp-2", ())],
    ids=["1.30.0", "2.3.0-handshake", "2.3.0-modern"],
)
def mcp(request: pytest.FixtureRequest) -> Story:
    kind, mode = request.param
    steps = ["--do", "tools", "--token", "auto", "--tool", 'echo {"message": "one two"}']
    steps += ["--tool", 'filer {"message": "x"}', "--tool", 'failer {"message": "x"}', "--tool", "echo {}"]
    for how in ANSWERS:
        steps += ["--elicitation", how, "--tool", 'asker {"message": "x"}']
    steps += ["--tool", "nobody {}", "--start-tool", 'held {"message": "x"}', "--await", '"before ', "--cancel"]
    steps += ["--finish", "--call", 'agents/run {"name": "echo", "input": {"message": "raw"}}']

    async def main() -> Story:
        async with served() as there:
            lines = await talk(there, kind, "/mcp", *mode, *steps)
            return Story(lines, [], await held(there), there.engine.public_url)

    return run(main(), WITHIN)


def test_an_mcp_client_calls_an_agent_as_a_tool_with_progress_and_structure(mcp: Story) -> None:
    (listed,) = results(mcp.first, "tools/list")
    assert [tool["name"] for tool in listed["tools"]][-1] == "interlingua_answer"
    assert listed["tools"][0]["outputSchema"]["properties"]["message"] == {"type": "string"}
    echoed = results(mcp.first, CALL)[0]
    assert echoed["structuredContent"] == {"message": "one two "}
    assert text(echoed) == "one two "
    assert "one two " in [params["message"] for params in told(mcp.first, PROGRESS)]


def test_an_mcp_client_gets_files_as_links(mcp: Story) -> None:
    filed = results(mcp.first, CALL)[1]
    (link,) = [block for block in filed["content"] if block["type"] == "resource_link"]
    assert (link["name"], link["mimeType"], link["size"]) == ("notes.txt", "text/plain", 5)
    assert link["uri"].startswith(f"{mcp.server}/artifacts/")


def test_an_mcp_client_is_told_what_was_wrong_in_words_for_a_model(mcp: Story) -> None:
    failed, unfit = results(mcp.first, CALL)[2:4]
    assert failed["isError"] and "it failed on purpose" in text(failed) and "so far" in text(failed)
    assert unfit["isError"] and text(unfit).startswith("/arguments")
    assert errors(mcp.first, CALL)[0]["code"] == -32602


def test_an_mcp_client_is_asked_by_a_form(mcp: Story) -> None:
    declined = 'Let me see. declined None. "Which one?" was declined.'
    cancelled = 'Let me see. cancelled None. "Which one?" was cancelled.'
    said = ["Let me see. answered {'ok': True}. ", declined, cancelled, declined]
    assert [text(result) for result in results(mcp.first, CALL)[4:8]] == said
    forms = asked(mcp.first, "elicitation/create")
    assert all(form["message"].endswith("Which one?") for form in forms)
    assert [form["message"] == "Which one?" for form in forms] == [True] * 4 + [False] * 2


def test_an_mcp_client_cancels_a_call_and_its_session_goes_on(mcp: Story) -> None:
    assert mcp.held is RunStatus.CANCELLED
    assert results(mcp.first, RUN)[0]["output"] == {"message": "raw "}
