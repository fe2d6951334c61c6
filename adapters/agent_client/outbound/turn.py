"""One run's turn of a session: the agent's updates become events of the run, until its prompt is at its end."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Raw, Struct

from adapters.agent_client.codec import content
from adapters.agent_client.codec.updates_in import Chunk, SpokenSession, UpdateDecoder
from adapters.agent_client.codec.version import V1, ProtocolVersion
from adapters.agent_client.outbound.tool_calls import AgentToolCalls
from adapters.agent_client.wire import NOTIFICATION, PROTOCOL
from gateway.contract import RunContext, governing
from gateway.core import events as e
from gateway.core import files
from gateway.core.errors import AgentBroken, IllegalEvent, InterlinguaError, TooLarge
from gateway.core.types import Answer, Interrupt, JsonObject, ThreadUpdate
from gateway.transport.waiting import Flag
from gateway.wire import jsonrpc

log = logging.getLogger(__name__)

DRAIN_EVERY = 256
"""Updates after which the run's log is asked whether it may grow,"""
DRAIN_BYTES = 256 * 1024
"""or bytes of them."""
_OF_CALLS = (e.ToolCallStarted, e.ToolCallUpdated, e.ToolCallEnded)


class TurnPhase(enum.StrEnum):
    """Where a turn's prompt is."""

    WAITING = "not taken by its agent yet"
    WORKING = "worked on"
    OWED = "given up before its end"
    OVER = "over"


class TurnStep(enum.StrEnum):
    """A step of a turn."""

    BEGIN = "begin"
    """The agent's updates belong to the prompt from here on."""
    WAIT = "wait"
    """It is something else's after all, until the prompt begins."""
    END = "end"
    """The agent has done what it was prompted to."""
    GIVE_UP = "give up"
    """The end is no longer waited for."""
    SETTLE = "settle"
    """The end that nobody waited for has come, or its connection has ended."""


TURN: Final[dict[tuple[TurnPhase, TurnStep], TurnPhase]] = {
    (TurnPhase.WAITING, TurnStep.BEGIN): TurnPhase.WORKING,
    (TurnPhase.WAITING, TurnStep.END): TurnPhase.OVER,
    (TurnPhase.WAITING, TurnStep.GIVE_UP): TurnPhase.OWED,
    (TurnPhase.WORKING, TurnStep.WAIT): TurnPhase.WAITING,
    (TurnPhase.WORKING, TurnStep.END): TurnPhase.OVER,
    (TurnPhase.WORKING, TurnStep.GIVE_UP): TurnPhase.OWED,
    # until it is settled, the agent may do with it what it does with any
    **{(TurnPhase.OWED, step): TurnPhase.OWED for step in (TurnStep.BEGIN, TurnStep.WAIT, TurnStep.END)},
    (TurnPhase.OWED, TurnStep.SETTLE): TurnPhase.OVER,
    # an agent of version 2 may acknowledge a prompt after its end, and its run may be ended meanwhile
    (TurnPhase.OVER, TurnStep.BEGIN): TurnPhase.OVER,
    (TurnPhase.OVER, TurnStep.END): TurnPhase.OVER,
    (TurnPhase.OVER, TurnStep.GIVE_UP): TurnPhase.OWED,
}


class _Call(Struct, rename="camel", gc=False):
    tool_call_id: str
    kind: str | None = None


