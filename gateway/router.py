"""Which route takes a request. Pure: made from the route table, asked for every run, replaced whole by a reload."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from gateway.config import Route
from gateway.core.errors import NotFound
from gateway.core.types import agent_id
from gateway.registry import OPERATOR


class Router:
    """A route table. The first route that fits a request wins."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._by_name: dict[str, list[Route]] = {}
        for route in self.routes:
            self._by_name.setdefault(route.name, []).append(route)

    def names(self, protocol: str) -> tuple[str, ...]:
        """Agents that clients of `protocol` may call, in route order, each once. The operator may call all."""
        return tuple(dict.fromkeys(route.name for route in self.routes if _serves(route, protocol)))

    def match(self, protocol: str, agent: str | None, metadata: Mapping[str, Any] | None = None) -> Route:
        """The route for a request to `agent`: its name, its UUID, or None for the only one there is.

        Raises NotFound, which lists the names that this client may use.
        """
        metadata = metadata or {}
        if agent is None:
            fitting = [route for route in self.routes if _fits(route, protocol, metadata)]
            if len({route.name for route in fitting}) == 1:
                return fitting[0]
            what = "name an agent" if fitting else "no agent takes this request"
            raise NotFound(f"{what}; have {self._listed(protocol)}")
        for route in self._by_name.get(self.name(agent) or "", ()):
            if _fits(route, protocol, metadata):
                return route
        raise NotFound(f"no agent '{agent}'; have {self._listed(protocol)}")

    def name(self, agent: str) -> str | None:
        """The name of an agent given by name or UUID; None if no route has it."""
        if agent in self._by_name:
            return agent
        try:
            return self._by_id.get(str(uuid.UUID(agent)))
        except ValueError:
            return None

    @cached_property
    def _by_id(self) -> dict[str, str]:
        return {agent_id(name): name for name in self._by_name}

    def _listed(self, protocol: str) -> str:
        return ", ".join(self.names(protocol)) or "none"


def _serves(route: Route, protocol: str) -> bool:
    return not route.match.protocol or protocol in route.match.protocol or protocol == OPERATOR


def _fits(route: Route, protocol: str, metadata: Mapping[str, Any]) -> bool:
    return _serves(route, protocol) and all(
        key in metadata and _same(metadata[key], value) for key, value in route.match.metadata.items()
    )


def _same(given: Any, wanted: Any) -> bool:
    """Equal as JSON: `true` is not 1, and an object has the wanted keys among its own."""
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(wanted, dict):
        return isinstance(given, Mapping) and all(key in given and _same(given[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(given, list) and len(given) == len(wanted) and all(map(_same, given, wanted))
    return bool(given == wanted)
