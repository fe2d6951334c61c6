"""The objects that all requests share, one of each per gateway process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from adapters.agent_context.codec.errors import Expired, note, to_rpc
from adapters.agent_context.directory import Directory
from adapters.agent_context.directory.conduct import REFUSALS
from adapters.agent_context.inbound.background import Aside, Background
from adapters.agent_context.inbound.people import ClientIdentities
from adapters.agent_context.inbound.questions import AcknowledgedQuestions
from adapters.agent_context.options import AgentContextServe
from adapters.agent_context.outbound.sessions import SessionLinks
from adapters.agent_context.wire.constants import CONFLICT, CORRELATION, DEADLINE, DENIED, ERROR, INVALID, NOT_FOUND
from adapters.agent_context.wire.messages import Constraints
from gateway.contract import Gateway
from gateway.core.errors import InterlinguaError, NotFound
from gateway.core.types import Agent, JsonObject
from gateway.mcp.runs import ClientRuns, WaitingRuns, keys
from gateway.mcp.server.contract import McpCall, McpSession
from gateway.wire.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, RpcError

log = logging.getLogger(__name__)

REFUSED: Final = frozenset((INVALID, NOT_FOUND, DENIED, CONFLICT, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND))
"""Errors that are the fault of who asked."""
PASSED: Final = "the deadline has passed"
CLIENT: Final = "client"
"""Target of what is told to a client for which no agent has registered."""


def _nothing(uris: Iterable[str]) -> None:
    """Where nobody wants to know."""


@dataclass(frozen=True)
class Served:
    """A call whose run is followed now: the agent that works on it, and the id that the agent knows it by."""

    call: McpCall
    agent: str
    correlation: str


@dataclass
class Limit:
    """A limit that may end a run early. `cancel` is called with the reason, once."""

    cancel: Callable[[str], object]
    max_tokens: int | None = None
    passed: InterlinguaError | None = None

    def end(self, error: InterlinguaError) -> None:
        """End the run; its client is told `error`."""
        if self.passed is None:
            self.passed = error
            self.cancel(str(error))


@dataclass(frozen=True)
class Environment:
    """One per gateway process; passed to everything that handles requests."""

    options: AgentContextServe
    gateway: Gateway
    runs: ClientRuns
    people: ClientIdentities
    directory: Directory
    links: SessionLinks
    background: Background
    waiting: WaitingRuns
    pending: AcknowledgedQuestions = field(default_factory=AcknowledgedQuestions)
    served: dict[str, Served] = field(default_factory=dict)
    """By run."""
    changed: Callable[[Iterable[str]], None] = _nothing
    """Called with the resources that have changed."""

    async def agent(self, call: McpCall, name: str, path: str) -> Agent:
        """An agent that the session may call, by its id here: what a client may do, and who is revoked, goes by that.

        Raises NotFound, with those that its client may know of.
        """
        with contextlib.suppress(NotFound):
            found = await self.runs.agent(call.session, name, path)
            if found.name == name:  # not by the UUID that it has elsewhere
                return found
        raise NotFound(f"{path}: {self.people.unknown(call.session, name, call.bearer)}")

    def did(self, session: McpSession, what: str) -> None:
        """Count what the agents did that speak through a session (see `directory.conduct`)."""
        for agent in self.people.agents(session):
            self.directory.conduct.did(agent, what)

    def refused(self, session: McpSession, error: RpcError) -> None:
        """Count a request of theirs that was answered by an error, if that was their fault."""
        if error.error.code in REFUSED:
            self.did(session, REFUSALS)

    def tell(self, aside: Aside, error: InterlinguaError, source: str | None = None) -> None:
        """Tell by `agent/error` what became of a message that has no answer."""
        told = to_rpc(error, correlation_of(aside.meta), aside.params)
        self.refused(aside.session, told)
        aside.notify(ERROR, note(told, source=source))

    async def revoke(self, call: McpCall, agent_id: str, reason: str | None) -> bool:
        """Take an agent's access away, by a client that may. Whether there is such an agent. Raises Denied."""
        principal = self.people.may(call, "revoke", agent_id)
        log.warning("%s revokes the access of agent %s: %s", principal.name, agent_id, reason or "no reason given")
        known = agent_id in self.directory.ids()
        await self.runs.whole(self.directory.revoke(agent_id, reason or ""))
        return known

    async def restore(self, call: McpCall, agent_id: str) -> None:
        """Give it back, by a client that may revoke it. Raises Denied."""
        principal = self.people.may(call, "revoke", agent_id)
        log.warning("%s restores the access of agent %s", principal.name, agent_id)
        await self.runs.whole(self.directory.restore(agent_id))

    @contextlib.contextmanager
    def following(self, run_id: str, served: Served, limits: Constraints | None = None) -> Iterator[Limit]:
        """While the block lasts the run is cancelled at its deadline, or when its limit is ended."""
        self.served[run_id] = served
        limit = Limit(
            lambda why: self.background.do(None, self._cancel(run_id, why), f"limit of run {run_id}"),
            None if limits is None else limits.max_tokens,
        )
        deadline, timer = None if limits is None else limits.deadline_at, None
        if deadline is not None:
            late = max(deadline - time.time(), 0.0)
            timer = asyncio.get_running_loop().call_later(late, limit.end, Expired(PASSED))
        try:
            yield limit
        finally:
            self.served.pop(run_id, None)
            if timer is not None:
                timer.cancel()

    async def _cancel(self, run_id: str, why: str) -> None:
        await self.gateway.runs.cancel(run_id, reason=why)


def correlation_of(meta: JsonObject) -> str | None:
    """The correlation id in a `_meta`; None for one that is not a string."""
    found = meta.get(CORRELATION)
    return found if isinstance(found, str) and found else None


def same_work(one: str | None, other: str | None) -> bool:
    """Whether two correlation ids are of the same work: an agent that works on it twice gets the id with a suffix."""
    return one is not None and other is not None and one.partition("~")[0] == other.partition("~")[0]


def fresh() -> str:
    """A new correlation id, or task id."""
    return str(uuid.uuid4())


def ahead(deadline: float | None, path: str, said: str | None, now: float | None = None) -> None:
    """Raises RpcError for a deadline (epoch seconds) that is past; `said` as it came, at `path`."""
    at = time.time() if now is None else now
    if deadline is not None and deadline <= at:
        data = {
            "code": "deadline",
            "retryable": False,
            "path": path,
            "details": {"expected": "a deadline that is not past", "received": said},
        }
        raise RpcError(DEADLINE, f"{path}: {PASSED}", data)


def metadata_of(meta: JsonObject) -> JsonObject:
    """The keys of a `_meta` that become a run's metadata."""
    return {key: value for key, value in keys.metadata(meta).items() if key != CORRELATION}


def both(source: str, target: str | None) -> JsonObject:
    """The members of a message that say from whom it is to whom; None for a client that is no agent."""
    return {"source": source, "target": target or CLIENT}
