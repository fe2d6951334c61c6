"""One of the agent's sessions: gives updates to the run whose prompt the agent works on, or to the conversation."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.updates_in import SpokenSession
from adapters.agent_client.codec.version import V1
from adapters.agent_client.forwarded import KnownSettings
from adapters.agent_client.governed import untrusted
from adapters.agent_client.outbound.connection import AgentConnection
from adapters.agent_client.outbound.connections import ConnectionLease
from adapters.agent_client.outbound.prompts import Foreground
from adapters.agent_client.outbound.tool_calls import goes_on, is_call, is_terminal
from adapters.agent_client.outbound.turn import AgentTurn, TurnPhase, TurnStep
from adapters.agent_client.outbound.workspace import Files, Terminals
from adapters.agent_client.wire import PROTOCOL
from gateway.contract import Caller, RunContext, ThreadContext, governing
from gateway.core.errors import AgentBroken, AgentGone
from gateway.core.types import JsonObject, ThreadUpdate
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc

log = logging.getLogger(__name__)

OUTSIDE = "outside of any run"
"""Why a tool call is refused that belongs to no prompt."""
MOST_LENT = 1000
"""Commands of its clients' that a session is known to have; of those before, the newest client is asked."""
_PAUSE_EVERY = 256
"""Updates between prompts after which watchers get time to take them: nothing says how far they have come."""
_PAUSE = 0.02
QUIET_SECONDS, QUIET_MOST = 0.1, 5.0
"""Seconds without an update after which an agent that has loaded a session has told all; and the longest wait."""


class SessionRecord(Struct, rename="camel", omit_defaults=True, frozen=True):
    """One session, and what its agent was told there.

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
    def upstream(self) -> JsonObject:
        """As `ThreadContext.set_thread` takes it."""
        found = msgspec.to_builtins(self)
        assert isinstance(found, dict)
        return found

    def setup(self, offers: Callable[..., bool]) -> JsonObject:
        """The params that all ways of opening a session share. `offers`: what the agent can do, by path."""
        setup: JsonObject = {"cwd": self.cwd, "mcpServers": self.mcp_servers}
        if self.additional_directories and offers("sessionCapabilities", "additionalDirectories"):
            setup["additionalDirectories"] = self.additional_directories
        return setup


def recorded(context: ThreadContext) -> SessionRecord | None:
    try:
        return msgspec.convert(context.upstream_thread, SessionRecord) if context.upstream_thread else None
    except msgspec.ValidationError:
        return None


def asked(params: Raw) -> SessionRecord:
    """Read a client's `session/new`, `session/load` or `session/resume`, as far as it is needed again."""
    found = {name: jsonrpc.unpack(value) for name, value in jsonrpc.members(params).items()}
    cwd, servers, folders = (found.get(name) for name in ("cwd", "mcpServers", "additionalDirectories"))
    return SessionRecord(
        session="",
        cwd=cwd if isinstance(cwd, str) else os.getcwd(),
        mcp_servers=servers if isinstance(servers, list) else [],
        additional_directories=folders if isinstance(folders, list) else [],
    )


_UNKNOWN = SessionRecord(session="", cwd="")


def _known(update: ThreadUpdate) -> None:
    """What the agent tells of a conversation that the gateway has a record of."""


class Stray(enum.StrEnum):
    """The meaning of updates that belong to no prompt: what a client asked for, or the gateway has a record of."""

    NEWS = "news"
    HISTORY = "history"
    KNOWN = "known"


class SessionCommands:
    """The commands that the agent runs in one session: in the route's workspace, and at its clients."""

    def __init__(self) -> None:
        self.terminals: Terminals | None = None
        self._lent: dict[str, Caller] = {}

    def workspace(self, files: Files) -> Terminals:
        if self.terminals is None:
            self.terminals = Terminals(files)
        return self.terminals

    def lend(self, terminal: str, caller: Caller) -> None:
        self._lent[terminal] = caller
        if len(self._lent) > MOST_LENT:
            del self._lent[next(iter(self._lent))]

    def lender(self, terminal: str) -> Caller | None:
        return self._lent.get(terminal)

    def returned(self, terminal: str) -> None:
        self._lent.pop(terminal, None)

    async def end(self) -> None:
        """End those of the workspace. Those of clients are theirs to end."""
        self._lent.clear()
        terminals, self.terminals = self.terminals, None
        if terminals is not None:
            await terminals.aclose()


