"""Calls agents of the Agent Context Protocol, and plain MCP servers as if they were some.

here         one run, in whichever of the two ways; a target, and who lives there
links.py     how an agent is reached: ContextLink, in two ways, and AgentLine
messages.py  by agent/message or agent/delegate
tools.py     as a tool
answers.py   what comes back, read: heads of messages, updates, answers

A run whose connection ends, or whose gateway dies, is not taken up again: not even one that was acknowledged, since the
agent would have to say the rest on another connection, of which nothing tells that the same agent is at its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Raw

from adapters.agent_context import wire
from adapters.agent_context.codec.agents import agent_of, native
from adapters.agent_context.options import AgentContextTarget
from adapters.agent_context.outbound import answers, tools
from adapters.agent_context.outbound.links import QUESTIONS, ContextLink, ServerLink
from adapters.agent_context.outbound.messages import How, NativeRun, correlation, read
from adapters.agent_context.outbound.tools import ToolRun, check, is_tool
from gateway.contract import RunContext, ThreadContext
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentError, Unsupported
from gateway.core.types import Agent, JsonObject
from gateway.mcp import versions
from gateway.mcp import wire as mcp
from gateway.mcp.client import called_run as calls
from gateway.mcp.client.session import ClientSession
from gateway.mcp.client.target import Target, TargetList, TargetNews, TargetPools
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)

MOST_AHEAD: Final = 32 * 1024 * 1024
"""Bytes that an agent that cannot be slowed may be ahead of the run's log."""


class AgentContextTurn(calls.CalledRun):
    """See `gateway.mcp.client.called_run`. Its CallListener is the line's.

    way: the way to the agent now, which raises the errors of `ContextLink.open`.
    name: the agent's id, or the tool's name, there; None for the only one, which `describe` has found.
    """

    def __init__(self, context: RunContext, way: Callable[[], ContextLink], name: str | None, how: How) -> None:
        super().__init__(context, wire.PROTOCOL, QUESTIONS)
        self._way = way
        self._name = name
        self._how = how
        self._run: NativeRun | ToolRun | None = None
        self._draining = TaskSet(lambda error: log.debug("the log does not grow: %s", error))
        self._ahead = 0

    async def called(self) -> e.Event:
        if self._as_tool(native=not is_tool(self.context.agent)):
            check(self.context)
        async with self._way().open(correlation(self.context), self, self.declared) as line:
            if self._as_tool(native=line.native):
                self._run = ToolRun(self.context, line, self.say, self._name)
            else:
                target = self._name or (native(self.context.agent) or {}).get("id")
                self._run = NativeRun(self, line, target=target, how=self._how)
            try:
                return await self._run.go()
            finally:
                self.over, self._run = True, None
                self._draining.cancel()

    def _as_tool(self, *, native: bool) -> bool:
        return self._how == "tool" or (self._how == "auto" and not native)

    def failed(self, error: RpcError) -> e.RunFailed:
        return answers.failed(error.error)

    # --- what comes meanwhile ---------------------------------------------------------------------------------------

    def told(self, method: str, params: Raw) -> list[e.Event]:
        assert self._run is not None, "it is made before the line is left to others"
        return self._run.told(method, params)

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        waiting = super().notification(method, params)
        if not isinstance(self._run, NativeRun) or not self._run.line.registered:
            return waiting
        if waiting is not None:
            self._draining.hold(asyncio.ensure_future(waiting))
        self._ahead = self._ahead + len(params) if self._draining else 0
        if self._ahead > MOST_AHEAD:
            self._run.fail(AgentBroken("the agent says more than can be written down"))
        return None

    def again(self) -> None:
        """See `CallListener.again`. Progress of a tool may be told twice, which harms nobody."""
        if isinstance(self._run, NativeRun):
            self._run.again()

    async def asked(self, method: str, params: Raw) -> Any:
        if isinstance(self._run, NativeRun) and method in (wire.MESSAGE, wire.ERROR):
            return await self._run.asked(method, params)
        return await super().asked(method, params)


