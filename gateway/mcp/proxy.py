"""An MCP server that is reached by an ask and a tell, for MCP clients of any revision: served as the gateway's own.

    MCP client -> McpProxy.converse, McpProxy.http -> ask, tell                     -> MCP server
               <-                                  <- McpProxy.asked, McpProxy.heard <-

The gateway is a server to one and a client of the other. Known methods pass, and what either end may not know in its
revision (subscriptions, questions, progress tokens) is said in the other's way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Raw

from gateway.core.errors import AgentGone, Denied, InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.client.calls import OutgoingCall, OutgoingCalls
from gateway.mcp.client.session import Channel, ClientSession
from gateway.mcp.server.contract import EMPTY, InputRequired, McpCall, McpSession, ServerIdentity
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.pipe import PipeSession
from gateway.transport.pipe import Pipe
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from gateway.mcp.server.http.streamable import StreamableEndpoint

ANY: Final[JsonObject] = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}
"""Capabilities declared until those of the MCP client are known: until then it refuses what it cannot do."""
log = logging.getLogger(__name__)
SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
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
"""Seconds that a call waits for a client of 2026-07-28 to come back with what its server asked."""
MOST_WAITING: Final = 100
_OURS: Final = frozenset(
    (wire.META_VERSION, wire.META_CAPABILITIES, wire.META_CLIENT, wire.META_LOG_LEVEL, wire.PROGRESS_TOKEN)
)
"""Keys of `_meta` that are between the two ends of one connection, and not passed through."""

Ask: TypeAlias = Callable[[str, JsonObject], Awaitable[Raw]]
"""A request to the server, to its result. Raises RpcError, and errors of the tree."""
Tell: TypeAlias = Callable[[str, Raw | JsonObject], Coroutine[Any, Any, None]]
"""A notification to it."""
Rules: TypeAlias = Callable[[str, Raw, Callable[[], Awaitable[Raw]]], Awaitable[Raw]]
"""(method, params, send) of a client's request: sends it, where it may be, and returns its result, or what of that may
be known. Raises as `Ask` does.
"""


class _AskedServer(Channel):
    """The server, for a session of the gateway's with it."""

    def __init__(self, name: str, ask: Ask, tell: Tell) -> None:
        super().__init__(name)
        self._ask = ask
        self._tell = tell

    async def request(self, method: str, params: JsonObject, call: OutgoingCall | None) -> Raw:
        return await self._ask(method, params)

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        await self._tell(method, params or {})

    async def aclose(self) -> None:
        if not self.closed.done():
            self.closed.set_result(AgentGone(f"the connection to {self.name} was closed"))


class Subscriptions:
    """The resources that MCP clients follow, all of one proxy: its server is asked, in its revision's way, for what any
    of them follows.
    """

    def __init__(self, server: ClientSession) -> None:
        self._server = server
        self._followers: dict[str, set[McpSession]] = {}
        self._changing = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._agreed: asyncio.Future[JsonObject] | None = None
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
            result = EMPTY
            if uri not in self._followers:
                if versions.modern(self._server.version):
                    await self._listen({*self._followers, uri}, uri)
                else:
                    result = await (send() if send else self._server.call(SUBSCRIBE, {"uri": uri}))
            self._followers.setdefault(uri, set()).add(session)
            return result

    async def unsubscribe(self, session: McpSession, uri: Any) -> Raw:
        """`resources/unsubscribe`: the server is told when nobody follows it any more."""
        async with self._changing:
            there = self._followers.get(uri, set()) if isinstance(uri, str) else set()
            there.discard(session)
            if there or uri not in self._followers:
                return EMPTY
            del self._followers[uri]
            if not versions.modern(self._server.version):
                return await self._server.call(UNSUBSCRIBE, {"uri": uri})
            await self._listen(self._followers.keys())
            return EMPTY

    def joined(self, session: McpSession) -> None:
        """A client is there; one of 2026-07-28 that listens has said what it follows."""
        for uri in sorted(session.resources):
            self._keep(partial(self.subscribe, session, uri))

    def left(self, session: McpSession) -> None:
        self._keep(partial(self._left, session))

    def acknowledged(self, agreed: Any) -> None:
        """What a server of 2026-07-28 agrees to tell of."""
        wanted = isinstance(agreed, dict) and wire.RESOURCE_SUBSCRIPTIONS in agreed  # else it is about other news
        if wanted and self._agreed is not None and not self._agreed.done():
            self._agreed.set_result(agreed)

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
                self._listening = await self._begun({wire.RESOURCE_SUBSCRIPTIONS: sorted(uris)}, new)
        except BaseException:
            self._listening, before = before, None
            raise
        finally:
            if before is not None:
                before.cancel()

    async def _begun(self, wanted: JsonObject, new: str | None) -> asyncio.Task[None]:
        told = self._agreed = asyncio.get_running_loop().create_future()
        listening = asyncio.create_task(self._server.listen(wanted))
        try:
            waited: list[asyncio.Future[Any]] = [listening, told]
            await asyncio.wait(waited, timeout=ACKNOWLEDGED_WITHIN, return_when=asyncio.FIRST_COMPLETED)
            if new is not None and not (told.done() and new in told.result()[wire.RESOURCE_SUBSCRIPTIONS]):
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


