"""Asks the agent for a run's verdict: `GET .../wait` in slices, `GET ...` where that is not offered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from msgspec.structs import replace

from adapters.agent_connect import decode
from adapters.agent_connect.decode import RunFailure, RunQuestion, RunSuccess, Verdict
from adapters.agent_connect.options import AgentConnectTarget
from adapters.agent_connect.outbound.client import AgentConnectClient, NotOffered, RemoteRun, complaint
from adapters.agent_connect.wire_stream import ServerRun
from gateway.core.errors import AgentBroken, AgentForgot, AgentGone, AgentTimeout

log = logging.getLogger(__name__)

T = TypeVar("T")
FIRST_PAUSE = 0.05
TRIES = 3
"""Connections that may break before another way is taken: streams, then waits, then single looks."""
STOPPED = ("success", "error", "timeout", "interrupted")


class PolledRun(Protocol):
    """The run that is asked about: where it is at the agent, once that is known.

    heard: when (loop time) the agent was last known to be there.
    """

    remote: RemoteRun | None
    heard: float

    def found(self, remote: RemoteRun) -> None: ...
    def hear(self) -> None: ...


class Poller:
    """Asks the agent about one run, once it is known where that is."""

    def __init__(
        self,
        client: AgentConnectClient,
        options: AgentConnectTarget,
        trace: str | None,
        streamed: decode.StreamDecoder,
        run: PolledRun,
    ) -> None:
        """trace: a `traceparent` header of every request. streamed: what the run's streams have said."""
        self._run = run
        self._client = client
        self._options = options
        self._trace = trace
        self._streamed = streamed
        self._waits = True
        self._drops = 0

    @property
    def path(self) -> str:
        """The run's path."""
        return self._remote.path

    @property
    def _remote(self) -> RemoteRun:
        remote = self._run.remote
        assert remote is not None
        return remote

    async def retrying(self, step: Callable[[], Awaitable[T]]) -> T:
        """Do it, again and again while the agent cannot be reached. Raises AgentGone after `reconnect_timeout`."""
        loop = asyncio.get_running_loop()
        pause, since = FIRST_PAUSE, None
        while True:
            began = loop.time()
            try:
                return await step()
            except AgentForgot:
                raise
            except (AgentGone, AgentTimeout) as error:
                if since is None or self._run.heard > began:
                    since = loop.time()  # it was there until now
                if loop.time() - since + pause > self._options.reconnect_timeout:
                    raise AgentGone(
                        f"the agent went away in the middle of the run: {error}", detail=error.detail
                    ) from error
                log.info("%s: %s; trying again", self.path, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._options.poll_interval)

    async def outcome(self) -> Verdict | None:
        """The verdict of a run that was not followed for a while; None if it still works."""
        record = await self.retrying(self.status)
        if record is None:
            raise AgentForgot("the agent does not know the run any more")
        if record.status not in STOPPED:
            return None
        return await self.retrying(partial(self.poll, self._options.poll_timeout))

    async def poll(self, timeout: float) -> Verdict | None:
        """The run's verdict by its own record; None while it works (or after `timeout` seconds)."""
        if self._waits:
            try:
                return await self._wait(timeout)
            except NotOffered:
                self._waits = False
            except (AgentGone, AgentTimeout):
                self._drops += 1
                self._waits = self._drops < TRIES
                raise
        record = await self.status()
        if record is None:
            raise AgentForgot("the agent does not know the run any more")
        return await self._unwaited(record) if record.status in STOPPED else None

    async def _wait(self, timeout: float) -> Verdict | None:
        remote = self._remote
        try:
            return await self._wait_at(remote, timeout)
        except NotOffered as refusal:
            if refusal.reply.status != 500 or remote.thread is None:
                raise
        # Servers in use serve a run that asks only where those without a thread are: its question and its answer.
        bare = replace(remote, thread=None)
        verdict = await self._wait_at(bare, timeout)
        self._run.found(bare)
        return verdict

    async def _wait_at(self, remote: RemoteRun, timeout: float) -> Verdict | None:
        path = f"{remote.path}/wait"
        where = f"GET {path}"
        reply = await self._client.patient("GET", path, timeout=timeout, trace=self._trace)
        if reply is None or reply.status in (204, 202, 408, 504):
            return None
        if reply.status in (404, 405, 500, 501):
            raise NotOffered(reply, where)
        if reply.status != 200:
            raise complaint(reply, where)
        record, verdict = decode.waited(reply.body, where)
        if record is not None:
            self.mine(record, where)
        self._run.hear()
        return verdict

    async def status(self) -> ServerRun | None:
        """The run's record; None if the agent does not know it."""
        where = f"GET {self.path}"
        reply = await self._client.send("GET", self.path, trace=self._trace)
        if reply.status == 404:
            return None
        if reply.status != 200:
            raise complaint(reply, where)
        record = decode.run_record(reply.body, where)
        self.mine(record, where)
        return record

    def mine(self, record: ServerRun, where: str) -> None:
        """Raise AgentBroken if the record belongs to a different run."""
        if record.run_id.lower() != self._remote.run_id.lower():
            raise AgentBroken(f"{where} answered with run {record.run_id}")

    async def _unwaited(self, record: ServerRun) -> Verdict | None:
        """The verdict of a run that has stopped, from an agent that did not let us wait for it."""
        try:
            verdict = await self._wait(self._options.request_timeout)
            if verdict is not None:
                return verdict
        except NotOffered:
            pass
        hint, last = self._streamed.verdict, self._streamed.last
        if record.status in ("error", "timeout"):
            return hint if isinstance(hint, RunFailure) else decode.verdict({}, record.status)
        if record.status == "success" and last is not None:
            return RunSuccess(last)
        if record.status == "interrupted" and isinstance(hint, RunQuestion) and hint.payload is not None:
            return hint
        raise AgentBroken(f"GET {self.path} says {record.status}, but its /wait does not say what came of it")
