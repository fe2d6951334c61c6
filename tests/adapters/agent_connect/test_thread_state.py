"""State that a thread has before its agent knows it, from a copy or a patch: carried where it can be, else counted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.adapters.agent_connect.api import Api
from tests.adapters.agent_connect.outbound_calls import calling, done, forget, seen
from tests.adapters.agent_connect.scripted_agent import Handler, drops, event, refuses, says, script, streams, text
from tests.adapters.agent_connect.test_inbound_runs import create
from tests.support.context import FakeContext, context
from tests.support.processes import Process
from tests.support.raw_http import serving

SAID = [{"role": "user", "content": "hello"}]


async def play(url: str, values: Any, upstream: dict[str, Any] | None = None, *, agent: str = "echo") -> FakeContext:
    """A first run on a thread of ours that has these values."""
    async with calling(url, agent) as outbound:
        ctx = context(await outbound.describe(), "hi", thread="t-1")
        assert ctx.thread is not None
        ctx.thread = replace(ctx.thread, values=values, upstream=upstream or {})
        await outbound.run(ctx)
        return ctx


def patches(server: Process) -> list[dict[str, Any]]:
    return [asked for asked in seen(server) if asked["method"] == "PATCH"]


def test_the_state_of_a_copied_or_patched_thread_reaches_the_agent(agent_connect_agent: Process) -> None:
    forget(agent_connect_agent)
    ctx = done(play(agent_connect_agent.url, {"colour": "blue"}))
    assert ctx.upstream_thread is not None
    (patch,) = patches(agent_connect_agent)
    assert patch["path"] == f"/threads/{ctx.upstream_thread['thread_id']}"
    assert json.loads(patch["body"]) == {"values": {"colour": "blue"}}
    assert not ctx.losses


def test_state_that_the_protocol_has_no_place_for_is_counted(agent_connect_agent: Process) -> None:
    forget(agent_connect_agent)
    assert done(play(agent_connect_agent.url, ["a list"])).losses == {"thread_state": 1}
    assert not patches(agent_connect_agent)


@pytest.mark.parametrize("patched", [refuses("422 Unprocessable Entity"), refuses("404 Not Found"), drops])
async def test_state_that_the_agent_does_not_take_is_counted_and_the_run_goes_on(patched: Handler) -> None:
    thread = says(text({"thread_id": "t", "created_at": "", "updated_at": "", "metadata": {}, "status": "idle"}))
    answered = streams(event({"m": "done"}, status="success"))
    there = {"/threads": thread, "/threads/t": patched, "/threads/t/runs/stream": answered}
    async with serving(script(**there)) as server:
        ctx = await play(server.url, {"colour": "blue"}, agent="bad")
    assert ctx.losses == {"thread_state": 1}
    assert ctx.output == {"m": "done"}


@pytest.mark.parametrize(("values", "upstream"), [(None, None), ({"a": 1}, {"another": {"session": "s"}})])
def test_a_fresh_thread_and_one_of_another_agents_are_made_empty(
    agent_connect_agent: Process, values: Any, upstream: dict[str, Any] | None
) -> None:
    forget(agent_connect_agent)
    assert not done(play(agent_connect_agent.url, values, upstream)).losses
    assert not patches(agent_connect_agent)


@pytest.mark.parametrize(
    ("patch", "lost"),
    [
        ({"values": {"a": 1}}, {"thread_state": 1}),
        ({"messages": SAID}, {}),
        ({"values": {"messages": SAID}}, {}),
        ({"values": {"a": 1}, "messages": SAID}, {"thread_state": 1}),
        ({"metadata": {"a": 1}}, {}),
    ],
    ids=["values", "messages", "messages as values", "both", "metadata"],
)
def test_what_an_agent_of_another_protocol_will_not_know_is_told(
    api: Api, patch: dict[str, Any], lost: dict[str, int]
) -> None:
    thread = api("POST", "/threads", {})["thread_id"]
    api("PATCH", f"/threads/{thread}", patch)
    assert losses(api, thread) == lost
    assert losses(api, thread) == {}  # the second run goes on with the first


def test_a_copy_loses_nothing(api: Api) -> None:
    thread = api("POST", "/threads", {})["thread_id"]
    assert losses(api, thread) == {}
    copied = api("POST", f"/threads/{thread}/copy")["thread_id"]
    assert losses(api, copied) == {}


def losses(api: Api, thread: str) -> dict[str, int]:
    """What a run on the thread has lost, as its answer's header says."""
    told = api.raw("POST", f"/threads/{thread}/runs/wait", create("echo", "hi"))
    assert told.status_code == 200, told.text
    pairs = (one.split("=") for one in told.headers.get("x-interlingua-losses", "").split(", ") if one)
    return {name: int(count) for name, count in pairs}
