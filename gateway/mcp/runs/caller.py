"""The client of a call, as far as the agent that runs may ask it: for a model's words, for its folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Raw

from gateway.core.errors import AgentGone, Unavailable
from gateway.core.types import JsonObject
from gateway.mcp.runs.log_messages import heard
from gateway.mcp.server.contract import McpCall
from gateway.mcp.wire import MESSAGE, ROOTS, SAMPLE
from gateway.wire.jsonrpc import METHOD_NOT_FOUND, RpcError

ASKABLE: Final[Mapping[str, str]] = {SAMPLE: "sampling", ROOTS: "roots"}
"""Requests of an agent other than questions -> the capability without which the client is not asked.

Clients made with some SDKs break off at a request that they do not know.
"""


class CallCaller:
    """See `gateway.contract.Caller`. One for each run: the client of the call that follows it now.

    `askable`: what it may be asked -> the capability that it must have declared for that, None for none.
    """

    def __init__(self, protocol: str, call: McpCall, askable: Mapping[str, str | None] = ASKABLE) -> None:
        self.protocol = protocol
        self._call = call
        self._askable = askable

    def follow(self, call: McpCall) -> None:
        """Another call goes on with the run."""
        self._call = call

    @property
    def capabilities(self) -> JsonObject:
        return self._call.client.capabilities

    async def ask(self, method: str, params: Raw) -> Raw:
        """See `Caller.ask`. What the client did not say that it can is answered for it.

        Once the call is answered, and its run goes on or waits, the client is asked outside of it where that can be.
        """
        needed = self._askable.get(method)
        if method not in self._askable or (needed is not None and not self._call.client.can(needed)):
            raise RpcError(METHOD_NOT_FOUND, f"the client does not take {method}", {"method": method})
        try:
            return await self._asked(method, params)
        except AgentGone as error:
            raise Unavailable(f"the client has gone: {error}") from None

    def tell(self, method: str, params: Raw) -> None:
        """See `Caller.tell`. The agent's own log reaches a client from the level on that it asked for."""
        if method != MESSAGE or heard(self._call.log_level, params):
            self._call.notify(method, params)

    async def _asked(self, method: str, params: Raw) -> Raw:
        call = self._call
        if call.can_ask:
            try:
                return await call.ask(method, params)
            except AgentGone:
                if not call.session.can_ask:
                    raise
        return await call.session.ask(method, params)
