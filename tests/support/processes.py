"""Real processes on 127.0.0.1 for tests: started, awaited, shown when they fail, and always ended.

`start` is the one door: a context manager that gives a `Process` once it is ready and ends the process's whole
group when the block is left, whatever happened in it. Nothing here sleeps blindly: every wait is for something
and has a deadline, and a process that dies while it is waited for is reported at once with what it had printed.
"""

import atexit
import collections
import contextlib
import functools
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.support.forking import Forked, fork, place

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "tests" / "peers"
PROGRAM = [sys.executable, "-m", "gateway"]
"""The gateway's command line, which comes before its arguments."""
READY_WITHIN = 60.0
"""Seconds a process gets to become ready; generous, since test machines have few cores and many workers."""


_held: collections.deque[socket.socket] = collections.deque()
"""The sockets of `free_port`."""


@atexit.register
def _let_go() -> None:
    while _held:
        _held.popleft().close()


class ProcessFailed(AssertionError):
    """A process died early, was not ready in time, or would not end; the message carries its output."""


def free_port() -> int:
    """A port on 127.0.0.1 on which nobody listens, for a server of the test's.

    It stays bound here while the next hundred are asked for, so that no other process is given it, for a server or for
    a connection of its own, before that server listens or while it is started anew. A server may listen all the same,
    since servers bind with SO_REUSEADDR.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _held.append(held)
    if len(_held) > 100:
        _held.popleft().close()
    port: int = held.getsockname()[1]
    return port


def port_answers(port: int) -> Callable[[], bool]:
    """Readiness: somebody accepts connections on the port."""

    def ready() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    return ready


def url_answers(url: str, authority: Path | None = None) -> Callable[[], bool]:
    """Readiness: GET of the URL gives a 2xx. `authority`: the certificate of who vouches for an https server."""
    context = ssl.create_default_context(cafile=authority) if authority else None

    def ready() -> bool:
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(url, timeout=2, context=context) as response,
        ):
            return bool(200 <= response.status < 300)
        return False

    return ready


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment for a child: proxies out, output not held back, bytecode kept.

    Where the machine forbids bytecode, each gateway would compile itself anew: a third of its start.
    """
    # The names in one step: pytest removes and sets its own variable between tests, while threads start processes here.
    env = {key: os.environ.get(key, "") for key in list(os.environ) if not key.lower().endswith("_proxy")}
    env.pop("PYTEST_CURRENT_TEST", None)
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env["PYTHONUNBUFFERED"] = "1"
    env.update(authorities())
    env.update(extra or {})
    return env


@functools.cache
def authorities() -> dict[str, str]:
    """Which authorities a child trusts: one of the machine's instead of all, which each client of HTTP reads for 75 ms.

    None is needed; tests that speak TLS put another in its place.
    """
    found = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not found:
        return {}
    file = place() / "authority.pem"
    with tempfile.NamedTemporaryFile("w", dir=place(), delete=False) as scratch:  # of this thread alone
        scratch.write(ssl.DER_cert_to_PEM_cert(found[0]))
    os.replace(scratch.name, file)
    return {"SSL_CERT_FILE": str(file), "SSL_CERT_DIR": str(place() / "none")}


def is_peer(argv: Sequence[str]) -> bool:
    """Whether that is a Python program of `PEERS`, run by whichever interpreter."""
    words = [word for word in argv[1:3] if word != "-P"]
    return bool(words) and words[0].endswith(".py") and Path(words[0]).is_relative_to(PEERS)


def launch(
    argv: Sequence[str],
    stdin: IO[Any],
    stdout: IO[Any],
    stderr: IO[Any],
    *,
    env: Mapping[str, str],
    cwd: Path,
    fresh: bool = False,
) -> subprocess.Popen[bytes] | Forked:
    """Starts it in a session of its own; unless `fresh`, a gateway (`PROGRAM`) and a program of `PEERS` are forked off
    a process that has imported what they need."""
    gateway = list(argv[: len(PROGRAM)]) == PROGRAM
    if not fresh and (gateway or is_peer(argv)):
        words, python = (argv[len(PROGRAM) :], "") if gateway else (argv[1:], argv[0])
        files = (stdin.fileno(), stdout.fileno(), stderr.fileno())
        return fork(words, files, env=env, cwd=cwd, python=python)
    return subprocess.Popen(
        list(argv), stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True
    )


