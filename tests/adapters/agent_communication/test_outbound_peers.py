"""Agents of the real SDKs behind an engine, over every transport that they have."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from adapters.agent_communication.wire import PROTOCOL
from gateway.core.types import Answer, JsonObject, Outcome, RunStatus
from tests.adapters.agent_communication.outbound_house import PATIENCE, house, output
from tests.adapters.agent_communication.test_outbound_asks import FakeCaller
from tests.support.agent_communication import agents_command, agents_server, mcp_agents_server
from tests.support.processes import Process, free_port

SAID = "hello big world"
HERE = ("py-stdio", "py-sse", "py-ws", "ts-stdio", "ts-sse", "mcp-1", "mcp-2")


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, JsonObject]]:
    """Targets by name; the servers run as long as this module's tests. What they tell is in the file `told`."""
    told = tmp_path_factory.mktemp("peers")
    files = {name: str(told / name) for name in HERE}
    starting = {
        "py": agents_server("py", "--told", files["py-sse"]),
        "ts": agents_server("ts", "--told", files["ts-sse"]),
        "1": mcp_agents_server("1", "--told", files["mcp-1"]),
        "2": mcp_agents_server("2", "--told", files["mcp-2"]),
    }
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        served = dict(zip(starting, pool.map(stack.enter_context, starting.values()), strict=True))
        files["py-ws"] = files["py-sse"]
        targets: dict[str, JsonObject] = {
            "py-stdio": {"command": agents_command("py", "--told", files["py-stdio"])},
            "py-sse": {"url": f"{served['py'].url}/sse"},
            "py-ws": {"url": f"{served['py'].url.replace('http', 'ws')}/ws"},
            "ts-stdio": {"command": agents_command("ts", "--told", files["ts-stdio"])},
            "ts-sse": {"url": f"{served['ts'].url}/sse"},
            "mcp-1": {"url": f"{served['1'].url}/mcp"},
            "mcp-2": {"url": f"{served['2'].url}/mcp"},
        }
        yield {name: {"target": target, "told": Path(files[name])} for name, target in targets.items()}


async def told(file: Path, text: str) -> None:
    """Wait until a server has told something."""
    async with asyncio.timeout(PATIENCE):
        while not (file.exists() and text in file.read_text()):  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", HERE)
async def test_what_an_agent_says_arrives_word_by_word_and_its_result_is_the_output(name: str, there: Any) -> None:
    async with house(agent="stream", **there[name]["target"]) as it:
        agent = await it.outbound.describe()
        assert agent.extra[PROTOCOL]["provider"] == "https://example.com/rig"
        ended = await it.go()
        assert ended.status is RunStatus.SUCCESS, ended.failure
        assert output(ended)["text"] == f"{SAID} "
        seen = [each["text"] for each in await it.snapshots(ended)]
        assert seen == ["hello ", "hello big ", "hello big world "]
        assert not ended.losses


@pytest.mark.parametrize("name", HERE[1:])
async def test_an_agent_that_is_cancelled_is_told(name: str, there: Any) -> None:
    async with house(agent="slow", **there[name]["target"]) as it:
        going = await it.start()
        await it.said_something(going)
        ended = await it.engine.runs.cancel(going.id, reason="enough", wait=True)
        assert ended.status is RunStatus.CANCELLED
        assert output(ended)["text"].startswith("0 ")
        assert not ended.losses
        await told(there[name]["told"], "slow cancelled")
        again = await it.start()
        await it.said_something(again)
        await it.engine.runs.cancel(again.id, wait=True)


@pytest.mark.parametrize(("name", "code"), [("py-sse", 0), ("ts-stdio", -32603), ("mcp-1", -32050), ("mcp-2", -32050)])
async def test_a_failure_keeps_the_agents_words_and_what_it_had_said(name: str, code: int, there: Any) -> None:
    async with house(agent="fail", **there[name]["target"]) as it:
        ended = await it.go()
        assert ended.status is RunStatus.ERROR and ended.failure is not None
        assert ended.failure.code == "agent_failed" and "boom" in ended.failure.message
        assert output(ended)["text"] == "so far "
        (_, last) = (await it.engine.runs.events(ended.id))[-1]
        assert last.origin is not None and last.origin["error"]["code"] == code


@pytest.mark.parametrize(
    ("agent", "input", "seen"),
    [
        ("count", {"upto": 3}, [{"total": 1, "half": 0.5}, {"total": 2, "half": 1.0}, {"total": 3, "half": 1.5}]),
        ("defaults", {"prompt": "a b"}, [{"text": "a "}, {"text": "a b "}]),
    ],
)
async def test_folded_deltas_of_the_python_sdk_are_never_wrong(
    agent: str, input: Any, seen: list[Any], there: Any
) -> None:
    async with house(agent=agent, **there["py-ws"]["target"]) as it:
        ended = await it.go(input)
        assert ended.status is RunStatus.SUCCESS, ended.failure
        found = await it.snapshots(ended)
        assert [{key: each[key] for key in wanted} for wanted, each in zip(seen, found, strict=False)] == seen
        assert found[-1] == output(ended)


async def test_a_program_that_dies_leaves_what_was_said_and_is_started_again(there: Any) -> None:
    async with house(agent="die", **there["py-stdio"]["target"]) as it:
        for _ in range(2):
            ended = await it.go()
            assert ended.status is RunStatus.ERROR and ended.failure is not None
            assert ended.failure.code == "agent_gone", ended.failure
            assert output(ended)["text"] == "bye "


