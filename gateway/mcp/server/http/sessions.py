"""The sessions of Streamable HTTP there are, and when one is taken to have gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from gateway.access import Visit
from gateway.mcp.server.http.session import HttpSession
from gateway.mcp.server.hub import Hub

log = logging.getLogger(__name__)


class HttpSessions:
    """By id.

    A client says goodbye with DELETE; one that did not is taken to have gone when nothing was POSTed, and no stream
    was open, for as long as the option `idle` says. Where as many clients are connected as may be, over whatever
    transport, one that has been idle for longest, and waits for nothing, makes room.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._sessions: dict[str, HttpSession] = {}
        self._ending: set[HttpSession] = set()
        self._using: dict[HttpSession, int] = {}
        self._timers: dict[HttpSession, asyncio.TimerHandle] = {}
        hub.on_stop(self.quiet)
        hub.make_room = self._make_room

    def get(self, id: str) -> HttpSession | None:
        """The session, while it lasts."""
        return self._sessions.get(id)

    def open(self, agent: str | None, visit: Visit | None = None) -> HttpSession:
        """A new one, which counts as idle from now on. Raises Unavailable."""
        self._hub.sit()
        session = HttpSession(self._hub, agent, self._ended, visit)
        self._sessions[session.id] = session
        self._wait(session)
        return session

    @contextlib.contextmanager
    def used(self, session: HttpSession) -> Iterator[None]:
        """While the block lasts the session is not idle."""
        self._using[session] = self._using.get(session, 0) + 1
        self._stop_waiting(session)
        try:
            yield
        finally:
            self._using[session] -= 1
            if not self._using[session]:
                del self._using[session]
                if not session.over:
                    self._wait(session)

    def quiet(self) -> None:
        """The gateway stops: end all."""
        for session in list(self._sessions.values()):
            session.end("the gateway is stopping")

    async def aclose(self) -> None:
        """The same, and wait until nothing is left of them."""
        self.quiet()
        while self._ending:
            await asyncio.gather(*(session.wait() for session in self._ending))
            self._ending = {session for session in self._ending if session.busy}

    def _make_room(self) -> None:
        idle = next((session for session in self._timers if not (session.busy or session.standalone.waiting)), None)
        if idle is not None:
            log.info("session %s, which is idle, makes room for another", idle.id[:8])
            idle.end()

    def _ended(self, session: HttpSession) -> None:
        del self._sessions[session.id]
        self._hub.rise()
        self._stop_waiting(session)
        if session.busy:
            self._ending.add(session)
            session.tasks[-1].add_done_callback(lambda _: self._ending.discard(session))

    def _wait(self, session: HttpSession) -> None:
        loop = asyncio.get_running_loop()
        self._timers[session] = loop.call_later(self._hub.options.idle, self._on_idle, session)

    def _stop_waiting(self, session: HttpSession) -> None:
        if (timer := self._timers.pop(session, None)) is not None:
            timer.cancel()

    def _on_idle(self, session: HttpSession) -> None:
        log.info("session %s was idle for %g s and is ended", session.id[:8], self._hub.options.idle)
        session.end()
