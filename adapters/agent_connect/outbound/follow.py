"""One run at an agent, from wherever it is to its end.

The truth about a run is what `GET .../wait` says; streams are for watching, and are believed only where they leave
nothing open (`StreamDecoder.settled`). A connection that breaks is made again, an agent that does not answer is looked
for `reconnect_timeout` seconds, and only then is it gone.
"""

from __future__ import annotations

import asyncio
import logging
import math
from functools import partial
from typing import Any

from msgspec.structs import replace

from adapters.agent_connect import decode
from adapters.agent_connect.decode import RunFailure, RunQuestion, RunSuccess, Verdict, interrupt
from adapters.agent_connect.options import AgentConnectTarget
from adapters.agent_connect.outbound.client import (
    AgentConnectClient,
    NotOffered,
    RemoteRun,
    complaint,
    encode,
    expect_stream,
    refusal,
)
from adapters.agent_connect.outbound.poll import FIRST_PAUSE, TRIES, Poller
from adapters.agent_connect.wire import EVENT, UPSTREAM_OUTPUT
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentError, AgentForgot, AgentGone, AgentTimeout
from gateway.core.types import AgentCapabilities, Json, JsonObject, Outcome
from gateway.transport.http import StreamResponse
from gateway.transport.waiting import Deadline, Timer
from gateway.wire import sse

log = logging.getLogger(__name__)

HINT_TIMEOUT = 5.0
"""Seconds in which an agent whose stream spoke of an error or a question has to confirm it."""
NAMED_WITHIN = 4.0
"""Seconds a cancel waits for the agent to name the run; the engine gives the whole call five."""
READ = frozenset({EVENT, "message"})
"""Names of the events that are the protocol's; "message" is one without a name. Others (a ping) are not read."""
MAX_BYTES = 32 * 1024 * 1024
LARGE = 1024
DRAIN_BYTES = 64 * 1024
"""Bytes of a stream after which the run's log is asked whether it may grow."""
SETTLED_SILENCE = 1.0
"""Seconds for which a stream is read on after it has said `success`."""


