"""One of the agent's sessions: which connection it is open on, what arrives for it between turns."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from adapters.agent_client.codec.updates_in import Chunk
from adapters.agent_client.outbound import governed
from adapters.agent_client.outbound.dialects import Dialect
from adapters.agent_client.outbound.dialects.v1 import V1
from adapters.agent_client.outbound.terminals import Terminals
from adapters.agent_client.wire import PROTOCOL
from gateway.contract import Caller, RunContext, ThreadContext
from gateway.core.errors import AgentBroken
from gateway.core.types import JsonObject, ThreadUpdate
from gateway.transport.tasks import TaskSet

if TYPE_CHECKING:
    from adapters.agent_client.outbound.connection import Connection
    from adapters.agent_client.outbound.dialects.foreground import Foreground
    from adapters.agent_client.outbound.links import Link
    from adapters.agent_client.outbound.turn import Turn

log = logging.getLogger(__name__)

_PAUSE_EVERY = 256
"""Updates between turns after which whoever watches gets time to take them: nobody says how far they have come."""
_PAUSE = 0.02


class Upstream(Struct, rename="camel", omit_defaults=True):
    """What is recorded of a session on its thread.

    session: the agent's own id. profile: what the client could do for whom it was made. partial: the agent has
    forgotten the session that the thread began with, and knows only what came after that. fresh: there was a
    conversation before the session that the agent has not been told of. files: ids of those that the agent was given in
    the session.
    """

    session: str
    cwd: str
    mcp_servers: list[Any] = []
    additional_directories: list[Any] = []
    profile: JsonObject = {}
    partial: bool = False
    fresh: bool = False
    files: list[str] = []

    @property
    def record(self) -> JsonObject:
        """As `ThreadContext.set_thread` takes it."""
        found = msgspec.to_builtins(self)
        assert isinstance(found, dict)
        return found


class Session:
    """Made by `Sessions`; one for each thread, and one for each run without a thread.

    thread: the gateway's id, None for a run without one. name: the agent's own id, "" before it has one.
    profile, fresh, files: see `Upstream`.
    turn: the prompt under way. run: the run that it is of, from before it is sent until the run has ended.
    zombie: the answer of one that was given up and that the agent still owes.
    modes, options: as the agent last said, None where it said nothing.
    dialect: what the agent speaks. foreground: what it works on, where that can be something else than a prompt.
    """

    def __init__(
        self,
        thread: str | None,
        idle: float,
        detached: Callable[[Session], None],
        unused: Callable[[Session], None] | None = None,
    ) -> None:
        """`detached` is called whenever the agent has it open no more, `unused` when it was idle for `idle` seconds."""
        self.thread = thread
        self.name = ""
        self.profile: JsonObject = {}
        self.fresh = False
        self.files: list[str] = []
        self.connection: Connection | None = None
        self.turn: Turn | None = None
        self.run: Turn | None = None
        self.zombie: asyncio.Future[Any] | None = None
        self.terminals: Terminals | None = None
        self.lent: dict[str, Caller] = {}
        """Commands that clients run for the agent, by the terminal's id."""
        self.dialect: Dialect = V1
        self.foreground: Foreground | None = None
        self.modes: JsonObject | None = None
        self.options: list[Any] | None = None
        self.swallow = False
        """Whether updates are dropped: a replay of what is known."""
        self.replaying = False
        """Whether what the agent says is history that it was asked for."""
        self.calls: dict[str, None] = {}
        """The ids of the agent's tool calls, where rules govern them."""
        self._refusing = TaskSet()
        self.lock = asyncio.Lock()
        """Held while it is opened."""
        self._detached = detached
        self._context: ThreadContext | None = None
        self._idle = idle
        self._unused = unused
        self._users = 0
        self._lease: AbstractAsyncContextManager[Connection] | None = None
        self._link: Link | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resting: asyncio.Task[None] | None = None
        self._strays = 0

    @property
    def open(self) -> bool:
        """Whether the agent has it open, as far as is known."""
        return bool(self.name) and self.connection is not None and self.connection.alive

    @property
    def used(self) -> bool:
        """Whether somebody works with it now."""
        return self._users > 0

    @property
    def busy(self) -> bool:
        """Whether the agent works there, as far as anybody wants to know."""
        foreground = self.foreground if self.zombie is None else None
        return self.turn is not None or (foreground is not None and foreground.busy)

    @property
    def disposable(self) -> bool:
        """Whether nothing would be lost without it."""
        return not self.used and not self.open and not self.lock.locked()

    @property
    def context(self) -> ThreadContext | None:
        """The conversation as it was last seen; None after a while in which nobody was there."""
        return self.turn.context if self.turn is not None else self._context

    @property
    def prompted(self) -> RunContext | None:
        """The run whose prompt the agent works on."""
        return self.turn.context if self.turn is not None else None

    def seen(self, context: ThreadContext) -> None:
        """Somebody works with it, and this is what he has of the conversation."""
        self._context = context

    # --- its connection ------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def in_use(self) -> AsyncIterator[None]:
        """While somebody works with it, its connection is kept; and beyond, as long as its client is there."""
        self._users += 1
        self._stop_timer()
        try:
            yield
        finally:
            self._users -= 1
            await self._rest()

    def leave(self, task: asyncio.Task[Any]) -> None:
        """Let work on it go on by itself; its result is nobody's."""
        self._users += 1

        def done(task: asyncio.Task[Any]) -> None:
            self._users -= 1
            if not task.cancelled() and task.exception() is not None:
                log.info("session %s: %s", self.name or "not made", task.exception())
            self._resting = asyncio.ensure_future(self._rest())

        task.add_done_callback(done)

    async def connect(self, link: Link) -> Connection:
        """The connection, started if need be. To be called `in_use`. Raises as `Supervisor.use` does."""
        if self._lease is not None and self._link is link and self.connection is not None and self.connection.alive:
            return self.connection
        await self._release()
        lease = link.use()
        connection = await lease.__aenter__()
        self._lease, self._link = lease, link
        return connection

    def bind(self, connection: Connection, name: str) -> None:
        """The agent has it open there, under that id. Raises AgentBroken."""
        if self.connection is not None and self.name:
            self.connection.forget(self.name, self)
        if self.connection is not connection or self.name != name:
            self.foreground = connection.dialect.foreground()
        self.name, self.connection, self.dialect = name, connection, connection.dialect
        connection.register(name, self)

    def detach(self, connection: Connection) -> None:
        """The agent has it open there no more."""
        if self.connection is connection:
            connection.forget(self.name, self)
            self.connection = None
            self._detached(self)

    async def lost_connection(self, connection: Connection) -> None:
        """The connection has ended."""
        self.detach(connection)
        self.zombie = None
        await self.end_terminals()

    async def end_terminals(self) -> None:
        """End the commands that the agent runs through us. Those of clients are theirs to end."""
        self.lent.clear()
        terminals, self.terminals = self.terminals, None
        if terminals is not None:
            await terminals.aclose()

    async def aclose(self) -> None:
        """Forget it, and let its connection go."""
        self._stop_timer()
        if self.connection is not None:
            self.detach(self.connection)
        self._detached(self)
        await self.end_terminals()
        if self._refusing:
            await self._refused()
        await self._release()

    async def _rest(self, *, late: bool = False) -> None:
        """Nobody works with it now. Its process is kept while its client is there, what it holds itself for a while."""
        if self._users:
            return
        if self._context is None or self._context.caller is None:
            await self._release()
            if late:
                self._context = None  # that of a run is large
                if self._unused is not None:
                    self._unused(self)
                return
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self._idle, self._look)

    def _look(self) -> None:
        self._timer = None
        self._resting = asyncio.ensure_future(self._rest(late=True))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _release(self) -> None:
        lease, self._lease, self._link = self._lease, None, None
        if lease is not None:
            await lease.__aexit__(None, None, None)

    # --- what the agent says -------------------------------------------------------------------------------------

    def more(self, chunk: Chunk) -> Turn | None:
        """A chunk of text, for the turn whose it is if it goes on there; None if it is to be given to `update`."""
        turn = self.turn
        if turn is None or (self.foreground is not None and not self.foreground.more(chunk)):
            return None
        return turn if turn.more(chunk) else None

    def update(self, update: Raw) -> Awaitable[None] | None:
        """A `session/update` for it. What is returned is to be awaited before the next."""
        if self.foreground is not None:
            return self.foreground.update(update, self.take)
        return self.take(update)

    def take(self, update: Raw) -> Awaitable[None] | None:
        """Give it to the turn, or to the conversation."""
        if self.turn is not None:
            return self.turn.update(update)
        self.stray(update)
        self._strays += 1
        if self._refusing:
            return self._refused()
        return asyncio.sleep(_PAUSE) if self._strays % _PAUSE_EVERY == 0 else None

    def early(self, update: Raw) -> None:
        """One that came before the agent had said whose session it is."""
        if self.foreground is not None:
            self.foreground.update(update, self.stray)
        else:
            self.stray(update)

    def stray(self, update: Raw) -> None:
        """One that belongs to no turn."""
        given_up = self.zombie is not None
        if self.swallow or self.context is None or (given_up and self.context.governor is None):
            return  # known already, or nobody's, or of a turn that was given up
        try:
            for each in self.dialect.stray(self, update):
                told = governed.told(self, each)
                if told is not None and not given_up:
                    self.note(told, aside=True)
        except AgentBroken as error:
            log.warning("session %s: %s", self.name, error)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something about an update between turns, before the next one is taken."""
        self._refusing.start(work)

    async def _refused(self) -> None:
        await asyncio.wait([*self._refusing])

    def missed(self) -> None:
        """A message that could not be read may have been for it."""
        if self.turn is not None:
            self.turn.missed()

    def left_out(self, name: str, update: Raw) -> bool:
        """An update of a session that no client opened. Whether it is a subagent's of this one: its run counts it."""
        if self.foreground is None or not self.foreground.of_subagent(name, update):
            return False
        if self.turn is not None:
            self.turn.left_out()
        return True

    def note(self, update: ThreadUpdate, *, aside: bool = False) -> None:
        """Tell the conversation, and remember what is needed to set options. `aside`: it is nothing of a prompt's."""
        data = update.data
        if isinstance(data, dict):
            if update.kind == "config_option_update":
                self._remember(options=data.get("configOptions"))
            elif update.kind == "current_mode_update" and self.modes is not None:
                self.modes = {**self.modes, "currentModeId": data.get("currentModeId")}
        if aside and self.run is not None:
            self.run.aside(update)
        elif self.context is not None:
            self.context.note(update)

    def settle(self, result: Any, *, in_run: bool = False) -> None:
        """What an answer of the agent's says of modes and options: remembered and recorded.

        Within a run it is put as the agent itself would in an update, since whoever watches the run is told.
        """
        if not isinstance(result, dict):
            return
        modes, options = result.get("modes"), result.get("configOptions")
        self._remember(modes, options)
        if isinstance(modes, dict):
            self._state("current_mode_update" if in_run else "modes", modes, "currentModeId")
        if isinstance(options, list):
            self._state("config_option_update" if in_run else "config_options", options, "configOptions")

    def set_mode(self, mode: Any) -> None:
        """The agent has taken another mode, which it need not say."""
        if self.modes is not None:
            self.modes = {**self.modes, "currentModeId": mode}
            self._state("modes", self.modes)

    def _state(self, kind: str, data: Any, key: str = "") -> None:
        if self.context is None or self.thread is None:
            return
        if kind.endswith("_update"):
            value = data.get(key) if isinstance(data, dict) else data
            data = {"sessionUpdate": kind, key: value}
        self.context.note(ThreadUpdate(protocol=PROTOCOL, kind=kind, data=data))

    def _remember(self, modes: Any = None, options: Any = None) -> None:
        if isinstance(modes, dict):
            self.modes = modes
        if isinstance(options, list):
            self.options = options
