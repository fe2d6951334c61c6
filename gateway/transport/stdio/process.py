"""One agent's processes: starts the warden, reads its reports, ends both. `warden.py` says which process does what."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import errno
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path

import msgspec

from gateway.core.errors import AgentGone, AgentTimeout, InterlinguaError, Unavailable
from gateway.transport.stdio.reader import OutputReader

WARDEN = Path(__file__).with_name("warden.py")
START_TIMEOUT = 20.0
AHEAD = 256 * 1024
"""The size of the pipe from the agent, if the system allows it: the agent goes on while we handle output."""
AT_ONCE = 16 * 1024 * 1024
"""Bytes of what a command has printed that are read when it has ended, at most."""
KILL_TIMEOUT = 7.0
"""The time that the warden may need beyond both graces, mostly for killing."""


class Exit(msgspec.Struct, frozen=True):
    """The end of a main process: its code, or the signal that ended it, or neither if it is unknown."""

    code: int | None = None
    signal: int | None = None

    @property
    def signal_name(self) -> str | None:
        """The signal's name, else its number; None without one."""
        try:
            return None if self.signal is None else signal.Signals(self.signal).name
        except ValueError:
            return str(self.signal)

    def __str__(self) -> str:
        if (name := self.signal_name) is not None:
            return f"was ended by {'signal ' if name.isdigit() else ''}{name}"
        return "was lost" if self.code is None else f"exited with {self.code}"


class Grace(msgspec.Struct, frozen=True):
    """Seconds that an agent has to exit: after its input has ended, then after SIGTERM. SIGKILL comes next."""

    eof: float = 1.0
    term: float = 2.0

    @classmethod
    def within(cls, seconds: float) -> Grace:
        """So many seconds in all."""
        eof = min(1.0, seconds / 3)
        return cls(eof=eof, term=seconds - eof)


class Process:
    """A started warden and its agent. Made by `launch`; `end` it and wait for `gone`.

    stdin, stdout, stderr: our ends of the agent's pipes; whoever takes them over closes them.
    pid: the agent's, once `launch` has returned.
    exited: done when the agent's main process has ended, or nothing will be known of it.
    gone: done when nothing of it is left and the warden is reaped.
    """

    def __init__(self, command: Sequence[str], cwd: str | None, env: Mapping[str, str], grace: Grace) -> None:
        self._loop = asyncio.get_running_loop()
        self.started: asyncio.Future[OSError | None] = self._loop.create_future()
        self.exited: asyncio.Future[Exit] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.pid = 0
        self._report = b""
        self._grace = grace
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            self._lifeline, lifeline = socket.socketpair()
            ours.callback(self._lifeline.close)
            theirs.callback(lifeline.close)
            (stdin, self.stdin), (self.stdout, stdout), (self.stderr, stderr) = (
                _pipe(ours, theirs, keep) for keep in (1, 0, 0)
            )
            _widen(self.stdout)
            numbers = (str(lifeline.fileno()), str(grace.eof), str(grace.term))
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", _program(WARDEN), *numbers, *command],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=[lifeline.fileno()],
                cwd=cwd,
                env=env,
                start_new_session=True,  # a Ctrl-C in the gateway's terminal is the gateway's
            )
            ours.pop_all()
        self._lifeline.setblocking(False)
        self._loop.add_reader(self._lifeline, self._listen)

    def end(self) -> None:
        """Have the warden end the agent and its tree. Close the agent's stdin first. May be called twice."""
        with contextlib.suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_WR)

    async def wait_gone(self) -> None:
        """Wait, after `end`, until all processes are gone; kill them if the warden does not answer. Bounded."""
        patience = self._grace.eof + self._grace.term + KILL_TIMEOUT
        await asyncio.wait([self.gone], timeout=patience)
        if not self.gone.done():
            self._kill()
            await asyncio.wait([self.gone], timeout=KILL_TIMEOUT)

    def _kill(self) -> None:
        """Kill the agent's group and the warden itself."""
        if self.pid:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        self._popen.kill()

    def _listen(self) -> None:
        try:
            data = self._lifeline.recv(512)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._lifeline)
            self._lifeline.close()
            self._reap(0)
            return
        *lines, self._report = (self._report + data).split(b"\n")
        for line in lines:
            word, _, number = line.decode().partition(" ")
            self._heard(word, int(number))

    def _heard(self, word: str, number: int) -> None:
        if word == "started":
            self.pid = number
            self.started.set_result(None)
        elif word == "failed":
            self.started.set_result(OSError(number, os.strerror(number)))
        elif word == "exited":
            code = os.waitstatus_to_exitcode(number)
            self.exited.set_result(Exit(code=code) if code >= 0 else Exit(signal=-code))

    def _reap(self, tries: int) -> None:
        """Called when the warden has closed the lifeline: it exits in a moment."""
        if self._popen.poll() is None:
            if tries == 100:
                self._popen.kill()
            self._loop.call_later(0.001 if tries < 10 else 0.02, self._reap, tries + 1)
            return
        if not self.exited.done():
            if self.pid:  # the warden was killed and nobody looks after the agent
                self._kill()
            self.exited.set_result(Exit())
        if not self.started.done():
            self.started.set_result(OSError(errno.ECHILD, f"its warden ended with {self._popen.returncode}"))
        if not self.gone.done():
            self.gone.set_result(None)


