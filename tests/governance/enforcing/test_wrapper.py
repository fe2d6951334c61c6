"""A governed outbound half: it offers what the half offers that it wraps, and what that half is given has the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway.contract import Discovering, Outbound, Relay, RunContext, Stateful, Supervised, ThreadContext
from gateway.contract.governing import governor_named, governor_of, run_governor_of
from gateway.core import events as e
from gateway.core.errors import NotFound, Unsupported
from gateway.core.types import Checkpoint, JsonObject, RunStatus, ThreadUpdate
from gateway.governance.audit.log import AuditLog
from gateway.governance.enforcing import Enforcement, GovernedOutbound
from gateway.runs import Engine
from gateway.store.opening import open_store
from tests.governance.enforcing.support import YES, Ruled, audited, call, documents, house, told, verified
from tests.governance.support import spends_nothing
from tests.support.scripted import Scripted, until

NOTHING = msgspec.Raw(b"{}")


def wrapped(folder: Path, half: Outbound) -> Any:
    return Enforcement(Engine(open_store("sqlite://")).records, spends_nothing).wrap(half, documents(folder))


async def silent(context: RunContext) -> None:
    """Says nothing."""
    context.emit(e.RunFinished())


class Able(Scripted):
    """Offers what a half may offer, but knows of no rules."""

    reachable = True
    discovers = True

    def __init__(self) -> None:
        super().__init__(silent)
        self.log: list[Any] = []
        self.now = {"one": Scripted(silent), "two": Scripted(silent)}

    async def discover(self) -> Mapping[str, Outbound]:
        return self.now

    def on_change(self, changed: Callable[[], None]) -> None:
        self.log.append(changed)

    async def relay(self, context: ThreadContext, method: str, params: msgspec.Raw) -> msgspec.Raw:
        self.log.append((context, method))
        return params

    async def forward(self, context: ThreadContext, method: str, params: msgspec.Raw) -> None:
        self.log.append((context, method))

    async def read_thread(self, upstream: JsonObject) -> Checkpoint:
        return Checkpoint(id="c", thread="t", created_at=0.0, values=upstream)

    async def read_history(self, upstream: JsonObject, *, limit: int, before: str | None) -> Sequence[Checkpoint]:
        return [Checkpoint(id=str(before), thread="t", created_at=0.0, values=limit)]

    async def copy_thread(self, upstream: JsonObject) -> JsonObject:
        return {**upstream, "copied": True}

    async def update_thread(self, upstream: JsonObject, **change: Any) -> None:
        self.log.append((upstream, change))


def test_it_offers_the_abilities_of_the_half_that_it_wraps_and_no_others(tmp_path: Path) -> None:
    plain, able = wrapped(tmp_path, Scripted(silent)), wrapped(tmp_path, Able())
    for ability in (Discovering, Relay, Stateful, Supervised):
        assert isinstance(able, ability) and not isinstance(plain, ability), ability  # type: ignore[misc]
    assert able.reachable is True and able.discovers is True


async def test_it_asks_of_an_agent_what_the_manifest_promises_and_closes_the_half_that_it_wraps(tmp_path: Path) -> None:
    half = Scripted(silent)
    promising = documents(tmp_path, aip44={"capabilities": {"agent": {"promptCapabilities": {"audio": True}}}})
    able = Enforcement(Engine(open_store("sqlite://")).records, spends_nothing).wrap(half, promising)
    assert "agent.promptCapabilities.audio" in able.unmet(half.agent)
    await able.aclose()
    assert half.closed


async def test_a_threads_state_is_the_wrapped_halfs(tmp_path: Path) -> None:
    half = Able()
    able = wrapped(tmp_path, half)
    assert (await able.read_thread({"id": 1})).values == {"id": 1}
    (old,) = await able.read_history({}, limit=3, before="x")
    assert (old.id, old.values) == ("x", 3)
    assert await able.copy_thread({"id": 1}) == {"id": 1, "copied": True}
    await able.update_thread({"id": 1}, base="b", values=2, messages=None)
    assert half.log == [({"id": 1}, {"base": "b", "values": 2, "messages": None})]
    able.on_change(print)
    assert half.log[-1] is print


async def test_agents_that_are_found_at_a_governed_target_are_governed_by_its_rules(tmp_path: Path) -> None:
    half = Able()
    able = wrapped(tmp_path, half)
    first = await able.discover()
    assert [found.half for found in first.values()] == [*half.now.values()]
    assert {found.governor for found in first.values()} == {able.governor}
    half.now = {"two": half.now["two"], "one": Scripted(silent)}
    second = await able.discover()
    assert second["two"] is first["two"] and second["one"] is not first["one"]
    del half.now["two"]
    assert [*await able.discover()] == ["one"]


async def test_a_half_that_knows_of_no_rules_is_relayed_nothing(tmp_path: Path) -> None:
    half = Able()
    able = wrapped(tmp_path, half)
    context: Any = SimpleNamespace(agent=half.agent)
    for way in (able.relay, able.forward):
        with pytest.raises(Unsupported, match="agent scripted is governed"):
            await way(context, "tools/call", NOTHING)
    assert half.log == []


async def test_a_half_that_knows_of_rules_is_given_them_with_what_is_relayed(tmp_path: Path) -> None:
    class Knows(Able, Ruled):
        pass

    half = Knows()
    able = wrapped(tmp_path, half)
    context: Any = SimpleNamespace(agent=half.agent, thread=None, caller="me", callers=["me"], upstream_thread={})
    assert await able.relay(context, "session/list", NOTHING) == NOTHING
    await able.forward(context, "session/cancel", NOTHING)
    for given, _ in half.log:
        assert governor_of(given) is able.governor
        assert (given.agent, given.thread, given.caller, given.callers) == (half.agent, None, "me", ["me"])
    assert [method for _, method in half.log] == ["session/list", "session/cancel"]


async def test_whoever_serves_clients_is_told_what_governs_an_agent(tmp_path: Path) -> None:
    async with house(tmp_path, silent) as at:
        half = at.engine.agents.configured[0].outbound
        assert isinstance(half, GovernedOutbound)
        assert governor_named(at.engine.agents, "scripted", "test") is half.governor
        assert at.engine.agents.extension("scripted", "test", "something else") is None
        with pytest.raises(NotFound):
            governor_named(at.engine.agents, "nobody", "test")
        await at.ended(await at.start())
        context = at.outbound.contexts[0]
        assert governor_of(context) is half.governor and run_governor_of(context) is not None


async def test_what_an_agent_gives_behind_a_call_that_waits_is_shown_behind_it(tmp_path: Path) -> None:
    """Files and notes take the way of the events."""

    async def script(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="send"))
        await context.add_artifact("a.txt", b"made")
        context.note(ThreadUpdate(protocol="test", kind="title", data={"title": "noted"}, kept=True))
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        await at.asked(one := await at.start())
        kinds = [type(event) for event in await at.events(one)]
        assert e.ArtifactAdded not in kinds and e.Custom not in kinds
        await at.answer(one, YES)
        await at.ended(one)
        kinds = [type(event) for event in await at.events(one)]
        wanted = [e.ToolCallStarted, e.ArtifactAdded, e.Custom, e.ToolCallEnded]
        assert [kind for kind in kinds if kind in wanted] == wanted


async def test_a_run_that_was_stopped_shows_no_file_that_its_agent_makes_after_that(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        await call(context, "drop")
        await until(lambda: context.cancelled)
        await context.add_artifact("a.txt", b"made")
        context.note(ThreadUpdate(protocol="test", kind="title", data={"title": "noted"}, kept=True))

    async with house(tmp_path, script) as at:
        found = await at.ended(one := await at.start(), RunStatus.ERROR)
        assert found.failure is not None and found.failure.code == "denied"
        kinds = {type(event) for event in await at.events(one)}
        assert not kinds & {e.ArtifactAdded, e.Custom}
    verified(tmp_path)


async def test_a_queued_run_that_cannot_be_audited_ends_as_failed_and_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise Unsupported("the log takes nothing")

    async with house(tmp_path, silent) as at:
        with monkeypatch.context() as patch:
            patch.setattr(AuditLog, "append", full)
            one = await at.start(start_at=1.5, if_busy="enqueue")
            await at.ended(one, RunStatus.ERROR)
        assert not at.outbound.contexts
    assert told(tmp_path) == [] == audited(tmp_path)
