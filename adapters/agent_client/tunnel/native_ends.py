"""Ends of agents that speak MCP over the connection themselves."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from adapters.agent_client.tunnel import mcp_messages, tool_rules
from adapters.agent_client.tunnel.agent_end import AgentEnd, OpenEnds
from adapters.agent_client.tunnel.mcp_messages import MESSAGE
from adapters.agent_client.tunnel.offers import AgentPeer, OfferedServer
from gateway.core.errors import AgentTimeout, Unavailable
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

DISCOVER: Final = "server/discover"
LISTEN: Final = "subscriptions/listen"
OUTER: Final = frozenset((mcp_messages.UNAVAILABLE, mcp_messages.BROKEN, jsonrpc.REQUEST_CANCELLED))
"""Errors that are not the MCP server's."""


class ConnectedEnd(AgentEnd):
    """A connection that the agent has opened with `mcp/connect`; its name there is `id`."""

    def __init__(self, server: OfferedServer, ends: OpenEnds, connection: AgentPeer) -> None:
        super().__init__(server, ends)
        self.connection = connection

    async def asked(self, message: Raw) -> Raw:
        return await self.connection.ask(MESSAGE, mcp_messages.replaced(message, connectionId=self.id, requestId=None))

    async def told(self, message: Raw) -> None:
        await self.connection.drain()
        self.connection.tell(MESSAGE, mcp_messages.replaced(message, connectionId=self.id, requestId=None))


class _Meta(Struct, gc=False):
    progressToken: Any = None


class _Params(Struct, gc=False):
    meta: _Meta | None = msgspec.field(name="_meta", default=None)
    progressToken: Any = None


class StatelessEnd(AgentEnd):
    """All that a stateless agent sends to one server."""

    def __init__(self, server: OfferedServer, ends: OpenEnds, connection: AgentPeer) -> None:
        super().__init__(server, ends)
        self.connection = connection
        self._under_way: dict[str | int, tuple[str, Any]] = {}
        self._known = False

    async def request(self, message: Raw) -> Raw:
        """A `mcp/message`; in the answer is `result` or `error`. Raises RpcError where it is no MCP server's error."""
        said = mcp_messages.read(message)
        if said.request_id is None or said.request_id in self._under_way:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"requestId {said.request_id!r} is none, or under way already")
        self._under_way[said.request_id] = (said.method, _token(said.params))
        try:
            if not tool_rules.decides(self.server, said.method) and not await self._strange(said):
                client, answer = await self.send(message)
                return answer if client.stateless else mcp_messages.wrapped(answer)
            return mcp_messages.wrapped(await self.ask(message))
        except RpcError as error:
            if error.error.code in OUTER:
                raise
            return mcp_messages.refused(error.error)
        except (Unavailable, AgentTimeout) as error:
            raise mcp_messages.unavailable(str(error)) from error
        finally:
            del self._under_way[said.request_id]

    async def _strange(self, said: mcp_messages.McpMessage) -> bool:
        """Whether the server knows only revisions with a handshake, which such an agent does not: it is asked once."""
        if self._translation is None and not self._known:
            client = await self.connected()
            if not client.stateless:
                meta = mcp_messages.members(said.params).get("_meta")
                try:
                    await self._unwrapped(mcp_messages.encoded({"method": DISCOVER, "params": {"_meta": meta or {}}}))
                except RpcError as error:
                    if error.error.code in OUTER:
                        raise
                    return True
            self._known = True
        return self._translation is not None

    async def asked(self, message: Raw) -> Raw:
        """See `AgentEnd`. There is no way to ask such an agent."""
        method = mcp_messages.read(message).method
        raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method}")

    async def told(self, message: Raw) -> None:
        """See `AgentEnd`. It belongs to one of the agent's requests, or is dropped."""
        said = mcp_messages.read(message)
        request = said.request_id if said.request_id is not None else self._owner(said.params)
        if request not in self._under_way:
            return
        await self.connection.drain()
        about: dict[str, Any] = {"connectionId": None, "serverId": self.server.id, "requestId": request}
        self.connection.tell(MESSAGE, mcp_messages.replaced(message, **about))

    def _owner(self, params: Raw) -> str | int | None:
        """The request of a notification that names none: by progress token, else a subscription, or the only one."""
        token = _token(params)
        found = [id for id, (_, its) in self._under_way.items() if token is not None and its == token]
        if not found and token is None:
            found = [id for id, (method, _) in self._under_way.items() if method == LISTEN]
            found = found or (list(self._under_way) if len(self._under_way) == 1 else [])
        return found[0] if found else None


def _token(params: Raw) -> Any:
    """The progress token of a request, or of a notification about it."""
    try:
        found = msgspec.json.decode(params or b"{}", type=_Params)
    except (ValueError, RecursionError):
        return None
    return found.progressToken if found.meta is None else found.meta.progressToken
