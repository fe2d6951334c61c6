"""An MCP server that a client offers in one of an agent's sessions."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from adapters.agent_client.tunnel.mcp_messages import Offered

if TYPE_CHECKING:  # the outbound half is made with the tunnel's
    from adapters.agent_client.outbound.session import AgentSession


class OfferedServer:
    """One server in one session. The agent knows it by `id`, and proves that it does with `secret`."""

    def __init__(self, session: AgentSession, offered: Offered) -> None:
        self.session = session
        self.offered = offered
        self.id = secrets.token_hex(16)
        self.secret = secrets.token_bytes(32)
