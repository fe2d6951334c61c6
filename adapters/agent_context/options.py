"""Options of the protocol in routes.yaml: those of its `inbound:` section, and a target's."""

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from gateway.access import Patterns, each_its_own
from gateway.access.options import ClientCredentials, ClientTokens, limits_of
from gateway.contract import Options
from gateway.contract.options import ClientLimits, Count, HeaderSecret, Network, Seconds, SocketUrl
from gateway.mcp.options import McpServeOptions, McpTarget

Right = Literal["register", "message", "delegate", "read", "evaluate", "sample", "revoke"]
"""register: agents, their heartbeats, and to speak as them; message: send them messages; delegate: tasks; read: the
resources, and agentSearch; evaluate: agentEvaluate; sample: sampling/createMessage; revoke: other agents' access."""

RIGHTS: tuple[Right, ...] = ("register", "message", "delegate", "read", "evaluate", "sample", "revoke")
ORDINARY: tuple[Right, ...] = RIGHTS[:-1]

COORDINATOR = "interlingua-tasks"
"""The coordinator's name, where the options give it none."""

Weight = Annotated[float, Field(ge=0)]


def _ed25519(text: str) -> str:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if len(raw) != 32:
        raise ValueError("not the 32 bytes of an Ed25519 key")
    return text


PublicKey = Annotated[str, AfterValidator(_ed25519)]


class Client(ClientCredentials):
    """Somebody with credentials of their own.

    name: who it is: owner of the agents it registers, `sub` of its JWT.
    token: what it sends as `Authorization: Bearer`, or as `auth.token` when it registers an agent.
    public_key: Ed25519, base64: whose private key signs the agents it registers. With it, every one must be signed.
    may: what it may do.
    agents: patterns of the agent ids for which it may do so.
    roles: what it is besides its name: by them it may approve tool calls that wait for approval.
    """

    public_key: PublicKey | None = None
    may: tuple[Right, ...] = ORDINARY
    agents: Patterns = ("*",)
    roles: tuple[Annotated[str, Field(min_length=1)], ...] = ()


class Jwt(ClientTokens):
    """JSON Web Tokens (RFC 7519) instead of tokens of the list. `exp`, `nbf`, `aud` and `iss` are checked.

    may: what the bearer of a valid one may do whose `sub` no client of the list has.
    agents: patterns of the agent ids for which.
    roles: the claim that names the roles of every bearer whose `sub` no client of the list has: a list, or a text with
        blanks between them.
    """

    may: tuple[Right, ...] = ()
    agents: Patterns = ("*",)
    roles: Annotated[str, Field(min_length=1)] = "roles"


class AccessOptions(Options):
    """Who may do what. With it, whoever has no valid token may do no more than connect.

    clients: who there is.
    jwt: for tokens that are JWTs.
    anonymous: what clients without a token may do.
    """

    clients: tuple[Client, ...] = ()
    jwt: Jwt | None = None
    anonymous: tuple[Right, ...] = ()

    @model_validator(mode="after")
    def _each_its_own(self) -> Self:
        each_its_own(self.clients)
        return self


class Weights(Options):
    """How much counts what, when an agent is chosen for a task. Only their proportions matter.

    quality: its quality score, of evaluations or its own.
    cost: how little a token costs.
    load: how little it has to do.
    speed: how fast it is.
    security: its security rating. Never nothing (section 7.3).
    """

    quality: Weight = 3.0
    cost: Weight = 2.0
    load: Weight = 2.0
    speed: Weight = 1.0
    security: Annotated[float, Field(gt=0)] = 2.0


class Conduct(Options):
    """What is unusual of an agent: more of something within a window. It is logged, and counted for `/metrics`.

    window: seconds; each begins with the first thing that an agent does.
    requests: messages, tasks, tool calls and so on that it sends.
    refusals: requests of its own that are refused, for its rights or because they are wrong.
    failures: messages and tasks that it fails, by its own fault.
    suspend: seconds for which the access of an agent beyond a limit is revoked; before that it is given back by
        `agent/restore` or `interlingua revoke --restore`. Left out: no agent is suspended. Beware: whoever may send an
        agent work may be able to make it fail.
    """

    window: Seconds = 60.0
    requests: Count = 1000
    refusals: Count = 50
    failures: Count = 50
    suspend: Seconds | None = None


