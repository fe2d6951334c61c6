"""One prompt: what the agent says until it answers becomes events of the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

from msgspec import Raw, Struct
from msgspec.structs import replace

from adapters.agent_client.codec import content, turn
from adapters.agent_client.codec.updates_in import Chunk
from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.outbound.calls import Calls
from adapters.agent_client.outbound.connection import CANCEL, Connection
from adapters.agent_client.outbound.dialects import Decoder, Dialect, Prompt
from adapters.agent_client.outbound.dialects.v1 import V1
from adapters.agent_client.outbound.governed import preface
from adapters.agent_client.outbound.session import Session
from adapters.agent_client.outbound.sessions import Sessions
from adapters.agent_client.outbound.settings import configure
from adapters.agent_client.wire import NOTIFICATION, PROTOCOL
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentBroken, Conflict, IllegalEvent, InterlinguaError, Invalid, TooLarge, Unsupported
from gateway.core.files import Attachment
from gateway.core.types import Agent, Answer, Artifact, Interrupt, JsonObject, ThreadUpdate
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id, RpcError

log = logging.getLogger(__name__)

T = TypeVar("T")

DRAIN_EVERY = 256
"""Updates after which the run's log is asked whether it may grow,"""
DRAIN_BYTES = 256 * 1024
"""or bytes of them."""
INLINE_BYTES = 16_000_000
"""Of clients' files that are sent in one prompt; more of them are links, where the gateway has an address."""


class _Call(Struct, rename="camel", gc=False):
    tool_call_id: str
    kind: str | None = None


