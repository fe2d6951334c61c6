"""Processes without the start: each is forked off this one, which has imported all that it needs.

Importing is nearly all that a short run of the gateway, or of a program on an SDK, does: 1 to 3 s of processor time.
What comes of a fork is a process like any other, with its own session, environment, files and exit code, but not
everything is as in one of its own: its command line and environment are, in /proc, those of this process, and at its
end the interpreter is not taken apart object by object, which takes as long as all else that a short run does.

`PYTHON -P forker.py FD PATH [gateway]` is run by `tests/support/forking.py`, in whichever environment the programs are
of, so it needs nothing but the standard library. FD listens on the socket PATH. On each connection comes one JSON
object a packet, `{"arguments": [...], "env": {...}, "cwd": "..."}`, with four files: standard input, output, error, and
a socket that is told the process id and, in the end, the exit code, a line each; whoever lets go of that socket has the
process killed. `arguments` are the gateway's, or a program (before it `-P`, if that) and its own. It ends when nobody
is connected any more.
"""

import ast
import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parents[2])
LARGEST = 1 << 20
"""Bytes of a packet; an environment has a few thousand."""

Job = tuple[list[str], Callable[[], None]]


def gateway() -> Callable[[list[str]], Job]:
    """All of the gateway is imported now; each process does what `python -m gateway ARGUMENTS` does."""
    sys.path.insert(0, ROOT)
    for package in map(importlib.import_module, ("gateway", "adapters")):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                with contextlib.suppress(Exception):  # a gateway that needs it says itself what is wrong
                    importlib.import_module(found.name)
    from gateway.cli import main as program

    _use_gateway()
    gc.collect()
    gc.freeze()

    def prepare(arguments: list[str]) -> Job:
        def run() -> None:
            sys.orig_argv[:] = [sys.executable, "-m", "gateway", *arguments]  # by which a supervisor starts workers
            program()

        return [sys.argv[0], *arguments], run

    return prepare


def _use_gateway() -> None:
    """What a gateway makes and imports only when it is used first, each process would make anew: half of its start."""
    from pydantic import BaseModel

    from gateway.app import App
    from gateway.config import loads

    models: list[type[BaseModel]] = [BaseModel]
    for model in models:
        models += model.__subclasses__()
        with contextlib.suppress(Exception):  # one that is only a base, whose own names are not complete
            model.model_rebuild()
    importlib.import_module("anyio._backends._asyncio")
    with contextlib.suppress(Exception):  # a gateway that needs it says itself what is wrong
        App(loads("store: {url: 'sqlite://'}", path=Path(ROOT, "routes.yaml")))


def programs() -> Callable[[list[str]], Job]:
    """What a program imports is imported when it is asked for first, so that only the first of each has to wait."""
    known: set[tuple[str, ...]] = set()

    def prepare(arguments: list[str]) -> Job:
        apart = arguments[0] == "-P"
        program = arguments[apart]
        if (key := tuple(arguments[: apart + 1])) not in known:
            known.add(key)
            sys.path.append(ROOT)  # for programs that are the gateway with something else in it
            with contextlib.suppress(OSError, SyntaxError):  # what is wrong is said by the program, or by runpy
                for name in sorted(set(_imports(Path(program), apart, set()))):
                    with contextlib.suppress(Exception):
                        importlib.import_module(name)
            sys.path.remove(ROOT)
            gc.collect()
            gc.freeze()

        def run() -> None:
            if not apart:
                sys.path.insert(0, str(Path(program).resolve().parent))
            runpy.run_path(program, run_name="__main__")

        return arguments[apart:], run

    return prepare


def _imports(program: Path, apart: bool, read: set[Path]) -> Iterator[str]:
    """The modules that a program and those beside it import, but for those beside it, whose state is each one's own."""
    read.add(program)
    for node in ast.walk(ast.parse(program.read_bytes())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            beside = program.with_name(f"{name.partition('.')[0]}.py")
            if apart or not beside.exists():
                yield name
            elif beside not in read:
                yield from _imports(beside, apart, read)


def serve(listening: socket.socket, path: str, prepare: Callable[[list[str]], Job]) -> Callable[[], None] | None:
    """Forks until nobody is there to ask for more (None); in each process that was forked off, what it is to do."""
    ended, woken = os.pipe2(os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    listening.setblocking(False)
    ways: dict[int, socket.socket] = {}
    running: dict[int, int] = {}  # by the file that is told of it, the process
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    poll.register(ended, select.POLLIN)
    patience: int | None = 30_000  # until the first is there
    leaving = False
    while True:
        ready = [file for file, _ in poll.poll(patience)]
        for file in ready:
            if file in running:  # nobody wants to know any more
                for kill in (os.kill, os.killpg):  # it may have no group of its own yet
                    with contextlib.suppress(ProcessLookupError):
                        kill(running[file], signal.SIGKILL)
                poll.unregister(file)
            elif file in ways:
                job, files, _, _ = socket.recv_fds(ways[file], LARGEST, 4)
                if not job:
                    poll.unregister(file)
                    ways.pop(file).close()
                    continue
                task = json.loads(job)
                argv, run = prepare(task["arguments"])
                if not (pid := os.fork()):
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for other in (listening, *ways.values()):
                        other.close()
                    for number in (ended, woken, *running):
                        os.close(number)
                    _become(task, files)
                    sys.argv[:] = argv
                    return run
                for number in files[:3]:
                    os.close(number)
                running[files[3]] = pid
                poll.register(files[3], select.POLLIN)
        _bury(ended, running, poll)
        with contextlib.suppress(BlockingIOError):
            way, _ = listening.accept()
            ways[way.fileno()] = way
            poll.register(way, select.POLLIN)
        patience = None if ways or running else 0
        if patience == 0 and leaving:
            return None
        if patience == 0:  # who was quicker than this is served yet
            leaving = True
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _bury(ended: int, running: dict[int, int], poll: select.poll) -> None:
    """Tells of those that have ended."""
    with contextlib.suppress(BlockingIOError):
        os.read(ended, 512)
        for told, pid in list(running.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                del running[told]
                with contextlib.suppress(KeyError):
                    poll.unregister(told)
                with contextlib.suppress(BrokenPipeError):
                    os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
                os.close(told)


def _become(task: dict[str, Any], files: Sequence[int]) -> None:
    """Makes this process, just forked, what was asked for, as far as its program."""
    os.setsid()
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        os.close(file)
    os.chdir(task["cwd"])
    os.environ.clear()
    os.environ.update(task["env"])
    given = io.BufferedReader(io.FileIO(0, closefd=False))
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(given, sys.stdin.encoding)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _unheld(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _unheld(2, errors="backslashreplace")  # type: ignore[misc]
    os.write(files[3], b"%d\n" % os.getpid())
    os.close(files[3])


def _unheld(number: int, errors: str = "strict") -> io.TextIOWrapper:
    """A standard stream as Python itself makes it where nothing is to be held back."""
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(raw, sys.stdout.encoding, errors, write_through=True)


def _end_after(run: Callable[[], None]) -> None:
    """Does it and ends this process; what is left then is the kernel's to take back, as in `multiprocessing`."""
    code: int | str | None = None
    try:
        run()
    except SystemExit as end:
        code = end.code
    if isinstance(code, str):
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
        sys.stdout.flush()
    os._exit((code or 0) & 0xFF)


def main() -> None:
    number, path, *kind = sys.argv[1:]
    run = serve(socket.socket(fileno=int(number)), path, gateway() if kind else programs())
    if run:
        _end_after(run)


if __name__ == "__main__":
    main()
