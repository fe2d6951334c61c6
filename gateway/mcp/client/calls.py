"""The calls under way on one session, and which of them something that the server says belongs to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from gateway.mcp import versions, wire
from gateway.transport.waiting import Deadline
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id, RpcError

log = logging.getLogger(__name__)

PREFIX = "interlingua-"
"""Of progress tokens: strings, as all SDKs take them, and never empty: one sends nothing for a token that is false."""
DOUBT_SECONDS = 2.0
"""How long a server may take to hear that a call was given up, and to stop asking about it."""
REPORTED = 20
"""Unreadable messages that are logged one by one; of more, one in a thousand."""
_CHANGES = "/list_changed"
"""How notifications end that are about no call, wherever they come."""


class CallListener(Protocol):
    """Receives what happens on the way to one answer. Brought by the caller."""

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        """A notification about the call: with its progress token or key, or on its HTTP stream, or a log message while
        it is the session's only one; in order, and all of them before the answer.

        What is returned is awaited before more is read, so a slow one slows the server; it is cancelled when the call
        ends first. Never wait here for an answer from the same server.
        """

    def again(self) -> None:
        """The call is sent again, with what was asked for (2026-07-28): all that was told may be told again."""

    async def asked(self, method: str, params: Raw) -> Any:
        """A request of the server's that belongs to the call (elicitation/create, sampling/createMessage, roots/list).

        Returns the result; raise RpcError for an error answer. Cancelled when the server takes it back, or the call
        ends.
        """


Keyed = Callable[[str, Raw], str | None]
"""(method, params) of a server's message -> the key that it is marked with, None if with none.

See `ClientSession.hearing`. Asked of everything that has no progress token, so cheap. Must not raise."""


class OutgoingCall:
    """One call from its request to its answer, or several calls with one listener (`ClientSession.hearing`).

    token: its progress token, which goes along with each request. key: what else its server may name it by. id: of the
    newest request, for `notifications/cancelled` of one that is answered; None before the first. elsewhere: whether
    progress came on another stream than the one its answer comes on.
    """

    def __init__(self, token: str, listener: CallListener, key: str | None = None) -> None:
        self.token = token
        self.key = key
        self.id: Id = None
        self.elsewhere = False
        self._listener = listener
        self._ended = False
        self._scope: Deadline | None = None
        self._stops: dict[object, Callable[[], object]] = {}

    def heard(self, method: str, params: Raw) -> Awaitable[None] | None:
        """Hand over a notification about it. An awaitable that is returned must be awaited before more is read."""
        waiting = self._listener.notification(method, params)
        return None if waiting is None else self._wait(waiting)

    async def _wait(self, waiting: Awaitable[None]) -> None:
        """Wait in the reader's task until the call ends at the latest: the reader may serve other calls, too."""
        scope = Deadline()
        try:
            with scope:
                self._scope = scope
                await waiting
        except TimeoutError:
            if not scope.expired:
                raise
        finally:
            self._scope = None

    async def asked(self, method: str, params: Raw, stop: Callable[[], object]) -> Any:
        """A request of the server's that belongs to it. `stop` cancels this very wait; called if the call ends."""
        if self._ended:
            raise nobody(method)
        key = object()
        self._stops[key] = stop
        try:
            return await self._listener.asked(method, params)
        finally:
            self._stops.pop(key, None)

    def told_on(self, stream: OutgoingCall | None) -> None:
        """Progress of it came on the stream of that call, or on one that is no call's."""
        self.elsewhere = self.elsewhere or stream is not self

    def heard_elsewhere(self) -> bool:
        """Whether progress came on another stream since this was last asked."""
        elsewhere, self.elsewhere = self.elsewhere, False
        return elsewhere

    def named(self, id: Id) -> None:
        self.id = id

    def again(self) -> None:
        self._listener.again()

    def end(self) -> None:
        """End it: it is answered, or given up."""
        self._ended = True
        if self._scope is not None:
            self._scope.move(0.0)
        for stop in list(self._stops.values()):
            stop()