class Announce(Options):
    """A foreign directory of the Agent Context Protocol that agents of the route table are registered at.

    Each registers with its door here as its endpoint (`public_url`): the directory must be allowed to call that, and
    the door must let clients in without a token. What it has under the same id already stays there.

    url: the directory, as of a target.
    token: what the gateway shows it as `Authorization: Bearer`.
    agents: patterns of the agents.
    heartbeat: seconds between two heartbeats; what has changed is told with the next.
    """

    url: SocketUrl
    token: HeaderSecret | None = None
    agents: Patterns = ("*",)
    heartbeat: Seconds = 30.0


class AgentContextServe(McpServeOptions):
    """`inbound.agent_context`, besides what every server of MCP clients has.

    access: who may do what. Left out: everybody may do everything.
    heartbeat: seconds between an agent's heartbeats; every other message of it is one too.
    missed: how many it may miss before it is shown inactive and gets no work.
    forget: seconds after which an agent that was not heard of any more has to register again.
    coordinator: name of the agent that stands for the coordination in the other protocols too: what it is told is done
        by the best agent. Left out: tasks are for clients of this protocol.
    per_agent: how many tasks an agent is given at a time; further ones wait in the queue.
    attempts: how many agents are tried for a task before it fails.
    patience: seconds that a task without a deadline waits while all agents that could do it are busy or away.
    approve: patterns of the agents whose tasks somebody has to approve first.
    weights: how an agent is chosen.
    conduct: what is unusual of an agent, and whether it is suspended for it.
    announce: foreign directories that agents are registered at while the gateway runs.
    agent_timeout: longest that a run of an agent which registered may take, in seconds.
    endpoints: CIDRs of internal addresses that agents may name as their endpoint; public addresses always may be.
    page_size: how many resources or tools one answer lists; the next page is asked for with its cursor.
    """

    access: AccessOptions | None = None
    heartbeat: Seconds = 30.0
    missed: Count = 3
    forget: Seconds = 7 * 86400.0
    coordinator: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]+$")] | None = None
    per_agent: Count = 4
    attempts: Count = 3
    patience: Seconds = 300.0
    approve: Patterns = ()
    weights: Weights = Weights()
    conduct: Conduct = Conduct()
    announce: tuple[Announce, ...] = ()
    agent_timeout: Seconds = 600.0
    endpoints: tuple[Network, ...] = ()
    page_size: Count = 100

    @property
    def client_limits(self) -> Mapping[str | None, ClientLimits]:
        return {} if self.access is None else limits_of(self.access.clients, self.access.jwt)

    @property
    def authenticates(self) -> bool:
        return self.access is not None and not self.access.anonymous

    @property
    def shut(self) -> str:
        access = self.access
        if access is None or access.anonymous or access.clients or (access.jwt is not None and access.jwt.may):
            return ""
        return "access"

    @property
    def tasks_of(self) -> str:
        """Name of the agent whose runs are the tasks."""
        return self.coordinator or COORDINATOR

    @property
    def brings(self) -> tuple[str, ...]:
        return (self.tasks_of,)

    @property
    def sends(self) -> Mapping[tuple[str | int, ...], str]:
        return {("announce", at, "token"): each.url for at, each in enumerate(self.announce) if each.token is not None}


class AgentContextTarget(McpTarget):
    """A `target:` with `protocol: agent_context`, besides what every MCP server's has.

    agent: the agent's id there, or the name of a tool of a server that knows MCP only; may be left out where only one
        lives.
    agents: `"*"`: the route stands for all agents (or tools) that live there, and each becomes one under its own name.
    call: how it is called: by `agent/message`, by `agent/delegate`, or as a tool. `auto`: a run that is a task by
        agent/delegate where the agent says that it takes tasks, every other by agent/message; as a tool where the
        server knows MCP only.
    """

    agents: Literal["*"] | None = None
    call: Literal["auto", "message", "delegate", "tool"] = "auto"

    @property
    def stands_for_many(self) -> bool:
        return self.agents is not None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.agent is not None and self.agents is not None:
            raise ValueError("name one of agent and agents")
        return self
