"""An MCP server of a client's for MCP clients of another revision, or over HTTP: served as the gateway's own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Raw

from adapters.agent_client import forwarded
from adapters.agent_client.codec import errors
from adapters.agent_client.tunnel import mcp_messages, tool_rules
from adapters.agent_client.tunnel.agent_end import AgentEnd, OpenEnds
from adapters.agent_client.tunnel.offers import OfferedServer
from adapters.agent_client.wire import as_object
from gateway.core.errors import AgentGone, Denied, InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.client.calls import CallListener, OutgoingCall, OutgoingCalls
from gateway.mcp.client.session import ClientSession
from gateway.mcp.server.contract import InputRequired, McpCall, McpClient, McpSession, ServerIdentity
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc

ANY: Final[JsonObject] = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}
"""Capabilities declared until those of the agent's MCP client are known: until then it refuses what it cannot do."""
log = logging.getLogger(__name__)
SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
FILTER: Final = "resourceSubscriptions"
ACKNOWLEDGED_WITHIN: Final = 10.0
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
STATE: Final = "requestState"
RESPONSES: Final = "inputResponses"
PATIENCE: Final = 600.0
"""Seconds that a call waits for an agent of 2026-07-28 to come back with what its server asked."""
MOST_WAITING: Final = 100
_OURS: Final = frozenset(
    (wire.META_VERSION, wire.META_CAPABILITIES, wire.META_CLIENT, wire.META_LOG_LEVEL, wire.PROGRESS_TOKEN)
)
"""Keys of `_meta` that are between the two ends of one connection, and not passed through."""


# --- the gateway as the MCP client of a client's server -------------------------------------------------------------


class UpstreamEnd(AgentEnd):
    """An end that is the gateway's own. `start` it once, `hang_up` at the end. A `Channel` of a session."""

    def __init__(self, server: OfferedServer, ends: OpenEnds, capabilities: JsonObject, info: JsonObject) -> None:
        super().__init__(server, ends)
        self._news: Callable[[str, Raw], None] = lambda method, params: None
        self._acknowledged: Callable[[JsonObject], object] = lambda agreed: None
        self.version = ""
        self._telling = TaskSet(lambda error: log.debug("an MCP server is not told: %r", error))
        self.closed: asyncio.Future[AgentGone] = asyncio.get_running_loop().create_future()
        self._capabilities: JsonObject = dict(capabilities)
        self._calls = OutgoingCalls(self.name, self._heard)
        self._session = ClientSession(self, self._calls, self._capabilities, info)

    async def start(self) -> None:
        """Shake hands, if the server does that. Raises RpcError, and the errors of the tree."""
        line = await self.connected()
        await self._session.start(modern=line.stateless)

    def speak(self, version: str) -> None:
        """See `Channel`."""
        self.version = version

    def on_lost(self, renew: Callable[[], Awaitable[None]]) -> None:
        """See `Channel`: its session lasts as long as its connection."""

    @property
    def identity(self) -> ServerIdentity:
        said = self._session.server
        capabilities, instructions = said.get("capabilities"), said.get("instructions")
        return ServerIdentity(
            capabilities if isinstance(capabilities, dict) else {},
            wire.server_info(said) or {"name": self.name, "version": "0"},
            instructions if isinstance(instructions, str) else None,
        )

    def report_to(self, news: Callable[[str, Raw], None]) -> None:
        """Pass the server's notifications on, by method and params, from now on."""
        self._news = news

    def _heard(self, method: str, params: Raw) -> None:
        self._news(method, params)

    def introduce(self, client: McpClient) -> None:
        """Set the client that calls now, for a server that is told its capabilities with every request."""
        if versions.modern(self.version):
            self._capabilities.clear()
            self._capabilities.update(client.capabilities)

    async def call(self, method: str, params: JsonObject, listener: CallListener) -> Raw:
        """A request, to its result. Raises what `ClientSession.call` does."""
        return await self._session.call(method, params, listener=listener)

    async def beside(self, method: str, params: JsonObject) -> Raw:
        return await self._session.call(method, params)

    async def listen(self, wanted: JsonObject, acknowledged: Callable[[JsonObject], object]) -> None:
        """Hear of what is wanted (`subscriptions/listen`), until cancelled, or the server does not tell.

        `acknowledged` is given what a server of 2026-07-28 agrees to tell of.
        """
        self._acknowledged = acknowledged
        await self._session.listen(wanted)

    def tell_later(self, method: str, params: Raw) -> None:
        """A notification, if the server takes such. See `tell`; those of one run are told in their order."""
        if not versions.modern(self.version):
            self._telling.start(self.tell(mcp_messages.message(method, params)))

    async def hang_up(self) -> None:
        if not self.closed.done():
            self.closed.set_result(AgentGone(f"the connection to {self.name} was closed"))
            await self._session.aclose()
        await super().hang_up()

    # --- from the server ------------------------------------------------------------------------------------------

    async def asked(self, message: Raw) -> Raw:
        said = mcp_messages.read(message)
        task = asyncio.current_task()
        assert task is not None
        answer = await self._calls.answer(said.method, said.params, self.version, task.cancel)
        return answer if isinstance(answer, Raw) else jsonrpc.raw(answer)

    async def told(self, message: Raw) -> None:
        said = mcp_messages.read(message)
        if said.method == wire.ACKNOWLEDGED:
            self._acknowledged(as_object(mcp_messages.unpacked(said.params, dict[str, Any]).get("notifications")))
            return
        waiting = self._calls.heard(said.method, said.params)
        if waiting is not None:
            await waiting

    # --- gateway.mcp.client.session.Channel -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.server.offered.name or "an MCP server"

    @property
    def there(self) -> bool:
        """Whether it is connected to the client that it was connected to."""
        return self._client is not None

    @property
    def alive(self) -> bool:
        return not self.closed.done()

    @property
    def lasting(self) -> bool:
        """See `ClientSession`."""
        return not versions.modern(self.version)

    @property
    def shared(self) -> bool:
        return versions.modern(self.version)

    async def request(self, method: str, params: JsonObject, call: OutgoingCall | None) -> Raw:
        """See `Channel`. Rules were asked by who calls."""
        message = mcp_messages.message(method, params)
        result = await self._unwrapped(message)
        if method == wire.INITIALIZE:
            self._hello = message
        return result

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        await self.tell(mcp_messages.message(method, params or {}))

    async def aclose(self) -> None:
        """See `Channel`."""


