"""Knows the client of a session, the agents that speak through it, and its rights."""

from __future__ import annotations

import contextlib
from typing import Final
from weakref import WeakKeyDictionary

from pydantic import SecretStr

from adapters.agent_context.directory import Directory
from adapters.agent_context.options import Right
from adapters.agent_context.security import Access, ClientPrincipal
from adapters.agent_context.wire.constants import AGENT, MESSAGES, SELF
from adapters.agent_context.wire.records import AgentRecord
from gateway.access import ANONYMOUS
from gateway.core.errors import Denied
from gateway.core.types import Identity, JsonObject, Run
from gateway.mcp.server.contract import McpCall, McpSession

NAMED: Final = 10
"""Agents, in the error for one that there is not."""


class ClientIdentities:
    """One per gateway process."""

    def __init__(self, access: Access, directory: Directory) -> None:
        self._access = access
        self._directory = directory
        self._proven: WeakKeyDictionary[McpSession, tuple[ClientPrincipal, SecretStr | None]] = WeakKeyDictionary()
        self._agents: WeakKeyDictionary[McpSession, dict[str, None]] = WeakKeyDictionary()

    def principal(self, session: McpSession, bearer: str | None) -> ClientPrincipal:
        """The principal of a request: its token's bearer, else the one that registered an agent here. Raises Denied."""
        if bearer is None and (proven := self._proven.get(session)) is not None:
            principal, token = proven
            return principal if token is None else self._access.principal(token.get_secret_value())  # it may expire
        return self._access.principal(bearer)

    def name(self, session: McpSession) -> str | None:
        """The name of a session's client; None for one without a valid token."""
        with contextlib.suppress(Denied):
            return self.principal(session, session.bearer).name
        return None

    def may(self, call: McpCall, right: Right, agent_id: str | None = None) -> ClientPrincipal:
        """The asking principal, which has this right (for that agent). Raises Denied."""
        principal = self.principal(call.session, call.bearer)
        principal.check(right, agent_id)
        return principal

    def known(self, call: McpCall) -> ClientPrincipal:
        """The asking principal, which has any right at all. Raises Denied."""
        principal = self.principal(call.session, call.bearer)
        if not principal.may:
            raise Denied(f"{principal.name} may do nothing here")
        return principal

    def identity(self, call: McpCall) -> Identity | None:
        """The asking identity, for approvals; None for an anonymous client."""
        with contextlib.suppress(Denied):
            found = self.principal(call.session, call.bearer)
            return None if found.name == ANONYMOUS else Identity(id=found.name, roles=found.roles)
        return None

    def owns(self, call: McpCall, run: Run) -> bool:
        """Whether a run was started by who asks now: nobody answers questions that were somebody else's."""
        return run.request.principal == self.principal(call.session, call.bearer).name

    def registers(self, call: McpCall, record: AgentRecord, sent: JsonObject) -> ClientPrincipal:
        """The principal that registers an agent: its bearer, or the one that the record's `auth` proves. Raises Denied.

        `sent` is the agent as it was sent, which is what was signed.
        """
        principal = self._access.principal(call.bearer, record.auth, sent)
        principal.check("register", record.id)
        return principal

    def unknown(self, session: McpSession, name: str, bearer: str | None) -> str:
        """Says that there is no such agent, and which there are that its client may read about."""
        try:
            principal = self.principal(session, bearer)
        except Denied:
            return f"no agent {name}"
        names = [each for each in self._directory.ids() if session.agent in (None, each, name)]
        names = [each for each in names if principal.can("read", each)]
        if not names:
            return f"no agent {name}"
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"no agent {name}; there are {', '.join(names[:NAMED])}{more}"

    # --- agents that are clients ------------------------------------------------------------------------------

    def speaks_for(self, call: McpCall, record: AgentRecord, principal: ClientPrincipal) -> None:
        """An agent has registered on this session, by that right.

        Who proved it by the agent's own `auth` is known here from now on; a bearer is asked for with each request.
        """
        if call.bearer is None:
            self._proven[call.session] = principal, record.auth.token if record.auth is not None else None
        self._agents.setdefault(call.session, {})[record.id] = None

    def unregistered(self, session: McpSession, agent_id: str) -> None:
        """The agent has gone, or speaks through another session."""
        self._agents.get(session, {}).pop(agent_id, None)

    def agents(self, session: McpSession) -> list[str]:
        """The agents that speak through this session."""
        return [name for name in self._agents.get(session, ()) if self._directory.session_of(name) is session]

    def source(self, call: McpCall, principal: ClientPrincipal, given: str | None) -> str | None:
        """The agent that a message is from; None for a client that is not an agent.

        Left out, or a gateway's own id, it is the session's only agent. Raises Denied for another client's agent.
        """
        own = self.agents(call.session)
        if given is None or given == SELF:
            return own[0] if len(own) == 1 else None
        if given in own:
            return given
        if self._directory.owned(given, principal):
            return given
        raise Denied(f"/source: {given} is no agent of this client")

    def is_agent(self, session: McpSession) -> bool:
        """Whether its client can be sent `agent/message`: by its own word, or because an agent has registered there."""
        return session.client.can(AGENT, MESSAGES) or bool(self.agents(session))
