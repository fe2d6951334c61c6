"""Agents that an inbound half brings: those that registered with it, or agents of its own making.

A hosted agent is one of the roster like any route: every protocol's clients see it and may run it, it may be the
template of others, its runs have a log and are recovered. What the inbound half must remember of them it keeps in the
store (`Gateway.records.keep`), where the gateway's other processes see it too.

    client registers -> Inbound -> records.keep, agents.hosted_changed -> the engine asks Hosting.hosted()
    run of its name  -> engine  -> Hosted.outbound -> the connection that it registered over
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec

from gateway.contract.outbound import Outbound
from gateway.core.types import JsonObject


@dataclass(frozen=True)
class Hosted:
    """One agent that an inbound half brings, as much of a route as it needs.

    `outbound` is the same object as long as it is the same agent. Another object under the name is another agent:
    runs under way keep the one they began with. The engine closes it (`Outbound.aclose`, once) when it is hosted no
    longer and its last run has ended, or when the gateway stops: an agent that was left out of `hosted()` and comes
    back needs a new one. It may be `Supervised`: then `reachable` False says that the agent is away.
    """

    outbound: Outbound
    protocols: tuple[str, ...] = ()
    """Only clients of these may call it. Empty: those of all."""
    timeout: float | None = 600.0
    """Longest run in seconds, not counting the time a person is asked. None: as long as it likes."""
    lossy: bool = False
    """Whether a request that needs what the agent cannot do is sent without it, instead of being refused."""


@runtime_checkable
class Hosting(Protocol):
    """Offered by inbound adapters whose clients may be agents themselves, or that bring agents of their own."""

    async def open(self) -> None:
        """Called once, when the store is open and no run has been taken up yet: read what was kept.

        Unfinished runs of what `hosted` names from then on are attached (`Outbound.attach`); those of others fail.
        """

    def hosted(self) -> Mapping[str, Hosted]:
        """The agents there are now, by name (letters, digits, _ and -), in the order of listings. Must not raise.

        Asked after `open` and after every `Gateway.agents.hosted_changed`. A name that the route table has, or that was
        given to an agent found or created, is not served here; nor is one of another inbound half that came first.
        """

    async def refresh(self) -> None:
        """See what other processes kept, forgot or renewed. Called every second or so, never twice at once, and
        before an unknown name is refused: it may ask `Gateway.records.kept`, but for no agent. Errors are logged.
        """

    async def aclose(self) -> None:
        """Let go of everything. Called once at the stop: no run goes on any more, the store is still open."""


class Kept(msgspec.Struct, frozen=True):
    """What an inbound half keeps under a name. Read only: the same object is given to whoever asks.

    Times are seconds since the epoch. `owner` is who may replace it. `expires_at` None is until it is forgotten.
    """

    name: str
    owner: str
    data: JsonObject
    created_at: float
    expires_at: float | None = None
