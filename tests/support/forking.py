"""Gateways and programs on SDKs without the start: forked off processes that have imported what they need.

Those are `forker.py`'s: one for gateways and one for each environment, started on first use, shared by all workers of
one run of the tests, gone with the last of them. `fork` is for processes that a test starts, `standing_in` for those
that what is tested starts by a command.
"""

import atexit
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.forker import LARGEST

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
PLACE = "INTERLINGUA_TESTS_FORK_IN"
"""Set to the folder of the sockets, which all workers share; see `place`."""
_first = threading.RLock()


class Forked:
    """A process that was forked off, by the methods of `subprocess.Popen` that are needed. Made by `fork`.

    It is killed when nobody holds this any more.
    """

    stdin = stdout = None

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        self._lines = b""
        self.returncode: int | None = None
        self._hear(None, lines=1)
        if b"\n" not in self._lines:
            raise RuntimeError("nothing can be forked: what is wrong with importing it was said above")
        self.pid = int(self._lines.split(b"\n")[0])

    def _hear(self, within: float | None, *, lines: int) -> None:
        """Reads until so many lines came, or no more can come, or time is over."""
        self._told.settimeout(within)
        with contextlib.suppress(TimeoutError, BlockingIOError):
            while self._lines.count(b"\n") < lines and (more := self._told.recv(64)):
                self._lines += more

    def poll(self) -> int | None:
        """Its exit code, negative for a signal's; None while it runs."""
        if self.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The same once it has ended; subprocess.TimeoutExpired if that takes longer."""
        if self.returncode is None:
            self._hear(timeout, lines=2)
            if self._lines.count(b"\n") < 2:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0)
            self.returncode = int(self._lines.split(b"\n")[1])
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # It may have ended, and been waited for by its forker, before that is told here.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(
    arguments: Sequence[str], files: tuple[int, int, int], *, env: Mapping[str, str], cwd: Path, python: str = ""
) -> Forked:
    """A process of its own, in a session of its own, that does what `python -m gateway ARGUMENTS` does.

    With `python` it does what that interpreter does with the arguments: `-P`, if that, a program and its own. `files`
    are its standard input, output and error.
    """
    way = _way(python)
    ours, theirs = socket.socketpair()
    with theirs:
        job = json.dumps({"arguments": list(arguments), "env": dict(env), "cwd": str(cwd)}).encode()
        socket.send_fds(way, [job], [*files, theirs.fileno()])
    return Forked(ours)


def standing_in(command: Sequence[str]) -> list[str]:
    """A command that does what `[python, program, ...]` or `[python, "-m", "gateway", ...]` does, but starts at once.

    It works as long as this process lives; `forked.py` says what it can't show.
    """
    python, *words = command
    if words[:2] == ["-m", "gateway"]:
        python, words = "", words[2:]
    _way(python)
    return [sys.executable, "-I", "-S", str(HERE / "forked.py"), str(_socket(python)), *words]


def place() -> Path:
    """The folder of the sockets; the first process of the tests makes it, sets PLACE and, at its end, removes it."""
    if PLACE not in os.environ:
        os.environ[PLACE] = tempfile.mkdtemp(prefix="forks-")
        atexit.register(shutil.rmtree, os.environ[PLACE], ignore_errors=True)
    return Path(os.environ[PLACE])


def _socket(python: str) -> Path:
    return place() / hashlib.sha256(python.encode()).hexdigest()[:12]


@functools.cache
def _lasting(python: str) -> socket.socket:
    """The way to the source of those processes, which is there as long as anybody has a way to it."""
    path = _socket(python)
    way = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    way.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
    with path.with_suffix(".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        try:
            way.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            path.unlink(missing_ok=True)
            _start(python, path)
            way.connect(str(path))
    return way


def _way(python: str) -> socket.socket:
    with _first:
        return _lasting(python)


def _start(python: str, path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen(64)
        process = subprocess.Popen(
            [
                python or sys.executable,
                "-P",
                str(HERE / "forker.py"),
                str(listening.fileno()),
                str(path),
                *([] if python else ["gateway"]),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            pass_fds=[listening.fileno()],
            cwd=ROOT,
            start_new_session=True,
        )

    def leave() -> None:
        _lasting(python).close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)  # unless others still need it
        process.returncode = process.returncode or 0

    atexit.register(leave)
