"""What enforcement rests on: each check by itself, and the same with the check taken out, which has to be noticed.

A scene says what a client, an agent or a reader of the log sees of a governed run; a strip takes one check out of the
gateway. Every scene holds as it is, and fails with its strip.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.contract.governing import governor_named
from gateway.core import events as e
from gateway.core.errors import Denied, InterlinguaError, Unavailable
from gateway.core.types import Answer, Interrupt, RunStatus
from gateway.governance.audit import files
from gateway.governance.binding import Roots
from gateway.governance.enforcing import RouteGovernor, calls
from gateway.governance.enforcing.gate import RunGate
from gateway.governance.enforcing.journal import Journal
from gateway.governance.enforcing.judge import Judge
from gateway.governance.enforcing.session import AuditedSession
from gateway.governance.policy import Decision, Kind, PolicyRules
from tests.governance.enforcing.support import ANN, BOB, YES, call, calling, documents, house, told
from tests.support.aio import run

Scene = Callable[[Path], Awaitable[None]]
Strip = Callable[[pytest.MonkeyPatch], None]


# --- scenes ------------------------------------------------------------------------------------------------------


async def denied_is_never_shown(folder: Path) -> None:
    async with house(folder, calling("drop")) as at:
        one = await at.start()
        found = await at.until(one, RunStatus.ERROR)
        assert found.failure is not None and found.failure.code == "denied"
        assert "call drop" not in await at.shown(one)


async def ungranted_is_never_shown(folder: Path) -> None:
    async with house(folder, calling("spend")) as at:
        one = await at.start()
        await at.until(one, RunStatus.ERROR)
        assert "call spend" not in await at.shown(one)


async def approval_is_waited_for(folder: Path) -> None:
    async with house(folder, calling("send")) as at:
        one = await at.start()
        await at.asked(one)
        assert "call send" not in await at.shown(one)


async def only_approvers_approve(folder: Path) -> None:
    async with house(folder, calling("send")) as at:
        one = await at.start()
        await at.asked(one)
        try:
            await at.answer(one, YES, BOB)
        except Denied:
            return
        raise AssertionError("bob is no editor")


async def a_quorum_is_waited_for(folder: Path) -> None:
    async with house(folder, calling("send"), quorum=2) as at:
        one = await at.start()
        await at.asked(one)
        answered = await at.answer(one, YES, ANN)
        assert answered.status is RunStatus.INTERRUPTED


async def the_agents_asking_is_no_approval(folder: Path) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        question = Interrupt(id="permission-1", kind="permission")
        answer = await context.governed.permission(
            "c1", "send", {}, risk=2, question=question, grants=lambda given: given.value == "yes"
        )
        assert answer is not None, "then the route's policy has the word"
        context.emit(e.RunFinished())

    async with house(folder, script) as at:
        await at.asked(await at.start())


async def a_call_is_audited_before_it_is_shown(folder: Path) -> None:
    async def script(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="read"))
        await context.drain()
        assert told(folder)[-1] == "tool.call read"
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())

    async with house(folder, script) as at:
        await at.ended(await at.start())


async def a_result_is_audited(folder: Path) -> None:
    async with house(folder, calling("read")) as at:
        await at.ended(await at.start())
    assert "tool.result read" in told(folder)


async def a_refusal_is_audited(folder: Path) -> None:
    async with house(folder, calling("drop")) as at:
        await at.ended(await at.start(), RunStatus.ERROR)
    assert "tool.refused drop" in told(folder)


async def an_approval_is_audited(folder: Path) -> None:
    async with house(folder, calling("send")) as at:
        one = await at.start()
        await at.asked(one)
        await at.answer(one, YES)
        await at.ended(one)
    assert "approval.granted send" in told(folder)


async def transitions_are_audited(folder: Path) -> None:
    async with house(folder, calling("read")) as at:
        await at.ended(await at.start())
    states = [kind for kind in told(folder) if kind.startswith("operator")]
    assert states == ["operator.invoked", "operator.running", "operator.completed"]


async def what_cannot_be_audited_is_not_shown(folder: Path) -> None:
    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def script(context: RunContext) -> None:
        with pytest.MonkeyPatch.context() as disk:
            disk.setattr(files, "write", full)
            await call(context, "read")
        context.emit(e.RunFinished())

    async with house(folder, script) as at:
        one = await at.start()
        await at.until(one)
        assert "call read" not in await at.shown(one)


async def an_act_is_decided(folder: Path) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        try:
            await context.governed.act("drop", {}, risk=0)
        except Denied:
            context.emit(e.PartDelta(part="text", delta="denied"))
        context.emit(e.RunFinished())

    async with house(folder, script) as at:
        one = await at.start()
        await at.ended(one)
        assert "denied" in await at.shown(one)


async def paths_stay_inside(folder: Path) -> None:
    async with house(folder, calling()) as at:
        governor = governor_named(at.engine.agents, "scripted", "test")
        assert governor is not None
        (folder / "out").symlink_to("/etc")
        for path in ("/etc/passwd", f"{folder}/../x", f"{folder}/out/passwd"):
            try:
                governor.admit(path)
            except Denied:
                continue
            raise AssertionError(f"{path} is outside")


async def what_may_not_be_had_is_not_offered(folder: Path) -> None:
    async with house(folder, calling()) as at:
        governor = governor_named(at.engine.agents, "scripted", "test")
        assert governor is not None and governor.offers("read")
        assert not governor.offers("spend") and not governor.offers("read", "github")


async def promises_are_kept(folder: Path) -> None:
    binding = documents(folder, aip44={"capabilities": {"agent": {"mcpCapabilities": {"http": True}}}})
    async with house(folder, calling(), binding=binding) as at:
        try:
            await at.start()
        except Unavailable:
            return
        raise AssertionError("the agent has no such capability")


async def budgets_are_kept(folder: Path) -> None:
    async with house(folder, calling("write", "write"), writes=1) as at:
        one = await at.start()
        await at.asked(one)
        assert (await at.shown(one)).count("call write") == 1


# --- strips ------------------------------------------------------------------------------------------------------


def always(kind: Kind) -> Callable[..., Decision]:
    return lambda *_, **__: Decision(kind=kind, policy=None, why="stripped")


async def nothing(*_: Any, **__: Any) -> None:
    """In place of what records."""


async def true(*_: Any, **__: Any) -> bool:
    return True


async def swallowed(self: Journal, *events: Any) -> None:
    try:
        await write(self, *events)
    except InterlinguaError:
        return


async def granted(self: Judge, *_: Any, **__: Any) -> Answer | None:
    return None


async def shown_first(self: AuditedSession, *arguments: Any, **more: Any) -> None:
    background.append(called(self, *arguments, **more))


write = Journal.write
called = AuditedSession.called
background: list[Awaitable[None]] = []


def put(owner: Any, name: str, value: Any) -> Strip:
    return lambda patch: patch.setattr(owner, name, value)


def any_grant(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PolicyRules, "grant", lambda self, tool, server=None: object())
    patch.setattr(PolicyRules, "decide", always(Kind.ALLOW))


def one_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decision, "released", lambda self, by: True)


CHECKS: list[tuple[Scene, Strip]] = [
    (denied_is_never_shown, put(PolicyRules, "call", always(Kind.ALLOW))),
    (ungranted_is_never_shown, any_grant),
    (approval_is_waited_for, put(PolicyRules, "call", always(Kind.ALLOW))),
    (approval_is_waited_for, put(RunGate, "_may_be_shown", true)),
    (only_approvers_approve, put(calls, "check", lambda *_: None)),
    (only_approvers_approve, put(Judge, "answering", true)),
    (a_quorum_is_waited_for, one_is_enough),
    (a_quorum_is_waited_for, put(Judge, "answering", true)),
    (the_agents_asking_is_no_approval, put(Judge, "permission", granted)),
    (a_call_is_audited_before_it_is_shown, put(AuditedSession, "called", nothing)),
    (a_call_is_audited_before_it_is_shown, put(AuditedSession, "called", shown_first)),
    (a_result_is_audited, put(AuditedSession, "ended", nothing)),
    (a_refusal_is_audited, put(AuditedSession, "refused", nothing)),
    (an_approval_is_audited, put(AuditedSession, "answered", nothing)),
    (transitions_are_audited, put(AuditedSession, "moved", nothing)),
    (what_cannot_be_audited_is_not_shown, put(Journal, "write", swallowed)),
    (an_act_is_decided, put(PolicyRules, "call", always(Kind.ALLOW))),
    (paths_stay_inside, put(Roots, "admit", lambda self, path, write=False: path)),
    (what_may_not_be_had_is_not_offered, put(RouteGovernor, "offers", lambda *_: True)),
    (promises_are_kept, put(RouteGovernor, "unmet", lambda *_: "")),
    (budgets_are_kept, put(PolicyRules, "call", always(Kind.ALLOW))),
]


@pytest.mark.parametrize("scene", dict.fromkeys(scene for scene, _ in CHECKS), ids=lambda scene: scene.__name__)
def test_it_holds(tmp_path: Path, scene: Scene) -> None:
    run(scene(tmp_path))  # type: ignore[arg-type]


@pytest.mark.parametrize(("scene", "strip"), CHECKS, ids=[scene.__name__ for scene, _ in CHECKS])
def test_it_is_noticed_when_the_check_is_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scene: Scene, strip: Strip
) -> None:
    strip(monkeypatch)
    with pytest.raises(AssertionError):
        run(scene(tmp_path))  # type: ignore[arg-type]
    for waiting in background:
        waiting.close()  # type: ignore[attr-defined]
    background.clear()
