"""An MCP server behind a proxy: calls of clients of another revision, and who follows a resource of it."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Raw

from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.proxy import ANY, SUBSCRIBE, UNSUBSCRIBE, McpProxy, Subscriptions
from gateway.wire import jsonrpc
from tests.support.pipes import pair
from tests.support.rpc import hear, say
from tests.support.scripted import until

OURS: JsonObject = {wire.META_VERSION: versions.V2026_07_28, wire.META_CAPABILITIES: {"elicitation": {"form": {}}}}
HELLO: JsonObject = {
    "protocolVersion": versions.V2025_11_25,
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "kit", "version": "1"},
}


async def test_a_server_with_a_handshake_asks_a_client_without_one_in_the_middle_of_its_call() -> None:
    told: list[str] = []

    async def ask(method: str, params: JsonObject) -> Raw:
        if method == wire.INITIALIZE:
            return jsonrpc.raw(HELLO)
        assert (method, params["name"], params["arguments"]) == ("tools/call", "hammer", {"hits": 2})
        assert set(params[wire.META]) == {wire.PROGRESS_TOKEN, "mine"}
        await proxy.heard(wire.PROGRESS, jsonrpc.raw({**params[wire.META], "progress": 1}))
        form = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
        answer = await asyncio.create_task(proxy.asked(wire.ELICIT, jsonrpc.raw(form)))
        return jsonrpc.raw({"content": [{"type": "text", "text": jsonrpc.unpack(answer)["action"]}]})

    async def tell(method: str, params: Any) -> None:
        told.append(method)

    proxy = McpProxy("kit", ask, tell, capabilities=ANY, info={"name": "x", "version": "0"})
    await proxy.start(modern=False)
    here, there = pair()
    serving = asyncio.create_task(proxy.converse(there))
    meta = {**OURS, wire.PROGRESS_TOKEN: "token", "mine": 1}
    call: JsonObject = {"name": "hammer", "arguments": {"hits": 2}, wire.META: meta}
    await say(here, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    async with asyncio.timeout(30):
        progress, asked = await hear(here, 2)
    assert (progress["params"]["progressToken"], progress["params"]["progress"]) == ("token", 1)
    assert asked["result"]["resultType"] == wire.INPUT_REQUIRED
    ((key, question),) = asked["result"]["inputRequests"].items()
    assert question["params"]["message"] == "Sure?"
    answers = {key: {"action": "decline"}}
    again = {**call, "requestState": asked["result"]["requestState"], "inputResponses": answers}
    await say(here, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": again})
    async with asyncio.timeout(30):
        (answer,) = await hear(here, 1)
    assert answer["result"]["content"] == [{"type": "text", "text": "decline"}]
    assert told == [wire.INITIALIZED]
    await here.aclose()
    await serving
    await proxy.aclose()


class Server:
    """A server of a revision with requests for each resource, which answers when it may."""

    version = "2025-11-25"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.may = asyncio.Event()

    async def call(self, method: str, params: dict[str, Any]) -> Raw:
        self.asked.append((method, params["uri"]))
        await self.may.wait()
        return Raw(b"{}")


class Client:
    """An MCP client that listens."""

    resources = frozenset({"file:///a"})


async def test_who_leaves_before_the_server_has_answered_follows_nothing() -> None:
    server: Any = Server()
    session: Any = Client()
    follows = Subscriptions(server)
    follows.joined(session)
    await until(lambda: bool(server.asked))
    follows.left(session)
    server.may.set()
    await until(lambda: not follows._work)
    assert server.asked == [(SUBSCRIBE, "file:///a"), (UNSUBSCRIBE, "file:///a")]
    assert not follows.follows(session, "file:///a")