# --- resources that MCP clients follow ------------------------------------------------------------------------------


class Subscriptions:
    """Of all MCP clients of one `Proxy`: its server is asked, in its revision's way, for what any of them follows."""

    def __init__(self, upstream: UpstreamEnd) -> None:
        self._upstream = upstream
        self._followers: dict[str, set[McpSession]] = {}
        self._changing = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._work = TaskSet()

    def follows(self, session: McpSession, uri: Any) -> bool:
        return session in self._followers.get(uri, ()) if isinstance(uri, str) else False

    async def subscribe(self, session: McpSession, uri: Any, send: Callable[[], Awaitable[Raw]] | None = None) -> Raw:
        """`resources/subscribe`. `send` asks a server of such a revision.

        Raises RpcError for a resource that the server does not tell of, and the errors of the tree.
        """
        if not isinstance(uri, str):
            raise jsonrpc.RpcError(jsonrpc.INVALID_PARAMS, "uri: the resource is not named", {"path": "/uri"})
        async with self._changing:
            result = forwarded.NOTHING
            if uri not in self._followers:
                if versions.modern(self._upstream.version):
                    await self._listen({*self._followers, uri}, uri)
                else:
                    result = await (send() if send else self._upstream.beside(SUBSCRIBE, {"uri": uri}))
            self._followers.setdefault(uri, set()).add(session)
            return result

    async def unsubscribe(self, session: McpSession, uri: Any) -> Raw:
        """`resources/unsubscribe`: the server is told when nobody follows it any more."""
        async with self._changing:
            there = self._followers.get(uri, set()) if isinstance(uri, str) else set()
            there.discard(session)
            if there or uri not in self._followers:
                return forwarded.NOTHING
            del self._followers[uri]
            if not versions.modern(self._upstream.version):
                return await self._upstream.beside(UNSUBSCRIBE, {"uri": uri})
            await self._listen(self._followers.keys())
            return forwarded.NOTHING

    def joined(self, session: McpSession) -> None:
        """A client is there; one of 2026-07-28 that listens has said what it follows."""
        for uri in sorted(session.resources):
            self._keep(partial(self.subscribe, session, uri))

    def left(self, session: McpSession) -> None:
        self._keep(partial(self._left, session))

    def close(self) -> None:
        for task in (*self._work, *([self._listening] if self._listening is not None else [])):
            task.cancel()

    async def _left(self, session: McpSession) -> None:
        async with self._changing:  # behind what it has only begun to follow
            uris = [uri for uri, there in self._followers.items() if session in there]
        for uri in uris:
            self._keep(partial(self.unsubscribe, session, uri))

    async def _listen(self, uris: Collection[str], new: str | None = None) -> None:
        """Listen anew; what was listened to is let go when that is acknowledged. Raises RpcError if `new` is not."""
        before, self._listening = self._listening, None
        try:
            if uris:
                self._listening = await self._acknowledged({FILTER: sorted(uris)}, new)
        except BaseException:
            self._listening, before = before, None
            raise
        finally:
            if before is not None:
                before.cancel()

    async def _acknowledged(self, wanted: JsonObject, new: str | None) -> asyncio.Task[None]:
        told: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()

        def acknowledged(agreed: JsonObject) -> None:
            if FILTER in agreed and not told.done():  # else it is about other news
                told.set_result(agreed)

        listening = asyncio.create_task(self._upstream.listen(wanted, acknowledged))
        try:
            waited: list[asyncio.Future[Any]] = [listening, told]
            await asyncio.wait(waited, timeout=ACKNOWLEDGED_WITHIN, return_when=asyncio.FIRST_COMPLETED)
            if new is not None and not (told.done() and new in told.result()[FILTER]):
                raise jsonrpc.RpcError(jsonrpc.INVALID_PARAMS, f"{new}: the server does not tell of its changes")
        except BaseException:
            listening.cancel()
            raise
        return listening

    def _keep(self, work: Callable[[], Awaitable[Any]]) -> None:
        async def quietly() -> None:
            try:
                await work()
            except (InterlinguaError, jsonrpc.RpcError) as error:
                log.info("an MCP server is not asked for news of a resource: %s", error)

        self._work.start(quietly())


