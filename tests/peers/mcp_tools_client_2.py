"""A client made with the official Python SDK `mcp` 2.3.0, driven from the command line.

`mcp_tools_client_2.py STEP... -- COMMAND ARG...` talks to a server on stdio, `--http URL STEP...` over Streamable HTTP,
`--sse URL STEP...` over HTTP+SSE. `agent_communication_steps.py` lists the steps and what is printed; `agents/*` are
raw requests through the session. It also prints `{"op": "progress", "told": [PROGRESS, TOTAL, MESSAGE]}` for each call
of a progress callback, and takes these options: `--mode MODE` (`auto`, the default, asks `server/discover` first and
initializes if that fails; `legacy` initializes; `2026-07-28` does neither), `--listen` (listens for changed lists of
tools, from the start), `--resource URI` (with that: for changes of this resource and of the list as well). `initialize`
prints what was negotiated, whichever way it was, and is done by the connection even with `--bare`.

What the SDK does of its own accord: it proposes 2026-07-28, or 2025-11-25 where it initializes. Ids are from 1, and a
progress callback makes the token the request's id and replaces one in `_meta`. When its user stops waiting it cancels:
with `notifications/cancelled`, or by closing the stream over HTTP in 2026-07-28; what comes after that it drops. Where
a tool's result is `input_required` it asks its user's callbacks and calls again, with a new id and token, up to ten
times; what any other method answers so it hands to the user. It takes what it does not know out of capabilities and
results of MCP's own methods, and a result of these that does not fit the revision is an exception. Its user's
notification bindings get nothing unless they are part of an extension, which is declared to the server. Notifications
are handed out concurrently, so their order is not assured.
"""

import asyncio
import contextlib
import json
import os
import warnings
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import mcp_types as types
from agent_communication_steps import Conversation, Tapped, converse
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.extension import ClientExtension, NotificationBinding
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel

FAILED = types.ErrorData(code=-32099, message="the client was told to fail")
PROGRESS = "notifications/agents/run/progress"
CHANGED = "notifications/agents/list_changed"


class Anything(BaseModel, extra="allow"):
    """Params or a result that the SDK has no model for."""


class Agents(ClientExtension):
    """Takes the notifications about agents, as the SDK wants an extension of MCP to be made."""

    identifier = "com.example/agents"

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def notifications(self) -> list[NotificationBinding[Any]]:
        return [self.binding(PROGRESS), self.binding(CHANGED)]

    def binding(self, method: str) -> NotificationBinding[Any]:
        async def handle(params: Anything) -> None:
            self.handle(method, dump(params))

        return NotificationBinding(method=method, params_type=Anything, handler=handle)


