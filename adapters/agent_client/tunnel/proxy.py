"""An MCP server of a client's for MCP clients of another revision, or over HTTP: served as the gateway's own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Raw

from adapters.agent_client.tunnel import mcp_messages, tool_rules
from adapters.agent_client.tunnel.offers import OfferedServer
from adapters.agent_client.tunnel.subscriptions import SUBSCRIBE, UNSUBSCRIBE, Subscriptions
from adapters.agent_client.tunnel.upstream import UpstreamEnd
from gateway.core.errors import Denied, InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.server.contract import InputRequired, McpCall, McpSession, ServerIdentity
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, RpcError

log = logging.getLogger(__name__)

METHODS: Final = (
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    SUBSCRIBE,
    UNSUBSCRIBE,
    "prompts/list",
    "prompts/get",
    "completion/complete",
)
PROGRESS: Final = "notifications/progress"
STATE: Final = "requestState"
RESPONSES: Final = "inputResponses"
PATIENCE: Final = 600.0
"""Seconds that a call waits for an agent of 2026-07-28 to come back with what its server asked."""
MOST_WAITING: Final = 100
_OURS: Final = frozenset(
    (wire.META_VERSION, wire.META_CAPABILITIES, wire.META_CLIENT, wire.META_LOG_LEVEL, wire.PROGRESS_TOKEN)
)
"""Keys of `_meta` that are between the two ends of one connection, and not passed through."""


class McpProxy:
    """See `gateway.mcp.server.contract.Service`. `upstream` has shaken hands."""

    methods: Sequence[str] = METHODS

    def __init__(self, server: OfferedServer, upstream: UpstreamEnd) -> None:
        self._server = server
        self._upstream = upstream
        self._sessions: dict[McpSession, None] = {}
        self._waiting: dict[str, ProxiedCall] = {}
        self._subscriptions = Subscriptions(upstream)
        upstream.report_to(self._news)

    def identity(self, session: McpSession) -> ServerIdentity:
        said = self._upstream.identity
        return ServerIdentity(said.capabilities, said.info, said.instructions)

    async def request(self, call: McpCall) -> Any:
        params = jsonrpc.unpack(call.params)
        if call.method in (SUBSCRIBE, UNSUBSCRIBE):
            return await self._followed(call, params)
        waiting = self._waiting.pop(str(params.get(STATE)), None) if STATE in params else None
        if waiting is None:
            self._upstream.introduce(call.client)
            waiting = ProxiedCall(call)
            waiting.begin(tool_rules.asked(self._server, call.method, call.params, self._called(params, waiting)))
        else:
            waiting.goes_on(call, params.get(RESPONSES))
        if not versions.modern(call.client.version):
            return await waiting.result()
        asked = await waiting.questions()
        if asked is None:
            return await waiting.result()
        while len(self._waiting) >= MOST_WAITING:
            self._waiting.pop(next(iter(self._waiting))).end()
        state = uuid.uuid4().hex
        self._waiting[state] = waiting
        waiting.expires(PATIENCE, lambda: self._waiting.pop(state, None))
        raise InputRequired(asked, state)

    async def _followed(self, call: McpCall, params: JsonObject) -> Raw:
        """Subscribe or unsubscribe one resource: up to 2025-11-25 each has its own request."""
        if versions.modern(call.client.version):
            raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"{call.method} is not of {call.client.version}")
        uri = params.get("uri")
        if call.method == UNSUBSCRIBE:
            return await self._subscriptions.unsubscribe(call.session, uri)
        waiting = ProxiedCall(call)
        return await self._subscriptions.subscribe(call.session, uri, self._called(params, waiting))

    def error(self, call: McpCall, error: Exception) -> ErrorObject:
        if isinstance(error, Denied):
            return ErrorObject(jsonrpc.INVALID_REQUEST, str(error), {"code": error.code})
        said = str(error) if isinstance(error, InterlinguaError) else "internal error"
        return ErrorObject(jsonrpc.INTERNAL_ERROR, said)

    def notification(self, session: McpSession, method: str, params: Raw) -> None:
        if not method.startswith("notifications/progress"):
            self._upstream.tell_later(method, params)

    def joined(self, session: McpSession) -> None:
        self._sessions[session] = None
        self._subscriptions.joined(session)

    def left(self, session: McpSession) -> None:
        self._sessions.pop(session, None)
        self._subscriptions.left(session)

    def close(self) -> None:
        """Give up the calls that wait for an agent to come back."""
        self._subscriptions.close()
        for waiting in self._waiting.values():
            waiting.end()
        self._waiting.clear()

    def _called(self, params: JsonObject, waiting: ProxiedCall) -> Callable[[], Awaitable[Raw]]:
        meta = params.get(wire.META)
        kept = {key: each for key, each in meta.items() if key not in _OURS} if isinstance(meta, dict) else {}
        sent = {key: each for key, each in params.items() if key not in (wire.META, STATE, RESPONSES)}
        level = waiting.call.log_level
        if level is not None and versions.modern(self._upstream.version):
            kept[wire.META_LOG_LEVEL] = level
        if kept:
            sent[wire.META] = kept
        return lambda: self._upstream.call(waiting.call.method, sent, waiting)

    def _news(self, method: str, params: Raw) -> None:
        said = jsonrpc.unpack(params) if params else None
        if isinstance(said, dict) and isinstance(said.get(wire.META), dict):
            meta = {key: each for key, each in said[wire.META].items() if key != wire.META_SUBSCRIPTION}
            said = {
                **{key: each for key, each in said.items() if key != wire.META},
                **({wire.META: meta} if meta else {}),
            }
        uri = said.get("uri") if isinstance(said, dict) else None
        for session in list(self._sessions):
            if method != wire.UPDATED or self._subscriptions.follows(session, uri):
                session.tell(method, said)


class ProxiedCall:
    """One call to the server; a `Listener`. A client of 2026-07-28 calls several times until it is over."""

    def __init__(self, call: McpCall) -> None:
        self.call = call
        self._task: asyncio.Task[Raw] | None = None
        self._questions: dict[str, tuple[JsonObject, asyncio.Future[Any]]] = {}
        self._some = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, work: Any) -> None:
        """Send it."""
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(lambda _: self._some.set())

    def goes_on(self, call: McpCall, answers: Any) -> None:
        """The client has come back, with answers."""
        if self._timer is not None:
            self._timer.cancel()
        self.call = call
        given = answers if isinstance(answers, dict) else {}
        for key, (_, future) in self._questions.items():
            if key in given and not future.done():
                future.set_result(given[key])
        self._questions = {key: each for key, each in self._questions.items() if not each[1].done()}
        if not self._questions:
            self._some.clear()

    async def questions(self) -> JsonObject | None:
        """Wait for the server's questions and return them; None once it has answered."""
        assert self._task is not None
        try:
            while not self._task.done():
                if self._questions:
                    return {key: asked for key, (asked, _) in self._questions.items()}
                self._some.clear()
                await self._some.wait()
        except asyncio.CancelledError:
            self.end()
            raise
        return None

    async def result(self) -> Raw:
        """The server's result. Given up, the server is told."""
        assert self._task is not None
        try:
            return await self._task
        finally:
            self.end()

    def expires(self, seconds: float, then: Callable[[], object]) -> None:
        """End the call and call `then` after this time, if the agent has not come back."""

        def late() -> None:
            then()
            self.end()

        self._timer = asyncio.get_running_loop().call_later(seconds, late)

    def end(self) -> None:
        """Cancel the call: it is no longer waited for."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and not self._task.done():
            self._task.add_done_callback(_settled)
            self._task.cancel()

    # --- gateway.mcp.client.contract.Listener -----------------------------------------------------------------------

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        if method == PROGRESS:
            token = self.call.progress_token
            if token is None:
                return None
            params = mcp_messages.replaced(params, progressToken=token)
        self.call.notify(method, params)
        return self.call.drain()

    def again(self) -> None:
        """See `Listener`."""

    async def asked(self, method: str, params: Raw) -> Any:
        """See `Listener`. Put at once where that can be done, else in the answer to the request."""
        if self.call.can_ask:
            return await self.call.ask(method, params)
        if not versions.modern(self.call.client.version):
            raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"{method}: the MCP client of the agent cannot be asked")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        key = f"q{uuid.uuid4().hex[:8]}"
        self._questions[key] = ({"method": method, "params": jsonrpc.unpack(params or Raw(b"{}"))}, future)
        self._some.set()
        try:
            return await future
        finally:
            self._questions.pop(key, None)


def _settled(task: asyncio.Task[Raw]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()
