"""The data of one session of one client, its states, and the only code that changes them.

There is a table for the session's life, and one for the prompts in it. A step that a table does not have is refused and
changes nothing.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Final

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
from gateway.core.errors import Conflict, IllegalEvent
from gateway.core.types import Run, Thread, ThreadUpdate
from gateway.wire import jsonrpc

# --- states -----------------------------------------------------------------------------------------------------------


class SessionLife(enum.StrEnum):
    """The state of the session itself."""

    NEW = "not opened yet"
    OPENING = "being opened"
    REPLAYING = "being told from the record"
    OPENED = "opened, and its client not answered"
    RELOADING = "being told by its agent"
    LIVE = "known to its client"
    CLOSED = "closed"


class SessionStep(enum.StrEnum):
    """An event in its life."""

    OPEN = "open"
    REPLAY = "replay"
    """It is told from the record."""
    RELOAD = "reload"
    """It is told by its agent."""
    TOLD = "told"
    """The replay has ended, if there was one."""
    GO = "go"
    """The client has the answer to the request that opened it."""
    CLOSE = "close"


LIFE: Final[dict[tuple[SessionLife, SessionStep], SessionLife]] = {
    (SessionLife.NEW, SessionStep.OPEN): SessionLife.OPENING,
    (SessionLife.OPENING, SessionStep.REPLAY): SessionLife.REPLAYING,
    (SessionLife.OPENING, SessionStep.TOLD): SessionLife.OPENED,
    (SessionLife.REPLAYING, SessionStep.TOLD): SessionLife.OPENED,
    (SessionLife.OPENED, SessionStep.RELOAD): SessionLife.RELOADING,
    (SessionLife.LIVE, SessionStep.RELOAD): SessionLife.RELOADING,  # of a session that only the agent knows
    (SessionLife.RELOADING, SessionStep.TOLD): SessionLife.OPENED,
    (SessionLife.OPENED, SessionStep.GO): SessionLife.LIVE,
    **{(life, SessionStep.CLOSE): SessionLife.CLOSED for life in SessionLife},
    # a client may leave while it is told, or about to be answered
    (SessionLife.CLOSED, SessionStep.RELOAD): SessionLife.CLOSED,
    (SessionLife.CLOSED, SessionStep.TOLD): SessionLife.CLOSED,
    (SessionLife.CLOSED, SessionStep.GO): SessionLife.CLOSED,
}


class Prompting(enum.StrEnum):
    """The state of the session's prompt."""

    FREE = "free for a prompt"
    WAITING = "busy with a prompt that is not answered"
    WORKING = "busy with what an answered prompt began"


class PromptStep(enum.StrEnum):
    """An event of a prompt; REOPEN asks whether the session may be opened again."""

    PROMPT = "prompt"
    ANSWER = "answer"
    OVER = "over"
    REOPEN = "reopen"


PROMPTING: Final[dict[tuple[Prompting, PromptStep], Prompting]] = {
    (Prompting.FREE, PromptStep.PROMPT): Prompting.WAITING,
    (Prompting.WAITING, PromptStep.ANSWER): Prompting.WORKING,  # of version 2, which answers when it is taken
    (Prompting.WAITING, PromptStep.OVER): Prompting.FREE,
    (Prompting.WORKING, PromptStep.OVER): Prompting.FREE,
    (Prompting.FREE, PromptStep.REOPEN): Prompting.FREE,
    (Prompting.WORKING, PromptStep.REOPEN): Prompting.WORKING,
}


# --- the session ------------------------------------------------------------------------------------------------------


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
    replaying: whether a replay goes on. opened: whether opening has ended, well or badly.
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
        self.life = SessionLife.NEW
        self.prompting = Prompting.FREE
        self.replaying = self.opened = False
        self.way = OpenedBy.NEW
        self.turn: PromptTurn | None = None
        self.run: Run | None = None
        self._envelope = envelope(self.id)

    # --- life -------------------------------------------------------------------------------------------------

    def advance(self, step: SessionStep, way: OpenedBy | None = None) -> None:
        """Take one step of its life. `way`: how the client sees the session opened then. Raises IllegalEvent."""
        life = LIFE.get((self.life, step))
        if life is None:
            raise IllegalEvent(f"{step.value} of session {self.id}, which is {self.life.value}")
        self.life = life
        self.replaying = life in (SessionLife.REPLAYING, SessionLife.RELOADING)
        self.opened = self.opened or life in (SessionLife.OPENED, SessionLife.CLOSED)
        self.way = way or self.way

    @property
    def resumed(self) -> bool:
        """Whether the client has loaded or resumed it."""
        return self.way in (OpenedBy.LOAD, OpenedBy.RESUME)

    @property
    def busy(self) -> bool:
        """Whether a run goes on."""
        return self.turn is not None or self.run is not None

    # --- prompts ----------------------------------------------------------------------------------------------

    def prompt(self, step: PromptStep) -> None:
        """Take one step of its prompt. Raises Conflict where the client has to wait."""
        prompting = PROMPTING.get((self.prompting, step))
        if prompting is None:
            raise Conflict(f"session {self.id} is busy with its last prompt")
        self.prompting = prompting

    def begin(self, turn: PromptTurn) -> None:
        """Start a prompt turn. Raises Conflict while one is in progress."""
        self.prompt(PromptStep.PROMPT)
        self.turn = turn

    def answered(self, turn: PromptTurn) -> None:
        """The prompt is answered; its work goes on."""
        if self.turn is turn:
            self.prompt(PromptStep.ANSWER)

    def finish(self, turn: PromptTurn) -> None:
        """The work of the prompt has ended."""
        if self.turn is turn:
            self.prompt(PromptStep.OVER)
            self.turn = None

    def follows(self, run: Run | None) -> None:
        """Set the run whose updates the client gets."""
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
        """The governor of its agent's route."""
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
        """Change attributes of the thread. Raises NotFound."""
        await self.client.clients.whole(self.gateway.threads.update(self.id, attributes=attributes))

    def elsewhere(self) -> list[SharedSession]:
        """List the session as other connections have it open."""
        return [each for each in self.client.clients.open(self.id) if each.client is not self.client]
