"""The ways by which editors reach a gateway."""

from __future__ import annotations

from typing import Any

from tests.support.forking import standing_in
from tests.support.processes import PROGRAM, Gateway


def way(gateway: Gateway, door: str, agent: str = "") -> dict[str, Any]:
    """The `command` or `url` of a conversation with the agent, or, without a name, with the one that is chosen.

    Doors: `stdio`, the gateway in the editor's own process; `pipe`, a thin pipe to the running one; `ws`; and `http`.
    """
    if door in ("ws", "http"):
        below = f"/agent-client/{agent}" if agent else "/agent-client"
        return {"url": f"{gateway.url.replace('http', door)}{below}"}
    there = ["--gateway", gateway.url] if door == "pipe" else ["--routes", str(gateway.file)]
    return {"command": standing_in([*PROGRAM, "stdio", *([agent] if agent else []), *there])}
