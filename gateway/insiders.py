"""Who may know which agents there are, at the gateway's own pages: `/readyz` and `/metrics`."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from starlette.requests import Request

from gateway.access import bearer
from gateway.browsers import Names
from gateway.config.exposure import address
from gateway.config.models import Monitors

FORWARDED: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""Headers by which a proxy says that somebody else asks."""

Sees = Callable[[str], bool]
"""Whether somebody may know of an agent, by its name."""
View = Callable[[Iterable[tuple[bytes, bytes]]], Sees | None]
"""See `gateway.contract.Knowing.sees`."""


class Insiders:
    """Who asks from this machine or is a monitor of the options may know all agents; a client of any door, those that
    are there for it; nobody else any.
    """

    def __init__(self, doors: Sequence[View], monitors: Monitors, names: Names) -> None:
        """`doors`: what a client of each may see. `names`: what the gateway is called, for browsers that are near."""
        self._doors = doors
        self._names = names
        self._networks = monitors.networks
        self._tokens = [token.get_secret_value().encode() for token in monitors.tokens]

    def sees(self, request: Request) -> Sees | None:
        """What whoever sent a request may know; None: of no agent."""
        if self._near(request) or self._monitors(request):
            return lambda agent: True
        headers = request.scope["headers"]
        known = [sees for door in self._doors if (sees := door(headers)) is not None]
        return (lambda agent: any(sees(agent) for sees in known)) if known else None

    def _monitors(self, request: Request) -> bool:
        """Whether it has a token of the options."""
        token = bearer(request.headers.getlist("authorization"))
        return token is not None and any([hmac.compare_digest(token.encode(), each) for each in self._tokens])

    def _near(self, request: Request) -> bool:
        """Whether it comes from this machine or a network of the options, and not through a proxy there. A browser
        there asks for pages of any site whose name leads here: it counts only where it asks for the gateway.
        """
        if request.client is None or any(name in request.headers for name in FORWARDED):
            return False
        here = address(request.client.host)
        if here is None or not (here.is_loopback or any(here in network for network in self._networks)):
            return False
        return self._names.asked(request.headers.get("host", ""))
