"""One session as one connection has it open: what happens on its thread is told, and prompts are taken, one at a time.

Everything a client is told of a session comes out of one task, in the order in which it happened. The session itself is
the gateway's thread: it lives on when the connection has gone, and may be open on several.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec import agents, errors
from adapters.agent_client.inbound import config_options, governed, replay, turns
from adapters.agent_client.inbound.client import EditorClient
from adapters.agent_client.inbound.context import OpenedBy, SessionContext
from adapters.agent_client.inbound.follower import PromptFollower
from adapters.agent_client.inbound.turns import PromptTurn
from adapters.agent_client.inbound.updates import SessionUpdates
from adapters.agent_client.inbound.updates_v2 import V2PromptFollower, V2SessionUpdates
from adapters.agent_client.tunnel import mcp_messages as tunnel
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.contract import ThreadWatch
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
from gateway.core.types import Agent, Interrupt, Run, RunRequest, ThreadUpdate
from gateway.transport.waiting import Flag

log = logging.getLogger(__name__)

TITLE = 80
"""Characters of the first prompt that a session is listed by, until its agent names it."""
STOP_SECONDS = 5.0
"""For the client of a session that is closed to be told how its last turn ended."""


class EditorSession:
    """`open` it, `go` when its client knows of it, `close` it. See `SharedSession` for what other connections do.

    context: what it is, and its state.
    updates: what its client is told of it, and how its prompts are answered.
    """

    def __init__(self, context: SessionContext, left: Callable[[EditorSession], None]) -> None:
        """`left` is called when it is closed, once or more."""
        self.context = context
        self.id = context.id
        self.client: EditorClient = context.client
        newer = context.client.version.acknowledges
        self.updates: SessionUpdates = V2SessionUpdates(context) if newer else SessionUpdates(context)
        self._follower: type[PromptFollower] = V2PromptFollower if newer else PromptFollower
        self._left = left
        self._gateway = context.gateway
        self._titled = "title" in context.thread.attributes
        self._following: PromptFollower | None = None
        self._prompted: Agent | None = None
        self._cancelled: str | None = None
        """The run that the client has cancelled without a prompt of its own to wait for."""
        self._seen: dict[str, None] = {}
        self._gate = Flag()
        self._ready = Flag()
        self._failed: Exception | None = None
        self._news: ThreadWatch | None = None
        self._caught_up = Flag()
        self._moved = Flag()
        self._task: asyncio.Task[None] | None = None

    # --- life -------------------------------------------------------------------------------------------------

    async def open(self, way: OpenedBy) -> None:
        """Watch the thread, and tell what is to be told before the client is answered. Raises NotFound.

        What happens from now on is told once `go` was called.
        """
        self.context.opens(way)
        try:
            if way is not OpenedBy.NEW:
                await self.updates.prepare()
            if self.context.closed:
                raise Unavailable(f"session {self.id} was closed")
            self.client.clients.opened(self)
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
    def following(self) -> bool:
        """Whether its client is told of a run that has not ended."""
        return self._following is not None

    def go(self) -> None:
        """The client has been answered, and knows the session."""
        self._gate.set()

    async def reloaded(self, way: OpenedBy) -> None:
        """The agent has answered a request on which it told what was; the session was opened in this `way` then."""
        if self._gate.is_set():
            await self.caught_up()
        self.context.told()
        self.context.opens(way)
        self.updates.standing()

    async def close(self) -> None:
        """Follow it no more, also if it is being opened. A run in progress goes on."""
        self.context.close()
        self.client.clients.closed(self)
        self._left(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._ready.set()

    async def caught_up(self) -> None:
        """Wait until everything that has happened by now was told (to whom it is told before `go`)."""
        if self._news is not None and self._news.behind:
            self._caught_up.clear()
        await self._caught_up.wait()

    async def up_to_date(self) -> None:
        """Wait until its client was told what has happened by now, in a run or not; a moment at most.

        A client that does not know of the session yet is not waited for.
        """
        if not self._gate.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                while self._news is not None and (self._news.behind or not self._caught_up.is_set()):
                    following = self._following
                    if following is None:  # about to take what there is, or a run to follow
                        self._moved.clear()
                        await self._moved.wait()
                    else:
                        await following.caught_up()
                        if following is self._following:
                            return  # everything so far is told, and the run goes on

    # --- for other connections --------------------------------------------------------------------------------

    @property
    def agent(self) -> str:
        return self.context.agent

    @property
    def params(self) -> Raw:
        return self.context.params

    @property
    def servers(self) -> list[tunnel.Offered]:
        return self.context.servers

    def heard(self, update: ThreadUpdate) -> None:
        """Tell the client of a change that another client has made."""
        self.updates.say(*self.updates.news(update))

    async def configured(self, options: list[JsonObject] | None = None) -> None:
        """Tell the client all options of the session: the given ones, else the current ones."""
        if options is None:
            options = (await config_options.settings(self.context)).get("configOptions", [])
        self.context.tell(*self.updates.news(config_options.options_changed(options)))

    def chosen(self, agent: str, config: JsonObject) -> None:
        self.context.chosen(agent, config)

    # --- turns ------------------------------------------------------------------------------------------------

    async def take(self, asked: wire.Prompt, params: JsonObject, turn: PromptTurn) -> bool:
        """Begin what a prompt asks for, whose `turn` this is. False if it was cancelled before anything has begun.

        `params`: all of the request's, decoded.

        Raises Invalid for content that the agent cannot take, and the errors of the tree.
        """
        context, client = self.context, self.client
        agent = self._prompted = await self._gateway.agents.get(context.agent, PROTOCOL)
        if (words := turns.words(asked.prompt)) is not None:
            said = turns.PromptInput(words)
        else:
            governed.check(asked.prompt, agent, context.governor)
            said = turns.read(asked, agent)
        if self._cancelled is not None:
            await self._ended(self._cancelled)
        following = self._following
        question = following.questions.waiting if following else None
        if following is not None and question is not None:
            text = turns.answer_with_files(question, said) if said.files else said.text
            await self._answer(turn, following, question, text)
        elif turn.cancelled:
            return False
        else:
            request = self._request(turn, asked, params, agent, said.text)
            try:
                run = await client.clients.whole(self._gateway.runs.start(request, files=said.files))
            except Unsupported as error:
                raise Invalid(str(error), path=said.place) if said.files else error from None
            except Conflict:
                raise Conflict(f"session {context.id} is busy: something else is at work in it") from None
            turn.started(run.id)
            if not self._titled:
                await self._title(said.text)
        if turn.cancelled and turn.run is not None:
            await client.cancel_run(turn.run)
        return True

    def _request(self, turn: PromptTurn, asked: wire.Prompt, params: JsonObject, agent: Agent, text: str) -> RunRequest:
        """The run that a prompt starts. What was set in the session goes along, unless its agent keeps that itself."""
        context, known = self.context, self.client.visitor.known
        meta = wire.as_object(asked.meta)
        traceparent = meta.get("traceparent")
        return RunRequest(
            agent=agent.name,
            input=None,
            prompt=text,
            protocol=PROTOCOL,
            thread=self.id,
            config={} if agents.native(agent) else context.config,
            metadata=turns.metadata_of(context.thread.metadata, meta),
            traceparent=traceparent if isinstance(traceparent, str) else None,
            principal=None if known is None else known.who.id,
            tools=None if known is None else known.tools,
            creation=params,
            attributes={turns.MARK: turn.mark},
        )

    async def _title(self, text: str) -> None:
        if text.strip():
            self._titled = True
            with contextlib.suppress(InterlinguaError):
                await self.context.change({"title": " ".join(text.split())[:TITLE]})

    async def _answer(self, turn: PromptTurn, following: PromptFollower, question: Interrupt, text: str) -> None:
        """The prompt is the answer to a question that the last turn ended with."""
        turn.answering(following.run.id, question.id)
        try:
            await following.questions.answer(question, text)
        except Denied as error:  # somebody else may answer it
            self.updates.misunderstood(turn, following.questions.again(question, Invalid(str(error))))
        except Invalid as error:
            self.updates.misunderstood(turn, following.questions.again(question, error))

    def cancel(self) -> None:
        """`session/cancel`: ends the turn, or the run that waits for a prompt as its answer."""
        turn, run = self.context.turn, self.context.run
        ends = self._cancelled = run.id if run is not None else None
        if turn is not None:
            turn.cancel()
            ends, self._cancelled = turn.run, None  # without one yet, the turn itself sees to it
        if ends is not None:
            self.client.keep(self.client.cancel_run(ends))

    async def _ended(self, run_id: str) -> None:
        """Wait for a cancelled run, at most `STOP_SECONDS`: no answer to a prompt tells the client that it is over."""
        self._cancelled = None
        with contextlib.suppress(TimeoutError, InterlinguaError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._gateway.runs.cancel(run_id, reason="cancelled by the client", wait=True)
        await self.up_to_date()

    async def stop(self) -> None:
        """Cancel what runs and wait until it has ended (`session/close`, `session/delete`). Raises Unavailable where
        that cannot be done: another gateway process drives it.
        """
        context = self.context
        if context.turn is not None:
            context.turn.cancel()
        for run in await replay.active(self._gateway, self.id):
            with contextlib.suppress(NotFound):
                ended = self._gateway.runs.cancel(run.id, reason="the session was closed", wait=True)
                await self.client.clients.whole(ended)
        if context.turn is not None:
            await asyncio.wait([context.turn.over], timeout=STOP_SECONDS)
        if self.updates.version.acknowledges:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self.caught_up()

    # --- inside -----------------------------------------------------------------------------------------------

    async def _live(self, way: OpenedBy) -> None:
        context = self.context
        try:
            async with self._gateway.backchannel.join(self.id, self.client) as news:
                self._news = news
                if way is OpenedBy.NEW:
                    await self._told()
                else:
                    everything = way is OpenedBy.LOAD
                    await replay.past(context, self.updates, self.follow, everything=everything, told=self._told)
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
            self._news = None
            self._caught_up.set()
            self._moved.set()
            if context.turn is not None:
                context.turn.end(errors.to_rpc(Unavailable(f"session {self.id} was closed")))

    def _fail(self, error: Exception) -> None:
        if not self._ready.is_set():
            self._failed = error

    async def _told(self) -> None:
        """Called when the history has been told: let the client be answered, and wait until it is."""
        self.context.told()
        self._ready.set()
        await self._gate.wait()

    async def _listen(self, news: ThreadWatch) -> None:
        while True:
            if not news.behind:
                self._caught_up.set()
                self._moved.set()
            item = await news.next()
            self._caught_up.clear()
            if isinstance(item, ThreadUpdate):
                if told := self.updates.news(item):
                    self.updates.say(*told)
                    await self.client.drained()
            elif item.id not in self._seen:
                await self._followed(item)

    async def _followed(self, run: Run) -> None:
        try:
            await self.follow(run)
        except AgentGone:
            raise
        except Exception as error:
            if not isinstance(error, InterlinguaError):
                log.exception("session %s: run %s could not be told", self.id, run.id)
            self.updates.over(self.context.turn if self.context.owns(run) else None, errors.to_rpc(error))

    async def follow(
        self, run: Run, *, past: bool = False, quiet: bool = False, head: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Tell the client of a run, once (see `PromptFollower.go`)."""
        self._seen[run.id] = None
        mine = self.context.owns(run)
        agent = self._prompted if mine else None
        if agent is None:
            with contextlib.suppress(NotFound):
                agent = await self._gateway.agents.get(run.agent, PROTOCOL)
        self._following = self._follower(self.context, self.updates, run, agent, mine=mine, past=past)
        self.context.follows(run)
        self._moved.set()
        try:
            await self._following.go(quiet=quiet, head=head)
        finally:
            self._following = None
            self.context.follows(None)
