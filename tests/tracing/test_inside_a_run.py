"""Spans of what a run does: tool calls, approvals, callbacks, and asking the agent what it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway import tracing
from gateway.config import Telemetry
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import RunRequest, Webhook
from gateway.runs import webhooks
from tests.e2e.test_governed import AGENT, BOTH, documents
from tests.runs.test_webhooks import LOCAL, Receiver, delivering, receiving
from tests.support.agent_client import agent_client_agent_command, agent_client_client
from tests.support.aio import run
from tests.support.forking import standing_in
from tests.support.peers import peer_python
from tests.support.processes import Gateway
from tests.support.scripted import Scripted, engine, request, route, until
from tests.tracing.conftest import Received, attributes

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = f"00-{TRACE}-b7ad6b7169203331-01"


def on(receiver: Received) -> None:
    assert tracing.configure(Telemetry.model_validate({"otlp": receiver.url}))


def one_run(receiver: Received, agent: Callable[[RunContext], object], given: RunRequest | None = None) -> None:
    """A run of a scripted agent, to its end, and what it sent."""

    async def scene() -> None:
        async with engine((route(), Scripted(agent))) as gateway:  # type: ignore[arg-type]
            started = await gateway.runs.start(given or request(traceparent=CLIENT))
            await gateway.runs.wait(started.id)
            await until(lambda: not gateway.live)

    on(receiver)
    run(scene())
    tracing.shutdown()


def named(receiver: Received, prefix: str) -> list[Span]:
    return [span for span in receiver.spans if span.name.startswith(prefix)]


def test_each_tool_call_of_a_run_is_a_span_without_what_went_in_and_came_out(receiver: Received) -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="a", name="get_weather", kind="fetch", input={"city": "private"}))
        context.emit(e.ToolCallStarted(call="b", name="get_weather", kind="fetch"))
        context.emit(e.ToolCallUpdated(call="a", content="private"), e.ToolCallEnded(call="b", failed=True))
        context.emit(e.ToolCallEnded(call="a", output="private"))
        context.emit(e.RunFinished())

    one_run(receiver, agent)
    run_span = receiver.span("invoke_agent")
    first, second = sorted(named(receiver, "execute_tool"), key=lambda span: str(attributes(span)))
    assert first.name == second.name == "execute_tool get_weather"
    assert {first.parent_span_id, second.parent_span_id} == {run_span.span_id}
    assert attributes(first) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_weather",
        "gen_ai.tool.call.id": "a",
        "interlingua.tool.kind": "fetch",
    }
    assert first.status.code == Status.STATUS_CODE_UNSET
    assert second.status.code == Status.STATUS_CODE_ERROR and attributes(second)["error.type"] == "tool_error"
    assert first.end_time_unix_nano >= second.end_time_unix_nano
    assert not [span for span in receiver.spans if b"private" in span.SerializeToString()]


def test_a_call_that_has_a_title_or_an_id_for_a_name_is_no_tool_of_that_name(receiver: Received) -> None:
    async def agent(context: RunContext) -> None:
        for call, name in (("a", "Reading /home/ada/taxes.txt"), ("toolu_01", "toolu_01"), ("c", "x" * 70)):
            context.emit(e.ToolCallStarted(call=call, name=name), e.ToolCallEnded(call=call))
        context.emit(e.RunFinished())

    one_run(receiver, agent)
    assert [span.name for span in named(receiver, "execute_tool")] == ["execute_tool"] * 3
    assert b"taxes" not in b"".join(span.SerializeToString() for span in receiver.spans)


def test_tools_beyond_many_have_one_name(receiver: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    async def agent(context: RunContext) -> None:
        for number in range(4):
            context.emit(e.ToolCallStarted(call=f"call {number}", name=f"tool{number}"))
        context.emit(e.RunFinished())

    from gateway.tracing import otel

    monkeypatch.setattr(otel, "MOST_TOOLS", 2)
    one_run(receiver, agent)
    names = sorted(span.name for span in named(receiver, "execute_tool"))
    assert names == ["execute_tool", "execute_tool", "execute_tool tool0", "execute_tool tool1"]


def test_a_run_that_is_not_sampled_has_no_spans_of_tools(receiver: Received) -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="a", name="get_weather"), e.ToolCallEnded(call="a"), e.RunFinished())

    one_run(receiver, agent, request(traceparent=CLIENT.removesuffix("1") + "0"))
    assert not [span for span in receiver.spans if not span.name.startswith("describe_agent")]


def test_what_is_not_sampled_costs_nothing_of_the_sdk_and_is_passed_on_as_it_came(
    receiver: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gateway.tracing import otel

    given, sent = CLIENT.removesuffix("1") + "0", []

    async def agent(context: RunContext) -> None:
        sent.append(context.traceparent)
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with engine((route(), Scripted(agent))) as gateway:
            await gateway.agents.get("scripted", "any")
            monkeypatch.setattr(otel.Backend, "_start", lambda *_: pytest.fail("a span is made"))
            with tracing.inbound_span("door", "op", given) as span:
                span.answered(200)
                started = await gateway.runs.start(request(traceparent=given))
            await gateway.runs.wait(started.id)

    on(receiver)
    run(scene())
    assert sent == [given]


@pytest.mark.parametrize("sampler", ["always_on", "traceidratio"])
def test_a_sampler_that_asks_no_parent_records_what_was_not_sampled(
    receiver: Received, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    on(receiver)
    with tracing.inbound_span("door", "op", CLIENT.removesuffix("1") + "0"):
        pass
    tracing.shutdown()
    assert len(receiver.spans) == 1


def test_an_agent_is_asked_what_it_is_in_one_span_however_often_it_is_called(receiver: Received) -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with engine((route(), Scripted(agent))) as gateway:
            for _ in range(3):
                with tracing.inbound_span("door", "op", CLIENT):
                    started = await gateway.runs.start(request())
                await gateway.runs.wait(started.id)

    on(receiver)
    run(scene())
    tracing.shutdown()
    described = receiver.span("describe_agent")
    assert described.name == "describe_agent scripted" and described.kind == Span.SPAN_KIND_CLIENT
    said = attributes(described)
    assert said["gen_ai.agent.name"] == "scripted" and said["interlingua.target.protocol"] == "scripted"


def test_an_agent_that_does_not_answer_is_a_failed_span_of_the_request_that_asked(
    receiver: Received, tmp_path: Path
) -> None:
    routes = f"""
