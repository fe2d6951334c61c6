"""Steps: what a client of the inbound half sees of runs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from adapters.agent_protocol.steps import step_id
from gateway.core import events as e
from gateway.core.errors import AgentFailed, AgentGone
from gateway.core.types import RunQuery, RunStatus, StopReason
from tests.adapters.agent_protocol.support import AGENT, Client, echo, say, serving
from tests.support.scripted import Scripted, until


async def test_a_run_that_ends_is_one_last_step() -> None:
    async with serving(echo) as (client, gateway):
        task = await client.task("hello")
        step = await client.step(task)
        (only,) = await gateway.runs.list(RunQuery(thread=task))
        assert step == {
            "task_id": task,
            "step_id": step_id(only.id, 0),
            "name": None,
            "status": "completed",
            "input": None,
            "additional_input": {},
            "output": "you said: hello",
            "additional_output": None,
            "artifacts": [],
            "is_last": True,
        }
        assert (await client.get(f"/tasks/{task}/steps"))["steps"] == [step]
        assert await client.get(f"/tasks/{task}/steps/{step['step_id']}") == step


@pytest.mark.parametrize("body", [b"", b"null", b"{}"], ids=["absent", "null", "empty"])
async def test_a_step_needs_no_body(body: bytes) -> None:
    async with serving(echo) as (client, _):
        task = await client.task("hello")
        headers = {"content-type": "application/json"}
        response = await client.call("POST", f"/tasks/{task}/steps", content=body, headers=headers)
        assert response.json()["output"] == "you said: hello"


@pytest.mark.parametrize(
    ("task", "step", "told"),
    [
        ("write", None, "write"),
        ("write", "", "write"),
        (None, "in blue", "in blue"),
        ("write", "write", "write"),
        ("write", "in blue", "write\n\nin blue"),
        (None, None, ""),
    ],
)
async def test_the_agent_is_told_what_the_task_and_its_first_step_say(
    task: str | None, step: str | None, told: str
) -> None:
    async with serving(echo) as (client, _):
        shown = await client.step(await client.task(task), step)
        assert shown["output"] == f"you said: {told}"
        assert shown["input"] == step


async def test_a_step_after_the_last_is_a_follow_up() -> None:
    async with serving(echo) as (client, gateway):
        task = await client.task("hello")
        first = await client.step(task)
        second = await client.step(task, "and now?")
        assert second["output"] == "you said: and now?"
        assert second["is_last"]
        assert first["step_id"] != second["step_id"]
        assert (await client.get(f"/tasks/{task}/steps"))["steps"] == [first, second]
        page = await client.get(f"/tasks/{task}/steps?current_page=2&page_size=1")
        assert page["steps"] == [second]
        assert page["pagination"] == {"total_items": 2, "total_pages": 2, "current_page": 2, "page_size": 1}
        assert await gateway.runs.count(RunQuery(thread=task)) == 2


async def test_a_second_step_while_one_runs_is_a_conflict() -> None:
    going = asyncio.Event()

    async def script(context: Any) -> None:
        context.emit(*say("half"))
        await context.drain()
        await going.wait()
        context.emit(e.RunFinished())
        await context.drain()

    async with serving(script) as (client, gateway):
        task = await client.task()
        first = asyncio.ensure_future(client.step(task))
        await until(lambda: bool(gateway.live))
        await gateway.store.flush()
        second = await client.call("POST", f"/tasks/{task}/steps", json={})
        assert second.status_code == 409
        assert "being executed" in second.json()["message"]
        going.set()
        assert (await first)["output"] == "half"


async def test_of_two_steps_at_once_one_is_refused_in_this_protocols_words() -> None:
    going = asyncio.Event()

    async def script(context: Any) -> None:
        await going.wait()
        context.emit(*say("done"), e.RunFinished())
        await context.drain()

    async with serving(script) as (client, _):
        task = await client.task()
        both = {asyncio.ensure_future(client.call("POST", f"/tasks/{task}/steps", json={})) for _ in range(2)}
        refused, others = await asyncio.wait(both, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        answer = refused.pop().result()
        assert answer.status_code == 409 and "a step of this task is being executed" in answer.json()["message"]
        going.set()
        assert (await others.pop()).json()["output"] == "done"


async def test_a_step_under_way_is_listed_as_running() -> None:
    going = asyncio.Event()

    async def script(context: Any) -> None:
        context.emit(*say("half"))
        await context.drain()
        await going.wait()
        context.emit(e.RunFinished())
        await context.drain()

    async with serving(script) as (client, _):
        task = await client.task()
        executing = asyncio.ensure_future(client.step(task))
        async with asyncio.timeout(30):
            while True:
                steps = (await client.get(f"/tasks/{task}/steps"))["steps"]
                if steps and steps[0]["output"]:
                    break
        assert [(s["status"], s["output"], s["is_last"]) for s in steps] == [("running", "half", False)]
        going.set()
        assert (await executing)["step_id"] == steps[0]["step_id"]


@pytest.mark.parametrize(
    ("error", "code"), [(AgentFailed("out of paint"), "agent_failed"), (AgentGone("no agent there"), "agent_gone")]
)
async def test_a_run_that_fails_is_a_last_step_with_the_error(error: Exception, code: str) -> None:
    async def script(context: Any) -> None:
        context.emit(e.PartDelta(part="p", delta="I began"))
        raise error

    async with serving(script) as (client, _):
        step = await client.step(await client.task())
        assert (step["status"], step["is_last"], step["output"]) == ("completed", True, "I began")
        assert step["additional_output"]["error"]["code"] == code
        assert step["additional_output"]["error"]["message"] == str(error)


async def test_what_text_cannot_say_is_additional_output() -> None:
    async def script(context: Any) -> None:
        context.emit(
            e.MessageStarted(message="m"),
            e.PartStarted(part="t", message="m", kind="thought"),
            e.PartDelta(part="t", delta="Hmm."),
            e.PartStarted(part="f", message="m", kind="file", value={"url": "http://x/a.png"}),
            e.ToolCallStarted(call="c1", name="search", title="Searching", input={"q": "x"}),
            e.ToolCallEnded(call="c1", output={"hits": 2}),
            e.PlanUpdated(entries=(e.PlanEntry(content="look", status="completed"),)),
            e.Custom(name="agent.mood", data={"mood": "fine"}),
            e.UsageReported(input_tokens=3, output_tokens=4),
            e.PartDelta(part="p", delta="Done."),
        )
        context.lost("something")
        context.emit(e.RunFinished(stop_reason=StopReason.MAX_TOKENS))
        await context.drain()

    async with serving(script) as (client, _):
        step = await client.step(await client.task())
        assert step["output"] == "Done."
        more = step["additional_output"]
        assert more["thoughts"] == ["Hmm."]
        assert more["files"] == [{"url": "http://x/a.png"}]
        call = {"call": "c1", "name": "search", "title": "Searching", "kind": "other", "input": {"q": "x"}}
        assert more["tool_calls"] == [call | {"status": "completed", "output": {"hits": 2}}]
        assert more["plan"] == [{"content": "look", "status": "completed"}]
        assert more["custom"] == [{"name": "agent.mood", "data": {"mood": "fine"}}]
        assert more["usage"] == {"input_tokens": 3, "output_tokens": 4}
        assert more["stop_reason"] == "max_tokens"
        assert more["losses"] == {"something": 1}


async def test_a_document_that_is_more_than_its_text_is_given_whole() -> None:
    agent = msgspec.structs.replace(AGENT, output_schema={"type": "object"}, text_output="/answer")

    async def script(context: Any) -> None:
        context.emit(
            e.MessageStarted(message="m"),
            e.PartStarted(part="d", message="m", kind="data", value={"answer": "42", "score": 1}),
            e.RunFinished(),
        )
        await context.drain()

    async with serving(script, agent=agent) as (client, _):
        step = await client.step(await client.task())
        assert step["output"] == "42"
        assert step["additional_output"] == {"output": {"answer": "42", "score": 1}}


async def test_a_document_without_text_is_shown_as_json() -> None:
    agent = msgspec.structs.replace(AGENT, output_schema={"type": "object"}, text_output=None)

    async def script(context: Any) -> None:
        context.emit(e.RunFinished(output=msgspec.Raw(b'{"a":1,"b":[true]}')))
        await context.drain()

    async with serving(script, agent=agent) as (client, _):
        step = await client.step(await client.task())
        assert json.loads(step["output"]) == {"a": 1, "b": [True]}
        assert step["additional_output"] == {"output": {"a": 1, "b": [True]}}


async def test_the_agents_final_result_wins_over_what_was_streamed() -> None:
    async def script(context: Any) -> None:
        context.emit(*say("drift"), e.RunFinished(output=msgspec.Raw(b'{"message":"draft"}')))
        await context.drain()

    async with serving(script) as (client, _):
        assert (await client.step(await client.task()))["output"] == "draft"


async def test_additional_input_goes_where_the_agent_knows_it() -> None:
    agent = msgspec.structs.replace(
        AGENT,
        input_schema={"type": "object", "properties": {"message": {"type": "string"}, "style": {"type": "string"}}},
        config_schema={"type": "object", "properties": {"depth": {"type": "integer"}}},
    )
    seen: list[Any] = []

    async def script(context: Any) -> None:
        seen.append(context.run.request)
        context.emit(e.RunFinished())
        await context.drain()

    async with serving(script, agent=agent) as (client, _):
        more = {"style": "haiku", "depth": 3, "team": "mail", "metadata": {"a": 1}}
        task = await client.task("write", additional_input=more)
        step = await client.step(task, None, additional_input={"style": "ode"})
        assert step["additional_input"] == {"style": "ode"}
        assert seen[0].input == {"message": "write", "style": "ode"}
        assert seen[0].config == {"depth": 3}
        assert seen[0].metadata == {"team": "mail", "a": 1}


async def test_an_agent_that_takes_no_text_is_given_json_or_asks_for_the_value() -> None:
    agent = msgspec.structs.replace(
        AGENT,
        input_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        text_input=None,
    )
    seen: list[Any] = []

    async def script(context: Any) -> None:
        seen.append(context.run.request.input)
        context.emit(e.RunFinished())
        await context.drain()

    async with serving(script, agent=agent) as (client, _):
        await client.step(await client.task('{"n": 1}'))
        await client.step(await client.task(None, additional_input={"n": 2}))
        words, mistyped = await client.task("one"), await client.task('{"n": "x"}')
        assert "n: a whole number" in (await client.step(words))["output"]
        assert "'x' is not of type 'integer'" in (await client.step(mistyped))["output"]
        assert seen == [{"n": 1}, {"n": 2}]
        await client.step(words, "3")
        await client.step(mistyped, None, additional_input={"n": 4})
        assert seen == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]


async def _post_and_hang_up(client: Client, task: str, hang_up: asyncio.Event) -> list[dict[str, Any]]:
    """POST steps as a server sees it, by a client that hangs up when told."""
    sent: list[dict[str, Any]] = []
    body = iter([{"type": "http.request", "body": b"{}", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in body:
            return message
        await hang_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    path = f"/agent-protocol/ap/v1/agent/tasks/{task}/steps"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": [], "http_version": "1.1", "scheme": "http", "root_path": "", "server": ("gateway", 80)}
    await client.app(scope, receive, send)
    return sent


@pytest.mark.parametrize(("policy", "ends"), [("continue", RunStatus.SUCCESS), ("cancel", RunStatus.CANCELLED)])
async def test_a_client_that_hangs_up_leaves_or_cancels_its_run(policy: str, ends: RunStatus) -> None:
    going, gone = asyncio.Event(), asyncio.Event()

    async def script(context: Any) -> None:
        await until(lambda: going.is_set() or context.cancelled)
        context.emit(e.RunFinished())
        await context.drain()

    async with serving(script, on_disconnect=policy) as (client, gateway):
        task = await client.task()
        posting = asyncio.ensure_future(_post_and_hang_up(client, task, gone))
        await until(lambda: bool(gateway.live))
        (only,) = gateway.live
        gone.set()
        await posting
        going.set()
        ended = await gateway.runs.wait(only, 30)
        assert ended is not None
        assert ended.status is ends
        (step,) = (await client.get(f"/tasks/{task}/steps"))["steps"]
        assert step["is_last"]


async def test_an_unknown_step_is_404() -> None:
    async with serving(echo) as (client, _):
        task = await client.task()
        await client.step(task)
        response = await client.call("GET", f"/tasks/{task}/steps/nope")
        assert response.status_code == 404
        assert response.json() == {"message": "Step with nope not found."}


async def test_an_agent_that_is_down_is_an_error_before_the_step_and_a_task_is_still_made() -> None:
    class Down(Scripted):
        async def describe(self) -> Any:
            raise AgentGone("no agent there")

    async with serving(Down(echo)) as (client, _):
        task = await client.task()
        response = await client.call("POST", f"/tasks/{task}/steps")
        assert response.status_code == 502
        assert response.json() == {"message": "no agent there"}
        assert (await client.get(f"/tasks/{task}/steps"))["steps"] == []
