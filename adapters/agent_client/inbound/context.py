"""The data of one session of one client, and the only code that changes it."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec.updates_out import envelope
from adapters.agent_client.governed import untrusted_bytes
from adapters.agent_client.inbound import governed, turns
from adapters.agent_client.inbound.client import EditorClient, SharedSession
from adapters.agent_client.inbound.turns import PromptTurn
from adapters.agent_client.tunnel import mcp_messages as tunnel
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.contract import governing
from gateway.core.errors import Conflict
from gateway.core.types import Run, Thread, ThreadUpdate
from gateway.wire import jsonrpc


class OpenedBy(enum.Enum):
    """How a session is opened: only `LOAD` tells what was. `TAKEN`: its client has not asked for it to be opened."""

    NEW = "new"
    LOAD = "load"
    RESUME = "resume"
    TAKEN = "taken"


class SessionContext:
    """One session as one client has it open. All state is changed by the methods here.

    choosing: whether its client may choose the agent.
    params: the params that it was opened with; an agent that is chosen later gets them too.
    config: the values that were set of the agent's configuration.
    replaying: whether a replay goes on. opened: whether opening has ended, well or badly. closed: whether it is left.
    turn: the client's prompt, until the work that it started has ended.
    run: the run whose updates the client gets now.
    """

    def __init__(self, client: EditorClient, thread: Thread, agent: str, params: Raw) -> None:
        self.client = client
        self.choosing = client.agent is None
        self.gateway = client.gateway
        self.id = thread.id
        self.thread = thread
        self.agent = agent
        self.params = params
        self.config: JsonObject = thread.attributes.get("config") or {}
        self.replaying = self.opened = self.closed = False
        self.way = OpenedBy.NEW
        self.turn: PromptTurn | None = None
        self.run: Run | None = None
        self._envelope = envelope(self.id)

    # --- life -------------------------------------------------------------------------------------------------

    def opens(self, way: OpenedBy) -> None:
        """How the client sees the session opened."""
        self.way = way

    def replays(self) -> None:
        """The client is told what was, from the record or by the agent; unless it has left meanwhile."""
        self.replaying = not self.closed

    def told(self) -> None:
        """The replay has ended, if there was one: the client is about to be answered."""
        self.replaying, self.opened = False, True

    def close(self) -> None:
        self.told()
        self.closed = True

    @property
    def resumed(self) -> bool:
        return self.way in (OpenedBy.LOAD, OpenedBy.RESUME)

    @property
    def busy(self) -> bool:
        return self.turn is not None or self.run is not None

    # --- prompts ----------------------------------------------------------------------------------------------

    def begin(self, turn: PromptTurn) -> None:
        """Start a prompt turn. Raises Conflict while one is in progress."""
        if self.turn is not None:
            raise Conflict(f"session {self.id} is busy with its last prompt")
        self.turn = turn

    def may_reopen(self) -> None:
        """Raises Conflict while a prompt is not answered."""
        if self.turn is not None and not self.turn.taken:
            raise Conflict(f"session {self.id} is busy with its last prompt")

    def finish(self, turn: PromptTurn) -> None:
        if self.turn is turn:
            self.turn = None

    def follows(self, run: Run | None) -> None:
        self.run = run

    def owns(self, run: Run) -> bool:
        """Whether the client's prompt has started this run, or answers its question."""
        turn = self.turn
        if turn is None:
            return False
        if turn.run is None and run.request.attributes.get(turns.MARK) == turn.mark:
            turn.started(run.id)
        return turn.run == run.id

    # --- what the client is told ------------------------------------------------------------------------------

    def tell(self, *updates: bytes) -> None:
        """Send updates, in this order. Dropped if the client has gone."""
        if self.replaying and self.governor is not None:
            updates = tuple(map(untrusted_bytes, updates))
        self.client.say(self._envelope(updates))

    # --- its agent --------------------------------------------------------------------------------------------

    @property
    def governor(self) -> governing.Governor | None:
        return governed.of(self.gateway, self.agent)

    @functools.cached_property
    def servers(self) -> list[tunnel.Offered]:
        """The MCP servers that its client offers without an address."""
        return tunnel.offered(jsonrpc.read(self.params, wire.NewSession).mcp_servers)

    def tries(self, agent: str, params: Raw) -> None:
        """Send requests to another agent with these params, before the choice is final."""
        self.agent, self.params = agent, params

    def chosen(self, agent: str, config: JsonObject) -> None:
        self.agent, self.config = agent, config

    async def relay(self, method: str, params: Raw, told: Callable[[ThreadUpdate], None] | None = None) -> Raw:
        """Hand a request to the agent. Raises Unsupported if it does not speak this protocol itself.

        `told`: see `Gateway.backchannel.relay`.
        """
        return await self.gateway.backchannel.relay(self.agent, PROTOCOL, method, params, thread=self.id, told=told)

    async def change(self, attributes: JsonObject) -> None:
        await self.client.clients.whole(self.gateway.threads.update(self.id, attributes=attributes))

    def elsewhere(self) -> list[SharedSession]:
        return [each for each in self.client.clients.open(self.id) if each.client is not self.client]
