"""Where audit logs are, whose they are, and for how long; and routes that hardly anything governs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gateway.app import App
from gateway.config import load
from gateway.contract.governing import APPROVAL, governor_named, governor_of, run_governor_of
from gateway.core.errors import Unavailable
from gateway.core.types import RunStatus
from gateway.governance.audit import AuditLog, aip44
from gateway.governance.audit.files import log_path
from gateway.governance.binding import bind
from gateway.governance.enforcing import RouteGovernor
from gateway.runs.recovery import Claimed, Recovery
from tests.governance.enforcing.support import YES, calling, documents, house, told, verified
from tests.governance.support import OPERATOR, manifest, with_, write
from tests.support.aio import run

NOBODY = {"protocol": "example", "url": "http://127.0.0.1:1/echo"}


def test_the_log_is_where_the_posture_has_it_stored(tmp_path: Path) -> None:
    async def scene() -> None:
        storage = {"storage": f"file://{tmp_path}/logs%20here"}
        async with house(tmp_path, calling("read"), audit=storage) as at:
            await at.ended(await at.start())

    run(scene())
    assert "tool.call read" in told(tmp_path / "logs here") and not told(tmp_path)
    verified(tmp_path / "logs here")


def test_an_external_log_is_written_to_the_folder_that_the_manifest_names(tmp_path: Path) -> None:
    """And not to the one of the posture; the rules are the posture's."""

    async def scene() -> None:
        audit = {"kind": "external", "ref": f"file://{tmp_path}/elsewhere%20else"}
        external = documents(tmp_path, aip44={"audit": audit}, audit={"storage": f"file://{tmp_path}/logs"})
        async with house(tmp_path, calling("read", "drop"), binding=external) as at:
            one = await at.start()
            await at.ended(one, RunStatus.ERROR)
            assert "call read" in await at.shown(one) and "call drop" not in await at.shown(one)

    run(scene())
    assert {"tool.call read", "tool.refused drop"} <= set(told(tmp_path / "elsewhere else"))
    assert not told(tmp_path) and not told(tmp_path / "logs")
    verified(tmp_path / "elsewhere else")


def test_a_manifest_that_stands_alone_only_minds_capabilities_and_paths(tmp_path: Path) -> None:
    async def scene() -> None:
        alone = bind(manifest(tmp_path / "scripted"), tmp_path)
        async with house(tmp_path, calling("drop"), binding=alone) as at:
            one = await at.start()
            assert at.engine.live[one.id].interceptor is None
            await at.ended(one)
            assert governor_of(at.outbound.contexts[0]) is not None and run_governor_of(at.outbound.contexts[0]) is None
            assert "call drop" in await at.shown(one)

    run(scene())
    assert not list(tmp_path.glob("audit-log*"))


def test_an_operator_without_a_posture_is_kept_to_its_tools_and_nothing_is_recorded(tmp_path: Path) -> None:
    async def scene() -> None:
        write(tmp_path / "coder/OPERATOR.md", with_(OPERATOR, tools=["read"]))
        lonely = bind(manifest(tmp_path / "scripted", {"operator": "../coder/OPERATOR.md"}), tmp_path)
        async with house(tmp_path, calling("read", "drop"), binding=lonely) as at:
            one = await at.asked(await at.start())
            assert one.interrupts[0].payload["tool"] == "read"
            await at.answer(one, YES)
            await at.ended(one, RunStatus.ERROR)
            assert "call read" in await at.shown(one) and "call drop" not in await at.shown(one)

    run(scene())
    assert not list(tmp_path.rglob("audit-log*"))


async def test_an_agent_publishes_the_question_that_its_rules_may_ask(tmp_path: Path) -> None:
    documents(tmp_path)
    (tmp_path / "routes.yaml").write_text(
        json.dumps({"routes": [{"name": "a", "target": NOBODY, "manifest": "scripted/ACP.md"}]})
    )

    app = App(load(tmp_path / "routes.yaml"))
    await app.start()
    agent = await app.gateway.agents.get("a", "example")
    assert agent.capabilities.interrupts and APPROVAL in [spec.kind for spec in agent.interrupts]
    await app.stop()


