"""Requests that an agent of this protocol may make while it runs."""

from __future__ import annotations

from adapters.agent_communication.wire import PROTOCOL
from gateway.contract import Caller
from gateway.core.types import JsonObject
from gateway.mcp.client import server_requests
from gateway.mcp.client.server_requests import ServerRequests

__all__ = ["QUESTIONS", "ServerRequests", "capabilities"]

QUESTIONS: JsonObject = {"elicitation": {}}
"""The gateway's own capability, whatever the client: to ask with a form."""


def capabilities(caller: Caller | None) -> JsonObject:
    """The capabilities to declare for a run: questions, and those of the run's client if it speaks this protocol."""
    return server_requests.capabilities(caller, PROTOCOL, QUESTIONS)
