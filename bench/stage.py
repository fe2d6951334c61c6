"""The processes of a measurement: started in order, asked what they cost, ended whatever happens."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS = 120.0
ANSWER_SECONDS = 150.0
LOG_TAIL = 2000
SYNCS = 20
REST_SECONDS = 0.25
REST_SHARE = 0.05
REST_TRIES = 60

STORE_URL = "${BENCH_STORE:-sqlite:///bench.db}"
STORE = """
store: {{url: "${{BENCH_STORE:-sqlite:///bench.db}}", fsync: {fsync}}}
"""
ROUTES = """\
routes:
  - name: echo
    target: {{protocol: agent_connect, url: "http://127.0.0.1:{agent}"}}
{example}
store: {{url: "${{BENCH_STORE:-sqlite:///bench.db}}", fsync: {fsync}}}
"""
EXAMPLE = """\
  - name: example{size}
    target: {{protocol: example, url: "http://127.0.0.1:{agent}/example/{size}"}}
"""
PREFIX = "/agent-connect"
PROXIES = {"bare": ["-m", "bench.bare"], "lean": ["-m", "bench.lean"], "rows": ["-m", "bench.lean"]}
"""What stands before the Agent Connect agent for comparison; `rows` is the lean translator with two rows a run."""

EDITORS = """\
routes:
  - name: editor
    target: {{protocol: agent_client, command: {command}, cwd: {root}}}
store: {{url: "${{BENCH_STORE:-sqlite:///bench.db}}", fsync: {fsync}}}
"""
EDITORS_AGENT = [sys.executable, "-m", "bench.agent_client.agent"]
"""Started in ROOT."""


class Broken(Exception):
    """A process did not do what it is for. The text says why."""


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a child's work on the loop that the gateway uses too."""
    factory = None
    if sys.platform != "win32":
        import uvloop

        factory = uvloop.new_event_loop
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


_held: deque[socket.socket] = deque()


@atexit.register
def _let_go() -> None:
    while _held:
        _held.popleft().close()


def free_port() -> int:
    """A port that nobody listens on, for a server that binds with SO_REUSEADDR, as all of these do.

    It stays bound here while the next hundred are asked for: nobody else is given it before that server listens.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _held.append(held)
    if len(_held) > 100:
        _held.popleft().close()
    port: int = held.getsockname()[1]
    return port


def processor_seconds(pid: int) -> float | None:
    """What a process has taken so far; None where the system does not tell (it does on Linux)."""
    try:
        threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9 or None
    except OSError:
        return None


@dataclass(frozen=True)
class Tree:
    """A version of this repository: its folder, and the interpreter that has what it needs."""

    root: Path
    python: str


OWN = Tree(ROOT, sys.executable)
NOTHING: Mapping[str, str] = MappingProxyType({})


def _kept() -> dict[str, str]:
    """Our environment. Bytecode is written whatever it says: a start without it is none that anybody has twice."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Child:
    """A process of ours. What it says goes to a file, whose end is shown if it breaks."""

    launch = staticmethod(subprocess.Popen)

    def __init__(
        self,
        name: str,
        argv: list[str],
        log: Path,
        *,
        talks: bool = False,
        tree: Tree = OWN,
        env: Mapping[str, str] = NOTHING,
    ) -> None:
        """`argv`: what the tree's interpreter is to run, in the tree's folder; `env`: beside our own."""
        self.name = name
        self._log = log
        pipe = subprocess.PIPE if talks else None
        with log.open("ab") as said:
            self.popen = self.launch(
                [tree.python, *argv],
                cwd=tree.root,
                env={**_kept(), **env},
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or said,
                stderr=said,
            )

    def rss(self) -> int:
        """Resident memory in bytes."""
        with contextlib.suppress(OSError):
            pages = Path(f"/proc/{self.popen.pid}/statm").read_text().split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")
        said = subprocess.run(["ps", "-o", "rss=", "-p", str(self.popen.pid)], capture_output=True, check=True)
        return int(said.stdout) * 1024

    def cpu(self) -> float | None:
        """See `processor_seconds`."""
        return processor_seconds(self.popen.pid)

    def at_rest(self) -> float | None:
        """Wait until it has nothing left to do. Returns the share of a core that it takes then, None if unknown."""
        before, shares = self.cpu(), [1.0, 1.0]
        while before is not None and len(shares) < REST_TRIES:
            time.sleep(REST_SECONDS)
            now = self.cpu()
            assert now is not None
            shares.append((now - before) / REST_SECONDS)
            before = now
            if max(shares[-2:]) < REST_SHARE:
                break
        return None if before is None else min(shares)

    def broken(self, why: str) -> Broken:
        """The error to raise, with what the process said last."""
        said = self._log.read_bytes()[-LOG_TAIL:].decode(errors="replace") if self._log.exists() else ""
        return Broken(f"the {self.name} {why}\n{said}".rstrip())

    def until_answers(self, url: str) -> float:
        """Wait until `url` answers 200. Returns the seconds since now."""
        return self._until_served(lambda: urllib.request.urlopen(url, timeout=5))

    def until_listens(self, port: int) -> float:
        """Wait until it takes connections. Returns the seconds since now."""
        return self._until_served(lambda: socket.create_connection(("127.0.0.1", port), timeout=5))

    def _until_served(self, look: Callable[[], contextlib.AbstractContextManager[object]]) -> float:
        """`look` again and again until it raises no OSError."""
        began = time.monotonic()
        while time.monotonic() - began < READY_SECONDS:
            if self.popen.poll() is not None:
                raise self.broken(f"ended with {self.popen.returncode}")
            with contextlib.suppress(OSError), look():
                return time.monotonic() - began
            time.sleep(0.005)
        raise self.broken("was not ready in time")

    def end(self) -> None:
        """Ask, then make it."""
        if self.popen.stdin is not None:
            self.popen.stdin.close()
        self.popen.terminate()
        try:
            self.popen.wait(5)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(5)
        if self.popen.stdout is not None:
            self.popen.stdout.close()


