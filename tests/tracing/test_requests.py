"""Request spans of JSON-RPC clients: the official SDKs over each transport, as a collector receives them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import httpx2
import pytest
from msgspec import Raw
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from websockets.sync.client import connect

from gateway import tracing
from gateway.config import Telemetry
from gateway.tracing import metrics
from tests.e2e.doors import way
from tests.support.agent_client import agent_client_agent_command, agent_client_client, errors
from tests.support.agent_communication import Client, client
from tests.support.forking import standing_in
from tests.support.processes import PROGRAM, Gateway
from tests.tracing.conftest import Received, attributes

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
META = json.dumps({"traceparent": f"00-{TRACE}-{PARENT}-01"})


@pytest.fixture
def gateway(receiver: Received, tmp_path: Path) -> Gateway:
    """One agent of an editor. To be entered, and left before the spans are looked at."""
    command = json.dumps(agent_client_agent_command("py"))
    return Gateway(
        f"""
routes:
  - {{name: editor, target: {{protocol: agent_client, command: {command}}}}}
telemetry: {{otlp: "{receiver.url}"}}
""",
        tmp_path,
    )


def counted(page: str, protocol: str) -> Counter[str]:
    """The JSON-RPC requests of the page by status: those of HTTP have a number of three digits."""
    found: Counter[str] = Counter()
    for line in page.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith(f'interlingua_requests_total{{protocol="{protocol}",status="'):
            status = name.split('status="')[1].split('"')[0]
            if not (status.isdigit() and len(status) == 3):
                found[status] += int(value)
    return found


@pytest.mark.parametrize("door", ["ws", "http", "stdio"])
def test_an_editors_requests_have_spans_of_their_methods_and_are_counted(
    door: str, gateway: Gateway, receiver: Received
) -> None:
    steps = ("--say", "first", "--meta", META, "--say", "second", "--meta", "{}", "--call", "_made/up {}")
    with gateway:
        lines = agent_client_client("py", *steps, "--session", "none", "--say", "third", **way(gateway, door, "editor"))
        page = httpx2.get(f"{gateway.url}/metrics").text
        assert gateway.process.terminate(60) == 0
    requests = [span for span in receiver.spans if attributes(span).get("rpc.system.name") == "jsonrpc"]
    names = Counter(span.name for span in requests)
    expected = {"initialize": 1, "session/new": 1, "session/prompt editor": 2, "session/prompt": 1, "jsonrpc": 1}
    assert names == expected
    assert {span.kind for span in requests} == {Span.SPAN_KIND_SERVER}
    (second,) = [span for span in requests if span.trace_id.hex() == TRACE]
    assert second.name == "session/prompt editor" and second.parent_span_id.hex() == PARENT
    (run,) = [span for span in receiver.spans if span.name == "invoke_agent editor" and span.trace_id.hex() == TRACE]
    assert run.parent_span_id == second.span_id
    said = attributes(second)
    assert isinstance(said.pop("jsonrpc.request.id"), str)
    assert said == {
        "interlingua.protocol": "agent_client",
        "rpc.system.name": "jsonrpc",
        "rpc.method": "session/prompt",
        "gen_ai.agent.name": "editor",
    }
    traces = {span.trace_id for span in requests if span.name.startswith("session/prompt")}
    assert len(traces) == 3, "a connection is no trace"
    unknown = attributes(next(span for span in requests if span.name == "jsonrpc"))
    assert unknown["rpc.method"] == "_OTHER" and unknown["rpc.method_original"] == "_made/up"
    assert unknown["rpc.response.status_code"] == unknown["error.type"] == "-32601"
    failed = next(span for span in requests if span.name == "session/prompt")
    assert failed.status.code == Status.STATUS_CODE_ERROR
    (told,) = [str(error["code"]) for error in errors(lines, "session/prompt")]
    assert attributes(failed)["rpc.response.status_code"] == told
    if door != "stdio":  # which is a process of its own
        assert counted(page, "agent_client") == {"ok": 4, "-32601": 1, told: 1}


@pytest.mark.parametrize(("kind", "door"), [("mcp-1", "http"), ("ts", "ws"), ("mcp-1", "stdio"), ("py", "sse")])
def test_an_mcp_clients_requests_have_spans_of_their_methods_and_tools(
    kind: Client, door: str, gateway: Gateway, receiver: Received
) -> None:
    below = "agent-communication"
    steps = ("--do", "tools", "--meta", META, "--tool", 'editor {"message": "hello"}', "--tool", 'nobody {"x": 1}')
    failing = ("--meta", "{}", "--tool", 'editor {"message": "fail"}')
    with gateway:
        if door == "stdio":
            command = [*PROGRAM, "stdio", "--protocol", "agent_communication", "--routes", str(gateway.file)]
            client(kind, *steps, *failing, command=standing_in(command))
        else:
            scheme, end = ("ws", "ws") if door == "ws" else ("http", "sse" if door == "sse" else "mcp")
            client(kind, *steps, *failing, url=f"{gateway.url.replace('http', scheme)}/{below}/{end}")
        page = httpx2.get(f"{gateway.url}/metrics").text
        assert gateway.process.terminate(60) == 0
    requests = [span for span in receiver.spans if attributes(span).get("rpc.system.name") == "jsonrpc"]
    made = sorted((span for span in requests if "tools/call" in span.name), key=lambda span: -span.start_time_unix_nano)
    failed, *_ = made
    calls = {span.name: span for span in made}
    assert set(calls) == {"tools/call editor", "tools/call"}
    assert {"initialize", "tools/list"} <= {span.name for span in requests}
    called = calls["tools/call editor"]
    assert called.trace_id.hex() == TRACE and called.parent_span_id.hex() == PARENT
    said = attributes(called)
    assert said["mcp.method.name"] == said["rpc.method"] == "tools/call"
    assert said["gen_ai.tool.name"] == "editor" and said["gen_ai.operation.name"] == "execute_tool"
    assert said["mcp.protocol.version"] and said["mcp.session.id"]
    assert called.status.code == Status.STATUS_CODE_UNSET
    assert failed.name == called.name and attributes(failed)["error.type"] == "tool_error"
    assert failed.status.code == Status.STATUS_CODE_ERROR and failed.trace_id != called.trace_id
    runs = {span.parent_span_id for span in receiver.spans if span.name.startswith("invoke_agent")}
    assert runs == {called.span_id, failed.span_id}
    wrong = attributes(calls["tools/call"])
    assert wrong["gen_ai.tool.name"] == "nobody" and wrong["error.type"] == wrong["rpc.response.status_code"]
    if door == "http":
        (post,) = [link.span_id for link in called.links]
        assert post in {span.span_id for span in receiver.spans if span.name == "agent_communication POST /mcp"}
    if door != "stdio":
        assert counted(page, "agent_communication") == {"ok": len(requests) - 1, str(wrong["error.type"]): 1}


def failing(error: BaseException, requests: tracing.RequestSpans) -> None:
    with pytest.raises(type(error)), requests("x", Raw(b""), None):
        raise error


def test_requests_that_were_given_up_and_codes_beyond_many_are_counted_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_codes", metrics.Labels(2))
    codes = iter((-1, -2, -3, -1))
    requests = tracing.RequestSpans("door", (), lambda error: next(codes))
    for _ in range(4):
        failing(ValueError(), requests)
    failing(asyncio.CancelledError(), requests)
    page = metrics.render(None)
    assert counted(page, "door") == {"-1": 2, "-2": 1, "(others)": 1, "cancelled": 1}


def test_what_runs_on_after_its_request_is_no_part_of_it(receiver: Received) -> None:
    async def scene() -> None:
        requests = tracing.RequestSpans("door", {"m"}, lambda error: -1)
        go = asyncio.Event()

        async def later() -> None:
            await go.wait()
            with requests("m", Raw(b"{}"), 2):
                pass

        with tracing.inbound_span("door", "POST /", f"00-{TRACE}-{PARENT}-01"):
            task = asyncio.create_task(later())
        go.set()
        await task

    tracing.configure(Telemetry.model_validate({"otlp": receiver.url}))
    asyncio.run(scene())
    tracing.shutdown()
    later = receiver.span("m")
    assert later.trace_id.hex() != TRACE and not later.parent_span_id


def test_requests_that_are_refused_before_they_are_served_are_counted(gateway: Gateway, receiver: Received) -> None:
    call = {"jsonrpc": "2.0", "id": None, "method": "tools/list", "params": {}}
    with gateway:
        url = f"{gateway.url.replace('http', 'ws')}/agent-communication/ws"
        with connect(url) as socket:
            socket.send(json.dumps(call))
            code = json.loads(socket.recv(60))["error"]["code"]
        page = httpx2.get(f"{gateway.url}/metrics").text
        assert gateway.process.terminate(60) == 0
    assert counted(page, "agent_communication") == {str(code): 1}
    assert attributes(receiver.span("tools/list"))["rpc.response.status_code"] == str(code)


def test_a_request_too_many_is_counted_and_traced(receiver: Received, tmp_path: Path) -> None:
    command = json.dumps(agent_client_agent_command("py"))
    routes = f"""
