"""A client made with the official Python SDK `mcp` 1.30.0, driven from the command line.

`mcp_tools_client_1.py STEP... -- COMMAND ARG...` talks to a server on stdio, `--http URL STEP...` over Streamable HTTP,
`--sse URL STEP...` over HTTP+SSE. `agent_communication_steps.py` lists the steps and what is printed; `agents/*` are
raw requests through the session. It also prints `{"op": "progress", "told": [PROGRESS, TOTAL, MESSAGE]}` for each call
of a progress callback.

What the SDK does of its own accord: it proposes 2025-11-25 and takes any version before it back to 2024-11-05. A
progress callback makes the token the request's id, 0 among them, and replaces a token in `_meta`. After a tool's result
it asks for `tools/list` unless it knows the tool, and checks `structuredContent` against the output schema. It sends no
cancellation when its user stops waiting: that takes a notification, and the call still waits for its answer. It answers
a request that it has no model for with -32602, drops such a notification with a warning in its log, and makes of an
answer that nobody waits for an exception to its message handler. While a callback of its user answers a request, it
hands out nothing else that came. When the connection ends, what waits fails with -32000 `Connection closed`.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
from agent_communication_steps import Conversation, Tapped, converse
from mcp import ClientSession, StdioServerParameters, stdio_client, types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.session import RequestResponder
from pydantic import BaseModel

FAILED = types.ErrorData(code=-32099, message="the client was told to fail")


class Anything(BaseModel, extra="allow"):
    """A result, a request or a notification that the SDK has no model for."""


def dump(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class McpConversation(Conversation):
    """The steps through the SDK's session."""

    session: ClientSession
    last = 0

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        self.wire.shown = "notifications/agents/"
        async with self.transport() as (reading, writing):
            seen: Any = Tapped(reading, "client", self.wire, self.message)
            told: Any = Tapped(writing, "server", self.wire, self.message)
            session = ClientSession(
                seen,
                told,
                sampling_callback=self.sample,
                elicitation_callback=self.elicit,
                list_roots_callback=self.roots,
                message_handler=self.handle,
                client_info=types.Implementation(name="rig-mcp-1-client", version="0.1"),
            )
            async with session as self.session:
                yield

    @contextlib.asynccontextmanager
    async def transport(self) -> AsyncIterator[tuple[Any, Any]]:
        headers = dict(line.split(": ", 1) for line in self.args.header)
        if self.args.http:
            async with (
                httpx.AsyncClient(headers=headers, timeout=httpx.Timeout(30, read=300)) as client,
                streamable_http_client(self.args.http, http_client=client) as (reading, writing, _),
            ):
                yield reading, writing
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
        """The SDK's message handler: gets whatever came, requests it has answered among it."""
        if isinstance(message, Exception):
            self.out.tell("stray", told=f"{type(message).__name__}: {message}"[:500])
        elif not isinstance(message, RequestResponder):
            told = dump(message)
            self.out.tell(told["method"], told=told.get("params"))

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        content = types.TextContent(type="text", text=self.sampling)
        found = types.CreateMessageResult(role="assistant", content=content, model="rig", stopReason="endTurn")
        return await self.answer("sampling/createMessage", params, self.sampling, found)

    async def elicit(self, context: Any, params: Any) -> Any:
        how = self.elicitation
        if how in ("decline", "cancel", "error", "ignore"):
            found = types.ElicitResult(action="cancel" if how == "cancel" else "decline")
        else:
            found = types.ElicitResult(action="accept", content=json.loads(how))
        return await self.answer("elicitation/create", params, how, found)

    async def roots(self, context: Any) -> Any:
        found = types.ListRootsResult(roots=[types.Root.model_validate({"uri": "file:///rig", "name": "rig"})])
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
        self.last = self.session._request_id
        if method == "initialize":
            return dump(await self.session.initialize())
        if method == "ping":
            return dump(await self.session.send_ping())
        if method == "logging/setLevel":
            return dump(await self.session.set_logging_level(params["level"]))
        if method == "tools/list":
            paged = types.PaginatedRequestParams.model_validate(params)
            return dump(await self.session.list_tools(params=paged))
        if method == "tools/call":
            return await self.call_tool(params)
        asked: Any = Anything(method=method, **({"params": params} if params else {}))
        return dump(await self.session.send_request(asked, Anything))

    async def call_tool(self, params: dict[str, Any]) -> Any:
        meta = dict(params.get("_meta", {}))
        callback = None
        if self.token == "auto":
            run = meta.pop("progressToken")

            async def callback(progress: float, total: float | None, message: str | None) -> None:
                self.out.tell("progress", run=int(run[4:]), told=[progress, total, message])

        result = await self.session.call_tool(
            params["name"], params["arguments"], progress_callback=callback, meta=meta or None
        )
        return dump(result)

    def progress(self, op: str, run: int, asked: dict[str, Any]) -> str:
        own = op == "tools/call" and self.token == "auto"
        return f'"op":"progress","run":{run},' if own else super().progress(op, run, asked)

    async def cancel_last(self) -> None:
        await self.send_notification("notifications/cancelled", {"requestId": self.last, "reason": "told to"})

    async def send_notification(self, method: str, params: dict[str, Any]) -> None:
        told: Any = Anything(method=method, **({"params": params} if params else {}))
        await self.session.send_notification(told)


if __name__ == "__main__":
    converse(McpConversation, ("http", "sse"))