def dump(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class McpConversation(Conversation):
    """The steps through the SDK's client."""

    client: Client

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        self.client = Client(
            self.transport(),
            mode=self.args.mode or "auto",
            sampling_callback=self.sample,
            elicitation_callback=self.elicit,
            list_roots_callback=self.roots,
            message_handler=self.handle,
            client_info=types.Implementation(name="rig-mcp-2-client", version="0.1"),
            extensions=[Agents(lambda method, told: self.out.tell(method, told=told))],
        )
        async with self.client:
            if self.args.listen:
                uri = self.args.resource
                resources: Any = {"resources_list_changed": True, "resource_subscriptions": [uri]} if uri else {}
                async with self.client.listen(tools_list_changed=True, **resources) as changes:
                    watching = asyncio.ensure_future(self.watch(changes))
                    yield
                    watching.cancel()
            else:
                yield

    async def watch(self, changes: Any) -> None:
        async for change in changes:
            self.out.tell("subscriptions/listen", told=type(change).__name__, uri=getattr(change, "uri", None))

    @contextlib.asynccontextmanager
    async def transport(self) -> AsyncIterator[tuple[Any, Any]]:
        async with self.streams() as (reading, writing):
            told = Tapped(writing, "server", self.wire, self.message)
            yield Tapped(reading, "client", self.wire, self.message), told

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        headers = dict(line.split(": ", 1) for line in self.args.header)
        if self.args.http:
            async with (
                httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=300)) as client,
                streamable_http_client(self.args.http, http_client=client) as streams,
            ):
                yield streams
        elif self.args.sse:
            async with sse_client(self.args.sse, headers=headers) as streams:
                yield streams
        else:
            command, *rest = self.args.command
            async with stdio_client(StdioServerParameters(command=command, args=rest, env=dict(os.environ))) as streams:
                yield streams

    @staticmethod
    def message(message: Any) -> Any:
        return None if isinstance(message, Exception) else dump(message.message)

    async def handle(self, message: Any) -> None:
        """The SDK's message handler: gets notifications, and what went wrong."""
        if isinstance(message, Exception):
            self.out.tell("stray", told=f"{type(message).__name__}: {message}"[:500])
        else:
            told = dump(message)
            self.out.tell(told["method"], told=told.get("params"))

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        content = types.TextContent(type="text", text=self.sampling)
        found = types.CreateMessageResult(role="assistant", content=content, model="rig", stop_reason="endTurn")
        return await self.answer("sampling/createMessage", params, self.sampling, found)

    async def elicit(self, context: Any, params: Any) -> Any:
        how = self.elicitation
        if how in ("decline", "cancel", "error", "ignore"):
            found = types.ElicitResult(action="cancel" if how == "cancel" else "decline")
        else:
            found = types.ElicitResult(action="accept", content=json.loads(how))
        return await self.answer("elicitation/create", params, how, found)

    async def roots(self, context: Any) -> Any:
        found = types.ListRootsResult.model_validate({"roots": [{"uri": "file:///rig", "name": "rig"}]})
        return await self.answer("roots/list", None, "", found)

    async def answer(self, method: str, params: Any, how: str, found: Any) -> Any:
        self.out.tell(method, asked=dump(params) if params else None)
        if how == "ignore":
            await asyncio.Event().wait()
        if how == "error":
            self.out.tell(method, refused=FAILED.code)
            return FAILED
        self.out.tell(method, answered=dump(found))
        return found

    async def perform(self, method: str, params: dict[str, Any]) -> Any:
        session = self.client.session
        if method == "initialize":
            return dump(session.discover_result or session.initialize_result or Anything(adopted=True))
        if method == "ping":
            return dump(await session.send_ping())
        if method == "logging/setLevel":
            return dump(await session.set_logging_level(params["level"]))
        if method == "tools/list":
            return dump(await self.client.list_tools(cursor=params.get("cursor")))
        if method == "tools/call":
            return await self.call_tool(params)
        asked: Any = types.Request[Any, Any](method=method, params=params)
        return dump(await session.send_request(asked, Anything))

    async def call_tool(self, params: dict[str, Any]) -> Any:
        meta = dict(params.get("_meta", {}))
        callback = None
        if self.token == "auto":
            run = meta.pop("progressToken")

            async def callback(progress: float, total: float | None, message: str | None) -> None:
                self.out.tell("progress", run=int(run[4:]), told=[progress, total, message])

        given: Any = meta or None
        result = await self.client.call_tool(
            params["name"], params["arguments"], progress_callback=callback, meta=given
        )
        return dump(result)

    def progress(self, op: str, run: int, asked: dict[str, Any]) -> str:
        own = op == "tools/call" and self.token == "auto"
        return f'"op":"progress","run":{run},' if own else super().progress(op, run, asked)

    async def cancel_last(self) -> None:
        if self.current:
            self.current.cancel()

    async def send_notification(self, method: str, params: dict[str, Any]) -> None:
        told: Any = types.Notification[Any, Any](method=method, params=params or None)
        await self.client.session.send_notification(told)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of what 2026-07-28 deprecates, which is meant here
    converse(McpConversation, ("http", "sse"), ("mode", "resource"), ("listen",))
