"""`GET` and `POST .../stream`: a watch of the run's log, sent as server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from adapters.agent_connect import codec
from adapters.agent_connect.codec_stream import KEEPALIVE, StreamEncoder, stream_error
from adapters.agent_connect.inbound.call import INTERNAL, Call, ClientGone, WhileConnected
from gateway.contract import Batch, Gateway, Watch
from gateway.core.errors import InterlinguaError, lookup
from gateway.core.types import Agent, Run
from gateway.transport.asgi.uvicorn import PieceProtocol, short_way

log = logging.getLogger(__name__)

REPLAY = 4096
"""Up to which event a stream is resumed by folding the log again, so that every later one has its own snapshot."""

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Stream:
    """Sends runs as streams. One for all requests."""

    def __init__(self, gateway: Gateway, keep_alive: float) -> None:
        self._gateway = gateway
        self._keep_alive = keep_alive

    async def send(
        self,
        call: Call,
        run: Run,
        agent: Agent | None,
        modes: Collection[str],
        headers: Mapping[str, str] | None,
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
        out = _Out(call, headers)
        try:
            with WhileConnected(call.receive):
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
            await out.end(stream_error(run.id, INTERNAL, 500))

    async def _follow(self, run_id: str, at: int, encoder: StreamEncoder, out: _Out, *, every: bool) -> None:
        """Watch the run until its stream ends; with `every` delta as long as the encoder makes something of each."""
        while not out.ended:
            deltas = encoder.custom or (every and encoder.exact)
            async with self._gateway.watch(run_id, at, deltas=deltas) as watch:
                at = await self._pump(watch, at, encoder, out, every=deltas)

    async def _pump(self, watch: Watch, at: int, encoder: StreamEncoder, out: _Out, *, every: bool) -> int:
        """Batches to frames, one write a batch; the first is awaited before the answer begins.

        Returns the number to go on after, when the stream has ended or deltas may be skipped from now on.
        """
        clock = asyncio.get_running_loop().time

        def take(batch: Batch) -> bool:
            """Where the client keeps up, one more piece of a small document is on its way when it was said."""
            nonlocal at
            short = out.short
            if short is None or not short.ready or not (frame := encoder.piece(batch)):
                return False
            at = batch.last
            out.written_at = clock()
            short.put(frame)
            return True

        while encoder.custom or encoder.exact or not every:
            now = clock()
            due = encoder.due(now)
            silence = max(0.0, out.written_at + self._keep_alive - now)
            try:
                batch = await watch.next(silence if due is None else min(due, silence), take)
            except TimeoutError:
                now = clock()
                frames = encoder.flush(now) if due is not None else b""
                if not frames and now >= out.written_at + self._keep_alive:
                    frames = KEEPALIVE
            else:
                if batch is None:
                    await out.end(b"")
                    return at
                at = batch.last
                frames = encoder.feed(batch, watch.run, clock())
            if encoder.done:
                await out.end(frames)
                return at
            if frames or not out.started:
                await out.write(frames)
        return at


class _Out:
    """The answer's messages."""

    def __init__(self, call: Call, headers: Mapping[str, str] | None) -> None:
        self.started = False
        self.ended = False
        self._clock = asyncio.get_running_loop().time
        self.written_at = self._clock()
        self.short: PieceProtocol | None = None
        """The client's connection, if it takes pieces of the answer by a call, once the answer has begun."""
        self._call = call
        self._send = call.send
        self._headers = headers or {}

    async def write(self, frames: bytes) -> None:
        if not self.started:
            await self._begin()
        self.written_at = self._clock()
        await self._send({"type": "http.response.body", "body": frames, "more_body": True})

    async def end(self, frames: bytes) -> None:
        if not self.started:
            await self._begin()
        self.ended = True
        await self._send({"type": "http.response.body", "body": frames})

    async def _begin(self) -> None:
        self.started = True
        self.short = short_way(self._call.scope)
        more = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in self._headers.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *more]})
