"""How an agent is run: as one of this protocol, or as a tool of a plain MCP server."""

from __future__ import annotations

from adapters.agent_context.codec.agents import native as record_in
from adapters.agent_context.outbound.messages import How, Messages
from adapters.agent_context.outbound.tools import ToolCall, is_tool
from adapters.agent_context.outbound.turn import Chooser, Turn, Way
from gateway.core.types import Agent


def chooser(name: str | None, how: How) -> Chooser:
    """`name`: the agent's id, or the tool's name, there; None for the only one, which `describe` has found."""

    def choose(turn: Turn, *, native: bool | None) -> Way:
        agent = turn.context.agent
        if how == "tool" or (how == "auto" and not (not is_tool(agent) if native is None else native)):
            return ToolCall(turn, name)
        return Messages(turn, name or _id(agent), how)

    return choose


def _id(agent: Agent) -> str | None:
    found = (record_in(agent) or {}).get("id")
    return found if isinstance(found, str) else None
