"""`interlingua manifest`: an ACP.md (AIP-44) for an agent, as the gateway offers it."""

from __future__ import annotations

from pathlib import Path

from gateway.cli import loop
from gateway.cli.codes import OK
from gateway.cli.files import chosen, read
from gateway.cli.local import Local
from gateway.config import Config, Route
from gateway.core.types import Agent
from gateway.governance.printing import bridge, page


def print_manifest(agent: str, routes: Path | None) -> int:
    """Print it. Asks the agent what it can do: raises NotFound if there is none, and whatever its target raises."""
    table = chosen(routes, None)
    assert table is not None, "without a gateway there is a table"
    config = read(table)

    async def asked() -> tuple[Agent, Route]:
        async with Local(config, serving=False) as local:
            return await local.described(agent)

    print(written(config, *loop.run(asked())), end="")
    return OK


def written(config: Config, agent: Agent, route: Route) -> str:
    """The file for an agent of the config."""
    served = any(config.adapters[name].editors for name in config.inbound)
    front = bridge(agent, route.binding, ("stdio", "websocket") if served else ("stdio",))
    ways = [f"`interlingua stdio {agent.name}` speaks for it on standard input and output."]
    if served:
        ways.append("`interlingua serve` offers it to editors over WebSocket.")
    return page(front, "\n".join([f"# {agent.name}", "", "An agent behind Interlingua.", *ways]))
