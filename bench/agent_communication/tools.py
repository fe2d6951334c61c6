"""Clients of MCP that call a tool over Streamable HTTP, each on a connection of its own, one call after the other.

with a session: `initialize` once a connection, and the session's id in every call. without: MCP 2026-07-28, where each
request says everything, and there is no session.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from bench.agent_communication.wires import ACCEPT, SESSION, Post
from bench.chunks import Result
from bench.http import Failed
from bench.rpc.turns import timed

_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1.0.0"}}
_MODERN = "2026-07-28"
_PREFIX = "io.modelcontextprotocol/"
_encode = msgspec.json.encode


class Clients:
    """The load's jobs `tools` and `sit`."""

    async def tools(
        self, url: str, name: str, arguments: dict[str, Any], *, connections: int, seconds: float, session: bool
    ) -> Result:
        """So many clients call the tool `name`, for `seconds`: count, seconds, p50, p99 of a call.

        Fails unless each call has a result that is no error.
        """
        clients = [await ToolClient.open(url, name, arguments, session=session) for _ in range(connections)]
        try:
            return await timed([client.call for client in clients], seconds)
        finally:
            for client in clients:
                await client.close()

    async def sit(self, url: str, sessions: int) -> Result:
        """Open so many sessions, and leave them: over HTTP a session needs no connection."""
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        post = await Post.open(parts.hostname, parts.port)
        for _ in range(sessions):
            await post.request("POST", parts.path, _message("initialize", _HELLO), headers=ACCEPT)
        post.close()
        return {"held": sessions}


class ToolClient:
    """`open` one."""

    def __init__(self, post: Post, path: str, name: str) -> None:
        self._post = post
        self._path = path
        self._name = name
        self._headers = ACCEPT
        self._body = b""

    @classmethod
    async def open(cls, url: str, name: str, arguments: dict[str, Any], *, session: bool) -> ToolClient:
        """Connected, and with a session if it is to have one. Raises Failed."""
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        client = cls(await Post.open(parts.hostname, parts.port), parts.path, name)
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        if session:
            await client._post.request("POST", client._path, _message("initialize", _HELLO), headers=ACCEPT)
            client._headers += b"mcp-protocol-version: 2025-11-25\r\n"
            if client._post.session:
                client._headers += SESSION + b": " + client._post.session + b"\r\n"
            ready = _encode({"jsonrpc": "2.0", "method": "notifications/initialized"})
            await client._post.request("POST", client._path, ready, headers=client._headers)
        else:
            said = {f"{_PREFIX}protocolVersion": _MODERN, f"{_PREFIX}clientCapabilities": {}}
            params["_meta"] = said | {f"{_PREFIX}clientInfo": _HELLO["clientInfo"]}
            head = f"mcp-protocol-version: {_MODERN}\r\nmcp-method: tools/call\r\nmcp-name: {name}\r\n"
            client._headers += head.encode()
        client._body = _message("tools/call", params)
        return client

    async def call(self) -> None:
        """One call."""
        answer = await self._post.request("POST", self._path, self._body, headers=self._headers)
        if answer.find(b'"result"') < 0 or answer.find(b'"isError":true') >= 0:
            raise Failed(f"the tool {self._name} answered {answer[:500]!r}")

    async def close(self) -> None:
        """Its session is ended, too."""
        if SESSION in self._headers:
            await self._post.request("DELETE", self._path, headers=self._headers)
        self._post.close()


def _message(method: str, params: dict[str, Any]) -> bytes:
    return _encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
