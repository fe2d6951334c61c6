"""What was: a thread's record told to a client that loads or resumes it (docs: session-setup)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from adapters.agent_client.codec import content
from adapters.agent_client.codec import updates_out as out
from adapters.agent_client.wire import PROTOCOL
from gateway.adapter import Gateway
from gateway.core.types import Role, Run, RunQuery, RunStatus, Thread, ThreadUpdate

if TYPE_CHECKING:
    from adapters.agent_client.inbound.session import Session

PAGE = 20
CHECKPOINTS = 1000
ACTIVE = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.INTERRUPTED)
IN_ANSWER = frozenset({"current_mode_update", "config_option_update"})
"""Kinds that the answer of `session/load` says itself."""


async def past(session: Session, *, everything: bool, told: Callable[[], Awaitable[None]]) -> None:
    """Tell what was, then await `told`, then follow what is still going on to its end.

    Without `everything` the conversation itself is left out, but for what happens in it from now on.
    """
    thread = await session.gateway.thread(session.id)
    if everything:
        going_on = await _conversation(session, thread)
    else:
        going_on = await active(session.gateway, session.id)

    async def settled() -> None:
        if everything:
            _states(session, thread)
        await told()
        if not everything:
            _states(session, thread)

    for run in going_on[:1]:
        await session.follow(run, quiet=not everything, head=settled)
    if not going_on:
        await settled()
    for run in going_on[1:]:
        await session.follow(run)


async def active(gateway: Gateway, thread_id: str) -> Sequence[Run]:
    """Runs of the thread that have not ended, oldest first."""
    return await gateway.runs(RunQuery(thread=thread_id, statuses=ACTIVE, limit=PAGE, oldest_first=True))


async def _conversation(session: Session, thread: Thread) -> Sequence[Run]:
    """Tell every run that has ended, with what was said between them. Returns those that have not."""
    going_on: list[Run] = []
    between: dict[str | None, list[ThreadUpdate]] = {}
    for update in thread.updates:
        if update.kept and is_update(update):
            between.setdefault(update.after, []).append(update)
    first = True
    async for run in _runs(session.gateway, thread.id):
        if first:
            await _older(session, run)
            _tell(session, between.pop(None, []))
            first = False
        if run.status.ended:
            await session.follow(run, past=True)
            _tell(session, between.pop(run.id, []))
        else:
            going_on.append(run)
    if first:
        await _older(session, None)
    for updates in between.values():  # between runs that are not kept any more, or after the one that goes on
        _tell(session, updates)
    return going_on


async def _runs(gateway: Gateway, thread_id: str) -> AsyncIterator[Run]:
    offset = 0
    while runs := await gateway.runs(RunQuery(thread=thread_id, limit=PAGE, offset=offset, oldest_first=True)):
        for run in runs:
            yield run
        offset += len(runs)


async def _older(session: Session, first: Run | None) -> None:
    """Messages of runs that are not kept any more, or that were another thread's of which this one is a copy."""
    points = await session.gateway.history(session.id, limit=CHECKPOINTS)
    for point in reversed(points):
        if first is not None and point.created_at >= first.created_at:
            break
        for message in point.messages:
            if not message.content:
                continue
            if message.role is Role.USER:
                session.say(*out.user([content.block_of(message.content)]))
            else:
                session.say(out.text(message.content))
        await session.connection.drained()


def _states(session: Session, thread: Thread) -> None:
    """The newest of each kind of which only the newest counts."""
    _tell(session, [u for u in thread.updates if not u.kept and is_update(u) and u.kind not in IN_ANSWER])


def _tell(session: Session, updates: Sequence[ThreadUpdate]) -> None:
    session.say(*(out.update(update.data) for update in updates))


def is_update(update: ThreadUpdate) -> bool:
    """Whether it is a `session/update` as it stands; others are this adapter's own notes."""
    return update.protocol == PROTOCOL and isinstance(update.data, dict) and "sessionUpdate" in update.data
