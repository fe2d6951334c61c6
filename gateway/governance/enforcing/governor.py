"""Applies the rules of one route (see `gateway.contract.Governor`)."""

from __future__ import annotations

import functools
import logging
import os

from gateway.contract.governing import ToolServer
from gateway.core.errors import InterlinguaError, Unavailable
from gateway.core.types import Agent, Json, JsonObject
from gateway.governance import tiers
from gateway.governance.binding import Binding, Roots
from gateway.governance.enforcing.calls import GovernedCall
from gateway.governance.enforcing.journal import Journal
from gateway.governance.enforcing.session import AuditedSession, by
from gateway.governance.front_matter import at
from gateway.governance.manifests import AIP44
from gateway.governance.policy import PolicyRules
from gateway.governance.printing import capabilities
from gateway.governance.skills import Skill
from gateway.governance.tiers import ANOTHER, REVISION, revision_of, same_revision, speaks
from gateway.yaml_document import Mistake

log = logging.getLogger(__name__)


class RouteGovernor:
    """One per route with a manifest. After a reload `next` decides, also for runs in progress."""

    def __init__(self, binding: Binding, journal: Journal) -> None:
        self.binding = binding
        self.journal = journal
        self.rules = PolicyRules(binding.governance, binding.operator, budgets=journal.budgets)
        self.next: RouteGovernor | None = None
        self._tracked: str | None = None
        self.operator = binding.operator.id if binding.operator is not None else binding.manifest.id

    # --- what adapters ask ---------------------------------------------------------------------------------------

    @property
    def about(self) -> JsonObject:
        manifest, operator = self.binding.manifest, self.binding.operator
        said = {"tier": manifest.tier, "acp_rev": manifest.acp_rev}
        if not speaks(manifest.acp_rev):
            said["acp_rev_spoken"] = REVISION
        return said if operator is None else {**said, "operator": operator.id}

    @property
    def ephemeral(self) -> bool:
        return self.binding.operator is not None and not self.binding.operator.memory.lasting

    @functools.cached_property
    def home(self) -> str | None:
        return next((root.path for root in self._roots.roots if root.here and os.path.isdir(root.path)), None)

    @property
    def servers(self) -> tuple[ToolServer, ...]:
        bound = self.current.binding
        return tuple(
            ToolServer(one.name, one.transport, found.command, found.env, found.url)
            for one, found in zip(bound.manifest.mcp_servers, bound.servers, strict=True)
        )

    def lends(self, can: JsonObject) -> JsonObject:
        return tiers.lent(self.current.binding.manifest, can)

    def effective(self, can: JsonObject) -> JsonObject:
        return tiers.effective(self.binding.manifest, can)

    def check(self, can: JsonObject) -> None:
        if why := self._unmet(can):
            raise Unavailable(why)

    def admit(self, path: str, *, write: bool = False) -> str:
        return self.current._roots.admit(path, write=write)

    def offers(self, tool: str, server: str | None = None) -> bool:
        return self.current.rules.grant(tool, server) is not None

    async def opened(self, thread: str, *, principal: str | None = None, protocol: str = "") -> None:
        session = self.session(thread)
        if session.state is None:
            await session.moved("invoked", by(principal, protocol))

    async def stray(self, thread: str, tool: str, arguments: Json, *, call: str = "", why: str = "") -> None:
        found = GovernedCall(id=call, tool=tool, arguments=arguments)
        try:
            await self.session(thread).refused(found, why or "it came outside of any run")
        except InterlinguaError as error:
            log.error("a call of %s outside of any run is not audited: %s", tool, error)

    async def closed(self, thread: str) -> None:
        await self.session(thread).closed()

    # --- what the wrapper asks -----------------------------------------------------------------------------------

    def replaced(self, by: RouteGovernor) -> None:
        """Let the governor of a reloaded route decide from now on."""
        self.next = by

    @property
    def judges(self) -> bool:
        """Whether runs pass a gate. They do not if a manifest stands alone and nothing governs its agent."""
        return self.binding.governed or self.binding.operator is not None

    @property
    def current(self) -> RouteGovernor:
        """The governor that decides now."""
        found = self
        while found.next is not None:
            found = found.next
        return found

    def session(self, name: str) -> AuditedSession:
        return AuditedSession(self.journal, self.operator, name)

    @property
    def skills(self) -> tuple[Skill, ...]:
        return self.current.binding.skills

    def unmet(self, agent: Agent) -> str:
        """Say what the manifest promises that the agent, as described, cannot do; "" if there is nothing."""
        return self._unmet(capabilities(agent))

    def broken(self, agent: Agent) -> list[Mistake]:
        """List what the agent cannot do as mistakes in the manifest."""
        page = self.binding.manifest.page
        self._compare(agent)
        found: list[Mistake] = []
        for what in self._missing(capabilities(agent)):
            own = (*AIP44, "capabilities", *what.split("."))
            needed = "mcp_servers" if what in self._unreached(capabilities(agent)) else "tier"
            key = own if at(page.raw, own) is not None else (*AIP44, needed)
            found.append(page.mistake(key, f"promises {what}, which agent {agent.name} cannot do"))
        return found

    # --- inside --------------------------------------------------------------------------------------------------

    def _compare(self, agent: Agent) -> None:
        """Log once that the agent tracks another revision than its manifest."""
        manifest, tracked = self.binding.manifest, revision_of(agent)
        if tracked is None or tracked == self._tracked or same_revision(tracked, manifest.acp_rev):
            return
        self._tracked = tracked
        message = f"pins {manifest.acp_rev}, and agent {agent.name} tracks {tracked}"
        log.warning("%s", manifest.page.mistake((*AIP44, "acp_rev"), message, ANOTHER))

    @functools.cached_property
    def _roots(self) -> Roots:
        return self.binding.roots

    def _unmet(self, can: JsonObject) -> str:
        missing = self._missing(can)
        return f"the manifest promises {', '.join(missing)}, and the agent cannot" if missing else ""

    def _missing(self, can: JsonObject) -> tuple[str, ...]:
        """List promised capabilities that are missing. The client's own part is not the agent's to provide."""
        manifest = self.binding.manifest
        known = {**can, "client": tiers.promised(manifest).get("client", {})}
        return tuple(dict.fromkeys((*tiers.promised_but_missing(manifest, known), *self._unreached(can))))

    def _unreached(self, can: JsonObject) -> list[str]:
        """List the transports of MCP servers in the manifest that the agent lacks. Every agent takes stdio."""
        hows = sorted({one.transport for one in self.binding.manifest.mcp_servers} - {"stdio"})
        able = can.get("agent", {}).get("mcpCapabilities", {})
        return [f"agent.mcpCapabilities.{how}" for how in hows if able.get(how) is not True]