class OutgoingCalls:
    """See the module. Bounded by what is under way."""

    def __init__(self, name: str, unowned: Callable[[str, Raw], None], keyed: Keyed | None = None) -> None:
        """unowned: told notifications that belong to no call. keyed: see `Keyed`."""
        self._unclaimed = unowned
        self._name = name
        self._unowned = unowned
        self._keyed = keyed
        self._calls: dict[str, OutgoingCall] = {}
        self._keys: dict[str, OutgoingCall] = {}
        self._next = 1
        self._unreadable = 0
        self._given_up = 0
        self._doubt_until = 0.0
        self._late: Callable[[], int] = lambda: 0

    def on_unclaimed(self, told: Callable[[str, Raw], None]) -> None:
        """`told` is called with a notification whose key no call has. Without it, that is like any other."""
        self._unclaimed = told

    def count_late(self, late: Callable[[], int]) -> None:
        """`late` says how many calls that were given up have been answered all the same."""
        self._late = late

    @contextlib.contextmanager
    def open(self, listener: CallListener, key: str | None = None) -> Iterator[OutgoingCall]:
        """A call, as long as the block lasts. Raises ValueError for a key that another has."""
        call = self.begin(listener, key)
        try:
            yield call
        finally:
            self.end(call)

    def begin(self, listener: CallListener, key: str | None = None) -> OutgoingCall:
        """A call, until `end`. Raises ValueError for a key that another has."""
        if key in self._keys:
            raise ValueError(f"somebody listens to {key!r} already")
        token = f"{PREFIX}{self._next}"
        call = self._calls[token] = OutgoingCall(token, listener, key)
        self._next += 1
        if key is not None:
            self._keys[key] = call
        return call

    def end(self, call: OutgoingCall) -> None:
        """It is answered, or given up."""
        del self._calls[call.token]
        if call.key is not None:
            del self._keys[call.key]
        call.end()

    def heard(self, method: str, params: Raw, on: OutgoingCall | None = None) -> Awaitable[None] | None:
        """Hand a notification to its call. on: the call on whose stream it came, None for a stream of no call.

        What is returned, if anything, is to be awaited before more is read.
        """
        if method.endswith(_CHANGES):
            self._unowned(method, params)
            return None
        if method == wire.ACKNOWLEDGED:
            return None
        token = _token(params)
        key = self._key(method, params) if token is None else None
        if key is not None:
            call = self._keys.get(key)
            if call is None:
                self._unclaimed(method, params)
                return None
        elif token is None:
            call = self.only() if on is None and method == wire.MESSAGE else on
        else:
            call = self._calls.get(token) if isinstance(token, str) else None
            if call is None:
                self.stray(f"{method} of {token!r}")
                return None
            call.told_on(on)
        if call is None:
            self._unowned(method, params)
            return None
        return call.heard(method, params)

    def gave_up(self) -> None:
        """Note that a call was given up, which its server may not know yet."""
        self._given_up += 1
        self._doubt_until = asyncio.get_running_loop().time() + DOUBT_SECONDS

    @property
    def doubtful(self) -> bool:
        """Whether a question may come that is about a call that was given up, not about the one under way."""
        return self._given_up > self._late() and asyncio.get_running_loop().time() < self._doubt_until

    def only(self) -> OutgoingCall | None:
        """Return the call under way if there is exactly one."""
        return next(iter(self._calls.values())) if len(self._calls) == 1 else None

    async def answer(
        self, method: str, params: Raw, version: str, stop: Callable[[], object], on: OutgoingCall | None = None
    ) -> Any:
        """The result of a server's request, in the revision that is spoken. `stop` cancels this very wait.

        Raises RpcError, and what a listener does.
        """
        if method == wire.PING:
            return {}
        if versions.modern(version):
            raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"{method}: servers ask nothing in {version}")
        return await self._asker(method, params, on).asked(method, params, stop)

    def _asker(self, method: str, params: Raw, on: OutgoingCall | None = None) -> OutgoingCall:
        """The call that a request belongs to, by its key, by the stream of `on` that it came on, or as the only one.

        Raises RpcError where that cannot be told: as of a method that is not there, since a server may know another way
        to ask then, as a gateway does.
        """
        key = self._key(method, params)
        if key is not None:
            if key not in self._keys:
                raise nobody(method)
            return self._keys[key]
        found = on or (None if self.doubtful else self.only())
        if found is not None:
            return found
        if not self._calls:
            raise nobody(method)
        raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"{method}: nobody can tell which call it is about")

    def _key(self, method: str, params: Raw) -> str | None:
        return None if self._keyed is None or not params else self._keyed(method, params)

    def stray(self, what: str) -> None:
        """Drop a message that no call waits for (any more)."""
        log.debug("%s: %s is dropped", self._name, what)

    def garbage(self, reason: str, start: bytes, size: int | None = None) -> None:
        self._unreadable += 1
        if self._unreadable <= REPORTED or self._unreadable % 1000 == 0:
            of = "" if size is None else f" ({size} bytes)"
            log.warning("%s: output %d that is no message%s: %s: %r", self._name, self._unreadable, of, reason, start)


def nobody(method: str) -> RpcError:
    """The error for a request without a call that it could belong to."""
    return RpcError(jsonrpc.METHOD_NOT_FOUND, f"{method}: nothing is under way that somebody could be asked about")


class _Token(Struct, gc=False):
    progressToken: str | int | float | None = None


_decode = msgspec.json.Decoder(_Token).decode


def _token(params: Raw) -> str | int | float | None:
    if not params:
        return None
    try:
        return _decode(params).progressToken
    except (ValueError, RecursionError):  # not an object, or half a surrogate pair in it
        pass
    try:
        return jsonrpc.unpack(params, _Token).progressToken
    except (ValueError, RecursionError):
        return None
