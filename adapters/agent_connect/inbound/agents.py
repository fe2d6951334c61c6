"""The operations tagged Agents: search, one agent, its descriptor."""

from __future__ import annotations

from adapters.agent_connect import codec, codec_agent, wire
from adapters.agent_connect.inbound.call import NOTHING, Call, Reply
from gateway.contract import Gateway
from gateway.core.errors import NotFound


class Agents:
    """Every agent that clients of this protocol may call."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def search(self, call: Call) -> Reply:
        """`POST /agents/search`: by name (the route's, or the agent's own) and version."""
        wanted = await call.read(wire.agent_search)
        name, version = wanted.get("name"), wanted.get("version")
        found = [
            agent
            for agent in await self._gateway.agents(wire.PROTOCOL)
            if (name is None or name in codec_agent.names(agent)) and version in (None, agent.version)
        ]
        offset = wanted.get("offset") or 0
        return Reply(codec_agent.encode_agents(found[offset : offset + (wanted.get("limit") or 10)]))

    async def get(self, call: Call) -> Reply:
        """`GET /agents/{agent_id}`. A name will do for the id."""
        return Reply(codec_agent.encode_agent(await self._gateway.agent(call.name("agent_id"), wire.PROTOCOL)))

    async def errors(self, call: Call) -> Reply:
        """`GET /agents/{agent_id}/errors`: which errors there are. The specification has no such operation, only the
        prose documentation asks for it.
        """
        agent = await self._gateway.agent(call.name("agent_id"), wire.PROTOCOL)
        return Reply(codec.encode_errors(codec_agent.own_errors(agent)))

    async def configure(self, call: Call) -> Reply:
        """`POST /agents/{agent_id}/instances`: an `Agent` that is this one with a configuration for all of its runs.

        The prose documentation asks for it, and the specification has no such operation.
        """
        wanted = await call.read(wire.instance_create)
        config = (wanted.get("config") or {}).get("configurable") or {}
        agent = await self._gateway.create_agent(call.name("agent_id"), wire.PROTOCOL, config)
        return Reply(codec_agent.encode_agent(agent))

    async def remove(self, call: Call) -> Reply:
        """`DELETE /agents/{agent_id}/instances/{instance_id}`: of what `configure` made. Its runs go on."""
        template = await self._gateway.agent(call.name("agent_id"), wire.PROTOCOL)
        instance = await self._gateway.agent(call.name("instance_id"), wire.PROTOCOL)
        made = self._gateway.created(instance.name)
        if made is None or made[0] != template.name:
            raise NotFound(f"agent {instance.name} is no instance of {template.name}")
        await self._gateway.destroy_agent(instance.name, wire.PROTOCOL)
        return NOTHING

    async def descriptor(self, call: Call) -> Reply:
        """`GET /agents/{agent_id}/descriptor`, in prose documentation `/agents/agent/{agent_id}/descriptor`."""
        return Reply(codec_agent.encode_descriptor(await self._gateway.agent(call.name("agent_id"), wire.PROTOCOL)))
