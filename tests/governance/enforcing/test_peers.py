"""Governed runs of a real SDK's agent, for clients of every protocol, in a gateway that may be killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.audit import verify_log
from tests.governance.enforcing.support import told
from tests.governance.support import OPERATOR, governance, manifest, policy, with_, write
from tests.matrix.clients import CLIENTS, Client, Conversation
from tests.matrix.ends import End
from tests.support.agent_client import agent_client_agent_command
from tests.support.peers import agent_connect_conversations
from tests.support.processes import Gateway

TOOL = "Reading file"
"""What the agent calls its tool."""
YES, NO = {"decision": "approve", "optionId": "approve"}, {"decision": "reject", "optionId": "reject"}
"""`optionId` is how it is said to clients that are shown options."""
RULES: dict[str, dict[str, Any]] = {
    "free": {"decision": "allow"},
    "asks": {},
    "editors": {"decision": "require-approval", "signers": [{"role": "editor"}]},
    "never": {"decision": "deny"},
}


def documents(folder: Path, name: str) -> Path:
    """What governs one route: its tool, and the one policy that there is for it; without one anybody is asked."""
    policies = [policy(folder, name, match={"subject": TOOL}, autonomy=3, **RULES[name])] if RULES[name] else []
    governance(folder, policies=policies, autonomy={"level": 2, "defaultApproval": "always"})
    own = {"audit_log": "audit:main", "autonomy": "autonomous"}
    write(folder / "operators/reader/OPERATOR.md", with_(OPERATOR, id="reader", tools=[{"id": TOOL}], governance=own))
    bound = {"tier": "governance-aware", "operator": "ws://operators/reader"}
    return manifest(folder / "bridge", bound, kind="bridge")


def table(folder: Path) -> str:
    """A route for each of the rules, each with a folder of its own."""
    routes = []
    for name in RULES:
        target = {
            "protocol": "agent_client",
            "command": agent_client_agent_command("py"),
            "permissions": {"default": "forward"},
        }
        found = documents(folder / name, name)
        routes.append({"name": name, "target": target, "manifest": str(found.relative_to(folder))})
    return json.dumps({"routes": routes, "inbound": dict.fromkeys(CLIENTS)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rooms")


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[Gateway]:
    with Gateway(table(folder), folder) as running:
        yield running


class Speaker:
    """A client of the matrix that works in the agent's room."""

    def __init__(self, client: Client, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._client, self._folder, self._patch = client, folder, patch
        self.answer = client.answer

    def run(self, agent: str, text: str) -> End:
        self._patch.setattr(Conversation, "folder", str(self._folder / agent))
        return self._client.run(agent, text)


@pytest.fixture(params=CLIENTS)
def client(
    request: pytest.FixtureRequest, gateway: Gateway, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Speaker]:
    made = CLIENTS[request.param](gateway.url)
    yield Speaker(made, folder, monkeypatch)
    made.http.close()


def since(folder: Path, count: int) -> list[str]:
    """What was audited of tools since then."""
    return [text for text in told(folder)[count:] if not text.startswith("operator")]


CALLED = [f"tool.call {TOOL}", f"approval.requested {TOOL}"]


def test_what_is_allowed_is_audited_whatever_the_client_speaks(client: Speaker, folder: Path) -> None:
    count = len(told(folder / "free"))
    end = client.run("free", "tool hello")
    assert end.status == "success" and "hello" in end.text
    assert since(folder / "free", count) == [f"tool.call {TOOL}", f"tool.result {TOOL}"]


def test_what_needs_approval_is_asked_of_the_client_in_its_own_protocol(client: Speaker, folder: Path) -> None:
    count = len(told(folder / "asks"))
    asked = client.run("asks", "tool hello")
    assert asked.status == "asks" and TOOL in asked.text, asked
    assert since(folder / "asks", count) == CALLED
    end = client.answer(asked, YES)
    assert end.status == "success" and "hello" in end.text, end
    assert since(folder / "asks", count) == [*CALLED, f"approval.granted {TOOL}", f"tool.result {TOOL}"]


def test_what_is_rejected_ends_the_run(client: Speaker, folder: Path) -> None:
    count = len(told(folder / "asks"))
    end = client.answer(client.run("asks", "tool hello"), NO)
    assert end.status == "error" and "was not approved" in end.text, end
    assert since(folder / "asks", count) == [*CALLED, f"approval.rejected {TOOL}", f"tool.refused {TOOL}"]


def test_what_is_denied_ends_the_run(client: Speaker, folder: Path) -> None:
    count = len(told(folder / "never"))
    end = client.run("never", "tool hello")
    assert end.status == "error" and "refused by policy never" in end.text, end
    assert since(folder / "never", count) == [f"tool.refused {TOOL}"]


def test_the_agntcy_sdk_approves_rejects_and_may_not_approve(gateway: Gateway, folder: Path) -> None:
    counts = {name: len(told(folder / name)) for name in RULES}
    resume = ("resume", "--message", "tool hello", "--name")
    yes, no, stranger, own, denied = agent_connect_conversations(
        f"{gateway.url}/agent-connect",
        (*resume, "asks", "--answer", json.dumps(YES)),
        (*resume, "asks", "--answer", json.dumps(NO)),
        (*resume, "editors", "--answer", json.dumps(YES)),
        ("resume", "--message", "perm", "--name", "asks", "--answer", '{"optionId": "ok"}'),
        ("wait", "--message", "perm", "--name", "never"),
    )
    assert [line["result"]["run"]["status"] for line in yes if "run" in line.get("result", {})][-1] == "success"
    assert [line["result"]["run"]["status"] for line in no if "run" in line.get("result", {})][-1] == "error"
    (error,) = [line["error"] for line in stranger if "error" in line]
    assert error["status"] == 403 and "may not approve" in error["body"], error
    assert since(folder / "editors", counts["editors"]) == CALLED
    assert '"optionId":"ok"' in json.dumps(own).replace("\\", "").replace(" ", "")
    assert 'permission {"optionId":"no"' in denied[-1]["result"]["output"]["values"]["message"], denied
    assert since(folder / "asks", counts["asks"])[-4:] == [*CALLED, f"approval.granted {TOOL}", f"tool.result {TOOL}"]


def test_a_gateway_that_is_killed_between_a_call_and_its_result_leaves_a_log_that_verifies(tmp_path: Path) -> None:
    with Gateway(table(tmp_path), tmp_path) as running:
        client = CLIENTS["agent_connect"](running.url)
        asked = client.run("free", "perm")  # allowed by the rules; the route forwards the agent's own question
        waiting = client.run("asks", "tool hello")
        assert asked.status == waiting.status == "asks"
        assert since(tmp_path / "free", 0) == [f"tool.call {TOOL}"]
        running.kill9()
        assert verify_log([tmp_path / "free"]) == verify_log([tmp_path / "asks"]) == 0
        running.restart()

        def ended() -> bool:
            found = [client.http.get(f"/runs/{run}").json()["status"] for run in (asked.run, waiting.run)]
            return found == ["error", "error"]

        running.process.wait_until(ended, "done with what was running")
        client.http.close()
        assert told(tmp_path / "free")[-3:] == ["operator.suspended", f"tool.result {TOOL}", "operator.interrupted"]
        assert told(tmp_path / "asks")[-2:] == [f"tool.refused {TOOL}", "operator.interrupted"]
        assert f"tool.result {TOOL}" not in told(tmp_path / "asks")
        running.restart()
        for name, end in (("free", "tool.result"), ("asks", "tool.refused")):
            assert told(tmp_path / name).count(f"{end} {TOOL}") == 1
            assert told(tmp_path / name).count("operator.interrupted") == 1
    store = f"sqlite:///{tmp_path}/interlingua.db"
    for name in ("free", "asks"):
        assert verify_log([tmp_path / name], store=store, name=str(tmp_path / name)) == 0
