"""The governance of all routes of a gateway: their audit logs, opened and closed with it, and a governor for each."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from gateway.contract import Outbound
from gateway.core.errors import InterlinguaError, Invalid, Unavailable
from gateway.core.types import Agent, Run
from gateway.governance.audit import AuditLog, EntrySigner, KeptHead
from gateway.governance.audit.files import log_numbers, log_path
from gateway.governance.audit.heads import Keeping, head_name, kept_numbers
from gateway.governance.binding import Binding
from gateway.governance.enforcing.governor import RouteGovernor
from gateway.governance.enforcing.journal import Asked, Journal, Spend, by_nobody
from gateway.governance.enforcing.outbound import GovernedOutbound, governed
from gateway.governance.enforcing.session import session_of
from gateway.yaml_document import Mistake

log = logging.getLogger(__name__)


class Enforcement:
    """One per gateway. `key`: file of the private key (Ed25519, PEM) that entries are signed with."""

    def __init__(
        self,
        keeping: Keeping,
        spend: Spend,
        adopting: asyncio.Lock | None = None,
        *,
        key: Path | None = None,
        name: str = "",
        driven: Asked = by_nobody,
        taken_over: Asked = by_nobody,
    ) -> None:
        """adopting: held while runs of dead processes are taken up. name: begins the logs' names in the store, not
        those of budgets. driven: see `Journal.settle`; taken_over: see `Journal`.
        """
        self._adopting = adopting or asyncio.Lock()
        self._keeping = keeping
        self._spend = spend
        self._key = key
        self._name = name
        self._driven = driven
        self._taken_over = taken_over
        self._journals: dict[str, Journal] = {}
        self._told: set[Mistake] = set()

    def wrap(self, half: Outbound, binding: Binding) -> GovernedOutbound:
        """Govern a route. `open` opens its audit log, or `prepare` if `open` was called before."""
        for caution in binding.cautions:
            if caution not in self._told:
                self._told.add(caution)
                log.warning("%s", caution)
        journal = self._journal(binding)
        journal.want(binding.manifest.path, binding.terms)
        return governed(half, RouteGovernor(binding, journal))

    @staticmethod
    def replace(before: Outbound, after: Outbound) -> None:
        """Let the documents of a reloaded route decide about the runs that its earlier half goes on with."""
        if isinstance(before, GovernedOutbound) and isinstance(after, GovernedOutbound):
            before.governor.replaced(after.governor)

    @staticmethod
    def broken(half: Outbound, agent: Agent) -> list[str]:
        """List what an agent cannot do that its manifest promises, each with its file and line."""
        return [str(mistake) for mistake in half.governor.broken(agent)] if isinstance(half, GovernedOutbound) else []

    async def open(self) -> None:
        """Open every log. Called when the store is open, before any run goes on. Raises as `prepare`."""
        for journal in list(self._journals.values()):
            await journal.open()

    async def prepare(self, bindings: Iterable[Binding]) -> None:
        """Open the logs of a table that is about to be taken. None changes anything for the routes that there are.

        Raises Unavailable (another process writes it, the disk fails), AuditBroken, Invalid (it cannot be signed).
        """
        wanted = [*bindings]
        for binding in wanted:
            self._demanded(binding)
        for journal in map(self._journal, wanted):
            if not journal.settled:
                async with self._adopting:
                    await journal.open()
                    await journal.settle(self._driven)

    async def inherit(self, runs: Sequence[Run]) -> None:
        """Take over what processes that have died left in their logs. Called before these runs of theirs go on here.

        Raises nothing: where a log cannot be taken over, these go on by their own records.
        """
        sessions = {session_of(run) for run in runs}
        for name, journal in list(self._journals.items()):
            try:
                await journal.inherit(sessions)
            except InterlinguaError as error:
                log.error("%s: what another process left is not taken over: %s %s", name, error, error.detail)

    async def settle(self) -> None:
        """Record as over what was begun before and no run goes on with. Called when it is known which do.

        Raises nothing: what cannot be written now will be before the session's next event.
        """
        for name, journal in list(self._journals.items()):
            try:
                await journal.settle(self._driven)
            except Unavailable as error:
                log.error("%s: what was begun before is not recorded as over: %s", name, error.detail)

    async def sweep(self, halves: Iterable[Outbound]) -> None:
        """Let go of the logs that none of these, which are those of all routes and runs there are, uses any more."""
        used: dict[int, set[Path]] = {}
        for one in halves:
            if isinstance(one, GovernedOutbound):
                used.setdefault(id(one.governor.journal), set()).add(one.governor.binding.manifest.path)
        for name, journal in list(self._journals.items()):
            if id(journal) in used:
                journal.forget_all_but(used[id(journal)])
            else:
                async with self._adopting:
                    await self._journals.pop(name).aclose()

    async def aclose(self) -> None:
        """Close every log. Called when no run goes on any more, while the store is open."""
        for journal in self._journals.values():
            await journal.aclose()

    def _journal(self, binding: Binding) -> Journal:
        folder = binding.audit_folder
        name = os.path.realpath(folder or binding.manifest.path)
        if name not in self._journals:
            make = functools.partial(self._made, binding, name) if folder is not None else None
            known = functools.partial(self._numbers, name)
            self._journals[name] = Journal(make, known, spend=self._spend, folder=name, taken_over=self._taken_over)
        return self._journals[name]

    async def _numbers(self, folder: str) -> set[int]:
        """Those of the logs that are in a folder, or have been."""
        return log_numbers(Path(folder)) | await kept_numbers(self._keeping, self._name + folder)

    async def _made(self, binding: Binding, folder: str, number: int) -> AuditLog:
        """One log, when it is to be opened."""
        self._demanded(binding)
        kept = KeptHead(self._keeping, head_name(self._name + folder, number))
        return AuditLog(
            log_path(Path(folder), number),
            signer=EntrySigner.load(self._key) if self._key is not None else None,
            algorithm=binding.terms.algorithm,
            head=await kept.newest(),
            on_head=kept.keep,
        )

    def _demanded(self, binding: Binding) -> None:
        """Raises Invalid where the posture demands what is not done here."""
        if told := "\n".join(map(str, binding.unmet(key=self._key is not None))):
            raise Invalid(told)
