"""What `routes.yaml` may say about the protocol: the `inbound:` section's options and a target's."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, IPvAnyNetwork, PrivateAttr, SecretStr, model_validator

from gateway.adapter import Options
from gateway.mcp.client.options import McpTarget
from gateway.mcp.server.options import Count, McpServeOptions, Seconds

Right = Literal["register", "message", "delegate", "read", "evaluate", "sample", "revoke"]
"""register: agents, their heartbeats, and to speak as them; message: send them messages; delegate: tasks; read: the
resources, and agentSearch; evaluate: agentEvaluate; sample: sampling/createMessage; revoke: other agents' access."""

RIGHTS: tuple[Right, ...] = ("register", "message", "delegate", "read", "evaluate", "sample", "revoke")
ORDINARY: tuple[Right, ...] = RIGHTS[:-1]

Algorithm = Literal[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]

KINDS = {"HS": "secret", "RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "Ed25519"}
SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""RFC 7518, 3.2."""
ANONYMOUS = "anonymous"

Patterns = tuple[Annotated[str, Field(min_length=1)], ...]
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


class Client(Options):
    """Somebody with credentials of their own.

    name: who it is: owner of the agents it registers, `sub` of its JWT.
    token: what it sends as `Authorization: Bearer`, or as `auth.token` when it registers an agent.
    public_key: Ed25519, base64: whose private key signs the agents it registers. With it, every one must be signed.
    may: what it may do.
    agents: patterns of the agent ids for which it may do so.
    """

    name: Annotated[str, Field(min_length=1)]
    token: Annotated[SecretStr, Field(min_length=1)] | None = None
    public_key: PublicKey | None = None
    may: tuple[Right, ...] = ORDINARY
    agents: Patterns = ("*",)


class Jwt(Options):
    """JSON Web Tokens (RFC 7519) instead of tokens of the list. `exp`, `nbf`, `aud` and `iss` are checked.

    key: secret (HS...) or public key in PEM of whoever signs them.
    key_file: a file with it instead.
    algorithms: those that are accepted, all of one kind.
    issuer: what `iss` must be. Left out: not looked at.
    audience: what `aud` must be or have among them.
    leeway: seconds by which clocks may differ.
    may: what the bearer of a valid one may do whose `sub` no client of the list has.
    agents: patterns of the agent ids for which.
    """

    key: Annotated[SecretStr, Field(min_length=1)] | None = None
    key_file: Path | None = None
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)]
    issuer: Annotated[str, Field(min_length=1)] | None = None
    audience: Annotated[str, Field(min_length=1)]
    leeway: Annotated[float, Field(ge=0)] = 0.0
    may: tuple[Right, ...] = ()
    agents: Patterns = ("*",)

    _keys: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def keys(self) -> Mapping[str, Any]:
        """The key as each algorithm wants it."""
        return self._keys

    @model_validator(mode="after")
    def _usable_key(self) -> Self:
        if (self.key is None) == (self.key_file is None):
            raise ValueError("name one of key and key_file")
        if len({KINDS[each[:2]] for each in self.algorithms}) > 1:
            raise ValueError("one key is never for both: name algorithms of one kind")
        if self.key is not None:
            key = self.key.get_secret_value().encode()
        else:
            assert self.key_file is not None
            try:
                key = self.key_file.read_bytes().strip()
            except OSError as error:
                raise ValueError(f"key_file: {error.strerror or 'cannot be read'}") from None
        from jwt.algorithms import get_default_algorithms  # costs as much as all of the gateway's options
        from jwt.exceptions import InvalidKeyError

        known = get_default_algorithms()
        for name in self.algorithms:
            if name in SECRET_BYTES and len(key) < SECRET_BYTES[name]:
                raise ValueError(f"the key is too short: {name} needs {SECRET_BYTES[name]} bytes")
            try:
                self._keys[name] = known[name].prepare_key(key)
            except (InvalidKeyError, ValueError, TypeError):
                raise ValueError(f"the key is none for {name}") from None
        return self


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
        if any(client.name == ANONYMOUS for client in self.clients):
            raise ValueError(f"clients: nobody may be called {ANONYMOUS}")
        twice = [name for name, times in Counter(client.name for client in self.clients).items() if times > 1]
        if twice:
            raise ValueError(f"clients: {twice[0]!r} is there twice")
        tokens = [client.token.get_secret_value() for client in self.clients if client.token is not None]
        if len(set(tokens)) < len(tokens):
            raise ValueError("clients: two have the same token")
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
    agent_timeout: Seconds = 600.0
    endpoints: tuple[IPvAnyNetwork, ...] = ()
    page_size: Count = 100


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

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.agent is not None and self.agents is not None:
            raise ValueError("name one of agent and agents")
        return self
