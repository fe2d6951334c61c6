"""A prompt at an agent. The answer of one of version 1 is its end; one of version 2 is told from other work (docs:
v2/prompt-lifecycle, v2/migration; RFD).

An agent's foreground work ends with an idle `state_update`, which names no prompt. A prompt is at its end with the
first one that can be its own:

- Where the agent worked on something else when the prompt was sent, what it says belongs to that until it is idle, or
  until the user's message appears among its updates, for then it has taken the prompt in.
- Updates may come before the prompt is acknowledged, and so may the end, after the user's message. The end counts once
  the prompt is acknowledged, since the agent may refuse it instead.
- Where work begins after the prompt was sent and before the agent has told that it took it, what comes is held. It is
  somebody else's if the agent then says, by its message or the acknowledgement's `messageId`, that it takes it now.
- A state may be told again, with the last stop reason. An idle that was not preceded by work or by anything said, and
  that says what the one before it said, is such a repetition; unless nothing comes after it, for a few seconds.
- After `session/cancel` any idle is the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from adapters.agent_client.codec import turn as codec
from adapters.agent_client.codec.updates_in import Chunk
from adapters.agent_client.codec.v2 import turn as turn_v2
from adapters.agent_client.codec.v2.wire import IDLE, REQUIRES_ACTION, RUNNING, STATE, SUBAGENT
from adapters.agent_client.outbound.turn import AgentTurn
from adapters.agent_client.wire import JsonObject
from gateway.contract import ThreadContext
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentGone, InterlinguaError
from gateway.wire import jsonrpc

T = TypeVar("T")

WORKING = (RUNNING, REQUIRES_ACTION)
USERS = ("user_message", "user_message_chunk")
MAX_SUBAGENTS = 1000
"""Sessions of subagents that are remembered."""
MAX_HELD = 1000
"""Updates that are held; from more it is concluded that they are somebody else's."""
CERTAIN_AFTER = 5.0
"""Seconds of silence after which an idle that only repeated what was said is the end."""
ACKNOWLEDGED_WITHIN = 5.0
"""Seconds that an agent that has ended a prompt has to acknowledge it."""


Answered: TypeAlias = Callable[[Raw | InterlinguaError], None]
"""Given a request's answer, or the error."""


class PromptedSession(Protocol):
    """A session that is prompted: see `AgentSession`. It is told which of the agent's updates are the turn's."""

    def begin(self, turn: AgentTurn) -> None: ...

    def wait(self, turn: AgentTurn) -> None: ...

    def end(self, turn: AgentTurn) -> None: ...

    def take(self, update: Raw) -> Awaitable[None] | None: ...

    def stray(self, update: Raw) -> None: ...


class PromptedConnection(Protocol):
    """The connection that a prompt is sent on: see `AgentConnection`."""

    closed: asyncio.Future[AgentGone]

    def send(self, method: str, params: Any, context: ThreadContext, answered: Answered) -> jsonrpc.Id: ...

    def withdraw(self, asked: jsonrpc.Id) -> None: ...


class AnsweredPrompt:
    """One prompt at the agent, whose answer is its end. `send` is called once.

    asked: the id of the request. answered: whether it has been answered, so that it cannot be withdrawn any more.
    """

    asked: jsonrpc.Id = None
    answered = False

    def __init__(self, session: PromptedSession, turn: AgentTurn) -> None:
        self._session = session
        self._turn = turn
        self._end: asyncio.Future[list[e.Event] | InterlinguaError] = asyncio.get_running_loop().create_future()

    def send(self, connection: PromptedConnection, params: JsonObject) -> None:
        """Raises AgentGone."""
        self._session.begin(self._turn)
        try:
            self.asked = connection.send("session/prompt", params, self._turn.context, self._came)
        except BaseException:
            self._session.end(self._turn)
            raise

    def _came(self, answer: Raw | InterlinguaError) -> None:
        """The end is where the answer stands among the messages, not when the run has seen it."""
        self.answered = True
        self._session.end(self._turn)
        if (end := self.owed()) is not None:
            try:
                end.set_result(answer if isinstance(answer, InterlinguaError) else codec.ended(answer))
            except AgentBroken as error:
                end.set_result(error)

    async def end(self) -> list[e.Event]:
        """Wait for its end, last a RunFinished, RunCancelled or RunFailed. Raises RpcError, and the errors of the tree.

        Whoever waits may be cancelled: see `owed`.
        """
        end = await self._end
        if isinstance(end, InterlinguaError):
            raise end
        return end

    def owed(self) -> asyncio.Future[Any] | None:
        """The end, which is not waited for any more; None if it has come."""
        if self._end.cancelled():
            self._end = asyncio.get_running_loop().create_future()
        return None if self._end.done() else self._end

    def cancelling(self) -> None:
        """The agent was told to cancel; its answer says what came of it."""


