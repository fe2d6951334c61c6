"""A gateway behind a gateway, both governed: a real SDK client at one end, a real SDK agent at the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.audit import verify_log
from tests.governance.support import OPERATOR as LEAST
from tests.governance.support import governance, manifest, policy, with_, write
from tests.support.agent_client import (
    Line,
    Sdk,
    agent_client_agent_command,
    agent_client_conversations,
    asked,
    errors,
    results,
    text,
    turns,
    updates,
)
from tests.support.forking import standing_in
from tests.support.peers import peer_python
from tests.support.processes import PEERS, Gateway

AGENT = PEERS / "agent_client_governed_agent.py"
FILES = [{"id": name} for name in ("fs.read", "fs.write", "terminal.create")]
BOTH = ["mail-draft", "smtp-send", "inner-asks", "run-tests", *FILES]
META = {"acme": {"a": [1, None]}, "aip44": {"operator": "ws://operators/theirs", "note": {"deep": [1.5, None]}}}
"""What a client says with a prompt, and nobody on the way may touch."""


def documents(folder: Path, name: str, tools: list[Any], free: list[str]) -> Path:
    """What governs one gateway's route: which tools there are, and which of them nobody is asked about."""
    registered = [
        {
            **policy(folder, f"may-{tool.replace('.', '-')}", match={"subject": tool}),
            "appliesTo": "tool.call",
            "severity": "error",
        }
        for tool in free
    ]
    governance(folder, autonomy={"level": 2, "defaultApproval": "on-mutate"}, policies=registered)
    return operator(folder, "bridge", name, tools)


def operator(folder: Path, route: str, name: str, tools: list[Any], memory: str = "thread") -> Path:
    """An operator of that posture, and the manifest of its route."""
    own = with_(LEAST, id=name, name=name, tools=tools, memory={"kind": memory})
    own["governance"] = {"audit_log": f"audit:{name}", "autonomy": "autonomous"}
    write(folder / "operators" / name / "OPERATOR.md", own)
    can = {"agent": {"loadSession": True, "promptCapabilities": {"image": True, "embeddedContext": True}}}
    bound = {"tier": "governance-aware", "operator": f"ws://operators/{name}", "capabilities": can}
    return manifest(folder / route, bound, kind="bridge", transport=["stdio", "websocket"])


