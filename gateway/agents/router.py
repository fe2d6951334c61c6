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
        self._rules = [_Rule(route) for route in routes]
        self._by_name: dict[str, list[_Rule]] = {}
        for rule in self._rules:
            self._by_name.setdefault(rule.route.name, []).append(rule)

    def names(self, protocol: str) -> tuple[str, ...]:
        """Agents that clients of `protocol` may call, in route order, each once. The operator may call all."""
        return tuple(dict.fromkeys(rule.route.name for rule in self._rules if rule.serves(protocol)))

    def match(self, protocol: str, agent: str | None, metadata: Mapping[str, Any] | None = None) -> Route:
        """The route for a request to `agent`: its name, its UUID, or None for the only one there is.

        Raises NotFound, which lists the names that this client may use.
        """
        if agent is None:
            return self._only(protocol, metadata)
        for rule in self._by_name.get(agent) or self._by_name.get(self.name(agent) or "") or []:
            served = rule.protocols is None or protocol in rule.protocols
            if served and (not rule.metadata or rule.fits(metadata or {})):
                return rule.route
        raise NotFound(f"no agent '{agent}'; have {self._listed(protocol)}")

    def _only(self, protocol: str, metadata: Mapping[str, Any] | None) -> Route:
        fitting = [rule.route for rule in self._rules if rule.serves(protocol) and rule.fits(metadata or {})]
        if len({route.name for route in fitting}) == 1:
            return fitting[0]
        what = "name an agent" if fitting else "no agent takes this request"
        raise NotFound(f"{what}; have {self._listed(protocol)}")

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


class _Rule:
    """Which requests a route takes. Made with the table: what is asked for every run is at hand then."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.metadata = route.match.metadata
        self.protocols = frozenset((*route.match.protocol, OPERATOR)) if route.match.protocol else None

    def serves(self, protocol: str) -> bool:
        return self.protocols is None or protocol in self.protocols

    def fits(self, metadata: Mapping[str, Any]) -> bool:
        return all(key in metadata and _same(metadata[key], value) for key, value in self.metadata.items())


def _same(given: Any, wanted: Any) -> bool:
    """Equal as JSON: `true` is not 1, and an object has the wanted keys among its own."""
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(wanted, dict):
        return isinstance(given, Mapping) and all(key in given and _same(given[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(given, list) and len(given) == len(wanted) and all(map(_same, given, wanted))
    return bool(given == wanted)
