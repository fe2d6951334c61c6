"""What the operator's API tells of a recorded run, by a real gateway: live, in pages, and without a secret."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.sync.client import connect

from tests.support.processes import ROOT, Gateway
from tests.support.serving import Quiet, in_a_thread

GARDENER = str(ROOT / "examples" / "agents" / "gardener.py")
SECRETS = {
    "AGENTS_BEARER": "secret-of-the-agents-bearer",
    "AGENTS_KEY": "secret-of-the-agents-key",
    "URL_PASSWORD": "secret-of-the-url",
    "PROCESS_KEY": "secret-of-the-process",
    "ANNS_TOKEN": "secret-of-ann",
    "OLGAS_TOKEN": "secret-of-olga",
    "STORE_WORD": "secret-word-of-anything",
}


class Confiding(Quiet):
    """An agent of Agent Protocol that says in its output all that it was told in headers, URL and body."""

    def do_GET(self) -> None:
        self._answer({"task_id": "t", "input": "", "artifacts": [], "steps": []})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        told = json.dumps({"headers": dict(self.headers), "path": self.path, "body": body})
        made: dict[str, Any] = {"task_id": "t", "artifacts": [], "input": "x", "additional_input": {}}
        if "/steps" in self.path:
            made |= {"step_id": "s", "status": "completed", "output": "done", "is_last": True, "name": "n"}
            made["additional_output"] = {"apiKey": SECRETS["AGENTS_KEY"], "told": told}
        self._answer(made)

    def _answer(self, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("set-cookie", "session=secret-cookie-of-the-agent")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def agent() -> Iterator[int]:
    with in_a_thread(Confiding) as url:
        yield int(url.rpartition(":")[2])


def table(port: int) -> str:
    return f"""
inbound:
  agent_connect: &people {{authentication: {{clients: [{{name: ann, token: "${{ANNS_TOKEN}}"}}]}}}}
  agent_client: *people
operators: {{clients: [{{name: olga, token: "${{OLGAS_TOKEN}}"}}]}}
routes:
  - name: confiding
    record: wire
    target:
      protocol: agent_protocol
      url: "http://127.0.0.1:{port}"
      auth: {{bearer: "${{AGENTS_BEARER}}"}}
  - name: away
    record: wire
    target: {{protocol: agent_client, url: "ws://ann:${{URL_PASSWORD}}@127.0.0.1:1/below?key=${{URL_PASSWORD}}"}}
  - name: gardener
    record: wire
    description: "${{STORE_WORD}}"
    target:
      protocol: agent_client
      command: ["{sys.executable}", "{GARDENER}"]
      env: {{GARDEN_KEY: "${{PROCESS_KEY}}"}}
