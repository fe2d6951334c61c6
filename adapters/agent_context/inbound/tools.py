"""The standard tools (section 4.2), for clients that may know nothing but MCP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from adapters.agent_context.codec.errors import to_rpc
from adapters.agent_context.inbound.environment import Environment, correlation_of
from adapters.agent_context.inbound.results import failed, found_agents, result
from adapters.agent_context.inbound.tasks import TaskRequests
from adapters.agent_context.wire import tools as wire
from adapters.agent_context.wire.constants import (
    AGENT,
    AGENT_EVALUATE,
    AGENT_RESTORE,
    AGENT_REVOKE,
    AGENT_SEARCH,
    CORRELATION,
    DEADLINE,
    INVALID,
    NOT_FOUND,
    RESTORED,
    REVOKED,
    TASK_ANSWER,
    TASK_ASSIGN,
    TASK_CANCEL,
    TASK_LIST,
)
from adapters.agent_context.wire.messages import read
from adapters.agent_context.wire.reading import checked
from gateway.core.errors import NotFound
from gateway.core.types import JsonObject
from gateway.mcp.runs.paging import listed, page
from gateway.mcp.server.contract import McpCall
from gateway.wire.jsonrpc import INVALID_PARAMS, RpcError

PLACE: Final = "/arguments"
GUARDED: Final = (AGENT_REVOKE, AGENT_RESTORE)
"""Tools that are listed only for who may use them."""
MODELS: Final = (INVALID, NOT_FOUND, DEADLINE)
"""Errors that a model can mend by other arguments: results that it can read."""

Handler = Callable[[McpCall, wire.ToolCallParams], Awaitable[JsonObject]]


class StandardTools:
    """One per gateway process."""

    def __init__(self, env: Environment, tasks: TaskRequests) -> None:
        self._env = env
        self._tasks = tasks
        self._handlers: Mapping[str, Handler] = {
            AGENT_SEARCH: self._search,
            TASK_ASSIGN: tasks.assign,
            AGENT_EVALUATE: self._evaluate,
            TASK_ANSWER: tasks.answer,
            TASK_LIST: tasks.listed,
            TASK_CANCEL: tasks.cancel,
            AGENT_REVOKE: self._revoke,
            AGENT_RESTORE: self._restore,
        }

    async def listing(self, call: McpCall) -> JsonObject:
        """`tools/list`."""
        asked = read(call.params, wire.PageParams)
        revokes = self._env.people.known(call).can("revoke")
        by_name = {tool["name"]: tool for tool in wire.TOOLS if revokes or tool["name"] not in GUARDED}
        names, following = page("tools", list(by_name), asked.cursor, self._env.options.page_size)
        return listed("tools", [by_name[name] for name in names], following)

    async def call(self, call: McpCall) -> JsonObject:
        """`tools/call`. What a model did wrong, or an agent, is a result that it can read; the rest is an error."""
        asked = read(call.params, wire.ToolCallParams)
        handler = self._handlers.get(asked.name)
        if handler is None:
            known = ", ".join(self._handlers)
            data = {"code": "not_found", "path": "/name", "details": {"expected": known, "received": asked.name}}
            raise RpcError(INVALID_PARAMS, f"no tool {asked.name}; there are {known}", data)
        try:
            return await handler(call, asked)
        except (RpcError, NotFound) as error:
            told, correlation = to_rpc(error), correlation_of(call.meta)
            if told.error.code not in MODELS:
                raise
            self._env.refused(call.session, told)
            return failed(told, None if correlation is None else {CORRELATION: correlation})

    # --- the tools that are done at once ----------------------------------------------------------------------

    async def _search(self, call: McpCall, asked: wire.ToolCallParams) -> JsonObject:
        principal = self._env.people.may(call, "read")
        wanted = checked(asked.arguments or {}, wire.AgentSearch, PLACE)
        found = await self._env.directory.search(wanted.capabilities, wanted.min_score, wanted.max_cost)
        only = call.session.agent
        found = [each for each in found if principal.can("read", each["id"]) and only in (None, each["id"])]
        return found_agents(found, call.client.version, native=call.client.can(AGENT))

    async def _evaluate(self, call: McpCall, asked: wire.ToolCallParams) -> JsonObject:
        given = checked(asked.arguments or {}, wire.AgentEvaluate, PLACE)
        principal = self._env.people.may(call, "evaluate", given.agent_id)
        evaluation = await self._env.directory.evaluate(
            given.agent_id, given.score, principal, given.task_id, given.review, session=call.session
        )
        said: JsonObject = {"agentId": given.agent_id, "evaluation": evaluation}
        return result(call, f"Recorded {given.score:g} for {given.agent_id}", said)

    async def _revoke(self, call: McpCall, asked: wire.ToolCallParams) -> JsonObject:
        given = checked(asked.arguments or {}, wire.AgentRevoke, PLACE)
        known = await self._env.revoke(call, given.agent_id, given.reason)
        text = f"The access of {given.agent_id} is revoked" + ("" if known else "; there is no such agent now")
        return result(call, text, {"agentId": given.agent_id, "status": REVOKED, "known": known})

    async def _restore(self, call: McpCall, asked: wire.ToolCallParams) -> JsonObject:
        given = checked(asked.arguments or {}, wire.AgentRestore, PLACE)
        await self._env.restore(call, given.agent_id)
        return result(
            call, f"The access of {given.agent_id} is restored", {"agentId": given.agent_id, "status": RESTORED}
        )
