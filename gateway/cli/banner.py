"""What `serve` says once it is up: the addresses, and things to try."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gateway.config import Config

ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}


def banner(config: Config, path: Path, host: str, port: int, agents: Sequence[str]) -> str:
    """Several lines, ready to print. `port` is the one that is listened on, `agents` the names of those there are."""
    near = ANYWHERE.get(host, f"[{host}]" if ":" in host else host)
    url = f"http://{near}:{port}"
    lines = [f"Interlingua is up at {url}", f"  {path}: {', '.join(agents) or 'no agents'}", ""]
    width = max((len(config.adapters[name].title) for name in config.inbound), default=0)
    tries = [f"curl {url}/readyz"]
    if agents:
        tries.append(f'interlingua run {agents[0]} "Hello" --gateway {url}')
    for name, options in config.inbound.items():
        adapter = config.adapters[name]
        lines.append(f"  {adapter.title:{width}}  {url}{options.path}")
        if agents and adapter.example:
            example = adapter.example.replace("{gateway}", url).replace("{url}", f"{url}{options.path}")
            tries.append(example.replace("{agent}", agents[0]))
    return "\n".join([*lines, "", "Try:", *(f"  {line}" for line in tries), ""])
