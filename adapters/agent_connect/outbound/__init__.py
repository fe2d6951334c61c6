"""AgentConnectClient Agent Connect agents.

start.py   sends a run: by stream, in the background or blocking, on a thread or not
follow.py  sees it to its end: streams, questions, cancels
poll.py    asks the agent what became of it: blocking waits, or its record
locate.py  which agent it is, and what it says of itself
client.py  HTTP, and what refusals mean
"""

from __future__ import annotations

from collections.abc import Sequence

from adapters.agent_connect.options import AgentConnectTarget
from adapters.agent_connect.outbound.client import AgentConnectClient, RemoteRun
from adapters.agent_connect.outbound.follow import Follower, stop
from adapters.agent_connect.outbound.locate import Locator
from adapters.agent_connect.outbound.start import RunSender, ServerQuirks
from adapters.agent_connect.outbound.threads import RemoteThreads
from gateway.contract import RunContext
from gateway.core.errors import AgentFailed, AgentGone
from gateway.core.types import Agent, ChatMessage, Checkpoint, Json, JsonObject


class AgentConnectOutbound:
    """See `gateway.contract.Outbound`. One per route; opens no connection before the first call."""

    def __init__(self, target: AgentConnectTarget) -> None:
        self._target = target
        self._client = AgentConnectClient(target)
        self._locator = Locator(target, self._client)
        self._quirks = ServerQuirks()
        self._threads = RemoteThreads(self._client)
        self._runs: dict[str, Follower] = {}

    async def describe(self) -> Agent:
        """The agent as its descriptor says, the descriptor itself in `extra["agent_connect"]`."""
        self._quirks.forget()
        return await self._locator.describe()

    async def run(self, context: RunContext) -> None:
        """Send the run, see it to its end."""
        follower = self._follower(context)
        try:
            verdict = await RunSender(context, self._client, self._locator, self._quirks, follower).start()
            if verdict is None and follower.remote is None:
                raise AgentGone("the agent went away before it named the run")
            await follower.conclude(verdict)
        finally:
            self._runs.pop(context.run.id, None)

    async def attach(self, context: RunContext) -> None:
        """Find the run again and see it to its end."""
        remote = RemoteRun.of(context.run.upstream or {})
        if remote is None:
            raise AgentFailed("nothing is known of where the run is at the agent")
        follower = self._follower(context, resumed=True)
        try:
            await follower.name(remote)
            await follower.conclude(await follower.again())
        finally:
            self._runs.pop(context.run.id, None)

    def _follower(self, context: RunContext, *, resumed: bool = False) -> Follower:
        can = (self._locator.agent or context.agent).capabilities
        follower = self._runs[context.run.id] = Follower(context, self._client, self._target, can, resumed=resumed)
        return follower

    async def cancel(self, context: RunContext) -> None:
        """`POST .../cancel`; a server that cannot is the loss `cancel_unsupported`."""
        follower = self._runs.get(context.run.id)
        if follower is not None:
            return await follower.cancel()
        remote = RemoteRun.of(context.run.upstream or {})
        if remote is not None:  # `run` has been given up already: the time was over
            await stop(context, self._client, remote)

    async def read_thread(self, upstream: JsonObject) -> Checkpoint:
        """See `gateway.contract.Stateful`: `GET /threads/{id}`."""
        return await self._threads.read(_named(upstream))

    async def read_history(self, upstream: JsonObject, *, limit: int, before: str | None) -> Sequence[Checkpoint]:
        """See `Stateful`: `GET /threads/{id}/history`."""
        return await self._threads.history(_named(upstream), limit, before)

    async def copy_thread(self, upstream: JsonObject) -> JsonObject:
        """See `Stateful`: `POST /threads/{id}/copy`."""
        return {"thread_id": await self._threads.copy(_named(upstream))}

    async def update_thread(
        self, upstream: JsonObject, *, base: str | None, values: Json, messages: Sequence[ChatMessage] | None
    ) -> None:
        """See `Stateful`: `PATCH /threads/{id}`."""
        await self._threads.update(_named(upstream), base, values, messages)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()


def _named(upstream: JsonObject) -> str:
    """The thread at the agent. Raises AgentGone where none is recorded."""
    known = upstream.get("thread_id")
    if not isinstance(known, str):
        raise AgentGone("nothing is known of where the thread is at the agent")
    return known
