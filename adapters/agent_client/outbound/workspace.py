"""Text files of one folder, for agents whose client offers none (`fs/read_text_file`, `fs/write_text_file`).

Nothing outside of the root is reached, whatever the path or links say. A path is walked from the root's own descriptor,
one component at a time, and no step is taken by the system on our behalf: links are read and followed here (into the
root only), `..` goes back to the descriptor it came from. A component that is exchanged between two steps is refused,
since every `open` is told to follow no link.

Blocking calls: whoever uses this on the event loop does so in a thread. Hard links are files like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import secrets
import shutil
import stat
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from adapters.agent_client.options import Workspace
from gateway.core.errors import AgentError, Conflict, InterlinguaError, Invalid, NotFound, TooLarge, Unsupported
from gateway.core.types import JsonObject
from gateway.transport.stdio import Command

MAX_LINKS = 40
_PATH = getattr(os, "O_PATH", os.O_RDONLY)  # enough to go through a folder that may not be listed
_FOLDER = _PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe is refused, not waited for
MAX_TERMINALS = 32
DEFAULT_OUTPUT = 1024 * 1024
MAX_OUTPUT = 16 * 1024 * 1024
PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM")
SHELL = "/bin/sh"
PREFIX = "gateway-"
"""Of our terminals' ids: a client may have terminals in the same session."""