# --- version 2 --------------------------------------------------------------------------------------------------------


class _Peek(Struct, rename="camel", gc=False):
    session_update: str
    state: Any = None
    stop_reason: Any = None
    session_id: Any = None


_peek = msgspec.json.Decoder(_Peek).decode


class Foreground:
    """The work of an agent of version 2 in one session, which need not be a prompt.

    working: whether it said that it works.
    """

    def __init__(self) -> None:
        self.working = False
        self._prompt: AcknowledgedPrompt | None = None
        self._last: Any = None
        self._news = False
        self._subagents: dict[str, None] = {}

    @property
    def busy(self) -> bool:
        """Whether it works, or has a prompt that it may not have taken yet."""
        return self.working or self._prompt is not None

    def more(self, chunk: Chunk) -> bool:
        """A chunk of text. False for one that is to be given to `update`: it is held, or says more than its text."""
        if chunk.kind in USERS or (self._prompt is not None and self._prompt.holding):
            return False
        self._news = True
        if self._prompt is not None:
            self._prompt.doubt(None)
        return True

    def update(self, update: Raw, take: Callable[[Raw], T]) -> T | None:
        """Any update; `take` passes it on, unless it is held."""
        found = self._read(update)
        taken = None
        if self._prompt is not None and self._prompt.holding:
            self._prompt.hold(update)
        else:
            taken = take(update)
        if found is not None and found.state == IDLE:
            self._idle(found.stop_reason, update)
        return taken

    def of_subagent(self, name: str, update: Raw) -> bool:
        """Whether an update of a session that no client opened is of a subagent that was announced here, or by one."""
        if name not in self._subagents:
            return False
        with contextlib.suppress(ValueError, RecursionError):
            self._announced(_peek(update))
        return True

    def began(self, prompt: AcknowledgedPrompt) -> None:
        self._prompt = prompt
        self._news = False

    def ended(self, prompt: AcknowledgedPrompt) -> None:
        if self._prompt is prompt:
            self._prompt = None

    def _read(self, update: Raw) -> _Peek | None:
        """Before it is passed on; the state that it tells, if it does."""
        try:
            found = _peek(update)
        except (ValueError, RecursionError):
            return None
        kind = found.session_update
        if kind != STATE:
            self._announced(found)
            self._news = self._news or kind.startswith(("agent_", "tool_"))
            if self._prompt is not None:
                self._prompt.doubt(None)
                if kind in USERS:
                    self._prompt.inserted()
            return None
        if found.state in WORKING:
            self.working = self._news = True
            if self._prompt is not None:
                self._prompt.doubt(None)
                self._prompt.works()
        return found

    def _announced(self, update: _Peek) -> None:
        if update.session_update == SUBAGENT and isinstance(update.session_id, str):
            self._subagents[update.session_id] = None
            if len(self._subagents) > MAX_SUBAGENTS:
                del self._subagents[next(iter(self._subagents))]

    def _idle(self, reason: Any, update: Raw) -> None:
        repeated = not self._news and (reason is None or reason == self._last)
        if reason is not None:
            self._last = reason
        self.working = self._news = False
        if self._prompt is not None:
            self._prompt.idle(update, repeated=repeated)


