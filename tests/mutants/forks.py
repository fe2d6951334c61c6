"""The pytest plugin that tries mutants. It collects a room's tests once, finds out which lines each of them runs, and
forks a process for each mutant that runs the tests of the mutant's lines, the fastest first, until one fails.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.abc
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final

import pytest
from _pytest import main

from tests.mutants.mutate import Mutant

SLACK: Final = 8.0
"""Seconds that a test may take besides ten times what it took without a change. One that takes longer has failed."""
IDLE: Final = 2.0
"""A test that takes so many seconds, and three times what it took without a change, has failed if it mostly waits."""
WAITS: Final = 0.5
"""The share of them that its threads ran or could run, if it mostly waits."""
RUNS: Final = 3.0
"""Seconds of a processor that a test may use besides five times what it took without a change."""
SCHEDULED: Final = Path("/proc/self/task")
"""Linux only; elsewhere a test that hangs takes as long as it may."""
FAST: Final = 0.1
"""Seconds of a test that is also tried on a change of code that runs on import, though it does not run the file."""
MEMORY: Final = "/dev/shm"
"""The temporary folders of the tests are there if possible: much of their time is spent waiting for a disk."""
FAILED: Final = 1
NOTHING: Final = (4, 5)
"""Exit codes of pytest that found no such test: a changed module may have given the tests other names."""


@dataclass
class Covered:
    """What the tests do without a change. tests: the indices of those that run a line, by file and line.
    seconds: how long each takes. killed: (file, test) for each change that a test noticed."""

    tests: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    killed: Counter[tuple[str, int]] = field(default_factory=Counter)

    def of(self, mutant: Mutant) -> list[int]:
        """The tests that run the lines of a mutant, and after them, if its code runs on import, all that run the file
        or are fast. Those that noticed most changes of the file come first, then the fastest.
        """
        near: set[int] = set().union(*(self.tests.get((mutant.file, line), ()) for line in mutant.lines))
        found = near
        if mutant.function is None:
            of_file = (tests for (file, _), tests in self.tests.items() if file == mutant.file)
            found = near.union(*of_file, (test for test, seconds in self.seconds.items() if seconds < FAST))
        return sorted(found, key=lambda n: (n not in near, -self.killed[mutant.file, n], self.seconds[n]))


class Trial:
    """The plugin. `survived` is called with each mutant that no test notices, and why. `wrong` is set if none could be
    tried."""

    def __init__(
        self, root: Path, mutants: Sequence[Mutant], workers: int, survived: Callable[[Mutant, str], None]
    ) -> None:
        self.wrong: str | None = None
        self._root = root
        self._mutants = mutants
        self._files = {str(root / each.file): each.file for each in mutants}
        self._workers = workers
        self._survived = survived

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of running the tests once, run them for each mutant."""
        if session.testsfailed:
            self.wrong = "the tests cannot be collected"
            return True
        for file in self._files.values():
            importlib.import_module(_module(file))
        with tempfile.TemporaryDirectory(prefix="mutants-", dir=MEMORY if os.path.isdir(MEMORY) else None) as place:
            covered = self._cover(session, Path(place))
            if covered is not None:
                self._try(session, covered, Path(place))
        return True

    def _cover(self, session: pytest.Session, place: Path) -> Covered | None:
        """Run all tests, in as many processes as there are workers, and see which lines each of them runs."""
        files = sorted({item.path for item in session.items})
        shares = [
            [n for n, item in enumerate(session.items) if files.index(item.path) % self._workers == k]
            for k in range(self._workers)
        ]
        jobs: list[Callable[[], int]] = []
        for k, share in enumerate(shares):

            def job(k: int = k, share: list[int] = share) -> int:
                recorder = _Recorder(self._files, {session.items[n].nodeid: n for n in share})
                session.config.pluginmanager.register(recorder)
                session.config.pluginmanager.register(_Failed(place / f"{k}.failed"))
                code = _run(session, share, place / f"tests{k}", {}, stop=False)
                (place / f"{k}.json").write_text(json.dumps([sorted(recorder.ran), recorder.seconds]))
                return code

            jobs.append(job)
        codes = dict(_forked(((n, job, 3600.0) for n, job in enumerate(jobs)), self._workers))
        if any(codes.values()):
            told = " ".join(sorted(file.read_text() for file in place.glob("*.failed")))
            self.wrong = f"the tests fail without a change: {told}"
            return None
        covered = Covered()
        for k in range(len(shares)):
            ran, seconds = json.loads((place / f"{k}.json").read_text())
            for file, line, test in ran:
                covered.tests.setdefault((file, line), set()).add(test)
            covered.seconds |= {int(test): took for test, took in seconds.items()}
        print(f"{len(session.items)} tests, {sum(covered.seconds.values()):.0f} s", flush=True)
        return covered

    def _try(self, session: pytest.Session, covered: Covered, place: Path) -> None:
        functions = _functions(self._files)

        def jobs() -> Iterator[tuple[int, Callable[[], int], float]]:
            for n, mutant in enumerate(self._mutants):
                tests = covered.of(mutant)
                if not tests:
                    self._survived(mutant, "no test runs it")
                    continue
                limits = {test: SLACK + 10 * covered.seconds[test] for test in tests}

                def job(mutant: Mutant = mutant, limits: dict[int, float] = limits, n: int = n) -> int:
                    failed = _Failed(place / f"{n}.failed")
                    items = [session.items[test] for test in limits]
                    seconds = {session.items[test].nodeid: covered.seconds[test] for test in limits}
                    plugins = [failed, _Hanging(seconds, failed)]
                    if self._changed(mutant, functions):
                        for plugin in plugins:
                            session.config.pluginmanager.register(plugin)
                        return _run(session, list(limits), place / str(n), limits)
                    return _anew(self._root, mutant, items, place / str(n), plugins)

                yield n, job, 60.0 + sum(limits.values())

        numbers = {item.nodeid: n for n, item in enumerate(session.items)}
        for done, (n, code) in enumerate(_forked(jobs(), self._workers), 1):
            shutil.rmtree(place / str(n), ignore_errors=True)
            if code == 0:
                self._survived(self._mutants[n], "survives")
            elif (told := place / f"{n}.failed").exists() and (test := numbers.get(told.read_text())) is not None:
                covered.killed[self._mutants[n].file, test] += 1
            if done % 50 == 0:
                print(f"{done} of {len(self._mutants)} tried", flush=True)

    def _changed(self, mutant: Mutant, functions: dict[tuple[str, str, int], list[FunctionType]]) -> bool:
        """Put the changed code into every function made of the original code. False if that is not possible."""
        if mutant.function is None:
            return False
        path = str(self._root / mutant.file)
        name, line = mutant.function
        code = next(_codes(compile(mutant.text, path, "exec", dont_inherit=True), name, line), None)
        found = functions.get((path, name, line))
        if code is None or not found:
            return False
        try:
            for function in found:
                function.__code__ = code
        except ValueError:  # it uses other names of an enclosing scope
            return False
        return True


