"""StdioPipe: an agent that is a subprocess, as a pipe of messages."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence

from gateway.core.errors import AgentGone
from gateway.transport.pipe import LIMIT, Unreadable
from gateway.transport.stdio.lines import LineReader, LineWriter
from gateway.transport.stdio.process import Exit, Grace, Process, launch
from gateway.transport.stdio.stderr import KEPT, StderrLog, last_words, shown
from gateway.wire.ndjson import frame

FLUSH = 0.5
SETTLE = 2.0
SAID = 300
SAID_SECONDS = 10.0
"""Before its end, in which an agent says what it dies of. What it said earlier has another reason."""


class StdioPipe:
    """A `gateway.transport.pipe.Pipe`. Made by `spawn`.

    A line that is too long or not UTF-8 is an Unreadable in its place. When the agent's main process ends without
    having been asked to, `receive` returns what was still in the pipe and then raises AgentGone with its exit status.
    If the agent has only closed its output, `receive` returns empty and the process lives until `aclose`. `send` to an
    agent that has closed its input raises AgentGone, and `receive` goes on.

    An AgentGone's message ends with what the agent's stderr said last, or with the first line of an output without any
    message; `detail` has all the lines kept.
    """

    def __init__(self, name: str, process: Process, limit: int) -> None:
        self._name = name
        self._process = process
        self._reader = LineReader(process.stdout, limit)
        self._writer = LineWriter(process.stdin)
        self._stderr = StderrLog(process.stderr, name)
        self._closing: asyncio.Task[None] | None = None
        process.exited.add_done_callback(lambda _: self._stderr.drain())
        process.gone.add_done_callback(lambda _: self._finish())

    @property
    def name(self) -> str:
        """The agent's name, for logs and error messages."""
        return self._name

    @property
    def pid(self) -> int:
        """The agent's main process, which leads its process group."""
        return self._process.pid

    @property
    def exited(self) -> asyncio.Future[Exit]:
        """Done when the main process has ended."""
        return self._process.exited

    @property
    def exit(self) -> Exit | None:
        """The end of the main process; None while it runs."""
        return self._process.exited.result() if self._process.exited.done() else None

    def stderr(self) -> list[str]:
        """The last lines of the agent's stderr, at most 20, oldest first."""
        return self._stderr.tail()[-KEPT:]

    async def send(self, messages: Sequence[bytes]) -> None:
        """Write messages, and return when the pipe has taken all. If cancelled, it writes all or nothing."""
        if self._closing is not None:
            raise AgentGone(f"the connection to {self._name} is closed")
        if not messages:
            return
        try:
            await self._writer.write(frame(messages))
        except OSError:
            await self._settle()
            raise self._gone("has closed its input") from None

    def offer(self, messages: Sequence[bytes]) -> bool:
        return self._closing is None and self._writer.offer(frame(messages))

    def direct(self, take: Callable[[Sequence[bytes | Unreadable]], Sequence[bytes | Unreadable]]) -> None:
        self._reader.direct(take)

    async def receive(self) -> Sequence[bytes | Unreadable]:
        if lines := await self._reader.take():
            return lines
        if self._closing is None:
            await self._settle()
        if self._closing is None and self.exit is not None:
            raise self._gone()
        return []

    async def aclose(self) -> None:
        """End the agent and all that it started: end of input, SIGTERM, SIGKILL, with the graces given to `spawn`.

        Bounded by the graces and a few seconds. Goes on if the caller is cancelled. Idempotent.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            self._reader.discard()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH):
                    await self._writer.flush()
            self._writer.close()
            self._process.end()
            await self._process.wait_gone()
        finally:
            self._process.end()
            self._finish()

    def _finish(self) -> None:
        self._writer.close()
        self._stderr.finish()
        self._reader.finish()

    async def _settle(self) -> None:
        """Wait a moment for the exit status, after the pipe broke."""
        await asyncio.wait([self._process.exited], timeout=SETTLE)

    def _gone(self, otherwise: str = "") -> AgentGone:
        if self._closing is not None:
            return AgentGone(f"the connection to {self._name} is closed")
        if words := last_words(self._stderr.tail(SAID_SECONDS)):
            said = f": {words[:SAID]}"
        else:
            left = self.exit is not None and self.exit.code is not None
            printed = shown(self._reader.printed)[:SAID] if left else ""
            said = f"; its output is no message: {printed}" if printed else ""
        return AgentGone(f"{self._name} {self.exit or otherwise}{said}", detail="\n".join(self.stderr()))


async def spawn(
    command: Sequence[str],
    *,
    name: str,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    limit: int = LIMIT,
    grace: Grace | float | None = None,
) -> StdioPipe:
    """Start an agent in a session of its own, under a warden that ends it when the gateway is gone.

    `env` is added to the gateway's own environment; the program is looked up in the PATH that results. `limit` is in
    bytes a line; `grace` are the seconds that it has to end, in all or step by step. Returns once the program runs.
    Raises AgentGone where it cannot be started, with the reason; AgentTimeout; Unavailable where the gateway has no
    file or process left to give. Cancellable; nothing is left then.
    """
    steps = Grace.within(grace) if isinstance(grace, float) else grace or Grace()
    process = await launch(command, name=name, cwd=cwd, env={**os.environ, **(env or {})}, grace=steps)
    return StdioPipe(name, process, limit)
