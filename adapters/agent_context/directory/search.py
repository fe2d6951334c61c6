"""agentSearch: which entries of the directory match. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from adapters.agent_context.directory.evaluation import score_of
from adapters.agent_context.wire.constants import ACTIVE, BUSY
from gateway.core.types import JsonObject

_LISTS: Final = ("tools", "models", "specializations")
_THERE: Final = frozenset({ACTIVE, BUSY})


def wanted(capabilities: Sequence[str]) -> frozenset[str]:
    """Required capabilities, as they are compared."""
    return frozenset(name.casefold() for name in capabilities)


def offered(entry: Mapping[str, Any]) -> frozenset[str]:
    """An entry's tools, models and specializations, as they are compared."""
    capabilities = entry.get("capabilities")
    if not isinstance(capabilities, dict):
        return frozenset()
    return frozenset(name.casefold() for key in _LISTS for name in capabilities.get(key) or () if isinstance(name, str))


def cost_of(entry: Mapping[str, Any]) -> float | None:
    """`costMetrics.costPerToken`, where it is a number."""
    costs = entry.get("costMetrics")
    cost = costs.get("costPerToken") if isinstance(costs, dict) else None
    return float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None


def matches(
    entry: Mapping[str, Any],
    capabilities: frozenset[str],
    min_score: float | None = None,
    max_cost: float | None = None,
) -> bool:
    """Whether an agent is there, can do all of it, is good enough and cheap enough.

    One whose score is not known is not good enough for any `min_score`; one whose cost is not known, not cheap enough
    for any `max_cost`.
    """
    if entry.get("status") not in _THERE or not capabilities <= offered(entry):
        return False
    if min_score is not None and ((score := score_of(entry.get("evaluation"))) is None or score < min_score):
        return False
    return max_cost is None or ((cost := cost_of(entry)) is not None and cost <= max_cost)


def item(entry: Mapping[str, Any]) -> JsonObject:
    """An agent as appendix B has it in a search result; what is not known is left out."""
    found: JsonObject = {"id": entry["id"], "name": entry["name"]}
    if (score := score_of(entry.get("evaluation"))) is not None:
        found["qualityScore"] = score
    if (cost := cost_of(entry)) is not None:
        found["costPerToken"] = cost
    return found


def ordered(items: Iterable[JsonObject]) -> list[JsonObject]:
    """The best first; of the same score the cheapest, then by id. What is not known comes after what is."""
    return sorted(
        items,
        key=lambda one: (
            -one.get("qualityScore", -1.0),
            one.get("costPerToken", float("inf")),
            one["id"],
        ),
    )