class _Failed:
    """A plugin that writes the name of a test that failed into a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.note(report.nodeid)

    def note(self, test: str) -> None:
        """Write the name of one that failed."""
        self._path.write_text(test)


class _Hanging:
    """A plugin that ends the process, as a failure, once a test does nothing but wait, or runs, for far longer than it
    ever took."""

    def __init__(self, seconds: dict[str, float], failed: _Failed) -> None:
        """seconds: how long each test takes without a change."""
        self._seconds = seconds
        self._failed = failed
        self._test: tuple[str, float, float] | None = None
        if SCHEDULED.exists():
            threading.Thread(target=self._watch, daemon=True).start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = (item.nodeid, time.monotonic(), time.process_time())
        try:
            return (yield)
        finally:
            self._test = None

    def _watch(self) -> None:
        before: deque[tuple[float, float, int]] = deque()
        busy = 0
        while True:
            time.sleep(IDLE / 8)
            now = time.monotonic()
            busy += _busy()
            before.append((now, _could_run(), busy))
            while len(before) > 1 and before[1][0] <= now - IDLE:
                before.popleft()
            if (test := self._test) is None:
                continue
            name, began, used = test
            usual = self._seconds.get(name, IDLE)
            (since, then, first), (_, ran, _) = before[0], before[-1]
            idle = ran - then < WAITS * (now - since) and busy - first < WAITS * len(before)
            waits = idle and now - began > max(IDLE, 3 * usual) and not _programs()
            if waits or time.process_time() - used > RUNS + 5 * usual or now - began > 2 * (SLACK + 10 * usual):
                self._failed.note(name)
                os._exit(FAILED)


class _Recorder:
    """A plugin that records which lines each test runs, and how long it takes."""

    def __init__(self, files: dict[str, str], numbers: dict[str, int]) -> None:
        self.ran: set[tuple[str, int, int]] = set()
        self.seconds: dict[int, float] = {}
        self._files = files
        self._numbers = numbers
        self._test = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = self._numbers[item.nodeid]
        began = time.monotonic()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.seconds[self._test] = time.monotonic() - began

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        file = self._files.get(frame.f_code.co_filename)
        if file is None:
            return None

        def line(frame: FrameType, event: str, arg: object) -> Any:
            self.ran.add((file, frame.f_lineno, self._test))
            return line

        return line(frame, event, arg)


def _could_run() -> float:
    """Seconds that the threads ran, or waited for a processor, since each began."""
    found = 0
    for file in SCHEDULED.glob("*/schedstat"):
        with contextlib.suppress(OSError):
            ran, waited, _ = file.read_text().split()
            found += int(ran) + int(waited)
    return found / 1e9


def _busy() -> bool:
    """Whether another thread runs, or waits for a processor or the disk, at this moment: with many other programs on
    the machine it may wait for long before that counts in `_could_run`."""
    for file in SCHEDULED.glob("*/stat"):
        with contextlib.suppress(OSError):
            if int(file.parent.name) != threading.get_native_id():
                state, *_ = file.read_text().rpartition(")")[2].split()
                if state in "RD":
                    return True
    return False


def _programs() -> bool:
    """Whether programs that the tests started go on."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            _, parent, _, session = file.read_text().rpartition(")")[2].split()[:4]
            if int(file.parent.name) != os.getpid() and os.getpid() in (int(parent), int(session)):
                return True
    return False


