"""What the gateway can be asked by an agent of this protocol while it runs."""

from __future__ import annotations

from adapters.agent_communication.wire import PROTOCOL
from gateway.contract import Caller
from gateway.core.types import JsonObject
from gateway.mcp.client import asks
from gateway.mcp.client.asks import Asks

__all__ = ["QUESTIONS", "Asks", "capabilities"]

QUESTIONS: JsonObject = {"elicitation": {}}
"""What the gateway can do for every agent, whoever its client is: ask with a form."""


def capabilities(caller: Caller | None) -> JsonObject:
    """What the gateway declares for a run: questions, and what the run's client can do if it speaks this protocol."""
    return asks.capabilities(caller, PROTOCOL, QUESTIONS)
