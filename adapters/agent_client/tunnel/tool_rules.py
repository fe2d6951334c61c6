"""The rules of a governed route for MCP tools: which are listed, and which calls are decided and audited first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Raw

from adapters.agent_client.codec import errors
from adapters.agent_client.tunnel import mcp_messages
from adapters.agent_client.tunnel.offers import OfferedServer
from gateway.access.patterns import fits
from gateway.contract import governing
from gateway.core.errors import Denied, InterlinguaError
from gateway.wire import jsonrpc

LIST: Final = "tools/list"
CALL: Final = "tools/call"


def decides(server: OfferedServer, method: str) -> bool:
    return method in (LIST, CALL) and _governor(server) is not None


async def asked(server: OfferedServer, method: str, params: Raw, send: Callable[[], Awaitable[Raw]]) -> Raw:
    """Send an agent's request to an MCP server if the rules let it. `send` does so, and returns the result.

    Raises RpcError for a tool that is not there, or was refused, and what `send` raises.
    """
    governor = _governor(server)
    if governor is None or method not in (LIST, CALL):
        return await send()
    name = server.offered.name
    if method == LIST:
        return _allowed(await send(), governor, server)
    called = jsonrpc.members(params)
    tool = jsonrpc.unpack(called["name"]) if "name" in called else None
    arguments = jsonrpc.unpack(called["arguments"]) if called.get("arguments") else {}
    if not isinstance(tool, str):
        raise jsonrpc.RpcError(jsonrpc.INVALID_PARAMS, "name: the tool is not named", {"path": "/name"})
    prompted = server.session.prompted
    governed = governing.run_governor_of(prompted) if prompted is not None else None
    if governed is None:
        why = f"tool {tool} of {name} may only be called while a prompt is worked on"
        await governor.stray(server.session.thread or "", tool, arguments, why=why)
        raise errors.denied(Denied(why))
    try:
        call = await governed.act(tool, arguments, risk=governing.risk_of(None), server=name)
    except Denied as error:
        raise errors.denied(error) from error
    return await _called(governed, call, send)


async def _called(governed: governing.RunGovernor, call: str, send: Callable[[], Awaitable[Raw]]) -> Raw:
    try:
        result = await send()
    except jsonrpc.RpcError as error:
        await governed.acted(call, error={"code": error.error.code, "message": error.error.message})
        raise
    except InterlinguaError as error:
        await governed.acted(call, error=str(error))
        raise
    except BaseException:
        await governed.acted(call, error="cancelled")
        raise
    await governed.acted(call, result=jsonrpc.unpack(result))
    return result


def _allowed(result: Raw, governor: governing.Governor, server: OfferedServer) -> Raw:
    """The list of tools without those that the operator, or the person it is for, may not have."""
    name, patterns = server.offered.name, _patterns(server)

    def may_have(tool: str) -> bool:
        return governor.offers(tool, name) and (patterns is None or fits(tool, patterns))

    tools: Any = jsonrpc.members(result).get("tools")
    listed = jsonrpc.unpack(tools) if tools else []
    if not isinstance(listed, list):
        raise jsonrpc.RpcError(mcp_messages.BROKEN, "the list of tools is none")
    kept = [tool for tool in listed if isinstance(tool, dict) and may_have(str(tool.get("name")))]
    return jsonrpc.replaced(result, tools=kept)


def _patterns(server: OfferedServer) -> Sequence[str] | None:
    """Patterns of the tools that may be called: for who has prompted, else for the client that is there. None: all."""
    prompted, context = server.session.prompted, server.session.context
    if prompted is not None:
        return prompted.run.request.tools
    caller = context.caller if context is not None else None
    return caller.tools if caller is not None else None


def _governor(server: OfferedServer) -> governing.Governor | None:
    governor = server.session.governor
    return governor if governor is not None and governor.judges else None
