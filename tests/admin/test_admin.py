"""The operator's API of a real gateway, whose runs real clients of a protocol start."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.processes import ROOT, Gateway

GARDENER = str(ROOT / "examples" / "agents" / "gardener.py")
TABLE = f"""
routes:
  - name: gardener
    target: {{protocol: agent_client, command: ["{sys.executable}", "{GARDENER}"]}}
  - name: gone
    target: {{protocol: agent_client, url: "ws://127.0.0.1:1/below?key=hidden"}}
"""
OPERATORS = """
operators:
  clients:
    - {name: olga, token: of-olga, roles: [head gardener]}
    - {name: otto, token: of-otto}
"""
CLIENTS = """
inbound:
  agent_connect: &people {authentication: {clients: [{name: ann, token: of-ann}]}}
  agent_client: *people
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(TABLE, tmp_path_factory.mktemp("admin")) as running:
        yield running


def client(gateway: Gateway, token: str | None = None) -> httpx2.Client:
    headers = {"authorization": f"Bearer {token}"} if token is not None else {}
    return httpx2.Client(base_url=gateway.url, headers=headers, trust_env=False, timeout=30)


def begun(http: httpx2.Client, token: str | None = None) -> str:
    """The id of a run whose question waits."""
    headers = {"authorization": f"Bearer {token}"} if token is not None else {}
    body = {"agent_id": "gardener", "input": {"message": "a rose"}}
    run = str(http.post("/agent-connect/runs", json=body, headers=headers).json()["run_id"])
    waited = http.get(f"/agent-connect/runs/{run}/wait", params={"timeout": 30}, headers=headers).json()
    assert waited["run"]["status"] == "interrupted", waited
    return run


def ended(http: httpx2.Client, run: str) -> dict[str, Any]:
    """The run, once it has ended."""
    until = time.monotonic() + 30
    with http.stream("GET", f"/admin/runs/{run}/events", headers={"accept": "text/event-stream"}) as stream:
        for _ in stream.iter_lines():
            assert time.monotonic() < until
    return dict(http.get(f"/admin/runs/{run}").json())


def test_a_question_is_seen_answered_and_its_run_followed_to_the_end(gateway: Gateway) -> None:
    with client(gateway) as http:
        run = begun(http)
        listed = http.get("/admin/runs", params={"status": "interrupted", "agent": "gardener"}).json()
        assert [one["waits"] for one in listed["runs"] if one["id"] == run] == [1]
        asked = http.get(f"/admin/runs/{run}").json()["interrupts"][0]
        wrong = http.post(f"/admin/runs/{run}/answer", json={"value": {"optionId": "burn"}})
        assert wrong.status_code == 400 and http.get(f"/admin/runs/{run}").json()["waits"] == 1
        option = asked["payload"]["options"][0]["optionId"]
        for_sure = {"value": {"optionId": option}, "interrupt": asked["id"]}
        answered = http.post(f"/admin/runs/{run}/answer", json=for_sure)
        assert answered.status_code == 200, answered.text
        whole = ended(http, run)
        assert (whole["status"], whole["waits"]) == ("success", 0)
        assert "rose" in json.dumps(whole["output"]["document"])
        again = http.post(f"/admin/runs/{run}/answer", json=for_sure)
        assert again.status_code == 409 and "ended" in again.json()["error"]


def test_a_log_is_read_in_pages_and_followed_from_where_one_stopped(gateway: Gateway) -> None:
    with client(gateway) as http:
        run = begun(http)
        page = http.get(f"/admin/runs/{run}/events").json()
        numbers = [one["number"] for one in page["events"]]
        assert numbers == list(range(1, page["last"] + 1)) and page["events"][0]["event"] == {"event": "run_started"}
        assert page["events"][-1]["event"]["event"] == "interrupted"
        assert http.get(f"/admin/runs/{run}/events", params={"after": page["last"]}).json()["events"] == []
        http.post(f"/admin/runs/{run}/cancel", json={"reason": "winter"})
        resumed = {"accept": "text/event-stream", "last-event-id": str(page["last"])}
        with http.stream("GET", f"/admin/runs/{run}/events", headers=resumed) as stream:
            frames = [frame.splitlines() for frame in "\n".join(stream.iter_lines()).split("\n\n")]
        first = next(frame for frame in frames if frame and frame[0].startswith("id: "))
        assert first[0] == f"id: {page['last'] + 1}"
        last = next(frame for frame in frames if frame and frame[0] == "event: run")
        assert json.loads(last[1].removeprefix("data: "))["status"] == "cancelled"
        assert http.get(f"/admin/runs/{run}").json()["cancel_reason"] == "winter"


