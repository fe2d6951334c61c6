"""One session as one connection has it open: what happens on its thread is told, and prompts are taken, one at a time.

Everything a client is told of a session comes out of one task, in the order in which it happened. The session itself is
the gateway's thread: it lives on when the connection has gone, and may be open on several.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec import errors
from adapters.agent_client.codec.updates_out import envelope
from adapters.agent_client.governed import untrusted_bytes
from adapters.agent_client.inbound import governed, replay, turns
from adapters.agent_client.inbound.follow import Follow
from adapters.agent_client.inbound.turns import Turn
from adapters.agent_client.tunnel import mcp_messages as tunnel
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.contract import Governor, ThreadWatch
from gateway.core.errors import (
    AgentGone,
    Conflict,
    Denied,
    InterlinguaError,
    Invalid,
    NotFound,
    Unavailable,
    Unsupported,
)
from gateway.core.types import Interrupt, Run, Thread, ThreadUpdate
from gateway.wire.jsonrpc import read

if TYPE_CHECKING:
    from adapters.agent_client.inbound.connection import Connection

log = logging.getLogger(__name__)

TITLE = 80
"""Characters of the first prompt that a session is listed by, until its agent names it."""
STOP_SECONDS = 5.0
"""For the client of a session that is closed to be told how its last turn ended."""


class Way(enum.Enum):
    """How a session is opened: only `LOAD` tells what was. `TAKEN`: its client has not asked for it to be opened."""

    NEW = "new"
    LOAD = "load"
    RESUME = "resume"
    TAKEN = "taken"


class Session:
    """`open` it, `go` when its client knows of it, `close` it. `agent` may be changed between turns."""

    def __init__(self, connection: Connection, thread: Thread, agent: str, params: Raw) -> None:
        """`params` are those it was opened with: what an agent that is chosen later is told."""
        self.connection = connection
        self.gateway = connection.gateway
        self.id = thread.id
        self._whole = connection.clients.whole
        self.agent = agent
        self.params = params
        self.way = Way.NEW
        self.config: JsonObject = thread.attributes.get("config") or {}
        self.turn: Turn | None = None
        self.replaying = False
        """Whether the client is being told what was, by `session/load`."""
        self._thread = thread
        self._titled = "title" in thread.attributes
        self.voice = connection.dialect.voice(self)
        self._follow: Follow | None = None
        self._seen: set[str] = set()
        self._gate = asyncio.Event()
        self._ready = asyncio.Event()
        self._failed: Exception | None = None
        self._closed = False
        self._idle = asyncio.Event()
        self._envelope = envelope(self.id)
        self._task: asyncio.Task[None] | None = None

    # --- life -------------------------------------------------------------------------------------------------

    async def open(self, way: Way) -> None:
        """Watch the thread, and tell what is to be told before the client is answered. Raises NotFound.

        What happens from now on is told once `go` was called.
        """
        self.way = way
        try:
            if way is not Way.NEW:
                await self.voice.prepare()
            if self._closed:
                raise Unavailable(f"session {self.id} was closed")
            self.connection.clients.opened(self)
            self._task = asyncio.create_task(self._live(way), name=f"session {self.id}")
            await self._ready.wait()
        except BaseException:
            await self.close()
            raise
        if self._failed is not None:
            await self.close()
            raise self._failed

    @property
    def alive(self) -> bool:
        """Whether it is followed; False if that has failed, and it is to be opened again."""
        return self._task is None or not self._task.done()

    @property
    def opened(self) -> bool:
        """Whether it is known what runs in it, or it could not be opened."""
        return self._ready.is_set()

    def go(self) -> None:
        """The client has been answered, and knows the session."""
        self._gate.set()

    async def close(self) -> None:
        """Follow it no more, also if it is being opened. A run in progress goes on."""
        self._closed = True
        self.connection.clients.closed(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._ready.set()

    async def caught_up(self) -> None:
        """Wait until everything that has happened by now was told (to whom it is told before `go`)."""
        for _ in range(3):  # a listener that has news needs a turn of the loop or two to go on
            await asyncio.sleep(0)
        await self._idle.wait()

    async def told(self) -> None:
        """The same, but not for long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self.caught_up()

    @property
    def resumed(self) -> bool:
        """Whether its client has asked for it as it was."""
        return self.way in (Way.LOAD, Way.RESUME)

    # --- what the client is told ------------------------------------------------------------------------------

    def say(self, *updates: bytes) -> None:
        """Send updates, in this order. Dropped if the client has gone."""
        if self.choosing:
            updates = tuple(map(self.voice.completed, updates))
        self.tell(*updates)

    def tell(self, *updates: bytes) -> None:
        """The same for updates that need nothing added."""
        if self.replaying and self.governor is not None:
            updates = tuple(map(untrusted_bytes, updates))
        self.connection.say(self._envelope(updates))

    # --- beside turns -----------------------------------------------------------------------------------------

    @property
    def governor(self) -> Governor | None:
        """What governs its agent."""
        return governed.of(self.gateway, self.agent)

    @functools.cached_property
    def servers(self) -> list[tunnel.Offered]:
        """The MCP servers that its client offers without an address."""
        return tunnel.offered(read(self.params, wire.NewSession).mcp_servers)

    @property
    def choosing(self) -> bool:
        """Whether its client may choose the agent."""
        return self.connection.agent is None

    @property
    def busy(self) -> bool:
        """Whether a run goes on."""
        return self.turn is not None or self._follow is not None

    def elsewhere(self) -> list[Session]:
        """The same session as other connections have it open."""
        return [session for session in self.connection.clients.open(self.id) if session is not self]

    async def relay(self, method: str, params: Raw, told: Callable[[ThreadUpdate], None] | None = None) -> Raw:
        """Hand a request to the agent. Raises Unsupported if it does not speak this protocol itself.

        `told`: see `Gateway.relay`.
        """
        return await self.gateway.relay(self.agent, PROTOCOL, method, params, thread=self.id, told=told)

    async def change(self, attributes: JsonObject) -> None:
        """Keep something on the thread. Raises NotFound."""
        await self._whole(self.gateway.update_thread(self.id, attributes=attributes))

    # --- turns ------------------------------------------------------------------------------------------------

    async def prompt(self, asked: wire.Prompt, params: Raw, *, cancelled: bool = False) -> JsonObject:
        """The answer of `session/prompt`. `cancelled`: it was given up before this session was open.

        Raises Conflict while there is another, Invalid for content that the agent cannot take, the agent's own
        RpcError and the errors of the tree.
        """
        if self.turn is not None:
            raise Conflict(f"session {self.id} is busy with its last prompt")
        return await self.voice.prompt(asked, params, cancelled=cancelled)

    async def take(self, turn: Turn, asked: wire.Prompt, params: Raw) -> bool:
        """Begin what a prompt asks for, whose `turn` this is. False if it was cancelled before anything has begun.

        Raises Invalid for content that the agent cannot take, and the errors of the tree.
        """
        agent = await self.gateway.agent(self.agent, PROTOCOL)
        governed.check(asked.prompt, agent, self.governor)
        said = turns.read(asked, agent)
        question = self._follow.questions.waiting if self._follow else None
        if self._follow is not None and question is not None:
            if said.files:
                raise Invalid("an answer is text", path=said.place)
            await self._answer(turn, self._follow, question, said.text)
        elif turn.cancelled:
            return False
        else:
            request = turns.request_of(
                turn,
                asked,
                params,
                agent,
                text=said.text,
                thread=self._thread,
                config=self.config,
                principal=self.connection.visitor.name,
                tools=self.connection.visitor.tools,
            )
            try:
                run = await self._whole(self.gateway.start(request, files=said.files))
            except Unsupported as error:
                raise Invalid(str(error), path=said.place) if said.files else error from None
            turn.run = run.id
            await self._title(said.text)
        if turn.cancelled and turn.run is not None:
            await self.connection.cancel_run(turn.run)
        return True

    async def _title(self, text: str) -> None:
        """The session is listed by the first thing that was said in it."""
        if not self._titled and text.strip():
            self._titled = True
            with contextlib.suppress(InterlinguaError):
                await self.change({"title": " ".join(text.split())[:TITLE]})

    async def _answer(self, turn: Turn, follow: Follow, question: Interrupt, text: str) -> None:
        """The prompt is the answer to a question that the last turn ended with."""
        turn.run, turn.answers = follow.run.id, question.id
        try:
            await follow.questions.answer(question, text)
        except Denied as error:  # somebody else may answer it
            self.voice.misunderstood(turn, follow.questions, question, Invalid(str(error)))
        except Invalid as error:
            self.voice.misunderstood(turn, follow.questions, question, error)

    def cancel(self) -> None:
        """`session/cancel`: ends the turn, or the run that waits for a prompt as its answer."""
        run = self._follow.run.id if self._follow else None
        if self.turn is not None:
            self.turn.cancelled = True
            run = self.turn.run  # without one yet, the turn itself sees to it
        if run is not None:
            self.connection.keep(self.connection.cancel_run(run))

    async def stop(self) -> None:
        """Cancel what runs and wait until it has ended (`session/close`, `session/delete`). Raises Unavailable where
        that cannot be done: another gateway process drives it.
        """
        if self.turn is not None:
            self.turn.cancelled = True
        for run in await replay.active(self.gateway, self.id):
            with contextlib.suppress(NotFound):
                await self._whole(self.gateway.cancel(run.id, reason="the session was closed", wait=True))
        if self.turn is not None:
            await asyncio.wait([self.turn.over], timeout=STOP_SECONDS)
        await self.voice.settled()

    # --- what the run being followed reports ------------------------------------------------------------------

    def owns(self, run: Run) -> bool:
        """Whether the prompt that waits for its answer is this run's."""
        turn = self.turn
        if turn is None:
            return False
        if turn.run is None and run.request.attributes.get(turns.MARK) == turn.mark:
            turn.run = run.id
        return turn.run == run.id

    def asked(self, run: Run) -> None:
        """The client was told a question that its next prompt answers."""
        self.voice.asked(self.turn if self.owns(run) else None)

    # --- inside -----------------------------------------------------------------------------------------------

    async def _live(self, way: Way) -> None:
        try:
            async with self.gateway.join(self.id, self.connection) as news:
                if way is Way.NEW:
                    await self._told()
                else:
                    self.replaying = way is Way.LOAD
                    await replay.past(self, everything=self.replaying, told=self._told)
                await self._listen(news)
        except AgentGone:
            return  # the client has gone: its connection is about to end
        except InterlinguaError as error:
            self._fail(error)
        except Exception as error:
            log.exception("session %s failed", self.id)
            self._fail(error)
        finally:
            if not self._ready.is_set():
                self._failed = self._failed or Unavailable(f"session {self.id} was closed")
            self._ready.set()
            self._idle.set()
            if self.turn is not None:
                self.turn.end(errors.to_rpc(Unavailable(f"session {self.id} was closed")))

    def _fail(self, error: Exception) -> None:
        if not self._ready.is_set():
            self._failed = error

    async def _told(self) -> None:
        """What was before is told: let the client be answered, and wait until it is."""
        self.replaying = False
        self._ready.set()
        await self._gate.wait()

    async def _listen(self, news: ThreadWatch) -> None:
        while True:
            self._idle.set()
            item = await news.next()
            self._idle.clear()
            if isinstance(item, ThreadUpdate):
                if told := replay.news(self, [item]):
                    self.say(*told)
                    await self.connection.drained()
            elif item.id not in self._seen:
                await self._followed(item)

    async def _followed(self, run: Run) -> None:
        """Follow a run; if that fails, it is this run's loss alone."""
        try:
            await self.follow(run)
        except AgentGone:
            raise
        except Exception as error:
            if not isinstance(error, InterlinguaError):
                log.exception("session %s: run %s could not be told", self.id, run.id)
            said = errors.to_rpc(error) if isinstance(error, InterlinguaError) else errors.internal()
            self.voice.over(self.turn if self.owns(run) else None, said)

    async def follow(
        self, run: Run, *, past: bool = False, quiet: bool = False, head: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Tell the client of a run, once (see `Follow.go`)."""
        self._seen.add(run.id)
        try:
            agent = await self.gateway.agent(run.agent, PROTOCOL)
        except NotFound:
            agent = None
        self._follow = Follow(self, run, agent, mine=self.owns(run), past=past)
        try:
            await self._follow.go(quiet=quiet, head=head)
        finally:
            self._follow = None
