"""Traces of a real gateway process in front of a real agent, as a collector receives them."""

from __future__ import annotations

from pathlib import Path

import httpx2

from tests.cli.conftest import interlingua
from tests.governance.enforcing.support import documents
from tests.support.processes import Gateway, Process
from tests.tracing.conftest import Received, attributes

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = f"00-{TRACE}-b7ad6b7169203331-01"


def test_one_trace_joins_the_client_the_request_the_run_the_call_and_the_agent(
    receiver: Received, agent_connect_agent: Process, tmp_path: Path
) -> None:
    routes = f"""
routes:
  - {{name: echo, target: {{protocol: agent_connect, url: "{agent_connect_agent.url}", agent: echo}}}}
telemetry: {{otlp: "{receiver.url}"}}
"""
    words = " ".join(f"w{n}" for n in range(60))
    httpx2.delete(f"{agent_connect_agent.url}/_seen")
    with Gateway(routes, tmp_path) as gateway:
        answer = httpx2.post(
            f"{gateway.url}/agent-connect/runs/wait",
            json={"agent_id": "echo", "input": {"message": words}},
            headers={"traceparent": CLIENT},
            timeout=60,
        )
        assert answer.json()["run"]["status"] == "success"
        metrics = httpx2.get(f"{gateway.url}/metrics").text
        assert gateway.process.terminate(60) == 0
    server, run, call = (receiver.span(name) for name in ("agent_connect ", "invoke_agent", "call "))
    assert {span.trace_id.hex() for span in (server, run, call)} == {TRACE}
    assert server.parent_span_id.hex() == "b7ad6b7169203331"
    assert run.parent_span_id == server.span_id and call.parent_span_id == run.span_id
    assert attributes(run)["gen_ai.agent.name"] == "echo"
    others = [span.name for span in receiver.spans if span not in (server, run, call)]
    assert set(others) <= {"describe_agent echo"}, "one span each, and none per token"
    assert sum(len(span.events) for span in receiver.spans) == 0
    seen = [r for r in httpx2.get(f"{agent_connect_agent.url}/_seen").json() if r["path"].endswith("/runs/stream")]
    assert seen[-1]["headers"]["traceparent"] == f"00-{TRACE}-{call.span_id.hex()}-01"
    assert 'interlingua_runs_ended_total{agent="echo",protocol="agent_connect",status="success"} 1' in metrics


def test_spans_are_sent_also_by_a_gateway_that_stops_with_what_its_store_does_not_take(
    receiver: Received, agent_connect_agent: Process, tmp_path: Path
) -> None:
    routes = f"""
routes:
  - {{name: echo, target: {{protocol: agent_connect, url: "{agent_connect_agent.url}", agent: echo}}}}
store: {{url: "sqlite:///kept.db"}}
telemetry: {{otlp: "{receiver.url}"}}
"""
    body = {"agent_id": "echo", "input": {"message": "hello"}}
    with Gateway(routes, tmp_path) as gateway:
        (tmp_path / "kept.db").unlink()
        refused = httpx2.post(f"{gateway.url}/agent-connect/runs", json=body, timeout=60)
        assert refused.status_code == 503
        assert gateway.process.terminate(60) == 1
    assert receiver.span("agent_connect ")


def test_spans_of_a_start_that_fails_are_sent(receiver: Received, agent_connect_agent: Process, tmp_path: Path) -> None:
    documents(tmp_path, aip44={"capabilities": {"agent": {"mcpCapabilities": {"sse": True}}}})
    (tmp_path / "routes.yaml").write_text(f"""
routes:
  - name: scripted
    manifest: scripted/ACP.md
    target: {{protocol: agent_connect, url: "{agent_connect_agent.url}", agent: echo}}
telemetry: {{otlp: "{receiver.url}"}}
""")
    started = interlingua("serve", "--port", "0", cwd=tmp_path)
    assert started.returncode == 2 and "promises" in started.stderr, started.stderr
    assert receiver.span("describe_agent ")
