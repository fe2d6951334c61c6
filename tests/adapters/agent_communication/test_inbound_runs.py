"""`agents/run`: with progress and without, failing, cancelled, refused; what is told beside it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentFailed
from gateway.core.types import Run, RunQuery, RunStatus
from gateway.mcp.wire import MESSAGE, META_LOG_LEVEL
from gateway.store.sqlite import disk_thread
from tests.adapters.agent_communication.inbound_rig import PROGRESS, Refused, native, rig, says, scripted
from tests.support.scripted import AGENT, echo, held, until

AS_NATIVE = replace(AGENT, extra={"agent_communication": {"name": "far"}})
"""The scripted agent, as one that speaks the protocol itself."""
RUN: dict[str, Any] = {"name": "scripted", "input": {"message": "one two three"}}


def with_token(token: Any = "t", **params: Any) -> dict[str, Any]:
    return {**RUN, **params, "_meta": {"progressToken": token}}


async def failing(context: RunContext) -> None:
    context.emit(e.PartDelta(part="text", delta="so far"))
    await context.drain()
    raise AgentFailed("it failed on purpose", detail="a secret")


async def test_a_run_without_a_token_is_answered_with_its_output_alone() -> None:
    async with rig(scripted(echo)) as made:
        call = made.make("agents/run", RUN)
        result = await made.serve(call)
        assert result["output"] == {"message": "one two three "}
        assert result["_meta"]["interlingua/run"] == (await made.newest()).id
        assert call.said == []


@pytest.mark.parametrize("token", ["t", "", 0, 7, -1, 1.5])
async def test_deltas_come_with_the_token_as_it_was_given_and_add_up_to_the_output(token: Any) -> None:
    async with rig(scripted(echo)) as made:
        call = made.make("agents/run", with_token(token))
        result = await made.serve(call)
        assert call.folded == result["output"] == {"message": "one two three "}
        tokens = [params["progressToken"] for params in call.params_of(PROGRESS)]
        assert tokens and all(each == token and type(each) is type(token) for each in tokens)


async def test_a_document_that_is_rewritten_has_the_right_result_and_no_delta_that_lies() -> None:
    script = says(
        e.MessageStarted(message="m"),
        e.PartStarted(part="p", message="m", kind="data", value={"message": "one", "sure": False}),
        e.PartReplaced(part="p", pointer="/sure", value=True),
        e.PartDelta(part="p", delta={"message": " two"}),
        e.RunFinished(),
    )

    async with rig(scripted(script)) as made:
        session = made.session(level="warning")
        call = made.make("agents/run", with_token(), session)
        result = await made.serve(call)
        assert result["output"] == {"message": "one two", "sure": True}
        assert call.folded == {"message": "one two", "sure": False}
        assert result["_meta"]["interlingua/lost"]["rewrite"] >= 1
        lost = [params for params in call.params_of("notifications/message") if params["level"] == "warning"]
        assert lost and "rewrite" in lost[0]["data"]["lost"]
        assert (await made.engine.runs.get(result["_meta"]["interlingua/run"])).status is RunStatus.SUCCESS


async def test_what_only_the_result_says_is_told_before_it() -> None:
    script = says(e.PartDelta(part="t", delta="one "), e.RunFinished(output=msgspec.Raw(b'{"message":"one two"}')))

    async with rig(scripted(script)) as made:
        call = made.make("agents/run", with_token())
        assert (await made.serve(call))["output"] == call.folded == {"message": "one two"}


async def test_a_reader_that_is_away_gets_what_it_missed_joined() -> None:
    words = [f"w{number} " for number in range(500)]

    said, done = asyncio.Event(), asyncio.Event()

    async def script(context: RunContext) -> None:
        for word in words:
            context.emit(e.PartDelta(part="text", delta=word))
            await context.drain()
            await asyncio.sleep(0)  # so that who reads on is told each
        said.set()
        await done.wait()
        context.emit(e.RunFinished())

    async with rig(scripted(script)) as made:
        call = made.make("agents/run", with_token())
        call.room.clear()
        serving = asyncio.create_task(made.serve(call))
        await said.wait()
        assert len(call.deltas) <= 2
        call.room.set()
        done.set()
        result = await serving
        assert call.folded == result["output"] == {"message": "".join(words)}
        assert len(call.deltas) <= 5


@pytest.mark.parametrize("token", [{}, {"progressToken": "t"}])
async def test_a_failed_run_is_an_error_that_carries_what_was_said(token: dict[str, Any]) -> None:
    async with rig(scripted(failing)) as made:
        with pytest.raises(Refused) as refused:
            await made.run(session=made.session(level="error"), meta=token)
        assert (refused.value.code, refused.value.message) == (-32603, "it failed on purpose")
        assert refused.value.data["output"] == {"message": "so far"}
        assert refused.value.data["run"] == (await made.newest()).id
        assert "secret" not in str(refused.value.data)


async def test_a_failure_is_told_as_an_error_to_who_listens() -> None:
    async with rig(scripted(failing)) as made:
        call = made.make("agents/run", RUN, made.session(level="error"))
        with pytest.raises(Refused):
            await made.serve(call)
        (told,) = call.params_of("notifications/message")
        assert told["level"] == "error"
        assert told["data"]["failure"]["message"] == "it failed on purpose"


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"name": "nobody", "input": {"message": "hi"}}, None),
        ({"input": {"message": "hi"}}, "/name"),
        ({"name": 7, "input": {}}, "/name"),
        ({"name": "scripted", "input": {}}, "/input"),
        ({"name": "scripted", "input": {"message": 7}}, "/input/message"),
        ({"name": "scripted", "input": "hi"}, "/input"),
        ({"name": "scripted"}, "/input"),
        ({"name": "scripted", "input": {"message": "hi"}, "config": 1}, "/config"),
    ],
)
async def test_params_that_do_not_fit_are_refused_with_their_place(params: dict[str, Any], path: str | None) -> None:
    async with rig(scripted(echo)) as made:
        with pytest.raises(Refused) as refused:
            await made.call("agents/run", **params)
        assert refused.value.code == -32602
        assert path is None or refused.value.data["path"] == path
        assert list(await made.engine.runs.list(RunQuery())) == []


async def test_a_configuration_that_does_not_fit_is_refused_with_its_place() -> None:
    schema = {"type": "object", "properties": {"tone": {"type": "string"}}}

    async with rig(scripted(echo, config_schema=schema)) as made:
        with pytest.raises(Refused) as refused:
            await made.run(config={"tone": 1})
        assert (refused.value.code, refused.value.data["path"]) == (-32602, "/config/tone")
        await made.run(config={"tone": "low"})
        assert (await made.newest()).request.config == {"tone": "low"}


async def test_a_token_is_taken_only_once_at_a_time() -> None:
    gate = asyncio.Event()
    async with rig(scripted(held(lambda: gate))) as made:
        session = made.session()
        first = made.make("agents/run", with_token(1), session)
        serving = asyncio.create_task(made.serve(first))
        await until(lambda: bool(first.deltas))
        with pytest.raises(Refused) as refused:
            await made.call("agents/run", session, **with_token(1))
        assert (refused.value.code, refused.value.data["path"]) == (-32602, "/_meta/progressToken")
        other = asyncio.create_task(made.call("agents/run", session, **with_token("1")))
        gate.set()
        assert (await serving)["output"] == (await other)["output"] == {"message": "before after"}
        assert (await made.call("agents/run", session, **with_token(1)))["output"] == {"message": "before after"}


# --- cancelling --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("meta", [{}, {"progressToken": "t"}])
async def test_a_call_that_is_taken_back_cancels_its_run(meta: dict[str, Any]) -> None:
    route, agent = scripted(held(asyncio.Event))
    async with rig((route, agent)) as made:
        serving = asyncio.create_task(made.run(meta=meta))
        started = await made.newest()
        await until(lambda: bool(agent.contexts))
        serving.cancel()
        await asyncio.wait([serving])
        assert serving.cancelled()
        await made.inbound.runs.settled()
        await until(lambda: agent.cancels == 1)
        agent.contexts[0].emit(e.RunFinished())
        assert (await made.engine.runs.get(started.id)).cancel_reason == "cancelled by the client"


@pytest.mark.parametrize("of_the_protocol", [False, True])
@pytest.mark.parametrize(
    ("meta", "told"),
    [({}, False), ({"progressToken": 1}, True), ({META_LOG_LEVEL: "info"}, True), ({META_LOG_LEVEL: "warning"}, False)],
    ids=str,
)
async def test_only_a_run_of_which_its_client_hears_on_the_way_waits_for_the_disk(
    meta: dict[str, Any], told: bool, of_the_protocol: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(native(echo, agent=AS_NATIVE) if of_the_protocol else scripted(echo)) as made:
        start, asked = made.engine.runs.start, []

        async def starting(*given: Any, **named: Any) -> Run:
            asked.append(named["told"])
            return await start(*given, **named)

        monkeypatch.setattr(made.engine.runs, "start", starting)
        await made.call("tools/call", name="scripted", arguments={"message": "hi"}, meta=meta)
        assert asked == [told]


async def test_what_an_agent_notifies_during_a_call_of_a_tool_reaches_the_client_when_its_run_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spun, go = threading.Event(), asyncio.Event()
    sync = disk_thread.sync
    monkeypatch.setattr(disk_thread, "sync", lambda descriptor: (spun.wait(30), sync(descriptor)))

    async def script(context: RunContext) -> None:
        for level in ("warning", "debug"):
            said = {"notification": MESSAGE, "params": {"level": level, "data": level}}
            context.emit(e.Custom(name="agent_communication", data=said))
        await go.wait()
        context.emit(e.PartDelta(part="text", delta="done"), e.RunFinished())

    agent = native(script, agent=AS_NATIVE)
    spun.set()
    async with rig(agent, file=tmp_path / "store.db") as made:
        spun.clear()
        params = {"name": "scripted", "arguments": {"message": "hi"}}
        call = made.make("tools/call", params, made.session(level="warning"))
        serving = asyncio.create_task(made.serve(call))
        await until(lambda: bool(agent[1].contexts))
        await asyncio.wait([serving], timeout=0.05)
        assert not call.said
        spun.set()
        await until(lambda: bool(call.said))
        assert not serving.done()
        go.set()
        assert (await serving)["structuredContent"] == {"message": "done"}
        assert call.params_of(MESSAGE) == [{"level": "warning", "data": "warning"}]


async def test_a_call_that_is_taken_back_before_its_run_has_started_starts_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig(scripted(held(asyncio.Event))) as made:
        start, entered, go_on = made.engine.runs.start, asyncio.Event(), asyncio.Event()

        async def starting(*given: Any, **named: Any) -> Run:
            entered.set()
            await go_on.wait()
            return await start(*given, **named)

        monkeypatch.setattr(made.engine.runs, "start", starting)
        serving = asyncio.create_task(made.run())
        await entered.wait()
        serving.cancel()
        go_on.set()
        await asyncio.wait([serving])
        await made.inbound.runs.settled()
        assert serving.cancelled()
        assert await made.engine.runs.list(RunQuery()) == []


async def test_a_call_that_ends_because_the_gateway_stops_leaves_its_run_alone() -> None:
    gate = asyncio.Event()
    async with rig(scripted(held(lambda: gate))) as made:
        serving = asyncio.create_task(made.run())
        started = await made.newest()
        made.engine.quiet()
        made.inbound.quiet()
        serving.cancel()
        await asyncio.wait([serving])
        await made.inbound.runs.settled()
        gate.set()
        ended = await made.engine.runs.wait(started.id)
        assert ended is not None and ended.status is RunStatus.SUCCESS


async def test_a_run_that_somebody_else_cancels_is_an_error_with_what_was_said() -> None:
    route, agent = scripted(held(asyncio.Event))
    async with rig((route, agent)) as made:
        call = made.make("agents/run", with_token())
        serving = asyncio.create_task(made.serve(call))
        await until(lambda: bool(call.deltas))
        agent.on_cancel = lambda: agent.contexts[0].emit(e.RunFinished())
        cancelling = asyncio.create_task(made.engine.runs.cancel((await made.newest()).id, wait=True))
        await until(lambda: agent.cancels == 1)
        made.engine.live[(await made.newest()).id].task.cancel()  # type: ignore[union-attr]
        await cancelling
        with pytest.raises(Refused) as refused:
            await serving
        assert refused.value.code == -32800
        assert refused.value.data["output"] == {"message": "before "}
