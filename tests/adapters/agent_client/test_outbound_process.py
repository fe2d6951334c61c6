"""Agents that are programs, behind an engine: how they start, die, flood, and that none is left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path

import pytest

from gateway.core import events as e
from gateway.core.errors import AgentError, AgentGone, AgentTimeout
from gateway.core.types import Answer, RunStatus
from tests.adapters.agent_client.outbound_house import house, text
from tests.support.aio import run
from tests.support.scripted import request, until


def alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_one_process_serves_many_sessions_at_once_and_is_ended_with_the_gateway() -> None:
    pids: set[str] = set()

    async def body() -> None:
        async with house() as it:
            ended = await asyncio.gather(*(it.ask("pid") for _ in range(10)))
            pids.update(text(each) for each in ended)
            assert all(each.status is RunStatus.SUCCESS for each in ended)

    run(body())
    assert len(pids) == 1
    assert not alive(int(pids.pop()))


async def test_an_agent_that_dies_in_mid_turn_says_why_and_the_next_prompt_works() -> None:
    async with house() as it:
        failed = await it.ask("exit 3")
        assert failed.status is RunStatus.ERROR and failed.failure is not None
        assert failed.failure.code == "agent_gone"
        assert "exited with 3" in failed.failure.message
        assert "the last thing it said" in failed.failure.message
        assert text(await it.ask("say again")) == "again"


async def test_an_agent_that_never_answers_initialize_is_given_up_and_ended() -> None:
    async with house("mute", start_timeout=0.5, stop_timeout=0.3) as it:
        with pytest.raises(AgentTimeout, match=r"not ready within 0\.5 s"):
            await it.outbound.describe()
        assert it.outbound.reachable is False
        with pytest.raises(AgentError):
            await it.ask("say hi")


async def test_an_agent_that_answers_initialize_with_an_error_of_no_request_is_not_waited_for() -> None:
    async with house("nameless", start_timeout=20) as it:
        with pytest.raises(AgentError, match="not today"):
            await it.outbound.describe()


async def test_an_agent_that_leaves_at_once_says_how_and_why() -> None:
    async with house("die") as it:
        with pytest.raises(AgentGone, match="exited with 2: no configuration found"):
            await it.outbound.describe()


def test_what_it_says_on_its_standard_error_is_logged_by_its_route(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def body() -> None:
        async with house("die") as it:
            with pytest.raises(AgentGone, match=r"^prog exited with 2"):
                await it.outbound.describe()

    run(body())
    assert ("interlingua.agent.prog", "no configuration found") in [(r.name, r.message) for r in caplog.records]


async def test_a_program_that_is_not_there_is_named() -> None:
    async with house(command=("no-such-agent",)) as it:
        with pytest.raises(AgentGone, match="no-such-agent: command not found"):
            await it.outbound.describe()


async def test_all_that_a_flood_brings_arrives_in_its_order() -> None:
    async with house() as it:
        ended = await it.ask("flood 10000")
        assert text(ended) == "".join(f"{number} " for number in range(10000))


async def test_messages_over_the_limit_are_left_out_and_those_below_pass() -> None:
    async with house(max_message=17 * 1024 * 1024) as it:
        ended = await it.ask(f"big {16 * 1024 * 1024}")
        assert text(ended) == "x" * (16 * 1024 * 1024) + "after"
        ended = await it.ask(f"big {18 * 1024 * 1024}")
        assert text(ended) == "after"
        assert ended.losses["unreadable"] == 1


def test_garbage_on_its_output_is_reported_and_survived(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with house() as it:
            ended = await it.ask("noise")
            assert text(ended) == "fine"
            assert ended.losses == {"unreadable": 1}  # the message that was cut; a line of a log is no loss

    run(body())
    assert "a line that is no message" in caplog.text


def test_a_message_behind_a_print_without_a_line_end_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with house() as it:
            ended = await it.ask("print")  # so is the answer to the prompt
            assert text(ended) == "said"
            assert ended.losses == {}

    run(body())
    assert "thinking about {it}" in caplog.text


@pytest.mark.parametrize("how", ["logs-received", "logs-before", "logs-after"])
async def test_messages_that_an_agent_prints_in_a_log_too_are_heard_once(how: str) -> None:
    async with house(how) as it:
        for said in ("one", "two"):
            ended = await it.ask(f"say {said}")
            assert text(ended) == said
            assert ended.losses == {}
        assert text(await it.ask("flood 200")) == "".join(f"{number} " for number in range(200))


async def test_a_permission_interrupts_the_run_and_its_answer_goes_on() -> None:
    async with house() as it:
        asking = await it.ask("ask")
        assert asking.status is RunStatus.INTERRUPTED
        [interrupt] = asking.interrupts
        assert interrupt.kind == "permission"
        await it.engine.runs.answer(asking.id, Answer(value={"optionId": "ok"}), interrupt.id)
        ended = await it.engine.runs.wait(asking.id, timeout=30)
        assert ended is not None
        assert text(ended) == '{"outcome": {"outcome": "selected", "optionId": "ok"}}'


async def test_a_cancel_answers_the_open_permission_and_the_run_ends_with_the_agents_answer() -> None:
    async with house() as it:
        asking = await it.ask("ask")
        ended = await it.engine.runs.cancel(asking.id, wait=True)
        assert ended.status is RunStatus.CANCELLED
        assert not ended.losses.get("upstream_may_still_run")
        events = [event for _, event in await it.engine.runs.events(asking.id)]
        said = [event.delta for event in events if isinstance(event, e.PartDelta)]
        assert said == ['{"outcome": {"outcome": "cancelled"}}']


async def test_a_stuck_agent_is_replaced_after_the_grace() -> None:
    async with house(cancel_grace=0.2, stop_timeout=0.5) as it:
        thread = await it.thread("t1")
        first = text(await it.ask("pid", thread))
        stuck = await it.engine.runs.start(request("stuck", agent="prog", thread=thread))
        await it.sent(stuck)
        ended = await it.engine.runs.cancel(stuck.id, wait=True)
        assert ended.status is RunStatus.CANCELLED and ended.losses["upstream_may_still_run"] == 1
        again = await it.ask("pid", thread)
        assert again.status is RunStatus.SUCCESS and text(again) != first
        assert not alive(int(first))


async def test_a_run_that_was_in_flight_when_the_gateway_stopped_ends_with_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    async with house(file=file) as it:
        started = await it.engine.runs.start(request("stuck", agent="prog"))
        await it.sent(started)
    async with house(file=file) as it:
        ended = await it.engine.runs.wait(started.id, timeout=30)
        assert ended is not None and ended.failure is not None
        assert ended.status is RunStatus.ERROR
        assert ended.failure.code == "outcome_unknown" and not ended.failure.retryable
        assert "stopped while the agent worked" in ended.failure.message


async def test_an_agent_is_ended_when_nobody_has_used_it_for_a_while() -> None:
    async with house(idle=0.1) as it:
        pid = int(text(await it.ask("pid")))
        await until(lambda: not alive(pid))
        assert text(await it.ask("say back")) == "back"