@dataclass(frozen=True)
class Gateway:
    """A gateway that serves. `seconds`, `cpu` and `rss` are those of its start: until it was ready, and what it had
    taken and held then (`cpu` is None where the system does not tell)."""

    child: Child
    port: int
    seconds: float
    cpu: float | None
    rss: int


@dataclass(frozen=True)
class Place:
    """A process that serves Agent Connect below `prefix`."""

    child: Child
    port: int
    prefix: str = ""


class Stage:
    """Agent and load, for the whole time; gateways one after the other.

    Use as a context manager.
    """

    def __init__(self, examples: tuple[int, ...], *, fsync: bool = True) -> None:
        """`examples`: the sizes of answer for which there is a route `example{size}`. `fsync`: see `store.fsync`."""
        self._examples = examples
        self._fsync = fsync
        self._stack = contextlib.ExitStack()
        self.places: dict[str, Place] = {}
        """`direct` the agent, `through` the gateway; `bare`, `lean` and `rows` see `compare`."""
        self.directory = Path()
        """For files of its processes, once it is entered."""

    def __enter__(self) -> Stage:
        self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="interlingua-bench-")))
        try:
            self._enter("direct", ["-m", "bench.agent"])
            self.load = self.start("load", ["-m", "bench.load"], talks=True)
        except BaseException:
            self._stack.close()
            raise
        return self

    def compare(self) -> None:
        """Start what stands before the agent for comparison."""
        for name, argv in PROXIES.items():
            rows = ["--rows", str(self.directory / "rows.db")] if name == "rows" else []
            self._enter(name, [*argv, "--agent", str(self.agent_port), *rows])

    @property
    def agent_port(self) -> int:
        """Where the Agent Connect agent and the example one serve."""
        return self.places["direct"].port

    @property
    def port(self) -> int:
        """Where the gateway serves."""
        return self.places["through"].port

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _enter(self, name: str, argv: list[str]) -> None:
        port = free_port()
        child = self.start(name, [*argv, "--port", str(port)])
        child.until_answers(f"http://127.0.0.1:{port}/agents/any/descriptor")
        self.places[name] = Place(child, port)

    def start(self, name: str, argv: list[str], **how: Any) -> Child:
        """One more process, which is ended with the stage. `how`: see `Child`."""
        child = Child(name, argv, self.directory / f"{name}.log", **how)
        self._stack.callback(child.end)
        return child

    @contextlib.contextmanager
    def gateway(self, *, editors: bool = False, table: str | None = None) -> Iterator[Gateway]:
        """A gateway on an empty store. Ended after the block.

        `editors`: its only agent is `editor`, on stdio; `table`: its agents are those of that text (`routes:` of a
        file); else the Agent Connect agent and the example one.
        """
        with self.routes(editors=editors, table=table) as routes, self.served(routes) as gateway:
            self.places["through"] = Place(gateway.child, gateway.port, PREFIX)
            yield gateway

    @contextlib.contextmanager
    def served(self, routes: Path, tree: Tree = OWN, args: Sequence[str] = ()) -> Iterator[Gateway]:
        """A gateway of some version with the agents of that file, which is ready. Ended after the block. `args`:
        further ones of `serve`.
        """
        port = free_port()
        argv = ["-m", "gateway", "serve", str(routes), "--port", str(port), "--log-level", "warning", *args]
        child = Child("gateway", argv, self.directory / "gateway.log", tree=tree)
        try:
            seconds = child.until_answers(f"http://127.0.0.1:{port}/readyz")
            yield Gateway(child, port, seconds, child.cpu(), child.rss())
            self.do(kind="forget", port=port)
        finally:
            child.end()

    @contextlib.contextmanager
    def routes(self, *, editors: bool = False, table: str | None = None, store: str | None = None) -> Iterator[Path]:
        """A route table with an empty store beside it, or with that `store`. Both are gone after the block."""
        with tempfile.TemporaryDirectory(dir=self.directory, prefix="gateway-") as directory:
            fsync = str(self._fsync).lower()
            if table is not None:
                text = table + STORE.format(fsync=fsync)
            elif editors:
                command = msgspec.json.encode(EDITORS_AGENT).decode()
                text = EDITORS.format(command=command, root=msgspec.json.encode(str(ROOT)).decode(), fsync=fsync)
            else:
                example = "".join(EXAMPLE.format(size=size, agent=self.agent_port) for size in self._examples)
                text = ROUTES.format(agent=self.agent_port, example=example, fsync=fsync)
            routes = Path(directory) / "routes.yaml"
            if store is not None:
                text = text.replace(STORE_URL, store)
            routes.write_text(text)
            yield routes

    def sync_ms(self) -> float:
        """Median time of an fsync of 4 KB where the store lies: a run's beginning and its end wait for one each."""
        took = []
        with (self.directory / "sync").open("wb") as file:
            for _ in range(SYNCS):
                file.write(b"x" * 4096)
                file.flush()
                began = time.perf_counter()
                os.fsync(file.fileno())
                took.append((time.perf_counter() - began) * 1e3)
        return statistics.median(took)

    def do(self, **job: Any) -> dict[str, Any]:
        """Have the load do a job (see load.py). Raises Broken."""
        pipe, answers = self.load.popen.stdin, self.load.popen.stdout
        assert pipe is not None and answers is not None
        try:
            pipe.write(msgspec.json.encode(job) + b"\n")
            pipe.flush()
        except BrokenPipeError:
            raise self.load.broken("is gone") from None
        line = _line(answers)
        if not line:
            raise self.load.broken(f"did not answer a job of kind {job['kind']}")
        answer = msgspec.json.decode(line)
        if "error" in answer:
            where = job.get("place") or f"port {job.get('port')}"
            raise Broken(f"{job['kind']} at {where}: {answer['error']}")
        result: dict[str, Any] = answer["ok"]
        return result


def _line(answers: IO[bytes]) -> bytes:
    ready, _, _ = select.select([answers], [], [], ANSWER_SECONDS)
    return answers.readline() if ready else b""
