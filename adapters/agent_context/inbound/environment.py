"""The objects that all requests share, one of each per gateway process: the clients and their rights, and notifications
that are served as calls without an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Coroutine
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_context import wire
from adapters.agent_context.codec.errors import Expired, refusal
from adapters.agent_context.directory import Directory
from adapters.agent_context.directory.evaluation import REFUSALS
from adapters.agent_context.inbound.questions import AcknowledgedQuestions, AgentAsker
from adapters.agent_context.options import AgentContextServe, Right
from adapters.agent_context.security import Access, ClientPrincipal
from adapters.agent_context.wire.messages import MessageNeeds, WorkNeeds, told_in
from gateway.access import ANONYMOUS
from gateway.contract import Batch, Gateway
from gateway.core import events as e
from gateway.core.errors import Denied, NotFound, Unavailable
from gateway.core.types import Agent, Identity, JsonObject, Run
from gateway.mcp import versions
from gateway.mcp import wire as mcp
from gateway.mcp.runs import ClientRuns, Rendering, RunFollower, keys
from gateway.mcp.server.call import Nowhere
from gateway.mcp.server.contract import McpCall, McpSession
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)


class Aside(McpCall):
    """A notification that is served as a call: everything goes over the session instead of an answer's stream."""

    def __init__(self, session: McpSession, method: str, params: Raw) -> None:
        asked = jsonrpc.Request(None, method, params)
        super().__init__(
            session, Nowhere(), asked, mcp.meta_of(params), log_level=session.log_level, bearer=session.bearer
        )
        if versions.modern(self.client.version):  # there a client is asked by the answer to its request: here is none
            able = {key: value for key, value in self.client.capabilities.items() if key != "elicitation"}
            self.client = replace(self.client, capabilities=able)

    @property
    def can_ask(self) -> bool:
        return self.session.can_ask

    def notify(self, method: str, params: Any = None) -> None:
        self.session.tell(method, params)

    def send(self, notification: bytes) -> None:
        message = jsonrpc.decode(notification)
        if isinstance(message, jsonrpc.Notification):
            self.session.tell(message.method, message.params)

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        return await self.session.ask(method, params, timeout=timeout)


