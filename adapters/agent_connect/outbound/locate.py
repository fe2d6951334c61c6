"""Which agent of the server it is (`POST /agents/search`), and what it says of itself (`/descriptor`)."""

from __future__ import annotations

import re

import msgspec

from adapters.agent_connect import codec_agents
from adapters.agent_connect.options import AgentConnectTarget
from adapters.agent_connect.outbound.client import AgentConnectClient, complaint, encode
from gateway.core.errors import AgentBroken, NotFound
from gateway.core.types import Agent, Json
from gateway.transport.http import HttpResponse, segment

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_SEARCH = "POST /agents/search"
LISTED = 100


class Locator:
    """Finds the target's agent once and remembers it. `known` is its id, `agent` what it last said of itself."""

    def __init__(self, target: AgentConnectTarget, client: AgentConnectClient) -> None:
        self._target = target
        self._client = client
        self.known: str | None = None
        self.agent: Agent | None = None

    async def id(self, *, again: bool = False) -> str:
        """The agent's id. Raises NotFound, AgentGone, AgentTimeout, AgentBroken, AgentFailed."""
        if self.known is None or again:
            self.known = await self._find()
        return self.known

    async def describe(self) -> Agent:
        """The agent, asked anew."""
        self.agent = await self._described(await self.id())
        if self.agent is None:  # the server was started anew with other ids, perhaps
            self.agent = await self._described(await self.id(again=True))
        if self.agent is None:
            raise NotFound(f"the server at {self._target.url} does not describe agent {self.known}")
        return self.agent

    async def _described(self, agent_id: str) -> Agent | None:
        name = segment(agent_id)
        # The second path is the one that the specification's prose gives.
        for path in (f"/agents/{name}/descriptor", f"/agents/agent/{name}/descriptor"):
            reply = await self._client.send("GET", path)
            if reply.status == 200:
                return codec_agents.agent(_json(reply, f"GET {path}"), f"GET {path}")
            if reply.status not in (404, 405):
                raise complaint(reply, f"GET {path}")
        return None

    async def _find(self) -> str:
        wanted = self._target.agent
        if wanted is not None and _UUID.fullmatch(wanted):
            return wanted
        asked: dict[str, Json] = {"limit": LISTED, "offset": 0}
        if wanted is not None:
            asked["name"] = wanted
        reply = await self._client.send("POST", "/agents/search", encode(asked))
        if reply.status in (400, 422) and wanted is None:
            raise NotFound(f"the server at {self._target.url} does not list its agents: name one in `target.agent`")
        if reply.status in (404, 405):
            raise NotFound(f"there is no Agent Connect agent at this address ({reply.status} for {_SEARCH})")
        if reply.status != 200:
            raise complaint(reply, _SEARCH)
        agents = codec_agents.found(_json(reply, _SEARCH), _SEARCH)
        if wanted is not None:
            agents = [agent for agent in agents if agent[1] == wanted]
        names = sorted({name for _, name, _ in agents})
        if not agents:
            raise NotFound(f"no agent {wanted or ''} at {self._target.url}".replace("  ", " "))
        if len(names) > 1:
            raise NotFound(f"several agents at {self._target.url}: name one in `target.agent` ({', '.join(names)})")
        return codec_agents.newest(agents)[0]


def _json(reply: HttpResponse, where: str) -> Json:
    try:
        return msgspec.json.decode(reply.body)
    except (ValueError, RecursionError) as error:
        kind = reply.content_type or "something"
        raise AgentBroken(f"{where} answered {kind} that is not JSON", detail=str(error)) from None