class AgentSession:
    """Made by `AgentSessions`; one for each thread, and one for each run without a thread. An `ConnectedSession`.

    thread: the gateway's id, None for a run without one. name: the agent's own id, "" before it has one.
    spoken: what the agent says there. work: what it works on, where its version tells of more than prompts.
    calls: the ids of the agent's tool calls, where rules govern them. lock: held while it is opened.
    """

    def __init__(
        self,
        thread: str | None,
        idle: float,
        detached: Callable[[AgentSession], None],
        unused: Callable[[AgentSession], None],
    ) -> None:
        """`detached` is called whenever the agent has it open no more, `unused` when it was idle for `idle` seconds."""
        self.thread = thread
        self.name = ""
        self.record = _UNKNOWN
        self.connection: AgentConnection | None = None
        self.spoken: SpokenSession = V1.session()
        self.work: Foreground | None = None
        self.settings = KnownSettings()
        self.commands = SessionCommands()
        self.calls: dict[str, None] = {}
        self.lock = asyncio.Lock()
        self.lease = ConnectionLease(idle, self._client_is_there if thread is not None else None, self._left_alone)
        self._detached = detached
        self._unused = unused
        self._context: ThreadContext | None = None
        self._release: Callable[[], None] | None = None
        self.turn: AgentTurn | None = None
        """The turn whose prompt the agent works on."""
        self._turns: list[AgentTurn] = []
        self._owed: tuple[AgentTurn | None, asyncio.Future[Any]] | None = None
        self._stray = Stray.NEWS
        self._strays = 0
        self._behind: Callable[[ThreadUpdate], None] | None = None
        """Where what is said of the conversation goes behind the answer to a load, until the next prompt."""
        self._late_at: AgentConnection | None = None
        self._refusing = TaskSet()

    # --- what it is -----------------------------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether the agent has it open, as far as is known."""
        return bool(self.name) and self.connection is not None and self.connection.alive

    @property
    def busy(self) -> bool:
        """Whether the agent works there, unless only on a prompt that was given up."""
        work = self.work if self._owed is None else None
        return self.turn is not None or (work is not None and work.busy)

    @property
    def disposable(self) -> bool:
        """Whether nothing would be lost without it."""
        return not (self.lease.used or self.open or self._owed is not None or self.lock.locked())

    @property
    def late(self) -> bool:
        """Whether the agent has told of a load behind its answer to it, and so may still, with nothing that ends it."""
        return self._late_at is not None and self._late_at.alive

    @property
    def run(self) -> AgentTurn | None:
        """The newest turn whose run has not ended, whether its prompt is sent or not."""
        return self._turns[-1] if self._turns else None

    @property
    def owed(self) -> asyncio.Future[Any] | None:
        """Done with the answer to a request that was given up."""
        return self._owed[1] if self._owed is not None else None

    @property
    def context(self) -> ThreadContext | None:
        """The conversation as it was last seen; None after a while without a client."""
        return self.turn.context if self.turn is not None else self._context

    @property
    def governor(self) -> governing.Governor | None:
        return governing.governor_of(self.context) if self.context is not None else None

    @property
    def prompted(self) -> RunContext | None:
        """The run whose prompt the agent works on."""
        return self.turn.context if self.turn is not None else None

    async def shown(self) -> None:
        """Wait until its run is on the disk: see `RunContext.shown`."""
        if (run := self.run) is not None:
            await run.context.shown()

    @property
    def options(self) -> list[Any] | None:
        return self.settings.options

    def seen(self, context: ThreadContext) -> None:
        """Called when the session is in use, with the newest view of the conversation."""
        self._context = context

    def _client_is_there(self) -> bool:
        return self._context is not None and self._context.caller is not None

    def _left_alone(self) -> None:
        self._context = None  # that of a run is large
        self._unused(self)

    # --- its modes and options ------------------------------------------------------------------------------------

    def settle(self, result: Any, *, in_run: bool = False) -> None:
        """Remember what an answer of the agent's says of modes and options, and tell the conversation.

        Within a run it is put as the agent itself would in an update, since whoever watches the run is told.
        """
        if not isinstance(result, dict):
            return
        self.settings.answered(result)
        modes, options = result.get("modes"), result.get("configOptions")
        if isinstance(modes, dict):
            self._set("current_mode_update" if in_run else "modes", modes, "currentModeId")
        if isinstance(options, list):
            self._set("config_option_update" if in_run else "config_options", options, "configOptions")

    def set_mode(self, mode: Any) -> None:
        if self.settings.modes is not None:
            self.settings.heard("current_mode_update", {"currentModeId": mode})
            self._set("modes", self.settings.modes)

    def _set(self, kind: str, data: Any, key: str = "") -> None:
        if kind.endswith("_update"):
            value = data.get(key) if isinstance(data, dict) else data
            data = {"sessionUpdate": kind, key: value}
        if self.context is not None and self.thread is not None:
            self.context.note(ThreadUpdate(protocol=PROTOCOL, kind=kind, data=data))

    # --- the runs in it -------------------------------------------------------------------------------------------

    def enter(self, turn: AgentTurn) -> None:
        self._turns.append(turn)

    def leave(self, turn: AgentTurn) -> None:
        self._turns.remove(turn)
        turn.leave()

    def begin(self, turn: AgentTurn) -> None:
        """Give the turn all that the agent says from here on. Raises IllegalEvent."""
        if turn.advance(TurnStep.BEGIN) is TurnPhase.WORKING:
            self.turn, self._behind = turn, None

    def wait(self, turn: AgentTurn) -> None:
        """It is something else's, until the turn begins. Raises IllegalEvent."""
        turn.advance(TurnStep.WAIT)
        self._free(turn)

    def end(self, turn: AgentTurn) -> None:
        """The agent has done what the turn's prompt asked for. Raises IllegalEvent."""
        turn.advance(TurnStep.END)
        self._free(turn)

    def give_up(self, turn: AgentTurn, end: asyncio.Future[Any]) -> None:
        """Stop waiting for the prompt's `end`. Until it comes, the session owes it. Raises IllegalEvent."""
        turn.advance(TurnStep.GIVE_UP)
        self._free(turn)
        self.owes(end, turn)

    def owes(self, answer: asyncio.Future[Any], turn: AgentTurn | None = None) -> None:
        """The answer to a prompt, or else to a request on which the agent tells what was, that nobody waits for any
        more. Until it comes, nobody is told what the agent says, and nothing else is asked of it.
        """
        self._owed = turn, answer
        answer.add_done_callback(self._settle)

    def settled(self) -> None:
        if self._owed is not None:
            turn, _ = self._owed
            self._owed = None
            if turn is not None:
                turn.advance(TurnStep.SETTLE)

    def _settle(self, answer: asyncio.Future[Any]) -> None:
        failed = answer.cancelled() or answer.exception() is not None
        if self._owed is not None and self._owed[1] is answer:
            if failed and self._owed[0] is None and self.connection is not None:
                self.detach(self.connection)  # it may not have been opened
            self.settled()

    def _free(self, turn: AgentTurn) -> None:
        if self.turn is turn:
            self.turn = None

    # --- its connection -------------------------------------------------------------------------------------------

    def recorded(self, record: SessionRecord) -> None:
        self.record = record

    @contextlib.contextmanager
    def telling(self, what: Stray) -> Iterator[None]:
        """While it is opened, and the agent tells what was."""
        self._stray, self._behind = what, None
        try:
            yield
        finally:
            self._stray = Stray.NEWS

    async def quiet(self, connection: AgentConnection) -> None:
        """The agent has answered `session/load`: return once it tells no more of what was. Some (Gemini CLI 0.61) go
        on, and that would be taken for the answer to the next prompt. Until that is sent, whatever it says of the
        conversation is history, however late. Raises AgentGone.
        """
        if self.work is None and self.governor is None:  # else it may be at work, or what it does is to be judged
            context = self.context if self._stray is Stray.HISTORY else None
            self._behind = _known if context is None else context.retell
        time, told = asyncio.get_running_loop().time, -1
        until = time() + QUIET_MOST
        while told != self._strays and time() < until:
            told = self._strays
            await asyncio.wait([connection.closed], timeout=QUIET_SECONDS)
            if connection.closed.done():
                raise AgentGone.of(connection.closed.result())

    def bind(self, connection: AgentConnection, name: str) -> None:
        """The agent has it open there, under that id. Raises AgentBroken."""
        if self.connection is not None and self.name:
            self.connection.forget(self.name, self)
        if self.connection is not connection or self.name != name:
            self.spoken = connection.version.session()
            self.work = Foreground() if connection.version.acknowledges else None
        self.name, self.connection = name, connection
        connection.register(name, self)
        if self.thread is not None and self._release is None and self.context is not None:
            self._release = self.context.hold()

    def detach(self, connection: AgentConnection) -> None:
        """The agent has it open there no more."""
        if self.connection is connection:
            connection.forget(self.name, self)
            self.connection = None
            self._detached(self)
            release, self._release = self._release, None
            if release is not None:
                release()

    async def lost(self, connection: AgentConnection) -> None:
        self.detach(connection)
        self.settled()
        await self.commands.end()

    async def aclose(self) -> None:
        """Forget it, and let its connection go."""
        if not self.drop():
            await self.commands.end()
            if self._refusing:
                await self._refused()
            self.lease.release()

    def drop(self) -> bool:
        """The same at once; False if there is more to be waited for."""
        self.lease.stop()
        self._context = None  # that of a run is large
        if self.connection is not None:
            self.detach(self.connection)
        else:
            self._detached(self)
        if self.commands.terminals is not None or self._refusing:
            return False
        self.lease.release()
        return True

    # --- what the agent says --------------------------------------------------------------------------------------

    def update(self, update: Raw) -> Awaitable[None] | None:
        """A `session/update` for it. What is returned is to be awaited before the next."""
        if self.work is not None:
            return self.work.update(update, self.take)
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
        """One that came before the agent had said to which session it belongs."""
        if self.work is not None:
            self.work.update(update, self.stray)
        else:
            self.stray(update)

    def stray(self, update: Raw) -> None:
        """One that belongs to no turn: news for the conversation, unless it is known, or of a prompt given up."""
        given_up, context = self._owed is not None, self.context
        if self._stray is Stray.KNOWN or context is None:
            return
        if self._owed is not None and (self._owed[0] is None or self.governor is None):
            return
        try:
            for each in self.spoken.stray(update):
                if each.kept and self._behind is not None:
                    self._late_at = self.connection
                    self._behind(each)
                    continue
                told = self._governed(each)
                if told is not None and not given_up:
                    self._aside(told)
        except AgentBroken as error:
            log.warning("session %s: %s", self.name, error)

    def note(self, update: ThreadUpdate) -> None:
        """Tell the conversation what the agent says in a turn, and remember what is needed to set options."""
        self.settings.heard(update.kind, update.data)
        if self.context is not None:
            self.context.note(update)

    def missed(self) -> None:
        if self.turn is not None:
            self.turn.missed()

    def left_out(self, name: str, update: Raw) -> bool:
        """An update of a session that no client opened. Whether it is a subagent's of this one: its run counts it."""
        if self.work is None or not self.work.of_subagent(name, update):
            return False
        if self.turn is not None:
            self.turn.left_out()
        return True

    def _aside(self, update: ThreadUpdate) -> None:
        """Tell what is nothing of a prompt's: in the run that is there, else to the conversation.

        History is for the client that asked for it: a run that another has begun meanwhile waits for its end.
        """
        self.settings.heard(update.kind, update.data)
        if self.run is not None and self._stray is Stray.NEWS:
            self.run.aside(update, self.spoken.aside(update))
        elif self.context is not None:
            self.context.note(update)

    def _governed(self, update: ThreadUpdate) -> ThreadUpdate | None:
        """The update as the conversation is told it; None for a tool call outside of runs, which is refused.

        While the agent replays a session it is history, and marked as such.
        """
        governor = self.governor
        if governor is None or not isinstance(update.data, dict):
            return update
        if self._stray is Stray.HISTORY:
            return replace(update, data=untrusted(update.data))
        if not governor.judges or not (is_call(update.data) or is_terminal(update.data)):
            return update
        if is_terminal(update.data):
            return None  # it is a call's, and there is none
        said = update.data
        if said.get("toolCallId") in self.calls and goes_on(said):
            return None  # the end of a call that was told, after its run
        self._refusing.start(
            governor.stray(
                self.thread or "",
                event_forms.named(said),
                said.get("rawInput"),
                call=str(said.get("toolCallId") or ""),
                why=OUTSIDE,
            )
        )
        return None

    async def _refused(self) -> None:
        await asyncio.wait([*self._refusing])
