"""A gateway behind a gateway: the agents of one are agents of the other, and lose nothing on the way."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Answer, Outcome, RunStatus
from tests.adapters.agent_context.inbound_rig import Rig, rig
from tests.adapters.agent_context.outbound_house import House, house, output
from tests.adapters.agent_context.outbound_rig import RECORD
from tests.support.scripted import AGENT, Scripted, route


async def busy(context: RunContext) -> None:
    """Thinks, uses a tool, reports, says something, makes a file."""
    context.emit(
        e.PartStarted(part="t", message="m", kind="thought"),
        e.PartDelta(part="t", delta="hm"),
        e.ToolCallStarted(call="c", name="grep", title="looks"),
        e.ToolCallEnded(call="c", output="found"),
        e.PartDelta(part="text", delta="one "),
        e.PartDelta(part="text", delta="two"),
        e.UsageReported(input_tokens=3, output_tokens=5),
    )
    await context.drain()
    await context.add_artifact("notes.txt", b"hello", media_type="text/plain")
    context.emit(e.RunFinished())


def places(inner: Rig) -> dict[str, dict[str, Any]]:
    return {"http": {"url": inner.url}, "ws": {"url": inner.url.replace("http", "ws", 1) + "/ws"}}


@pytest.mark.parametrize("place", ["http", "ws"])
async def test_agents_of_another_gateway_are_found_and_run(place: str) -> None:
    async with rig() as inner, house(**places(inner)[place]) as outer:
        await streams(outer)
        await asks(outer)
        await fails(outer)
        await is_cancelled(inner, outer)
        assert output(await outer.go("strict", {"count": 2})) == {"count": 3}


async def streams(outer: House) -> None:
    done = await outer.go("echo", {"message": "a b c"})
    assert done.status is RunStatus.SUCCESS, done.failure
    text = output(done)["message"]
    deltas = [event.delta for event in await outer.events(done, e.PartDelta) if isinstance(event.delta, str)]
    assert "".join(deltas) == text
    assert not await outer.events(done, e.PartReplaced) and not await outer.events(done, e.Custom)


async def asks(outer: House) -> None:
    answers = (
        (Answer(value={"ok": True}), "answered {'ok': True}"),
        (Answer(outcome=Outcome.DECLINED), "declined None"),
    )
    for answer, said in answers:
        asking = await outer.go("asker", {"message": "x"})
        assert asking.status is RunStatus.INTERRUPTED, asking.failure
        (interrupt,) = asking.interrupts
        assert (interrupt.kind, interrupt.message) == ("input", "Is it?")
        assert interrupt.answer_schema["properties"] == {"ok": {"type": "boolean"}}
        await outer.engine.runs.answer(asking.id, answer)
        done = await outer.stopped(asking)
        assert output(done)["message"] == f"Let me see. {said}"


async def fails(outer: House) -> None:
    done = await outer.go("failer", {"message": "x"})
    assert done.status is RunStatus.ERROR and done.failure is not None
    assert (done.failure.code, done.failure.message) == ("agent_failed", "it failed on purpose")


async def is_cancelled(inner: Rig, outer: House) -> None:
    begun = await outer.start("held", {"message": "x"})
    await outer.until(begun, e.PartDelta)
    await outer.engine.runs.cancel(begun.id, reason="enough")
    assert (await outer.stopped(begun)).status is RunStatus.CANCELLED
    theirs = await inner.newest("held")
    ended = await inner.engine.runs.wait(theirs.id, timeout=30)
    assert ended is not None and ended.status is RunStatus.CANCELLED


async def test_what_is_no_text_comes_along_too() -> None:
    async with rig((route(), Scripted(busy))) as inner, house(url=inner.url) as outer:
        done = await outer.go("scripted", {"message": "x"})
        assert done.status is RunStatus.SUCCESS and output(done)["message"] == "one two"
        thought = [event.part for event in await outer.events(done, e.PartStarted) if event.kind == "thought"]
        assert [event.delta for event in await outer.events(done, e.PartDelta) if [event.part] == thought] == ["hm"]
        (tool,) = await outer.events(done, e.ToolCallStarted)
        assert (tool.name, tool.title) == ("grep", "looks")
        assert [event.output for event in await outer.events(done, e.ToolCallEnded)] == ["found"]
        assert [event.output_tokens for event in await outer.events(done, e.UsageReported)] == [5]
        files = [event.value for event in await outer.events(done, e.PartStarted) if event.kind == "file"]
        assert [file["name"] for file in files] == ["notes.txt"] and files[0]["uri"].startswith("http")


async def test_a_client_of_the_protocol_reaches_an_agent_through_two_gateways_verbatim() -> None:
    sent: list[Any] = []

    async def sees(context: RunContext) -> None:
        sent.append(context.run.request)
        context.emit(e.RunFinished(output=Raw(json.dumps({"message": "ok"}).encode())))

    native = Scripted(sees, agent=replace(AGENT, extra={"agent_context": RECORD}))
    async with rig((route(), native)) as inner, house(url=inner.url) as outer:
        payload = {"messages": [{"text": "x"}], "mine": {"deep": [1, None]}, "context": {"sessionId": "s-1"}}
        creation = {"target": "it", "content": {"type": "request", "payload": payload}, "_meta": {"own": 1}}
        done = await outer.go(
            "scripted",
            {"message": "x"},
            protocol="agent_context",
            creation=creation,
            attributes={"correlationId": "corr-77"},
        )
        assert done.status is RunStatus.SUCCESS, done.failure
        (request,) = sent
        assert request.creation["content"]["payload"] == payload
        assert request.creation["_meta"]["own"] == 1
        assert request.attributes["correlationId"] == "corr-77"


async def test_a_gateway_hears_of_an_agent_that_registers_at_the_other() -> None:
    record = {
        "id": "newcomer",
        "name": "New",
        "capabilities": {"tools": [], "models": [], "specializations": ["x"], "protocols": ["ACP-0.1"]},
    }

    async with rig() as inner, house(url=inner.url) as outer:
        changed = asyncio.Event()
        outer.outbound.on_change(changed.set)
        assert "newcomer" not in await outer.outbound.discover()
        async with inner.socket(hello={"agent": {"messages": True}}) as talker:
            await talker.ask("agent/register", agent=record)
            found = await outer.outbound.discover()
            async with asyncio.timeout(30):
                while "newcomer" not in found:
                    await changed.wait()
                    changed.clear()
                    found = await outer.outbound.discover()
            assert (await found["newcomer"].describe()).labels["specializations"] == ["x"]


async def test_a_task_that_gateways_hand_round_ends() -> None:
    """Each hop is one more than what the gateway before has said."""
    seen: list[int] = []

    async def sees(context: RunContext) -> None:
        seen.append(context.run.request.attributes["hops"])
        context.emit(e.RunFinished(output=Raw(b'{"message":"ok"}')))

    native = Scripted(sees, agent=replace(AGENT, extra={"agent_context": RECORD}))
    async with rig((route(), native)) as inner, house(url=inner.url, call="delegate") as outer:
        task = {"id": "t-1", "type": "x", "payload": {"messages": [{"text": "do"}]}}
        attributes = {"task": task, "hops": 3}
        done = await outer.go("scripted", {"message": "x"}, protocol="agent_context", attributes=attributes)
        assert done.status is RunStatus.SUCCESS and output(done) == {"message": "ok"}
        assert seen == [4]
        attributes = {"task": {**task, "id": "t-2"}, "hops": 8}
        done = await outer.go("scripted", {"message": "x"}, protocol="agent_context", attributes=attributes)
        assert done.status is RunStatus.ERROR and done.failure is not None and done.failure.code == "denied"
