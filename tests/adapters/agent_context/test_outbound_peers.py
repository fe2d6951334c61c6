"""Plain MCP servers made with the real SDKs (1.30.0 and 2.3.0) behind an engine, over every transport they have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import msgspec
import pytest
from msgspec import Raw

from gateway.contract import next_batch
from gateway.core import events as e
from gateway.core.types import Answer, JsonObject, Outcome, RunStatus
from tests.adapters.agent_context.outbound_house import House, house, output
from tests.support.forking import standing_in
from tests.support.peers import PEERS, peer_python
from tests.support.processes import free_port, port_answers, start

HERE = (
    *("mcp-1 stdio", "mcp-1/mcp", "mcp-1/json", "mcp-1/stateless", "mcp-1/sse", "mcp-1/ws"),
    *("mcp-2 modern", "mcp-2/mcp", "mcp-2/modern"),
)
CANNOT_ASK = ("mcp-1/json", "mcp-1/stateless")
"""Servers whose SDK has no way to be answered there."""


def command(version: str, *args: str) -> list[str]:
    return [str(peer_python(f"mcp-{version}")), "-P", str(PEERS / f"mcp_server_{version}.py"), *args]


@pytest.fixture(scope="module")
def there() -> Iterator[Mapping[str, JsonObject]]:
    """Targets by name; the servers run as long as this module's tests."""
    ports = {version: free_port() for version in "12"}
    with ExitStack() as stack:
        running = {
            version: stack.enter_context(start(command(version, str(port)), port=port, ready=lambda: True))
            for version, port in ports.items()
        }
        for version, process in running.items():
            process.wait_until(port_answers(ports[version]))
        targets: dict[str, JsonObject] = {}
        for name in HERE:
            version, path = name[4], name[5:]
            if path.startswith(" "):
                targets[name] = {"command": standing_in(command(version, path.strip()))}
            else:
                url = running[version].url + path
                targets[name] = {"url": url.replace("http", "ws") if path == "/ws" else url}
        yield targets


@pytest.mark.parametrize("name", HERE)
async def test_the_tools_of_a_plain_server_are_agents(there: Mapping[str, JsonObject], name: str) -> None:
    async with house(**there[name]) as it:
        await runs(it, name)
        if name not in CANNOT_ASK:
            await asks(it)
        await gives_structure_and_files(it, name)
        await fails(it)
        await is_cancelled(it)
        assert it.outbound.reachable


async def runs(it: House, name: str) -> None:
    done = await it.go("count", {"upto": 3})
    assert (done.status, output(done)) == (RunStatus.SUCCESS, {"message": "3"})
    told = [event.data["message"] for event in await it.events(done, e.Custom)]
    assert told == ([] if name == "mcp-1/json" else ["1", "2", "3"])


async def asks(it: House) -> None:
    answers = ((Answer(value={"sure": True}), "accept"), (Answer(outcome=Outcome.DECLINED), "decline"))
    for answer, action in answers:
        asking = await it.go("ask", {"about": "this"})
        assert asking.status is RunStatus.INTERRUPTED and asking.interrupts[0].message == "this"
        await it.engine.runs.answer(asking.id, answer)
        done = await it.stopped(asking)
        assert done.status is RunStatus.SUCCESS, done.failure
        assert json.loads(output(done)["message"])["action"] == action


async def gives_structure_and_files(it: House, name: str) -> None:
    done = await it.go("sum", {"numbers": [1, 2, 39]})
    assert (done.status, output(done)) == (RunStatus.SUCCESS, {"sum": 42})
    if name.startswith("mcp-1"):
        (image,) = await it.engine.files.list(run=done.id)
        assert (image.name, image.media_type, image.size) == ("image-2", "image/png", 4)
        links = [each for each in await it.events(done, e.PartStarted) if each.kind == "file"]
        assert [each.value["uri"] for each in links] == ["http://example.org/sum"]


async def fails(it: House) -> None:
    done = await it.go("fail", {})
    assert done.status is RunStatus.ERROR and done.failure is not None
    assert (done.failure.code, done.failure.message) == ("agent_failed", "it does not work")


async def is_cancelled(it: House) -> None:
    begun = await it.start("slow", {})
    async with it.engine.runs.watch(begun.id) as watch:
        await next_batch(watch, 10)
    await it.engine.runs.cancel(begun.id, reason="enough")
    done = await it.stopped(begun)
    assert (done.status, done.cancel_reason) == (RunStatus.CANCELLED, "enough")


class Samples:
    """A client of the same protocol that offers sampling."""

    protocol = "agent_context"
    tools = None

    def __init__(self) -> None:
        self.capabilities: JsonObject = {"sampling": {}}

    async def ask(self, method: str, params: Raw) -> Raw:
        text = msgspec.json.decode(params)["messages"][0]["content"]["text"]
        content = {"type": "text", "text": f"{method}: {text}"}
        return Raw(msgspec.json.encode({"role": "assistant", "content": content, "model": "m"}))

    def tell(self, method: str, params: Raw) -> None: ...


async def test_what_a_tool_samples_comes_from_the_run_s_client(there: Mapping[str, JsonObject]) -> None:
    async with house(**there["mcp-1/mcp"]) as it:
        done = await it.go("sample", {"about": "x"}, caller=Samples(), protocol="agent_context")
        assert output(done) == {"message": "sampling/createMessage: x"}
        refused = await it.go("sample", {"about": "x"})
        assert refused.status is RunStatus.ERROR
