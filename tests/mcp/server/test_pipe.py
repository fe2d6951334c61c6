"""A client at the other end of a pipe, whatever that is: the handshake, calls, questions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.core.errors import Unavailable
from gateway.mcp import versions
from gateway.mcp.options import McpServeOptions
from gateway.mcp.server import McpServer
from gateway.transport.pipe import Unreadable
from tests.mcp.server.rig import Words, initialize, tool, valid
from tests.support.pipes import LIMIT, MemoryPipe, pair
from tests.support.rpc import hear, say, settled

BLUE = {"action": "accept", "content": {"answer": "blue"}}


class Line:
    """The client's end."""

    def __init__(self, pipe: MemoryPipe, server: McpServer, words: Words) -> None:
        self.pipe = pipe
        self.server = server
        self.words = words
        self.version = versions.V2025_11_25
        self._heard: list[Any] = []

    async def say(self, *messages: Any) -> None:
        await say(self.pipe, *messages)

    async def ask(self, method: str, params: Any = None, id: Any = 1) -> None:
        await self.say({"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})})

    async def next(self) -> Any:
        """The next message, which fits the schema."""
        while not self._heard:
            async with asyncio.timeout(30):
                self._heard += await hear(self.pipe, 1)
        return valid(self._heard.pop(0), self.version)

    async def answer(self, method: str, params: Any = None, id: Any = 1) -> Any:
        """What a request is answered with, nothing being said before."""
        await self.ask(method, params, id)
        said = await self.next()
        assert said["id"] == id, said
        return said

    async def initialize(self, version: str = versions.V2025_11_25, **capabilities: Any) -> Any:
        self.version = version
        await self.say(initialize(version, capabilities))
        answer = await self.next()
        await self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer


@asynccontextmanager
async def line(
    *, limit: int = LIMIT, linger: float = 0.0, agent: str | None = None, **options: Any
) -> AsyncIterator[Line]:
    """A connection, while the block lasts. No task is left behind."""
    before = asyncio.all_tasks()
    words = Words()
    server = McpServer(words, McpServeOptions(**options))
    server.linger = linger
    here, there = pair(limit)
    serving = asyncio.create_task(server.converse(there, agent))
    try:
        yield Line(here, server, words)
    finally:
        await here.aclose()
        async with asyncio.timeout(30):
            await asyncio.wait([serving])
        assert there.closed
        await settled()
        assert not asyncio.all_tasks() - before and not server.sessions


async def test_the_handshake_agrees_on_the_revision_that_the_client_proposes() -> None:
    for version in versions.HANDSHAKE:
        async with line() as here:
            result = (await here.initialize(version))["result"]
            assert result["protocolVersion"] == version
            assert (result["serverInfo"], result["instructions"]) == ({"name": "rig", "version": "1"}, "Say words.")
            assert here.words.seen == ["joined"]
        assert here.words.seen == ["joined", "left"]


@pytest.mark.parametrize("proposed", ["1999-01-01", versions.V2026_07_28, None, 7])
async def test_a_client_that_proposes_what_there_is_not_gets_the_newest_of_a_handshake(proposed: Any) -> None:
    async with line() as here:
        answer = await here.answer("initialize", {"protocolVersion": proposed, "capabilities": None})
        assert answer["result"]["protocolVersion"] == versions.V2025_11_25


async def test_before_initialize_only_ping_is_served() -> None:
    async with line() as here:
        assert (await here.answer("ping"))["result"] == {}
        for method in ("tools/list", "logging/setLevel", "no/such"):
            assert (await here.answer(method))["error"]["code"] == -32600
        await here.say({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        await here.initialize()
        assert "result" in await here.answer("tools/list")
        assert here.words.seen == ["joined"]


async def test_a_request_may_follow_initialize_at_once_and_initialize_may_come_again() -> None:
    async with line() as here:
        await here.say(initialize(versions.V2025_03_26), {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        here.version = versions.V2025_03_26
        assert [(await here.next())["id"], (await here.next())["id"]] == [0, 1]
        await here.initialize(versions.V2025_06_18, elicitation={})
        assert here.words.seen == ["joined"]
        await here.ask("tools/call", tool("ask", question="?"))
        assert (await here.next())["method"] == "elicitation/create"
        assert here.words.calls[-1].client.can("elicitation")


async def test_who_an_agent_is_not_there_for_is_told_by_initialize() -> None:
    async with line(agent="nobody") as here:
        answer = await here.answer("initialize", initialize()["params"])
        assert answer["error"] == {"code": -32002, "message": "no agent nobody", "data": {"method": "initialize"}}
        assert (await here.answer("tools/list"))["error"]["code"] == -32600
        assert here.words.seen == []


async def test_a_call_tells_progress_before_its_answer_and_nothing_after_it() -> None:
    async with line() as here:
        await here.initialize()
        await here.ask("tools/call", tool("say", "t", words="one two"), id="a")
        said = [await here.next() for _ in range(3)]
        assert [one["params"] for one in said[:2]] == [
            {"progressToken": "t", "progress": 1, "message": "one"},
            {"progressToken": "t", "progress": 2, "message": "two"},
        ]
        assert said[2] == {"jsonrpc": "2.0", "id": "a", "result": {"content": [{"type": "text", "text": "one two"}]}}
        (call,) = here.words.calls
        call.notify("notifications/progress", {"progressToken": "t", "progress": 3})
        assert (await here.answer("ping", id=2))["result"] == {}


@pytest.mark.parametrize(
    ("method", "params", "code", "message"),
    [
        ("no/such", None, -32601, "no method no/such"),
        ("server/discover", None, -32601, "no method server/discover"),
        ("tools/call", [1], -32602, "params must be an object"),
        ("tools/call", {"name": "boom"}, -32603, "it failed"),
        ("tools/call", {"name": "gone"}, -32002, "no such thing"),
        ("tools/call", {}, -32603, "it failed"),
        ("logging/setLevel", {"level": "loud"}, -32602, None),
        ("logging/setLevel", {}, -32602, None),
        ("logging/setLevel", None, -32602, None),
        ("initialize", [], -32602, None),
    ],
)
async def test_what_is_wrong_is_answered(method: str, params: Any, code: int, message: str | None) -> None:
    async with line() as here:
        await here.initialize()
        error = (await here.answer(method, params))["error"]
        assert error["code"] == code and message in (None, error["message"])
        assert "private" not in json.dumps(error)


@pytest.mark.parametrize(
    ("said", "id", "code"),
    [
        (b"{", None, -32700),
        (b'{"jsonrpc": "2.0", "id": 4, "method": "ping", "params": {', 4, -32700),
        (b'"hello"', None, -32600),
        (b'{"jsonrpc": "1.0", "id": 5, "method": "ping"}', 5, -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', None, -32600),
        (b'{"jsonrpc": "2.0", "id": [1], "method": "ping"}', None, -32600),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', None, -32600),
        (b"[" * 5000, None, -32700),
    ],
)
async def test_what_is_no_message_is_answered_and_nothing_worse(said: bytes, id: Any, code: int) -> None:
    async with line() as here:
        await here.initialize()
        await here.say(said)
        answer = await here.next()
        assert (answer["id"], answer["error"]["code"]) == (id, code)
        assert (await here.answer("ping"))["result"] == {}


@pytest.mark.parametrize(
    ("start", "end", "id"),
    [
        (b'{"method":"tools/call","params":{"a":"', b'"},"jsonrpc":"2.0","id":4}', 4),  # the TypeScript SDK's order
        (b'{"params":{"a":"', b'"},"jsonrpc":"2.0","id":4}', None),  # whether it asks or answers stands in the middle
    ],
)
async def test_a_message_over_the_limit_is_answered_wherever_its_id_stands(start: bytes, end: bytes, id: Any) -> None:
    async with line() as here:
        await here.initialize()
        here.pipe.inject(Unreadable("over the limit", start, 10**8, end))
        answer = await here.next()
        assert (answer["id"], answer["error"]) == (id, {"code": -32600, "message": "over the limit"})


async def test_messages_in_an_array_are_taken_in_the_one_revision_that_has_them() -> None:
    async with line() as here:
        await here.initialize(versions.V2025_03_26)
        await here.say([{"jsonrpc": "2.0", "id": id, "method": "ping"} for id in (1, 2)])
        assert sorted(answer["id"] for answer in await here.next()) == [1, 2]
        await here.initialize(versions.V2025_06_18)
        await here.say([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
        assert (await here.next())["error"]["code"] == -32600


async def test_the_id_of_a_request_that_is_under_way_is_not_taken_twice() -> None:
    async with line() as here:
        await here.initialize()
        await here.ask("tools/call", tool("wait"), id=7)
        error = (await here.answer("ping", id=7))["error"]
        assert error["code"] == -32600 and "under way" in error["message"]
        here.words.go.set()
        assert (await here.next())["result"]["content"][0]["text"] == "waited"
        assert (await here.answer("ping", id=7))["result"] == {}


async def test_more_calls_than_may_be_are_refused() -> None:
    async with line(max_calls=2) as here:
        await here.initialize()
        await here.ask("tools/call", tool("wait"), id=1)
        await here.ask("tools/call", tool("wait"), id=2)
        assert "too many" in (await here.answer("ping", id=3))["error"]["message"]


async def test_a_cancelled_call_is_answered_and_nothing_else_is_cancelled() -> None:
    async with line() as here:
        await here.initialize()
        await here.ask("tools/call", tool("wait"), id=1)
        await here.ask("tools/call", tool("wait"), id="1")
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        for params in ({"requestId": "1", "reason": None}, {"requestId": 9}, {}, {"requestId": None}, [1], None):
            await here.say(cancel if params is None else {**cancel, "params": params})
        answer = await here.next()
        assert (answer["id"], answer["error"]) == ("1", {"code": -32800, "message": "Request cancelled"})
        assert here.words.seen == ["joined", "waits 1", "waits 1", "cancelled 1"]
        here.words.go.set()
        assert (await here.next())["result"]


async def test_the_end_of_the_connection_cancels_its_calls() -> None:
    async with line() as here:
        await here.initialize()
        await here.ask("tools/call", tool("wait"), id=1)
        await settled()
    assert here.words.seen == ["joined", "waits 1", "cancelled 1", "left"]


async def test_a_client_that_says_its_last_word_and_listens_on_gets_its_answer() -> None:
    async with line(linger=5.0) as here:
        await here.initialize()
        await here.ask("tools/call", tool("wait"), id=1)
        await settled()
        here.pipe.half_close()
        await settled()
        here.words.go.set()
        assert (await here.next())["result"]["content"][0]["text"] == "waited"


async def test_a_question_to_the_client_is_answered_by_it() -> None:
    async with line() as here:
        await here.initialize(elicitation={})
        await here.ask("tools/call", tool("ask", question="colour?"), id=1)
        asked = await here.next()
        assert asked["params"]["message"] == "colour?"
        await here.say({"jsonrpc": "2.0", "id": asked["id"], "result": BLUE})
        assert (await here.next())["result"]["content"][0]["text"] == "accept blue"


async def test_a_question_that_nobody_waits_for_any_more_is_taken_back() -> None:
    async with line() as here:
        await here.initialize(elicitation={})
        await here.ask("tools/call", tool("ask"), id=1)
        asked = await here.next()
        await here.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        said = [await here.next(), await here.next()]
        taken = next(one for one in said if "method" in one)
        assert (taken["method"], taken["params"]["requestId"]) == ("notifications/cancelled", asked["id"])
        await here.say({"jsonrpc": "2.0", "id": asked["id"], "result": BLUE})
        assert (await here.answer("ping"))["result"] == {}


async def test_the_clients_own_error_reaches_who_asked() -> None:
    async with line() as here:
        await here.initialize(elicitation={})
        await here.ask("tools/call", tool("ask"), id=1)
        asked = await here.next()
        await here.say({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "will not"}})
        assert (await here.next())["error"] == {"code": -1, "message": "will not"}
        await here.ask("tools/call", tool("ask"), id=2)
        asked = await here.next()
        await here.say(b'{"jsonrpc": "2.0", "id": %d, "result": {' % asked["id"])
        assert "cannot be read" in (await here.next())["error"]["message"]


async def test_news_go_to_everybody_who_is_there_but_not_to_who_does_not_read() -> None:
    async with line(limit=1000) as here:
        await here.initialize()
        (session,) = here.server.sessions
        session.tell("notifications/tools/list_changed")
        assert (await here.next())["method"] == "notifications/tools/list_changed"
        for _ in range(100):
            session.tell("notifications/tools/list_changed", {"_meta": {"x": "x" * 50_000}})
        await here.ask("ping", id="end")
        told = 0
        while (await here.next()).get("id") != "end":
            told += 1
        assert 15 < told < 30


async def test_who_does_not_read_is_waited_for() -> None:
    async with line(limit=1000) as here:
        await here.initialize()
        await here.ask("tools/call", tool("flood", 1, count=100, size=50_000))
        await settled(200)
        stopped = here.words.flooded
        assert 15 < stopped < 30
        said = 1
        while "result" not in (await here.next()):
            said += 1
        assert said == 101


async def test_messages_are_told_from_the_level_on_that_the_client_wants() -> None:
    async with line() as here:
        await here.initialize()

        async def told(level: str) -> bool:
            await here.ask("tools/call", tool("tell", words="x", level=level))
            said = await here.next()
            return said.get("method") == "notifications/message" and bool(await here.next())

        assert [await told(level) for level in ("info", "warning", "error")] == [False, True, True]
        assert (await here.answer("logging/setLevel", {"level": "debug"}))["result"] == {}
        assert await told("debug")


async def test_other_notifications_reach_the_service_and_cannot_hurt() -> None:
    async with line() as here:
        await here.initialize()
        await here.say({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        await here.say({"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": 1}})
        await here.answer("ping")
        assert here.words.seen[1:] == ["notifications/roots/list_changed {}", 'notifications/x {"a": 1}']


async def test_one_client_too_many_is_refused() -> None:
    async with line(max_sessions=1) as here:
        await here.initialize()
        client, there = pair()
        with pytest.raises(Unavailable):
            await here.server.converse(there, None)
        assert there.closed and await client.receive() == []
