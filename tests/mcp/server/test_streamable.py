"""Streamable HTTP for clients that shake hands: answers, streams, questions, and what is refused with what status."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from gateway.mcp import versions
from tests.mcp.server.rig import SESSION, VERSION, Client, Rig, client, initialize, rig, tool, valid
from tests.support.scripted import until

BLUE = {"action": "accept", "content": {"answer": "blue"}}


@pytest.mark.parametrize("version", versions.HANDSHAKE)
async def test_a_session_of_every_revision_lists_and_calls(version: str) -> None:
    async with rig() as there, client(there.mcp, version) as here:
        assert len((await here.ask("tools/list"))["result"]["tools"]) == 9
        assert (await here.ask("ping"))["result"] == {}
        answer = await here.ask("tools/call", tool("say", words="one two"))
        assert answer["result"]["content"] == [{"type": "text", "text": "one two"}]
        async with here.stream(here.request("tools/call", tool("say", 0, words="one two"))) as events:
            said = [valid(one, version) for one in await events.rest()]
        assert [one["params"]["progress"] for one in said[:2]] == [1, 2]
        assert said[0]["params"]["progressToken"] == 0
        assert said[2]["result"]["content"][0]["text"] == "one two"
        assert ("message" in said[0]["params"]) == (version != versions.V2024_11_05)


async def test_errors_of_a_call_are_answers() -> None:
    async with rig() as there, client(there.mcp) as here:
        for method, params, code in (
            ("no/such", None, -32601),
            ("tools/call", [], -32602),
            ("tools/call", tool("boom"), -32603),
            ("tools/call", tool("gone"), -32002),
            ("logging/setLevel", {"level": "loud"}, -32602),
        ):
            answer = await here.post(here.request(method, params))
            assert (answer.status_code, valid(answer.json(), here.version)["error"]["code"]) == (200, code)


async def test_the_server_asks_on_the_stream_of_the_call_and_is_answered_by_a_post() -> None:
    async with (
        rig() as there,
        client(there.mcp, capabilities={"elicitation": {}}) as here,
        here.stream(here.request("tools/call", tool("ask", question="first?"))) as one,
        here.stream(here.request("tools/call", tool("ask", question="second?"))) as two,
    ):
        for events, question in ((one, "first?"), (two, "second?")):
            asked = valid(await events.next(), here.version)
            assert (asked["method"], asked["params"]["message"]) == ("elicitation/create", question)
            answer = await here.post({"jsonrpc": "2.0", "id": asked["id"], "result": BLUE})
            assert (answer.status_code, answer.content) == (202, b"")
            assert (await events.next())["result"]["content"][0]["text"] == "accept blue"
            assert await events.next() is None


async def test_an_answer_that_cannot_be_read_fails_who_asked() -> None:
    async with (
        rig() as there,
        client(there.mcp, capabilities={"elicitation": {}}) as here,
        here.stream(here.request("tools/call", tool("ask"))) as events,
    ):
        asked = await events.next()
        assert (await here.post({"jsonrpc": "2.0", "id": 99, "result": {}})).status_code == 202
        said = b'{"jsonrpc": "2.0", "id": %d, "result": {"action": ' % asked["id"]
        assert (await here.post(said)).status_code == 202
        assert "cannot be read" in (await events.next())["error"]["message"]


async def test_a_call_is_cancelled_by_a_notification_and_answered_all_the_same() -> None:
    async with rig() as there, client(there.mcp, capabilities={"elicitation": {}}) as here:
        async with here.stream(here.request("tools/call", tool("wait", 1), id="w")) as events:
            await events.next()
            await here.notify("notifications/cancelled", {"requestId": "x"})
            await here.notify("notifications/cancelled", {"requestId": "w"})
            assert (await events.next())["error"] == {"code": -32800, "message": "Request cancelled"}
        async with here.stream(here.request("tools/call", tool("ask"), id="a")) as events:
            asked = await events.next()
            await here.notify("notifications/cancelled", {"requestId": "a"})
            taken, answer = await events.rest()
            assert (taken["method"], taken["params"]["requestId"]) == ("notifications/cancelled", asked["id"])
            assert answer["error"]["code"] == -32800
        assert "cancelled w" in there.words.seen


async def test_the_id_of_a_request_that_is_under_way_is_not_taken_twice() -> None:
    async with (
        rig(max_calls=2) as there,
        client(there.mcp) as here,
        here.stream(here.request("tools/call", tool("wait", 1), id=7)) as events,
    ):
        await events.next()
        answer = await here.post(here.request("ping", id=7))
        assert (answer.status_code, answer.json()["error"]["code"]) == (200, -32600)
        async with here.stream(here.request("tools/call", tool("wait", 1), id=8)) as others:
            await others.next()
            answer = await here.post(here.request("ping"))
            assert "too many" in answer.json()["error"]["message"]
            there.words.go.set()
            assert (await events.next())["id"] == 7
            assert (await others.next())["id"] == 8


async def test_messages_in_an_array_are_taken_in_the_one_revision_that_has_them() -> None:
    async with rig() as there:
        async with client(there.mcp, versions.V2025_03_26) as here:
            asked = [here.request("ping", id=1), here.request("no/such", id="2"), {"jsonrpc": "2.0", "id": 3}]
            asked.append({"jsonrpc": "2.0", "id": 4, "method": 7})
            told = {"jsonrpc": "2.0", "method": "notifications/x"}
            said = {one["id"]: one for one in (await here.post([*asked, told, {"x": 1}])).json()}
            assert said.pop(None)["error"]["code"] == -32600 and all(valid(one, here.version) for one in said.values())
            assert said[1]["result"] == {} and said["2"]["error"]["code"] == -32601
            assert said[4]["error"]["code"] == -32600
            assert (await here.post([told, {"jsonrpc": "2.0", "id": 9, "result": {}}])).status_code == 202
            calls = [here.request("tools/call", tool("say", id, words="x"), id=id) for id in (4, 5)]
            async with here.stream(calls) as events:
                got = await events.rest()
            assert sorted(one["id"] for one in got if "id" in one) == [4, 5] and len(got) == 4
            alone = await here.post([initialize(), here.request("ping")])
            assert (alone.status_code, alone.json()["error"]["code"]) == (400, -32600)
            assert (await here.post([])).status_code == 400
        async with client(there.mcp, versions.V2025_06_18) as here:
            refused = await here.post([here.request("ping")])
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32600)


async def test_initialize_may_come_again_in_the_same_session() -> None:
    async with rig() as there, client(there.mcp) as here:
        again = await here.post(initialize(versions.V2025_03_26, {"elicitation": {}}))
        assert again.json()["result"]["protocolVersion"] == versions.V2025_03_26
        assert again.headers[SESSION] == here.session
        assert [session.client.version for session in there.server.sessions] == [versions.V2025_03_26]
        assert there.words.seen == ["joined"]


async def test_the_path_names_the_agent_and_the_session_is_bound_to_it() -> None:
    async with rig() as there, client(f"{there.mcp}/say") as here:
        await here.ask("tools/call", tool("say", words="x"))
        assert there.words.calls[0].session.agent == "say"
        here.url = there.mcp
        assert (await here.post(here.request("ping"))).status_code == 404
        answer = await here.http.post(f"{there.mcp}/nobody", json=initialize(), headers={"Accept": "*/*"})
        assert (answer.status_code, answer.json()["error"]["message"]) == (404, "no agent nobody")
        assert SESSION not in answer.headers and len(there.server.sessions) == 1


async def test_news_go_to_the_stream_of_every_session() -> None:
    async with rig() as there, client(there.mcp) as here, client(there.mcp) as other:
        for session in there.server.sessions:
            session.tell("notifications/tools/list_changed")  # before anybody listens
        async with here.listen() as mine, other.listen() as theirs:
            for events in (mine, theirs):
                assert valid(await events.next(), here.version)["method"] == "notifications/tools/list_changed"
            for session in there.server.sessions:
                session.tell("notifications/agents/list_changed")
            for events in (mine, theirs):
                assert (await events.next())["method"] == "notifications/agents/list_changed"


Case = Callable[[Rig, Client], Awaitable[httpx2.Response]]


def _post(content: Any = None, **headers: str | None) -> Case:
    async def post(there: Rig, here: Client) -> httpx2.Response:
        return await here.post(here.request("ping") if content is None else content, **headers)

    return post


def _get(**headers: str | None) -> Case:
    async def get(there: Rig, here: Client) -> httpx2.Response:
        return await here.http.get(here.url, headers=here.headers(**headers))

    return get


def _bare(method: str, **headers: str | None) -> Case:
    async def request(there: Rig, here: Client) -> httpx2.Response:
        return await here.http.request(method, here.url, headers=here.headers(**headers))

    return request


REFUSED: dict[str, tuple[Case, int, int]] = {
    "no session": (_post(Mcp_Session_Id=None), 400, -32600),
    "an unknown session": (_post(Mcp_Session_Id="x"), 404, -32600),
    "initialize of an unknown session": (_post(initialize(), Mcp_Session_Id="x"), 404, -32600),
    "an unknown revision": (_post(MCP_Protocol_Version="nonsense"), 400, -32022),
    "a revision that only the message names": (
        _post(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "ping",
                "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": versions.V2026_07_28}},
            }
        ),
        400,
        -32020,
    ),
    "no JSON": (_post(b"{"), 400, -32700),
    "nothing": (_post(b""), 400, -32700),
    "no message": (_post({"jsonrpc": "2.0"}), 400, -32600),
    "another JSON-RPC": (_post({"jsonrpc": "1.0", "id": 1, "method": "ping"}), 400, -32600),
    "nested too deep": (_post(b"[" * 100_000), 400, -32700),
    "a null id": (_post(dict(initialize(), id=None)), 400, -32600),
    "another content type": (_post(Content_Type="text/plain"), 415, -32600),
    "no content type": (_post(Content_Type=""), 415, -32600),
    "an encoded body": (_post(Content_Encoding="gzip"), 415, -32600),
    "a client that takes no stream": (_post(Accept="application/json"), 406, -32600),
    "a client that takes no JSON": (_post(Accept="text/event-stream"), 406, -32600),
    "a body too large": (_post({"jsonrpc": "2.0", "method": "x" * 300_000}), 413, -32600),
    "a page of another site": (_post(Origin="https://evil.example"), 403, -32600),
    "a GET without a session": (_get(Mcp_Session_Id=None), 400, -32600),
    "a GET of an unknown session": (_get(Mcp_Session_Id="x"), 404, -32600),
    "a GET that takes no stream": (_get(Accept="application/json"), 406, -32600),
    "a GET of an unknown revision": (_get(MCP_Protocol_Version="nonsense"), 400, -32022),
    "a stream that there is not": (_get(Last_Event_ID="99-1"), 400, -32600),
    "an event that there was not": (_get(Last_Event_ID="0-7"), 400, -32600),
    "no event id": (_get(Last_Event_ID="0-x"), 400, -32600),
    "another method": (_bare("PUT"), 405, -32600),
    "a DELETE without a session": (_bare("DELETE", Mcp_Session_Id=None), 400, -32600),
    "a DELETE of an unknown session": (_bare("DELETE", Mcp_Session_Id="x"), 404, -32600),
}


async def test_what_is_refused_has_a_status_and_an_error() -> None:
    async with rig(max_body=200_000) as there, client(there.mcp) as here:
        for what, (refused, status, code) in REFUSED.items():
            answer = await refused(there, here)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), f"{what}: {answer.text}"
            assert valid(answer.json(), here.version)
        assert (await here.ask("ping"))["result"] == {}


async def test_pages_that_are_named_may_connect_and_read_what_they_need() -> None:
    page = "https://good.example"
    async with rig(origins=[page]) as there, client(there.mcp) as here:
        asked = await here.http.options(
            here.url, headers={"Origin": page, "Access-Control-Request-Headers": "mcp-session-id, content-type"}
        )
        assert asked.status_code == 204
        assert "mcp-session-id" in asked.headers["access-control-allow-headers"]
        answer = await here.post(here.request("ping"), Origin=page)
        assert answer.headers["access-control-allow-origin"] == page
        assert "mcp-session-id" in answer.headers["access-control-expose-headers"]


async def test_a_client_that_names_no_revision_is_taken_at_its_session() -> None:
    async with rig() as there, client(there.mcp) as here:
        answer = await here.post(here.request("ping"), **{VERSION.replace("-", "_"): None}, Accept=None)
        assert answer.json()["result"] == {}


async def test_an_answer_that_takes_long_comes_on_a_stream_that_is_kept_alive() -> None:
    async with (
        rig(keep_alive=0.05) as there,
        client(there.mcp) as here,
        here.stream(here.request("tools/call", tool("wait"))) as events,
    ):
        frame = await events.frame()
        assert frame is not None and (frame.id, frame.data) == ("1-0", b"")
        waiting = asyncio.create_task(events.next())
        await until(lambda: events.comments >= 2)
        there.words.go.set()
        assert (await waiting)["result"]


async def test_characters_that_some_clients_take_for_line_ends_go_out_as_escapes() -> None:
    async with rig() as there, client(there.mcp) as here:
        async with here.stream(here.request("tools/call", tool("say", 1, words="a\u2028b\u0085c"))) as events:
            frames = []
            while (frame := await events.frame()) is not None:
                frames.append(frame.data)
        assert all(b"\xe2\x80\xa8" not in data and b"\xc2\x85" not in data for data in frames)
        assert json.loads(frames[-1])["result"]["content"][0]["text"] == "a\u2028b\u0085c"
