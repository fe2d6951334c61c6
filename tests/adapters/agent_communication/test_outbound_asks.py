"""What agents ask while they run: persons, by questions of the run's; and clients of the same protocol."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from adapters.agent_communication.wire import PROTOCOL, RUN_PROGRESS
from gateway.core import events as e
from gateway.core.errors import InterlinguaError, Unavailable
from gateway.core.types import JsonObject
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_communication.outbound_rig import Asked, FakeServer, outbound, raw, running
from tests.support.context import DECLINED

FORM = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
QUESTION = {"message": "Sure?", "requestedSchema": FORM}


class FakeCaller:
    """A client that is asked. `answers`: by method, a result or an error."""

    def __init__(self, capabilities: JsonObject, answers: dict[str, Any], protocol: str = PROTOCOL) -> None:
        self.protocol = protocol
        self.tools = None
        self.capabilities = capabilities
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []

    async def ask(self, method: str, params: Raw) -> Raw:
        self.asked.append((method, jsonrpc.unpack(params)))
        answer = self.answers[method]
        if isinstance(answer, InterlinguaError):
            raise answer
        return raw(answer)

    def tell(self, method: str, params: Raw) -> None:
        raise AssertionError(method)


def asking(method: str, params: Any) -> Any:
    """An agent that asks this, and returns what it was answered, or the error."""

    async def asks(asked: Asked) -> JsonObject:
        await asked.progress({"text": "before"})
        try:
            found = await asked.ask(method, params)
        except RpcError as error:
            found = {"code": error.error.code, "message": error.error.message}
        return {"output": {"text": "before", "logs": [found]}}

    return asks


async def answered(method: str, params: Any, **context: Any) -> Any:
    """What an agent is answered."""
    caller = context.pop("caller", None)
    ctx = running("asks", **context)
    ctx.caller = caller
    await outbound(FakeServer({"asks": asking(method, params)})).run(ctx)
    assert isinstance(ctx.end, e.RunFinished), ctx.end
    return ctx.output["logs"][0]


async def test_an_elicitation_is_a_question_of_the_run() -> None:
    ctx = running("asks", answers=[{"sure": True}])
    await outbound(FakeServer({"asks": asking("elicitation/create", QUESTION)})).run(ctx)
    [interrupt] = ctx.asked
    assert (interrupt.kind, interrupt.message, interrupt.id) == ("elicitation", "Sure?", "elicitation-1")
    assert interrupt.answer_schema == FORM
    assert interrupt.payload == {**QUESTION, "mode": "form"}
    assert ctx.output["logs"] == [{"action": "accept", "content": {"sure": True}}]
    kinds = [type(event) for event in ctx.events]
    assert kinds.index(e.PartDelta) < kinds.index(e.Interrupted)  # what was said before is told before


async def test_what_was_said_before_a_question_is_told_before_it_however_close_they_come() -> None:
    async def asks(asked: Asked) -> JsonObject:
        asked.listener.notification(RUN_PROGRESS, raw({"progressToken": "t", "delta": {"text": "before"}}))
        await asked.listener.asked("elicitation/create", raw(QUESTION))
        return {"output": {"text": "before"}}

    ctx = running("asks", answers=[DECLINED])
    await outbound(FakeServer({"asks": asks})).run(ctx)
    kinds = [type(event) for event in ctx.events]
    assert kinds.index(e.PartDelta) < kinds.index(e.Interrupted)


async def test_a_declined_question_is_declined() -> None:
    assert await answered("elicitation/create", QUESTION, answers=[DECLINED]) == {"action": "decline"}


async def test_several_questions_have_names_of_their_own() -> None:
    async def asks(asked: Asked) -> JsonObject:
        found = await asyncio.gather(*(asked.ask("elicitation/create", QUESTION) for _ in range(2)))
        return {"output": {"logs": list(found)}}

    ctx = running("asks", answers=[{"sure": True}, {"sure": False}])
    await outbound(FakeServer({"asks": asks})).run(ctx)
    assert [each.id for each in ctx.asked] == ["elicitation-1", "elicitation-2"]
    assert [each["content"]["sure"] for each in ctx.output["logs"]] == [True, False]


async def test_a_cancel_takes_back_the_call_and_says_nothing_about_its_question() -> None:
    told: list[Any] = []

    async def asks(asked: Asked) -> JsonObject:
        told.append(await asked.ask("elicitation/create", QUESTION))
        raise AssertionError

    server = FakeServer({"asks": asks})
    half = outbound(server)
    ctx = running("asks")
    going = asyncio.create_task(half.run(ctx))
    await ctx.until(lambda it: bool(it.asked))
    ctx.cancel_now()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not told and not going.done()
    await half.cancel(ctx)
    await going
    assert not told
    assert isinstance(ctx.end, e.RunCancelled)
    assert server.cancelled == 1


@pytest.mark.parametrize(
    "params", [{"message": "no form"}, {"requestedSchema": FORM}, {**QUESTION, "mode": "telepathy"}, ["no"]]
)
async def test_a_question_that_is_none_is_refused_and_the_run_goes_on(params: Any) -> None:
    found = await answered("elicitation/create", params)
    assert found["code"] == jsonrpc.INVALID_PARAMS


async def test_a_page_to_open_is_only_asked_of_a_client_that_opens_pages() -> None:
    asked = {"mode": "url", "message": "Log in", "url": "https://example.com", "elicitationId": "e1"}

    assert (await answered("elicitation/create", asked, answers=[{}]))["code"] == jsonrpc.INVALID_PARAMS
    able = FakeCaller({"elicitation": {"url": {}}}, {})
    found = await answered("elicitation/create", asked, answers=[{}], caller=able, protocol=PROTOCOL)
    assert found == {"action": "accept"}


async def test_what_only_a_client_has_is_asked_of_one_of_the_same_protocol_that_declared_it() -> None:
    roots = {"roots": [{"uri": "file:///x"}], "more": 1}
    caller = FakeCaller({"roots": {"listChanged": True}, "sampling": {}}, {"roots/list": roots})
    assert await answered("roots/list", {"_meta": {"a": 1}}, caller=caller, protocol=PROTOCOL) == roots
    assert caller.asked == [("roots/list", {"_meta": {"a": 1}})]


async def test_an_error_of_the_clients_is_the_answer_in_its_own_words() -> None:
    answers = {"sampling/createMessage": RpcError(-1, "no", {"x": 1}), "roots/list": Unavailable("gone")}
    caller = FakeCaller({"roots": {}, "sampling": {}}, answers)
    found = await answered("sampling/createMessage", {}, caller=caller, protocol=PROTOCOL)
    assert found == {"code": -1, "message": "no"}
    found = await answered("roots/list", {}, caller=caller, protocol=PROTOCOL)
    assert found == {"code": jsonrpc.INTERNAL_ERROR, "message": "gone"}


@pytest.mark.parametrize(
    ("method", "caller"),
    [
        ("roots/list", None),
        ("roots/list", FakeCaller({"roots": {}}, {}, protocol="agent_client")),
        ("roots/list", FakeCaller({"sampling": {}}, {})),
        ("sampling/createMessage", FakeCaller({"sampling": None}, {})),
        ("tools/list", FakeCaller({"sampling": {}, "roots": {}}, {})),
    ],
)
async def test_what_nobody_declared_is_not_asked(method: str, caller: FakeCaller | None) -> None:
    found = await answered(method, {}, caller=caller, protocol=PROTOCOL)
    assert found == {"code": jsonrpc.METHOD_NOT_FOUND, "message": f"Method not found: {method}"}


async def test_a_server_is_told_what_the_runs_client_can_do_and_no_more() -> None:
    async def fine(asked: Asked) -> JsonObject:
        return {"output": {}}

    server = FakeServer({"fine": fine})
    half = outbound(server)
    for caller in (
        None,
        FakeCaller({"roots": {}}, {}, protocol="agent_client"),
        FakeCaller({"elicitation": {}, "experimental": {"x": {}}}, {}),
        FakeCaller({"roots": {"listChanged": True}}, {}),
        FakeCaller({"sampling": {"tools": {}, "odd": {}}, "elicitation": {"form": {}, "url": {}}}, {}),
    ):
        ctx = running("fine")
        ctx.caller = caller
        await half.run(ctx)
    assert [pool.capabilities for pool in server.pools] == [
        {"elicitation": {}},
        {"elicitation": {}, "roots": {}},
        {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}},
    ]


async def test_a_question_is_taken_back_when_the_call_ends_without_it() -> None:
    async def hasty(asked: Asked) -> JsonObject:
        question = asyncio.create_task(asked.ask("elicitation/create", QUESTION))
        await asyncio.sleep(0.01)
        question.cancel()  # which is what a session does when the answer comes
        return {"output": {"text": "never mind"}}

    ctx = running("hasty")
    await outbound(FakeServer({"hasty": hasty})).run(ctx)
    assert isinstance(ctx.end, e.RunFinished)
    assert ctx.output == {"text": "never mind"}
