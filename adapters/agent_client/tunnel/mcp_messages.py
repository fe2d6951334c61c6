"""`mcp/connect`, `mcp/message`, `mcp/disconnect` and the servers they are about (docs/rfds/mcp-over-acp).

There are three ways to speak them. The proposal's: a server has an `id`, and `mcp/connect` names it as `acpId`
(TypeScript 0.29). The schema's: it is `serverId` in both (Python). In both a connection is opened, and messages name
it. Stateless (TypeScript 2.4): every `mcp/message` names `serverId` and a `requestId`, nothing is opened, the answer is
an object with `result` or `error`, and only a server notifies. So a server is offered to an agent under both names, a
client is asked with the one that it used, and one that knows no `mcp/connect` is stateless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from adapters.agent_client import forwarded
from adapters.agent_client.codec import errors
from adapters.agent_client.wire import JsonObject
from gateway.wire import jsonrpc

T = TypeVar("T")

CONNECT: Final = "mcp/connect"
MESSAGE: Final = "mcp/message"
DISCONNECT: Final = "mcp/disconnect"
METHODS: Final = frozenset((CONNECT, MESSAGE, DISCONNECT))
TYPE: Final = "acp"
"""The transport's name in `mcpServers` and in `mcpCapabilities`: the protocol's own word."""
SERVERS: Final = "mcpServers"

UNAVAILABLE: Final = -33001
"""The server is not offered (any more)."""
BROKEN: Final = -33002
"""The answer is malformed."""


class Offered(Struct, frozen=True):
    """One server as its client offers it. `key` is the name that the client has for `id`."""

    name: str
    id: str
    key: str
    whole: JsonObject


class Connect(Struct, rename="camel", gc=False):
    """`mcp/connect`; `session_id` and `name` only between the halves."""

    server_id: str | None = None
    acp_id: str | None = None
    session_id: str = ""
    name: str = ""

    @property
    def server(self) -> str:
        return self.server_id or self.acp_id or ""


class Connected(Struct, rename="camel", gc=False):
    """Its answer; `stateless` only between the halves."""

    connection_id: str
    stateless: bool = False


class McpMessage(Struct, rename="camel", gc=False):
    """`mcp/message`, of a connection or stateless; `mcp/disconnect` is read as the same."""

    connection_id: str | None = None
    server_id: str | None = None
    request_id: str | int | None = None
    method: str = ""
    params: Raw = Raw()


_message = msgspec.json.Decoder(McpMessage).decode


def offered(servers: Any) -> list[Offered]:
    """Those of an `mcpServers` that travel over the connection."""
    found: list[Offered] = []
    for each in servers if isinstance(servers, Sequence) else ():
        if not isinstance(each, dict) or each.get("type") != TYPE:
            continue
        for key in ("serverId", "id"):
            if isinstance(each.get(key), str):
                found.append(Offered(str(each.get("name") or ""), each[key], key, each))
                break
    return found


def declared(server: Offered, id: str) -> JsonObject:
    """The server as an agent is told of it that speaks this itself, whichever way."""
    return {**server.whole, "id": id, "serverId": id}


def connecting(server: Offered, meta: Raw | None) -> JsonObject:
    """Params of `mcp/connect` as the server's client says them."""
    params: JsonObject = {"serverId" if server.key == "serverId" else "acpId": server.id}
    return {**params, "_meta": meta} if meta else params


def unwrapped(carrier: Raw) -> Raw:
    """The result in the answer of somebody stateless. Raises RpcError with the error in it, or for what is neither."""
    found = jsonrpc.members(carrier)
    if "result" in found:
        return found["result"]
    error = jsonrpc.unpack(found["error"]) if "error" in found else None
    raise errors.read(error) or jsonrpc.RpcError(BROKEN, "the answer of an MCP server has neither result nor error")


def wrapped(result: Raw) -> Raw:
    return jsonrpc.raw({"result": result})


def refused(error: jsonrpc.ErrorObject) -> Raw:
    told: JsonObject = {"code": error.code, "message": error.message}
    if error.data != jsonrpc.ABSENT:
        told["data"] = error.data  # verbatim
    return jsonrpc.raw({"error": told})


def message(method: str, params: Raw | JsonObject) -> Raw:
    return jsonrpc.raw({"method": method} if params == jsonrpc.ABSENT else {"method": method, "params": params})


def read(params: Raw) -> McpMessage:
    """Read a message, or the end of a connection. Raises RpcError for other params."""
    try:
        return _message(params or forwarded.NOTHING)
    except (ValueError, RecursionError):  # half a surrogate pair in it, maybe
        found = jsonrpc.members(params)
        if not found:
            return unpacked(params, McpMessage)
        known = {name: found[name] for name in McpMessage.__struct_encode_fields__ if name in found}
        inner = known.pop("params", jsonrpc.ABSENT)
        return replace(unpacked(jsonrpc.raw(known), McpMessage), params=inner)


def unpacked(params: Raw, type: type[T]) -> T:
    """Params as `type`. Raises RpcError."""
    try:
        return jsonrpc.unpack(params or forwarded.NOTHING, type)
    except (ValueError, RecursionError) as error:
        raise jsonrpc.RpcError(jsonrpc.INVALID_PARAMS, str(error)) from None


def unavailable(what: str) -> jsonrpc.RpcError:
    return jsonrpc.RpcError(UNAVAILABLE, f"MCP server unavailable: {what}")