@dataclass(frozen=True)
class Chain:
    """Two gateways. `inner` and `outer` are their folders, `room` a folder that both may work in.

    url: where the client talks to the outer one's agent. behind: the address of the inner one."""

    inner: Path
    outer: Path
    room: Path
    url: str
    behind: str

    def entries(self, of: str) -> list[dict[str, Any]]:
        """The audit log of one of them, which may go on being written."""
        lines = (getattr(self, of) / "audit-log.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]  # the last may be half written

    def acts(self, of: str) -> list[tuple[str, str]]:
        """What was recorded of tool calls, by action and tool."""
        return [
            (entry["action"], entry["metadata"]["aip44"]["audit"]["tool"])
            for entry in self.entries(of)
            if entry["action"].startswith("tool.")
        ]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    outer = tmp_path_factory.mktemp("governed")
    inner, room = outer / "inner", outer / "inner" / "room"
    room.mkdir(parents=True)
    (room / "x").write_text("FILE BODY")
    (room / "out").symlink_to(outer)
    (outer / "secret").write_text("SECRET")
    free = ["mail-draft", "fs.write"]
    lower = documents(inner, "lower", [*BOTH, "outer-none"], [*free, "run-tests", "outer-none"])
    upper = documents(outer, "upper", [*BOTH, "inner-none"], [*free, "inner-asks", "inner-none"])
    forgetful = operator(inner, "forgetful", "forgetful", [{"id": "Reading file"}], memory="none")
    commands = {
        "agent": (standing_in([str(peer_python("agent-client-py")), str(AGENT)]), lower),
        "ts": (agent_client_agent_command("ts-2"), forgetful),
    }
    routes = [
        {"name": name, "manifest": str(manifest), "target": {"protocol": "agent_client", "command": command}}
        for name, (command, manifest) in commands.items()
    ]
    newer = {"agent_client": {"v2": True}}
    with Gateway(json.dumps({"routes": routes, "inbound": newer}), inner) as behind:
        url = f"{behind.url.replace('http', 'ws')}/agent-client/agent"
        target = {"protocol": "agent_client", "url": url}
        routes = [
            {"name": "bridge", "manifest": str(upper), "target": target},
            {"name": "newer", "manifest": str(upper), "target": {**target, "v2": True}},
        ]
        with Gateway(json.dumps({"routes": routes}), outer) as front:
            yield Chain(inner, outer, room, f"{front.url.replace('http', 'ws')}/agent-client/bridge", behind.url)


SAID = {
    "allowed": ("ok", "want mail-draft"),
    "approved": ("ok", "want smtp-send"),
    "rejected": ("no", "want smtp-send"),
    "sneaked": ("allow", "sneak smtp-send"),
    "inner asks": ("allow", "sneak inner-asks"),
    "outer asks": ("allow", "sneak run-tests"),
    "inner none": ("ok", "want inner-none"),
    "outer none": ("ok", "want outer-none"),
    "sneaked inner none": ("ok", "sneak inner-none"),
    "sneaked outer none": ("ok", "sneak outer-none"),
    "sneaked and rejected": ("reject", "sneak smtp-send"),
    "files": ("allow", "steal {room}/x"),
    "no files": ("allow", "steal {room}/out/secret steal /etc/passwd steal {room}/../../secret"),
    "late": ("allow", "late mail-draft@{room}/over"),
}


@pytest.fixture(scope="module")
def said(chain: Chain) -> dict[str, list[list[Line]]]:
    """What the clients of each SDK saw, conversation by conversation."""
    steps: list[str] = ["--root", str(chain.room)]
    for how, words in SAID.values():
        steps += ["--permission", how, "--say", words.format(room=chain.room)]
    steps += ["--file", "over=the turn is", "--await", "was late"]
    steps += ["--reconnect", "--session", "@0", "--do", "load", "--do", "close"]
    outside = json.dumps({"cwd": str(chain.outer.parent), "mcpServers": []})
    steps += ["--call", f"session/new {outside}"]
    new = {"cwd": str(chain.room), "mcpServers": [], "_meta": {"rig/session": 1}}
    meta = ["--root", str(chain.room), "--do", f"new {json.dumps(new)}", "--meta", json.dumps(META)]
    newer = ["--root", str(chain.room)]
    for how, words in SAID.values():
        if words.startswith(("want", "sneak")):
            newer += ["--permission", how, "--say", words]
    ts = ["--root", str(chain.room), "--permission", "ok", "--say"]
    conversations: dict[Sdk, list[dict[str, Any]]] = {
        "py": [
            {"steps": steps, "url": chain.url},
            {"steps": [*meta, "--say", "told meta"], "url": chain.url},
            {"steps": newer, "url": chain.url.replace("bridge", "newer")},
        ],
        "ts-2": [
            {"steps": [*ts, "want mail-draft want smtp-send", "--say", "want inner-none"], "url": chain.url},
            {
                "steps": [*ts, "perm tool where", "--do", "close", "--do", "load", "--do", "list"],
                "url": f"{chain.behind}/agent-client/ts",
            },
        ],
    }
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda sdk: agent_client_conversations(sdk, *conversations[sdk]), conversations)
        return dict(zip(conversations, found, strict=True))


@pytest.fixture(scope="module")
def told(said: dict[str, list[list[Line]]]) -> dict[str, list[Line]]:
    """What the Python client saw, by what it said; `end` is what came after it loaded the session again."""
    lines = said["py"][0]
    found = dict(zip(SAID, turns(lines), strict=True))
    rest = lines[sum(map(len, found.values())) :]
    return {**found, "end": rest, "all": lines}


def test_a_tool_that_both_allow_is_the_clients_to_permit(told: dict[str, list[Line]]) -> None:
    lines = told["allowed"]
    assert "want ok" in text(lines) and len(asked(lines, "session/request_permission")) == 1
    [started] = updates(lines, "tool_call")
    assert started["_meta"] == {"aip44": {"tool": "mail-draft"}, "rig/call": [1, {"deep": None}]}
    assert started["rawInput"] == {"to": ["a@example.com"], "password": "hush", "n": 1.5}


