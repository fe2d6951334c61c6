"""Wraps an outbound half: its runs pass a gate, and what it is told of conversations has the route's rules.

governed(half, governor)  offers the abilities that the half offers (gateway/contract/optional.py)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.contract import Outbound, RunContext, ThreadContext
from gateway.contract.governing import GOVERNOR, RuleKeeping
from gateway.contract.interception import InterceptedRun
from gateway.contract.optional import Discovering, Relay, Stateful, Supervised
from gateway.core.errors import Unsupported
from gateway.core.types import Agent, ChatMessage, Checkpoint, Json, JsonObject
from gateway.governance.enforcing.governed_run import GovernedRun, RuledContext
from gateway.governance.enforcing.governor import RouteGovernor


class GovernedOutbound:
    """An outbound half of a route that has a manifest. See `Intercepting`, `Demanding` and `Extended`."""

    def __init__(self, half: Any, governor: RouteGovernor) -> None:
        """`half`: the `Outbound` that is wrapped, with the abilities of the subclass."""
        self.half = half
        self.governor = governor
        self.keeping = half if isinstance(half, RuleKeeping) else None

    async def describe(self) -> Agent:
        found: Agent = await self.half.describe()
        return found

    def intercept(self, run: InterceptedRun) -> GovernedRun | None:
        """Govern a run, unless its manifest stands alone and nothing governs its agent."""
        return GovernedRun(run, self.half, self.keeping, self.governor) if self.governor.judges else None

    async def run(self, context: RunContext) -> None:
        await self.half.run(RuledContext(context, self.governor))

    async def attach(self, context: RunContext) -> None:
        await self.half.attach(RuledContext(context, self.governor))

    async def cancel(self, context: RunContext) -> None:
        await self.half.cancel(RuledContext(context, self.governor))

    def unmet(self, agent: Agent) -> str:
        return self.governor.unmet(agent)

    def extension(self, key: str) -> Any:
        return self.governor if key == GOVERNOR else None

    async def aclose(self) -> None:
        await self.half.aclose()


class _Discovering(GovernedOutbound):
    def __init__(self, half: Any, governor: RouteGovernor) -> None:
        super().__init__(half, governor)
        self._found: dict[str, GovernedOutbound] = {}

    @property
    def discovers(self) -> bool:
        return bool(self.half.discovers)

    async def discover(self) -> Mapping[str, Outbound]:
        """Agents that are found are governed by the same rules."""
        found = await self.half.discover()
        before, self._found = self._found, {}
        for name, half in found.items():
            known = before.get(name)
            self._found[name] = known if known is not None and known.half is half else governed(half, self.governor)
        return dict(self._found)

    def on_change(self, changed: Callable[[], None]) -> None:
        self.half.on_change(changed)


class _Supervised(GovernedOutbound):
    @property
    def reachable(self) -> bool | None:
        found: bool | None = self.half.reachable
        return found


class _Relay(GovernedOutbound):
    async def relay(self, context: ThreadContext, method: str, params: msgspec.Raw) -> msgspec.Raw:
        answer: msgspec.Raw = await self.half.relay(self._ruled(context, method), method, params)
        return answer

    async def forward(self, context: ThreadContext, method: str, params: msgspec.Raw) -> None:
        await self.half.forward(self._ruled(context, method), method, params)

    def _ruled(self, context: ThreadContext, method: str) -> RuledContext:
        """Raises Unsupported if the half knows of no rules: nothing would decide about what it is asked."""
        if self.keeping is None:
            raise Unsupported(f"agent {context.agent.name} is governed: {method} passes by its rules")
        return RuledContext(context, self.governor)


class _Stateful(GovernedOutbound):
    async def read_thread(self, upstream: JsonObject) -> Checkpoint:
        found: Checkpoint = await self.half.read_thread(upstream)
        return found

    async def read_history(self, upstream: JsonObject, *, limit: int, before: str | None) -> Sequence[Checkpoint]:
        found: Sequence[Checkpoint] = await self.half.read_history(upstream, limit=limit, before=before)
        return found

    async def copy_thread(self, upstream: JsonObject) -> JsonObject:
        found: JsonObject = await self.half.copy_thread(upstream)
        return found

    async def update_thread(
        self, upstream: JsonObject, *, base: str | None, values: Json, messages: Sequence[ChatMessage] | None
    ) -> None:
        await self.half.update_thread(upstream, base=base, values=values, messages=messages)


_ABILITIES: Final[tuple[tuple[Any, type[GovernedOutbound]], ...]] = (
    (Discovering, _Discovering),
    (Supervised, _Supervised),
    (Relay, _Relay),
    (Stateful, _Stateful),
)


def governed(half: Outbound, governor: RouteGovernor) -> GovernedOutbound:
    """Wrap an outbound half. The wrapper offers each ability that the half offers."""
    offered = tuple(wrapper for ability, wrapper in _ABILITIES if isinstance(half, ability))
    kind: type[GovernedOutbound] = type("GovernedOutbound", offered, {}) if offered else GovernedOutbound
    return kind(half, governor)
