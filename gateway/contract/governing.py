"""The rules of a governed route (AIP-44), for adapters that know of rules.

The outbound half of a governed route is wrapped (gateway/governance/enforcing/outbound.py): every tool call that its
events tell is decided, audited and approved there. What no event tells is asked here by the half that does it: files
and commands that an agent wants from its client or from the gateway, folders that a session names, tools that travel
in a tunnel, permissions that an agent asks for.

    governor_named(agents, name, protocol)  the rules of an agent's route, for an inbound half
    governor_of(context)                    the same, for the outbound half
    run_governor_of(context)                the rules at work in one run

Each is None where nothing governs the route.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, runtime_checkable

import msgspec

from gateway.contract.backchannel import ThreadContext
from gateway.contract.gateway import GatewayAgents
from gateway.core.events import Custom
from gateway.core.types import Answer, Interrupt, InterruptSpec, Json, JsonObject

RISKS: Final[Mapping[str, int]] = MappingProxyType(
    {"read": 0, "search": 0, "think": 0, "fetch": 0, "edit": 1, "move": 1, "switch_mode": 1}
)
"""By the kind of a tool call (`ToolCallStarted.kind`): 0 reads, 1 changes. Any other kind is UNKNOWN_RISK."""
UNKNOWN_RISK: Final = 2
"""Hard to undo, or seen by others: of kinds that delete or execute, and of those of which nothing is known."""
GREATEST_RISK: Final = 3
"""It cannot be undone."""
GOVERNOR: Final = "governor"
"""The key of the route's `Governor` among the extensions of a governed outbound half (`GatewayAgents.extension`)."""

APPROVAL: Final = "approval"
"""The kind of the interrupt by which the gateway asks whether a tool may be called."""
DECISION: Final = "decision"
APPROVE: Final = "approve"
REJECT: Final = "reject"
APPROVALS: Final = InterruptSpec(
    kind=APPROVAL,
    payload_schema={
        "type": "object",
        "properties": {
            "call": {"type": "string", "description": "The call's id."},
            "tool": {"type": "string", "description": "What is to be called."},
            "server": {"type": "string", "description": "The MCP server whose tool it is."},
            "arguments": {"description": "What it is to be called with."},
            "risk": {"type": "integer", "minimum": 0, "maximum": 3},
            "policy": {"type": "string", "description": "The policy that has it approved."},
            "approvers": {"type": "array", "items": {"type": "string"}, "description": "Who may; empty: anybody."},
            "why": {"type": "string"},
        },
        "required": ["call", "tool", "approvers", "why"],
    },
    answer_schema={
        "type": "object",
        "properties": {DECISION: {"type": "string", "enum": [APPROVE, REJECT], "enumNames": ["Approve", "Reject"]}},
        "required": [DECISION],
    },
)
"""That question, as every governed agent publishes it."""


def risk_of(kind: str | None, said: Json = None) -> int:
    """The risk of a tool call of a kind. `said` is what the agent itself says it is: that may only raise it."""
    known = UNKNOWN_RISK if kind is None else RISKS.get(kind, UNKNOWN_RISK)
    stated = said if isinstance(said, int) and not isinstance(said, bool) else 0
    return min(max(known, stated), GREATEST_RISK)


class Instruction(msgspec.Struct, frozen=True):
    """Something that an agent is told before what is asked of it: a skill of its operator (AIP-3).

    `uri` is what documents call it, `text` Markdown.
    """

    name: str
    uri: str
    text: str

    @property
    def plain(self) -> str:
        """The whole as text, for who takes nothing else."""
        return f'<skill name="{self.name}">\n{self.text}\n</skill>'


class ToolServer(msgspec.Struct, frozen=True):
    """An MCP server that every session of an agent is given. transport: stdio (`command`), http or sse (`url`)."""

    name: str
    transport: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str = ""


class Governor(Protocol):
    """One route's rules, at work. A reload of the route's documents makes another."""

    @property
    def about(self) -> JsonObject:
        """The content of `_meta.aip44` for clients: `tier`, `acp_rev` (and `acp_rev_spoken`, where it differs), and the
        operator's id as `operator`.
        """

    @property
    def judges(self) -> bool:
        """Whether tool calls are judged: not where a manifest stands alone and nothing governs its agent."""

    @property
    def ephemeral(self) -> bool:
        """Whether what a session was about is forgotten when it is closed (the operator's `memory.kind`)."""

    @property
    def home(self) -> str | None:
        """The folder of a session for which neither a client nor the route names one: the first root that is a folder
        of this machine. None if there is none.
        """

    @property
    def servers(self) -> Sequence[ToolServer]:
        """The manifest's MCP servers, for outbound halves whose protocol has a place for them. Names differ."""

    def lends(self, can: JsonObject) -> JsonObject:
        """Of what a client can do for its agent (`fs`, `terminal`, and whatever else), what the agent may use."""

    def effective(self, can: JsonObject) -> JsonObject:
        """Of the capabilities that there are (`{"agent": {...}, "client": {...}}`), those that may be declared."""

    def check(self, can: JsonObject) -> None:
        """Raises Unavailable where something that the manifest promises for the agent is not among what it can do.

        The engine calls it before every run; who declares capabilities to a client calls it before.
        """

    def admit(self, path: str, *, write: bool = False) -> str:
        """An absolute path with its links gone. Raises Denied where it is not within the authorised roots."""

    def offers(self, tool: str, server: str | None = None) -> bool:
        """Whether the operator may have the tool at all: what it may not is not even listed. Counts nothing."""

    async def opened(self, thread: str, *, principal: str | None = None, protocol: str = "") -> None:
        """A session is made for a client: audited (`operator.invoked`) before the client is told. Once for a session.

        `principal` is who the client is, if anybody knows, `protocol` which one it speaks; as in a `RunRequest`.
        For sessions that nobody says this of, the first run does. Raises Unavailable if it cannot be audited.
        """

    async def stray(self, thread: str, tool: str, arguments: Json, *, call: str = "", why: str = "") -> None:
        """A tool call came outside of any run: audited as refused. The caller drops it. Raises nothing."""

    async def closed(self, thread: str) -> None:
        """A session was closed: its audit is. Raises Unavailable if that cannot be audited."""