class AgentTurn:
    """The agent's work for one run. `update` is called while the agent works on the run's prompt.

    phase: where the prompt is. ended: set when the run has ended, too. rules: those that govern the run.
    calls: what the agent has said of its tool calls, where rules govern them.
    """

    phase = TurnPhase.WAITING
    _version: ProtocolVersion = V1
    _count = _bytes = _questions = 0

    def __init__(self, context: RunContext, note: Callable[[ThreadUpdate], None], heard: dict[str, None]) -> None:
        """`note` tells the conversation; `heard` are the ids of the session's tool calls, see `AgentToolCalls`."""
        self.context = context
        self.ended = Flag()
        self.rules = governing.run_governor_of(context)
        self.calls = AgentToolCalls(self.rules, context.lost, heard) if self.rules is not None else None
        self._note = note
        self._decoder: UpdateDecoder = V1.session().decoder()
        self._held: list[e.Event] = []
        self._kinds: dict[str, set[str]] = {}
        self._after: list[ThreadUpdate] = []

    def speak(self, version: ProtocolVersion, spoken: SpokenSession) -> None:
        """The session is open, and this is what its agent speaks."""
        if version is not self._version:
            self._version, self._decoder = version, spoken.decoder()

    def advance(self, step: TurnStep) -> TurnPhase:
        """Something has happened to the prompt; where it is then. Raises IllegalEvent."""
        if (after := TURN.get((self.phase, step))) is None:
            raise IllegalEvent(f"{step.value} of a prompt that is {self.phase.value}")
        self.phase = after
        return after

    def finish(self, end: list[e.Event]) -> None:
        """Log what is left of what the agent said, and the run's end. Raises IllegalEvent."""
        self.flush()
        if self.calls is not None:
            self.calls.over()
        failed = not isinstance(end[-1], e.RunFinished)
        self.context.emit(*self._decoder.close(failed=failed), *end)

    def leave(self) -> None:
        """The run has ended: note what came after its prompt's end."""
        for update in self._after:
            self.context.note(update)
        self.ended.set()

    # --- what the agent says and asks ------------------------------------------------------------------------------

    def update(self, update: Raw) -> Awaitable[None] | None:
        """A `session/update` of the turn. What is returned is to be awaited before the next."""
        try:
            kept = self._emit(self._decoder.feed(update), update)
        except (AgentBroken, IllegalEvent) as error:
            self._unread(error)
            return None
        return self._keep(kept) if kept else self._counted(len(update))

    def more(self, chunk: Chunk) -> bool:
        """A chunk of text; False if it is time to drain: it is for `update` then.

        The caller calls `told` before it lets others run.
        """
        size = len(chunk.content.text)
        if self._count >= DRAIN_EVERY - 1 or self._bytes + size > DRAIN_BYTES:
            return False
        if (delta := self._decoder.more(chunk)) is not None:
            self._held.append(delta)
        else:
            try:
                self._emit(self._decoder.begun(chunk), Raw())
            except (AgentBroken, IllegalEvent) as error:
                self._unread(error)
        self._count += 1
        self._bytes += size
        return True

    def _unread(self, error: Exception) -> None:
        log.warning("run %s: %s", self.context.run.id, error)
        self.missed()

    def _hold(self, delta: e.PartDelta) -> None:
        """Hold a delta, to log it with those that arrive together with it: three times as fast."""
        if not self._held:
            asyncio.get_running_loop().call_soon(self.told)
        self._held.append(delta)

    def _counted(self, size: int) -> Awaitable[None] | None:
        self._count += 1
        self._bytes += size
        if self._count < DRAIN_EVERY and self._bytes <= DRAIN_BYTES:
            return None
        self._count = self._bytes = 0
        self.flush()
        return self.context.drain()

    def notify(self, method: str, params: Raw) -> None:
        """A notification of the agent's own, for clients of its protocol."""
        self.flush()
        data = {NOTIFICATION: method, "params": jsonrpc.unpack(params) if params else None}
        self.context.emit(e.Custom(name=PROTOCOL, data=data))

    def aside(self, update: ThreadUpdate, event: e.Custom | None) -> None:
        """Take an update beside the prompt: it has a place in the run before the prompt's end, else after it.

        `event`: what it is in the run, if it is not noted.
        """
        if self.phase is TurnPhase.OVER:
            self._after.append(update)
            return
        self.flush()
        if event is None:
            self.context.note(update)
        else:
            self.context.emit(event)

    def told(self) -> None:
        """`flush`, for a caller that can do nothing about an error."""
        try:
            self.flush()
        except InterlinguaError as error:
            self._unread(error)

    def flush(self) -> None:
        """Log what the agent has said by now. Raises IllegalEvent."""
        if self._held:
            held, self._held = self._held, []
            self.context.emit(*held)

    def question(self, asked: JsonObject) -> Interrupt:
        known = self._decoder.call(str(asked["toolCall"].get("toolCallId")))
        return self._version.permission(asked, self.name_question("permission"), known)

    def asked(self, call: JsonObject, *, told: bool) -> None:
        """See `UpdateDecoder.asked`."""
        self.flush()
        self.context.emit(*self._decoder.asked(call, told=told))

    def kinds(self, call: str) -> set[str]:
        return self._kinds.get(call, set())

    def missed(self) -> None:
        self.context.lost("unreadable")

    def left_out(self) -> None:
        self.context.lost("subagent")

    def name_question(self, kind: str) -> str:
        self._questions += 1
        return f"{kind}-{self._questions}"

    async def ask(self, interrupt: Interrupt) -> Answer:
        """Put a question to the run's client. A cancel, and the end of the run, answer it cancelled."""
        self.flush()
        return await self.context.ask(interrupt)

    def _emit(self, found: list[e.Event | ThreadUpdate], update: Raw) -> list[files.Attachment]:
        """Pass on, in order, what `update` said. Returns the files in it that are to be kept."""
        if len(found) == 1 and type(found[0]) is e.PartDelta:
            self._hold(found[0])
            return []
        self.flush()
        if self.calls is not None:
            found = self.calls.described(found, update)
        kept: list[files.Attachment] = []
        said: list[e.Event] = []
        same = self.context.run.request.protocol == PROTOCOL
        if same and e.OF_MESSAGES.issuperset(map(type, found)):
            self.context.emit(*found)  # type: ignore[arg-type]
            return kept
        for item in found:
            if isinstance(item, ThreadUpdate):
                self.context.emit(*said)
                said = []
                self._note(item)
                continue
            said.append(item)
            if isinstance(item, e.PartStarted):
                if item.kind == "file" and not same and (file := content.file_of(item.value)) is not None:
                    kept.append(file)
            elif isinstance(item, _OF_CALLS):
                self._learn(update)
        self.context.emit(*said)
        return kept

    def _learn(self, update: Raw) -> None:
        try:
            call = jsonrpc.unpack(update, _Call)
        except ValueError:
            return
        if call.kind is not None:
            self._kinds.setdefault(call.tool_call_id, set()).add(call.kind)

    async def _keep(self, kept: list[files.Attachment]) -> None:
        for file in kept:
            try:
                await self.context.add_artifact(file.name, file.content, media_type=file.media_type)
            except TooLarge as error:
                log.info("run %s: %s is not kept: %s", self.context.run.id, file.name, error)
                self.context.lost("file_too_large")
        await self.context.drain()
