"""`GET` and `POST .../stream`: a watch of the run's log, sent as server-sent events."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Collection

from adapters.agent_connect import codec
from adapters.agent_connect.codec_stream import KEEPALIVE, StreamEncoder, stream_error
from gateway.contract import Batch, Gateway, Watch
from gateway.core.errors import InterlinguaError, lookup
from gateway.core.types import Agent, Run
from gateway.transport.asgi import ClientGone, Headers, HttpRequest, WhileConnected
from gateway.transport.asgi.request import EventStream

log = logging.getLogger(__name__)

REPLAY = 4096
"""Up to which event a stream is resumed by folding the log again, so that every later one has its own snapshot."""


class RunStream:
    """Sends runs as streams. One for all requests."""

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
        try:
            with WhileConnected(request):
                await self._follow(run.id, start, encoder, out, every=not joining)
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

    async def _follow(self, run_id: str, at: int, encoder: StreamEncoder, out: EventStream, *, every: bool) -> None:
        """Watch the run until its stream ends: with `every` delta, for as long as the encoder uses each."""
        until = asyncio.get_running_loop().time() + self._longest
        while not out.ended:
            deltas = encoder.custom or (every and encoder.exact)
            async with self._gateway.runs.watch(run_id, at, deltas=deltas) as watch:
                at = await self._pump(watch, at, encoder, out, every=deltas, until=until)

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