class Follower:
    """Sees one run through."""

    remote: RemoteRun | None = None
    """Where the run is at the agent, once that is known."""
    _named: asyncio.Event | None = None
    """Set when the agent has named the run; None until a cancel waits for that."""
    _asking: Poller | None = None
    heard = 0.0
    """When (loop time) the agent was last known to be there."""
    _recorded = False
    """Whether the run's name is recorded."""
    _breaks = 0
    _undrained = 0
    """Bytes that were read since the run's log was asked whether it may grow."""
    _last_id = ""
    _silence: Deadline | None = None
    """Of the stream that is read, if it can be silent."""
    _watching: asyncio.Task[None] | None = None
    """Asks for the truth, once that stream has been silent."""
    _truth: Verdict | None = None

    def __init__(
        self,
        context: RunContext,
        client: AgentConnectClient,
        options: AgentConnectTarget,
        can: AgentCapabilities,
        *,
        resumed: bool = False,
    ) -> None:
        """can: what the agent says that it can. resumed: an earlier process has sent the run."""
        self._context = context
        self._client = client
        self._options = options
        self.can = can
        self.streams = options.stream == "always" or (options.stream == "auto" and can.streaming)
        self._resumed = resumed
        self._trace = context.traceparent
        self._decoder = decode.StreamDecoder(resumed=resumed)
        self._time = asyncio.get_running_loop().time

    @property
    def _poller(self) -> Poller:
        """Made when there is something to ask."""
        if self._asking is None:
            self._asking = Poller(self._client, self._options, self._trace, self._decoder, self)
        return self._asking

    def close(self) -> None:
        """The run is over. Each of the two would keep the other, and all that was said, in memory."""
        self._asking = None

    def found(self, remote: RemoteRun) -> None:
        """See `PolledRun`."""
        self.remote = remote

    def hear(self) -> None:
        """The agent is known to be there now."""
        self.heard = self._time()

    # --- naming ------------------------------------------------------------------------------------------------

    async def name(self, remote: RemoteRun, *, over: bool = False) -> None:
        """Record the run's name, unless it is `over`. Raises AgentBroken for a name that no path can hold."""
        if remote.run_id in ("", ".", ".."):
            raise AgentBroken(f"the agent named the run {remote.run_id!r}")
        self.remote = remote
        self._decoder.expect(remote.run_id)
        if not over:
            await self._record(remote)
        if self._named is not None:
            self._named.set()

    async def _record(self, remote: RemoteRun, **more: Any) -> None:
        self._recorded = True
        thread = {"thread_id": remote.thread} if remote.thread else None
        await self._context.set_upstream({**remote.record(), **more}, thread=thread)

    # --- to the end --------------------------------------------------------------------------------------------

    async def conclude(self, verdict: Verdict | None) -> None:
        """Follow the run from this verdict (None: it works) to its terminal event, asking what it asks."""
        while True:
            if verdict is None:
                verdict = await self._follow()
            if self._context.cancelled:
                return self._context.emit(e.RunCancelled(reason=self._context.run.cancel_reason or ""))
            match verdict:
                case RunSuccess():
                    if verdict.origin:
                        await self._keep(verdict.origin)
                    self._context.emit(*decode.finished(verdict, replace=self._resumed))
                    if not self._recorded and (remote := self.remote) is not None:
                        await self._record(remote)
                    return None
                case RunFailure():
                    if verdict.errcode is not None:
                        await self._keep({"errcode": verdict.errcode})
                    return self._context.emit(decode.failed(verdict))
                case RunQuestion():
                    if not await self._ask(verdict):
                        reason = self._context.run.cancel_reason or "the agent's question was not answered"
                        return self._context.emit(e.RunCancelled(reason=reason))
            verdict = None

    async def _keep(self, beyond: JsonObject) -> None:
        """Keep the output's fields beyond the core, for clients of the same protocol."""
        if self.remote is not None:
            await self._record(self.remote, **{UPSTREAM_OUTPUT: beyond})

    async def _follow(self) -> Verdict:
        """Watch a run that works until it has a verdict."""
        pause = FIRST_PAUSE
        while (verdict := await self._poller.retrying(self._once)) is None:
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._options.poll_interval)
        return verdict

    async def _once(self) -> Verdict | None:
        """One try: the stream as long as it lasts, then one look."""
        hint: Verdict | None = None
        if self.streams:
            try:
                verdict = await self.stream("GET", f"{self._poller.path}/stream")
                if verdict is not None:
                    return verdict
                hint = self._decoder.verdict
            except (NotOffered, AgentTimeout):
                self.streams = False  # refused, or not even a head: the run itself will know
            except AgentGone:
                self._breaks += 1
                self.streams = self._breaks < TRIES
                raise
        return await self._confirm(hint)

    async def _confirm(self, hint: Verdict | None) -> Verdict | None:
        """The truth after a stream whose last word was `hint`; the hint itself if the agent knows no better."""
        if hint is None:
            return await self._poller.poll(self._options.poll_timeout)
        try:
            verdict = await self._poller.poll(min(HINT_TIMEOUT, self._options.poll_timeout))
        except AgentForgot:  # an agent that keeps no runs: what it said of its failure is all there is
            if isinstance(hint, RunFailure):
                return hint
            raise
        telling = isinstance(hint, RunFailure) or (isinstance(hint, RunQuestion) and hint.payload is not None)
        return hint if verdict is None and telling else verdict

    async def confirmed(self) -> Verdict | None:
        """The truth after the stream that has started the run; None while it still works."""
        return await self._poller.retrying(partial(self._confirm, self._decoder.verdict))

    async def again(self) -> Verdict | None:
        """The verdict of a run that was not followed for a while; None if it still works."""
        return await self._poller.outcome()

    # --- streaming ---------------------------------------------------------------------------------------------

    async def stream(
        self, method: str, path: str, body: bytes | None = None, *, thread: str | None = None
    ) -> Verdict | None:
        """Read one stream to its end, emitting what it says; the run's verdict if that is certain.

        A stream that says anything but `success` last is to be followed by a look. `thread` is where a run that is
        started by this stream will be. Raises NotOffered for any refusal, AgentBroken for what is no stream of
        this run.
        """
        where = f"{method} {path}"
        head = math.inf if body is not None else self._options.idle_timeout
        async with self._client.stream(
            method, path, body, trace=self._trace, timeout=head, after=self._last_id
        ) as opened:
            if not 200 <= opened.status < 300:
                raise NotOffered(await refusal(opened), where)
            self._truth = self._silence = None
            if opened.whole:  # there is nothing to wait for
                return await self._read(opened, where, thread)
            self.hear()
            try:
                with Deadline() as silence:
                    self._silence = silence
                    watchdog = Timer(asyncio.get_running_loop(), self._options.idle_timeout, self._begin_watching)
                    try:
                        return await self._read(opened, where, thread)
                    finally:
                        watchdog.cancel()
                        if (watching := self._watching) is not None:
                            self._watching = None
                            watching.cancel()
                            await asyncio.gather(watching, return_exceptions=True)
            except TimeoutError:
                if not silence.expired:
                    raise
        if self._truth is None and self._decoder.settled:
            return self._decoder.verdict  # it has said how it ended, and only the end of the stream is missing
        return self._truth

    async def _read(self, opened: StreamResponse, where: str, thread: str | None) -> Verdict | None:
        context, decoder = self._context, self._decoder
        frames = sse.SseDecoder(last_event_id=self._last_id)
        silence = self._silence
        opening, named = True, self.remote is not None
        take = partial(self._take, opened, frames, where)
        while chunk := await opened.receive():
            if opening and (start := chunk.lstrip()):
                opening = False
                if start[:1] in b"{[":
                    return await self._not_a_stream(chunk + await opened.read(MAX_BYTES), where, thread)
                expect_stream(opened, where)
            take(chunk)
            while not (over := opened.exhausted):
                if not named and decoder.run_id is not None:
                    named = True
                    await self.name(RemoteRun(decoder.run_id, thread, thread))
                if decoder.broken is not None:
                    raise decoder.broken
                if not context.flowing:
                    await context.drain()
                if decoder.settled:
                    if silence is not None:
                        silence.move(asyncio.get_running_loop().time() + SETTLED_SILENCE)
                elif decoder.verdict is not None:
                    return None if named else self._nameless(decoder.verdict, where)
                elif silence is not None and silence.due is not None:
                    silence.move(None)
                if not named or not await opened.pour(take):
                    break
            if over:
                break
        if not named and decoder.run_id is not None:
            named = True
            await self.name(RemoteRun(decoder.run_id, thread, thread), over=decoder.settled)
        if decoder.broken is not None:
            raise decoder.broken
        cut_off = frames.close()
        if decoder.settled and not cut_off:
            return decoder.verdict  # it has said everything, even if not the run's name
        return None if named else self._nameless(decoder.verdict, where)

    def _take(self, opened: StreamResponse, frames: sse.SseDecoder, where: str, chunk: bytes) -> bool:
        """Do all that is done with a piece without waiting. Returns whether that was all."""
        decoder, silence = self._decoder, self._silence
        ready = frames.feed(chunk)
        if ready or len(chunk) > LARGE:  # no keep-alive
            self.heard = self._time()
        if ready:
            self._last_id = frames.last_event_id
            said = [frame.data for frame in ready if frame.event in READ]
            events = decoder.feed(said, where, last=opened.exhausted)
            if events:
                self._context.emit(*events)
                self._breaks = 0
        self._undrained += len(chunk)
        if self._undrained > DRAIN_BYTES:
            self._undrained = 0
            if not self._context.flowing:
                return False
        moved = silence is not None and silence.due is not None
        return decoder.verdict is None and decoder.broken is None and not moved

    @staticmethod
    def _nameless(verdict: Verdict | None, where: str) -> Verdict:
        """The verdict of a run whose stream never named it, so that the agent cannot be asked."""
        if isinstance(verdict, RunFailure):
            return verdict
        raise AgentBroken(f"the stream of {where} ended before it named a run")

    async def _not_a_stream(self, body: bytes, where: str, thread: str | None) -> Verdict | None:
        """The agent answered with a JSON document where a stream was asked for: its run, or the run's output."""
        try:
            record, verdict = decode.waited(body, where)
        except AgentBroken as error:
            raise AgentBroken(
                f"{where} answered with JSON that is neither a stream nor a run", detail=error.detail
            ) from None
        if record is not None:
            if self.remote is None:
                await self.name(RemoteRun(record.run_id, thread, record.thread_id))
            self._poller.mine(record, where)
        self.streams = False
        return verdict

    def _begin_watching(self) -> None:
        """Most streams end before, and cost a timer instead of a task."""
        if self._silence is not None:
            self._watching = asyncio.create_task(self._watch(self._silence))

    async def _watch(self, silence: Deadline) -> None:
        """While the stream says nothing, ask for the truth; when there is one, end the reading."""
        loop = asyncio.get_running_loop()
        while True:
            quiet = loop.time() - self.heard
            if quiet < self._options.idle_timeout:
                await asyncio.sleep(self._options.idle_timeout - quiet)
                continue
            if self.remote is None:  # nobody to ask about
                await asyncio.sleep(self._options.idle_timeout)
                continue
            try:
                self._truth = await self._poller.poll(self._options.poll_timeout)
            except AgentError as error:
                log.info("run %s: a silent stream, and then: %s", self._context.run.id, error)
                return silence.move(loop.time())
            if self._truth is not None:
                return silence.move(loop.time())
            self.hear()

    # --- talking back ------------------------------------------------------------------------------------------

    async def _ask(self, question: RunQuestion) -> bool:
        """Put the question, deliver the answer. False if there is none: the run is then cancelled at the agent."""
        assert self.remote is not None
        asked = interrupt(question, self._context.agent, self.remote.run_id, self.remote.questions)
        answer = await self._context.ask(asked)
        if answer.outcome is not Outcome.ANSWERED:
            if not self._context.cancelled:
                await self.cancel()
            return False
        value = answer.value
        if question.kind is not None:  # asked in the words of the older specification, answered in them
            value = {"interrupt_type": question.kind, "resume_payload": value}
        await self._resume(value)
        remote = replace(self.remote, questions=self.remote.questions + 1)
        self.remote = remote
        self._decoder.forget()
        await self._record(remote)
        return True

    async def _resume(self, value: Json) -> None:
        """Deliver an answer, once: after a broken connection only to an agent that says it still waits."""
        where = f"POST {self._poller.path}"
        while True:
            try:
                reply = await self._client.send("POST", self._poller.path, encode(value), trace=self._trace)
            except (AgentGone, AgentTimeout):
                if await self._still_asks():
                    continue
                return
            if reply.status < 300:
                return
            if reply.status in (400, 409) and not await self._still_asks():
                return  # it has been told before
            raise complaint(reply, where)

    async def _still_asks(self) -> bool:
        record = await self._poller.retrying(self._poller.status)
        return record is not None and record.status == "interrupted"

    async def cancel(self) -> None:
        """Ask the agent to stop the run. That it cannot is a loss, not an error."""
        if self.remote is None:
            self._named = asyncio.Event()
            try:
                async with asyncio.timeout(NAMED_WITHIN):
                    await self._named.wait()
            except TimeoutError:
                return self._context.lost("cancel_unsupported")
        assert self.remote is not None
        await stop(self._context, self._client, self.remote)
        if self._silence is not None:
            self._silence.move(asyncio.get_running_loop().time() + SETTLED_SILENCE)


async def stop(context: RunContext, client: AgentConnectClient, remote: RemoteRun) -> None:
    """`POST .../cancel`."""
    path = f"{remote.path}/cancel"
    reply = await client.send("POST", path, trace=context.traceparent)
    if reply.status in (405, 500, 501):
        context.lost("cancel_unsupported")
    elif reply.status >= 300 and reply.status not in (400, 404, 409):  # those: it has ended already
        raise complaint(reply, f"POST {path}")
