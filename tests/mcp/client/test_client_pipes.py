"""A session over a pipe, with a server that the test plays."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.core.errors import AgentBroken, AgentGone, AgentTimeout
from gateway.mcp.client import session as session_module
from gateway.wire.jsonrpc import RpcError
from tests.mcp.client.rig import PROGRESS, YES, Listens, notification, played, request, result
from tests.support.aio import run
from tests.support.rpc import settled


async def test_progress_comes_in_order_and_all_of_it_before_the_answer() -> None:
    async with played() as server:
        listener = Listens()
        task, id, token = await server.began(listener)
        assert isinstance(token, str) and token
        told = [notification(PROGRESS, progressToken=token, progress=n, message=n) for n in range(500)]
        await server.say(*told, result(id, {"content": []}))
        seen: list[int] = []
        task.add_done_callback(lambda _: seen.append(len(listener.heard)))
        assert json.loads(bytes(await task)) == {"content": []}
        await settled()
        assert seen == [500] and listener.said == list(range(500))


async def test_a_listener_is_asked_for_nothing_when_nobody_listens() -> None:
    async with played() as server:
        task, id, token = await server.began(None)
        assert token is None
        await server.say(request(7, "elicitation/create", message="?"))
        assert (await server.hear())[0]["error"]["code"] == -32601
        await server.say(result(id, {}))
        await task


async def test_params_of_the_caller_are_sent_with_the_token_and_not_changed() -> None:
    async with played() as server:
        params = {"name": "x", "_meta": {"traceparent": "t"}}
        task = asyncio.create_task(server.session.call("tools/call", params, listener=Listens()))
        (sent,) = await server.hear()
        assert sent["params"]["_meta"].keys() == {"traceparent", "progressToken"}
        assert params == {"name": "x", "_meta": {"traceparent": "t"}}
        await server.say(result(sent["id"], {}))
        await task


async def test_progress_after_the_result_and_of_unknown_tokens_is_dropped() -> None:
    async with played() as server:
        listener = Listens()
        task, id, token = await server.began(listener)
        late = notification(PROGRESS, progressToken=token, progress=9)
        strange = [notification(PROGRESS, progressToken=each, progress=1) for each in ("nobody", 7, 0, "")]
        await server.say(*strange, result(id, {}), late)
        await task
        await settled()
        assert listener.heard == []
        assert server.news == []


async def test_what_belongs_to_no_call_is_told_to_the_pool() -> None:
    async with played() as server:
        listener = Listens()
        task, id, _ = await server.began(listener)
        await server.say(notification("notifications/agents/list_changed"), notification("notifications/x"))
        await server.say(notification("notifications/message", level="info", data="words"), result(id, {}))
        await task
        assert server.news == ["notifications/agents/list_changed", "notifications/x"]
        assert [method for method, _ in listener.heard] == ["notifications/message"]  # there is only one call
        await server.say(notification("notifications/message", level="info", data="alone"))
        await settled()
        assert server.news[-1] == "notifications/message"


async def test_a_question_goes_to_the_only_call_that_listens_and_is_refused_where_there_are_two() -> None:
    async with played() as server:
        one, two = Listens(), Listens()
        task, id, _ = await server.began(one)
        await server.say(request("q", "elicitation/create", message="?"))
        assert (await server.hear()) == [{"jsonrpc": "2.0", "id": "q", "result": YES}]
        other, other_id, _ = await server.began(two)
        await server.say(request("r", "elicitation/create", message="?"), request("p", "ping"))
        answers = {each["id"]: each for each in await server.hear(2)}
        assert answers["r"]["error"]["code"] == -32601 and answers["p"]["result"] == {}
        assert two.asked_for == []
        await server.say(result(id, {}), result(other_id, {}))
        await asyncio.gather(task, other)
        assert one.asked_for == [("elicitation/create", {"message": "?"})]


async def test_a_question_is_withdrawn_by_the_server_and_by_the_end_of_the_call() -> None:
    async with played() as server:
        cancelled: list[str] = []

        async def forever(method: str, params: Any) -> Any:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(params["message"])
                raise

        listener = Listens(forever)
        task, id, _ = await server.began(listener)
        await server.say(request(1, "elicitation/create", message="first"))
        await server.say(request(2, "elicitation/create", message="second"))
        await settled()
        await server.say(notification("notifications/cancelled", requestId=1))
        assert (await server.hear())[0]["error"]["code"] == -32800
        await server.say(result(id, {}))
        await task
        (answer,) = await server.hear()
        assert (answer["id"], answer["error"]["code"]) == (2, -32800)
        assert cancelled == ["first", "second"]


async def test_an_error_of_the_listener_is_the_servers_answer() -> None:
    async with played() as server:

        async def refuse(method: str, params: Any) -> Any:
            raise RpcError(-1, "not in the mood")

        task, id, _ = await server.began(Listens(refuse))
        await server.say(request(5, "sampling/createMessage"))
        assert (await server.hear())[0]["error"] == {"code": -1, "message": "not in the mood"}
        await server.say(result(id, {}))
        await task


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_a_call_that_is_given_up_is_cancelled_once_and_its_late_answer_dropped(how: str) -> None:
    async with played() as server:
        listener = Listens()
        task, id, token = await server.began(listener, timeout=0.05 if how == "timed out" else None)
        if how == "cancelled":
            task.cancel()
            task.cancel()
        with pytest.raises(AgentTimeout if how == "timed out" else asyncio.CancelledError):
            await task
        (told,) = await server.hear()
        assert told["method"] == "notifications/cancelled" and told["params"]["requestId"] == id
        await server.say(notification(PROGRESS, progressToken=token, progress=1), result(id, {}))
        ping = server.begin(method="ping")
        (asked,) = await server.hear()
        assert asked["method"] == "ping"  # and no second notification before it
        await server.say(result(asked["id"], {}))
        await ping
        assert listener.heard == []


async def test_a_question_about_a_call_that_was_given_up_is_not_asked_of_the_next() -> None:
    async with played() as server:
        task, id, _ = await server.began(Listens())
        task.cancel()
        await asyncio.wait([task])
        assert (await server.hear())[0]["method"] == "notifications/cancelled"
        listener = Listens()
        other, other_id, _ = await server.began(listener)
        await server.say(request("q", "elicitation/create", message="about the first"))
        assert (await server.hear())[0]["error"]["code"] == -32601 and listener.asked_for == []
        await server.say({"jsonrpc": "2.0", "id": id, "error": {"code": 0, "message": "Request cancelled"}})
        await server.say(request("r", "elicitation/create", message="about the second"))
        assert (await server.hear())[0]["result"] == YES and len(listener.asked_for) == 1
        await server.say(result(other_id, {}))
        await other


async def test_a_call_that_was_answered_is_not_cancelled() -> None:
    async with played() as server:
        task, id, _ = await server.began(Listens(), timeout=60)
        await server.say(result(id, {}))
        await task
        ping = server.begin(method="ping")
        (asked,) = await server.hear()
        assert asked["method"] == "ping"
        await server.say(result(asked["id"], {}))
        await ping


async def test_a_slow_listener_slows_the_server_and_nothing_grows() -> None:
    async with played(limit=10_000) as server:
        listener = Listens()
        listener.hold = asyncio.Event()
        task, id, token = await server.began(listener)
        flood = [notification(PROGRESS, progressToken=token, progress=n, message="x" * 100) for n in range(2000)]
        saying = asyncio.create_task(server.say(*flood, result(id, {})))
        await settled(200)
        assert not saying.done() and len(listener.heard) == 1
        listener.hold.set()
        await task
        await saying
        assert len(listener.heard) == 2000


async def test_a_listener_that_never_goes_on_holds_nobody_up_once_its_call_has_ended() -> None:
    async with played() as server:
        listener = Listens()
        listener.hold = asyncio.Event()
        task, _, token = await server.began(listener, timeout=0.05)
        await server.say(notification(PROGRESS, progressToken=token, progress=1))
        with pytest.raises(AgentTimeout):
            await task
        await server.hear()
        other, other_id, _ = await server.began(Listens())
        await server.say(result(other_id, {"fine": True}))
        assert json.loads(bytes(await other)) == {"fine": True}


async def test_garbage_is_logged_and_an_answer_that_cannot_be_read_fails_its_call_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with played() as server:
        one, id, _ = await server.began(Listens())
        two, other, _ = await server.began(Listens())
        await server.say(b"Starting server...", b'{"jsonrpc":"2.0","id":%d,"result":{"x":' % id, b"[]", b"{}")
        with pytest.raises(AgentBroken):
            await one
        await server.say(result(other, {}), result(other, {}), result("nobody", {}))
        await two
        await settled()
        assert sum("that is no message" in each.message for each in caplog.records) == 4


@pytest.mark.parametrize("wrong", [None, 5, "text", []])
async def test_a_result_that_is_no_object_is_the_servers_fault(wrong: Any) -> None:
    async with played() as server:
        task, id, _ = await server.began(Listens())
        await server.say(result(id, wrong))
        with pytest.raises(AgentBroken):
            await task


async def test_a_server_that_closes_in_mid_call_ends_the_call() -> None:
    async with played() as server:
        listener = Listens()
        task, _, token = await server.began(listener)
        await server.say(notification(PROGRESS, progressToken=token, progress=1))
        server.there.half_close()
        with pytest.raises(AgentGone):
            await task
        assert not server.session.alive and len(listener.heard) == 1
        with pytest.raises(AgentGone):
            await server.session.call("ping")


# --- lists ------------------------------------------------------------------------------------------------------------


def listing(pages: list[Any], timeout: float | None = None) -> Any:
    """What `list` makes of these pages."""

    async def story() -> Any:
        async with played() as server:
            task = asyncio.create_task(server.session.list("agents/list", "agents", timeout=timeout))
            cursors = []
            for page in pages:
                asked = await server.hear()
                if not asked:
                    break
                cursors.append(asked[0].get("params", {}).get("cursor"))
                await server.say(result(asked[0]["id"], page))
                await settled()
                if task.done():
                    break
            return await task, cursors

    return run(story())


def test_all_pages_of_a_list_are_fetched() -> None:
    pages = [{"agents": [{"name": "a"}], "nextCursor": "1"}, {"agents": [{"name": "b"}], "nextCursor": ""}]
    assert listing(pages) == ([{"name": "a"}, {"name": "b"}], [None, "1"])


@pytest.mark.parametrize(
    "pages",
    [
        [{"agents": [], "nextCursor": "1"}, {"agents": [], "nextCursor": "2"}, {"agents": [], "nextCursor": "1"}],
        [{"agents": [], "nextCursor": 7}],
        [{"tools": []}],
        [{"agents": ["a"]}],
        [{"agents": {"name": "a"}}],
    ],
    ids=["a cursor that comes back", "no string", "no list", "no objects", "an object"],
)
def test_a_list_that_leads_nowhere_is_the_servers_fault(pages: list[Any]) -> None:
    with pytest.raises(AgentBroken):
        listing(pages)


def test_a_list_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MOST_PAGES", 5)
    with pytest.raises(AgentBroken, match="no end"):
        listing([{"agents": [], "nextCursor": str(n)} for n in range(10)])


def test_a_list_has_a_time_limit_for_all_its_pages() -> None:
    with pytest.raises(AgentTimeout):
        listing([], timeout=0.05)


# --- the handshake ----------------------------------------------------------------------------------------------------


async def test_the_newest_revision_is_proposed_and_an_older_one_taken() -> None:
    async with played({"protocolVersion": "2024-11-05", "capabilities": {"agents": {}}}) as server:
        assert server.session.version == "2024-11-05"
        assert server.session.server["capabilities"] == {"agents": {}}


async def test_two_hundred_calls_at_once_get_each_its_own() -> None:
    async with played() as server:
        listeners = [Listens() for _ in range(200)]
        tasks = [server.begin(listener) for listener in listeners]
        asked = await server.hear(200)
        for each in reversed(asked):
            token = each["params"]["_meta"]["progressToken"]
            await server.say(notification(PROGRESS, progressToken=token, progress=1, message=each["id"]))
            await server.say(result(each["id"], {"id": each["id"]}))
        ids = [json.loads(bytes(found))["id"] for found in await asyncio.gather(*tasks)]
        assert [listener.said for listener in listeners] == [[id] for id in ids] and len(set(ids)) == 200
