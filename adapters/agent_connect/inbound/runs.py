"""The operations tagged Stateless Runs and Thread Runs. Those of a thread have `thread_id` in their path."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Collection, Sequence

from msgspec.structs import replace

from adapters.agent_connect import codec, codec_agents, codec_threads, wire
from adapters.agent_connect.codec_stream import KEEPALIVE, StreamEncoder, stream_error
from adapters.agent_connect.inbound import parameters
from adapters.agent_connect.inbound.threads import new_thread
from adapters.agent_connect.options import AgentConnectServe
from gateway.contract import Batch, Gateway, Watch, paged
from gateway.core import stopping
from gateway.core.errors import InterlinguaError, Invalid, NotFound, Unavailable, Unsupported, let_go_of, lookup
from gateway.core.types import Agent, Run, RunQuery, RunRequest, RunStatus, Thread
from gateway.transport.asgi import ClientGone, Headers, HttpRequest, Reply, WhileConnected
from gateway.transport.asgi.request import EventStream

log = logging.getLogger(__name__)

KEPT = "kept"
"""The attribute of a stateless run whose thread is kept (`on_completion: keep`)."""
GONE = "the client has gone"
PAGE = 200
REPLAY = 4096
"""Up to which event a stream is resumed by folding the log again, so that every later one has its own snapshot."""


class RunStream:
    """Sends a watch of a run's log as server-sent events. One for all requests."""

    def __init__(self, gateway: Gateway, keep_alive: float, longest: float | None = None) -> None:
        """longest: seconds after which a stream is ended."""
        self._gateway = gateway
        self._keep_alive = keep_alive
        self._longest = math.inf if longest is None else longest

    async def send(
        self,
        request: HttpRequest,
        run: Run,
        agent: Agent | None,
        modes: Collection[str],
        headers: Headers,
        *,
        joining: bool = False,
        after: tuple[int, bool] | None = None,
    ) -> None:
        """Answer with the run's events until it stops. Errors before the first of them are raised.

        joining: without `after`, begin with the state as it is now instead of the run's beginning.
        Raises ClientGone.
        """
        number, partial = after or (0, False)
        joining = joining and after is None
        folding = "custom" in modes or number <= REPLAY
        start = 0 if folding else number - partial
        encoder = StreamEncoder(run.id, agent, modes, after=(number, partial), joining=joining, folding=folding)
        out = EventStream(request, headers)
        until = asyncio.get_running_loop().time() + self._longest
        try:
            with WhileConnected(request):
                while not out.ended:  # with every delta, for as long as the encoder uses each
                    every = encoder.custom or (encoder.exact and not joining)
                    async with self._gateway.runs.watch(run.id, start, deltas=every) as watch:
                        start = await self._pump(watch, start, encoder, out, every=every, until=until)
        except (ClientGone, asyncio.CancelledError):
            raise
        except InterlinguaError as error:
            if not out.started:
                raise
            await out.end(stream_error(run.id, codec.error_text(error), lookup(codec.ERRORS, error)))
        except Exception:
            if not out.started:
                raise
            log.exception("the stream of run %s failed", run.id)
            await out.end(stream_error(run.id, "internal error", 500))

    async def _pump(
        self, watch: Watch, at: int, encoder: StreamEncoder, out: EventStream, *, every: bool, until: float
    ) -> int:
        """Turn batches into frames, with one write a batch. The answer begins after the first.

        Returns the number to go on after, when the stream has ended or deltas may be skipped from now on. `until`: when
        it is ended whatever the run does.
        """
        clock = asyncio.get_running_loop().time
        timed = False

        def take(batch: Batch) -> Awaitable[None] | None:
            nonlocal at
            at, now = batch.last, clock()
            frames = encoder.feed(batch, watch.run, now)
            if encoder.done:
                watch.stop()
                return out.end(frames)
            if (every and not encoder.custom and not encoder.exact) or (not timed and encoder.pending is not None):
                watch.stop()
            return out.write(frames) if frames or not out.started else None

        while not out.ended and (encoder.custom or encoder.exact or not every):
            now = clock()
            due = encoder.due(now)
            timed = due is not None
            if now >= until:
                await out.end(encoder.flush(now))
                break
            silence = max(0.0, min(self._keep_alive - out.silent(now), until - now))
            try:
                if await watch.follow(take, silence if due is None else min(due, silence)):
                    await out.end()
            except TimeoutError:
                now = clock()
                frames = encoder.flush(now) if encoder.due(now) == 0.0 else b""
                if not frames and out.silent(now) >= self._keep_alive:
                    frames = KEEPALIVE
                if frames:
                    await out.sent(frames)
        return at


