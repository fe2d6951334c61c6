"""What cannot be audited is not done; what was audited outlives the process."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Denied, Unavailable
from gateway.core.types import Interrupt, RunStatus
from gateway.governance.audit import AuditBroken, files, logs, verify
from gateway.governance.enforcing import journal
from gateway.store.opening import open_store
from tests.governance.enforcing.support import (
    ANN,
    BOB,
    NO,
    YES,
    audited,
    call,
    calling,
    documents,
    house,
    told,
    verified,
)
from tests.support.scripted import until


class Disk:
    """Takes what is written, or not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        write = files.write

        def written(fd: int, data: bytes) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            write(fd, data)

        monkeypatch.setattr(files, "write", written)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


# --- a disk that is full -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["read", "send", "drop"])
async def test_a_call_that_cannot_be_audited_is_not_shown_and_ends_the_run(
    tmp_path: Path, disk: Disk, tool: str
) -> None:
    async def script(context: RunContext) -> None:
        disk.full = True
        context.emit(e.PartDelta(part="text", delta="text is no call;"))
        await call(context, tool)
        context.emit(e.PartDelta(part="text", delta="never"), e.RunFinished())

    async with house(tmp_path, script) as at:
        one = await at.start()
        found = await at.ended(one, RunStatus.ERROR)
        assert found.failure is not None
        assert (found.failure.code, found.failure.retryable) == ("unavailable", True)
        assert await at.shown(one) == ["text is no call;", "RunFailed"] and at.outbound.cancels == 1
        disk.full = False
    verified(tmp_path)


async def test_a_result_that_cannot_be_audited_is_not_shown(tmp_path: Path, disk: Disk) -> None:
    async def script(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="read"))
        await context.drain()
        disk.full = True
        context.emit(e.ToolCallEnded(call="c1", output="secret"), e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        one = await at.start()
        found = await at.ended(one, RunStatus.ERROR)
        assert found.failure is not None and found.failure.code == "unavailable"
        assert "secret" not in str(await at.events(one))


async def test_a_run_that_cannot_be_audited_is_not_started(tmp_path: Path, disk: Disk) -> None:
    async with house(tmp_path, calling("read")) as at:
        disk.full = True
        with pytest.raises(Unavailable):
            await at.start()
        assert not at.engine.live and not at.outbound.contexts
        disk.full = False
        await at.ended(await at.start())


async def test_an_end_that_cannot_be_audited_is_no_success(tmp_path: Path, disk: Disk) -> None:
    async def script(context: RunContext) -> None:
        disk.full = True
        context.emit(e.RunFinished())

    async with house(tmp_path, script) as at:
        found = await at.ended(await at.start(), RunStatus.ERROR)
        assert found.failure is not None and found.failure.code == "unavailable"


async def test_an_answer_that_cannot_be_audited_is_not_taken(tmp_path: Path, disk: Disk) -> None:
    async with house(tmp_path, calling("send")) as at:
        one = await at.start()
        await at.asked(one)
        disk.full = True
        with pytest.raises(Unavailable):
            await at.answer(one, YES)
        assert (await at.engine.runs.get(one.id)).status is RunStatus.INTERRUPTED
        disk.full = False
        await at.answer(one, YES)
        await at.ended(one)
    assert told(tmp_path).count("approval.granted send") == 1


async def test_an_act_that_cannot_be_audited_is_not_done(tmp_path: Path, disk: Disk) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        disk.full = True
        with pytest.raises(Unavailable):
            await context.governed.act("fs.write", {}, risk=1)
        with pytest.raises(Denied):
            await context.governed.act("fs.write", {}, risk=1)
        context.emit(e.RunFinished())

    async with house(tmp_path, script) as at:
        found = await at.ended(await at.start(), RunStatus.ERROR)
        assert found.failure is not None and found.failure.code == "unavailable"


async def test_an_act_that_waits_for_an_approval_ends_with_a_run_that_cannot_be_audited(
    tmp_path: Path, disk: Disk
) -> None:
    """It waits for the answer about the call that was told by an event, whose question goes first."""
    ends: list[str] = []

    async def script(context: RunContext) -> None:
        governed = context.governed
        assert governed is not None
        governed.describe("c1", tool="send", server="mail", risk=0)
        context.emit(e.ToolCallStarted(call="c1", name="send", kind="read", input={}))
        await until(lambda: bool(context.run.interrupts))
        act = asyncio.ensure_future(governed.act("send", {}, risk=0, server="mail"))
        await asyncio.sleep(0)
        disk.full = True
        with pytest.raises(Unavailable):
            await governed.act("fs.write", {}, risk=1)
        with pytest.raises(Denied) as refused:
            await act
        ends.append(str(refused.value))

    tools = [{"kind": "mcp", "server": "mail", "allow": ["send"]}, {"id": "fs.write"}]
    async with house(tmp_path, script, binding=documents(tmp_path, tools=tools)) as at:
        one = await at.start()
        await until(lambda: bool(ends))
        await at.ended(one, RunStatus.ERROR)
        assert [text for text in await at.shown(one) if text.startswith("?")] == ["? approval-c1"]
    assert ends == ["the run is over"]


# --- starts and restarts -----------------------------------------------------------------------------------------


async def test_a_second_gateway_in_the_folder_has_a_log_of_its_own_and_the_next_ones_go_on_with_both(
    tmp_path: Path,
) -> None:
    for _ in range(2):
        async with house(tmp_path, calling("read")) as at:
            other = open_store(f"sqlite:///{tmp_path}/other.db")
            async with house(tmp_path, calling("read"), binding=documents(tmp_path), store=other) as beside:
                await beside.ended(await beside.start())
                await at.ended(await at.start())
    once = ["operator.invoked", "operator.running", "tool.call read", "tool.result read", "operator.completed"]
    assert told(tmp_path) == 2 * once
    first, second = logs([tmp_path]).values()
    assert [file.name for file in (*first, *second)] == ["audit-log.jsonl", "audit-log-2.jsonl"]
    assert [verify(files).entries for files in (first, second)] == [10, 10]
    assert not verify(second).mistakes


async def test_budgets_count_what_is_spent_in_every_log_of_the_folder(tmp_path: Path) -> None:
    bound = documents(tmp_path, writes=2)
    async with house(tmp_path, calling("write"), binding=bound) as at:
        await at.ended(await at.start())
        other = open_store(f"sqlite:///{tmp_path}/other.db")
        async with house(tmp_path, calling("write", "write"), binding=bound, store=other) as beside:
            await beside.asked(await beside.start())  # the second is one too many
    assert (tmp_path / "audit-log-2.jsonl").read_text().count("approval.requested") == 1


async def test_a_log_that_somebody_changed_does_not_open(tmp_path: Path) -> None:
    async with house(tmp_path, calling("read")) as at:
        await at.ended(await at.start())
    file = tmp_path / "audit-log.jsonl"
    file.write_text(file.read_text().replace("tool.call", "tool.cell"))
    with pytest.raises(AuditBroken):
        async with house(tmp_path, calling()):
            pass


async def test_a_log_whose_past_cannot_be_read_does_not_open_and_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "read", broken)
        with pytest.raises(Unavailable, match="what was recorded cannot be read"):
            async with house(tmp_path, calling()):
                pass
    async with house(tmp_path, calling()) as at:
        await at.ended(await at.start())


