"""What a route's governor tells adapters, and which agents and runs it minds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core.errors import Denied, Unavailable
from gateway.governance.audit import AuditLog
from gateway.governance.binding import Root, Roots, bind
from gateway.governance.enforcing import Enforcement, RouteGovernor
from gateway.governance.enforcing.journal import Journal
from gateway.governance.tiers import REVISION
from gateway.runs import Engine
from gateway.store.opening import open_store
from tests.governance.enforcing.support import audited, calling, documents, house
from tests.governance.enforcing.test_wrapper import silent
from tests.governance.support import OPERATOR, SANDBOX, governance, manifest, spends_nothing, with_, write
from tests.support.aio import run
from tests.support.scripted import AGENT, Scripted


def governor(folder: Path, **how: Any) -> RouteGovernor:
    return RouteGovernor(documents(folder, **how), Journal(None, spend=spends_nothing))


def alone(folder: Path, aip44: dict[str, Any] | None = None, **keys: Any) -> RouteGovernor:
    """Of a manifest without an operator or a posture."""
    return RouteGovernor(
        bind(manifest(folder / "scripted", aip44, **keys), folder), Journal(None, spend=spends_nothing)
    )


def test_clients_are_told_the_tier_the_operator_and_a_revision_that_is_not_spoken(tmp_path: Path) -> None:
    about = governor(tmp_path / "a").about
    assert about == {"tier": "governance-aware", "acp_rev": "b7f0005", "operator": "coder"}
    other = alone(tmp_path / "b", {"acp_rev": "1234567"}).about
    assert other == {"tier": "basic", "acp_rev": "1234567", "acp_rev_spoken": REVISION}


def test_an_operator_or_a_posture_alone_has_calls_judged(tmp_path: Path) -> None:
    assert governor(tmp_path / "both").judges and not alone(tmp_path / "alone").judges
    folder = tmp_path / "operator"
    write(folder / "coder/OPERATOR.md", with_(OPERATOR))
    assert alone(folder, {"operator": "../coder/OPERATOR.md"}).judges
    governance(folder := tmp_path / "posture")
    assert alone(folder, {"tier": "governance-aware"}).judges


@pytest.mark.parametrize(
    ("roots", "home"),
    [
        ([Root(path="{folder}")], "{folder}"),
        ([Root(path="{folder}", here=False)], None),
        ([Root(path="{folder}/missing")], None),
        ([Root(path="{folder}/missing"), Root(path="/", here=False), Root(path="{folder}")], "{folder}"),
        ([], None),
    ],
)
def test_a_session_that_names_no_folder_has_the_first_root_that_is_one_here(
    tmp_path: Path, roots: list[Root], home: str | None
) -> None:
    it = governor(tmp_path)
    assert it.home == str(tmp_path)
    it = governor(tmp_path)
    known = tuple(replace(root, path=root.path.format(folder=tmp_path)) for root in roots)
    vars(it)["_roots"] = Roots(known)
    assert it.home == (home and home.format(folder=tmp_path))


def test_a_promise_that_is_not_kept_is_refused_by_name(tmp_path: Path) -> None:
    it = governor(tmp_path, aip44={"capabilities": {"agent": {"promptCapabilities": {"audio": True}}}})
    why = "the manifest promises agent.promptCapabilities.audio, and the agent cannot"
    assert it.unmet(AGENT) == why
    with pytest.raises(Unavailable, match=why):
        it.check({"agent": {"loadSession": True}})
    it.check({"agent": {"loadSession": True, "promptCapabilities": {"audio": True}}})
    assert governor(tmp_path / "other").unmet(AGENT) == ""


def test_what_may_be_declared_and_lent_is_what_the_manifest_promises(tmp_path: Path) -> None:
    own = {"agent": {"promptCapabilities": {"audio": True}}, "client": {"terminal": True}}
    it = governor(tmp_path, aip44={"capabilities": own})
    able = {"loadSession": True, "promptCapabilities": {"audio": True, "image": True}}
    declared = {"agent": {"loadSession": True, "promptCapabilities": {"audio": True}}}
    assert it.effective({"agent": able}) == declared
    assert it.lends({"terminal": True, "fs": {"readTextFile": True}}) == {"terminal": True}


def test_paths_are_read_where_they_may_not_be_written(tmp_path: Path) -> None:
    it = governor(tmp_path)
    assert it.admit(f"{tmp_path}/a", write=True) == f"{tmp_path}/a"
    with pytest.raises(Denied, match="outside"):
        it.admit("/etc/passwd")
    vars(it)["_roots"] = Roots((Root(path=str(tmp_path), writable=False),))
    assert it.admit(f"{tmp_path}/a") == f"{tmp_path}/a"
    with pytest.raises(Denied, match="not to be written"):
        it.admit(f"{tmp_path}/a", write=True)


def test_every_session_is_given_the_servers_of_the_manifest(tmp_path: Path) -> None:
    server = {"kind": "binary", "path": "/usr/bin/box", "args": ["/x"], "env": {"A": "1"}}
    write(tmp_path / "mcp/box.MCP.md", {"kind": "mcp", "server": server, "transport": "stdio"})
    it = alone(tmp_path, {"mcp_servers": [{"name": "box", "transport": "stdio", "ref": "../mcp/box.MCP.md"}]})
    (found,) = it.servers
    assert (found.name, found.transport, found.command) == ("box", "stdio", ("/usr/bin/box", "/x"))
    assert (dict(found.env), found.url) == ({"A": "1"}, "")


def test_a_tool_is_offered_by_the_server_that_it_is_granted_of(tmp_path: Path) -> None:
    it = governor(tmp_path, tools=["read", {"kind": "mcp", "server": "mail", "allow": ["send"]}])
    offered = {(tool, server): it.offers(tool, server) for tool in ("read", "send") for server in (None, "mail")}
    assert offered == {("read", None): True, ("read", "mail"): False, ("send", None): False, ("send", "mail"): True}
    assert it.offers("read") and not it.offers("send")


def test_a_session_is_opened_for_whoever_is_known(tmp_path: Path) -> None:
    async def scene() -> None:
        async with house(tmp_path, None) as at:  # type: ignore[arg-type]
            it: Any = at.engine.agents.extension("scripted", "test", "governor")
            await it.opened("nobody's")
            await it.opened("ann's", principal="ann", protocol="test")

    run(scene())
    assert [line.get("output") for line in audited(tmp_path)] == [{}, {"protocol": "test", "principal": "ann"}]


@pytest.mark.parametrize(
    ("aip44", "key"),
    [
        ({"capabilities": {"agent": {"mcpCapabilities": {"http": True}}}}, "capabilities.agent.mcpCapabilities.http"),
        ({"tier": "sandboxed", "sandbox": "../SANDBOX.md"}, "tier"),
    ],
)
def test_a_broken_promise_is_told_with_the_key_that_makes_it(tmp_path: Path, aip44: dict[str, Any], key: str) -> None:
    write(tmp_path / "SANDBOX.md", SANDBOX)
    mistakes = governor(tmp_path, aip44=aip44).broken(AGENT)
    what = "promises agent.mcpCapabilities.http, which agent scripted cannot do"
    assert [str(mistake).partition("metadata.aip44.")[2] for mistake in mistakes] == [f"{key}: {what}"]


@pytest.mark.parametrize(("kind", "ephemeral"), [("none", True), ("thread", False)])
def test_what_an_operator_without_memory_was_told_is_forgotten(tmp_path: Path, kind: str, ephemeral: bool) -> None:
    write(tmp_path / "coder/OPERATOR.md", with_(OPERATOR, memory={"kind": kind}))
    assert alone(tmp_path, {"operator": "../coder/OPERATOR.md"}).ephemeral is ephemeral
    assert not alone(tmp_path).ephemeral


def test_a_stray_call_is_recorded_with_its_reason_and_a_session_with_its_end(tmp_path: Path) -> None:
    async def scene() -> None:
        async with house(tmp_path, None) as at:  # type: ignore[arg-type]
            it: Any = at.engine.agents.extension("scripted", "test", "governor")
            await it.opened("t")
            await it.stray("t", "read", {"path": "a"}, why="it came too late")
            await it.stray("t", "read", None)
            await it.closed("t")
            await it.opened("t")

    run(scene())
    lines = [(line["action"], line["metadata"]["aip44"]["audit"].get("why")) for line in audited(tmp_path)[1:]]
    refused = [("tool.refused", "it came too late"), ("tool.refused", "it came outside of any run")]
    assert lines == [*refused, ("audit.closed", None), ("operator.invoked", None)]
    record = audited(tmp_path)[1]["metadata"]["aip44"]["audit"]
    assert set(record) == {"audit-event-kind", "operator", "session", "tool", "call", "why", "risk"}
    assert record["risk"] == 0


def test_nothing_is_done_before_its_log_is_open(tmp_path: Path) -> None:
    async def never(number: int) -> AuditLog:
        raise AssertionError("nobody opens it")

    with pytest.raises(Unavailable, match="the audit log is not open"):
        run(RouteGovernor(documents(tmp_path), Journal(never, spend=spends_nothing)).opened("t"))


async def test_of_a_run_without_a_thread_nothing_is_remembered(tmp_path: Path) -> None:
    async with house(tmp_path, calling("read")) as at:
        it: Any = at.engine.agents.extension("scripted", "test", "governor")
        await at.ended(one := await at.start())
        assert it.session(one.id).state is None


def test_a_route_without_rules_before_or_after_a_reload_keeps_the_rules_of_its_runs(tmp_path: Path) -> None:
    enforcement, free = Enforcement(Engine(open_store("sqlite://")).records, spends_nothing), Scripted(silent)
    before, after = (enforcement.wrap(Scripted(silent), documents(tmp_path)) for _ in range(2))
    for one, other in ((before, free), (free, before), (before, after)):
        assert before.governor.current is before.governor
        enforcement.replace(one, other)
    assert before.governor.current is after.governor
    assert enforcement.broken(free, AGENT) == [] == enforcement.broken(before, AGENT)


def test_a_deviation_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    enforcement = Enforcement(Engine(open_store("sqlite://")).records, spends_nothing)
    binding = documents(tmp_path, aip44={"acp_rev": "1234567"})
    for _ in range(2):
        enforcement.wrap(Scripted(silent), binding)
    assert [text for text in caplog.messages if "pins 1234567" in text] == [str(binding.cautions[0])]


def test_a_route_without_skills_tells_none(tmp_path: Path) -> None:
    assert governor(tmp_path).skills == ()