inbound: {{agent_communication: {{max_calls: 1}}}}
routes:
  - {{name: editor, target: {{protocol: agent_client, command: {command}}}}}
telemetry: {{otlp: "{receiver.url}"}}
"""
    with Gateway(routes, tmp_path) as gateway:
        with connect(f"{gateway.url.replace('http', 'ws')}/agent-communication/ws") as socket:

            def send(method: str, id: int | None, **params: object) -> None:
                numbered = {} if id is None else {"id": id}
                socket.send(json.dumps({"jsonrpc": "2.0", **numbered, "method": method, "params": params}))

            about = {"clientInfo": {"name": "many", "version": "1"}, "capabilities": {}}
            send("initialize", 1, protocolVersion="2025-11-25", **about)
            assert json.loads(socket.recv(60))["id"] == 1
            send("notifications/initialized", None)
            send("agents/run", 2, name="editor", input={"message": "stuck"})
            send("tools/list", 3)
            answer = json.loads(socket.recv(60))
            assert (answer["id"], answer["error"]["code"]) == (3, -32603)
            page = httpx2.get(f"{gateway.url}/metrics").text
        assert gateway.process.terminate(60) == 0
    assert counted(page, "agent_communication") == {"ok": 1, "-32603": 1}
    assert attributes(receiver.span("tools/list"))["rpc.response.status_code"] == "-32603"


def test_a_gateway_in_an_editors_own_process_sends_its_metrics(gateway: Gateway, receiver: Received) -> None:
    agent_client_client("py", "--say", "hello", **way(gateway, "stdio", "editor"))
    points = receiver.metrics["interlingua_requests_total"].sum.data_points
    told = [({item.key: item.value.string_value for item in point.attributes}, point.as_double) for point in points]
    assert told == [({"protocol": "agent_client", "status": "ok"}, 3)]
    assert receiver.metrics["interlingua_runs_ended_total"].sum.data_points[0].as_double == 1