# --- the server that agents see -------------------------------------------------------------------------------------


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
        return self._upstream.identity

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
            raise jsonrpc.RpcError(jsonrpc.METHOD_NOT_FOUND, f"{call.method} is not of {call.client.version}")
        uri = params.get("uri")
        if call.method == UNSUBSCRIBE:
            return await self._subscriptions.unsubscribe(call.session, uri)
        waiting = ProxiedCall(call)
        return await self._subscriptions.subscribe(call.session, uri, self._called(params, waiting))

    def error(self, call: McpCall, error: Exception) -> jsonrpc.ErrorObject:
        if isinstance(error, Denied):
            return errors.denied(error).error
        said = str(error) if isinstance(error, InterlinguaError) else "internal error"
        return jsonrpc.ErrorObject(jsonrpc.INTERNAL_ERROR, said)

    def notification(self, session: McpSession, method: str, params: Raw) -> None:
        if not method.startswith(wire.PROGRESS):
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
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(lambda _: self._some.set())

    def goes_on(self, call: McpCall, answers: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.call = call
        given = as_object(answers)
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

    # --- gateway.mcp.client.calls.CallListener ----------------------------------------------------------------------

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        if method == wire.PROGRESS:
            token = self.call.progress_token
            if token is None:
                return None
            params = forwarded.replaced(params, progressToken=token)
        self.call.notify(method, params)
        return self.call.drain()

    def again(self) -> None:
        """See `Listener`."""

    async def asked(self, method: str, params: Raw) -> Any:
        """See `Listener`. Put at once where that can be done, else in the answer to the request."""
        if self.call.can_ask:
            return await self.call.ask(method, params)
        if not versions.modern(self.call.client.version):
            raise jsonrpc.RpcError(jsonrpc.METHOD_NOT_FOUND, f"{method}: the MCP client of the agent cannot be asked")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        key = f"q{uuid.uuid4().hex[:8]}"
        self._questions[key] = ({"method": method, "params": jsonrpc.unpack(params or forwarded.NOTHING)}, future)
        self._some.set()
        try:
            return await future
        finally:
            self._questions.pop(key, None)


def _settled(task: asyncio.Task[Raw]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()
