"""Agents that are not there, say nothing, talk nonsense or die: an error of the tree, in bounded time, nothing left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import pytest

from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentError, AgentGone, AgentTimeout, InterlinguaError, NotFound
from tests.contract.callers import (
    GARBAGE,
    IMPATIENT,
    NAMES,
    NOT_ASKED,
    calling,
    cut_short,
    first,
    mute,
    outcome,
    quiet,
    somebody,
    tidy,
    turning,
)
from tests.matrix.agents import message
from tests.support.aio import run
from tests.support.processes import free_port
from tests.support.raw_http import Handler, serving

BOUND = 25.0
"""Seconds within which an impatient adapter has given up, also on a slow machine; a patient one takes longer."""

Limits = Mapping[str, Mapping[str, float]]

AT_ONCE: Limits = {name: {key: value / 5 for key, value in given.items()} for name, given in IMPATIENT.items()}
"""For agents that say nothing: whoever knows that waits for nothing else."""

REQUESTS = {
    "example": 1,
    "agent_client": 5,
    "agent_communication": 5,
    "agent_connect": 2,
    "agent_context": 5,
    "agent_protocol": 5,
}
"""How many requests of a run are tried: an agent that turns later is not noticed."""

every = pytest.mark.parametrize("name", NAMES)
asked = pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_ASKED])
bad = pytest.mark.parametrize("handler", [pytest.param(handler, id=what) for what, handler in GARBAGE.items()])


async def described(name: str, url: str, limits: Limits = IMPATIENT) -> InterlinguaError | None:
    """The error that asking for a description ends in, None if there is a description."""
    async with tidy(), calling(name, "echo", url, **limits.get(name, {})) as made:
        try:
            async with asyncio.timeout(BOUND):
                await made.describe()
        except InterlinguaError as error:
            return error
    return None


async def tried(name: str, url: str, limits: Limits = IMPATIENT) -> e.Event | InterlinguaError:
    """How a run ends there."""
    async with tidy(), calling(name, "echo", url, **limits.get(name, {})) as made:
        async with asyncio.timeout(BOUND):
            return await outcome(made, somebody(message(name, "echo")))


@asked
def test_a_dead_target_is_gone_and_may_be_asked_again(name: str) -> None:
    with quiet():
        error = run(described(name, f"http://127.0.0.1:{free_port()}", {}))
    assert isinstance(error, AgentGone) and error.retryable


@every
def test_a_run_at_a_dead_target_is_gone_and_may_be_tried_again(name: str) -> None:
    began = time.monotonic()
    with quiet():
        error = run(tried(name, f"http://127.0.0.1:{free_port()}", {}))
    assert isinstance(error, AgentGone) and error.retryable
    assert time.monotonic() - began < BOUND


@asked
def test_a_target_that_never_answers_is_not_waited_for_for_ever(name: str) -> None:
    async def scene() -> InterlinguaError | None:
        async with serving(mute) as there:
            return await described(name, there.url, AT_ONCE)

    with quiet():
        error = run(scene())
    assert isinstance(error, AgentTimeout | AgentGone) and error.retryable


@every
def test_a_run_at_a_target_that_never_answers_is_not_waited_for_for_ever(name: str) -> None:
    async def scene() -> e.Event | InterlinguaError:
        async with serving(mute) as there:
            return await tried(name, there.url, AT_ONCE)

    with quiet():
        error = run(scene())
    assert isinstance(error, AgentTimeout | AgentGone), error


@asked
@bad
def test_garbage_is_no_description(name: str, handler: Handler) -> None:
    async def scene() -> InterlinguaError | None:
        async with serving(handler) as there:
            return await described(name, there.url)

    with quiet():
        error = run(scene())
    assert error is None or isinstance(error, AgentError | NotFound), repr(error)


@every
@bad
def test_garbage_is_no_run(name: str, handler: Handler) -> None:
    async def scene() -> e.Event | InterlinguaError:
        async with serving(handler) as there:
            return await tried(name, there.url)

    with quiet():
        end = run(scene())
    assert isinstance(end, AgentError | NotFound | e.RunFailed), repr(end)


def in_the_middle(*, at_once: bool) -> pytest.MarkDecorator:
    """Each adapter, and after how many requests its agent goes wrong; `at_once`: with the first one, too."""
    return pytest.mark.parametrize(
        ("name", "after"), [(name, after) for name in NAMES for after in range(not at_once, REQUESTS[name])]
    )


@in_the_middle(at_once=False)
@pytest.mark.parametrize(
    "what", ["a page", "half a JSON document", "objects of wrong types", "a hang-up", "an error in words"]
)
def test_an_agent_that_turns_in_the_middle_fails_the_run_or_is_not_missed(
    name: str, after: int, what: str, urls: dict[str, str]
) -> None:
    async def scene() -> e.Event | InterlinguaError:
        async with turning(urls[name], after, GARBAGE[what]) as there:
            end = await tried(name, there.url)
            assert len(there.seen) > after or isinstance(end, AgentTimeout), "it has not turned"
            return end

    with quiet():
        end = run(scene())
    assert isinstance(end, AgentError | NotFound | e.RunFailed | e.RunFinished), repr(end)


@in_the_middle(at_once=True)
def test_an_agent_that_dies_in_the_middle_of_an_answer_fails_the_run_or_is_not_missed(
    name: str, after: int, urls: dict[str, str]
) -> None:
    async def scene() -> e.Event | InterlinguaError:
        async with cut_short(urls[name], after) as there:
            end = await tried(name, there.url)
            assert len(there.seen) > after or isinstance(end, AgentTimeout), "it has not died"
            return end

    with quiet():
        end = run(scene())
    assert isinstance(end, AgentError | e.RunFailed | e.RunFinished), repr(end)
    assert not isinstance(end, AgentBroken) or str(end)


def test_the_first_error_of_a_group_is_what_counts() -> None:
    group = ExceptionGroup("a", [ExceptionGroup("b", [AgentGone("it left"), AgentBroken("then this")])])
    assert str(first(group)) == "it left"