def _run(session: pytest.Session, tests: Iterable[int], tmp: Path, limits: dict[int, float], stop: bool = True) -> int:
    """Run tests that are collected, in a forked process. `limits`: seconds for each."""
    chosen = list(tests)
    for n in chosen:
        if n in limits:
            session.items[n].add_marker(pytest.mark.timeout(limits[n]), append=False)
    session.items = [session.items[n] for n in chosen]
    session.config._tmp_path_factory._given_basetemp = tmp  # type: ignore[attr-defined]
    session.config.option.maxfail = int(stop)
    broken = False
    try:
        main.pytest_runtestloop(session)
    except Exception:  # `session.Failed` after the first failure, or a failure that pytest cannot report
        broken = True
    with contextlib.suppress(Exception):
        session._setupstate.teardown_exact(None)
    return FAILED if session.testsfailed or broken else 0


def _anew(root: Path, mutant: Mutant, items: Sequence[pytest.Item], tmp: Path, plugins: Sequence[object]) -> int:
    """Import everything again, with the changed module, and run the tests, in a forked process."""
    for name, module in list(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "/")
        if file.is_relative_to(root) and "site-packages" not in file.parts:
            del sys.modules[name]
    sys.meta_path[:] = [each for each in sys.meta_path if "assertion" not in type(each).__module__]
    sys.meta_path.insert(0, _Changed(_module(mutant.file), str(root / mutant.file), mutant.text))
    for chosen in ([each.nodeid for each in items], sorted({str(each.path) for each in items})):
        options = ["-q", "-x", "-s", "-p", "no:cacheprovider", f"--basetemp={tmp}", f"--rootdir={root}"]
        code = int(pytest.main([*options, *chosen], plugins=plugins))
        if code not in NOTHING:
            break
    return FAILED if code else 0


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads one module, from a text."""

    def __init__(self, name: str, path: str, text: str) -> None:
        self._name = name
        self._path = path
        self._text = text

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> Any:
        if fullname != self._name:
            return None
        package = self._path.endswith("__init__.py")
        spec = importlib.util.spec_from_loader(fullname, self, origin=self._path, is_package=package)
        assert spec is not None
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [str(Path(self._path).parent)]
        return spec

    def get_source(self, fullname: str) -> str:
        return self._text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self._path, "exec", dont_inherit=True)


def _forked(jobs: Iterator[tuple[int, Callable[[], int], float]], workers: int) -> Iterator[tuple[int, int]]:
    """Run (number, job, seconds) in processes, some at a time; (number, exit code) of each when it ends. A job that
    takes longer has failed."""
    running: dict[int, tuple[int, float]] = {}
    more = True
    while more or running:
        while more and len(running) < workers:
            if (started := next(jobs, None)) is None:
                more = False
                break
            n, job, seconds = started
            if (pid := os.fork()) == 0:
                _child(job)
            running[pid] = (n, time.monotonic() + seconds)
        for pid, (n, until) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended and time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                ended, status = os.waitpid(pid, 0)
            if ended:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)  # programs that a test left behind
                del running[pid]
                yield n, os.waitstatus_to_exitcode(status)
        time.sleep(0.01)


def _child(job: Callable[[], int]) -> None:
    code = FAILED
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        code = job()
    finally:
        os._exit(code)


def _functions(files: Iterable[str]) -> dict[tuple[str, str, int], list[FunctionType]]:
    """All functions made of code of these files, by file, name and first line."""
    gc.unfreeze()  # tests/conftest.py hides what is there after collection
    found: dict[tuple[str, str, int], list[FunctionType]] = {}
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename in files:
            code = each.__code__
            found.setdefault((code.co_filename, code.co_name, code.co_firstlineno), []).append(each)
    gc.freeze()
    return found


def _codes(code: CodeType, name: str, line: int) -> Iterator[CodeType]:
    if (code.co_name, code.co_firstlineno) == (name, line):
        yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each, name, line)


def _module(file: str) -> str:
    return ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
