"""A client made with the official Python SDK `acp-sdk` 0.0.6, driven from the command line.

`agent_communication_client.py STEP... -- COMMAND ARG...` talks to a server on stdio, `--sse URL STEP...` over HTTP+SSE.
`agent_communication_steps.py` lists the steps and what is printed.

What the SDK does of its own accord: it proposes 2024-11-05 and ends with an exception on any other answer than that or
2024-10-07; declares `roots` and nothing else; sends `_meta: {}` in every request. It has no call with a progress token
and none to cancel, so its users build those requests from its models, as here. It hands out nothing more, answers among
it, while a notification or a request of the server's is not taken from `incoming_messages`. A request it has no model
for, `elicitation/create` say, ends its session without a word to who waits for an answer; such a notification is a
warning in its log. Of an answer to a request that nobody waits for it makes an exception among the incoming messages,
and a request that is cancelled still waits for its answer. That a server on stdio has gone, or the stream has ended, it
tells nobody: what waits for an answer waits on. Unknown keys are kept everywhere.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from acp import ClientSession, StdioServerParameters, stdio_client, types
from acp.client.sse import sse_client
from acp.shared.session import RequestResponder
from agent_communication_steps import Conversation, Tapped, converse
from pydantic import BaseModel

REQUESTS: dict[str, tuple[Any, Any]] = {
    "ping": (types.PingRequest, types.EmptyResult),
    "logging/setLevel": (types.SetLevelRequest, types.EmptyResult),
    "agents/list": (types.ListAgentsRequest, types.ListAgentsResult),
    "agents/templates/list": (types.ListAgentTemplatesRequest, types.ListAgentTemplatesResult),
    "agents/create": (types.CreateAgentRequest, types.CreateAgentResult),
    "agents/destroy": (types.DestroyAgentRequest, types.DestroyAgentResult),
    "agents/run": (types.RunAgentRequest, types.RunAgentResult),
    "tools/list": (types.ListToolsRequest, types.ListToolsResult),
    "tools/call": (types.CallToolRequest, types.CallToolResult),
}
FAILED = types.ErrorData(code=-32099, message="the client was told to fail")


class Anything(BaseModel, extra="allow"):
    """A result, or a request, that the SDK has no model for."""


def dump(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class BeeConversation(Conversation):
    """The steps through the SDK's session."""

    session: ClientSession
    last = 0

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        if self.args.sse:
            headers = dict(line.split(": ", 1) for line in self.args.header)
            transport = sse_client(self.args.sse, headers=headers)
        else:
            command, *rest = self.args.command
            transport = stdio_client(StdioServerParameters(command=command, args=rest, env=dict(os.environ)))
        async with transport as (reading, writing):
            seen = Tapped(reading, "client", self.wire, self.message)
            told = Tapped(writing, "server", self.wire, self.message)
            async with ClientSession(seen, told) as self.session:
                listening = asyncio.ensure_future(self.listen())
                yield
                listening.cancel()

    @staticmethod
    def message(message: Any) -> Any:
        return None if isinstance(message, Exception) else dump(message)

    async def listen(self) -> None:
        async for message in self.session.incoming_messages:
            if isinstance(message, Exception):
                self.out.tell("stray", told=f"{type(message).__name__}: {message}"[:500])
            elif isinstance(message, RequestResponder):
                await self.answer(message)
            else:
                told = dump(message)
                self.out.tell(told["method"], told=told.get("params"))

    async def answer(self, responder: Any) -> None:
        """Answers what the server asked, with the models that the SDK has for it."""
        request = responder.request.root
        self.out.tell(request.method, asked=dump(request).get("params"))
        found: Any = None
        match request:
            case types.PingRequest():
                found = types.EmptyResult()
            case types.ListRootsRequest():
                found = types.ListRootsResult(roots=[types.Root(uri="file:///rig", name="rig")])
            case types.CreateMessageRequest() if self.sampling not in ("error", "ignore"):
                said = types.TextContent(type="text", text=self.sampling)
                found = types.CreateMessageResult(role="assistant", content=said, model="rig", stopReason="endTurn")
            case types.CreateMessageRequest() if self.sampling == "ignore":
                return
        async with responder:
            await responder.respond(types.ClientResult(found) if found else FAILED)
        if found:
            self.out.tell(request.method, answered=dump(found))
        else:
            self.out.tell(request.method, refused=FAILED.code)

    async def perform(self, method: str, params: dict[str, Any]) -> Any:
        if method == "initialize":
            return dump(await self.session.initialize())
        if method not in REQUESTS:
            asked: Any = Anything(method=method, params=params)
            return dump(await self.session.send_request(asked, Anything))
        request, result = REQUESTS[method]
        typed = types.ClientRequest(request(method=method, **({"params": params} if params else {})))
        self.last = self.session._request_id
        return dump(await self.session.send_request(typed, result))

    async def cancel_last(self) -> None:
        await self.send_notification("notifications/cancelled", {"requestId": self.last, "reason": "told to"})

    async def send_notification(self, method: str, params: dict[str, Any]) -> None:
        told: Any = Anything(method=method, **({"params": params} if params else {}))
        await self.session.send_notification(told)


if __name__ == "__main__":
    converse(BeeConversation, ("sse",))
