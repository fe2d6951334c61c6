"""The real SDKs: the `agent-protocol` 1.0.2 server called, the `agent-protocol-client` 1.1.0 served."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapters.agent_protocol.options import AgentProtocolTarget
from adapters.agent_protocol.outbound import AgentProtocolOutbound
from gateway.core import events as e
from gateway.core.errors import AgentFailed
from gateway.core.types import Artifact
from tests.adapters.agent_protocol.support import AGENT, app, check
from tests.adapters.agent_protocol.test_inbound_questions import CHOICES, asker
from tests.adapters.agent_protocol.test_outbound import plans, texts
from tests.support import peers
from tests.support.aio import run
from tests.support.context import FakeContext, context
from tests.support.processes import Process
from tests.support.scripted import Scripted, engine, route
from tests.support.serving import serving


@contextlib.asynccontextmanager
async def calling(server: Process, **options: Any) -> AsyncIterator[AgentProtocolOutbound]:
    """The outbound half over the real server."""
    outbound = AgentProtocolOutbound(AgentProtocolTarget(protocol="agent_protocol", url=server.url, **options))
    try:
        yield outbound
    finally:
        await outbound.aclose()


def _run(server: Process, made: FakeContext, **options: Any) -> FakeContext:
    async def scene() -> None:
        async with calling(server, **options) as outbound:
            await outbound.describe()
            await outbound.run(made)

    run(scene())
    return made


def test_a_real_agent_is_driven_to_its_last_step(agent_protocol_server: Process) -> None:
    made = _run(agent_protocol_server, context(AGENT, "write a haiku"))
    assert texts(made) == [f"step {n} of 3: write a haiku" for n in (1, 2, 3)]
    assert [(a.name, data) for a, data in made.artifacts] == [("output.txt", b"write a haiku")]
    assert plans(made)[0] == [("Step 1", "pending")]
    assert plans(made)[-1] == [("Step 1", "completed"), ("Step 2", "completed"), ("Step 3", "completed")]
    assert isinstance(made.end, e.RunFinished)
    assert not made.losses


def test_a_real_agent_is_answered_step_by_step(agent_protocol_server: Process) -> None:
    made = _run(agent_protocol_server, context(AGENT, "ask me", answers=[{"input": "blue"}]), drive="one")
    assert texts(made) == ["Which colour?", "You said: blue"]
    assert made.asked[0].message == "Which colour?"
    assert made.asked[0].payload["next"] == "Step 2"
    assert isinstance(made.end, e.RunFinished)


@pytest.mark.parametrize(("words", "said"), [("fail", 0), ("fail 2", 1)])
def test_a_real_agent_that_fails_is_a_failed_run(agent_protocol_server: Process, words: str, said: int) -> None:
    made = context(AGENT, words)
    with pytest.raises(AgentFailed, match="500 to a step: Internal Server Error"):
        _run(agent_protocol_server, made)
    assert len(texts(made)) == said


def test_a_real_agent_that_refuses_the_task_is_a_failed_run(agent_protocol_server: Process) -> None:
    with pytest.raises(AgentFailed, match="500 to the task"):
        _run(agent_protocol_server, context(AGENT, "refuse"))


def test_a_real_agent_gets_the_clients_files_and_does_not_give_them_back(agent_protocol_server: Process) -> None:
    made = context(AGENT, "one step", thread="th")
    made.uploaded = [(Artifact(id="u", name="in put.txt", relative_path="a/b", agent_created=False), b"content")]
    _run(agent_protocol_server, made)
    assert [a.name for a, _ in made.artifacts] == ["output.txt"]
    assert made.upstream_thread is not None
    assert list(made.upstream_thread["uploaded"]) == ["u"]


@contextlib.asynccontextmanager
async def served(script: Any) -> AsyncIterator[str]:
    """The inbound half on a real port; its address without `/ap/v1`."""
    async with engine((route("writer"), Scripted(script, agent=AGENT))) as gateway, serving(app(gateway)) as url:
        yield f"{url}/agent-protocol/writer"


async def _client(command: str, url: str, *args: str) -> list[dict[str, Any]]:
    return await asyncio.to_thread(peers.agent_protocol_client, command, url, *args)


async def painter(context: Any) -> None:
    """Says what it was told, and makes a file."""
    await context.add_artifact("out.txt", b"made")
    context.emit(e.PartDelta(part="p", delta=f"painted: {context.run.request.input['message']}"), e.RunFinished())
    await context.drain()


async def test_the_real_client_gets_through_all_its_operations() -> None:
    async with served(painter) as url:
        said = await _client("all", url, "--input", "a haiku", "--additional-input", '{"k": 1}')
        errors = {line["op"]: line["error"]["status"] for line in said if "error" in line}
        assert len(errors) == 6
        assert all(op.endswith("(unknown)") and status == 404 for op, status in errors.items())
        by_op = {line["op"]: line["result"] for line in said if "result" in line}
        for op, schema in (("get_agent_task", "Task"), ("get_agent_task_step", "Step")):
            check({key: value for key, value in by_op[op].items() if value is not None}, schema)
        assert by_op["get_agent_task"]["additional_input"] == {"k": 1}
        assert by_op["execute_agent_task_step"]["output"] == "painted: a haiku"
        assert by_op["upload_agent_task_artifacts"]["relative_path"] == "sub/dir"
        assert [a["agent_created"] for a in by_op["list_agent_task_artifacts"]["artifacts"]] == [True, False]
        downloads = [line["result"] for line in said if line["op"] == "download_agent_task_artifact"]
        assert downloads == ["made", "uploaded"]


async def test_the_real_client_answers_a_question_with_its_next_step() -> None:
    async with served(asker) as url:
        steps = [
            line["result"]
            for line in await _client("steps", url, "--step-input", "go", "--step-input", "red")
            if line["op"] == "execute_agent_task_step"
        ]
        assert [step["output"] for step in steps] == [f"Let me ask.\n\nWhich colour?\n\n{CHOICES}", "Painted it red."]
        assert [step["is_last"] for step in steps] == [False, True]
