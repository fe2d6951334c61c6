"""Options of the Agent Client Protocol in `routes.yaml`: the `inbound:` section's and a target's."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AnyUrl, Field, PrivateAttr, TypeAdapter, UrlConstraints, model_validator

from gateway.access import AuthenticatingOptions
from gateway.contract import Options, TargetOptions
from gateway.transport.pipe import LIMIT

MAX_CONNECTIONS = 32
"""Connections to one target at a time, one for each kind of client, which clients choose: each may be a process."""

Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]

ToolKind = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"]
"""The protocol's kinds of tool calls (schema: ToolKind)."""

_any_url = TypeAdapter(Annotated[AnyUrl, UrlConstraints(allowed_schemes=["http", "https", "ws", "wss"])])


def _url(text: str) -> str:
    _any_url.validate_python(text)
    return text.rstrip("/")


AgentUrl = Annotated[str, AfterValidator(_url), Field(json_schema_extra={"format": "uri"})]
"""ws, wss: a WebSocket; http, https: Streamable HTTP."""


class AgentClientServe(AuthenticatingOptions):
    """`inbound.agent_client`.

    max_message: greatest message in bytes; a larger one is answered with an error.
    max_body: the same for a POST of Streamable HTTP; larger is 413.
    max_connections: how many clients may be connected at a time; one more is refused.
    max_sessions: how many sessions a connection may have open.
    idle: seconds after which a Streamable HTTP connection without any open stream is ended. Its sessions live on.
    socket_idle: seconds after which a WebSocket is closed (1001) on which no message went either way, pings aside, and
        nothing is under way. Its client connects again and loads its session. Left out: never.
    keep_alive: seconds of silence after which a stream gets a comment line.
    origins: web pages that may connect (values of `Origin`), besides the gateway's own and, where no other machine
        reaches it, those of this machine; others are refused, programs send none.
    v2: whether a client that asks for version 2 of the protocol (a draft) gets it.
    """

    max_message: Bytes = LIMIT
    max_body: Bytes = LIMIT
    max_connections: Annotated[int, Field(gt=0)] = 1000
    max_sessions: Annotated[int, Field(gt=0)] = 1000
    idle: Seconds = 300.0
    socket_idle: Seconds | None = None
    keep_alive: Seconds = 15.0
    origins: tuple[str, ...] = ()
    v2: bool = False

    @property
    def by_request(self) -> bool:
        """No: a client may also say by `authenticate` who it is."""
        return False

    @property
    def judges_pages(self) -> bool:
        """See `InboundOptions.judges_pages`: by `origins`."""
        return True


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


class AgentClientTarget(TargetOptions):
    """A `target:` with `protocol: agent_client`: either `command` or `url`.

    command: program and arguments of an agent that speaks on its standard input and output.
    env: variables for it, besides the gateway's own.
    cwd: the folder it is started in, and that of sessions whose client names none; the gateway's own if left out.
    url: a remote agent: ws:// and wss:// a WebSocket, http:// and https:// Streamable HTTP.
    api_key_header: header that carries `auth.api_key` to a remote agent.
    workspace: files for the agent when its client offers none.
    permissions: who answers the agent's permission questions.
    start_timeout: seconds it may take to start and answer `initialize`.
    request_timeout: longest any request may take that does not wait for the agent's work, in seconds.
    idle: seconds an agent is kept after its last session was used; a started process serves many sessions.
    warm: processes that are started with the gateway, instead of with the first client, and again when they end. The
        first says what the agent is, and serves clients of other protocols. The others wait: clients of this protocol
        that differ in what they can do have a process each, and whenever one that waits is taken another is started.
    stop_timeout: seconds a process has to end after it was told to, before it is killed with all that it started.
    max_message: greatest message in bytes; a larger one is an error.
    v2: whether version 2 of the protocol, a draft, is spoken with an agent that can; one that cannot answers with 1.
    """

    command: tuple[str, ...] = ()
    env: dict[str, str] = Field(default={})
    cwd: Path | None = None
    url: AgentUrl | None = None
    api_key_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] = "x-api-key"
    workspace: Workspace | None = None
    permissions: Permissions = Permissions()
    start_timeout: Seconds = 30.0
    request_timeout: Seconds = 30.0
    idle: Seconds = 300.0
    warm: Annotated[int, Field(ge=0, le=MAX_CONNECTIONS)] = 0
    stop_timeout: Seconds = 3.0
    max_message: Bytes = LIMIT
    v2: bool = False

    _most: int = PrivateAttr(default=MAX_CONNECTIONS)

    @property
    def warmed(self) -> bool:
        """See `TargetOptions.warmed`."""
        return self.warm > 0

    def shared_out(self, place: int, workers: int) -> Self:
        """See `TargetOptions.shared_out`. Processes are so many in all, with the gateway and for kinds of clients."""
        made = self.model_copy(update={"warm": self.part(self.warm, place, workers)})
        made.may_have(max(1, self.part(MAX_CONNECTIONS, place, workers)))
        return made

    def may_have(self, connections: int) -> None:
        """Called once, by whoever made it."""
        self._most = connections

    @property
    def most_connections(self) -> int:
        """Connections to the target at a time."""
        return self._most

    @property
    def describe_timeout(self) -> float:
        """It may have to be started, and fetched before that."""
        return self.start_timeout + self.request_timeout

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if bool(self.command) == (self.url is not None):
            raise ValueError("name either a command or a url")
        if self.warm and self.url is not None:
            raise ValueError("warm is for an agent with a command")
        return self