def test_where_both_ask_there_is_one_question_and_the_call_is_told_after_it(told: dict[str, list[Line]]) -> None:
    for name, wants in (("approved", "want ok"), ("sneaked", "sneaked")):
        lines = told[name]
        [question] = asked(lines, "session/request_permission")
        assert wants in text(lines), name
        assert question["toolCall"]["rawInput"]["to"] == ["a@example.com"]
        assert all(option["kind"] != "allow_always" for option in question["options"])
        order = [
            line["op"] if "asked" in line else line.get("params", {}).get("update", {}).get("sessionUpdate")
            for line in lines
        ]
        assert order.index("session/request_permission") < order.index("tool_call")


def test_what_is_rejected_is_never_told(told: dict[str, list[Line]]) -> None:
    assert "want no" in text(told["rejected"])
    assert not updates(told["rejected"], "tool_call") and not updates(told["rejected"], "tool_call_update")


def test_where_one_asks_it_is_asked_once(told: dict[str, list[Line]]) -> None:
    for name in ("inner asks", "outer asks"):
        lines = told[name]
        assert len(asked(lines, "session/request_permission")) == 1 and len(updates(lines, "tool_call")) == 1, name
        assert results(lines, "session/prompt")[0]["stopReason"] == "end_turn"


def test_what_either_has_not_is_declined_without_a_question_to_the_person(told: dict[str, list[Line]]) -> None:
    for name in ("inner none", "outer none"):
        lines = told[name]
        assert "want no" in text(lines) and not asked(lines, "session/request_permission"), name
        assert not updates(lines, "tool_call") and not updates(lines, "tool_call_update")


def test_a_turn_whose_agent_does_what_it_may_not_is_interrupted(told: dict[str, list[Line]]) -> None:
    for name in ("sneaked inner none", "sneaked outer none", "sneaked and rejected"):
        lines = told[name]
        [error] = errors(lines, "session/prompt")
        assert error["code"] == -32603 and error["data"]["code"] == "denied", name
        assert not updates(lines, "tool_call")
    assert "inner-none" in errors(told["sneaked inner none"], "session/prompt")[0]["message"]


def test_files_are_the_clients_within_the_roots_and_nowhere_else(told: dict[str, list[Line]], chain: Chain) -> None:
    assert "stole FILE BODY wrote" in text(told["files"])
    assert (chain.room / "x").read_text() == "z"
    assert "SECRET" not in text(told["no files"]) and text(told["no files"]).count("-32602") == 3
    assert not asked(told["no files"], "fs/read_text_file")
    assert (chain.outer / "secret").read_text() == "SECRET"


def test_a_call_outside_of_a_turn_is_told_to_nobody_and_audited(told: dict[str, list[Line]], chain: Chain) -> None:
    late = next(line for line in told["end"] if "was late" in json.dumps(line) and line["op"] == "session/update")
    assert "_meta" not in late["params"]["update"]
    refused = [entry for entry in chain.entries("inner") if entry["action"] == "tool.refused"]
    assert "mail-draft" in [entry["metadata"]["aip44"]["audit"]["tool"] for entry in refused]


def test_initialize_says_what_both_promise_and_the_nearest_operator(told: dict[str, list[Line]]) -> None:
    hello = results(told["all"], "initialize")[0]
    assert hello["_meta"]["aip44"]["operator"] == "upper" and hello["_meta"]["aip44"]["tier"] == "governance-aware"
    capabilities = hello["agentCapabilities"]
    assert capabilities["promptCapabilities"].get("image") and not capabilities["promptCapabilities"].get("audio")
    assert not capabilities.get("mcpCapabilities", {}).get("http")


def test_history_is_marked_untrusted_and_a_folder_outside_is_refused(told: dict[str, list[Line]]) -> None:
    end = told["end"]
    at = next(index for index, line in enumerate(end) if line["op"] == "initialize")
    replayed = updates(end[at:])
    assert len(replayed) > 20 and all(update["_meta"]["aip44"]["untrusted"] is True for update in replayed)
    assert [error["code"] for error in errors(end, "session/new")] == [-32602]
    assert results(end, "session/close") == [{}]


