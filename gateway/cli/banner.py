"""The lines that `serve` prints once it is up: addresses, and commands to try."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.admin import open_near
from gateway.config import Config
from gateway.contract import Adapter
from gateway.core.types import Json
from gateway.transport.guard import local

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
    """`Adapter.call_line`, with the program as any shell can call it."""
    line = adapter.call_line(url, path, agent, document=document, prompt=prompt)
    return lies() + line.removeprefix(PROGRAM) if line.startswith(f"{PROGRAM} ") else line


def banner(config: Config, path: Path, host: str, port: int, agents: Sequence[str], *, secure: bool = False) -> str:
    """Make the lines to print: few enough for a small screen. `port` is the actual one, `agents` their names,
    `secure` whether TLS is spoken.
    """
    console = config.operators is not None or open_near(config, private=local(host))
    near = ANYWHERE.get(host, f"[{host}]" if ":" in host else host)
    url = f"{'https' if secure else 'http'}://{near}:{port}"
    served = {config.adapters[name].title: options.path for name, options in config.inbound.items()}
    width = max(map(len, served), default=0)
    doors = (f"  {title:{width}}  {url}{mount}" for title, mount in served.items())
    first = agents[0] if agents else "AGENT"
    return "\n".join(
        [
            f"Interlingua is up at {url}",
            f"  {path}: {', '.join(agents) or 'no agents'}",
            *doors,
            "Try:",
            f'  {called()} run {first} "Hello" --gateway {url}',
            f"  {called()} agents {first} --gateway {url}",
            f"  curl {url}",
            *([f"Console: {url}/ui/"] if console else []),
        ]
    )
