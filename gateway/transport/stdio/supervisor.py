"""Supervisor: one connection to an agent, shared by its users, started on demand and restarted after a failure."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from gateway.core.errors import AgentError, AgentGone, AgentTimeout, InterlinguaError, Unavailable
from gateway.transport.tasks import TaskSet
from gateway.transport.waiting import CLOCK_SLACK

log = logging.getLogger(__name__)

CLOSE_TIMEOUT = 20.0
STEADY_SECONDS = 10.0
"""A connection or process that ends after them is no sequel of the failures before."""
_STEEPEST = 30


class SupervisedConnection(Protocol):
    """A connection that is ready to be used."""

    @property
    def alive(self) -> bool:
        """False from the moment that its end is seen; `closed` is done once nothing of it is left."""

    @property
    def closed(self) -> asyncio.Future[Any]:
        """Done when the connection has ended. An exception, set as such or as the result, is the reason."""

    async def aclose(self) -> None:
        """Close the connection and all that belongs to it, in bounded time. Called once, even if it has ended."""


C = TypeVar("C", bound=SupervisedConnection)


class Backoff(msgspec.Struct, frozen=True):
    """Seconds between tries: `first`, doubled for each failure, at most `most`, minus up to half at random."""

    first: float = 0.5
    most: float = 30.0

    def delay(self, failures: int) -> float:
        """Return the delay before the next try after this many failures."""
        if failures == 0:
            return 0.0
        return min(self.most, self.first * 2.0 ** min(failures - 1, _STEEPEST)) * random.uniform(0.5, 1.0)


class Supervisor(Generic[C]):
    """Keeps at most one connection made by `open`. Made once per agent, on the loop that uses it; `aclose` at the end.

    open: starts the agent and shakes hands; called in a task of its own, never twice at once and never before the one
        before was closed. Raises errors of the tree; cancelled (after `start_timeout` seconds), it leaves nothing.
    name: the agent's, for logs and error messages.
    idle: seconds that a connection is kept after its last user has left, `math.inf` for ever. As long, and while there
        are users, an agent that failed to start, or died amid its users, is tried again without being asked, so that
        `reachable` becomes true again; with `math.inf` also one that died while nobody used it.
    wait: seconds that a user waits for the next try, at most; AgentGone at once where it is further away.
    """

    def __init__(
        self,
        open: Callable[[], Awaitable[C]],
        *,
        name: str,
        idle: float = 300.0,
        start_timeout: float = 30.0,
        wait: float = 15.0,
        backoff: Backoff | None = None,
    ) -> None:
        self._open = open
        self._name = name
        self._idle = idle
        self._start_timeout = start_timeout
        self._wait = wait
        self._backoff = backoff or Backoff()
        self._users = 0
        self._live: C | None = None
        self._since = 0.0
        self._last_used = 0.0
        self._attempt: asyncio.Task[C | InterlinguaError] | None = None
        self._closing = TaskSet()
        self._expiry: asyncio.TimerHandle | None = None
        self._failures = 0
        self._not_before = 0.0
        self._error: InterlinguaError | None = None
        self._closed = False

    @property
    def reachable(self) -> bool | None:
        """True while connected, False after a failure until a start succeeds, None if it is unknown."""
        if self._live is not None and not self._live.closed.done():
            return True
        return None if self._error is None else False

    @property
    def used(self) -> bool:
        """Whether somebody uses the connection, or waits for it."""
        return self._users > 0

    @property
    def reason(self) -> str:
        """The reason if `reachable` is False, otherwise ""."""
        return str(self._error) if self.reachable is False else ""

    @asynccontextmanager
    async def use(self) -> AsyncIterator[C]:
        """Use the connection within the block: see `join`."""
        connection = await self.join()
        try:
            yield connection
        finally:
            self.leave(connection)

    async def join(self) -> C:
        """Use the connection until `leave`, starting it if needed. One that is dying is waited out; it may die later.

        Raises what `open` raised (to every user that waited for this start), AgentTimeout if it took too long,
        AgentGone with the last failure while the next try is too far away, Unavailable after `aclose`.
        """
        if self._live is not None and not self._live.alive:
            await asyncio.wait([self._live.closed])  # before it has a user more, who would be let down by its end
        self._users += 1
        try:
            while not (connection := await self._connected()).alive:
                await asyncio.wait([connection.closed])
            return connection
        except BaseException:
            self.leave(None)
            raise

    def join_now(self) -> C | None:
        """The same, where it is connected already and nothing has to be waited for; None otherwise."""
        live = self._live
        if self._closed or live is None or live.closed.done() or not live.alive:
            return None
        self._users += 1
        return live

    async def aclose(self) -> None:
        """Close the connection and cancel a start; users that wait for it get Unavailable. Idempotent."""
        if self._attempt is not None and not self._closed:  # a second time would hit it while it cleans up
            self._attempt.cancel()
        self._closed = True
        self._cancel_expiry()
        if self._live is not None:
            self._close(self._live)
            self._live = None
        if self._attempt is not None:
            await asyncio.wait([self._attempt], timeout=CLOSE_TIMEOUT)
        await self._closing.settled()

    async def _connected(self) -> C:
        if self._closed:
            raise Unavailable(f"the connection to {self._name} is closed")
        if self._live is not None:
            if not self._live.closed.done():
                return self._live
            self._lost(self._live)
        loop = asyncio.get_running_loop()
        attempt = self._attempt or self._begin()
        ahead = self._not_before - loop.time()
        if ahead > self._wait:
            raise self._down(f"the next try is in {ahead:.0f} s")
        await asyncio.wait([attempt], timeout=self._wait + self._start_timeout + CLOSE_TIMEOUT)
        if attempt.cancelled() or self._closed:
            raise Unavailable(f"the connection to {self._name} is closed")
        if not attempt.done():
            raise self._down("a start takes too long")
        result = attempt.result()
        if isinstance(result, InterlinguaError):
            raise result.with_traceback(None)  # the same one for all who waited
        return result

    def _down(self, outlook: str) -> AgentGone:
        error = self._error
        # amid its work it may have died of what another user asked, and say so
        why = f": {error}" if isinstance(error, AgentError) and error.untaken else ""
        return AgentGone(f"{self._name} is down ({outlook}){why}", detail=error.detail if error else "", untaken=True)

    def _begin(self) -> asyncio.Task[C | InterlinguaError]:
        """Begin a try, as soon as it is allowed, outside the context of the request that asked first."""
        self._attempt = asyncio.create_task(self._try(), context=contextvars.Context())
        return self._attempt

    async def _try(self) -> C | InterlinguaError:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            if self._closing:
                await asyncio.wait(self._closing, timeout=CLOSE_TIMEOUT)
            await asyncio.sleep(self._not_before - loop.time())
            began = loop.time()
            async with asyncio.timeout(self._start_timeout) as limit:
                connection = await self._open()
        except InterlinguaError as error:
            failure = error.unsent() if isinstance(error, AgentError) else error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed or (task and task.cancelling()):
                self._attempt = None
                raise
            why = "the start was cancelled from within"
            failure = AgentGone(f"{self._name} could not be started", detail=why, untaken=True)
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                failure = AgentTimeout(f"{self._name} was not ready within {self._start_timeout:g} s", untaken=True)
            else:
                log.exception("%s could not be started", self._name)
                failure = AgentGone(f"{self._name} could not be started", detail=repr(error), untaken=True)
        else:
            log.info("%s is ready after %.2f s", self._name, loop.time() - began)
            self._came_up(connection)
            return connection
        self._failed(failure, self._failures + 1)
        return failure

    def _came_up(self, connection: C) -> None:
        self._attempt = None
        if self._closed:  # `open` did not heed its cancellation
            self._close(connection)
            return
        self._live, self._error, self._since = connection, None, asyncio.get_running_loop().time()
        connection.closed.add_done_callback(lambda _: self._lost(connection))
        if self._users == 0:
            self._await_expiry()

    def _lost(self, connection: C) -> None:
        """Handle the end of the connection, when it is noticed first."""
        if self._live is not connection:
            return
        self._live = None
        self._cancel_expiry()
        self._close(connection)
        error = _why(connection.closed, self._name)
        if self._users == 0 and math.isfinite(self._idle):  # nobody was let down: the next one gets a new one
            log.info("%s has ended: %s", self._name, error)
            return
        steady = asyncio.get_running_loop().time() - self._since >= STEADY_SECONDS
        self._failed(error, 1 if steady else self._failures + 1)

    def _failed(self, error: InterlinguaError, failures: int) -> None:
        now = asyncio.get_running_loop().time()
        self._attempt, self._error, self._failures = None, error, failures
        delay = self._backoff.delay(failures)
        self._not_before = now + delay
        wanted = self._users > 0 or now - self._last_used < self._idle
        outlook = f"next try in {delay:.1f} s" if wanted else "not tried again until it is asked for"
        whose = "" if str(error).startswith(self._name) else f"{self._name}: "  # others name a host or a program
        log.warning("%s%s; %s%s", whose, error, outlook, f"\n{error.detail}" if error.detail else "")
        if wanted and not self._closed:
            self._begin()

    def leave(self, connection: C | None) -> None:
        """The user that got this from `join` is done with it; None for one that got nothing."""
        self._users -= 1
        self._last_used = asyncio.get_running_loop().time()
        if connection is not None and connection is self._live and not connection.closed.done():
            self._failures = 0
        if self._users == 0 and self._live is not None and not self._closed:
            self._await_expiry()  # also of one that has come up since, in place of what failed its user

    def _await_expiry(self) -> None:
        """One timer looks whether nobody has used it for so long, instead of one that is set after each use."""
        if self._expiry is None and math.isfinite(self._idle):
            self._expiry = asyncio.get_running_loop().call_later(self._idle, self._expire)

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _expire(self) -> None:
        self._expiry = None
        if self._users:
            return
        loop = asyncio.get_running_loop()
        due = max(self._last_used, self._since) + self._idle
        if loop.time() < due - CLOCK_SLACK:
            self._expiry = loop.call_at(due, self._expire)
            return
        connection, self._live = self._live, None
        if connection is not None:
            log.info("%s is ended, unused for %g s", self._name, self._idle)
            self._failures = 0
            self._close(connection)

    def _close(self, connection: C) -> None:
        task = asyncio.create_task(self._close_whole(connection), context=contextvars.Context())
        self._closing.hold(task)

    async def _close_whole(self, connection: C) -> None:
        try:
            await connection.aclose()
        except Exception:
            log.exception("%s could not be closed", self._name)


def _why(closed: asyncio.Future[Any], name: str) -> InterlinguaError:
    error: object = None
    if not closed.cancelled():
        error = closed.exception() or closed.result()
    if isinstance(error, InterlinguaError):
        return error
    return AgentGone(f"{name} has closed the connection", detail=repr(error) if error else "")