# --- a target: its agents are those of its directory, or the tools of a plain MCP server ------------------------------


TOOLS_CHANGED: Final = "notifications/tools/list_changed"
CHANGES: Final = frozenset({TOOLS_CHANGED, wire.RESOURCES_CHANGED, wire.RESOURCE_UPDATED})
AWAY: Final = frozenset({wire.OFFLINE, wire.REVOKED})
"""`status` of an entry that cannot be called."""


class DescribedServer:
    """Shared by every agent of a target.

    agents: those that are there, by their ids (or names) there. Asked, they raise AgentError, AgentBroken and what
    `ServerLink.lease` does. news: of changes of them.
    """

    def __init__(self, link: ServerLink, how: How) -> None:
        self.link = link
        self.agents = TargetList("agent", self._fetched)
        self.news = TargetNews(link.target, self._listening)
        self._how = how
        link.on_notification(self._heard)

    async def aclose(self) -> None:
        await self.news.aclose()
        await self.agents.aclose()

    async def _fetched(self) -> dict[str, Agent]:
        timeout = self.link.target.request_timeout
        async with self.link.lease(alone=False) as session:
            if self._how == "tool" or (self._how == "auto" and not session.offers(wire.AGENT)):
                return await self._tools(session)
            try:
                params = {"uri": wire.DIRECTORY}
                result = read(await session.call(wire.RESOURCES_READ, params, timeout=timeout), wire.RESOURCES_READ)
            except RpcError as error:
                log.debug("the server has no directory: %s", error)
                alone = agent_of(_alone(session))
                return {alone.name: alone}
            found: dict[str, Agent] = {}
            for entry in _entries(result):
                try:
                    agent = agent_of(entry)
                except AgentBroken as error:
                    log.warning("an entry of the directory is left out: %s", error)
                    continue
                if entry.get("status") not in AWAY and agent.name != wire.SELF:
                    found.setdefault(agent.name, agent)
            return found

    async def _tools(self, session: ClientSession) -> dict[str, Agent]:
        if not session.offers("tools"):
            raise AgentError(f"the server has neither agents nor tools; it has {session.offered}")
        found: dict[str, Agent] = {}
        version = mcp.server_info(session.server).get("version")
        for entry in await session.list(wire.TOOLS_LIST, "tools", timeout=self.link.target.request_timeout):
            agent = tools.agent_of(entry, version)
            found.setdefault(agent.name, agent)
        return found

    # --- news -------------------------------------------------------------------------------------------------------

    def _heard(self, method: str, params: Raw) -> None:
        if method not in CHANGES or (method == wire.RESOURCE_UPDATED and _uri(params) != wire.DIRECTORY):
            log.debug("%s, which is about no run in progress: %s", method, bytes(params)[:200])
            return
        self.news.tell()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[ClientSession]:
        async with self.link.lease(alone=False) as session:
            await self._subscribed(session)
            yield session

    async def _subscribed(self, session: ClientSession) -> None:
        resources = session.capabilities.get("resources")
        if not isinstance(resources, dict) or not resources.get("subscribe") or not session.offers(wire.AGENT):
            return
        try:
            if versions.modern(session.version):
                wanted = {"resourceSubscriptions": [wire.DIRECTORY]}
                await session.call(mcp.LISTEN, {"notifications": wanted})
            else:
                await session.call(wire.SUBSCRIBE, {"uri": wire.DIRECTORY}, timeout=self.link.target.request_timeout)
        except RpcError as error:  # it may still tell that a list has changed
            log.info("the directory cannot be subscribed to: %s", error)


def _entries(result: JsonObject) -> list[JsonObject]:
    """The agents that a reading of the directory names. Raises AgentBroken."""
    contents = result.get("contents")
    text = next((each.get("text") for each in _objects(contents) if isinstance(each.get("text"), str)), None)
    try:
        found = delta.sound(jsonrpc.unpack(Raw((text or "").encode())))
    except (ValueError, RecursionError) as error:
        raise AgentBroken("the directory is no JSON", detail=str(error)) from error
    entries = found.get("agents") if isinstance(found, dict) else found
    if not isinstance(entries, list):
        raise AgentBroken("the directory has no list of agents")
    return _objects(entries)