class Background:
    """Tasks that sessions need beside their requests; they end with their session."""

    def __init__(self) -> None:
        self._all = TaskSet(lambda error: log.error("what is done beside requests failed", exc_info=error))
        self._of: WeakKeyDictionary[McpSession, TaskSet] = WeakKeyDictionary()

    def do(self, session: McpSession | None, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Begin. `session`: whose end cancels it; None for what goes on."""
        task = self._all.start(work, name=name)
        if session is not None:
            self._of.setdefault(session, TaskSet()).hold(task)
        return task

    def left(self, session: McpSession) -> None:
        if (tasks := self._of.pop(session, None)) is not None:
            tasks.cancel()

    def stop(self) -> None:
        self._all.cancel()

    async def settled(self) -> None:
        await self._all.settled()


# --- who the client of a session is, which agents speak through it, and its rights ------------------------------------


NAMED: Final = 10
"""Agents, in the error for one that there is not."""


class ClientIdentities:
    """One per gateway process."""

    def __init__(self, access: Access, directory: Directory) -> None:
        self._access = access
        self._directory = directory
        self._proven: WeakKeyDictionary[McpSession, tuple[ClientPrincipal, str | None]] = WeakKeyDictionary()

    def principal(self, session: McpSession, bearer: str | None) -> ClientPrincipal:
        """The principal of a request: its token's bearer, else the one that registered an agent here. Raises Denied."""
        if bearer is None and (proven := self._proven.get(session)) is not None:
            principal, token = proven
            return principal if token is None else self._access.principal(token)  # it may expire
        return self._access.principal(bearer)

    def name(self, session: McpSession) -> str | None:
        """The name of a session's client; None for one without a valid token."""
        with contextlib.suppress(Denied):
            return self.principal(session, session.bearer).name
        return None

    def may(self, call: McpCall, right: Right, agent_id: str | None = None) -> ClientPrincipal:
        """The asking principal, which has this right (for that agent). Raises Denied."""
        principal = self.principal(call.session, call.bearer)
        principal.check(right, agent_id)
        return principal

    def known(self, call: McpCall) -> ClientPrincipal:
        """The asking principal, which has any right at all. Raises Denied."""
        principal = self.principal(call.session, call.bearer)
        if not principal.may:
            raise Denied(f"{principal.name} may do nothing here")
        return principal

    def identity(self, call: McpCall) -> Identity | None:
        """The asking identity, for approvals; None for an anonymous client."""
        with contextlib.suppress(Denied):
            found = self.principal(call.session, call.bearer)
            return None if found.name == ANONYMOUS else Identity(id=found.name, roles=found.roles)
        return None

    def registers(self, call: McpCall, record: JsonObject) -> ClientPrincipal:
        """The principal that registers an agent: its bearer, or the one that the record's `auth` proves. Raises Denied.

        `record` is the agent as it was sent, which is what was signed.
        """
        principal = self._access.principal(call.bearer, record)
        principal.check("register", record["id"])
        return principal

    def unknown(self, session: McpSession, name: str, bearer: str | None) -> str:
        """Says that there is no such agent, and which there are that its client may read about."""
        try:
            principal = self.principal(session, bearer)
        except Denied:
            return f"no agent {name}"
        names = [each for each in self._directory.ids() if session.agent in (None, each, name)]
        names = [each for each in names if principal.can("read", each)]
        if not names:
            return f"no agent {name}"
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"no agent {name}; there are {', '.join(names[:NAMED])}{more}"

    # --- agents that are clients ------------------------------------------------------------------------------

    def speaks_for(self, call: McpCall, record: JsonObject, principal: ClientPrincipal) -> None:
        """An agent has registered on this session, by that right.

        Who proved it by the agent's own `auth` is known here from now on; a bearer is asked for with each request.
        """
        if call.bearer is None:
            self._proven[call.session] = principal, (record.get("auth") or {}).get("token")

    def source(self, call: McpCall, principal: ClientPrincipal, given: str | None) -> str | None:
        """The agent that a message is from; None for a client that is not an agent.

        Left out, or a gateway's own id, it is the session's only agent. Raises Denied for another client's agent.
        """
        own = self._directory.agents_of(call.session)
        if given is None or given == wire.SELF:
            return own[0] if len(own) == 1 else None
        if given in own:
            return given
        if self._directory.owned(given, principal):
            return given
        raise Denied(f"/source: {given} is no agent of this client")

    def is_agent(self, session: McpSession) -> bool:
        """Whether its client can be sent `agent/message`: by its own word, or because an agent has registered there."""
        return session.client.can(wire.AGENT, wire.MESSAGES) or bool(self._directory.agents_of(session))


# --- what all requests share ------------------------------------------------------------------------------------------


REFUSED: Final = frozenset(
    (
        wire.INVALID,
        wire.NOT_FOUND,
        wire.DENIED,
        wire.CONFLICT,
        jsonrpc.INVALID_PARAMS,
        jsonrpc.INVALID_REQUEST,
        jsonrpc.METHOD_NOT_FOUND,
    )
)
"""Errors that are the fault of who asked."""
PASSED: Final = "the deadline has passed"
TOOK: Final = "the message took "
"""How the reason begins for which a run is cancelled that took too many tokens."""
TOLD: Final = "told"
"""Key of a run's attributes: what its message says of itself. It counts after a question too; metadata is anybody's."""
CLIENT: Final = "client"
"""Target of what is told to a client for which no agent has registered."""


class Served(msgspec.Struct, frozen=True):
    """A call whose run is followed now: the agent that works on it, and the id that the agent knows it by."""

    call: McpCall
    agent: str
    correlation: str


class Environment:
    """One per gateway process; passed to everything that handles requests. `served`: by run."""

    def __init__(self, options: AgentContextServe, gateway: Gateway) -> None:
        self.options = options
        self.gateway = gateway
        self.access = Access(options.access)
        self.directory = Directory(options, gateway)
        self.people = ClientIdentities(self.access, self.directory)
        self.runs = ClientRuns(
            wire.PROTOCOL, gateway, who=self.people.identity, may=self._may_answer, over=wire.CONFLICT
        )
        self.background = Background()
        self.pending = AcknowledgedQuestions()
        self.served: dict[str, Served] = {}
        self._limited: set[str] = set()  # open runs that are held to limits

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
        for agent in self.directory.agents_of(session):
            self.directory.conduct.did(agent, what)

    def refused(self, session: McpSession, error: RpcError) -> None:
        """Count a request of theirs that was answered by an error, if that was their fault."""
        if error.error.code in REFUSED:
            self.did(session, REFUSALS)

    async def revoke(self, call: McpCall, agent_id: str, reason: str | None) -> bool:
        """Take an agent's access away, by a client that may. Whether there is such an agent. Raises Denied."""
        principal = self.people.may(call, "revoke", agent_id)
        log.warning("%s revokes the access of agent %s: %s", principal.name, agent_id, reason or "no reason given")
        known = agent_id in self.directory.ids()
        await self.runs.whole(self.directory.revoking.revoke(agent_id, reason or ""))
        return known

    async def restore(self, call: McpCall, agent_id: str) -> None:
        """Give it back, by a client that may revoke it. Raises Denied."""
        principal = self.people.may(call, "revoke", agent_id)
        log.warning("%s restores the access of agent %s", principal.name, agent_id)
        await self.runs.whole(self.directory.revoking.restore(agent_id))

    async def follow(
        self,
        call: McpCall,
        run: Run,
        agent: Agent,
        words: Rendering,
        *,
        head: JsonObject,
        correlation: str,
        outlives: bool = False,
    ) -> Any:
        """See `RunFollower.go`. `head`: source and target of messages about the run. An agent is asked by a message."""
        how = AgentAsker(self.pending, head, correlation, run.id) if self.people.is_agent(call.session) else None
        self.served[run.id] = Served(call, agent.name, correlation)
        try:
            return await RunFollower(self.runs, call, agent, words, asker=how, outlives=outlives).go(run)
        finally:
            self.served.pop(run.id, None)

    def limit(self, run_id: str, needs: WorkNeeds) -> None:
        """Hold a message's run to its deadline and its tokens, until it ends: also while nobody follows it."""
        if run_id not in self._limited and (needs.deadline is not None or needs.max_tokens is not None):
            self._limited.add(run_id)
            self.background.do(None, self._limit(run_id, needs), f"limits of run {run_id}")

    def _may_answer(self, call: McpCall, run: Run) -> bool:
        """See `ClientRuns`: nobody answers questions that were somebody else's. Raises Expired for a message whose
        deadline has passed; its run is cancelled.
        """
        if run.request.principal != self.people.principal(call.session, call.bearer).name:
            return False
        deadline = told_of(run).needs.deadline_at
        if deadline is None or _until(deadline) or (run.status.ended and run.cancel_reason != PASSED):
            return True
        self.background.do(None, self._cancel(run.id, PASSED), f"deadline of run {run.id}")
        raise Expired(PASSED)

    async def _limit(self, run_id: str, needs: WorkNeeds) -> None:
        deadline, most = needs.deadline_at, needs.max_tokens
        why = ""

        def take(batch: Batch) -> None:
            nonlocal why
            reports = (event.output_tokens for _, event in batch.events if isinstance(event, e.UsageReported))
            used = max((each for each in reports if each is not None), default=0)
            if most is not None and used > most:
                why = f"{TOOK}{used} tokens, more than its limit of {most}"
                watch.stop()

        try:
            try:
                async with asyncio.timeout(None if deadline is None else _until(deadline)):
                    async with self.gateway.runs.watch(run_id, deltas=False) as watch:
                        await watch.follow(take)
            except TimeoutError:
                why = PASSED
            if why:
                await self._cancel(run_id, why)
        except (NotFound, Unavailable) as gone:  # it was deleted, or the gateway stops
            log.debug("run %s is not held to its limits: %s", run_id, gone)
        finally:
            self._limited.discard(run_id)

    async def _cancel(self, run_id: str, why: str) -> None:
        await self.gateway.runs.cancel(run_id, reason=why)


def correlation_of(meta: JsonObject) -> str | None:
    found = meta.get(wire.CORRELATION)
    return found if isinstance(found, str) and found else None


def told_of(run: Run) -> MessageNeeds:
    return told_in(run.request.attributes.get(TOLD, {}))


def _until(deadline: float) -> float:
    return max(deadline - time.time(), 0.0)


def same_work(one: str | None, other: str | None) -> bool:
    """Whether two correlation ids are of the same work: an agent that works on it twice gets the id with a suffix."""
    return one is not None and other is not None and one.partition("~")[0] == other.partition("~")[0]


def fresh() -> str:
    return str(uuid.uuid4())


def ahead(needs: WorkNeeds, path: str) -> None:
    """Raises RpcError for a deadline, at `path`, that is past."""
    if needs.deadline_at is not None and needs.deadline_at <= time.time():
        expected = "a deadline that is not past"
        raise refusal(wire.DEADLINE, f"{path}: {PASSED}", "deadline", expected, needs.deadline, path=path)


def metadata_of(meta: JsonObject) -> JsonObject:
    return {key: value for key, value in keys.metadata(meta).items() if key != wire.CORRELATION}


def both(source: str, target: Any) -> JsonObject:
    """The members of a message that say from whom it is to whom; None for a client that is no agent."""
    return {"source": source, "target": target or CLIENT}