async def test_routes_of_one_folder_share_its_log_and_a_reload_lets_go_of_what_nobody_needs(tmp_path: Path) -> None:
    documents(tmp_path / "one")
    documents(tmp_path / "two")
    file = tmp_path / "routes.yaml"

    def table(**routes: str) -> None:
        each = [{"name": name, "target": NOBODY, "manifest": f"{at}/scripted/ACP.md"} for name, at in routes.items()]
        file.write_text(json.dumps({"routes": [*each, {"name": "free", "target": NOBODY}]}))

    async def is_taken(folder: str) -> bool:
        log = AuditLog(log_path(tmp_path / folder, 1))
        try:
            await log.open()
        except Unavailable:
            return True
        await log.aclose()
        return False

    table()
    app = App(load(file))
    await app.start()
    assert governor_named(app.gateway.agents, "free", "example") is None
    table(a="one", b="one")  # the first that are governed come later
    await app.reload(load(file))
    assert await is_taken("one")
    for name in ("a", "b"):
        governor = governor_named(app.gateway.agents, name, "example")
        assert governor is not None
        await governor.opened(f"session of {name}")
    assert told(tmp_path / "one") == ["operator.invoked", "operator.invoked"]
    (tmp_path / "two" / "audit-log.jsonl").mkdir()
    table(a="two")
    with pytest.raises(Unavailable, match="cannot be opened"):
        await app.reload(load(file))
    assert governor_named(app.gateway.agents, "b", "example") is not None, "the old table stays"
    (tmp_path / "two" / "audit-log.jsonl").rmdir()
    before = governor_named(app.gateway.agents, "a", "example")
    await app.reload(load(file))
    assert isinstance(before, RouteGovernor) and before.next is governor_named(app.gateway.agents, "a", "example"), (
        "it judges runs that go on"
    )
    assert await is_taken("two") and not await is_taken("one")
    await app.stop()
    assert not await is_taken("two")


async def test_a_reload_ends_nothing_of_a_run_that_is_being_taken_over_and_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents(tmp_path)
    file = tmp_path / "routes.yaml"
    file.write_text(json.dumps({"routes": [{"name": "a", "target": NOBODY, "manifest": "scripted/ACP.md"}]}))

    reached, go = asyncio.Event(), asyncio.Event()
    app = App(load(file))
    await app.start()
    governor = governor_named(app.gateway.agents, "a", "example")
    assert isinstance(governor, RouteGovernor)
    async with AuditLog(log_path(tmp_path, 2)) as dead:
        running = {"operator": "o", "session": "s", "before": None, "after": "running", "why": None}
        await dead.append(aip44.transition(**running))  # type: ignore[arg-type]

    async def slow(recovery: Recovery, claimed: Claimed) -> bool:
        await claimed([])
        reached.set()
        await go.wait()
        governor.session("s").goes_on("running", ())
        return True

    monkeypatch.setattr(Recovery, "take_up", slow)
    adopting = asyncio.ensure_future(app.gateway.adopt())
    await reached.wait()
    file.write_text(file.read_text().replace('"a"', '"b"'))
    await asyncio.wait_for(app.reload(load(file)), 30)  # before the agent of that run says what it is, if ever
    assert governor_named(app.gateway.agents, "b", "example") is not None
    go.set()
    await adopting
    assert len((tmp_path / "audit-log-2.jsonl").read_bytes().splitlines()) == 1
    await app.stop()


async def test_a_reload_that_needs_a_log_no_more_lets_go_of_what_is_just_being_taken_over_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents(tmp_path)
    file, bare = tmp_path / "routes.yaml", tmp_path / "bare.yaml"
    file.write_text(json.dumps({"routes": [{"name": "a", "target": NOBODY, "manifest": "scripted/ACP.md"}]}))
    bare.write_text("routes: []\n")

    reached, go, opened = asyncio.Event(), asyncio.Event(), AuditLog.open
    app = App(load(file))
    await app.start()
    async with AuditLog(log_path(tmp_path, 2)) as dead:
        running = {"operator": "o", "session": "s", "before": None, "after": "running", "why": None}
        await dead.append(aip44.transition(**running))  # type: ignore[arg-type]

    async def slow(log: AuditLog) -> None:
        reached.set()
        await go.wait()
        await opened(log)

    async def take_up(recovery: Recovery, claimed: Claimed) -> bool:
        await claimed([])
        return True

    monkeypatch.setattr(Recovery, "take_up", take_up)
    monkeypatch.setattr(AuditLog, "open", slow)
    adopting = asyncio.ensure_future(app.gateway.adopt())
    await reached.wait()
    reloading = asyncio.ensure_future(app.reload(load(bare)))
    await asyncio.wait({reloading}, timeout=0.2)
    go.set()
    await asyncio.gather(adopting, reloading)
    for number in (1, 2):
        async with AuditLog(log_path(tmp_path, number)):
            pass
    await app.stop()