@pytest.mark.parametrize("kind", ["sse", "streamable"])
async def test_a_server_that_is_killed_leaves_what_was_said_and_is_found_when_it_is_back(kind: str) -> None:
    port = free_port()

    def serve() -> contextlib.AbstractContextManager[Process]:
        return agents_server("ts", port=port) if kind == "sse" else mcp_agents_server("1", port=port)

    path = "sse" if kind == "sse" else "mcp"
    async with house(agent="slow", url=f"http://127.0.0.1:{port}/{path}", start_timeout=30) as it:
        with serve() as server:
            going = await it.start()
            await it.said_something(going)
            server.kill9()
            ended = await it.stopped(going)
        assert ended.status is RunStatus.ERROR and ended.failure is not None
        assert ended.failure.code == "agent_gone", ended.failure
        assert output(ended)["text"].startswith("0 ")
        with serve():
            again = await it.start()
            await it.said_something(again)
            assert (await it.engine.runs.cancel(again.id, wait=True)).status is RunStatus.CANCELLED


# --- what agents ask -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mcp-1", "mcp-2"])
async def test_an_agents_form_is_a_question_of_the_run(name: str, there: Any) -> None:
    async with house(agent="elicit", **there[name]["target"]) as it:
        asking = await it.go()
        assert asking.status is RunStatus.INTERRUPTED, asking.failure
        [interrupt] = asking.interrupts
        assert interrupt.message == "Who are you?"
        assert interrupt.answer_schema["properties"]["age"]["type"] == "integer"
        await it.engine.runs.answer(asking.id, Answer(value={"name": "Ada", "age": 36}))
        ended = await it.stopped(asking)
        assert json.loads(output(ended)["text"]) == {"action": "accept", "content": {"name": "Ada", "age": 36}}
        asking = await it.go()
        await it.engine.runs.answer(asking.id, Answer(outcome=Outcome.DECLINED))
        assert json.loads(output(await it.stopped(asking))["text"])["action"] == "decline"


@pytest.mark.parametrize("name", ["mcp-1", "mcp-2"])
async def test_a_cancel_while_the_agent_asks_ends_the_run(name: str, there: Any) -> None:
    async with house(agent="elicit", **there[name]["target"]) as it:
        asking = await it.go()
        assert asking.status is RunStatus.INTERRUPTED, asking.failure
        ended = await it.engine.runs.cancel(asking.id, wait=True)
        assert ended.status is RunStatus.CANCELLED
        assert output(ended)["text"] == "asking "
        assert (await it.go()).status is RunStatus.INTERRUPTED  # and the session can be used again


@pytest.mark.parametrize("name", ["py-ws", "ts-sse"])
async def test_a_client_of_the_same_protocol_is_asked_for_what_only_it_has(name: str, there: Any) -> None:
    sampled = {"role": "assistant", "content": {"type": "text", "text": "indeed"}, "model": "m"}
    roots = {"roots": [{"uri": "file:///x"}]}

    caller = FakeCaller({"roots": {}, "sampling": {}}, {"sampling/createMessage": sampled, "roots/list": roots})
    async with house(agent="ask", **there[name]["target"]) as it:
        ended = await it.go(caller=caller, protocol=PROTOCOL)
        found = json.loads(output(ended)["text"])
        assert found["sampling"]["content"]["text"] == "indeed"
        assert found["roots"]["roots"][0]["uri"] == "file:///x"
        assert [method for method, _ in caller.asked] == ["sampling/createMessage", "roots/list"]
        alone = await it.go()
        refused = json.loads(output(alone)["text"])
        assert "Method not found" in refused["sampling"] and "Method not found" in refused["roots"]


# --- who is there ----------------------------------------------------------------------------------------------------


async def test_every_agent_there_is_a_route_and_a_changed_list_is_told(there: Any) -> None:
    async with house(agents="*", **there["ts-stdio"]["target"]) as it:
        assert "stream" in it.engine.agents.names("test")
        changed = asyncio.Event()
        it.outbound.on_change(changed.set)
        made = await it.outbound.discover()
        async with it.outbound._server.lease() as session:
            await session.call("agents/create", {"templateName": "maker", "config": {"greeting": "hi"}})
            await asyncio.wait_for(changed.wait(), PATIENCE)
        assert (await it.outbound.discover()).keys() - made.keys() == {"made-1"}
        ended = await it.go(agent="stream")
        assert output(ended)["text"] == f"{SAID} "


@pytest.mark.parametrize("name", ["ts-stdio", "ts-sse"])
async def test_a_template_makes_an_agent_for_each_configuration(name: str, there: Any) -> None:
    async with house(template="maker", **there[name]["target"]) as it:
        agent = await it.engine.agents.get("it", "test")
        assert agent.config_schema["required"] == ["greeting"]
        for greeting in ("hi", "hi", "ho"):
            ended = await it.go({"prompt": "you"}, config={"greeting": greeting})
            assert output(ended)["text"] == f"{greeting} you", ended.failure
    await told(there[name]["told"], "made-1 destroyed")
    await told(there[name]["told"], "made-2 destroyed")


async def test_a_server_that_cannot_create_agents_says_so(there: Any) -> None:
    async with house(template="maker", **there["py-sse"]["target"]) as it:
        ended = await it.go(config={"greeting": "hi"})
        assert ended.failure is not None and ended.failure.code == "agent_failed"
        assert "cannot make an agent of any template: its SDK has a defect" in ended.failure.message


async def test_an_agent_that_is_not_there_is_named_with_those_that_are(there: Any) -> None:
    async with house(agent="nobody", **there["mcp-2"]["target"]) as it:
        with pytest.raises(Exception, match=r"no agent nobody; there are: big, echo, elicit"):
            await it.outbound.describe()