routes: [{{name: gone, target: {{protocol: agent_connect, url: "http://127.0.0.1:9", agent: echo}}}}]
telemetry: {{otlp: "{receiver.url}"}}
"""
    with Gateway(routes, tmp_path) as gateway:
        body = {"agent_id": "gone", "input": {"message": "hello"}}
        url = f"{gateway.url}/agent-connect/runs/wait"
        answer = httpx2.post(url, json=body, headers={"traceparent": CLIENT}, timeout=60)
        assert answer.status_code >= 500
        assert gateway.process.terminate(60) == 0
    described = named(receiver, "describe_agent gone")
    assert described and {span.status.code for span in described} == {Status.STATUS_CODE_ERROR}
    assert attributes(described[-1])["server.port"] == 9
    assert receiver.span("agent_connect ").span_id in {span.parent_span_id for span in described}


def test_each_attempt_of_a_callback_is_a_span_of_the_clients_trace(
    receiver: Received, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhooks, "FIRST_GAP_SECONDS", 0.01)
    heads: list[str] = []

    class Heard(Receiver):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            heads.append(next(x[13:] for x in head.decode().split("\r\n") if x.lower().startswith("traceparent: ")))
            again = asyncio.StreamReader()
            again.feed_data(head + await reader.readexactly(int(head.lower().split(b"content-length:")[1].split()[0])))
            await super().serve(again, writer)

    async def agent(context: RunContext) -> None:
        context.emit(e.RunFinished())

    async def scene() -> None:
        hook = Heard(503, 200, 404)
        async with receiving(hook) as url, engine((route(), Scripted(agent))) as gateway, delivering(gateway, LOCAL):
            for tries in (2, 3):
                owed = Webhook(url=f"{url}?key=private", protocol="test")
                await gateway.runs.start(request(traceparent=CLIENT, webhook=owed))
                await until(lambda tries=tries: hook.tried == tries)  # type: ignore[misc]
            await until(lambda: "not tried again" in caplog.text)

    on(receiver)
    run(scene())
    tracing.shutdown()
    attempts = sorted(named(receiver, "callback test"), key=lambda span: span.start_time_unix_nano)
    assert [span.kind for span in attempts] == [Span.SPAN_KIND_CLIENT] * 3
    assert {span.trace_id.hex() for span in attempts} == {TRACE}
    assert heads == [f"00-{TRACE}-{span.span_id.hex()}-01" for span in attempts]
    told = [attributes(span) for span in attempts]
    assert [said["interlingua.callback.attempt"] for said in told] == [1, 2, 1]
    assert [said["interlingua.callback.outcome"] for said in told] == ["again", "delivered", "dropped"]
    assert [said["http.response.status_code"] for said in told] == [503, 200, 404]
    assert [said.get("error.type") for said in told] == ["503", None, "404"]
    assert not [span for span in attempts if b"private" in span.SerializeToString()]


def test_what_a_person_is_asked_about_a_tool_is_a_span_with_the_outcome(receiver: Received, tmp_path: Path) -> None:
    bound = documents(tmp_path, "lower", BOTH, ["mail-draft"])
    command = standing_in([str(peer_python("agent-client-py")), str(AGENT)])
    target = {"protocol": "agent_client", "command": command}
    routes = {
        "routes": [{"name": "agent", "manifest": str(bound), "target": target}],
        "telemetry": {"otlp": receiver.url},
    }
    (room := tmp_path / "room").mkdir()
    steps = [
        *("--root", str(room), "--say", "want mail-draft", "--permission", "ok", "--say", "want smtp-send"),
        *("--permission", "no", "--say", "want smtp-send", "--permission", "allow", "--say", "sneak smtp-send"),
    ]
    with Gateway(json.dumps(routes), tmp_path) as gateway:
        agent_client_client("py", *steps, url=f"{gateway.url.replace('http', 'ws')}/agent-client/agent")
        assert gateway.process.terminate(60) == 0
    runs = sorted(named(receiver, "invoke_agent"), key=lambda span: span.start_time_unix_nano)
    asked = sorted(named(receiver, "approve_tool"), key=lambda span: span.start_time_unix_nano)
    assert [span.name for span in asked] == ["approve_tool smtp-send"] * 3
    assert [span.parent_span_id for span in asked] == [span.span_id for span in runs[1:]]
    outcomes = [attributes(span)["interlingua.approval.outcome"] for span in asked]
    assert outcomes == ["approved", "rejected", "approved"]
    assert all(attributes(span)["gen_ai.tool.name"] == "smtp-send" for span in asked)
    made = [span.name for span in named(receiver, "execute_tool")]
    assert sorted(made) == ["execute_tool mail-draft", "execute_tool smtp-send", "execute_tool smtp-send"]
    assert b"hush" not in b"".join(span.SerializeToString() for span in receiver.spans)


def test_an_editors_tool_calls_have_spans(receiver: Received, tmp_path: Path) -> None:
    command = json.dumps(agent_client_agent_command("py"))
    routes = f"""
routes: [{{name: editor, target: {{protocol: agent_client, command: {command}}}}}]
telemetry: {{otlp: "{receiver.url}"}}
"""
    with Gateway(routes, tmp_path) as gateway:
        url = f"{gateway.url.replace('http', 'ws')}/agent-client/editor"
        agent_client_client("py", "--permission", "no", "--say", "tool perm", url=url)
        assert gateway.process.terminate(60) == 0
    made = sorted(named(receiver, "execute_tool"), key=lambda span: span.start_time_unix_nano)
    assert [span.name for span in made] == ["execute_tool", "execute_tool"], "its calls have titles alone"
    assert {span.parent_span_id for span in made} == {receiver.span("invoke_agent").span_id}
    assert [attributes(span).get("error.type") for span in made] == [None, "tool_error"]
    assert {attributes(span)["interlingua.tool.kind"] for span in made} == {"read"}
