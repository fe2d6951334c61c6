"""Options of the Agent Client Protocol in `routes.yaml`: the `inbound:` section's and a target's."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, field_validator

from gateway.access import AuthenticatingOptions
from gateway.contract import Options
from gateway.contract.options import Bytes, Count, MessageDoor, ProgramOrUrl

MAX_CONNECTIONS = 32
"""Connections to one target at a time, one for each kind of client, which clients choose: each may be a process."""

ToolKind = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"]
"""The protocol's kinds of tool calls (schema: ToolKind)."""


class AgentClientServe(MessageDoor, AuthenticatingOptions):
    """`inbound.agent_client`.

    max_connections: how many clients may be connected at a time; one more is refused.
    max_sessions: how many sessions a connection may have open.
    idle: seconds after which a Streamable HTTP connection without any open stream is ended. Its sessions live on.
    v2: whether a client that asks for version 2 of the protocol (a draft) gets it.
    """

    max_connections: Count = 1000
    max_sessions: Count = 1000
    v2: bool = False

    @property
    def by_request(self) -> bool:
        """No: a client may also say by `authenticate` who it is."""
        return False


class Workspace(Options):
    """Files, and maybe terminals, for agents whose client offers none."""

    root: Path = Field(
        description="The folder they may see; nothing outside of it is read or written, whatever links say."
    )
    write: bool = Field(default=False, description="Whether they may write there.")
    terminals: bool = Field(
        default=False,
        description="Whether they may run commands there. A command is a program: it is not kept inside the root.",
    )
    max_file: Bytes = Field(default=16 * 1024 * 1024, description="Greatest file that is read or written, in bytes.")


class Permissions(Options):
    """Answers to the agent's requests for permission, by the kind of tool call: the first list that has it decides."""

    deny: tuple[ToolKind, ...] = Field(default=(), description="Kinds that are refused.")
    forward: tuple[ToolKind, ...] = Field(default=(), description="Kinds of which the client is asked.")
    allow: tuple[ToolKind, ...] = Field(default=(), description="Kinds that are allowed without a question.")
    default: Literal["deny", "forward", "allow"] = Field(
        default="forward", description="What becomes of every other kind."
    )


class AgentClientTarget(ProgramOrUrl):
    """A `target:` with `protocol: agent_client`: either `command` or `url`.

    cwd: the folder it is started in, and that of sessions whose client names none; the gateway's own if left out.
    url: a remote agent: ws:// and wss:// a WebSocket, http:// and https:// Streamable HTTP.
    workspace: files for the agent when its client offers none.
    permissions: who answers the agent's permission questions.
    idle: seconds an agent is kept after its last session was used; a started process serves many sessions.
    warm: processes that are started with the gateway, instead of with the first client, and again when they end. The
        first says what the agent is, and serves clients of other protocols. The others wait: clients of this protocol
        that differ in what they can do have a process each, and whenever one that waits is taken another is started.
    v2: whether version 2 of the protocol, a draft, is spoken with an agent that can; one that cannot answers with 1.
    """

    workspace: Workspace | None = None
    permissions: Permissions = Permissions()
    warm: Annotated[int, Field(ge=0, le=MAX_CONNECTIONS)] = 0
    v2: bool = False

    _most: int = PrivateAttr(default=MAX_CONNECTIONS)

    @field_validator("url")
    @classmethod
    def _without_last_slash(cls, url: str | None) -> str | None:
        return url and url.rstrip("/")

    def shared_out(self, place: int, workers: int) -> Self:
        """See `TargetOptions.shared_out`. Processes are so many in all, with the gateway and for kinds of clients."""
        made = super().shared_out(place, workers)
        made.may_have(max(1, self.part(MAX_CONNECTIONS, place, workers)))
        return made

    def may_have(self, connections: int) -> None:
        """Called once, by whoever made it."""
        self._most = connections

    @property
    def most_connections(self) -> int:
        """Connections to the target at a time."""
        return self._most
