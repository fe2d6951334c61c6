"""The client of a call, as far as the agent that runs may ask it: for a model's words, for its folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Raw

from adapters.agent_communication.inbound.speaking import heard
from adapters.agent_communication.wire import PROTOCOL
from gateway.core.errors import AgentGone, Unavailable
from gateway.core.types import JsonObject
from gateway.mcp.server.contract import Call
from gateway.mcp.wire import MESSAGE, ROOTS, SAMPLE
from gateway.wire.jsonrpc import METHOD_NOT_FOUND, RpcError

ASKABLE: Final[Mapping[str, str]] = {SAMPLE: "sampling", ROOTS: "roots"}
"""What an agent may ask beside its questions, which are interrupts -> the capability without which nobody is asked.

Clients made with the protocol's Python SDK break off at a request that they do not know.
"""


class CallCaller:
    """See `gateway.adapter.Caller`. One for each run: the client of the call that follows it now."""

    protocol = PROTOCOL

    def __init__(self, call: Call) -> None:
        self._call = call

    def follow(self, call: Call) -> None:
        """Another call goes on with the run."""
        self._call = call

    @property
    def capabilities(self) -> JsonObject:
        """See `Caller.capabilities`."""
        return self._call.client.capabilities

    async def ask(self, method: str, params: Raw) -> Raw:
        """See `Caller.ask`. What the client did not say that it can is answered for it."""
        needed = ASKABLE.get(method)
        if needed is None or not self._call.client.can(needed):
            raise RpcError(METHOD_NOT_FOUND, f"the client does not take {method}", {"method": method})
        try:
            return await self._call.ask(method, params)
        except AgentGone as error:
            raise Unavailable(f"the client has gone: {error}") from None

    def tell(self, method: str, params: Raw) -> None:
        """See `Caller.tell`. The agent's own log reaches a client from the level on that it asked for."""
        if method != MESSAGE or heard(self._call.log_level, params):
            self._call.notify(method, params)