class AcknowledgedPrompt:
    """A prompt that the agent acknowledges, and whose end it tells. See `AnsweredPrompt`."""

    asked: jsonrpc.Id = None
    answered = False

    def __init__(self, session: PromptedSession, turn: AgentTurn, foreground: Foreground) -> None:
        self._session = session
        self._turn = turn
        self._foreground = foreground
        self._run: asyncio.Task[list[e.Event]]
        self._answer: asyncio.Future[InterlinguaError | None] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[list[e.Event]] = asyncio.get_running_loop().create_future()
        self._waits = foreground.working
        """Whether the agent is at something else."""
        self._inserted = False
        self.holding = False
        self._held: list[Raw] = []
        self._early: Raw | None = None
        """That the agent is idle, said before anything told that it has taken the prompt."""
        self._doubt: asyncio.TimerHandle | None = None
        self._cancelling = False

    def send(self, connection: PromptedConnection, params: JsonObject) -> None:
        self._foreground.began(self)
        if not self._waits:
            self._session.begin(self._turn)
        self._run = asyncio.ensure_future(self._ends(connection))
        try:
            self.asked = connection.send("session/prompt", params, self._turn.context, self._accepted)
        except AgentGone as error:
            self._accepted(error)

    def end(self) -> Awaitable[list[e.Event]]:
        return asyncio.shield(self._run)

    def owed(self) -> asyncio.Future[Any] | None:
        return None if self._run.done() else self._run

    async def _ends(self, connection: PromptedConnection) -> list[e.Event]:
        """Raises AgentGone if the agent ends before the prompt does, and what the answer is if it is an error."""
        answer, closed = self._answer, connection.closed
        try:
            await _first(answer, self._ended, closed)
            if not answer.done():
                await _first(answer, closed, timeout=ACKNOWLEDGED_WITHIN)
            if answer.done() and (refused := answer.result()) is not None:
                raise refused
            await _first(self._ended, closed)
            if not self._ended.done():
                raise closed.result()
            return self._ended.result()
        finally:
            self._over()
            self._release(self._session.stray)
            if not answer.done():
                connection.withdraw(self.asked)

    def _accepted(self, answer: Raw | InterlinguaError) -> None:
        """Its acknowledgement; with the id of a message, it is in the conversation now."""
        self.answered = True
        self._answer.set_result(answer if isinstance(answer, InterlinguaError) else None)
        if isinstance(answer, InterlinguaError):
            return
        if jsonrpc.members(answer).get("messageId"):
            self.inserted()
        else:
            self._release(self._session.take)
            if self._early is not None:
                self._end(self._early)

    def works(self) -> None:
        """The agent says that it works. Unless it is known for what, it may be for something else."""
        self.holding = not (self._waits or self._inserted or self.answered or self._cancelling)

    def hold(self, update: Raw) -> None:
        """An update that may be this prompt's, or not: it will show when the prompt is acknowledged."""
        self._held.append(update.copy())
        if len(self._held) > MAX_HELD:
            self._waits = True
            self._session.wait(self._turn)
            self._release(self._session.stray)

    def _release(self, take: Callable[[Raw], Any]) -> None:
        self.holding, held, self._held = False, self._held, []
        for update in held:
            take(update)

    def inserted(self) -> None:
        """The user's message is in the conversation: from here on all is this prompt's."""
        self._inserted, self._early = True, None
        self._release(self._session.stray)
        if self._waits:
            self._begin()

    def cancelling(self) -> None:
        self._cancelling = True
        self._release(self._session.take)

    def idle(self, update: Raw, *, repeated: bool) -> None:
        """The agent is idle. `repeated` is whether that is no news."""
        if self._cancelling:
            self._end(update)
        elif self._waits:
            self._begin()
        elif not (self._inserted or self.answered):
            self._early = None if repeated else update.copy()
        elif not repeated:
            self._end(update)
        else:
            self.doubt(update)

    def doubt(self, update: Raw | None) -> None:
        """It may be the end, if nothing comes any more. None: something came."""
        if self._doubt is not None:
            self._doubt.cancel()
            self._doubt = None
        if update is not None:
            self._doubt = asyncio.get_running_loop().call_later(CERTAIN_AFTER, self._end, update.copy())

    def _end(self, update: Raw) -> None:
        if not self._ended.done():
            self._ended.set_result(turn_v2.ended(jsonrpc.unpack(update)))
        self._over()

    def _begin(self) -> None:
        self._waits = False
        self._session.begin(self._turn)

    def _over(self) -> None:
        """Called when this prompt's part has ended: what comes next is not this prompt's."""
        self.doubt(None)
        self._session.end(self._turn)
        self._foreground.ended(self)


async def _first(*waited: asyncio.Future[Any], timeout: float | None = None) -> None:
    await asyncio.wait(waited, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
