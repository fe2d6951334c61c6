"""The parent of several gateway processes. It accepts nothing and reads no config, so that nothing ends it.

Each place has a listening socket of its own on the one port (SO_REUSEPORT: the kernel spreads new connections), which
the supervisor opens and keeps: what waits in it outlives a worker. While a place has no worker another one accepts for
it. Where the system does not spread connections, all places are the same socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.tracing import metrics
from gateway.transport.stdio.supervisor import Backoff
from gateway.transport.tasks import TaskSet
from gateway.workers.messages import (
    LONGEST,
    VARIABLE,
    Adopt,
    AskWorker,
    Changed,
    Cover,
    Gather,
    Gathered,
    Reload,
    Seat,
    ToWorker,
    Uncover,
    Up,
    WorkerReport,
    from_worker,
    packed,
    report_seconds,
    say,
    unpacked,
)

log = logging.getLogger("interlingua")

STEADY_SECONDS = 10.0
"""A worker that was up for this long and ends is no sequel of the failures before."""
REPORT_SECONDS = 0.4
"""How long a worker that is asked how it is is waited for, all together: a probe waits for a second."""
BEAT_SECONDS = 0.5
"""Between two looks at who has said nothing."""
LATE_SECONDS = 1.0
"""How much later than it is due a worker's report is before another accepts for it."""
AFTER_SHUTDOWN = 20.0
"""Seconds beyond `limits.shutdown` after which a worker that was told to stop is killed."""


