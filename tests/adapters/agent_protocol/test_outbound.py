"""Runs of an Agent Protocol agent, as the engine sees them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters.agent_protocol.codec import ADDITIONAL_OUTPUT, PROTOCOL, TASK
from gateway.core import events as e
from gateway.core.errors import AgentFailed
from gateway.core.types import Agent as AgentRecord
from gateway.core.types import Answer, Artifact, Outcome, Thread
from tests.adapters.agent_protocol.fake_agent import Agent, calling, file, says
from tests.adapters.agent_protocol.support import AGENT
from tests.support.aio import run
from tests.support.context import CANCELLED, DECLINED, FakeContext, context

THREE: list[dict[str, Any]] = [
    {"name": "Think", "output": "thought"},
    {"name": "Write", "output": "wrote", "additional_output": {"tokens": 7}},
    {"name": None, "output": "checked"},
]


def texts(made: FakeContext) -> list[str]:
    """What each message said."""
    return [event.delta for event in made.said(e.PartDelta)]


def plans(made: FakeContext) -> list[list[tuple[str, str]]]:
    """The plans in order, as (content, status)."""
    return [[(entry.content, entry.status) for entry in plan.entries] for plan in made.said(e.PlanUpdated)]


async def test_steps_are_driven_to_the_last_and_each_is_a_message() -> None:
    async with calling(Agent(plan=THREE)) as (outbound, agent):
        made = context(AGENT, "write a poem")
        await outbound.run(made)
        assert agent.bodies["POST /tasks"] == [{"input": "write a poem"}]
        assert agent.posted() == [{"input": "write a poem"}, {}, {}]
        assert texts(made) == ["thought", "wrote", "checked"]
        assert [event.message for event in made.said(e.MessageStarted)] == ["t1s1", "t1s2", "t1s3"]
        assert isinstance(made.end, e.RunFinished)
        assert made.output == {"message": "thought\n\nwrote\n\nchecked"}
        assert [(c.name, c.data) for c in made.said(e.Custom)] == [(ADDITIONAL_OUTPUT, {"tokens": 7})]
        assert made.upstreams[0]["task_id"] == "t1"
        assert made.run.upstream is not None
        assert made.run.upstream["done"] == ["t1s1", "t1s2", "t1s3"]
        assert not made.losses


async def test_the_agents_own_list_of_steps_is_the_plan() -> None:
    async with calling(Agent(plan=THREE)) as (outbound, _):
        made = context(AGENT, "x")
        await outbound.run(made)
        done = [("Think", "completed"), ("Write", "completed"), ("Step 3", "completed")]
        assert plans(made) == [
            [("Think", "pending")],
            [("Think", "completed"), ("Write", "pending")],
            [*done[:2], ("Step 3", "pending")],
            done,
        ]
        assert [entry.id for entry in made.said(e.PlanUpdated)[-1].entries] == ["t1s1", "t1s2", "t1s3"]


async def test_the_trace_goes_along_with_every_request() -> None:
    async with calling() as (outbound, agent):
        made = context(AGENT, "x")
        await outbound.describe()
        agent.headers.clear()
        await outbound.run(made)
        assert {headers.get("traceparent") for headers in agent.headers} == {made.traceparent}


async def test_credentials_are_sent_and_nothing_is_when_there_are_none() -> None:
    async with calling(auth={"bearer": "s3cret"}) as (outbound, agent):
        await outbound.describe()
        assert agent.headers[-1]["authorization"] == "Bearer s3cret"
    async with calling(auth={"api_key": "k3y"}) as (outbound, agent):
        await outbound.describe()
        assert agent.headers[-1]["x-api-key"] == "k3y"
    async with calling() as (outbound, agent):
        await outbound.describe()
        assert not {"authorization", "x-api-key"} & set(agent.headers[-1])


async def test_a_document_that_is_more_than_text_travels_whole() -> None:
    async with calling() as (outbound, agent):
        document = {"message": "hi", "n": 1}
        await outbound.run(context(AGENT, document, config={"k": 1}, metadata={"m": 2}))
        whole = {"input": "hi", "additional_input": {**document, "config": {"k": 1}, "metadata": {"m": 2}}}
        assert agent.bodies["POST /tasks"] == [whole]
        assert agent.posted() == [whole]


async def test_a_config_that_finds_its_key_taken_is_a_counted_loss() -> None:
    async with calling() as (outbound, agent):
        made = context(AGENT, {"message": "hi", "config": "mine"}, config={"k": 1})
        await outbound.run(made)
        assert agent.posted()[0]["additional_input"] == {"message": "hi", "config": "mine"}
        assert made.losses == {"additional_input_key_taken": 1}


async def test_a_client_of_the_same_protocol_has_its_bodies_passed_on() -> None:
    async with calling() as (outbound, agent):
        task = {"input": "write", "additional_input": {"debug": True}, "later": 1}
        step = {"input": None, "additional_input": {"x": [1]}}
        made = context(AGENT, "write", protocol=PROTOCOL, thread="th", creation=step)
        made.thread = Thread(id="th", created_at=0, updated_at=0, protocol=PROTOCOL, attributes={TASK: task})
        await outbound.run(made)
        assert agent.bodies["POST /tasks"] == [task]
        assert agent.posted() == [step]


async def test_files_are_fetched_once_each_with_their_paths() -> None:
    plan = [
        {"name": "a", "output": "1", "artifacts": [file("one.txt", relative_path="src/x")]},
        {"name": "b", "output": "2", "artifacts": [file("one.txt", relative_path="src/x"), file("two.bin")]},
    ]
    async with calling(Agent(plan=plan, files={"one": b"1", "two": b"22", "three": b"333"})) as (outbound, agent):
        made = context(AGENT, "x", thread="th")

        async def also(exchange: Any) -> None:
            listed = [file("three.html"), file("mine.txt", agent_created=False), file("one.txt")]
            await says(200, listed)(exchange)

        agent.override["GET /tasks/t1/artifacts"] = also
        await outbound.run(made)
        kept = [(a.name, a.relative_path, a.media_type, data) for a, data in made.artifacts]
        assert kept == [
            ("one.txt", "src/x", "text/plain", b"1"),
            ("two.bin", None, "application/octet-stream", b"22"),
            ("three.html", None, "text/html", b"333"),
        ]
        assert not made.losses


@pytest.mark.parametrize(
    ("artifact", "answer", "loss"),
    [
        (file("a.txt"), says(404, {"message": "gone"}), "artifact_unavailable"),
        (file("a.txt"), says(500, "oh", "text/plain"), "artifact_unavailable"),
        (file("a.txt"), says(302, b""), "artifact_unavailable"),
        (file("a.txt"), says(200, b"x" * 11), "artifact_too_large"),
        ({"artifact_id": "..", "file_name": "a"}, None, "artifact_unavailable"),
        (file("a.txt", relative_path="../x"), says(200, b"fine"), "relative_path_unsafe"),
    ],
    ids=["unknown", "broken", "elsewhere", "large", "no id", "path"],
)
async def test_a_file_that_cannot_be_kept_is_counted_and_the_run_goes_on(artifact: Any, answer: Any, loss: str) -> None:
    agent = Agent(plan=[{"output": "done", "artifacts": [artifact]}], override={"GET /tasks/t1/artifacts/a": answer})
    async with calling(agent, max_artifact=10) as (outbound, _):
        made = context(AGENT, "x")
        await outbound.run(made)
        assert isinstance(made.end, e.RunFinished)
        assert made.losses == {loss: 1}


async def test_uploads_reach_the_agent_before_its_first_step_and_only_once() -> None:
    async with calling(Agent(plan=THREE), drive="one") as (outbound, agent):
        made = context(AGENT, "x", thread="th", answers=[DECLINED])
        upload = Artifact(id="u1", name="in put.txt", relative_path="d", agent_created=False, media_type="text/x")
        made.uploaded = [(upload, b"content")]
        await outbound.run(made)
        (body,) = agent.bodies["POST /tasks/t1/artifacts"]
        assert b'name="relative_path"\r\n\r\nd\r\n' in body
        assert b'filename="in put.txt"' in body
        assert b"text/x" in body and b"content" in body
        assert agent.asked.index("POST /tasks/t1/artifacts") < agent.asked.index("POST /tasks/t1/steps")
        assert not made.artifacts
        assert made.thread is not None
        again = context(AGENT, "y", thread="th", answers=[DECLINED], upstream_thread=made.upstream_thread)
        again.uploaded = made.uploaded
        await outbound.run(again)
        assert len(agent.bodies["POST /tasks/t1/artifacts"]) == 1


async def test_an_upload_that_is_refused_fails_the_run_before_any_step() -> None:
    async with calling(Agent(override={"POST /tasks/t1/artifacts": says(413, {"detail": "too big"})})) as (out, agent):
        made = context(AGENT, "x", thread="th")
        made.uploaded = [(Artifact(id="u1", name="in.txt", agent_created=False), b"content")]
        with pytest.raises(AgentFailed, match=r"413 to the file 'in.txt': too big"):
            await out.run(made)
        assert agent.posted() == []


async def test_driven_one_step_at_a_time_the_client_says_how_to_go_on() -> None:
    async with calling(Agent(plan=THREE), drive="one") as (outbound, agent):
        made = context(AGENT, "x", answers=[{"input": "more", "additional_input": {"k": 1}}, "enough"])
        await outbound.run(made)
        assert agent.posted() == [{"input": "x"}, {"input": "more", "additional_input": {"k": 1}}, {"input": "enough"}]
        first, second = made.asked
        assert first.kind == "step"
        assert first.message == "thought"
        assert first.payload == {"step_id": "t1s1", "name": "Think", "output": "thought", "next": "Write"}
        assert first.id != second.id
        assert isinstance(made.end, e.RunFinished)
        described = await outbound.describe()
        assert [spec.kind for spec in described.interrupts] == ["step"]
        assert described.capabilities.interrupts


@pytest.mark.parametrize("refusal", [DECLINED, "stop", "no idea", {"message": "continue?"}])
async def test_driven_by_approval_no_step_is_executed_that_was_not_allowed(refusal: Any) -> None:
    async with calling(Agent(plan=THREE), drive="approve") as (outbound, agent):
        made = context(AGENT, "x", answers=["continue", refusal])
        await outbound.run(made)
        assert agent.posted() == [{"input": "x"}, {}]
        assert [asked.kind for asked in made.asked] == ["permission", "permission"]
        assert made.asked[0].message == "Go on with the next step: Write?"
        assert isinstance(made.end, e.RunFinished)
        described = await outbound.describe()
        assert [spec.kind for spec in described.interrupts] == ["permission"]


async def test_a_declined_step_ends_the_run_and_the_next_run_goes_on_with_the_task() -> None:
    async with calling(Agent(plan=THREE), drive="one") as (outbound, agent):
        first = context(AGENT, "x", thread="th", answers=[DECLINED])
        await outbound.run(first)
        assert isinstance(first.end, e.RunFinished)
        second = context(AGENT, "go on", thread="th", answers=["and on"], upstream_thread=first.upstream_thread)
        await outbound.run(second)
        assert list(agent.tasks) == ["t1"] and (first.fresh, second.fresh) == ([True], [False])
        assert agent.posted() == [{"input": "x"}, {"input": "go on"}, {"input": "and on"}]
        assert texts(second) == ["wrote", "checked"]


async def test_a_run_after_the_last_step_makes_a_new_task() -> None:
    async with calling() as (outbound, agent):
        first = context(AGENT, "x", thread="th")
        await outbound.run(first)
        known = first.upstream_thread
        await outbound.run(context(AGENT, "y", thread="th", upstream_thread=known, before="as I said"))
        assert [task["input"] for task in agent.tasks.values()] == ["x", "as I said\n\ny"]


async def test_a_task_that_the_agent_has_forgotten_is_made_anew() -> None:
    async with calling() as (outbound, agent):
        gone = {"task_id": "long_gone"}
        await outbound.run(context(AGENT, "x", thread="th", upstream_thread=gone, before="as I said"))
        assert agent.bodies["POST /tasks"] == [{"input": "as I said\n\nx"}]


async def test_a_task_with_a_step_of_unknown_outcome_is_not_gone_on_with() -> None:
    async with calling(Agent(override={"POST /tasks/t1/steps": says(500, "boom", "text/plain")})) as (outbound, agent):
        first = context(AGENT, "x", thread="th")
        with pytest.raises(AgentFailed):
            await outbound.run(first)
        await outbound.run(context(AGENT, "y", thread="th", upstream_thread=first.upstream_thread))
        assert list(agent.tasks) == ["t1", "t2"]


async def test_a_follow_up_of_the_same_protocol_asks_a_new_task_what_the_step_asks() -> None:
    async with calling() as (outbound, agent):
        thread = Thread(
            id="th", created_at=0, updated_at=0, protocol=PROTOCOL, attributes={TASK: {"input": "old", "k": 1}}
        )
        made = context(AGENT, "new", protocol=PROTOCOL, thread="th", creation={"input": "new"}, before="as I said")
        finished = {"task_id": "t0", "finished": True}
        made.thread = Thread(**{**_fields(thread), "upstream": {AGENT.name: finished}})
        await outbound.run(made)
        assert agent.bodies["POST /tasks"] == [{"input": "as I said\n\nnew", "k": 1}]


def _fields(thread: Thread) -> dict[str, Any]:
    return {name: getattr(thread, name) for name in thread.__struct_fields__}


async def test_too_many_steps_fail_the_run() -> None:
    async with calling(Agent(plan=THREE), max_steps=2) as (outbound, agent):
        with pytest.raises(AgentFailed, match="not done after 2 steps"):
            await outbound.run(context(AGENT, "x"))
        assert len(agent.posted()) == 2


async def test_a_cancel_ends_the_run_without_waiting_for_the_step_and_no_other_follows() -> None:
    entered, gone = asyncio.Event(), asyncio.Event()

    async def never(exchange: Any) -> None:
        entered.set()
        await exchange.gone()
        gone.set()

    async with calling(Agent(override={"POST /tasks/t1/steps": never})) as (outbound, agent):
        made = context(AGENT, "x", thread="th")
        running = asyncio.ensure_future(outbound.run(made))
        await asyncio.wait_for(entered.wait(), 30)
        made.cancel_now("enough")
        await outbound.cancel(made)
        await asyncio.wait_for(running, 30)
        await asyncio.wait_for(gone.wait(), 30)
        assert made.end == e.RunCancelled(reason="enough")
        assert made.losses == {"cancel_not_in_protocol": 1}
        assert len(agent.posted()) == 1
        assert made.upstream_thread is not None and made.upstream_thread["in_flight"]


async def test_a_cancel_while_the_client_is_asked_ends_the_run() -> None:
    async with calling(Agent(plan=THREE), drive="one") as (outbound, agent):
        made = context(AGENT, "x", answers=[CANCELLED])
        await outbound.run(made)
        assert isinstance(made.end, e.RunCancelled)
        assert len(agent.posted()) == 1


def test_an_agent_is_described_with_the_default_schemas() -> None:
    async def scene() -> AgentRecord:
        async with calling() as (outbound, _):
            return await outbound.describe()

    found = run(scene())
    assert found.input_schema["required"] == ["message"]
    assert (found.text_input, found.text_output) == ("/message", "/message")
    assert found.capabilities.threads and found.capabilities.files and found.capabilities.artifacts
    assert not found.capabilities.interrupts and not found.capabilities.cancel


async def test_an_answer_without_a_value_is_a_step_without_input() -> None:
    async with calling(Agent(plan=THREE[:2]), drive="one") as (outbound, agent):
        await outbound.run(context(AGENT, "x", answers=[Answer(outcome=Outcome.ANSWERED)]))
        assert agent.posted()[1] == {}
