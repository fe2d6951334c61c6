"""Events, timers and time limits for code that thousands of runs per second pass through, and for what there are
thousands of: as those of asyncio, at a fraction of their cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from msgspec import Struct

CLOCK_SLACK = 0.002
"""uvloop's clock counts milliseconds, so a timer may fire this much early."""

TICK = 0.05
"""Seconds for which a `Timer` costs the loop nothing."""
SLOT = 0.25
"""Seconds: a `Timer` that is due later than in two of these shares one of the loop's with its neighbours until then."""


class Flag(Struct, eq=False):
    """As `asyncio.Event`, for what there are thousands of: that one has a queue for waiters from the outset, which is
    most of an idle session.
    """

    _set: bool = False
    _waiting: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        """Whether `wait` would return at once."""
        return self._set

    def set(self) -> None:
        """Let everybody who waits go on, and who comes later."""
        self._set = True
        if (waiting := self._waiting) is not None:
            self._waiting = None
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    def clear(self) -> None:
        """Have who comes from now on wait."""
        self._set = False

    async def wait(self) -> None:
        """Wait until it is set; it may be cleared again by the time that the waiter goes on."""
        if self._set:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(future)
        try:
            await future
        finally:
            if self._waiting is not None and future in self._waiting:
                self._waiting.remove(future)


class Timer:
    """Calls `work` in so many seconds, like `loop.call_later`, unless it is cancelled before.

    Most are cancelled within milliseconds, and nearly all before they are due; one of the loop's takes 400 bytes. So a
    timer is only noted until it has lasted for a tick, then kept with those that are due at about the same time, and
    the loop is asked for one of its own a moment before.
    """

    __slots__ = ("_handle", "_wheel", "_work", "due")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, work: Callable[[], object]) -> None:
        now = loop.time()
        self.due = now + seconds
        self._work: Callable[[], object] | None = work
        self._handle: asyncio.TimerHandle | None = None
        self._wheel: _Wheel | None = None
        if seconds < TICK:
            self._handle = loop.call_at(self.due, self._fire)
            return
        wheel = _wheels.get(loop)
        if wheel is None:
            for closed in [other for other in tuple(_wheels) if other.is_closed()]:
                _wheels.pop(closed, None)
            wheel = _wheels[loop] = _Wheel(loop)
        wheel.note(self, now)

    def ask(self, loop: asyncio.AbstractEventLoop, wheel: _Wheel) -> None:
        """Have `work` called if it still has to be."""
        self._wheel = None
        if self._work is None:
            return
        if self.due - loop.time() < 2 * SLOT:
            self._handle = loop.call_at(self.due, self._fire)
        else:
            self._wheel = wheel
            wheel.keep(self)

    def cancel(self) -> None:
        """Do not call it. May be called at any time."""
        self._work = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        elif self._wheel is not None:
            self._wheel.drop(self)
            self._wheel = None

    def _fire(self) -> None:
        work, self._work, self._handle = self._work, None, None
        if work is not None:
            work()


class _Wheel:
    """The timers of a loop that have none of its own: those of this tick, and the others by when they are due."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._noted: list[Timer] = []
        self._slots: dict[int, tuple[asyncio.TimerHandle, dict[Timer, None]]] = {}

    def note(self, timer: Timer, now: float) -> None:
        """Look at a timer at the end of this tick."""
        if not self._noted:
            self._loop.call_at(now + TICK, self._look)
        self._noted.append(timer)

    def keep(self, timer: Timer) -> None:
        """Look at a timer when the slot begins in which it is due."""
        number = int(timer.due / SLOT)
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = (self._loop.call_at(number * SLOT, self._open, number), {})
        slot[1][timer] = None

    def drop(self, timer: Timer) -> None:
        """Do not look at a timer that is kept. The last one takes the slot with it, which may be days ahead."""
        number = int(timer.due / SLOT)
        handle, timers = self._slots[number]
        del timers[timer]
        if not timers:
            handle.cancel()
            del self._slots[number]

    def _look(self) -> None:
        noted, self._noted = self._noted, []
        for timer in noted:
            timer.ask(self._loop, self)

    def _open(self, number: int) -> None:
        for timer in self._slots.pop(number)[1]:
            timer.ask(self._loop, self)


_wheels: dict[asyncio.AbstractEventLoop, _Wheel] = {}


class Deadline(Struct, eq=False):
    """Works as `asyncio.timeout` at a fraction of its cost. Enter it once, in a task. Raises TimeoutError at the end.

    seconds: from entering it; None for no limit yet. expired: whether a TimeoutError was this one's. Moving the end to
    a later time costs no timer: the one that was set checks when it fires.
    """

    seconds: float | None = None
    expired: bool = False
    due: float | None = None
    """The loop's time of the end. None without a limit, and before it is entered."""
    _task: asyncio.Task[object] | None = None
    _timer: Timer | None = None
    _fires: float = 0.0
    _before: int = 0

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None or self._task is not None:
            raise RuntimeError("a Deadline is entered once, in a task")
        self._task = task
        self._before = task.cancelling()
        if self.seconds is not None:
            self._timer = Timer(loop, self.seconds, self._look)
            self.due = self._fires = self._timer.due
        return self

    def move(self, due: float | None) -> None:
        """Move the end to `due` (loop time), now if that has passed; None: no limit. No effect outside the block."""
        if self._task is None or self.expired:
            return
        self.due = due
        if due is None or (self._timer is not None and self._fires <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._set(due)

    def _set(self, due: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = Timer(loop, due - loop.time(), self._look)
        self._fires = due

    def _look(self) -> None:
        self._timer = None
        if self._task is None or self.due is None:
            return
        if asyncio.get_running_loop().time() < self.due - CLOCK_SLACK:
            self._set(self.due)
        else:
            self.expired = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.expired and task is not None and task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error