async def launch(
    command: Sequence[str], *, name: str, cwd: str | os.PathLike[str] | None, env: Mapping[str, str], grace: Grace
) -> Process:
    """Start `command` and return when it runs. Raises AgentGone, AgentTimeout, Unavailable, and leaves nothing then.

    Cancelled, it ends what it has started and waits until that has gone; cancelled again, that goes on without it.
    """
    folder = None if cwd is None else os.fspath(cwd)
    if not command:
        raise AgentGone(f"{name} has no command")
    try:
        process = Process(command, folder, env, grace)
    except (OSError, ValueError) as error:
        raise _refused(name, folder, error) from error
    try:
        async with asyncio.timeout(START_TIMEOUT):
            failed = await asyncio.shield(process.started)
        if failed is not None:
            await process.wait_gone()
            said = _said(process.stderr)
    except BaseException as error:
        _abandon(process)
        await asyncio.shield(process.wait_gone())
        if isinstance(error, TimeoutError):
            raise AgentTimeout(f"{name} could not be started within {START_TIMEOUT:g} s") from None
        raise
    if failed is None:
        return process
    _abandon(process)
    reason = _reason(command[0], folder, env, failed)
    raise AgentGone(f"{name} cannot be started: {reason}", detail=f"{failed!r} {said}") from failed


def _program(source: Path) -> str:
    """Return the warden's cached bytecode if it is of this very source: compiling it takes a third of the start."""
    import_module("gateway.transport.stdio.warden")
    cached = Path(cache_from_source(source))
    try:
        about = source.stat()
        with cached.open("rb") as file:
            head = file.read(16)
    except OSError:
        return str(source)
    numbers = (0, int(about.st_mtime) & 0xFFFFFFFF, about.st_size & 0xFFFFFFFF)
    return str(cached if head == MAGIC_NUMBER + struct.pack("<III", *numbers) else source)


def _abandon(process: Process) -> None:
    for number in (process.stdin, process.stdout, process.stderr):
        os.close(number)
    process.end()


def _refused(name: str, folder: str | None, error: OSError | ValueError) -> InterlinguaError:
    """Map the error of a warden that could not be started."""
    if isinstance(error, OSError) and folder is not None and error.filename == folder:
        return AgentGone(f"{name} cannot be started: its working directory: {error.strerror}", detail=repr(error))
    if isinstance(error, ValueError):  # a NUL in an argument, "=" in the name of a variable
        return AgentGone(f"{name} cannot be started: {error}")
    return Unavailable(f"{name} cannot be started now: {error.strerror}", detail=repr(error))


def _reason(program: str, folder: str | None, env: Mapping[str, str], error: OSError) -> str:
    if error.errno == errno.ENOENT:
        place = os.path.join(folder or "", program) if os.path.dirname(program) else program
        found = shutil.which(place, path=env.get("PATH"))
        return f"{program}: its interpreter was not found" if found else f"{program}: command not found"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{program}: not executable"
    if error.errno == errno.ENOEXEC:
        return f"{program}: not a program (a script needs a #! line)"
    return f"{program}: {error.strerror}"


def _said(stderr: int) -> str:
    os.set_blocking(stderr, False)
    try:
        return os.read(stderr, 4096).decode("utf-8", "replace")
    except OSError:
        return ""


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack, keep: int) -> tuple[int, int]:
    """Make a pipe, of which we keep end number `keep`."""
    ends = os.pipe()
    ours.callback(os.close, ends[keep])
    theirs.callback(os.close, ends[1 - keep])
    return ends


def _widen(pipe: int) -> None:
    """Make a pipe hold more. Only Linux can, and only up to a limit per user."""
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, AHEAD)


# --- a command that is run for what it prints -----------------------------------------------------------------------


class Command:
    """A command and what it has printed on both outputs: the newest of it. Made by `run`.

    Its standard input is empty. It has a warden of its own, so that nothing of it is left once it was ended, or when
    the gateway is killed.
    """

    def __init__(self, process: Process, limit: int) -> None:
        self.printed = NewestOutput(limit)
        self._process = process
        self._ended = asyncio.Event()
        self._readers = [_reader(fd, self.printed) for fd in (process.stdout, process.stderr)]
        os.close(process.stdin)
        process.exited.add_done_callback(lambda _: self._exited())
        process.gone.add_done_callback(lambda _: self._gone())

    @classmethod
    async def run(cls, line: Sequence[str], *, name: str, cwd: str, env: Mapping[str, str], limit: int) -> Command:
        """Start it and return when it runs. `limit`: bytes that are kept. Raises as `launch`."""
        return cls(await launch(line, name=name, cwd=cwd, env=env, grace=Grace(eof=0.0, term=1.0)), limit)

    @property
    def exit(self) -> Exit | None:
        """How it has ended; None while it runs."""
        return self._process.exited.result() if self._ended.is_set() else None

    async def wait(self) -> Exit:
        """How it ends, once it has."""
        await self._ended.wait()
        return self._process.exited.result()

    async def kill(self) -> None:
        """End it and all that it started, and wait until nothing is left. What it has printed stays."""
        self._process.end()
        await self._process.wait_gone()

    async def end(self) -> None:
        """The same, for good."""
        await self.kill()
        self._gone()

    def _exited(self) -> None:
        for reader in self._readers:
            reader.drain()
        self._ended.set()

    def _gone(self) -> None:
        for reader in self._readers:
            reader.finish()


class NewestOutput:
    """The newest of a text, at most `limit` bytes of UTF-8, cut at a character."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self.truncated = False

    def add(self, text: str) -> None:
        self._data += text.encode()
        over = len(self._data) - self._limit
        if over <= 0:
            return
        self.truncated = True
        while over < len(self._data) and self._data[over] & 0xC0 == 0x80:
            over += 1
        del self._data[:over]

    @property
    def text(self) -> str:
        return self._data.decode()


def _reader(fd: int, kept: NewestOutput) -> OutputReader:
    """One of a command's outputs, as text."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    return OutputReader(fd, lambda data: kept.add(decode(data)), lambda: kept.add(decode(b"", True)), most=AT_ONCE)