def test_the_audits_of_both_are_whole_and_say_what_happened(
    told: dict[str, list[Line]], chain: Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    for of in ("inner", "outer"):
        folder = getattr(chain, of)
        store = f"sqlite:///{folder / 'interlingua.db'}"
        assert verify_log([folder / "audit-log.jsonl"], store=store) == 0, capsys.readouterr()
        assert "hush" not in (folder / "audit-log.jsonl").read_text()
        acts = chain.acts(of)
        assert acts.count(("tool.refused", "fs.read")) == (3 if of == "inner" else 0)
        assert ("tool.call", "fs.read") in acts and ("tool.result", "fs.write") in acts
        assert [entry for entry in chain.entries(of) if entry["action"] == "audit.closed"]
        sessions = {entry["metadata"]["aip44"]["audit"]["session"] for entry in chain.entries(of)}
        operators = {entry["metadata"]["aip44"]["audit"]["operator"] for entry in chain.entries(of)}
        assert len(sessions) == (6 if of == "inner" else 5)
        assert operators == ({"lower", "forgetful"} if of == "inner" else {"upper"})
    assert ("tool.refused", "inner-none") in chain.acts("inner") and ("tool.call", "inner-none") not in chain.acts(
        "inner"
    )
    assert ("tool.refused", "outer-none") in chain.acts("outer") and ("tool.call", "outer-none") not in chain.acts(
        "outer"
    )
    granted = [entry for entry in chain.entries("outer") if entry["action"] == "approval.granted"]
    tools = [entry["metadata"]["aip44"]["audit"]["tool"] for entry in granted]
    assert sorted(tools) == ["run-tests"] * 2 + ["smtp-send"] * 5


def test_what_others_put_into_meta_passes_verbatim(said: dict[str, list[list[Line]]]) -> None:
    """In params of prompts, in what comes back, and below `aip44`, too."""
    lines = said["py"][1]
    told = json.loads(text(lines).partition("told ")[2].partition(" meta")[0].rpartition("}")[0] + "}")
    assert {key: value for key, value in told.items() if key != "traceparent"} == META
    [chunk] = [each for each in updates(lines) if (each.get("_meta") or {}).get("rig/update")]
    assert chunk["_meta"] == {"rig/update": 2} and chunk["content"]["_meta"] == {"rig/content": 1}


def test_the_other_sdk_is_governed_likewise_at_either_end(said: dict[str, list[list[Line]]]) -> None:
    chained, own = said["ts-2"]
    assert [each["title"] for each in updates(chained, "tool_call")] == ["Using mail-draft", "Using smtp-send"]
    assert text(chained).count("want ok") == 2 and "want no" in text(chained)
    assert len(asked(chained, "session/request_permission")) == 2
    assert len(updates(own, "tool_call")) == 2 and len(asked(own, "session/request_permission")) == 1
    assert '"ok"' in text(own) and results(own, "session/prompt")[0]["stopReason"] == "end_turn"


def test_over_version_2_between_the_gateways_nothing_is_otherwise(said: dict[str, list[list[Line]]]) -> None:
    def seen(lines: list[Line]) -> list[Any]:
        return [
            len(asked(lines, "session/request_permission")),
            [update["title"] for update in updates(lines, "tool_call")],
            text(lines),
            [error["message"] for error in errors(lines, "session/prompt")],
        ]

    older, newer = turns(said["py"][0]), turns(said["py"][2])
    assert len(newer) == 11
    assert [seen(lines) for lines in newer] == [seen(lines) for lines in older[: len(newer)]]


def test_of_a_session_of_ephemeral_memory_nothing_is_left_but_its_audit(
    said: dict[str, list[list[Line]]], chain: Chain
) -> None:
    own = said["ts-2"][1]
    [made] = results(own, "session/new")
    assert results(own, "session/close") == [{}] and errors(own, "session/load")
    assert results(own, "session/list")[0]["sessions"] == []
    assert made["sessionId"].encode() in (chain.inner / "audit-log.jsonl").read_bytes()
