"""The inbound half until there is something for it: the agent for tasks is there, all else is made when needed."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import BaseRoute

from adapters.agent_context.coordination import Coordinator
from adapters.agent_context.options import AgentContextServe
from adapters.agent_context.wire import PROTOCOL
from gateway.contract import Gateway, Hosted
from gateway.core.errors import InterlinguaError
from gateway.transport.pipe import Pipe

if TYPE_CHECKING:
    from adapters.agent_context.inbound import AgentContextInbound


class AgentContextDoor:
    """See `Inbound`, `Conversing`, `Informed`, `Leaving` and `Hosting` of `gateway.contract`.

    The half itself is made by the first client, by the first task, by the start where agents are announced, and as soon
    as the store has something of the protocol: an agent that registered, or another process that serves it.
    """

    def __init__(self, options: AgentContextServe, gateway: Gateway) -> None:
        self._options = options
        self._gateway = gateway
        self.coordinator = Coordinator(options, gateway, lambda: self.half.directory, self.is_made, self.opened)
        self._made: AgentContextInbound | None = None
        self._opening: asyncio.Task[None]
        self._leaving = False

    @property
    def half(self) -> "AgentContextInbound":
        """The inbound half, made if need be. What is kept was empty a moment ago: it is open at once."""
        if self._made is None:
            from adapters.agent_context.inbound import AgentContextInbound

            self._made = AgentContextInbound(self._options, self._gateway, self.coordinator)
            self._opening = asyncio.create_task(self._made.open())
            if self._leaving:
                self._made.quiet()
        return self._made

    def routes(self) -> Sequence[BaseRoute]:
        return self.half.routes()

    def refusal(self, error: InterlinguaError) -> Response:
        return self.half.refusal(error)

    async def converse(self, pipe: Pipe, agent: str | None) -> None:
        await self.half.converse(pipe, agent)

    def agents_changed(self) -> None:
        if self._made is not None:
            self._made.agents_changed()

    def quiet(self) -> None:
        self._leaving = True
        if self._made is not None:
            self._made.quiet()

    async def open(self) -> None:
        if self._options.announce or await self._gateway.records.kept(PROTOCOL):
            await self.opened()

    def hosted(self) -> Mapping[str, Hosted]:
        return self.coordinator.hosted() if self._made is None else self._made.hosted()

    async def refresh(self) -> None:
        if self._made is None and not await self._gateway.records.kept(PROTOCOL):
            return
        await self.opened()
        await self.half.refresh()

    async def aclose(self) -> None:
        if self._made is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
            await self._made.aclose()

    def is_made(self) -> bool:
        return self._made is not None

    async def opened(self) -> None:
        """Until the half is open. Raises why it cannot be opened; the next call tries again."""
        half = self.half
        if self._opening.done() and self._opening.exception() is not None:
            self._opening = asyncio.create_task(half.open())
        await asyncio.shield(self._opening)
