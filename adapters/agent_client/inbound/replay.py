"""Replays a session to a client that loads or resumes it: by its agent, or from the thread's record.

(docs: session-setup)
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Raw

from adapters.agent_client.codec import agents, content
from adapters.agent_client.codec.errors import AUTH_REQUIRED
from adapters.agent_client.codec.v2.agents import speaks_v2
from adapters.agent_client.inbound import governed
from adapters.agent_client.inbound.client import EditorClient
from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.inbound.updates import SessionUpdates
from adapters.agent_client.wire import ORIGIN_V2, PROTOCOL, offers
from gateway.contract import Gateway
from gateway.core.errors import AgentError, Unsupported
from gateway.core.types import UNFINISHED, Role, Run, RunQuery, Thread, ThreadUpdate
from gateway.wire import jsonrpc

log = logging.getLogger(__name__)

PAGE = 20
CHECKPOINTS = 1000
IN_ANSWER = frozenset({"current_mode_update", "config_option_update", "state_update"})
"""Kinds that the answer of `session/load` says itself, or that are told by how things stand."""


class FollowRun(Protocol):
    """Tells the client of a run, once. See `EditorSession.follow`."""

    async def __call__(
        self, run: Run, *, past: bool = False, quiet: bool = False, head: Callable[[], Awaitable[None]] | None = None
    ) -> None: ...


class Untold(Exception):
    """Raised where the agent has replayed nothing: the record serves instead."""


async def is_the_agents(client: EditorClient, thread: Thread, name: str, *, everything: bool) -> bool:
    gateway = client.gateway
    if governed.of(gateway, name) is not None or thread.upstream.keys() != {name}:
        return False
    agent = await gateway.agents.get(name, PROTOCOL)
    if speaks_v2(agent) != (client.version.number > 1):
        return False
    native = agents.native(agent)
    return offers(native, "loadSession") if everything else offers(native, "sessionCapabilities", "resume")


async def by_agent(session: SessionContext, updates: SessionUpdates, method: str, params: Raw) -> Raw:
    """The agent's own answer to `session/load` or `session/resume`. What it replays is told this client alone.

    Raises Untold while a run is in progress, and where the agent fails before it has told anything; else the agent's
    own error. That it wants to be authenticated to is always told.
    """
    if await active(session.gateway, session.id):
        raise Untold
    told = 0

    def hear(update: ThreadUpdate) -> None:
        nonlocal told
        if session.closed:  # what the agent tells behind its answer may come later
            return
        said = updates.news(update)
        told += len(said)
        updates.say(*said)

    try:
        return await session.relay(method, params, hear)
    except (Unsupported, AgentError) as error:
        if told or (isinstance(error, jsonrpc.RpcError) and error.error.code == AUTH_REQUIRED):
            raise
        log.info("session %s is told from the record: %s", session.id, error)
        raise Untold from error


async def past(
    session: SessionContext,
    updates: SessionUpdates,
    follow: FollowRun,
    *,
    everything: bool,
    told: Callable[[], Awaitable[None]],
) -> None:
    """Tell what was, then await `told`, then follow what is still going on to its end.

    Without `everything` the conversation itself is left out, but for what happens in it from now on.
    """
    thread = await session.gateway.threads.get(session.id)
    if everything:
        session.replays()
        going_on = await _conversation(session, updates, follow, thread)
    else:
        going_on = await active(session.gateway, session.id)

    async def settled() -> None:
        if everything:
            _states(updates, thread)
        if not going_on:
            updates.standing()
        await told()
        if not everything:
            _states(updates, thread)

    for run in going_on[:1]:
        await follow(run, quiet=not everything, head=settled)
    if not going_on:
        await settled()
    for run in going_on[1:]:
        await follow(run)


async def active(gateway: Gateway, thread_id: str) -> Sequence[Run]:
    """Runs of the thread that have not ended, oldest first."""
    return await gateway.runs.list(RunQuery(thread=thread_id, statuses=UNFINISHED, limit=PAGE, oldest_first=True))


async def _conversation(
    session: SessionContext, updates: SessionUpdates, follow: FollowRun, thread: Thread
) -> Sequence[Run]:
    """Tell every run that has ended, with what was said between them. Returns those that have not."""
    going_on: list[Run] = []
    between: dict[str | None, list[ThreadUpdate]] = {}
    for update in thread.updates:
        if update.kept and is_update(update):
            between.setdefault(update.after, []).append(update)
    first = True
    async for run in _runs(session.gateway, thread.id):
        if first:
            await _older(session, updates, run)
            _tell(updates, between.pop(None, []))
            first = False
        if run.status.ended:
            await follow(run, past=True)
            _tell(updates, between.pop(run.id, []))
        else:
            going_on.append(run)
    if first:
        await _older(session, updates, None)
    for news in between.values():  # between runs that are not kept any more, or after the one that goes on
        _tell(updates, news)
    return going_on


async def _runs(gateway: Gateway, thread_id: str) -> AsyncIterator[Run]:
    offset = 0
    while runs := await gateway.runs.list(RunQuery(thread=thread_id, limit=PAGE, offset=offset, oldest_first=True)):
        for run in runs:
            yield run
        offset += len(runs)


async def _older(session: SessionContext, updates: SessionUpdates, first: Run | None) -> None:
    """Messages of runs that are not kept any more, or that were another thread's of which this one is a copy."""
    points = await session.gateway.threads.history(session.id, limit=CHECKPOINTS)
    older = [point for point in points if first is None or point.created_at < first.created_at]
    replaced = next((at for at, point in enumerate(older) if point.replaces), len(older))
    for point in reversed(older[: replaced + 1]):
        for number, message in enumerate(point.messages):
            name = f"{point.id}-{number}"
            if not message.content:
                continue
            if message.role is Role.USER:
                updates.say(*updates.version.user([content.block_of(message.content)], name))
            else:
                updates.say(*updates.version.text(message.content, name))
        await session.client.drained()


def _states(updates: SessionUpdates, thread: Thread) -> None:
    _tell(updates, [u for u in thread.updates if not u.kept and is_update(u) and u.kind not in IN_ANSWER])


def _tell(updates: SessionUpdates, news: Sequence[ThreadUpdate]) -> None:
    updates.say(*[said for update in news for said in updates.news(update)])


def is_update(update: ThreadUpdate) -> bool:
    """Whether it is a `session/update`, of version 1 or of what only version 2 has; others are the adapter's notes."""
    data = update.data
    return update.protocol in (PROTOCOL, ORIGIN_V2) and isinstance(data, dict) and "sessionUpdate" in data
