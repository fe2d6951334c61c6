"""Agents that inbound halves host (see `gateway.contract.hosting`): the roster's third source."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextvars import ContextVar
from functools import partial

from pydantic import ValidationError

from gateway.agents.entry import Entry
from gateway.config import Match, Route
from gateway.contract import Hosted, Hosting, Outbound, TargetOptions
from gateway.core.errors import InterlinguaError
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)

REFRESH_SECONDS = 5.0
"""How long whoever asks for an unknown name waits for `Hosting.refresh`."""

_on_behalf_of: ContextVar[object] = ContextVar("the refresh that a task is part of", default=None)


class HostedEntry(Entry, kw_only=True):
    """An agent that an inbound half brings, as a route."""

    hosted: Hosted

    def renew(self, route: Route, hosted: Hosted) -> None:
        self.route, self.hosted = route, hosted

    @property
    def hidden(self) -> bool:
        return bool(self.hosted.protocols)

    @property
    def ready(self) -> bool:
        """See `Entry.ready`. One that nobody has asked yet is there: its inbound half says so."""
        return super().ready or (self.asked_at < 0 and self.there is None)


class Hosts:
    """One per roster. What the halves host now is in `entries`, by protocol and name."""

    def __init__(self) -> None:
        self.halves: dict[str, Hosting] = {}
        self.entries: dict[str, dict[str, HostedEntry]] = {}
        self._opened: list[str] = []
        self._retired: list[Entry] = []
        """Entries that are gone, and whose runs go on."""
        self._closing = TaskSet(partial(log.debug, "an agent is not closed in good order: %s"))
        self._looking: asyncio.Task[None] | None = None
        self._hidden: set[tuple[str, str]] = set()
        self._failing: dict[str, str] = {}

    async def open(self) -> None:
        """Let every half read what it kept, then ask it."""
        for protocol in list(self.halves):
            await self.begin(protocol)

    async def begin(self, protocol: str) -> None:
        """Let one half read what it kept, then ask it."""
        self._opened.append(protocol)
        await self.halves[protocol].open()
        self.ask(protocol)

    async def close(self) -> None:
        """Let every half let go, then close what they hosted."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        for protocol in self._opened:
            try:
                await self.halves[protocol].aclose()
            except Exception:
                log.exception("agents hosted by %s: not closed in good order", protocol)
        entries, self.entries = self.entries, {}
        for entry in [entry for half in entries.values() for entry in half.values()]:
            self.retire(entry)
        for gone in self._retired:  # their runs were let go of
            self.close_target(gone.taken_away())
        await self._closing.settled()

    def ask(self, protocol: str, described: Collection[str] | None = None) -> None:
        """Ask one half what it hosts now. Those of `described` (all, if None) are described anew when next needed."""
        if (half := self.halves.get(protocol)) is None:
            return
        try:
            hosted = dict(half.hosted())
        except Exception:
            log.exception("agents hosted by %s: they cannot be told", protocol)
            return
        before = self.entries.get(protocol, {})
        now: dict[str, HostedEntry] = {}
        for name, one in hosted.items():
            entry = before.get(name)
            if entry is None or entry.hosted is not one:
                entry = _entry(entry, protocol, name, one)
            if entry is not None:
                now[name] = entry
        self.entries[protocol] = now
        for name in before if described is None else before.keys() & described:
            before[name].outdate()
        for entry in [entry for name, entry in before.items() if now.get(name) is not entry]:
            self.retire(entry)

    def reserved(self) -> set[str]:
        """The names that are theirs unless the route table has them."""
        every = (entries.items() for entries in self.entries.values())
        return {name for entries in every for name, entry in entries if entry.hosted.reserved}

    def served(self, taken: set[str]) -> list[Entry]:
        """Those whose names are free, in the order of the halves; their names are added to `taken`."""
        out: list[Entry] = []
        hidden: set[tuple[str, str]] = set()
        for protocol in self.halves:
            for name, entry in self.entries.get(protocol, {}).items():
                if name in taken:
                    hidden.add((protocol, name))
                    continue
                taken.add(name)
                out.append(entry)
        for protocol, name in hidden - self._hidden:
            log.warning("agent %s of %s is not served: its name is taken", name, protocol)
        self._hidden = hidden
        return out

    async def refresh(self) -> None:
        """Let the halves see what other processes kept; never twice at once. Returns after some seconds at the latest.

        A half that asks for an unknown agent meanwhile is not asked again.
        """
        if not self.halves or (self._looking is not None and _on_behalf_of.get() is self._looking):
            return
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        await asyncio.wait([self._looking], timeout=REFRESH_SECONDS)

    async def _look(self) -> None:
        _on_behalf_of.set(asyncio.current_task())
        try:
            for protocol, half in list(self.halves.items()):
                try:
                    await half.refresh()
                    self._failing.pop(protocol, None)
                except Exception as error:
                    if self._failing.get(protocol) != (told := repr(error)):  # it may go on for hours
                        unforeseen = None if isinstance(error, InterlinguaError) else error
                        log.error("agents hosted by %s elsewhere: %s", protocol, error, exc_info=unforeseen)
                    self._failing[protocol] = told
        finally:
            self._looking = None

    def retire(self, entry: Entry) -> None:
        """Close what is hosted, or routed, no longer: now, or when its last run has ended. Nobody waits for it before
        the end: a program has its `stop_timeout`.
        """
        self.close_target(entry.retire())
        self._retired = [one for one in (*self._retired, entry) if one.users]

    def close_target(self, outbound: Outbound | None) -> None:
        """Close what an entry has given back, if it has."""
        if outbound is not None:
            self._closing.start(outbound.aclose())


def _entry(known: HostedEntry | None, protocol: str, name: str, hosted: Hosted) -> HostedEntry | None:
    """The agent as a route: the one that is known, if it is the same. None for what cannot be one."""
    same = known is not None and known.outbound is hosted.outbound
    if known is not None and same and known.hosted == hosted:
        return known
    try:
        route = Route(
            name=name,
            match=Match(protocol=hosted.protocols),
            target=TargetOptions(protocol=protocol),
            timeout=hosted.timeout,
            lossy="allow" if hosted.lossy else "refuse",
        )
    except ValidationError as error:
        log.error("agent %r of %s is not served: %s", name, protocol, error.errors()[0]["msg"])
        return None
    if known is not None and same:
        known.renew(route, hosted)
        return known
    return HostedEntry(route, hosted.outbound, hosted=hosted)
