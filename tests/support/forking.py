"""Gateways without the start: each is forked off a process that has imported all of one, and then runs its `main`.

Importing is nearly all that a short run of the program does, and most of what a gateway's start takes. What comes of a
fork is a process like any other, with its own session, environment, files and exit code, but not everything is as in
`python -m gateway`: its command line and environment are, in /proc, those of the process that it came of.

`python -m tests.support.forking FD` is that process. On the socket FD it takes one JSON object a packet with four files
(standard input, output, error, and a socket that is told the process id and, in the end, the exit code, a line each),
and it ends when nobody has the other end any more.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 1 << 20
"""Bytes of a packet; an environment has a few thousand."""
_first = threading.Lock()


class Forked:
    """A gateway that was forked off, by the methods of `subprocess.Popen` that are needed. Made by `fork`."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        self._lines = b""
        self.returncode: int | None = None
        self._hear(None, lines=1)
        if b"\n" not in self._lines:
            raise RuntimeError("gateways can't be forked: what is wrong with importing one was said above")
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
                raise subprocess.TimeoutExpired("gateway", timeout or 0)
            self.returncode = int(self._lines.split(b"\n")[1])
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def fork(
    arguments: Sequence[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    env: Mapping[str, str],
    cwd: Path,
) -> Forked:
    """A process of its own, in a session of its own, that does what `python -m gateway ARGUMENTS` does."""
    with _first:
        way = _way()
    ours, theirs = socket.socketpair()
    with theirs:
        job = json.dumps({"arguments": list(arguments), "env": dict(env), "cwd": str(cwd)}).encode()
        socket.send_fds(way, [job], [stdin, stdout, stderr, theirs.fileno()])
    return Forked(ours)


@functools.cache
def _way() -> socket.socket:
    """The way to this process's own source of gateways."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forking", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            start_new_session=True,
        )

    def leave() -> None:
        ours.close()
        process.wait(10)

    atexit.register(leave)
    return ours


def _become(job: dict[str, Any], files: Sequence[int]) -> None:
    """Makes this process, just forked, what was asked for, as far as the command line."""
    os.setsid()
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        os.close(file)
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    sys.argv[1:] = job["arguments"]
    os.write(files[3], b"%d\n" % os.getpid())
    os.close(files[3])


def _serve(way: socket.socket) -> bool:
    """Forks until nobody is there to ask for more (False); True in each process that was forked off."""
    ended, woken = os.pipe2(os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([way.fileno(), ended], [], [])
        if ended in ready:
            os.read(ended, 512)
            for pid in list(running):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    told = running.pop(pid)
                    with contextlib.suppress(BrokenPipeError):
                        os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
                    os.close(told)
        if way.fileno() in ready:
            job, files, _, _ = socket.recv_fds(way, LARGEST, 4)
            if not job:
                return False
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                way.close()
                for file in (ended, woken, *running.values()):
                    os.close(file)
                _become(json.loads(job), files)
                return True
            for file in files[:3]:
                os.close(file)
            running[pid] = files[3]


def main() -> None:
    for package in map(importlib.import_module, ("gateway", "adapters")):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    from gateway.cli import main as program

    gc.freeze()
    if _serve(socket.socket(fileno=int(sys.argv[1]))):
        program()


if __name__ == "__main__":
    main()
