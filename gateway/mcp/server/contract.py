"""The contract between what serves MCP clients and the adapter whose methods they call.

    client -> transport (pipe.py, http/) -> McpSession -> Service.request(McpCall) -> answer
    client <- transport                  <- McpCall.notify, McpCall.ask; McpSession.tell

The transports know revisions, handshakes, streams, ids and their own errors; a Service knows methods. A session lasts
from `initialize` until its connection, or for Streamable HTTP its id, is gone; in 2026-07-28 every request is a
session of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from gateway.access import Visit
from gateway.core.errors import AgentGone, Unsupported
from gateway.core.types import JsonObject
from gateway.mcp import wire
from gateway.mcp.wire import LEVELS
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Request, RpcError

EMPTY = msgspec.Raw(b"{}")

ProgressToken = str | int | float
"""As the client made it; 0 and "" are tokens too."""


class McpClient(msgspec.Struct, frozen=True):
    """The client as it introduced itself.

    version: the revision that is spoken. dialect: the name it is called by where the client proposed, and got, one of
    the `dialects` of `McpServer`.
    """

    version: str
    capabilities: JsonObject = {}
    info: JsonObject = {}
    dialect: str | None = None

    def can(self, *path: str) -> bool:
        return wire.declares(self.capabilities, *path)


class ServerIdentity(msgspec.Struct, frozen=True):
    """How a server introduces itself in `initialize` and `server/discover`."""

    capabilities: JsonObject
    info: JsonObject
    instructions: str | None = None


class McpSession(Protocol):
    """One client's connection. Made by a transport, handed to a Service."""

    id: str
    """Unguessable; what Streamable HTTP calls `Mcp-Session-Id`."""
    agent: str | None
    """The only agent it may talk to (path, or `interlingua stdio AGENT`); None for any."""
    client: McpClient
    """As it introduced itself last: `initialize` may come again."""
    log_level: str | None = None
    """The level that `logging/setLevel` set; None if it was never called."""
    bearer: str | None = None
    """The token of `Authorization: Bearer`; None where none was sent. Never log it.

    Of the upgrade for a WebSocket, of the GET for HTTP+SSE, of the latest POST for Streamable HTTP (so in
    `Service.notification` of the one it came with). None on standard input.
    """
    visit: Visit | None = None
    """The client by its token; None where clients are not asked, and on standard input."""

    @property
    def alive(self) -> bool:
        """Whether it has not ended. A call that is cancelled after the end was not given up by its client.

        It has ended once the connection, or the session of Streamable HTTP, has, or the gateway stops.
        """

    def tell(self, method: str, params: Any = None) -> None:
        """Send a notification that belongs to no request (list_changed). Never blocks; dropped without a listener.

        In 2026-07-28 it reaches only who subscribed to it (`subscriptions/listen`): see SUBSCRIBED, and for
        `notifications/resources/updated` to its `uri`.
        """

    @property
    def resources(self) -> frozenset[str]:
        """2026-07-28: the resources that it listens to. Up to 2025-11-25 none: `resources/subscribe` is the service's
        own.
        """
        return frozenset()

    def subscribed(self, uri: str) -> bool:
        return uri in self.resources

    @property
    def can_ask(self) -> bool:
        """Whether `ask` works now: never in 2026-07-28; on Streamable HTTP while the client has a GET open, or has
        just lost it and may come back."""

    @property
    def connected(self) -> bool:
        """Whether what is asked reaches the client at once: `can_ask`, less a GET that is lost."""
        return self.can_ask

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> msgspec.Raw:
        """A request to the client outside of any call, and its result. Cancelling the wait tells it so.

        On Streamable HTTP it goes over the client's GET, and is there still for one that lost it and comes back soon.
        Its id is never that of a `McpCall.ask` to the same client. Raises what `McpCall.ask` does (AgentGone where
        `can_ask` is false for now), and Unavailable where as many as `max_calls` are unanswered.
        """


class Out(Protocol):
    """Where a call's messages go."""

    can_ask: bool

    @property
    def full(self) -> bool:
        """Whether its client lets lie what it is sent."""

    def put(self, message: bytes) -> None:
        """Send; never waits, and is dropped once the client has gone."""

    async def drain(self) -> None:
        """See `McpCall.drain`. Returns once the client has gone."""

    async def ask(self, method: str, params: Any, timeout: float | None) -> msgspec.Raw:
        """See `McpCall.ask`. Not called where `can_ask` is false."""