class Turn:
    """One run. `run` is its whole life; `cancel` may come at any time, `update` while the prompt is under way."""

    def __init__(self, target: AgentClientTarget, sessions: Sessions, context: RunContext) -> None:
        self.context = context
        self._target = target
        self._sessions = sessions
        self._session = sessions.of(context)
        self.dialect: Dialect = V1
        self._decoder: Decoder = V1.decoder(self._session)
        self._stop = asyncio.Event()
        self._told = False
        self._prompt_id: Id = None
        self._under_way: Prompt | None = None
        self._sent = self._forgotten = False
        self._count = self._bytes = 0
        self._held: list[e.Event] = []
        self._kinds: dict[str, set[str]] = {}
        self._questions = 0
        self._after: list[ThreadUpdate] = []
        self.over = False
        """Whether the agent has done what it was prompted to."""
        self.ended = asyncio.Event()
        """Set when the run has ended, too."""
        self._same = context.run.request.protocol == PROTOCOL
        self.calls = (
            Calls(context.governed, context.lost, self._session.calls) if context.governed is not None else None
        )
        """What the agent has said of its tool calls, where rules govern them."""

    async def run(self) -> None:
        """See `Outbound.run`."""
        session = self._session
        session.run = self
        try:
            async with session.in_use():
                try:
                    await self._run(session)
                finally:
                    self._leave(session)
        finally:
            if session.thread is None:
                self._sessions.close_soon(session)

    async def _run(self, session: Session) -> None:
        try:
            end = await self._turn(session)
        except RpcError as error:  # the agent's own words, which a client of its protocol gets to hear
            end = [self._cancelled() if self._stop.is_set() else turn.failed(error)]
        self.flush()
        if self.calls is not None:
            self.calls.over()
        failed = not isinstance(end[-1], e.RunFinished)
        self.context.emit(*self._decoder.close(failed=failed), *end)
        await self.context.drain()

    def _leave(self, session: Session) -> None:
        """The run has ended: tell what came after it."""
        if session.run is self:
            session.run = None
        for update in self._after:
            self.context.note(update)
        self.ended.set()

    async def cancel(self) -> None:
        """See `Outbound.cancel`."""
        self._stop.set()
        if self._sent:
            self._tell_cancel()
            if self._session.connection is not None:
                await self._session.connection.drain()

    # --- what the agent says and asks ------------------------------------------------------------------------------

    def update(self, update: Raw) -> Awaitable[None] | None:
        """A `session/update` of the turn. What is returned is to be awaited before the next."""
        try:
            found = self._decoder.feed(update)
        except AgentBroken as error:
            self._unread(error)
            return None
        return self._take(found, len(update), update)

    def more(self, chunk: Chunk) -> bool:
        """A chunk of text that goes on where the last one left off; False for another, or if it is time to drain.

        Those are for `update`. Whoever calls this calls `told` before he lets others run.
        """
        size = len(chunk.content.text)
        if self._count >= DRAIN_EVERY - 1 or self._bytes + size > DRAIN_BYTES:
            return False
        if (delta := self._decoder.more(chunk)) is None:
            return False
        self._held.append(delta)
        self._count += 1
        self._bytes += size
        return True

    def _take(
        self, found: list[e.Event | ThreadUpdate], size: int, update: Raw | None = None
    ) -> Awaitable[None] | None:
        try:
            files = self._emit(found, update)
        except (AgentBroken, IllegalEvent) as error:
            self._unread(error)
            return None
        return self._keep(files) if files else self._counted(size)

    def _unread(self, error: Exception) -> None:
        log.warning("run %s: %s", self.context.run.id, error)
        self.missed()

    def _hold(self, delta: e.PartDelta) -> None:
        """What arrives together is logged together, which is three times as fast."""
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

    def aside(self, update: ThreadUpdate) -> None:
        """What the agent says of its own, and not for the prompt: before that it has a place in the run, else after."""
        if self.over:
            self._after.append(update)
            return
        self.flush()
        said = self._session.dialect.aside(update)
        if said is None:
            self.context.note(update)
        else:
            self.context.emit(said)

    def told(self) -> None:
        """`flush`, for who cannot be told what is wrong with it."""
        try:
            self.flush()
        except InterlinguaError as error:
            self._unread(error)

    def flush(self) -> None:
        """Log what the agent has said by now. Raises IllegalEvent."""
        if self._held:
            held, self._held = self._held, []
            self.context.emit(*held)

    def kinds(self, call: str) -> set[str]:
        """What kinds of tool call the agent said it was, by its own id."""
        return self._kinds.get(call, set())

    def title(self, call: str) -> str | None:
        """What a tool call is called, as far as the agent has told it."""
        return self._decoder.title(call)

    def missed(self) -> None:
        """Something of the agent's could not be read."""
        self.context.lost("unreadable")

    def left_out(self) -> None:
        """A subagent said something in a session of its own."""
        self.context.lost("subagent")

    def name_question(self, kind: str) -> str:
        """An id for a question of this run's."""
        self._questions += 1
        return f"{kind}-{self._questions}"

    async def ask(self, interrupt: Interrupt) -> Answer:
        """Put a question to the run's client. A cancel, and the end of the run, answer it cancelled."""
        self.flush()
        return await self.context.ask(interrupt)

    def _emit(self, found: list[e.Event | ThreadUpdate], update: Raw | None = None) -> list[Attachment]:
        """Pass on, in order. Returns the files in it that are to be kept. `update` is what said it, unless a chunk."""
        if len(found) == 1 and type(found[0]) is e.PartDelta:
            self._hold(found[0])
            return []
        self.flush()
        if self.calls is not None:
            found = self.calls.described(found, update)
        files: list[Attachment] = []
        for item in found:
            if isinstance(item, ThreadUpdate):
                self._session.note(item)
                continue
            self.context.emit(item)
            if update is not None and isinstance(item, e.ToolCallStarted | e.ToolCallUpdated | e.ToolCallEnded):
                self._learn(update)
            elif isinstance(item, e.PartStarted) and item.kind == "file" and not self._same:
                file = content.file_of(item.value)
                if file is not None:
                    files.append(file)
        return files

    def _learn(self, update: Raw) -> None:
        """A tool call's kind, for the policy."""
        try:
            call = jsonrpc.unpack(update, _Call)
        except ValueError:
            return
        if call.kind is not None:
            self._kinds.setdefault(call.tool_call_id, set()).add(call.kind)

    async def _keep(self, files: list[Attachment]) -> None:
        for file in files:
            try:
                await self.context.add_artifact(file.name, file.content, media_type=file.media_type)
            except TooLarge as error:
                log.info("run %s: %s is not kept: %s", self.context.run.id, file.name, error)
                self.context.lost("file_too_large")
        await self.context.drain()

    # --- the turn ----------------------------------------------------------------------------------------------------

    async def _turn(self, session: Session) -> list[e.Event]:
        """From opening the session to the agent's answer, or its cancellation."""
        opened = await self._unless_stopped(self._sessions.open(session, self.context, self._lost))
        if opened is None:
            return [self._cancelled()]
        connection: Connection = opened
        self.dialect = connection.dialect
        self._decoder = self.dialect.decoder(session)
        if self._forgotten and self.context.governed is not None:
            await self.context.governed.forgotten()
        blocks = self._blocks(connection)
        config, patience = self.context.run.request.config, self._target.request_timeout
        if await self._unless_stopped(configure(session, connection, config, patience)) is None:
            return [self._cancelled()]
        await self.context.set_upstream({"session": session.name})
        if session.turn is not None:
            raise Conflict(f"session {session.name} is busy with another prompt")
        recalled = await self.context.recall(fresh=session.fresh)
        earlier = [content.block_of(recalled.before)] if recalled.before else []
        given = [file for file in await self.context.uploads() if file.id not in session.files]
        await self._sessions.told(session, [file.id for file in given])
        skills = preface(self.context.governed, connection.prompt_capabilities)
        blocks = [*skills, *earlier, *blocks, *await self._files(given, connection)]
        prompt = asyncio.ensure_future(self._prompt(session, connection, self._params(session, blocks)))
        try:
            ended = await asyncio.shield(prompt)
        except asyncio.CancelledError:
            self._give_up(connection, prompt)
            raise
        if ended is None:
            return [self._cancelled()]
        *before, end = ended
        return [*before, self._cancelled() if self._stop.is_set() and isinstance(end, e.RunFinished) else end]

    def _lost(self, what: str) -> None:
        self._forgotten = True
        self.context.lost(what)

    async def _prompt(self, session: Session, connection: Connection, params: JsonObject) -> list[e.Event] | None:
        """The prompt and its end; None if the run was cancelled before it was sent."""
        if self._stop.is_set():
            return None
        self._under_way = connection.dialect.prompt(self, session)
        return await self._under_way.run(connection, params, self._named)

    def _give_up(self, connection: Connection, prompt: asyncio.Future[Any]) -> None:
        """Nobody waits for the end any more; until it comes, the agent is busy with what was asked."""
        self._stop.set()
        self.flush()
        session = self._session
        under_way = self._under_way
        if self._sent and under_way is not None and not prompt.done():
            self._tell_cancel()
            if not under_way.answered:
                connection.tell(CANCEL, {"requestId": self._prompt_id})
            session.zombie = prompt
            if session.turn is self:
                session.turn = None

        def answered(it: asyncio.Future[Any]) -> None:
            it.cancelled() or it.exception()  # whatever it is, it comes too late
            if session.zombie is it:
                session.zombie = None

        prompt.add_done_callback(answered)

    def _tell_cancel(self) -> None:
        connection = self._session.connection
        if not self._told and connection is not None:
            self._told = True
            connection.tell("session/cancel", {"sessionId": self._session.name})
            if self._under_way is not None:
                self._under_way.cancelling()

    def _named(self, id: Id) -> None:
        self._prompt_id, self._sent = id, True

    def _cancelled(self) -> e.RunCancelled:
        return e.RunCancelled(reason=self.context.run.cancel_reason or "")

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What it gives; None where the run is cancelled first. The work itself goes on: others may need it."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            stopped.cancel()
        if not (self._stop.is_set() or self.context.cancelled):
            return task.result()
        if self._session.thread is None:
            task.cancel()
            await asyncio.wait([task])
        self._session.leave(task)
        return None

    def _blocks(self, connection: Connection) -> list[JsonObject]:
        """The prompt. Raises Invalid for what is no content, Unsupported for content that the agent did not declare."""
        request = self.context.run.request
        try:
            return content.blocks_of(request, _taking(self.context.agent, connection.prompt_capabilities))
        except Invalid as error:
            content.blocks_of(request, _taking(self.context.agent, content.EVERYTHING))
            raise Unsupported(str(error), detail=error.detail) from error

    async def _files(self, given: Sequence[Artifact], connection: Connection) -> list[JsonObject]:
        """Blocks for files that clients gave. What cannot be sent at all is counted."""
        blocks: list[JsonObject] = []
        left = INLINE_BYTES
        for file in given:
            left -= file.size
            contents = await self.context.contents([file.id]) if left >= 0 or not content.is_link(file) else {}
            block = content.block_for(file, contents.get(file.id), connection.prompt_capabilities)
            if block is None:
                self.context.lost("file_not_sent")
            else:
                blocks.append(block)
        return blocks

    def _params(self, session: Session, blocks: list[JsonObject]) -> JsonObject:
        creation = self.context.run.request.creation if self._same else {}
        meta = creation.get("_meta")
        meta = dict(meta) if isinstance(meta, dict) else {}
        if self.context.traceparent is not None:
            meta["traceparent"] = self.context.traceparent
        params = {**creation, "sessionId": session.name, "prompt": blocks}
        return {**params, "_meta": meta} if meta else params


def _taking(agent: Agent, capabilities: JsonObject) -> Agent:
    """The agent with these prompt capabilities."""
    return replace(agent, extra={PROTOCOL: {"agentCapabilities": {"promptCapabilities": capabilities}}})
