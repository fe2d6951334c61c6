"""Starts the example agents, then becomes `interlingua serve`: what `make serve` runs.

    python examples/serve.py [routes.yaml] [options of `interlingua serve`]

The agents listen where routes.yaml expects them. Each holds one end of a pipe whose other end the gateway keeps open,
and stops when that closes: however the gateway ends, its agents end with it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
AGENTS = {"mailcomposer": "http://127.0.0.1:9001", "reporter": "http://127.0.0.1:9002"}
"""Where routes.yaml looks for them unless MAILCOMPOSER_URL and REPORTER_URL say otherwise."""
START_SECONDS = 20.0

# An agent ends at once when the gateway's end of the pipe on its standard input closes.
RUNNER = """
import os, runpy, sys, threading
threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def taken(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start(name: str, port: int, pipe: int) -> None:
    """Start an agent and wait until it listens."""
    if taken(port):
        sys.exit(
            f"port {port}, where the example agent {name} would listen, is in use;"
            f" {name.upper()}_URL=http://127.0.0.1:PORT names another"
        )
    script = str(HERE / "agents" / f"{name}.py")
    command = [sys.executable, "-c", RUNNER, script, "--port", str(port)]
    agent = subprocess.Popen(command, stdin=pipe, start_new_session=True)  # Ctrl-C is for the gateway
    until = time.monotonic() + START_SECONDS
    while not taken(port):
        if agent.poll() is not None or time.monotonic() > until:
            sys.exit(f"the example agent {name} did not start")
        time.sleep(0.05)


def main() -> None:
    """Start the agents, become the gateway."""
    reading, writing = os.pipe()
    for name, url in AGENTS.items():
        start(name, urlsplit(os.environ.get(f"{name.upper()}_URL", url)).port or 80, reading)
    os.close(reading)
    os.set_inheritable(writing, True)
    arguments = sys.argv[1:]
    if not arguments or arguments[0].startswith("-"):
        arguments = [str(HERE.parent / "routes.yaml"), *arguments]
    os.chdir(HERE.parent)
    os.execv(sys.executable, [sys.executable, "-m", "gateway", "serve", *arguments])


if __name__ == "__main__":
    main()