def _objects(value: Any) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _alone(session: ClientSession) -> JsonObject:
    """The record of an agent that is a server by itself and has no directory."""
    info = mcp.server_info(session.server)
    name = info.get("name")
    name = name if isinstance(name, str) and name else "agent"
    said = session.capabilities.get(wire.AGENT)
    said = said if isinstance(said, dict) else {}
    offered = {key: said[key] if isinstance(said.get(key), list) else [] for key in ("tools", "models")}
    found = said.get("specializations")
    capabilities = {**offered, "specializations": found if isinstance(found, list) else [], "protocols": [wire.VERSION]}
    id = "".join(each if each.isascii() and (each.isalnum() or each in "-_") else "-" for each in name)
    return {"id": id, "name": name, "capabilities": capabilities, "meta": {"version": info.get("version")}}


def _uri(params: Raw) -> Any:
    try:
        return jsonrpc.unpack(params, dict[str, Any]).get("uri")
    except (ValueError, RecursionError):
        return None


RELAYED: Final = frozenset(
    (wire.PROMPTS_LIST, wire.PROMPTS_GET, wire.RESOURCES_LIST, wire.TEMPLATES_LIST, wire.RESOURCES_READ)
)
"""Methods that clients may call on a target's server besides runs."""


class OneAgent(calls.CalledRuns):
    """One agent of a target. See `gateway.contract.Outbound`, `Supervised` and `Relay`.

    Closes nothing: it is the target's.
    """

    def __init__(self, link: ServerLink, server: DescribedServer, name: str | None) -> None:
        super().__init__(lambda context: AgentContextTurn(context, lambda: link, name, link.target.call))
        self._link = link
        self._server = server
        self._name = name
        self._listed: Agent | None = None

    def listed(self, agent: Agent) -> None:
        """Take over the server's newest description: the next `describe` need not ask."""
        self._listed = agent

    async def describe(self) -> Agent:
        """See `Outbound.describe`. Raises NotFound, which lists who is there."""
        found, self._listed = self._listed, None
        return await self._server.agents.one(self._name) if found is None else found

    @property
    def reachable(self) -> bool | None:
        return self._link.reachable

    async def relay(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        """See `gateway.contract.Relay`: what clients of MCP read of its server, prompts and resources."""
        if method not in RELAYED:
            raise Unsupported(f"{method} is not relayed")
        async with self._link.lease(alone=False) as session:
            return await session.call(method, jsonrpc.unpack(params), timeout=self._link.target.request_timeout)

    async def forward(self, context: ThreadContext, method: str, params: Raw) -> None:
        raise Unsupported(f"{method} is not relayed")

    async def aclose(self) -> None:
        """See `Outbound.aclose`."""


class AgentContextOutbound(Target[Agent]):
    """See `gateway.contract.Outbound`, `Discovering` and `Supervised`. `pools` is for tests."""

    def __init__(self, target: AgentContextTarget, pools: TargetPools | None = None) -> None:
        self._link = ServerLink(target, pools=pools)
        self._server = DescribedServer(self._link, target.call)
        self._alone = OneAgent(self._link, self._server, target.agent)
        super().__init__(self._alone, discovers=target.stands_for_many)

    async def entries(self) -> Mapping[str, Agent]:
        return await self._server.agents.all()

    def found(self, name: str) -> OneAgent:
        return OneAgent(self._link, self._server, name)

    def on_change(self, changed: Callable[[], None]) -> None:
        self._server.news.on_change(changed)

    async def relay(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        return await self._alone.relay(context, method, params)

    async def forward(self, context: ThreadContext, method: str, params: Raw) -> None:
        await self._alone.forward(context, method, params)

    @property
    def reachable(self) -> bool | None:
        return self._link.reachable

    async def aclose(self) -> None:
        await self._server.aclose()
        await self._link.aclose()