async def _no_rules(method: str, params: Raw, send: Callable[[], Awaitable[Raw]]) -> Raw:
    return await send()


class McpProxy:
    """One server behind it. `start` it, then let it serve; `heard` and `asked` take what the server says. Made on the
    running loop.

    Towards its clients it is a `gateway.mcp.server.contract.Service`.
    """

    methods: Sequence[str] = METHODS

    def __init__(
        self, name: str, ask: Ask, tell: Tell, *, capabilities: JsonObject, info: JsonObject, rules: Rules = _no_rules
    ) -> None:
        """name: the server's, for logs and errors. capabilities, info: what it is told of its client."""
        self._name = name
        self._tell = tell
        self._rules = rules
        self._channel = _AskedServer(name, ask, tell)
        self._calls = OutgoingCalls(name, self._told_all)
        self._server = ClientSession(self._channel, self._calls, capabilities, info)
        self._subscriptions = Subscriptions(self._server)
        self._telling = TaskSet(lambda error: log.debug("an MCP server is not told: %r", error))
        self._hub = Hub(self)
        self._endpoint: StreamableEndpoint | None = None
        self._sessions: dict[McpSession, None] = {}
        self._waiting: dict[str, ProxiedCall] = {}

    async def start(self, *, modern: bool) -> None:
        """Shake hands, unless the server is known not to (`modern`). Raises RpcError, and the errors of the tree."""
        await self._server.start(modern=modern)

    # --- from the server ------------------------------------------------------------------------------------------

    async def asked(self, method: str, params: Raw) -> Raw:
        """A request of the server's, to its result. Raises RpcError, and errors of the tree."""
        task = asyncio.current_task()
        assert task is not None
        answer = await self._calls.answer(method, params, self._server.version, task.cancel)
        return answer if isinstance(answer, Raw) else jsonrpc.raw(answer)

    async def heard(self, method: str, params: Raw) -> None:
        """A notification of the server's; waits while who is told reads slowly."""
        if method == wire.ACKNOWLEDGED:
            agreed = jsonrpc.members(params).get("notifications")
            self._subscriptions.acknowledged(jsonrpc.unpack(agreed) if agreed else None)
            return
        waiting = self._calls.heard(method, params)
        if waiting is not None:
            await waiting

    def _told_all(self, method: str, params: Raw) -> None:
        """A notification that belongs to no call."""
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

    # --- for clients ------------------------------------------------------------------------------------------------

    async def converse(self, pipe: Pipe) -> None:
        """Serve one client, until it has gone."""
        await PipeSession(self._hub, None).run(pipe)

    @property
    def http(self) -> ASGIApp:
        """Streamable HTTP, for any number of clients."""
        if self._endpoint is None:
            from gateway.mcp.server.http.streamable import StreamableEndpoint

            self._endpoint = StreamableEndpoint(self._hub)
        return self._endpoint

    async def aclose(self) -> None:
        """Give up all calls, also those that wait for a client to come back, and end the sessions. Idempotent."""
        self._hub.stop()
        self._subscriptions.close()
        for waiting in self._waiting.values():
            waiting.end()
        self._waiting.clear()
        if self._endpoint is not None:
            await self._endpoint.aclose()
        await self._server.aclose()

    # --- gateway.mcp.server.contract.Service ------------------------------------------------------------------------

    def identity(self, session: McpSession) -> ServerIdentity:
        said = self._server.server
        capabilities, instructions = said.get("capabilities"), said.get("instructions")
        return ServerIdentity(
            capabilities if isinstance(capabilities, dict) else {},
            wire.server_info(said) or {"name": self._name, "version": "0"},
            instructions if isinstance(instructions, str) else None,
        )

    async def request(self, call: McpCall) -> Any:
        params = jsonrpc.unpack(call.params)
        if call.method in (SUBSCRIBE, UNSUBSCRIBE):
            return await self._followed(call, params)
        waiting = self._waiting.pop(str(params.get(STATE)), None) if STATE in params else None
        if waiting is None:
            self._server.declare(call.client.capabilities)
            waiting = ProxiedCall(call)
            waiting.begin(self._rules(call.method, call.params, self._called(params, waiting)))
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

    def error(self, call: McpCall, error: Exception) -> jsonrpc.RpcError:
        if isinstance(error, Denied):
            return jsonrpc.RpcError(jsonrpc.INVALID_REQUEST, str(error), {"code": error.code})
        said = str(error) if isinstance(error, InterlinguaError) else "internal error"
        return jsonrpc.RpcError(jsonrpc.INTERNAL_ERROR, said)

    def notification(self, session: McpSession, method: str, params: Raw) -> None:
        """See `Service.notification`: it is told the server, if that takes such, those of one run in their order."""
        if not method.startswith(wire.PROGRESS) and not versions.modern(self._server.version):
            self._telling.start(self._tell(method, params))

    def joined(self, session: McpSession) -> None:
        self._sessions[session] = None
        self._subscriptions.joined(session)

    def left(self, session: McpSession) -> None:
        self._sessions.pop(session, None)
        self._subscriptions.left(session)

    async def _followed(self, call: McpCall, params: JsonObject) -> Raw:
        """Subscribe or unsubscribe one resource: up to 2025-11-25 each has its own request."""
        if versions.modern(call.client.version):
            raise jsonrpc.RpcError(jsonrpc.METHOD_NOT_FOUND, f"{call.method} is not of {call.client.version}")
        uri = params.get("uri")
        if call.method == UNSUBSCRIBE:
            return await self._subscriptions.unsubscribe(call.session, uri)
        waiting = ProxiedCall(call)
        return await self._subscriptions.subscribe(call.session, uri, self._called(params, waiting))

    def _called(self, params: JsonObject, waiting: ProxiedCall) -> Callable[[], Awaitable[Raw]]:
        meta = params.get(wire.META)
        kept = {key: each for key, each in meta.items() if key not in _OURS} if isinstance(meta, dict) else {}
        sent = {key: each for key, each in params.items() if key not in (wire.META, STATE, RESPONSES)}
        level = waiting.call.log_level
        if level is not None and versions.modern(self._server.version):
            kept[wire.META_LOG_LEVEL] = level
        if kept:
            sent[wire.META] = kept
        return lambda: self._server.call(waiting.call.method, sent, listener=waiting)


class ProxiedCall:
    """One call to the server; a `CallListener`. A client of 2026-07-28 calls several times until it is over."""

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
        """End the call and call `then` after this time, if the client has not come back."""

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
            params = jsonrpc.replaced(params, progressToken=token)
        self.call.notify(method, params)
        return self.call.drain()

    def again(self) -> None:
        """See `CallListener`."""

    async def asked(self, method: str, params: Raw) -> Any:
        """See `CallListener`. Put at once where that can be done, else in the answer to the request."""
        if self.call.can_ask:
            return await self.call.ask(method, params)
        if not versions.modern(self.call.client.version):
            raise jsonrpc.RpcError(jsonrpc.METHOD_NOT_FOUND, f"{method}: the MCP client cannot be asked")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        key = f"q{uuid.uuid4().hex[:8]}"
        self._questions[key] = ({"method": method, "params": jsonrpc.unpack(params or EMPTY)}, future)
        self._some.set()
        try:
            return await future
        finally:
            self._questions.pop(key, None)


def _settled(task: asyncio.Task[Raw]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()
