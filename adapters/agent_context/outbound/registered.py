"""The outbound half of an agent that registered."""

from __future__ import annotations

from adapters.agent_context.codec.agents import agent_of
from adapters.agent_context.outbound.link import Link
from adapters.agent_context.outbound.turn import Turns
from adapters.agent_context.outbound.ways import chooser
from gateway.core.types import Agent, JsonObject


class Registered(Turns):
    """See `gateway.contract.Outbound` and `Supervised`. `record` is the agent's own, less its credentials."""

    def __init__(self, record: JsonObject, link: Link) -> None:
        super().__init__(link, chooser(str(record["id"]), "auto"))
        self._agent = agent_of(record)

    async def describe(self) -> Agent:
        """See `Outbound.describe`. As it registered."""
        return self._agent

    async def aclose(self) -> None:
        """See `Outbound.aclose`: with the last run, the link ends as well."""
        await self._link.aclose()


def make(record: JsonObject, link: Link) -> Registered:
    """The outbound half of a registered agent, reached by `link`."""
    return Registered(record, link)
