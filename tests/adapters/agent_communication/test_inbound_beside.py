"""What is told beside the output, what goes along with a run, and what an agent of the same protocol may ask."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Failure, Interrupt
from gateway.mcp.versions import V2026_07_28
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_communication.inbound_rig import PROGRESS, Refused, native, rig, says, scripted
from tests.support.scripted import echo

RUN: dict[str, Any] = {"name": "scripted", "input": {"message": "one two three"}}


# --- what is told beside -----------------------------------------------------------------------------------------

THINKS = says(
    e.MessageStarted(message="m"),
    e.PartStarted(part="t", message="m", kind="thought"),
    e.PartDelta(part="t", delta="hm"),
    e.ToolCallStarted(call="c", name="look", input={"at": 1}),
    e.ToolCallEnded(call="c", output="seen"),
    e.PartDelta(part="answer", delta="done"),
    e.RunFinished(),
)


@pytest.mark.parametrize(
    ("level", "told"),
    [
        (None, []),
        ("debug", ["part_delta", "tool_call_started", "tool_call_ended"]),
        ("info", ["tool_call_started", "tool_call_ended"]),
        ("warning", []),
    ],
)
@pytest.mark.parametrize("meta", [{}, {"progressToken": "t"}])
async def test_thoughts_and_tool_calls_are_told_from_the_level_on_that_the_client_wants(
    level: str | None, told: list[str], meta: dict[str, Any]
) -> None:
    async with rig(scripted(THINKS)) as made:
        call = made.make("agents/run", {**RUN, "_meta": meta}, made.session(level=level))
        result = await made.serve(call)
        assert result["output"] == {"message": "done"}
        messages = call.params_of("notifications/message")
        assert [message["data"]["event"]["event"] for message in messages] == told
        assert all(message["logger"] == "scripted" for message in messages)


async def test_what_no_output_says_is_told_beside_the_deltas() -> None:
    async with rig(scripted(THINKS)) as made:
        call = made.make("agents/run", {**RUN, "_meta": {"progressToken": "t"}})
        assert (await made.serve(call))["output"] == call.folded == {"message": "done"}
        beside = [
            params["_meta"]["interlingua/event"]["event"] for params in call.params_of(PROGRESS) if params.get("_meta")
        ]
        assert "tool_call_started" in beside and "part_delta" in beside


async def test_metadata_and_the_trace_go_with_the_run_and_the_protocols_own_keys_do_not() -> None:
    async with rig(scripted(echo)) as made:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        meta = {
            "progressToken": 1,
            "traceparent": trace,
            "tracestate": "v=1",
            "baggage": "a=b",
            "team": "mail",
            "interlingua/x": 1,
            "io.modelcontextprotocol/clientInfo": {"name": "c"},
        }
        await made.run(meta=meta)
        request = (await made.newest()).request
        assert request.metadata == {"team": "mail"}
        assert request.traceparent is not None and request.traceparent[3:35] == trace[3:35]
        with pytest.raises(Refused, match="it must be an object") as refused:
            await made.run(meta={"interlingua/config": 5})
        assert refused.value.code == -32602


# --- agents of the same protocol ---------------------------------------------------------------------------------


async def test_an_agent_of_the_same_protocol_may_ask_its_client_for_what_that_declared() -> None:
    heard: list[Any] = []

    async def script(context: RunContext) -> None:
        caller = context.caller
        assert caller is not None and caller.protocol == "agent_communication"
        said = await caller.ask("sampling/createMessage", msgspec.Raw(b'{"messages":[]}'))
        heard.append(msgspec.json.decode(said))
        for method in ("roots/list", "elicitation/create", "acme/x"):
            try:
                await caller.ask(method, msgspec.Raw(b"{}"))
            except RpcError as error:
                heard.append(error.error.code)
        caller.tell("notifications/message", msgspec.Raw(b'{"level":"debug","data":1}'))
        caller.tell("notifications/message", msgspec.Raw(b'{"level":"error","data":2}'))
        context.emit(e.RunFinished(output=msgspec.Raw(b'{"text":"done"}')))

    async with rig(native(script)) as made:
        session = made.session(capabilities={"sampling": {}}, level="warning")
        call = made.make("agents/run", {"name": "scripted", "input": {"prompt": "hi"}}, session)

        async def answers(method: str, params: Any) -> Any:
            return {"model": "m", "role": "assistant", "content": {"type": "text", "text": "hello"}}

        call.answers = answers
        assert (await made.serve(call))["output"] == {"text": "done"}
        assert heard[0]["model"] == "m"
        assert heard[1:] == [-32601, -32601, -32601]
        assert call.asked == [("sampling/createMessage", {"messages": []})]
        assert [params["data"] for params in call.params_of("notifications/message")] == [2]


async def test_a_run_that_waited_may_ask_the_client_that_came_back_with_the_answer() -> None:
    heard: list[Any] = []

    async def script(context: RunContext) -> None:
        await context.ask(Interrupt(id="q1", kind="input", message="Well?", answer_schema={"type": "object"}))
        assert context.caller is not None
        heard.append(msgspec.json.decode(await context.caller.ask("roots/list", msgspec.Raw(b"{}"))))
        context.emit(e.RunFinished(output=msgspec.Raw(b'{"text":"done"}')))

    async with rig(native(script)) as made:
        with pytest.raises(Refused) as refused:
            await made.call("agents/run", made.session(), name="scripted", input={"prompt": "hi"})
        meta = {"interlingua/resume": refused.value.data["resume"]}
        params = {"name": "scripted", "input": {}, "_meta": meta}
        call = made.make("agents/run", params, made.session(capabilities={"roots": {}}))

        async def answers(method: str, params: Any) -> Any:
            return {"roots": []}

        call.answers = answers
        assert (await made.serve(call))["output"] == {"text": "done"}
        assert heard == [{"roots": []}]


async def test_what_an_agent_of_the_same_protocol_notifies_comes_between_its_deltas_in_its_own_words() -> None:
    def notified(method: str, params: Any) -> e.Custom:
        return e.Custom(name="agent_communication", data={"notification": method, "params": params})

    script = says(
        e.MessageStarted(message="m"),
        e.PartStarted(part="p", message="m", kind="data", value={"text": "one"}),
        notified("notifications/progress", {"progress": 1}),
        notified("notifications/message", {"level": "debug", "data": "unheard"}),
        notified("notifications/message", {"level": "warning", "data": "heard"}),
        e.PartDelta(part="p", delta={"text": " two"}),
        notified("notifications/acme", {"x": 1}),
        e.RunFinished(output=msgspec.Raw(b'{"text":"one two"}'), origin={"acme": 1, "_meta": {"k": "v"}}),
    )

    async with rig(native(script)) as made:
        asked = {"name": "scripted", "input": {"prompt": "hi"}}
        call = made.make("agents/run", {**asked, "_meta": {"progressToken": 7}}, made.session(level="info"))
        result = await made.serve(call)
        assert (result["output"], result["acme"], result["_meta"]["k"]) == ({"text": "one two"}, 1, "v")
        assert [each["method"].removeprefix("notifications/") for each in call.said] == [
            "agents/run/progress",
            "progress",
            "message",
            "agents/run/progress",
            "acme",
        ]
        assert call.params_of("notifications/progress") == [{"progress": 1, "progressToken": 7}]
        assert call.folded == {"text": "one two"}
        silent = made.make("agents/run", asked, made.session(level="info"))
        assert (await made.serve(silent))["acme"] == 1
        assert [each["method"] for each in silent.said] == ["notifications/message"]


async def test_an_agent_of_the_same_protocol_fails_in_its_own_words() -> None:
    failure = Failure(code="agent_failed", message="no paper")
    said = {"error": {"code": -32077, "message": "no paper", "data": {"tray": 2}}}
    script = says(e.PartDelta(part="text", delta={"text": "so"}), e.RunFailed(failure=failure, origin=said))

    async with rig(native(script)) as made:
        with pytest.raises(Refused) as refused:
            await made.call("agents/run", name="scripted", input={"prompt": "hi"})
        assert (refused.value.code, refused.value.message, refused.value.data["tray"]) == (-32077, "no paper", 2)
        assert refused.value.data["output"] == {"text": "so"}


async def test_a_client_that_takes_no_requests_is_no_caller() -> None:
    seen: list[Any] = []

    async def script(context: RunContext) -> None:
        seen.append(context.caller)
        context.emit(e.RunFinished(output=msgspec.Raw(b"{}")))

    async with rig(native(script)) as made:
        session = made.session(V2026_07_28, capabilities={"sampling": {}})
        await made.call("agents/run", session, name="scripted", input={"prompt": "hi"})
        assert seen == [None]


async def test_the_request_is_kept_as_it_was_for_an_agent_of_the_same_protocol() -> None:
    script = says(e.RunFinished(output=msgspec.Raw(b'{"text":"done"}')))
    async with rig(native(script)) as made:
        params: dict[str, Any] = {
            "name": "scripted",
            "input": {"prompt": "hi"},
            "acme": {"x": [1]},
            "_meta": {"k": "v"},
        }
        await made.call("agents/run", **params)
        assert (await made.newest()).request.creation == params