class RunGovernor(Protocol):
    """The same for one run."""

    @property
    def preface(self) -> Sequence[Instruction]:
        """Instructions to give the agent first in this run, in this order; only for halves with `RuleKeeping.prefaces`.

        It was audited before `Outbound.run` was called.
        """

    async def forgotten(self) -> None:
        """The agent has nothing of what was said in the session: from now on `preface` is that of a first turn, and
        audited. Called before the prompt is made. Raises Unavailable if it cannot be audited.
        """

    def describe(
        self,
        call: str,
        *,
        tool: str | None = None,
        server: str | None = None,
        risk: int | None = None,
        arguments: Json = None,
        pending: bool = False,
    ) -> None:
        """Add what the events of a tool call cannot say. Called before they are emitted.

        `call` is the events' (`ToolCallStarted.call`). `tool` is what the rules know the tool as (else the event's
        `name`), `server` the MCP server whose it is, `risk` as by `risk_of` (else by the event's `kind`), `arguments`
        those that came later than the start. None: nothing new. A tool that changes its name, or whose risk rises, is
        decided anew.
        `pending`: the agent has announced the call, has not begun it, and may still ask for permission. A call that
        needs approval then waits for that question; else, and as soon as anything says that it has begun, the approval
        is asked for at once. It never began if its end is a failure, or has no result and is emitted together with the
        end of the run.
        """

    async def permission(
        self,
        call: str,
        tool: str,
        arguments: Json,
        *,
        risk: int,
        server: str | None = None,
        question: Interrupt,
        grants: Callable[[Answer], bool],
    ) -> Answer | None:
        """The agent asks for permission to make a call. What is to be answered; None: the rules allow the call by
        themselves, and the route's own policy has the word.

        Where the rules ask for approval `question` is put to the run's caller (never answered by a policy), until
        somebody who may approve has; `grants` says whether an answer lets the agent do it. Where they deny, the answer
        is `declined`, and the refusal audited. `call` as in `describe`, whether it was emitted before or not: the
        events of the call are judged by what was answered here.
        Raises Unavailable if it cannot be audited.
        """

    async def act(self, tool: str, arguments: Json, *, risk: int, server: str | None = None) -> str:
        """Before a tool call that no event of the run speaks of is done: decide, audit, and wait for approval.

        If an event does speak of it (the same tool of the same MCP server with the same arguments, once), before or
        after, one decision is for both, by the greater risk.
        Returns the call's id, for `acted`. Raises Denied, Unavailable if it cannot be audited.
        """

    async def acted(self, call: str, *, result: Json = None, error: Json = None) -> None:
        """It was done, or it failed: audited before anybody is told. Raises Unavailable if it cannot be."""


class CallNews(NamedTuple):
    """The news of a tool call in a protocol's own event. `result`: an addition to the call's result, or {}."""

    call: str
    result: JsonObject


@runtime_checkable
class RuleKeeping(Protocol):
    """Offered by outbound halves that know of rules: what they do beside events is asked of the `Governor`s above.

    Every other half is relayed nothing on a governed route.
    """

    @property
    def prefaces(self) -> bool:
        """Whether `run` sends `RunGovernor.preface`. For every other half it becomes part of the input's text."""

    def tool_call_of(self, event: Custom) -> CallNews | None:
        """The tool call that an event goes on with, by the name that the run's events give it. None if it has none.

        The event is shown only if that call is.
        """


def governor_named(agents: GatewayAgents, name: str, protocol: str) -> Governor | None:
    """Return what governs an agent, by name or by UUID. Asks nobody. Raises NotFound."""
    found: Governor | None = agents.extension(name, protocol, GOVERNOR)
    return found


def governor_of(context: ThreadContext) -> Governor | None:
    """Return what governs the agent of a conversation."""
    return getattr(context, "governor", None)


def run_governor_of(context: ThreadContext) -> RunGovernor | None:
    """Return what judges the calls of a run."""
    return getattr(context, "governed", None)
