"""Commands that an agent runs in a workspace (`terminal/*`), for agents whose client offers no terminals.

Each runs under a warden of its own (see `gateway.transport.stdio`), so that nothing of it is left when the session ends
or the gateway is killed. Its standard input is empty; what it prints on both outputs is kept up to a limit, the newest
of it. It gets none of the gateway's environment but what every program needs: the agent may be someone else's.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import shutil
import signal
from collections.abc import Mapping, Sequence

from adapters.agent_client.outbound.workspace import Files
from gateway.core.errors import AgentError, Conflict, Invalid, NotFound
from gateway.core.types import JsonObject
from gateway.transport.stdio import Grace
from gateway.transport.stdio.process import Exit, Process, launch
from gateway.transport.stdio.reader import OutputReader

MAX_TERMINALS = 32
DEFAULT_OUTPUT = 1024 * 1024
MAX_OUTPUT = 16 * 1024 * 1024
PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM")
GRACE = Grace(eof=0.0, term=1.0)
SHELL = "/bin/sh"
PREFIX = "gateway-"
"""Of our terminals' ids: a client may have terminals in the same session."""


class Terminals:
    """The terminals of one session."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._open: dict[str, WorkspaceTerminal] = {}
        self._made = 0
        self._starting = 0
        self._closed = False

    def __contains__(self, terminal: str) -> bool:
        return terminal in self._open

    async def create(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        limit: int | None = None,
    ) -> str:
        """Start a command and return the terminal's id. `cwd` is absolute, the root if left out; `limit` in bytes.

        A command without arguments that is no program is a line for the shell: agents send both. Raises Invalid (what
        cannot be started, too), NotFound, Conflict for one terminal too many.
        """
        if len(self._open) + self._starting >= MAX_TERMINALS or self._closed:
            raise Conflict(f"no more than {MAX_TERMINALS} terminals at a time: release one first")
        folder = self._files.folder(cwd or self._files.root)
        variables = {**_environment(), **(env or {}), "PWD": folder}
        line = [command, *args]
        if not args and shutil.which(command, path=variables.get("PATH")) is None:
            line = [SHELL, "-c", command]
        self._starting += 1
        try:
            process = await launch(line, name=f"command {command[:100]}", cwd=folder, env=variables, grace=GRACE)
        except AgentError as error:
            raise Invalid(str(error), path="/command", detail=error.detail) from error
        finally:
            self._starting -= 1
        terminal = WorkspaceTerminal(process, min(DEFAULT_OUTPUT if limit is None else limit, MAX_OUTPUT))
        if self._closed:
            await terminal.end()
            raise Conflict("the session has ended")
        self._made += 1
        name = f"{PREFIX}{self._made}"
        self._open[name] = terminal
        return name

    def find(self, name: str) -> WorkspaceTerminal:
        """Raises NotFound for a terminal that never was or was released."""
        try:
            return self._open[name]
        except KeyError:
            raise NotFound(f"there is no terminal {name}") from None

    async def release(self, name: str) -> None:
        """End the command and forget the terminal. Raises NotFound."""
        terminal = self.find(name)
        del self._open[name]
        await terminal.end()

    async def aclose(self) -> None:
        """End them all; bounded."""
        self._closed = True
        ending, self._open = list(self._open.values()), {}
        await asyncio.gather(*(terminal.end() for terminal in ending))


class WorkspaceTerminal:
    """One command and what it has printed. `limit`: bytes that are kept."""

    def __init__(self, process: Process, limit: int) -> None:
        self._process = process
        self._kept = NewestOutput(limit)
        self._ended = asyncio.Event()
        self._readers = [_reader(fd, self._kept) for fd in (process.stdout, process.stderr)]
        os.close(process.stdin)
        process.exited.add_done_callback(lambda _: self._exited())
        process.gone.add_done_callback(lambda _: self._gone())

    def output(self) -> JsonObject:
        """The answer to `terminal/output`."""
        said = {"output": self._kept.text, "truncated": self._kept.truncated}
        return {**said, "exitStatus": _status(self._process.exited.result())} if self._ended.is_set() else said

    async def wait(self) -> JsonObject:
        """The answer to `terminal/wait_for_exit`, once the command has ended."""
        await self._ended.wait()
        return _status(self._process.exited.result())

    async def kill(self) -> None:
        """End the command and all that it started, and wait until nothing is left. Its output stays."""
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
        """Append."""
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
        """The kept output, as text."""
        return self._data.decode()


def _reader(fd: int, kept: NewestOutput) -> OutputReader:
    """One of a command's outputs, as text."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    return OutputReader(fd, lambda data: kept.add(decode(data)), lambda: kept.add(decode(b"", True)), most=MAX_OUTPUT)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith("LC_")}


def _status(exit: Exit) -> JsonObject:
    if exit.signal is None:
        return {"exitCode": exit.code, "signal": None}
    try:
        name = signal.Signals(exit.signal).name
    except ValueError:
        name = str(exit.signal)
    return {"exitCode": None, "signal": name}
