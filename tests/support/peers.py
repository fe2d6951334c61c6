"""The peers tests talk to: real SDKs in virtual environments of their own, and how to run programs in them.

Each SDK has a lock in `tests/peers/<name>.txt` with the exact versions it still runs with. Its environment is made on
first use in `.peers/<name>-<digest of the lock>/` and kept. `python -m tests.support.peers` makes them all.
"""

import concurrent.futures
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.processes import ROOT, Process, free_port, start, url_answers

PEERS = ROOT / "tests" / "peers"
BUILT = ROOT / ".peers"


class PeerUnavailable(RuntimeError):
    """An environment could not be made; the message carries what the installer said."""


def peer_names() -> list[str]:
    """The SDKs there are locks for."""
    return sorted(path.stem for path in PEERS.glob("*.txt"))


def peer_python(name: str) -> Path:
    """The interpreter that can import the SDK `name`; its environment is made now if it is not there yet.

    Safe to call from any number of processes: one builds, the others wait for it, and a half-made environment is
    never seen, since it is renamed into place when it is complete. PeerUnavailable if it cannot be made.
    """
    lock = PEERS / f"{name}.txt"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    home = BUILT / f"{name}-{digest}"
    python = home / "bin" / "python"
    if python.exists():
        return python
    BUILT.mkdir(exist_ok=True)
    with (BUILT / f"{name}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not python.exists():
            _build(lock, home)
    return python


def _build(lock: Path, home: Path) -> None:
    scratch = home.with_name(f".{home.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.rmtree(home, ignore_errors=True)  # made by an interpreter that is gone
    venv.create(scratch, symlinks=True, with_pip=False)
    # A lock is complete, so nothing is resolved; and our own pip serves, which saves installing one in each.
    pip = [sys.executable, "-m", "pip", "--python", str(scratch / "bin" / "python"), "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "-r", str(lock)],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise PeerUnavailable(f"installing {lock.name} failed:\n{done.stdout}{done.stderr}")
    scratch.rename(home)


def run_program(name: str, program: str, *args: str, within: float = 60.0, check: bool = True) -> list[dict[str, Any]]:
    """Runs `tests/peers/<program>` under the SDK `name`; what it printed, one JSON object a line.

    AssertionError with all its output if it ends badly (unless `check` is off) or not `within` seconds.
    """
    # -P keeps the program's own folder off the path: it holds files named like the SDKs' modules
    argv = [str(peer_python(name)), "-P", str(PEERS / program), *args]
    with start(argv) as process:
        code = process.wait(within)
        assert code == 0 or not check, process.describe()
        return [json.loads(line) for line in process.stdout().splitlines() if line.strip()]


def agent_connect_client(
    command: str, url: str, *args: str, api_key: str | None = None, within: float = 60.0
) -> list[dict[str, Any]]:
    """One conversation of the real `agntcy-acp` client; see `agent_connect_client.py` for the commands."""
    (lines,) = agent_connect_conversations(url, [command, *args], api_key=api_key, within=within)
    return lines


def agent_connect_conversations(
    url: str, *conversations: Sequence[str], api_key: str | None = None, within: float = 60.0
) -> list[list[dict[str, Any]]]:
    """Several conversations in one process, each `[command, option, ...]`: starting the SDK is what takes long."""
    everywhere = ["--url", url, *(["--api-key", api_key] if api_key else [])]
    argv: list[str] = []
    for conversation in conversations:
        argv += [*(["+"] if argv else []), *conversation, *everywhere]
    said: list[list[dict[str, Any]]] = [[]] if len(conversations) == 1 else []
    for line in run_program("agntcy-acp", "agent_connect_client.py", *argv, within=within):
        if line["op"] == "converse":
            said.append([])
        else:
            said[-1].append(line)
    return said


def agent_protocol_client(command: str, url: str, *args: str, within: float = 60.0) -> list[dict[str, Any]]:
    """One conversation of the real `agent-protocol-client`; see `agent_protocol_client.py`."""
    program = "agent_protocol_client.py"
    return run_program("e2b-client", program, command, "--url", url, *args, within=within)


@contextlib.contextmanager
def agent_protocol_server(workspace: Path) -> Iterator[Process]:
    """The agent made with the real `agent-protocol` SDK; its files land in `workspace`."""
    port = free_port()
    argv = [str(peer_python("e2b-server")), "-P", str(PEERS / "agent_protocol_server.py")]
    argv += ["--port", str(port), "--workspace", str(workspace)]
    with start(argv, port=port) as process:
        yield process


@contextlib.contextmanager
def agent_connect_agent(*args: str, port: int | None = None) -> Iterator[Process]:
    """The plain, correct Agent Connect server; `args` as in `agent_connect_agent.py`, `--api-key` among them."""
    with _own("agent_connect_agent.py", args, port or free_port()) as process:
        yield process


@contextlib.contextmanager
def agent_connect_replay(*args: str) -> Iterator[Process]:
    """The server that answers as the recorded one did, quirks and all; see `agent_connect_replay.py`."""
    with _own("agent_connect_replay.py", args, free_port()) as process:
        yield process


@contextlib.contextmanager
def plain_agent() -> Iterator[Process]:
    """Agents of the toy protocol; see `plain_agent.py`."""
    with _own("plain_agent.py", (), free_port()) as process:
        yield process


@contextlib.contextmanager
def _own(program: str, args: Sequence[str], port: int) -> Iterator[Process]:
    argv = [sys.executable, str(PEERS / program), "--port", str(port), *args]
    with start(argv, port=port, ready=url_answers(f"http://127.0.0.1:{port}/_seen")) as process:
        yield process


def main() -> int:
    """Makes every environment that is missing, two at a time; prints what took how long."""

    def make(name: str) -> str:
        began = time.monotonic()
        python = peer_python(name)
        took = time.monotonic() - began
        return f"peer {name}: {f'made in {took:.0f} s' if took > 1 else 'ready'}  {python.parents[1].name}"

    with concurrent.futures.ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        for line in pool.map(make, peer_names()):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
