"""One initialized connection to a server: the handshake of every revision, and calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway.core import delta
from gateway.core.errors import AgentBroken, AgentFailed, AgentGone, AgentTimeout, InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.client.calls import CallListener, OutgoingCall, OutgoingCalls
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)


async def _unset() -> None:
    raise AssertionError("a channel is used by a session")


class Channel(ABC):
    """One connection to a server, used by one session. Made on the running loop.

    name: of the other end, for logs and error messages. version: the revision that is spoken; "" until that is known.
    closed: done, with the reason, once it is all over.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = ""
        self.closed: asyncio.Future[AgentGone] = asyncio.get_running_loop().create_future()
        self._handshake: Callable[[], Awaitable[None]] = _unset

    def speak(self, version: str) -> None:
        """From now on this revision is spoken, none as long as it is "". Called by the session."""
        self.version = version

    def on_lost(self, renew: Callable[[], Awaitable[None]]) -> None:
        """`renew` shakes hands again, for a server that has forgotten the session: only Streamable HTTP does."""
        self._handshake = renew

    @property
    def alive(self) -> bool:
        """False once nothing more can come of it."""
        return not self.closed.done()

    @property
    def lasting(self) -> bool:
        """See `ClientSession`."""
        return not versions.modern(self.version)

    @property
    def shared(self) -> bool:
        """Whether each request of the server's says which call it belongs to, so that a session takes any number. So it
        is where a server asks nothing but in its answers.
        """
        return versions.modern(self.version)

    @abstractmethod
    async def request(self, method: str, params: JsonObject, call: OutgoingCall | None) -> Raw:
        """Ask, and wait for the result. Given up, the server is told so, except of `wire.GREETINGS`.

        Raises as `ClientSession.call` does.
        """

    @abstractmethod
    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Tell. Raises AgentGone."""

    @abstractmethod
    async def aclose(self) -> None:
        """End it, bounded in time; requests under way fail with AgentGone."""


MOST_PAGES = 1000
MOST_ITEMS = 100_000
MOST_ROUNDS = 100
"""Of questions before one answer (2026-07-28),"""
MOST_QUESTIONS = 100
"""and questions in one round."""
PAUSES = (0.05, 2.0)
"""Seconds before a call is sent again that was told to come back: the first, and the longest, each twice the last."""
RELISTEN = (0.5, 30.0)
"""The same for a subscription that has ended."""
QUICK = 5.0
"""Seconds that a subscription must last not to count as refused."""
TRIES = 5
MOST_TOLD = 100
"""Names in an error."""

_TO_MODERN = frozenset({wire.UNSUPPORTED_VERSION, wire.HEADER_MISMATCH, jsonrpc.METHOD_NOT_FOUND})
"""Error codes by which a server without `initialize` answers it. It may also answer that the params are wrong."""
_PARAMS = frozenset({jsonrpc.INVALID_PARAMS, jsonrpc.INVALID_REQUEST})

CHANGES = {"tools": "toolsListChanged", "agents": "agentsListChanged"}
"""Capabilities with `listChanged` -> what to subscribe to (2026-07-28; the second is an extension)."""


class ClientSession:
    """One initialized connection to a server, which a `Supervisor` keeps.

    version: the revision that is spoken. server: its description of itself, the result of `initialize` (or of
    `server/discover`), whole.
    """

    def __init__(
        self,
        channel: Channel,
        calls: OutgoingCalls,
        capabilities: JsonObject,
        info: JsonObject,
        dialects: Mapping[str, str] | None = None,
        *,
        server: JsonObject | None = None,
    ) -> None:
        """server: where it is known without a handshake: `start` is not called then."""
        self.server: JsonObject = server or {}
        self._channel = channel
        self._calls = calls
        self._capabilities = capabilities
        self._info = info
        self._dialects = dialects or {}
        self._listening: asyncio.Task[None] | None = None
        channel.on_lost(self._handshake)

    @property
    def version(self) -> str:
        return self._channel.version

    @property
    def alive(self) -> bool:
        """False once nothing more can come of it."""
        return self._channel.alive and not self._channel.closed.done()

    @property
    def capabilities(self) -> JsonObject:
        """The capabilities that the server declared."""
        found = self.server.get("capabilities")
        return found if isinstance(found, dict) else {}

    def offers(self, *path: str) -> bool:
        """See `gateway.mcp.wire.declares`."""
        return wire.declares(self.capabilities, *path)

    @property
    def offered(self) -> str:
        """The names of its capabilities, to tell a person who misses one."""
        return few([name for name in self.capabilities if self.offers(name)]) or "nothing else either"

    @property
    def lasting(self) -> bool:
        """Whether the server may say something outside of its answers. Not in a revision without sessions, nor over
        Streamable HTTP where it has no standalone stream.
        """
        return self._channel.lasting

    @property
    def shared(self) -> bool:
        """Whether any number of calls may be under way, and it is still known what belongs to which."""
        return self._channel.shared

    @property
    def doubtful(self) -> bool:
        """Whether a server may still ask about a call that was given up."""
        return self._calls.doubtful

    @property
    def closed(self) -> asyncio.Future[AgentGone]:
        """Done when it has ended."""
        return self._channel.closed

    async def aclose(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        await self._channel.aclose()

    # --- the handshake ---------------------------------------------------------------------------------------------

    async def start(self, *, modern: bool = False) -> None:
        """Agree on a revision; `modern`: one without a handshake is what the server has spoken before.

        Raises RpcError where the server refuses, and what `call` raises.
        """
        if not (modern and await self._discovered()):
            await self._handshake()
        if versions.modern(self.version) and (wanted := self._wanted()):
            self._listening = asyncio.create_task(self.listen(wanted), name=f"{self._channel.name} subscription")

    async def _handshake(self) -> None:
        self._channel.speak("")
        hello = {
            "protocolVersion": versions.HANDSHAKE[-1],
            "capabilities": self._capabilities,
            "clientInfo": self._info,
        }
        try:
            answer = await self._channel.request(wire.INITIALIZE, hello, None)
        except RpcError as error:
            code = error.error.code
            if (code not in _TO_MODERN and code not in _PARAMS) or not await self._discovered():
                raise _tellable(error) from None
            return
        self._agree(_object(answer, wire.INITIALIZE, self._channel.name))
        await self._channel.notify(wire.INITIALIZED)

    def _agree(self, said: JsonObject) -> None:
        version = said.get("protocolVersion")
        if not isinstance(version, str):
            told = (
                "no protocolVersion" if version is None else f"the protocolVersion {version!r}, which is none of MCP's"
            )
            raise AgentBroken(f"{self._channel.name} answered initialize with {told}")
        version = self._dialects.get(version, version)
        if version not in versions.HANDSHAKE:
            raise AgentFailed(f"{self._channel.name} speaks the revision {version[:40]!r}, which is not spoken here")
        self._channel.speak(version)
        self.server = said

    async def _discovered(self) -> bool:
        """Whether it speaks a revision without handshake. Only asked with reason: servers exist that die of it."""
        self._channel.speak(versions.MODERN[-1])
        try:
            answer = await self._channel.request(wire.DISCOVER, self._params({}, None, {}, True), None)
        except AgentFailed as error:  # an answer, of whatever kind
            log.debug("%s: %s is answered %s", self._channel.name, wire.DISCOVER, error)
            self._channel.speak("")
            return False
        said = _object(answer, wire.DISCOVER, self._channel.name)
        offered = said.get("supportedVersions")
        if not isinstance(offered, list) or self.version not in offered:
            raise AgentFailed(f"{self._channel.name} speaks none of our revisions but {str(offered)[:100]}")
        self.server = said
        return True

    # --- calls -------------------------------------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        params: JsonObject | None = None,
        *,
        listener: CallListener | OutgoingCall | None = None,
        timeout: float | None = None,
    ) -> Raw:
        """Send a request, see it through, return its result.

        With a listener a progress token goes along in `params._meta` (a non-empty string, unique in the session;
        `params` itself is not changed). In 2026-07-28 an `input_required` result is worked off through
        `listener.asked`, and the call sent again, until it is complete. Cancelling the wait, or `timeout` seconds,
        tells the server that nobody waits any more.

        Raises RpcError with the server's own error, AgentTimeout, AgentBroken for what cannot be read, AgentGone when
        the connection ends first; over HTTP also AgentFailed for a status that says no more. Asked about
        input where nobody listens, AgentFailed.
        """
        if timeout is not None:
            async with self._within(timeout, method):
                return await self.call(method, params, listener=listener)
        call = listener if listener is None or isinstance(listener, OutgoingCall) else self._calls.begin(listener)
        params, modern = params or {}, versions.modern(self.version)
        try:
            if modern:
                return await self._worked_off(method, params, call)
            result = await self._channel.request(method, self._params(params, call, {}, modern), call)
            return self._checked(method, result)
        except RpcError as error:
            raise _tellable(error) from None
        finally:
            if call is not None and call is not listener:
                self._calls.end(call)

    @contextlib.asynccontextmanager
    async def _within(self, seconds: float | None, method: str) -> AsyncIterator[None]:
        """Raises AgentTimeout where the block takes longer."""
        try:
            async with asyncio.timeout(seconds) as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise AgentTimeout(f"{self._channel.name} did not answer {method} within {seconds:g} seconds") from None

    def hearing(self, listener: CallListener, key: str | None = None) -> AbstractContextManager[OutgoingCall]:
        """Listen for longer than one call: give what this yields to `call` as its listener, for one or several.

        Until the end of the block, also after the answer, the listener gets what belongs to it: by the progress token,
        or by `key` where the pool knows how keys are marked (`Keyed`). Raises ValueError for a key in use.
        """
        return self._calls.open(listener, key)

    def declare(self, capabilities: JsonObject) -> None:
        """What the client can do from now on, in a revision that says it with each request; in another nothing."""
        if versions.modern(self.version):
            self._capabilities = capabilities

    async def tell(self, method: str, params: JsonObject) -> None:
        """Send a notification. Raises AgentGone, and what the transport has for one that is not taken."""
        await self._channel.notify(method, params)

    async def _worked_off(self, method: str, params: JsonObject, call: OutgoingCall | None) -> Raw:
        """A call in 2026-07-28: sent again with the answers to what the server asks, until its result is complete."""
        answers: JsonObject = {}
        pause = PAUSES[0]
        for _ in range(MOST_ROUNDS):
            result = await self._channel.request(method, self._params(params, call, answers, True), call)
            if _kind(self._checked(method, result)) != wire.INPUT_REQUIRED:
                return result
            wanted = self._wanted_of(method, result)
            answers = {} if wanted.requestState is UNSET else {"requestState": wanted.requestState}
            if wanted.inputRequests:
                answers["inputResponses"] = await self._answers(method, wanted.inputRequests, call)
                pause = PAUSES[0]
            else:
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSES[1])
            if call is not None:
                call.again()
        raise AgentBroken(f"{self._channel.name} wants more input for {method} after {MOST_ROUNDS} times")

    async def list(self, method: str, key: str, *, timeout: float | None = None) -> list[JsonObject]:
        """All pages of a list (`agents/list`, "agents"). Bounded: AgentBroken for a cursor that comes back, too many
        pages or items; AgentBroken for items that are no objects.
        """
        items: list[JsonObject] = []
        seen: set[str] = set()
        params: JsonObject = {}
        async with self._within(timeout, method):
            while True:
                page = _object(await self.call(method, params), method, self._channel.name)
                found = page.get(key)
                if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
                    raise AgentBroken(f"{self._channel.name} answered {method} without a list of objects {key!r}")
                items += found
                cursor = page.get("nextCursor")
                if cursor is None or cursor == "":
                    return items
                if not isinstance(cursor, str) or cursor in seen:
                    raise AgentBroken(f"{self._channel.name} answered {method} with a cursor that leads nowhere")
                if len(items) > MOST_ITEMS or len(seen) >= MOST_PAGES:
                    raise AgentBroken(f"{self._channel.name} has no end of {key}")
                seen.add(cursor)
                params = {"cursor": cursor}

    def _params(self, params: JsonObject, call: OutgoingCall | None, more: JsonObject, modern: bool) -> JsonObject:
        """The params to send, with the progress token, the answers to questions, and the revision's own `_meta`."""
        meta: JsonObject = {}
        if call is not None:
            meta[wire.PROGRESS_TOKEN] = call.token
        if modern:
            meta[wire.META_VERSION] = self.version
            meta[wire.META_CAPABILITIES] = self._capabilities
            meta[wire.META_CLIENT] = self._info
        if not meta and not more:
            return params
        given = params.get(wire.META)
        return {**params, **more, wire.META: {**given, **meta} if isinstance(given, dict) else meta}

    def _checked(self, method: str, result: Raw) -> Raw:
        if bytes(memoryview(result)[:64]).lstrip()[:1] != b"{":
            raise AgentBroken(f"{self._channel.name} answered {method} with a result that is no object")
        return result

    # --- questions in 2026-07-28 -------------------------------------------------------------------------------------

    def _wanted_of(self, method: str, result: Raw) -> wire.InputRequiredResult:
        try:
            wanted = jsonrpc.unpack(result, wire.InputRequiredResult)
        except (ValueError, RecursionError) as error:
            raise AgentBroken(f"{self._channel.name} asks what cannot be read", detail=str(error)) from error
        if wanted.requestState is UNSET and not wanted.inputRequests:
            raise AgentBroken(f"{self._channel.name} wants input for {method} and does not say which")
        return wanted

    async def _answers(self, method: str, requests: JsonObject, call: OutgoingCall | None) -> JsonObject:
        """All of them at once; the first that is refused ends the call, there being no other way to say so."""
        if call is None:
            raise AgentFailed(f"{self._channel.name} wants input for {method}, and nobody is there to give it")
        if len(requests) > MOST_QUESTIONS:
            raise AgentBroken(f"{self._channel.name} asks {len(requests)} things at once")
        tasks = {key: asyncio.create_task(self._answer(each, call)) for key, each in requests.items()}
        try:
            await asyncio.gather(*tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.wait(tasks.values())
        return {key: task.result() for key, task in tasks.items()}

    async def _answer(self, request: Any, call: OutgoingCall) -> Any:
        method = request.get("method") if isinstance(request, dict) else None
        if not isinstance(method, str):
            raise AgentBroken(f"{self._channel.name} asks what cannot be read")
        params = Raw(msgspec.json.encode(request.get("params", {})))
        return await call.asked(method, params, lambda: None)

    # --- subscriptions in 2026-07-28 --------------------------------------------------------------------------------

    def _wanted(self) -> JsonObject:
        return {said: True for name, said in CHANGES.items() if self.offers(name, "listChanged")}

    async def listen(self, wanted: JsonObject) -> None:
        """Subscribe (to `notifications`), again and again, until the session ends or the server does not want it."""
        time = asyncio.get_running_loop().time
        tries, pause = 0, RELISTEN[0]
        while tries < TRIES:
            began = time()
            try:
                await self.call(wire.LISTEN, {"notifications": wanted})
            except AgentGone:
                pass
            except InterlinguaError as error:
                log.info("%s: it tells no changes: %s", self._channel.name, error)
                return
            lasted = time() - began > QUICK
            tries, pause = (0, RELISTEN[0]) if lasted else (tries + 1, min(2 * pause, RELISTEN[1]))
            await asyncio.sleep(pause)


def few(names: Collection[str]) -> str:
    """Names to tell a person; the first of them, where there are very many."""
    told = ", ".join(delta.sound(name) for name in sorted(names)[:MOST_TOLD])
    return told if len(names) <= MOST_TOLD else f"{told} and {len(names) - MOST_TOLD} more"


class _Kind(Struct, gc=False):
    resultType: Any = None


def _kind(result: Raw) -> Any:
    with contextlib.suppress(ValueError, RecursionError):
        return jsonrpc.unpack(result, _Kind).resultType
    return None


def _tellable(error: RpcError) -> RpcError:
    """A server's error whose message can be written down, whatever the server sent."""
    said = error.error
    message = delta.sound(said.message)
    return error if message is said.message else RpcError(said.code, message, said.data)


def _object(result: Raw, method: str, name: str) -> JsonObject:
    """A result, read. Raises AgentBroken."""
    try:
        return jsonrpc.unpack(result, dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise AgentBroken(f"{name} answered {method} with what cannot be read", detail=str(error)) from error
