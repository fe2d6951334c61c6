"""Clients that try what is not theirs, or are careless: nothing is told to them that they may not know, and what is
wrong is said so that it can be mended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import Any, Self

import httpx2
import jwt
import pytest
from websockets.exceptions import InvalidStatus

from adapters.agent_context.inbound import resources
from gateway.core import events as e
from gateway.core.types import Identity, RunQuery
from gateway.mcp.versions import V2026_07_28
from gateway.mcp.wire import META_CAPABILITIES, META_VERSION
from tests.adapters.agent_context.inbound_rig import rig
from tests.adapters.agent_context.inbound_talker import AGENT, refused, request

ACCESS: dict[str, Any] = {
    "clients": [
        {"name": "alice", "token": "alice-token", "roles": ["lead"]},
        {"name": "bob", "token": "bob-token"},
        {"name": "guest", "token": "guest-token", "agents": ["echo", "guest-*"]},
    ]
}
YES: dict[str, Any] = {"type": "request", "payload": {"answer": {"ok": True}}}


def task(id: str, *capabilities: str, **more: Any) -> dict[str, Any]:
    """One for whoever has the capabilities."""
    needs = {"requirements": {"capabilities": list(capabilities)}} if capabilities else {}
    return {"id": id, "type": "errand", **needs, "payload": {"messages": [{"text": "x"}]}, **more}


async def test_a_question_is_answered_by_its_own_client_only_whoever_has_the_handle() -> None:
    async with (
        rig(access=ACCESS) as there,
        there.socket(token="alice-token") as alice,
        there.socket(token="bob-token") as bob,
    ):
        handle = (await refused(alice.message("asker"))).data["resume"]
        delegated = await refused(alice.ask("agent/delegate", task=task("t"), target="asker"))
        known = {"interlingua/resume": handle}
        stolen = await refused(bob.ask("agent/message", target="asker", content=YES, meta=known))
        assert (stolen.code, stolen.data["path"]) == (-32001, "/_meta/interlingua~1resume")
        answer = task("t", payload={"answer": {"ok": True}})
        asked = bob.ask("agent/delegate", task=answer, meta={"interlingua/resume": delegated.data["resume"]})
        assert (await refused(asked)).code == -32001
        assert (await alice.ask("agent/message", target="asker", content=YES, meta=known))["status"] == "completed"
        over = await refused(bob.ask("agent/message", target="asker", content=YES, meta=known))
        assert over.code == -32001 and "output" not in over.data
        mine = {"interlingua/resume": delegated.data["resume"]}
        assert (await alice.ask("agent/delegate", task=answer, meta=mine))["task"]["status"] == "completed"
        logs = [await there.engine.runs.events(one.id) for one in await there.engine.runs.list(RunQuery())]
        answers = [event.answer for log in logs for _, event in log if isinstance(event, e.Resumed)]
        assert [answer.by for answer in answers] == [Identity(id="alice", roles=("lead",))] * 3, "also to the agent"


async def test_a_client_of_2026_07_28_cannot_come_back_with_a_state_that_is_anothers() -> None:
    async with (
        rig(access=ACCESS) as there,
        there.socket(token="alice-token") as alice,
        httpx2.AsyncClient(timeout=30) as http,
    ):
        run_id = (await refused(alice.message("asker"))).data["run"]
        params = {
            "target": "asker",
            "content": request(),
            "requestState": f"{run_id}.0",
            "inputResponses": {"q1": {"action": "accept", "content": {"ok": True}}},
            "_meta": {META_VERSION: V2026_07_28, META_CAPABILITIES: {"elicitation": {}}},
        }
        headers = {
            "Mcp-Protocol-Version": V2026_07_28,
            "Mcp-Method": "agent/message",
            "Accept": "application/json, text/event-stream",
            "Authorization": "Bearer bob-token",
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": "agent/message", "params": params}
        answer = await http.post(there.url, json=message, headers=headers)
        assert answer.json()["error"]["data"]["path"] == "/requestState"
        assert (await there.engine.runs.get(run_id)).interrupts


async def test_who_may_not_know_of_an_agent_does_not_learn_of_it_from_errors() -> None:
    async with rig(access=ACCESS) as there, there.socket(token="guest-token") as guest:
        errors = [
            await refused(guest.message("guest-none")),
            await refused(guest.ask("agent/delegate", task=task("a"), target="guest-none")),
            await refused(guest.ask("agent/delegate", task=task("b", "magic"))),
        ]
        for error in errors:
            assert "asker" not in f"{error.message} {json.dumps(error.data)}", error
        assert "echo" in errors[0].message
        assert [error.code for error in errors] == [-32002, -32002, -32007]
        told = []
        for token in ("guest-token", None, "forged"):
            with pytest.raises(InvalidStatus) as unknown:
                async with there.socket("nobody", token=token):
                    pass
            assert unknown.value.response.status_code == 404
            told.append(bytes(unknown.value.response.body).decode())
        assert [("echo" in each, "asker" in each) for each in told] == [(True, False), (False, False), (False, False)]


async def test_an_error_says_what_came_at_the_place_and_not_its_own_words() -> None:
    async with rig() as there, there.socket() as client:
        content = {"type": "request", "payload": {"input": {"count": "many"}}}
        error = await refused(client.ask("agent/message", target="strict", content=content))
        assert error.data["path"] == "/content/payload/input/count"
        assert error.data["details"]["received"] == '"many"'
        found = await refused(client.ask("resources/list", cursor="no cursor"))
        assert found.data["details"]["received"] == '"no cursor"'
        question = await refused(client.message("asker"))
        wrong = {"type": "request", "payload": {"ok": "maybe"}}
        meta = {"interlingua/resume": question.data["resume"]}
        error = await refused(client.ask("agent/message", target="asker", content=wrong, meta=meta))
        assert error.data["path"] == "/content/payload/ok" and error.data["details"]["received"] == '"maybe"'
        await refused(client.ask("agent/delegate", task=task("t"), target="asker"))
        arguments = {"taskId": "t", "answer": {"ok": 5}}
        told = await client.ask("tools/call", name="taskAnswer", arguments=arguments)
        details = told["_meta"]["interlingua/failure"]["details"]
        assert json.loads(details["expected"])["required"] == ["ok"] and details["received"] == {"ok": 5}
        strange = {"messages": [{"role": "user", "content": "no block"}], "maxTokens": 5}
        error = await refused(client.ask("sampling/createMessage", **strange))
        assert error.data["details"]["expected"] == "object with type or array"


async def test_a_method_that_there_is_not_is_refused_with_the_correlation_id_as_well() -> None:
    async with rig() as there, there.socket() as client:
        error = await refused(client.ask("agent/dance", meta={"correlationId": "c1"}))
        assert (error.code, error.data["correlationId"], error.data["code"]) == (-32601, "c1", "unsupported")


async def test_what_is_no_sample_is_not_passed_on_and_the_next_client_is_asked() -> None:
    async def nonsense(params: dict[str, Any]) -> Any:
        return {"foo": 1}

    async def sample(params: dict[str, Any]) -> Any:
        return {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}

    asked = {"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}], "maxTokens": 5}
    async with rig() as there, there.socket(hello={"sampling": {}}) as first, there.socket() as client:
        first.on["sampling/createMessage"] = nonsense
        assert (await refused(client.ask("sampling/createMessage", **asked))).code == -32601
        async with there.socket(hello={"sampling": {}}) as second:
            second.on["sampling/createMessage"] = sample
            assert (await client.ask("sampling/createMessage", **asked))["content"]["text"] == "hi"


def test_a_heartbeat_alone_is_no_change_of_metrics_that_is_told() -> None:
    then, now = ({"agentId": "a", "runs": {"total": 1}, "lastActive": at} for at in ("then", "now"))
    assert resources._digest(then) == resources._digest(now) != resources._digest({**now, "runs": {"total": 2}})


async def test_many_metrics_that_somebody_wants_to_know_of_are_looked_at_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resources, "LOOKED", 2)

    async with rig() as there:
        it = there.inbound.resources
        wanted = {"agent://tasks", "m/a", "m/b", "m/c"}
        assert [it._turn(wanted) for _ in range(3)] == [
            ["agent://tasks", "m/a", "m/b"],
            ["agent://tasks", "m/c", "m/a"],
            ["agent://tasks", "m/b", "m/c"],
        ]
        assert it._turn(set()) == []


async def test_a_message_is_no_way_around_the_right_to_delegate() -> None:
    clients = [
        {"name": "writer", "token": "w", "may": ["message"]},
        {"name": "some", "token": "s", "agents": ["echo", "co"]},
    ]

    async with rig() as there, there.socket() as client:
        error = await refused(client.message("interlingua-tasks"))  # in no directory either
        assert (error.code, error.message) == (
            -32002, "/target: no agent interlingua-tasks; tasks are delegated by agent/delegate"
        )  # fmt: skip
    access = {"clients": clients}
    async with rig(access=access, coordinator="co") as there, there.socket(token="w") as writer:
        assert (await writer.message("echo"))["status"] == "completed"
        assert (await refused(writer.message("co"))).code == -32003
        async with there.socket(token="s") as some:
            assert (await some.message("co"))["status"] == "completed"
            (task,) = await there.engine.runs.list(RunQuery(agent="co"))
            assert task.request.attributes["allowed"] == ["echo", "co"]
        assert (await there.newest("echo")).request.attributes["task"]


async def test_a_coordinator_whose_name_a_route_has_takes_no_tasks_and_says_so() -> None:
    async with rig(coordinator="echo") as there, there.socket() as client:
        error = await refused(client.ask("agent/delegate", task=task("t")))
        assert error.code == -32004 and "the coordinator's name, echo, is a route's" in error.message
        assert (await client.message("echo"))["status"] == "completed"


@pytest.mark.parametrize(
    ("name", "arguments", "code", "path"),
    [
        ("taskAssign", {"message": "x", "deadline": "2025-02-22T00:00:00Z"}, -32006, "/arguments/deadline"),
        ("taskAssign", {"message": "x", "agentId": "nobody"}, -32002, None),
        ("agentEvaluate", {"agentId": "nobody", "score": 5}, -32002, None),
        ("agentEvaluate", {"agentId": "echo", "score": 50}, -32001, "/arguments/score"),
        ("taskAnswer", {"taskId": "nobody's", "answer": 1}, -32002, "/arguments/taskId"),
    ],
)
async def test_what_a_model_can_mend_is_a_result_that_it_reads(
    name: str, arguments: dict[str, Any], code: int, path: str | None
) -> None:
    async with rig() as there, there.socket() as client:
        found = await client.ask("tools/call", name=name, arguments=arguments, meta={"correlationId": "c"})
        failure = found["_meta"]["interlingua/failure"]
        assert found["isError"] and (failure["errorCode"], failure.get("path")) == (code, path)
        assert found["_meta"]["correlationId"] == "c"
        assert "nobody" not in arguments.values() or "/arguments" in failure["message"] or name == "agentEvaluate"


async def test_nobody_is_told_from_where_an_agent_was_connected_that_has_gone() -> None:
    async with rig() as there, there.socket() as client:
        async with there.socket(hello=AGENT) as painter:
            asked = asyncio.Event()

            async def work(params: dict[str, Any]) -> Any:
                asked.set()

            painter.on["agent/message"] = work
            await painter.register("painter")
            message = await client.begin("agent/message", target="painter", content=request())
            async with asyncio.timeout(30):
                await asked.wait()
        error = await refused(message)
        assert (error.code, error.message) == (-32004, "the agent's connection has ended")


async def test_a_token_that_an_agent_registered_with_is_looked_at_again_with_each_request() -> None:
    key = "k" * 32
    jwt_options = {"key": key, "algorithms": ["HS256"], "audience": "gw", "may": ["register", "message"]}

    async with rig(access={"jwt": jwt_options}) as there, there.socket(hello=AGENT) as painter:
        soon = time.time() + 60
        token = jwt.encode({"aud": "gw", "sub": "carol", "exp": soon}, key, "HS256")
        await painter.register("painter", auth={"token": token})
        assert (await painter.message("echo"))["status"] == "completed"
        subjects = there.inbound.env.people._access._holders._subjects
        assert subjects is not None
        subjects._now = lambda: soon + 1
        with freeze(soon + 1):
            error = await refused(painter.message("echo"))
        assert (error.code, error.message) == (-32003, "the token is not valid")


@contextlib.contextmanager
def freeze(at: float) -> Iterator[None]:
    """While the block lasts PyJWT takes it for that time."""

    class Then(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(at, tz)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jwt.api_jwt.datetime", Then)
        yield
