"""`/readyz`: whether the gateway takes runs, for anybody; which agents there are, for whoever may know."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from starlette.requests import Request

from gateway.adapter import InboundOptions
from gateway.adapter.access import Asking, Created, People, uncreated
from gateway.core.errors import Unauthenticated
from gateway.core.types import JsonObject

FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")
"""Headers by which a proxy on this machine says that somebody else asks."""


class Readiness:
    """Who may know the agents by name: who asks from this machine, all; who has a token of any door, its own."""

    def __init__(self, doors: Iterable[InboundOptions], created: Created = uncreated) -> None:
        self._created = created
        self._people = [
            People(door.authentication) for door in doors if isinstance(door, Asking) and door.authenticates
        ]

    def body(self, ready: bool, agents: Mapping[str, bool], request: Request) -> JsonObject:
        """The answer. `agents`: whether each is ready, by name. For everybody else they are counted alone."""
        counts = {"agents": len(agents), "ready": sum(agents.values())}
        found: JsonObject = {"ready": ready, "counts": counts}
        sees = self._sees(request)
        if sees is not None:
            found["agents"] = {name: fit for name, fit in agents.items() if sees(name)}
        return found

    def _sees(self, request: Request) -> Callable[[str], bool] | None:
        if _local(request):
            return lambda name: True
        for people in self._people:
            try:
                known = people.enters(request.scope["headers"])
            except Unauthenticated:
                continue
            return lambda name: known.may_use(name, self._created(name))
        return None


def _local(request: Request) -> bool:
    if request.client is None or any(name in request.headers for name in FORWARDED):
        return False
    try:
        address = ipaddress.ip_address(request.client.host.partition("%")[0])
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    except ValueError:
        return False
