"""`/readyz`: whether the gateway takes runs, for anybody; which agents there are, for whoever may know."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.types import JsonObject
from gateway.insiders import Sees


def readiness(ready: bool, agents: Mapping[str, bool], sees: Sees | None) -> JsonObject:
    """The answer. `agents`: whether each is ready, by name; whoever may know of none is told how many there are."""
    counts = {"agents": len(agents), "ready": sum(agents.values())}
    found: JsonObject = {"ready": ready, "counts": counts}
    if sees is not None:
        found["agents"] = {name: fit for name, fit in agents.items() if sees(name)}
    return found