def test_agents_are_told_with_how_their_runs_went_and_no_secret_of_their_targets(gateway: Gateway) -> None:
    with client(gateway) as http:
        http.post(f"/admin/runs/{begun(http)}/cancel", json={})
        agents = {agent["name"]: agent for agent in http.get("/admin/agents").json()["agents"]}
        assert set(agents) == {"gardener", "gone"}
        assert agents["gone"]["target"] == "ws://127.0.0.1:1/below" and not agents["gone"]["ready"]
        assert "connection refused" in agents["gone"]["reason"] and agents["gardener"]["reason"] == ""
        assert agents["gardener"]["target"] == sys.executable and agents["gardener"]["ended"]["cancelled"] >= 1
        assert agents["gardener"]["seconds"]["p95"] >= agents["gardener"]["seconds"]["p50"] > 0
        protocols = {one["name"]: one for one in http.get("/admin/protocols").json()["protocols"]}
        assert protocols["agent_connect"]["door"] == "/agent-connect"
        summary = http.get("/admin").json()
        assert summary["operator"] is None and summary["runs"]["cancelled"] >= 1


@pytest.mark.parametrize(
    "headers",
    [
        {"x-forwarded-for": "203.0.113.7"},
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:1", "host": "localhost:2"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_proxies_other_names_and_other_pages_are_refused(gateway: Gateway, headers: dict[str, str]) -> None:
    with client(gateway) as http:
        for method, path in (("GET", "/admin/runs"), ("POST", "/admin/reload")):
            refused = http.request(method, path, headers=headers)
            assert refused.status_code == 403 and "error" in refused.json(), refused.text
            assert "access-control-allow-origin" not in refused.headers


def test_what_a_form_of_a_page_can_send_changes_nothing(gateway: Gateway) -> None:
    with client(gateway) as http:
        run = begun(http)
        refused = http.post(f"/admin/runs/{run}/cancel", content="{}", headers={"content-type": "text/plain"})
        assert refused.status_code == 400
        assert http.get(f"/admin/runs/{run}").json()["status"] == "interrupted"
        http.post(f"/admin/runs/{run}/cancel", json={})


@pytest.mark.parametrize("more", [CLIENTS, "public_url: https://gateway.example\n"], ids=["clients", "proxy"])
def test_it_is_closed_where_clients_are_asked_who_they_are_or_a_proxy_is_in_front(more: str, tmp_path: Path) -> None:
    with Gateway(more + TABLE, tmp_path) as gateway:
        for token in (None, "of-ann"):
            with client(gateway, token) as http:
                refused = http.get("/admin/runs")
                assert refused.status_code == 403 and "`operators`" in refused.json()["error"]


def test_an_operator_shows_a_token_and_approves_by_his_roles(tmp_path: Path) -> None:
    governed = tmp_path / "gardener"
    shutil.copytree(ROOT / "examples" / "governed" / "gardener", governed)
    rules = (governed / "GOVERNANCE.md").read_text()
    approvers = (
        'approvers:\n  - {id: head, role: head gardener, canApprove: [tool.call, mutates], quorum: "1"}\naudit:\n'
    )
    (governed / "GOVERNANCE.md").write_text(rules.replace("audit:\n", approvers, 1))
    table = TABLE.replace("  - name: gone", "    manifest: gardener/ACP.md\n  - name: gone")
    with Gateway(CLIENTS + OPERATORS + table, tmp_path) as gateway, client(gateway) as http:
        for token in (None, "of-ann", "of-nobody"):
            with client(gateway, token) as stranger:
                refused = stranger.get("/admin/runs")
                assert refused.status_code == 401 and refused.headers["www-authenticate"].startswith("Bearer")
        run = begun(http, "of-ann")
        with client(gateway, "of-otto") as otto, client(gateway, "of-olga") as olga:
            assert olga.get("/admin").json()["operator"] == "olga"
            asked = otto.get(f"/admin/runs/{run}").json()
            assert asked["principal"] == "ann"
            assert [one["id"] for one in otto.get("/admin/runs", params={"principal": "ann"}).json()["runs"]] == [run]
            assert otto.get("/admin/runs", params={"principal": "bob"}).json() == {"runs": [], "count": 0}
            option = next(one for one in asked["interrupts"][0]["payload"]["options"] if "allow" in one["kind"])
            yes = {"value": {"optionId": option["optionId"]}}
            otto.post(f"/admin/runs/{run}/answer", json=yes)
            assert otto.get(f"/admin/runs/{run}").json()["status"] == "interrupted"
            assert olga.post(f"/admin/runs/{run}/answer", json=yes).status_code == 200
            assert ended(olga, run)["status"] == "success"
        log = "".join(file.read_text() for file in tmp_path.rglob("*.jsonl"))
        assert "olga" in log


def test_a_reload_takes_the_file_or_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    with Gateway(TABLE, tmp_path, args=["--no-watch"]) as gateway, client(gateway) as http:
        gateway.rewrite("routes: [{name: gardener}]\n")
        refused = http.post("/admin/reload")
        assert refused.status_code == 400 and "routes.yaml:1" in refused.json()["error"]
        assert len(http.get("/admin/agents").json()["agents"]) == 2
        gateway.rewrite(TABLE.replace("name: gone", "name: lost"))
        taken = http.post("/admin/reload").json()["agents"]
        assert [agent["name"] for agent in taken] == ["gardener", "lost"]