class McpCall:
    """One request of a client, from its arrival to its answer. Made by a transport, handed to a Service.

    client: as this very request says in 2026-07-28, else the session's. bearer: the token that came with this request
    (`McpSession.bearer`). params: encoded, `{}` where there were none; `gateway.wire.jsonrpc.check` has taken them, so
    they can be stored. meta: `params._meta`, {} where there is none. progress_token: None where no progress is wanted.
    log_level: from which level on the client wants `notifications/message` for this request; None: none at all.
    over: it is answered, and no message belongs to it any more.
    """

    __slots__ = (
        "_out",
        "bearer",
        "client",
        "id",
        "log_level",
        "meta",
        "method",
        "over",
        "params",
        "progress_token",
        "session",
    )

    def __init__(
        self,
        session: McpSession,
        out: Out,
        request: Request,
        meta: JsonObject,
        *,
        log_level: str | None,
        bearer: str | None,
    ) -> None:
        self.session = session
        self.client = session.client
        self.bearer = bearer
        self.id = request.id
        self.method = request.method
        self.params = _params(request.params)
        self.meta = meta
        token = meta.get(wire.PROGRESS_TOKEN)
        told = isinstance(token, str | int | float) and not isinstance(token, bool)
        self.progress_token: ProgressToken | None = token if told else None
        self.log_level = log_level
        self.over = False
        self._out = out

    def log_from(self, level: str) -> None:
        self.log_level = level

    def wants(self, level: Any) -> bool:
        """Whether the client asked for `notifications/message` of this level. Unknown levels are all."""
        least = self.log_level
        if least is None:
            return False
        return least not in LEVELS or level not in LEVELS or LEVELS.index(level) >= LEVELS.index(least)

    def answered(self) -> None:
        """It is answered, or will not be."""
        self.over = True

    @property
    def can_ask(self) -> bool:
        """Whether `ask` works. Not in 2026-07-28: answer with an InputRequired instead, and be called again."""
        return self._out.can_ask

    def notify(self, method: str, params: Any = None) -> None:
        """A notification that belongs to this request: it goes where its answer will go. Never blocks."""
        self.send(jsonrpc.notification(method, params))

    def send(self, notification: bytes) -> None:
        """The same for a whole JSON-RPC notification that is encoded already (no line breaks)."""
        if not self.over:
            self._out.put(notification)

    async def drain(self) -> None:
        """Wait until what was said is on its way to the client; that is how a slow reader is noticed.

        On Streamable HTTP a reader that is away counts as slow, until it comes back or its session ends.
        """
        await self._out.drain()

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> msgspec.Raw:
        """Send a request to the client and return its result. Cancelling the wait cancels the request.

        Raises RpcError with the client's own error, AgentTimeout, AgentGone once the client has gone, Unsupported
        where `can_ask` is false.
        """
        if not self._out.can_ask:
            raise Unsupported(f"a client of {self.client.version} is not asked while its request is under way")
        if self.over:
            raise AgentGone("the request is answered already")
        return await self._out.ask(method, params, timeout)


def _params(given: msgspec.Raw) -> msgspec.Raw:
    """Params as a service gets them: `null` is none."""
    return EMPTY if not given or bytes(memoryview(given)[:1]) == b"n" else given


class InputRequired(Exception):
    """Raised by `Service.request` in 2026-07-28: the client is to answer `requests` and to send its request again.

    `requests`: by key, `{"method": ..., "params": ...}`. `state` comes back verbatim in `params.requestState`, the
    answers in `params.inputResponses` under the same keys.
    """

    def __init__(self, requests: JsonObject, state: str) -> None:
        super().__init__(state)
        self.requests = requests
        self.state = state


class Service(Protocol):
    """Brought by an adapter: one for all sessions."""

    methods: Sequence[str]
    """The requests it takes. All others are answered -32601 before they reach it."""

    def identity(self, session: McpSession) -> ServerIdentity:
        """The answer to `initialize` (or `server/discover`), in words that the session's revision knows.

        Must be cheap: called for every request of 2026-07-28. Raises the errors of the tree: NotFound if there is no
        agent `session.agent`.
        """

    async def request(self, call: McpCall) -> Any:
        """Serve a request; returns the result (a value msgspec encodes as an object, or a msgspec.Raw of one).

        Called in a task of its own, which is cancelled by `notifications/cancelled`, by the end of the session, in
        2026-07-28 over HTTP by the end of the response's stream, and by `McpServer.quiet`. Raise RpcError for an error
        answer; errors of the tree go through `error`. `initialize`, `ping`, `logging/setLevel`, `server/discover`,
        `subscriptions/listen` and cancelling are the transports' own business.
        """

    def error(self, call: McpCall, error: Exception) -> RpcError:
        """Return the error answer for an exception other than RpcError."""

    def notification(self, session: McpSession, method: str, params: msgspec.Raw) -> None:
        """A notification that is not the transports' own (`initialized`, `cancelled`). Must not raise or block.

        In the order of arrival, `notifications/progress` for the tokens of `McpSession.ask` and `McpCall.ask` among
        them, and before what was asked is seen to be answered if it came before. In 2026-07-28 the session is the
        notification's own, and ends with it.
        """

    def joined(self, session: McpSession) -> None:
        """Called when a session was initialized. In 2026-07-28: when a client listens (`subscriptions/listen`)."""

    def left(self, session: McpSession) -> None:
        """Called when it has ended: once for every `joined`, or for none."""


MOST_SUBSCRIPTIONS = 1000
"""Resources that one session may want to hear of."""

SUBSCRIBED = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
    "notifications/agents/list_changed": "agentsListChanged",
}
"""Methods for `McpSession.tell` -> the key of `subscriptions/listen` that asks for them (the last: an extension)."""