class WorkerProcess:
    """One worker, from its start on."""

    def __init__(self, place: int, number: int, process: asyncio.subprocess.Process, link: socket.socket) -> None:
        self.place, self.number, self.process = place, number, process
        self._link = link
        self._writer: asyncio.StreamWriter | None = None
        self.up: asyncio.Future[Up] = asyncio.get_running_loop().create_future()
        self.since = 0.0
        self.report: WorkerReport | None = None
        self._heard = 0.0
        self._asked: asyncio.Future[None] | None = None
        self.hangs = False
        """Whether it was asked how it is, and has not answered in time."""
        self.leaves = False
        """Whether it was told to stop, and has said that it accepts no connection any more."""
        self._silent_beats = 0
        self.exited = asyncio.create_task(process.wait())

    async def messages(self) -> asyncio.StreamReader:
        """What it says, from now on."""
        reader, self._writer = await asyncio.open_connection(sock=self._link, limit=LONGEST)
        return reader

    def came_up(self, said: Up) -> None:
        if not self.up.done():
            self.since = asyncio.get_running_loop().time()
            self.up.set_result(said)

    def say(self, message: ToWorker) -> None:
        """Say it, if the worker is still there."""
        say(self._writer, message)

    def heard(self) -> None:
        """It is given all of its time again: it has said something, or those that it needs had no time themselves."""
        self._silent_beats = 0

    def beat(self) -> None:
        """Count one more beat of the supervisor's without a word."""
        self._silent_beats += 1

    def silent(self, seconds: float) -> bool:
        """Whether it has said nothing for so long."""
        return self._silent_beats * BEAT_SECONDS > seconds

    @property
    def accepts(self) -> bool:
        """Whether it takes what comes to its place, as far as is known."""
        if not self.up.done() or self.exited.done() or self.leaves or self.hangs:
            return False
        return not self.silent(report_seconds(self.silence) + LATE_SECONDS)

    @property
    def silence(self) -> float:
        """`limits.silence`; infinite until it is up."""
        return self.up.result().silence if self.up.done() else math.inf

    async def ask(self) -> None:
        """Ask it how it is, unless it has still to answer, and wait until it has, has ended, or hangs."""
        if self._asked is None:
            self._asked = asyncio.get_running_loop().create_future()
            self.say(AskWorker())
        if not (await asyncio.wait([self._asked], timeout=REPORT_SECONDS))[0]:
            self.hangs = True

    def reported(self, report: WorkerReport) -> None:
        self.report, self._heard, self.hangs = report, asyncio.get_running_loop().time(), False
        self.leaves = self.leaves or report.leaves
        self._answered()

    def _answered(self) -> None:
        if self._asked is not None:
            self._asked.set_result(None)
            self._asked = None

    @property
    def age(self) -> float:
        """Seconds since it said how it is."""
        return asyncio.get_running_loop().time() - self._heard

    def kill(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def serves(self) -> bool:
        """Wait until it serves, or ends. Whether it serves."""
        waited: list[asyncio.Future[Any]] = [self.up, self.exited]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        return self.up.done() and not self.exited.done()

    async def stop(self) -> int:
        """Let open requests end for `limits.shutdown`; later it is killed. Returns its exit code."""
        self.kill(signal.SIGTERM)
        within = self.up.result().shutdown + AFTER_SHUTDOWN if self.up.done() else AFTER_SHUTDOWN
        if not (await asyncio.wait([self.exited], timeout=within))[0]:
            log.error("%s does not stop, and is killed", self)
            self.kill(signal.SIGKILL)
        return await self.exited

    def close(self) -> None:
        self._answered()
        if self._writer is not None:
            self._writer.close()
        else:
            self._link.close()

    def __str__(self) -> str:
        return f"worker {self.number} (process {self.process.pid})"


class WorkerSupervisor:
    """Keeps a worker at each place until it is told to stop. `argv`: the program and its arguments."""

    def __init__(self, argv: Sequence[str], listeners: Sequence[socket.socket]) -> None:
        self._argv = argv
        self._listeners = listeners
        self._workers: dict[int, WorkerProcess] = {}
        """By place, the one that is to serve there."""
        self._live: set[WorkerProcess] = set()
        """Those, and who has still to stop."""
        self._numbers: set[int] = set()
        self._covers: dict[int, WorkerProcess] = {}
        self._locks = [asyncio.Lock() for _ in listeners]
        self._tasks = TaskSet()
        self._counted: list[metrics.Family] = []
        """What the workers that have ended had counted: nothing that only grows goes back."""
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._signals = 0
        self._rolling = False
        self._starting = True
        self._folder = ""

    async def run(self, *, greet: bool) -> int:
        """Start all, keep them, stop them. Returns the exit code: of a worker that cannot start, or stop in order."""
        running = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            running.add_signal_handler(number, self._stop)
        running.add_signal_handler(signal.SIGHUP, self._tell, Reload("SIGHUP"))
        running.add_signal_handler(signal.SIGUSR2, self._roll)
        with tempfile.TemporaryDirectory(prefix="interlingua-") as self._folder:
            self._tasks.start(self._begin(greet))
            code = await self._ended
            codes = await asyncio.gather(*(worker.stop() for worker in self._live))
            code = max([code, *codes])
            self._tasks.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if code == 0:
            log.info("stopped")
        return code

    async def _begin(self, greet: bool) -> None:
        """The first alone: what is wrong with the start is said once, and the store is made ready by one."""
        first = await self._start(0)
        if not await self._first(first):
            return
        others = await asyncio.gather(*(self._start(place) for place in range(1, len(self._listeners))))
        if not all(await asyncio.gather(*(self._first(worker) for worker in others))):
            return
        self._starting = False
        for worker in (first, *others):
            self._tasks.start(self._keep(worker))
        self._tasks.start(self._watch())
        said = first.up.result().greeting
        if greet:
            print(f"{said}\n{len(self._listeners)} workers", flush=True)
        else:
            log.info("%s; %d workers", said, len(self._listeners))

    async def _first(self, worker: WorkerProcess) -> bool:
        """Whether it comes up. If not there is nothing to keep: it has said why."""
        if await worker.serves():
            return True
        if not self._ended.done():
            code = worker.exited.result()
            self._ended.set_result(code if code > 0 else 1)
        return False

    async def _start(self, place: int) -> WorkerProcess:
        number = next(each for each in range(1, len(self._listeners) + 2) if each not in self._numbers)
        self._numbers.add(number)
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            listeners = tuple(each.fileno() for each in self._listeners)
            seat = Seat(
                place=place,
                number=number,
                workers=len(self._listeners),
                link=theirs.fileno(),
                listeners=listeners,
                folder=self._folder,
            )
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                env={**os.environ, VARIABLE: msgspec.json.encode(seat).decode()},
                pass_fds=(theirs.fileno(), *set(listeners)),
                process_group=0,  # Ctrl-C is for the supervisor, which tells them
            )
        worker = self._workers[place] = WorkerProcess(place, number, process, ours)
        self._live.add(worker)
        self._tasks.start(self._listen(worker))
        if self._ended.done():
            worker.kill(signal.SIGTERM)
        return worker

    async def _listen(self, worker: WorkerProcess) -> None:
        """Hear a worker to its end."""
        reader = await worker.messages()
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                worker.heard()
                message = from_worker.decode(line)
                if isinstance(message, Up):
                    worker.came_up(message)
                elif isinstance(message, Changed):
                    self._tell(Reload(message.why), but=worker)
                elif isinstance(message, WorkerReport):
                    worker.reported(message)
                    self._spread()
                else:
                    self._tasks.start(self._gather(worker, message))
        await worker.exited
        worker.close()
        if worker.report is not None:
            lasting = [each for each in unpacked(worker.report.figures) if each.kind != metrics.Gauge.kind]
            self._counted = [each.sent() for each in metrics.merged((lasting, self._counted))]
        self._live.discard(worker)
        self._numbers.discard(worker.number)
        self._spread()
        if not self._ended.done():
            self._tell(Adopt(), but=worker)

    async def _gather(self, asking: WorkerProcess, asked: Gather) -> None:
        """Tell a worker how all are. A worker that hangs is waited for once."""
        asking.reported(asked.own)
        others = [each for each in self._live if each is not asking and each.up.done() and not each.hangs]
        await asyncio.gather(*(each.ask() for each in others))
        asking.say(
            Gathered(
                number=asked.number,
                places=len(self._listeners),
                reports={each.number: each.report for each in self._live if each.report is not None},
                silent={each.number: each.age for each in self._live if each.hangs},
                ended=packed(self._counted),
            )
        )

    async def _keep(self, worker: WorkerProcess) -> None:
        """Replace a worker whenever it ends by itself."""
        backoff, failures, place = Backoff(), 0, worker.place
        while True:
            code = await worker.exited
            async with self._locks[place]:
                if self._ended.done() or self._workers[place] is not worker:
                    return
                self._spread()
                now = asyncio.get_running_loop().time()
                failures = 1 if worker.since and now - worker.since >= STEADY_SECONDS else failures + 1
                delay = backoff.delay(failures)
                log.error("%s has ended (%s); another is started in %.1f s", worker, _how(code), delay)
                await asyncio.sleep(delay)
                before, worker = worker, await self._start(place)
                if await worker.serves():
                    log.info("%s is up in place of worker %d", worker, before.number)
                    self._spread()

    async def _watch(self) -> None:
        """Kill workers that hang: `_keep` does the rest.

        Time is counted in beats of this process, so that a machine that slept, or a container that was frozen, costs
        one beat. Where several hang it is the machine, perhaps: one is killed, and the others get their time again.
        """
        while not self._ended.done():
            await asyncio.sleep(BEAT_SECONDS)
            here = [each for each in self._workers.values() if not each.exited.done()]
            for each in here:
                each.beat()
            self._spread()
            if hanging := [each for each in here if each.silent(each.silence)]:
                log.error("%s has said nothing for %g s: it is killed", hanging[0], hanging[0].silence)
                hanging[0].kill(signal.SIGKILL)
                for each in here:
                    each.heard()

    # --- restarting one by one ---------------------------------------------------------------------------------------

    def _roll(self) -> None:
        if self._rolling or self._starting or self._ended.done():
            log.warning("SIGUSR2: a start or a restart is under way already")
            return
        self._rolling = True
        self._tasks.start(self._restart())

    async def _restart(self) -> None:
        """A new worker at each place, one after the other: first it is up, then the old one stops."""
        log.info("SIGUSR2; the workers are restarted one by one")
        try:
            for place in range(len(self._listeners)):
                async with self._locks[place]:
                    old = self._workers[place]
                    new = await self._start(place)
                    if not await new.serves():
                        self._workers[place] = old
                        log.error("the restart is given up and the old workers stay: %s has ended", new)
                        return
                    self._tasks.start(self._keep(new))
                    await old.stop()
                    log.info("%s is up in place of worker %d", new, old.number)
            log.info("all workers are restarted")
        finally:
            self._rolling = False

    # --- accepting for who is missing --------------------------------------------------------------------------------

    def _spread(self) -> None:
        """Have another worker accept the connections of each place whose own does not, until it does."""
        for place, cover in [*self._covers.items()]:
            if self._workers[place].accepts or not cover.accepts:
                del self._covers[place]
                cover.say(Uncover(place))
        if self._starting or self._ended.done():
            return
        for place, missing in self._workers.items():
            if place in self._covers or missing.accepts:
                continue
            if (other := next((each for each in self._workers.values() if each.accepts), None)) is not None:
                self._covers[place] = other
                other.say(Cover(place))

    # --- all of them -------------------------------------------------------------------------------------------------

    def _tell(self, message: ToWorker, but: WorkerProcess | None = None) -> None:
        for worker in self._workers.values():
            if worker is not but:
                worker.say(message)

    def _stop(self) -> None:
        """The first signal lets open requests end, the second ends them, a third kills."""
        self._signals += 1
        how = {1: signal.SIGTERM, 2: signal.SIGINT}.get(self._signals, signal.SIGKILL)
        for worker in self._live:
            worker.kill(how)
        if not self._ended.done():
            self._ended.set_result(0)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def supervise(listeners: Sequence[socket.socket], *, greet: bool) -> int:
    """Run this very command once for each socket. Returns the exit code."""

    async def work() -> int:
        return await WorkerSupervisor([sys.executable, *sys.orig_argv[1:]], listeners).run(greet=greet)

    try:
        return asyncio.run(work())
    finally:
        for listener in listeners:
            listener.close()
