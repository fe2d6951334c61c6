"""The prompts and resources of an MCP server behind a route, at the door of its one agent (`/agent-context/{agent}`).

They are the server's own, verbatim. The gateway's own resources (`agent://`) are never asked of it.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from msgspec import Raw

from adapters.agent_context.inbound.environment import Environment
from adapters.agent_context.wire import constants as wire
from adapters.agent_context.wire.constants import INVALID, PROTOCOL
from adapters.agent_context.wire.messages import read
from adapters.agent_context.wire.tools import PageParams, PromptParams
from gateway.core.errors import InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp.runs.paging import listed
from gateway.mcp.server.contract import McpCall
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)

THEIRS: Final = "agent:"
"""Prefix of the cursors that are the server's own."""
OURS: Final = "agent://"


class Belongings:
    """One per gateway process."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    async def prompts(self, call: McpCall) -> JsonObject:
        """`prompts/list`."""
        asked = read(call.params, PageParams)
        self._env.people.known(call)
        found, following = await self.more(call, "prompts", asked.cursor or THEIRS)
        return listed("prompts", found, following)

    async def prompt(self, call: McpCall) -> JsonObject:
        """`prompts/get`."""
        asked = read(call.params, PromptParams)
        if call.session.agent is None:
            details = {"expected": "a prompt, at the door of its agent", "received": asked.name}
            data = {"code": "not_found", "retryable": False, "path": "/name", "details": details}
            raise RpcError(INVALID, f"/name: no prompt {asked.name} here", data)
        params = {"name": asked.name, **({} if asked.arguments is None else {"arguments": asked.arguments})}
        return await self._relay(call, call.session.agent, params)

    async def resource(self, call: McpCall, uri: str) -> JsonObject | None:
        """`resources/read` of one of the server's; None for one that it is not asked for."""
        if call.session.agent is None or uri.startswith(OURS):
            return None
        return await self._relay(call, call.session.agent, {"uri": uri})

    async def more(self, call: McpCall, key: str, cursor: str) -> tuple[list[JsonObject], str | None]:
        """A page of what the server lists under `key`, and the cursor of the next. Nothing from one that has no such
        list. `cursor` begins with THEIRS, and is only that for the first page.
        """
        if call.session.agent is None:
            return [], None
        theirs = cursor.removeprefix(THEIRS)
        try:
            result = await self._relay(call, call.session.agent, {"cursor": theirs} if theirs else {})
        except InterlinguaError as error:
            if theirs:
                raise
            log.info("agent %s lists no %s: %s", call.session.agent, key, error)
            return [], None
        items = result.get(key)
        found = [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
        found = [each for each in found if not str(each.get("uri", each.get("uriTemplate", ""))).startswith(OURS)]
        following = result.get("nextCursor")
        return found, THEIRS + following if isinstance(following, str) and following else None

    async def _relay(self, call: McpCall, agent: str, params: JsonObject) -> JsonObject:
        """Ask the server the same. Raises the server's own error, Denied, Unsupported."""
        env = self._env
        env.people.may(call, "message", agent)
        env.directory.check(agent)
        answer = await env.gateway.backchannel.relay(agent, PROTOCOL, call.method, Raw(jsonrpc.encoded(params)))
        result: Any = jsonrpc.unpack(answer)
        if not isinstance(result, dict):
            raise RpcError(wire.AGENT_FAILED, f"agent {agent} answers {call.method} with what is no object")
        return result