async def test_a_log_that_was_cut_off_is_found_by_the_head_in_the_store(tmp_path: Path) -> None:
    async with house(tmp_path, calling("read")) as at:
        await at.ended(await at.start())
    file = tmp_path / "audit-log.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(AuditBroken, match="it was cut off"):
        async with house(tmp_path, calling()):
            pass


async def test_a_restart_refills_no_budget(tmp_path: Path) -> None:
    for expected in ([2, 1], [0, 1]):
        async with house(tmp_path, calling("write", "write", "write"), writes=2) as at:
            one = await at.start()
            await at.asked(one)
            called = (await at.shown(one)).count("call write")
            asked = len([text for text in await at.shown(one) if text.startswith("?")])
            assert [called, asked] == expected
            assert (await at.engine.runs.get(one.id)).interrupts[0].payload["why"] == (
                "writes asks: its 2 calls of this day are used up"
            )
            await at.answer(one, NO)
            await at.ended(one, RunStatus.ERROR)


async def test_a_run_that_was_suspended_goes_on_waiting_after_a_restart(tmp_path: Path) -> None:
    async def first(context: RunContext) -> None:
        await context.set_upstream({"id": 7})
        await calling("read", "send")(context)

    async def again(context: RunContext) -> None:
        """The agent tells the call again that it waits with, and goes on."""
        await call(context, "send", "c2")
        context.emit(e.RunFinished())

    async with house(tmp_path, first) as at:
        one = await at.start()
        await at.asked(one)
    async with house(tmp_path, first, attach=again) as at:
        still = await at.engine.runs.get(one.id)
        assert still.status is RunStatus.INTERRUPTED and [i.id for i in still.interrupts] == ["approval-c2"]
        with pytest.raises(Denied):
            await at.answer(one, YES, BOB)
        await at.answer(one, YES, ANN)
        await at.ended(one)
        assert (await at.shown(one))[-5:] == [
            "? approval-c2", "! approval-c2 answered", "call send", "end c2", "RunFinished",
        ]  # fmt: skip
    assert told(tmp_path).count("approval.granted send") == 1
    assert [line["seq"] for line in audited(tmp_path)] == list(range(len(audited(tmp_path))))
    verified(tmp_path)


async def test_a_call_that_was_open_when_the_gateway_stopped_is_over_with_its_run(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="read"))
        await context.drain()
        await context.ask(Interrupt(id="q", kind="input"))

    async with house(tmp_path, script) as at:
        one = await at.start()
        await at.asked(one)
    async with house(tmp_path, script) as at:  # the protocol cannot find it again
        found = await at.ended(one, RunStatus.ERROR)
        assert found.failure is not None and found.failure.code == "outcome_unknown"
    assert told(tmp_path)[-3:] == ["operator.suspended", "tool.result read", "operator.interrupted"]
    last = audited(tmp_path)[-1]["metadata"]["aip44"]["audit"]
    assert (last["from"], last["to"]) == ("suspended", "interrupted")
    verified(tmp_path)


# --- turns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approved", [True, False])
async def test_a_gated_operator_takes_no_turn_without_somebodys_word(tmp_path: Path, approved: bool) -> None:
    async with house(tmp_path, calling(), autonomy="gated") as at:
        one = await at.start()
        await at.asked(one)
        assert not at.outbound.contexts
        await at.answer(one, YES if approved else NO)
        found = await at.ended(one, RunStatus.SUCCESS if approved else RunStatus.ERROR)
        assert bool(at.outbound.contexts) is approved
        assert found.failure is None or "the turn was not approved" in found.failure.message