class Process:
    """A running child in a process group of its own, its output in temporary files. Made by `start`."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cwd: Path | None,
        port: int | None,
        fresh: bool = False,
    ) -> None:
        self.argv = list(argv)
        self.port = port
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._err = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        with open(os.devnull, "rb") as nothing:
            self._popen = launch(
                self.argv, nothing, self._out, self._err, env=environment(env), cwd=cwd or ROOT, fresh=fresh
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, for a process that was given a port."""
        assert self.port is not None, "this process has no port"
        return f"http://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def stdout(self) -> str:
        """All it has printed so far."""
        return self._read(self._out)

    def stderr(self) -> str:
        """All it has complained of so far."""
        return self._read(self._err)

    @staticmethod
    def _read(file: object) -> str:
        # pread, since the child shares the file's position with us and writes at it
        number = file.fileno()  # type: ignore[attr-defined]
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")

    def describe(self) -> str:
        """What to show a person when something about this process went wrong."""
        state = "running" if self.alive else f"exit code {self._popen.returncode}"
        shown = [f"$ {shlex.join(self.argv)}   [pid {self.pid}, {state}]"]
        for name, text in (("stdout", self.stdout()), ("stderr", self.stderr())):
            if text.strip():
                shown.append(f"--- {name}\n{text[-6000:].rstrip()}")
        return "\n".join(shown)

    def wait_until(self, ready: Callable[[], bool], what: str = "ready", within: float = READY_WITHIN) -> None:
        """Returns when `ready()` is true; ProcessFailed if the process ends first or time runs out."""
        deadline = time.monotonic() + within
        while not ready():
            if not self.alive:
                raise ProcessFailed(f"ended before it was {what}\n{self.describe()}")
            if time.monotonic() > deadline:
                raise ProcessFailed(f"not {what} within {within:g} s\n{self.describe()}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout=0.02)

    def wait(self, within: float) -> int:
        """Its exit code; ProcessFailed if it has not ended in time."""
        try:
            return self._popen.wait(timeout=within)
        except subprocess.TimeoutExpired:
            raise ProcessFailed(f"did not end within {within:g} s\n{self.describe()}") from None

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process alone; nothing if it is gone."""
        if self.alive:
            self._popen.send_signal(number)

    def kill9(self) -> None:
        """SIGKILL to the process itself, as a crash would end it: no shutdown, children left to notice."""
        self.signal(signal.SIGKILL)
        self._popen.wait(timeout=60)

    def terminate(self, grace: float = 5.0) -> int:
        """SIGTERM to the process, then SIGKILL to what is left of its group after `grace` seconds."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout=grace)
        # The group's id stays reserved while any member lives, so this can hit nobody else's process. A member that
        # was killed is gone a moment later; one that nobody reaps stays listed, so the wait for it is short.
        deadline = time.monotonic() + 1
        with contextlib.suppress(ProcessLookupError, PermissionError):
            while time.monotonic() < deadline:
                os.killpg(self.pid, signal.SIGKILL)
                time.sleep(0.005)
                self._popen.poll()
        return self._popen.wait(timeout=60)

    def close(self, grace: float = 5.0) -> None:
        """Ends it and gives back its files; what it printed can't be read any more."""
        self.terminate(grace)
        self._out.close()
        self._err.close()


@contextlib.contextmanager
def start(
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
    *,
    cwd: Path | None = None,
    port: int | None = None,
    ready: Callable[[], bool] | None = None,
    within: float = READY_WITHIN,
    grace: float = 5.0,
    fresh: bool = False,
) -> Iterator[Process]:
    """Runs `argv` for the length of the block; `fresh` as `launch` has it.

    `port` is only remembered (for `.url`) and, unless `ready` says otherwise, awaited. With neither, the process
    is given at once. Where the block fails, the process's output goes to stderr, which pytest then shows.
    """
    process = Process(argv, env=env, cwd=cwd, port=port, fresh=fresh)
    try:
        awaited = ready or (port_answers(port) if port is not None else None)
        if awaited:
            process.wait_until(awaited, within=within)
        yield process
    except ProcessFailed:
        raise
    except BaseException:
        print(process.describe(), file=sys.stderr)
        raise
    finally:
        process.close(grace)


class Gateway:
    """The gateway as its users run it: `python -m gateway serve routes.yaml --port N` in a process of its own.

    With `fresh` it is that to the letter; else it is forked off one that has imported all it needs, and is the same
    from there on.

    `routes` is the text of routes.yaml; it is written to `directory`, where the default store (named relative to
    that file) then lies too, so that `restart` finds what the first process left. Use as a context manager.
    `authority`: with `args` that have it serve TLS, the certificate of who vouches for it.
    """

    def __init__(
        self,
        routes: str,
        directory: Path,
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        fresh: bool = False,
        authority: Path | None = None,
    ) -> None:
        self.file = directory / "routes.yaml"
        self.file.write_text(routes, encoding="utf-8")
        self.port = free_port()
        self.url = f"http{'s' if authority else ''}://127.0.0.1:{self.port}"
        self._authority = authority
        self._args = list(args)
        self._env = dict(env or {})
        self._fresh = fresh
        self._stack = contextlib.ExitStack()
        self.process: Process = None  # type: ignore[assignment]  # set by __enter__, and by every restart

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _start(self) -> None:
        argv = [*PROGRAM, "serve", str(self.file), "--host", "127.0.0.1"]
        argv += ["--port", str(self.port), *self._args]
        ready = url_answers(f"{self.url}/readyz", self._authority)
        running = start(argv, self._env, port=self.port, ready=ready, grace=60, fresh=self._fresh)
        self.process = self._stack.enter_context(running)

    def rewrite(self, routes: str) -> None:
        """Puts new text into routes.yaml in one step, as an editor would; the process is not told."""
        scratch = self.file.with_suffix(".new")
        scratch.write_text(routes, encoding="utf-8")
        scratch.replace(self.file)

    def kill9(self) -> None:
        """Ends the gateway as a crash would; the store stays as it was at that moment."""
        self.process.kill9()

    def restart(self) -> None:
        """A new process on the same port, file and store; ends the old one first if it still runs."""
        self._stack.close()
        self._start()