"""


def told_of_everything(operator: httpx2.Client) -> str:
    """All that the API says."""
    found = []
    paths = ["", "/agents", "/protocols", "/losses", "/runs", "/recording"]
    runs = [one["id"] for one in operator.get("/admin/runs").json()["runs"]]
    paths += [f"/runs/{run}{part}" for run in runs for part in ("", "/wire")]
    for path in paths:
        answer = operator.get(f"/admin{path}")
        assert answer.status_code == 200, (path, answer.text)
        found.append(answer.text)
    for run in runs:
        found.append(operator.get(f"/admin/runs/{run}/wire", headers={"accept": "text/event-stream"}).text)
    return "\n".join(found)


def test_no_credential_of_client_agent_operator_or_configuration_is_told(agent: int, tmp_path: Path) -> None:
    with Gateway(table(agent), tmp_path, env=SECRETS) as gateway:
        ann = {"authorization": f"Bearer {SECRETS['ANNS_TOKEN']}", "cookie": "mine=secret-cookie-of-ann"}
        olga = {"authorization": f"Bearer {SECRETS['OLGAS_TOKEN']}"}
        with (
            httpx2.Client(base_url=gateway.url, headers=ann, trust_env=False, timeout=60) as http,
            httpx2.Client(base_url=gateway.url, headers=olga, trust_env=False, timeout=60) as operator,
        ):
            body = {
                "agent_id": "confiding",
                "input": {"message": "hello"},
                "metadata": {"password": "secret-of-the-body"},
            }
            asked = http.post("/agent-connect/runs/wait", params={"api_key": "secret-of-the-query"}, json=body)
            assert asked.status_code == 200, asked.text
            editor(gateway)
            everything = told_of_everything(operator)
        wire = [one for one in everything.splitlines() if '"entries"' in one]
        assert len(wire) == 2 and "POST /agent-connect/runs/wait" in wire[1] and "session/prompt" in wire[0]
        assert '["authorization","[removed]"]' in wire[1]
        assert '["set-cookie","[removed]"]' in wire[1]
    # What an agent says in its output, and a route in its description, is content: told as such, not on the wire.
    said = ("AGENTS_BEARER", "AGENTS_KEY", "STORE_WORD")
    for name, secret in SECRETS.items():
        assert secret not in "\n".join(wire), secret
        assert name in said or secret not in everything, secret
    for secret in ("secret-cookie-of-ann", "secret-cookie-of-the-agent", "secret-of-the-query"):
        assert secret not in everything, secret
    assert "secret-of-the-body" not in "\n".join(wire) and "secret-of-an-mcp-server" not in everything


def editor(gateway: Gateway) -> None:
    """One prompt of an editor whose client authenticates in a message and has MCP servers with secrets."""
    server = {"name": "s", "command": "c", "args": [], "env": [{"name": "MINE", "value": "secret-of-an-mcp-server"}]}
    headers = {"authorization": f"Bearer {SECRETS['ANNS_TOKEN']}"}
    url = gateway.url.replace("http", "ws", 1) + "/agent-client/gardener"
    with connect(url, additional_headers=headers, proxy=None) as socket:

        def ask(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
            socket.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
            while True:
                message = json.loads(socket.recv(60))
                if message.get("method") == "session/request_permission":
                    outcome = {"outcome": {"outcome": "selected", "optionId": "plant"}}
                    socket.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": outcome}))
                elif message.get("id") == number and "method" not in message:
                    return dict(message["result"])

        ask(0, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        session = ask(1, "session/new", {"cwd": "/", "mcpServers": [server]})["sessionId"]
        prompt = [{"type": "text", "text": "a rose"}]
        ended = ask(2, "session/prompt", {"sessionId": session, "prompt": prompt, "_meta": {"token": "secret-of-ann"}})
        assert ended["stopReason"] == "end_turn"


def test_a_recording_is_followed_from_where_one_stopped_to_its_end_and_one_that_is_not_there_is_not_found(
    tmp_path: Path,
) -> None:
    command = json.dumps([sys.executable, GARDENER])
    text = f"routes: [{{name: gardener, target: {{protocol: agent_client, command: {command}}}}}]\n"
    with Gateway(text, tmp_path) as gateway, httpx2.Client(base_url=gateway.url, trust_env=False, timeout=60) as http:

        def begun() -> str:
            body = {"agent_id": "gardener", "input": {"message": "a rose"}}
            run = str(http.post("/agent-connect/runs", json=body).json()["run_id"])
            http.get(f"/agent-connect/runs/{run}/wait", params={"timeout": 60})
            return run

        unrecorded = begun()
        assert http.get(f"/admin/runs/{unrecorded}/wire").status_code == 404
        assert http.get("/admin/runs/none/wire").status_code == 404
        for wrong in ({"record": True, "agent": "nobody"}, {"record": True, "seconds": 0}, {"record": "wire"}, {}):
            refused = http.post("/admin/recording", json=wrong)
            assert refused.status_code in (400, 404), wrong
        wished = http.post("/admin/recording", json={"record": True, "seconds": 3600}).json()
        assert wished["agents"] == {"gardener": True} and wished["wishes"][0]["agent"] is None
        run = begun()
        page = http.get(f"/admin/runs/{run}/wire").json()
        numbers = [entry["n"] for entry in page["entries"]]
        assert numbers == [*range(1, page["last"] + 1)] and page["entries"][-1]["title"].startswith("200")
        assert http.get(f"/admin/runs/{run}/wire", params={"after": page["last"]}).json()["entries"] == []
        stream = {"accept": "text/event-stream", "last-event-id": str(page["last"])}
        with http.stream("GET", f"/admin/runs/{run}/wire", headers=stream) as live:
            lines = live.iter_lines()
            assert next(lines) == ": following"
            http.post(f"/admin/runs/{run}/cancel", json={"reason": "winter"})
            told = list(lines)
        assert told[-3:-1] == ["event: over", "data: {}"] or told[-2:] == ["event: over", "data: {}"]
        ids = [int(line[4:]) for line in told if line.startswith("id: ")]
        assert ids == [*range(page["last"] + 1, ids[-1] + 1)]
        entries = [json.loads(line[6:]) for line in told if line.startswith("data: {") and line != "data: {}"]
        assert any(one.get("title") == "session/cancel" and one["side"] == "agent" for one in entries)
        http.post(f"/admin/runs/{unrecorded}/cancel", json={})


def test_of_several_runs_at_once_on_one_connection_each_has_what_is_its_own(tmp_path: Path) -> None:
    command = json.dumps([sys.executable, GARDENER])
    route = f"{{name: gardener, record: wire, target: {{protocol: agent_client, command: {command}}}}}"
    with (
        Gateway(f"routes: [{route}]\n", tmp_path) as gateway,
        httpx2.Client(base_url=gateway.url, trust_env=False, timeout=60) as http,
    ):
        flowers = ["a rose", "a tulip", "a lily", "a daisy"]
        runs = {}
        for flower in flowers:
            body = {"agent_id": "gardener", "input": {"message": flower}}
            runs[flower] = http.post("/agent-connect/runs", json=body).json()["run_id"]
        for run in runs.values():
            http.get(f"/agent-connect/runs/{run}/wait", params={"timeout": 60})
            http.post(f"/admin/runs/{run}/answer", json={"value": {"optionId": "plant"}})
            http.get(f"/agent-connect/runs/{run}/wait", params={"timeout": 60})
        for flower, run in runs.items():
            wire = http.get(f"/admin/runs/{run}/wire").text
            assert flower in wire and not [other for other in flowers if other != flower and other in wire]
            titles = [entry.get("title") for entry in json.loads(wire)["entries"]]
            assert titles.count("session/prompt") == titles.count("answer to session/prompt") == 1
            assert titles.count("session/request_permission") == 1 and titles.count("session/update") >= 8
