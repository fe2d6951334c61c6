"""A gateway whose checks can be taken out, one at a time: `python stripped.py FOLDER ARGUMENT...`.

The arguments are the gateway's. From the pipe FOLDER/commands it takes lines: the name of one of CHECKS takes that one
out, and puts back what was out before; an empty line only does the latter. When it is done it says so, by the same
line, on the pipe FOLDER/done.
"""

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from adapters.agent_client.inbound import context as sessions
from adapters.agent_client.inbound import governed as inbound
from adapters.agent_client.outbound import governed as outbound
from adapters.agent_client.outbound.session import AgentSession
from gateway.cli import main
from gateway.core.errors import InterlinguaError
from gateway.governance import tiers
from gateway.governance.audit import appender
from gateway.governance.binding import Roots
from gateway.governance.budgets import Budgets
from gateway.governance.enforcing.calls import CallPhase, GovernedCall
from gateway.governance.enforcing.governor import RouteGovernor
from gateway.governance.enforcing.journal import Journal
from gateway.governance.enforcing.judge import DECLINED, Judge
from gateway.governance.enforcing.session import AuditedSession
from gateway.governance.policy import Decision, Kind, PolicyRules

CHECKS: dict[str, Callable[[], None]] = {}
_taken: list[tuple[Any, str, Any]] = []
"""What is replaced: of what, by which name, and what it was."""


def check(strip: Callable[[], None]) -> Callable[[], None]:
    CHECKS[strip.__name__] = strip
    return strip


async def _nothing(*_: Any, **__: Any) -> None:
    return None


def _replace(owner: Any, name: str, value: Any) -> None:
    _taken.append((owner, name, vars(owner)[name]))
    setattr(owner, name, value)


def _obey(folder: Path) -> None:
    with (folder / "commands").open() as commands, (folder / "done").open("w", buffering=1) as done:
        for line in commands:
            while _taken:
                setattr(*_taken.pop())
            if line.strip():
                CHECKS[line.strip()]()
            done.write(line)


@check
def calls_are_recorded() -> None:
    _replace(AuditedSession, "called", _nothing)


@check
def results_are_recorded() -> None:
    _replace(AuditedSession, "ended", _nothing)


@check
def what_is_recorded_is_on_disk_before_it_is_shown() -> None:
    write, tasks = Journal.write, set()

    async def later(journal: Journal, *events: Any) -> None:
        await asyncio.sleep(0.5)
        await write(journal, *events)

    async def soon(journal: Journal, *events: Any) -> None:
        tasks.add(asyncio.ensure_future(later(journal, *events)))

    _replace(Journal, "write", soon)


@check
def what_cannot_be_recorded_is_not_done() -> None:
    write = Journal.write

    async def careless(journal: Journal, *events: Any) -> None:
        with contextlib.suppress(InterlinguaError):
            await write(journal, *events)

    _replace(Journal, "write", careless)


@check
def arguments_are_recorded() -> None:
    called = AuditedSession._call

    def without(session: AuditedSession, call: GovernedCall, approval: str | None) -> Any:
        call.arguments = None
        return called(session, call, approval)

    _replace(AuditedSession, "_call", without)


@check
def transitions_are_recorded() -> None:
    _replace(AuditedSession, "moved", _nothing)


@check
def entries_are_chained() -> None:
    _replace(appender, "digest", lambda body, algorithm: "0" * 64)


@check
def a_closed_session_closes_its_audit() -> None:
    _replace(RouteGovernor, "closed", _nothing)


@check
def memory_may_be_ephemeral() -> None:
    _replace(RouteGovernor, "ephemeral", False)


@check
def tools_are_decided() -> None:
    _replace(PolicyRules, "call", lambda *_, **__: Decision(kind=Kind.ALLOW, policy=None, why=""))


@check
def policies_are_asked_about_a_tool() -> None:
    """Whatever tool the operator has is taken for allowed."""
    decide = PolicyRules.call

    def lax(rules: PolicyRules, tool: str, **more: Any) -> Decision:
        found = decide(rules, tool, **more)
        return found if rules.grant(tool, None) is None else Decision(kind=Kind.ALLOW, policy=None, why="")

    _replace(PolicyRules, "call", lax)


@check
def approvals_are_waited_for() -> None:
    async def at_once(judge: Judge, call: GovernedCall, *_: Any, **__: Any) -> Any:
        call.phase = CallPhase.ALLOWED
        await judge.session.called(call)
        return None

    _replace(Judge, "ask", at_once)


@check
def a_rejection_is_final() -> None:
    ask = Judge.ask

    async def whatever(judge: Judge, call: GovernedCall, *more: Any, **named: Any) -> Any:
        answer = await ask(judge, call, *more, **named)
        call.phase = CallPhase.ALLOWED
        return answer

    _replace(Judge, "ask", whatever)


@check
def the_agents_question_is_the_rules_to_answer() -> None:
    """It is left to the route's own policy, and the rules think that somebody was asked."""
    begin = Judge.begin

    async def left(judge: Judge, call: str, *_: Any, **__: Any) -> None:
        begin(judge, call).phase = CallPhase.ALLOWED

    _replace(Judge, "permission", left)


@check
def a_denied_question_is_declined() -> None:
    """It is put to the caller instead."""
    permission = Judge.permission

    async def asks(judge: Judge, *said: Any, question: Any, **more: Any) -> Any:
        found = await permission(judge, *said, question=question, **more)
        return await judge.run.ask(question) if found is DECLINED else found

    _replace(Judge, "permission", asks)


@check
def budgets_are_counted() -> None:
    _replace(Budgets, "allowances", lambda *_: ())


@check
def paths_are_admitted() -> None:
    _replace(Roots, "admit", lambda roots, path, write=False: path)


@check
def paths_of_files_are_admitted() -> None:
    async def anywhere(governor: Any, wanted: Any, path: Any) -> Any:
        return path

    _replace(outbound, "_place", anywhere)


@check
def calls_outside_of_turns_are_dropped() -> None:
    _replace(AgentSession, "_governed", lambda session, update: update)


@check
def history_is_marked() -> None:
    _replace(sessions, "untrusted_bytes", lambda update: update)


@check
def only_what_is_promised_is_declared() -> None:
    _replace(tiers, "effective", lambda manifest, can: can)


@check
def prompts_are_checked() -> None:
    _replace(inbound, "check", lambda *_: None)


@check
def skills_are_told() -> None:
    _replace(RouteGovernor, "skills", ())


@check
def what_nothing_governs_is_let_alone() -> None:
    _replace(RouteGovernor, "judges", True)


if __name__ == "__main__":
    threading.Thread(target=_obey, args=(Path(sys.argv.pop(1)),), daemon=True).start()
    main()
