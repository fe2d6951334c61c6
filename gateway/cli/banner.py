"""What `serve` says once it is up: the addresses, and things to try."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.config import Config
from gateway.contract import Adapter
from gateway.core.types import Json

ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}
PROGRAM = "interlingua"


def lies() -> str:
    """The program as any shell, and any editor's setting, can call it: its full path."""
    found = _path()
    return shlex.quote(found) if os.path.exists(found) else f"{shlex.quote(sys.executable)} -m gateway"


def called() -> str:
    """The program as a shell in this folder calls it: by its name where that is on the PATH, else where it lies."""
    if shutil.which(PROGRAM):
        return PROGRAM
    near = os.path.relpath(_path())
    return lies() if near.startswith(os.pardir) or not os.path.exists(near) else shlex.quote(near)


def _path() -> str:
    return os.path.abspath(shutil.which(PROGRAM) or os.path.join(os.path.dirname(sys.executable), PROGRAM))


def example(adapter: Adapter, url: str, path: str | None, agent: str, *, document: Json, prompt: str) -> str:
    """The adapter's line to try: at the gateway's address, for an agent with an input and a prompt that means it."""
    line = adapter.example.replace("{gateway}", url).replace("{url}", f"{url}{path or ''}").replace("{agent}", agent)
    for name, value in (("{input}", document), ("{prompt}", prompt)):
        line = line.replace(name, json.dumps(value, ensure_ascii=False).replace("'", "'\\''"))
    return lies() + line.removeprefix(PROGRAM) if line.startswith(f"{PROGRAM} ") else line


def banner(config: Config, path: Path, host: str, port: int, agents: Sequence[str], *, secure: bool = False) -> str:
    """Make the lines to print. `port` is the actual one, `agents` their names, `secure` whether TLS is spoken."""
    near = ANYWHERE.get(host, f"[{host}]" if ":" in host else host)
    url = f"{'https' if secure else 'http'}://{near}:{port}"
    lines = [f"Interlingua is up at {url}", f"  {path}: {', '.join(agents) or 'no agents'}", ""]
    width = max((len(config.adapters[name].title) for name in config.inbound), default=0)
    tries = [f"curl {url}/readyz"]
    if agents:
        tries.append(f'{called()} run {agents[0]} "Hello" --gateway {url}')
    for name, options in config.inbound.items():
        adapter = config.adapters[name]
        lines.append(f"  {adapter.title:{width}}  {url}{options.path}")
        if agents and adapter.example:
            tries.append(example(adapter, url, options.path, agents[0], document={"message": "Hello"}, prompt="Hello"))
    return "\n".join([*lines, "", "Try:", *(f"  {line}" for line in tries), ""])
