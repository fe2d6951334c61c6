"""What the gateway takes from an audit log at its start: what was spent today, and what has no end."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.governance.audit import AuditEvent, AuditLog, aip44
from gateway.governance.audit.aip44 import State
from gateway.governance.audit.files import LogFiles, log_path
from gateway.governance.binding import bind
from gateway.governance.enforcing import restoring
from gateway.governance.enforcing.governor import RouteGovernor
from tests.governance.enforcing.support import documents
from tests.governance.support import OPERATOR, manifest, with_, write
from tests.support.aio import run

WHO: dict[str, Any] = {"operator": "o", "session": "s"}
OF: dict[str, Any] = {**WHO, "tool": "t", "call": "c1"}
CALL = aip44.tool_call(**OF, arguments={"a": 1})
WAITS = aip44.tool_call(**OF, arguments={"a": 1}, approval=None)
RESULT = aip44.tool_result(**OF, result=1)
REFUSED = aip44.tool_call(**OF, arguments={}, refused=True)
CLOSED = aip44.closed(**WHO)


def granted(*, enough: bool = True, approved: bool = True) -> AuditEvent:
    return aip44.approval_given(**OF, by="ann", approved=approved, policy=None, enough=enough)


def moved(after: State) -> AuditEvent:
    return aip44.transition(**WHO, before=None, after=after)


def known(folder: Path, events: Sequence[AuditEvent]) -> restoring.RestoredLog:
    async def written() -> None:
        async with AuditLog(log_path(folder, 1)) as log:
            await asyncio.gather(*map(log.append, events))

    run(written())
    return restoring.read([log_path(folder, 1)], time.time())


ASKED = "tool.refused"
OPEN = "tool.result"
OVER = "operator.interrupted"


@pytest.mark.parametrize(
    ("events", "ends"),
    [
        ([], []),
        ([CALL], [OPEN]),
        ([CALL, RESULT], []),
        ([CALL, RESULT, CALL], [OPEN]),
        ([CALL, REFUSED], []),
        ([WAITS], [ASKED]),
        ([WAITS, granted()], [OPEN]),
        ([WAITS, granted(enough=False)], [ASKED]),
        ([WAITS, granted(enough=False), granted()], [OPEN]),
        ([WAITS, granted(approved=False)], [ASKED]),
        ([WAITS, granted(), RESULT], []),
        ([moved("invoked")], []),
        ([moved("running")], [OVER]),
        ([moved("suspended")], [OVER]),
        ([moved("resumed")], [OVER]),
        ([moved("running"), moved("completed")], []),
        ([moved("running"), moved("interrupted")], []),
        ([moved("running"), CALL], [OPEN, OVER]),
        ([moved("running"), CALL, moved("suspended"), moved("resumed"), RESULT], [OVER]),
        ([moved("running"), CLOSED], []),
        ([moved("running"), CALL, CLOSED], [OPEN]),
        ([granted(), RESULT, CLOSED], []),
    ],
)
def test_what_has_no_end_in_the_log_is_given_one(tmp_path: Path, events: list[AuditEvent], ends: list[str]) -> None:
    found = known(tmp_path, events)
    session = found.sessions.get("s", restoring.UnfinishedSession())
    told = list(session.ends("s"))
    assert [each.action for each in told] == ends and bool(session) is bool(ends)
    for each in told:
        assert each.metadata["aip44"]["audit"]["operator"] == "o" and each.metadata["aip44"]["audit"]["session"] == "s"
        if each.action == ASKED:
            assert each.input == {"a": 1} and "approval" not in each.metadata["aip44"]["audit"]
        if each.action == OPEN:
            approval = "ann" if WAITS in events else "auto"
            assert each.metadata["aip44"]["audit"]["approval"] == approval
        if each.action in (OPEN, OVER):
            told_why = {"code": "outcome_unknown", "message": "the gateway stopped before the end was known"}
            assert each.output == {"error": told_why}


def test_a_session_remembers_the_calls_of_its_run_that_have_ended_until_the_next_begins(tmp_path: Path) -> None:
    for number, (events, ended) in enumerate(
        (
            ([moved("running"), CALL, RESULT], {"c1"}),
            ([moved("running"), WAITS, REFUSED], {"c1"}),
            ([moved("running"), CALL, RESULT, moved("suspended"), moved("resumed")], {"c1"}),
            ([moved("running"), CALL, RESULT, CALL], set()),
            ([moved("running"), CALL, RESULT, moved("completed")], {"c1"}),
            ([moved("running"), CALL, RESULT, moved("interrupted"), moved("running")], set()),
        )
    ):
        assert known(tmp_path / str(number), events).sessions["s"].ended == ended


def test_a_closed_session_is_forgotten_unless_a_call_of_it_is_open(tmp_path: Path) -> None:
    assert not known(tmp_path / "1", [moved("running"), CALL, RESULT, CLOSED]).sessions
    other = {**OF, "call": "c2"}
    ended = [aip44.tool_call(**other, arguments={}), aip44.tool_result(**other, result=1)]
    left = known(tmp_path / "2", [moved("running"), *ended, CALL, CLOSED]).sessions["s"]
    assert left.state is None and [*left.calls] == ["c1"] and not left.ended


def test_what_policies_have_spent_counts_from_midnight(tmp_path: Path) -> None:
    spends = aip44.tool_call(**OF, arguments={}, budgets=["writes", "all"])
    refused = aip44.tool_call(**OF, arguments={}, refused=True, budgets=["writes"])
    found = known(tmp_path, [spends, CALL, refused, spends])
    assert [each.policy for each in found.spent] == ["writes", "all"] * 2
    assert all(abs(each.at - time.time()) < 3600 for each in found.spent)
    assert not restoring.read([log_path(tmp_path, 1)], time.time() + restoring.DAY).spent


def test_lines_of_others_say_nothing(tmp_path: Path) -> None:
    known(tmp_path, [moved("running")])
    with (tmp_path / "audit-log.jsonl").open("ab") as file:
        file.write(b'{"ts": "2033-05-18T03:33:20.000Z", "action": "tool.call", "metadata": {"other": {}}}\n')
        file.write(b'{"ts": "2033-05-18T03:33:20.000Z", "action": "tool.call"}\n')
    assert [*restoring.read([log_path(tmp_path, 1)], time.time()).sessions] == ["s"]


@pytest.mark.parametrize("meanwhile", ["closed", "closing", "removed"])
def test_a_log_that_another_process_writes_is_read_whole_while_its_files_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    for event in (moved("running"), CALL):
        known(tmp_path, [event])
        files = LogFiles(log_path(tmp_path, 1))
        if meanwhile == "removed" and not files.closed():
            files.active.rename(files.closed_name(0))
    listed, times = LogFiles.files, 0

    def changed(place: LogFiles) -> list[Path]:
        nonlocal times
        times += 1
        found = listed(place)
        if times > 1:
            return found
        if meanwhile == "removed":
            place.closed()[0].unlink()
        else:
            place.active.rename(place.closed_name(0))
            if meanwhile == "closed":
                known(tmp_path, [aip44.tool_call(**{**OF, "call": "c2"}, arguments={})])
        return found

    monkeypatch.setattr(LogFiles, "files", changed)
    found = restoring.read([log_path(tmp_path, 1)], time.time()).sessions["s"]
    assert [*found.calls] == (["c1", "c2"] if meanwhile == "closed" else ["c1"])
    assert found.state == (None if meanwhile == "removed" else "running")


def test_a_log_whose_files_never_stand_still_is_not_taken_for_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(tmp_path, [moved("running")])
    numbers = itertools.count()
    monkeypatch.setattr(LogFiles, "closed", lambda place: [Path(str(next(numbers)))])
    monkeypatch.setattr(LogFiles, "files", lambda place: [place.active])
    with pytest.raises(OSError, match="change faster"):
        restoring.read([log_path(tmp_path, 1)], time.time())


@pytest.mark.parametrize(("kind", "ephemeral"), [("none", True), ("thread", False)])
def test_a_session_is_forgotten_where_the_operators_memory_does_not_last(
    tmp_path: Path, kind: str, ephemeral: bool
) -> None:
    documents(tmp_path)
    write(tmp_path / "operators/keeper/OPERATOR.md", with_(OPERATOR, memory={"kind": kind}))
    bound = {"tier": "governance-aware", "operator": "../operators/keeper/OPERATOR.md"}
    binding = bind(manifest(tmp_path / "keeper", bound), tmp_path)

    class Nothing:
        budgets = None

    assert RouteGovernor(binding, Nothing()).ephemeral is ephemeral  # type: ignore[arg-type]
    alone = bind(manifest(tmp_path.parent / f"{kind}-alone"), tmp_path.parent / f"{kind}-alone")
    assert RouteGovernor(alone, Nothing()).ephemeral is False  # type: ignore[arg-type]
