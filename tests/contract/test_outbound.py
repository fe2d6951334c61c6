"""What every outbound half owes the engine (`gateway.contract.Outbound`), with the real agents behind it."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from jsonschema import Draft202012Validator

from gateway.agents.entry import Entry
from gateway.core import events as e
from gateway.core.errors import AgentError
from gateway.core.stream import State
from gateway.core.types import Agent
from tests.contract.callers import FORGETFUL, NAMES, calling, outbound, outcome, quiet, somebody, tidy
from tests.matrix.agents import ANSWERED, ANSWERS, document, message
from tests.support import scripted
from tests.support.aio import run
from tests.support.context import FakeContext, context

BEHAVIOURS = ("echo", "fail", "ask", "slow")
every = pytest.mark.parametrize("name", NAMES)
remembering = pytest.mark.parametrize("name", [name for name in NAMES if name not in FORGETFUL])


async def played(name: str, behaviour: str, url: str, **options: object) -> FakeContext:
    """One run from its description to its end, leaving nothing behind."""
    async with tidy(), calling(name, behaviour, url, **options) as made:
        ctx = context(await made.describe(), message(name, behaviour), answers=[ANSWERS[name] | {"message": "blue"}])
        await made.run(ctx)
        return ctx


@every
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_an_agent_is_described_with_schemas_that_are_schemas(name: str, behaviour: str, urls: dict[str, str]) -> None:
    async def scene() -> None:
        async with tidy(), calling(name, behaviour, urls[name]) as made:
            agent = await made.describe()
            assert isinstance(agent, Agent) and agent.name
            schemas = [agent.input_schema, agent.output_schema, agent.config_schema]
            for spec in agent.interrupts:
                schemas += [spec.payload_schema, spec.answer_schema]
            for schema in schemas:
                Draft202012Validator.check_schema(schema)
            assert await made.describe() == agent

    with quiet():
        run(scene())


@every
def test_a_runs_events_are_legal_and_end_in_a_result(name: str, urls: dict[str, str]) -> None:
    with quiet():
        ctx = run(played(name, "echo", urls[name]))
    assert isinstance(ctx.end, e.RunFinished)
    assert "hello my friend" in json.dumps(ctx.output)
    state = State()
    for event in ctx.events:
        state.advance(event)
    assert sum(isinstance(event, e.TERMINAL) for event in ctx.events) == 1


@remembering
def test_a_run_is_recorded_where_it_can_be_found_again(name: str, urls: dict[str, str]) -> None:
    ctx = run(played(name, "echo", urls[name]))
    assert ctx.upstreams and json.loads(json.dumps(ctx.upstreams)) == ctx.upstreams


@every
def test_a_failure_of_the_agents_is_its_own_error_and_keeps_what_was_said(name: str, urls: dict[str, str]) -> None:
    async def scene() -> FakeContext:
        async with tidy(), calling(name, "fail", urls[name]) as made:
            ctx = context(await made.describe(), message(name, "fail"))
            end = await outcome(made, ctx)
            code = end.failure.code if isinstance(end, e.RunFailed) else getattr(end, "code", "")
            assert code == "agent_failed", end
            return ctx

    with quiet():
        ctx = run(scene())
    assert not ctx.said(e.RunFinished)


@every
def test_a_question_is_asked_and_its_answer_delivered(name: str, urls: dict[str, str]) -> None:
    with quiet():
        ctx = run(played(name, "ask", urls[name]))
    (asked, *_) = ctx.asked
    assert asked.id and asked.kind and asked.message
    Draft202012Validator.check_schema(asked.answer_schema)
    assert isinstance(ctx.end, e.RunFinished)
    assert ANSWERED[name] in json.dumps(ctx.output).replace("\\", "").lower() or "blue" in json.dumps(ctx.output)


async def under_way(ctx: FakeContext) -> None:
    """Until the agent has named the run."""
    await ctx.until(lambda ctx: bool(ctx.upstreams) or len(ctx.events) > 1)


@every
@pytest.mark.parametrize("behaviour", ["slow", "ask"])
def test_a_run_whose_task_is_cancelled_is_over_at_once_and_leaves_nothing(
    name: str, behaviour: str, urls: dict[str, str]
) -> None:
    async def scene() -> None:
        async with tidy(), calling(name, behaviour, urls[name]) as made:
            ctx = context(await made.describe(), message(name, behaviour))
            task = asyncio.create_task(made.run(ctx))
            await (under_way(ctx) if behaviour == "slow" else ctx.until(lambda ctx: bool(ctx.asked)))
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=30)
            assert done and task.cancelled()
            assert not ctx.said(e.RunFinished)

    with quiet():
        run(scene())


@every
def test_a_run_that_is_cancelled_at_the_agent_ends(name: str, urls: dict[str, str]) -> None:
    async def scene() -> None:
        async with tidy(), calling(name, "slow", urls[name]) as made:
            ctx = context(await made.describe(), message(name, "slow"))
            task = asyncio.create_task(outcome(made, ctx))
            await under_way(ctx)
            ctx.cancel_now()
            await made.cancel(ctx)
            end = await asyncio.wait_for(task, 30)
            assert isinstance(end, e.RunCancelled | e.RunFailed | AgentError), end

    with quiet():
        run(scene())


@every
def test_a_question_that_a_cancel_answers_ends_the_run(name: str, urls: dict[str, str]) -> None:
    async def scene() -> None:
        async with tidy(), calling(name, "ask", urls[name]) as made:
            ctx = context(await made.describe(), message(name, "ask"))
            task = asyncio.create_task(outcome(made, ctx))
            await ctx.until(lambda ctx: bool(ctx.asked))
            ctx.cancel_now()
            await made.cancel(ctx)
            end = await asyncio.wait_for(task, 30)
            assert isinstance(end, (*e.TERMINAL, AgentError)), end  # a success now is no success: the engine's fence

    with quiet():
        run(scene())


@every
def test_closing_twice_is_fine_and_a_closed_one_says_so(name: str, urls: dict[str, str]) -> None:
    async def scene() -> None:
        async with tidy():
            made = outbound(name, "echo", urls[name])
            await made.aclose()
            await made.aclose()
            used = outbound(name, "echo", urls[name])
            await used.describe()
            await used.aclose()
            await used.aclose()
            end = await outcome(used, somebody())
            assert not isinstance(end, e.RunFinished)

    with quiet():
        run(scene())


@every
def test_closing_ends_what_is_under_way(name: str, urls: dict[str, str]) -> None:
    async def scene() -> None:
        async with tidy():
            options = {"reconnect_timeout": 1} if name == "agent_connect" else {}
            made = outbound(name, "slow", urls[name], **options)
            ctx = context(await made.describe(), message(name, "slow"))
            task = asyncio.create_task(outcome(made, ctx))
            await under_way(ctx)
            await made.aclose()
            end = await asyncio.wait_for(task, 30)
            assert not isinstance(end, e.RunFinished), end

    with quiet():
        run(scene())


@every
def test_many_runs_at_once_do_not_mix(name: str, urls: dict[str, str]) -> None:
    words = [letter * 6 for letter in "abcdefgh"]

    async def scene() -> list[FakeContext]:
        async with tidy(), calling(name, "echo", urls[name]) as made:
            agent = await made.describe()
            runs = [context(agent, message(name, "echo").replace("hello my friend", word)) for word in words]
            for number, ctx in enumerate(runs):
                ctx.run = msgspec.structs.replace(ctx.run, id=f"run-{number}")
            async with asyncio.TaskGroup() as group:
                for ctx in runs:
                    group.create_task(made.run(ctx))
            return runs

    with quiet():
        runs = run(scene())
    for word, ctx in zip(words, runs, strict=True):
        said = json.dumps(ctx.output)
        assert isinstance(ctx.end, e.RunFinished) and word in said
        assert not [other for other in words if other != word and other in said]
    upstreams = [json.dumps(upstream, sort_keys=True) for ctx in runs for upstream in ctx.upstreams[-1:]]
    assert len(set(upstreams)) == (0 if name in FORGETFUL else len(runs))


@every
async def test_through_a_real_engine_it_is_the_same_story(name: str, urls: dict[str, str]) -> None:
    route = scripted.route(name)
    made = outbound(name, "echo", urls[name])
    async with scripted.engine() as engine:
        engine.use([Entry(route, made)])
        started = await engine.runs.start(scripted.request(agent=name, input=document(name, message(name, "echo"))))
        ended = await engine.runs.wait(started.id, 30)
        assert ended is not None and ended.status == "success", ended
        assert b"hello my friend" in bytes(ended.output)
        numbers = [number for number, _ in await engine.runs.events(started.id)]
        assert numbers == list(range(1, len(numbers) + 1))