class Files:
    """The files of a workspace. Paths are absolute, as the protocol wants them; every error names the path."""

    def __init__(self, options: Workspace) -> None:
        self._options = options
        root = os.path.abspath(options.root)
        self._roots = {root, os.path.realpath(root)}
        self.root = os.path.realpath(root)
        """The folder itself, without links."""

    def read(self, path: str, line: int | None = None, limit: int | None = None, *, links: bool = True) -> str:
        """The file's text from line `line` (1 is the first) on, at most `limit` lines.

        Without `links` a path with one in it is refused: who has looked up where they lead wants no other.
        Raises Invalid (outside of the root, no text file), NotFound, TooLarge.
        """
        with self._parent(path, links=links) as (folder, name), _named(path):
            file = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
            try:
                self._check(os.fstat(file), path)
                data = _read(file, self._options.max_file + 1)
            finally:
                os.close(file)
        if len(data) > self._options.max_file:
            raise TooLarge(f"{path} is larger than {self._options.max_file} bytes")
        if b"\0" in data:
            raise Invalid(f"{path} is no text file", path="/path")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise Invalid(f"{path} is no text file: it is not UTF-8", path="/path") from None
        return text if line is None and limit is None else _lines(text, max(line or 1, 1), limit)

    def write(self, path: str, content: str, *, links: bool = True) -> None:
        """Make or replace the file, and folders on the way to it that are missing. Whole or not at all.

        `links` as in `read`.
        Raises Unsupported (nothing may be written), Invalid, TooLarge.
        """
        if not self._options.write:
            raise Unsupported("files of this workspace may not be written")
        try:
            data = content.encode()
        except UnicodeEncodeError as error:
            raise Invalid(f"the content is no text: {error.reason}", path="/content") from None
        if len(data) > self._options.max_file:
            raise TooLarge(f"the content is larger than {self._options.max_file} bytes")
        with self._parent(path, make=True, links=links) as (folder, name), _named(path):
            mode = self._writable(folder, name, path)
            scratch = f".{secrets.token_hex(8)}.part"
            file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o666, dir_fd=folder)
            try:
                try:
                    _write(file, data)
                    if mode is not None:
                        os.fchmod(file, mode)
                finally:
                    os.close(file)
                os.replace(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(scratch, dir_fd=folder)
                raise

    def folder(self, path: str) -> str:
        """The folder's own path, links resolved, for a command to start in. Raises Invalid, NotFound."""
        self._steps(path)
        real = os.path.realpath(path)
        if real != self.root and not real.startswith(self.root.rstrip("/") + "/"):
            raise _outside(path)
        if not os.path.isdir(real):
            raise NotFound(f"there is no folder {path}")
        return real

    def _writable(self, folder: int, name: str, path: str) -> int | None:
        """The mode of the file that is there and may be written, None if there is none."""
        try:
            file = os.open(name, os.O_WRONLY | _FILE, dir_fd=folder)
        except FileNotFoundError:
            return None
        try:
            found = os.fstat(file)
        finally:
            os.close(file)
        if not stat.S_ISREG(found.st_mode):
            raise Invalid(f"{path} is no file", path="/path")
        return stat.S_IMODE(found.st_mode)

    def _check(self, found: os.stat_result, path: str) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise Invalid(f"{path} is no file", path="/path")
        if found.st_size > self._options.max_file:
            raise TooLarge(f"{path} is larger than {self._options.max_file} bytes")

    def _steps(self, path: str) -> list[str]:
        """The components below the root. Raises Invalid for a path that does not begin there."""
        if not path.startswith("/"):
            raise Invalid(f"{path} is not an absolute path", path="/path")
        if "\0" in path:
            raise Invalid("a path with a NUL in it", path="/path")
        for root in self._roots:
            inside = root.rstrip("/") + "/"
            if path == root or path.startswith(inside):
                return [step for step in path[len(inside) :].split("/") if step not in ("", ".")]
        raise _outside(path)

    @contextlib.contextmanager
    def _parent(self, path: str, *, make: bool = False, links: bool = True) -> Iterator[tuple[int, str]]:
        """The folder that holds the file, as a descriptor, and the file's name in it; the file itself is no link."""
        steps = deque(self._steps(path))
        with _named(path):
            stack = [os.open(self.root, _FOLDER)]
        try:
            with _named(path):
                name = self._walk(stack, steps, path, make, MAX_LINKS if links else 0)
            yield stack[-1], name
        finally:
            for folder in stack:
                os.close(folder)

    def _walk(self, stack: list[int], steps: deque[str], path: str, make: bool, most: int) -> str:
        """Go to the last component's folder, which `stack` then ends with. Returns the last component."""
        links = 0
        while steps:
            step = steps.popleft()
            if step == "..":
                if len(stack) == 1:
                    raise _outside(path)
                os.close(stack.pop())
                continue
            target = _link(step, stack[-1])
            if target is None:
                if not steps:
                    return step
                stack.append(_enter(step, stack[-1], make))
                continue
            links += 1
            if links > most:
                raise Invalid(f"{path}: {'too many links' if most else 'a link that was none'}", path="/path")
            if target.startswith("/"):
                further = self._steps_of_link(target, path)
                while len(stack) > 1:
                    os.close(stack.pop())
            else:
                further = [part for part in target.split("/") if part not in ("", ".")]
            steps.extendleft(reversed(further))
        raise Invalid(f"{path} is a folder", path="/path")

    def _steps_of_link(self, target: str, path: str) -> list[str]:
        try:
            return self._steps(target)
        except Invalid:
            raise _outside(path) from None


def _outside(path: str) -> Invalid:
    return Invalid(f"{path} is outside of the workspace", path="/path")


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Convert the system's errors about a path to errors of the tree."""
    try:
        yield
    except InterlinguaError:
        raise
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise Invalid(f"{path}: a component is no folder, or a link that changes", path="/path") from None
        raise Invalid(f"{path}: {error.strerror or error}", path="/path") from None


def _link(step: str, folder: int) -> str | None:
    try:
        return os.readlink(step, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _enter(step: str, folder: int, make: bool) -> int:
    try:
        return os.open(step, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(step, dir_fd=folder)
    return os.open(step, _FOLDER, dir_fd=folder)


def _read(file: int, limit: int) -> bytes:
    chunks = []
    while limit > 0 and (chunk := os.read(file, min(limit, 1 << 20))):
        chunks.append(chunk)
        limit -= len(chunk)
    return b"".join(chunks)


def _write(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _lines(text: str, first: int, limit: int | None) -> str:
    end = None if limit is None else first - 1 + max(limit, 0)
    return "".join(islice(io.StringIO(text, newline="\n"), first - 1, end))


# --- commands that an agent runs in a workspace ---------------------------------------------------------------------
# Each is ended with the session. It gets none of the gateway's environment but what every program needs: the agent may
# be someone else's.


class Terminals:
    """The terminals of one session."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._open: dict[str, Command] = {}
        self._made = 0
        self._starting = 0
        self._closed = False

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
            kept = min(DEFAULT_OUTPUT if limit is None else limit, MAX_OUTPUT)
            made = await Command.run(line, name=f"command {command[:100]}", cwd=folder, env=variables, limit=kept)
        except AgentError as error:
            raise Invalid(str(error), path="/command", detail=error.detail) from error
        finally:
            self._starting -= 1
        if self._closed:
            await made.end()
            raise Conflict("the session has ended")
        self._made += 1
        name = f"{PREFIX}{self._made}"
        self._open[name] = made
        return name

    def find(self, name: str) -> Command:
        """Raises NotFound for a terminal that never was or was released."""
        try:
            return self._open[name]
        except KeyError:
            raise NotFound(f"there is no terminal {name}") from None

    async def release(self, name: str) -> None:
        """End the command and forget the terminal. Raises NotFound."""
        command = self.find(name)
        del self._open[name]
        await command.end()

    async def aclose(self) -> None:
        self._closed = True
        ending, self._open = list(self._open.values()), {}
        await asyncio.gather(*(command.end() for command in ending))


def output(command: Command) -> JsonObject:
    """The answer to `terminal/output`."""
    printed, exit = command.printed, command.exit
    said: JsonObject = {"output": printed.text, "truncated": printed.truncated}
    return said if exit is None else {**said, "exitStatus": {"exitCode": exit.code, "signal": exit.signal_name}}


async def exit_status(command: Command) -> JsonObject:
    """The answer to `terminal/wait_for_exit`, once the command has ended."""
    exit = await command.wait()
    return {"exitCode": exit.code, "signal": exit.signal_name}


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith("LC_")}