class RunOperations:
    """Starts, watches, answers, cancels and finds runs."""

    def __init__(self, gateway: Gateway, options: AgentConnectServe) -> None:
        self._gateway = gateway
        self._limit = options.max_body
        self._stream = RunStream(gateway, options.keep_alive, options.max_stream)

    # --- start ---------------------------------------------------------------------------------------------------

    async def create(self, request: HttpRequest) -> Reply:
        """`POST /runs`, `/threads/{thread_id}/runs`: start, answer at once."""
        run = await self._start(request, await self._body(request))
        return Reply(200, codec.encode_run(run), headers=self._headers(request, run))

    async def create_and_wait(self, request: HttpRequest) -> Reply:
        """`POST .../runs/wait`: start, answer when it has stopped."""
        timeout = parameters.seconds(request, "timeout") if request.scope["query_string"] else None
        body = await self._body(request)
        run = await self._start(request, body, told=timeout is not None)
        try:
            return await self._wait(request, run, timeout)
        except ClientGone:
            await self._left(run, body)
            raise

    async def create_and_stream(self, request: HttpRequest) -> None:
        """`POST .../runs/stream`: start, answer with its events."""
        body = await self._body(request)
        agent = await self._agent(body.get("agent_id") or self._only())
        modes = codec.modes(body.get("stream_mode"))
        if agent is not None and "custom" in modes and not codec_agents.streams(agent)[1]:
            raise Unsupported(f"/stream_mode: agent {agent.name} has no custom updates")
        run = await self._start(request, body)
        agent = agent or await self._agent(run.agent)
        headers = self._headers(request, run)
        try:
            await self._stream.send(request, run, agent, modes or _default(agent), headers)
        except ClientGone:
            await self._left(run, body)
            raise

    async def _body(self, request: HttpRequest) -> wire.RunCreate:
        body = await request.body(self._limit)
        if "thread_id" in request.path_params:
            return codec.read(wire.stateful, body)
        return codec.read(wire.stateless, body)

    def _start(self, request: HttpRequest, body: wire.RunCreate, *, told: bool = True) -> Awaitable[Run]:
        thread_id = parameters.uuid(request, "thread_id") if "thread_id" in request.path_params else None
        wanted = codec.run_request(
            body,
            body.get("agent_id") or self._only(),
            thread=thread_id,
            now=time.time(),
            traceparent=request.header("traceparent"),
        )
        if thread_id is not None:
            return self._start_with(thread_id, wanted, create=body.get("if_not_exists") == "create", told=told)
        if body.get("on_completion") == "keep":
            made = new_thread()
            return self._start_on(made, replace(wanted, thread=made.id, attributes={KEPT: True}))
        return self._begin(wanted, told=told)

    async def _start_with(self, thread_id: str, request: RunRequest, *, create: bool, told: bool) -> Run:
        """Start it on the thread that it names. `create`: on a new one of that name, if there is none."""
        unknown: Sequence[str] = ()
        try:
            unknown = await self._unknown(request, await self._gateway.threads.get(thread_id))
        except NotFound:
            if create:
                return await self._start_on(new_thread(thread_id), request)
        run = await self._begin(request, told=told)
        for what in unknown:
            self._gateway.runs.lost(run.id, what)
        return run

    async def _unknown(self, request: RunRequest, thread: Thread) -> Sequence[str]:
        """The losses of a thread that was patched or copied before its first run: state that the agent will not know.

        That is the state beside the messages. An Agent Connect agent is given it (`outbound`).
        """
        if thread.upstream or await self._gateway.runs.list(RunQuery(thread=thread.id, limit=1)):
            return ()
        if thread.values in (None, {}):
            return ()
        agent = await self._agent(request.agent)
        return () if agent is not None and wire.PROTOCOL in agent.extra else ("thread_state",)

    async def _start_on(self, thread: Thread, request: RunRequest) -> Run:
        """Start it on a new thread, which is deleted again if the run is refused."""
        await self._gateway.threads.create(thread)
        try:
            return await self._begin(request)
        except InterlinguaError:
            await self._gateway.threads.delete(thread.id)
            raise

    async def _begin(self, request: RunRequest, *, told: bool = True) -> Run:
        """Start it. An input that has only the agent's text, where the agent needs more, is taken as a prompt."""
        try:
            return await self._gateway.runs.start(request, told=told)
        except Invalid:
            agent = await self._agent(request.agent)
            words = None if agent is None or request.prompt is not None else codec.words(agent, request.input)
            if words is None:
                raise
        return await self._gateway.runs.start(replace(request, input=None, prompt=words), told=told)

    def _only(self) -> str:
        """The only agent there is, for a request that names none. Raises NotFound."""
        names = self._gateway.agents.names(wire.PROTOCOL)
        if len(names) != 1:
            raise NotFound(f"/agent_id: name an agent; have {', '.join(names) or 'none'}")
        return names[0]

    async def _left(self, run: Run, body: wire.RunCreate) -> None:
        """Cancel the run, unless its client said otherwise: the connection that created it is lost."""
        if (body.get("on_disconnect") or "cancel") == "cancel":
            await self._gateway.runs.cancel(run.id, reason=GONE)

    # --- look ----------------------------------------------------------------------------------------------------

    async def get(self, request: HttpRequest) -> Reply:
        """`GET .../runs/{run_id}`."""
        run = await self._run(request)
        return Reply(200, codec.encode_run(run), headers=_lost(run))

    async def wait(self, request: HttpRequest) -> Reply:
        """`GET .../runs/{run_id}/wait`; `?timeout=SECONDS` answers 204 when they have passed."""
        timeout = parameters.seconds(request, "timeout")
        run = await self._run(request)
        return await self._wait(request, run, timeout, bare=True)

    async def stream(self, request: HttpRequest) -> None:
        """`GET .../runs/{run_id}/stream`: what comes from now on, or from after `Last-Event-ID`."""
        after = codec.cursor(request.header("last-event-id"))
        run = await self._run(request)
        agent = await self._agent(run.agent)
        ours = run.request.protocol == wire.PROTOCOL
        modes = codec.modes(run.request.creation.get("stream_mode")) if ours else ()
        await self._stream.send(request, run, agent, modes or _default(agent), _lost(run), joining=True, after=after)

    async def _wait(self, request: HttpRequest, run: Run, timeout: float | None, *, bare: bool = False) -> Reply:
        if not run.status.stopped:
            try:
                with WhileConnected(request):
                    found = await self._gateway.runs.wait(run.id, timeout)
            except asyncio.CancelledError:  # by the server: the gateway stops, and the request has had its time
                raise let_go_of(run.id) from None
            if found is None:
                return Reply(204, headers=[(b"location", request.link(f"/runs/{run.id}").encode("latin-1"))])
            run = found
            if not run.status.stopped:
                raise Unavailable(f"run {run.id} cannot be waited for here; ask again")
        messages = await self._messages(run) if run.status is RunStatus.SUCCESS else ()
        return Reply(200, codec.encode_wait(run, messages, bare=bare), headers=_lost(run))

    async def _messages(self, run: Run) -> Sequence[wire.ConnectMessage]:
        """The messages of a result beside its values: the files that the agent made."""
        if run.made == 0:
            return ()
        agent = await self._agent(run.request.agent)
        if agent is not None and not agent.capabilities.artifacts:
            return ()
        files = [file for file in await self._gateway.files.list(run=run.id) if file.agent_created]
        return codec_threads.file_messages(files, run.output, agent.text_output if agent else None)

    async def search(self, request: HttpRequest) -> Reply:
        """`POST /runs/search`: stateless runs, newest first."""
        wanted = await parameters.body(request, wire.run_search, self._limit)
        agent_id = wanted.get("agent_id")
        agent = await self._agent(agent_id) if agent_id else None
        status = wanted.get("status")
        query = RunQuery(
            agent=agent.name if agent else agent_id,
            protocol=wire.PROTOCOL,
            statuses=codec.STATUSES[status] if status else (),
            metadata=wanted.get("metadata") or {},
            limit=PAGE,
        )
        offset, limit = wanted.get("offset") or 0, wanted.get("limit") or 10
        found: list[Run] = []
        async for run in paged(self._gateway.runs.list, query):
            if run.thread is not None and KEPT not in run.request.attributes:  # started on a client's thread
                continue
            if offset:
                offset -= 1
                continue
            found.append(run)
            if len(found) == limit:
                break
        return Reply(200, codec.encode_runs(found))

    async def of_thread(self, request: HttpRequest) -> Reply:
        """`GET /threads/{thread_id}/runs`, newest first."""
        thread_id = parameters.uuid(request, "thread_id")
        limit = parameters.integer(request, "limit", 10, 1, 1000)
        offset = parameters.integer(request, "offset", 0, 0, wire.MOST)
        await self._gateway.threads.get(thread_id)
        found = await self._gateway.runs.list(RunQuery(thread=thread_id, limit=limit, offset=offset))
        return Reply(200, codec.encode_runs(found))

    # --- act -----------------------------------------------------------------------------------------------------

    async def resume(self, request: HttpRequest) -> Reply:
        """`POST .../runs/{run_id}`: the answer to what the run asks."""
        body = await parameters.body(request, wire.resume, self._limit)
        run = await self._run(request)
        answer, interrupt = codec.resume(body, run.interrupts)
        return Reply(200, codec.encode_run(await self._gateway.runs.answer(run.id, answer, interrupt)))

    async def cancel(self, request: HttpRequest) -> Reply:
        """`POST .../runs/{run_id}/cancel`; `action=rollback` also removes the run, of agents that can undo it."""
        wait = parameters.flag(request, "wait")
        action = parameters.choice(request, "action", ("interrupt", "rollback"))
        run = await self._run(request)
        if action == "interrupt":
            await self._gateway.runs.cancel(run.id, wait=wait)
            return Reply(204)
        agent = await self._agent(run.agent)
        if agent is None or not agent.capabilities.rollback:
            raise Unsupported(f"agent {run.agent} cannot roll back a run")
        await self._gateway.runs.cancel(run.id, reason=wire.ROLLBACK, wait=True)
        await self._gateway.runs.delete(run.id)
        return Reply(204)

    async def delete(self, request: HttpRequest) -> Reply:
        """`DELETE .../runs/{run_id}`."""
        run = await self._run(request)
        await self._gateway.runs.delete(run.id)
        return Reply(204)

    # --- helpers -------------------------------------------------------------------------------------------------

    async def _run(self, request: HttpRequest) -> Run:
        """The run of the path. Raises NotFound if the path names another thread than the run's."""
        thread_id = parameters.uuid(request, "thread_id") if "thread_id" in request.path_params else None
        run = await self._gateway.runs.get(parameters.uuid(request, "run_id"))
        if thread_id is not None and run.thread != thread_id:
            raise NotFound(f"thread {thread_id} has no run {run.id}")
        return run

    async def _agent(self, name: str) -> Agent | None:
        """The agent; None if clients of this protocol may not call it, or no longer."""
        try:
            return await self._gateway.agents.get(name, wire.PROTOCOL)
        except NotFound:
            return None

    def _headers(self, request: HttpRequest, run: Run) -> Headers:
        """The run's address: the body of a stream or wait does not say it before the end."""
        under = f"/threads/{run.thread}" if "thread_id" in request.path_params else ""
        return [(b"content-location", request.link(f"{under}/runs/{run.id}").encode("latin-1"))]


def _default(agent: Agent | None) -> tuple[str, ...]:
    return ("values",) if agent is None else codec_agents.default_mode(agent)


def _lost(run: Run) -> Headers:
    """The headers for losses of a run, and for a reason why it ended early."""
    told = [(b"x-interlingua-losses", codec.losses(run).encode("latin-1"))] if run.losses else []
    if run.stop_reason is not None and run.stop_reason in stopping.SHORT:
        told.append((b"x-interlingua-stop-reason", run.stop_reason.value.encode()))
    return told
