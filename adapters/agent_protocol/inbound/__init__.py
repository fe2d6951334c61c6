"""Serves clients. service.py: the operations; files.py: artifacts; http.py: what they share."""

from adapters.agent_protocol.inbound.service import AgentProtocolInbound

__all__ = ["AgentProtocolInbound"]
