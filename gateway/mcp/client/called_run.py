"""One run of an agent that is called over an MCP session: its notifications become events of the run, until it answers.

An adapter derives from `CalledRun` and says how its protocol calls, and what its notifications mean. `CalledRuns` are
all runs of one agent. `ServerRequests` answers what the server asks during a run: a request to a person becomes a
question of the run; one that only a client of the server's own protocol can answer is passed on to it in the server's
own words.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Raw
from msgspec.structs import replace

from gateway.contract import Caller, RunContext
from gateway.core import events as e
from gateway.core.errors import InterlinguaError, Invalid, OutcomeUnknown, Unavailable
from gateway.core.types import Answer, Interrupt, JsonObject
from gateway.mcp import forms
from gateway.mcp.wire import ELICIT, ROOTS, SAMPLE, declares
from gateway.transport.waiting import Deadline
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

RELAYED: Final = {SAMPLE: "sampling", ROOTS: "roots"}
"""Requests that are passed on to a client of the same protocol -> the capability that it must have declared."""
_KINDS: Final = {"sampling": ("context", "tools"), "roots": ()}
"""Capability -> what of it is declared in turn. Changes of the roots are not: they would have to be told."""


def capabilities(caller: Caller | None, protocol: str, always: JsonObject) -> JsonObject:
    """Capabilities to declare for a run: `always`, and those of the run's client if it speaks `protocol` too.

    There are few that differ, since each set has connections of its own.
    """
    if caller is None or caller.protocol != protocol or not (able := caller.capabilities):
        return always
    declared = dict(always)
    if declares(able, "elicitation", forms.URL):
        declared["elicitation"] = {forms.FORM: {}, forms.URL: {}}
    for name, kinds in _KINDS.items():
        if declares(able, name):
            declared[name] = {kind: {} for kind in kinds if declares(able, name, kind)}
    return declared


def read(params: Raw) -> JsonObject:
    """Params as an object. Raises Invalid."""
    try:
        return jsonrpc.unpack(params or Raw(b"{}"), dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise Invalid("params are no object") from error


DRAIN_EVERY = 256
"""Notifications after which the run's log is asked whether it may grow,"""
DRAIN_BYTES = 256 * 1024
"""or bytes of them."""


class CalledRun(ABC):
    """One run, and the CallListener of its call. `run` is its whole life; `cancel` may come at any time.

    declared: the capabilities to declare for it, see `TargetPools.lease`.
    over: nothing more is expected: what still comes is counted as `late`.
    losses: what could not be said, by name; the run is told when it ends.
    """

    late = "late_message"

    def __init__(self, context: RunContext, protocol: str, always: JsonObject) -> None:
        """always: the gateway's own capabilities. Those of the run's client are added, if it speaks `protocol`."""
        self.context = context
        self.declared = capabilities(context.caller, protocol, always)
        self.over = False
        self.losses: dict[str, int] = defaultdict(int)
        self._questions: set[str] = set()
        self._numbered = 0
        self._scope = Deadline()
        self._stopped = False
        self._held: list[e.Event] = []
        self._count = self._bytes = 0

    # --- the protocol's --------------------------------------------------------------------------------------------

    @abstractmethod
    async def called(self) -> e.Event:
        """The call, to its end: the run's last event. Cancelled when the run is. Raises RpcError with the agent's own
        error, and errors of the tree.
        """

    @abstractmethod
    def failed(self, error: RpcError) -> e.RunFailed:
        """The end of a run whose agent has answered with an error."""

    @abstractmethod
    def told(self, method: str, params: Raw) -> list[e.Event]:
        """The events of a notification."""

    @abstractmethod
    def again(self) -> None:
        """See `CallListener.again`."""

    # --- its life --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        end: e.Event | None = None
        try:
            if not self.stopped:
                with self._scope:
                    end = await self.called()
        except RpcError as error:
            end = self.failed(error)
        except Exception:
            if not self.stopped:
                raise
        finally:  # the run may be given up here, and then so is its call
            self.over = True
            self.flush()
            for what, count in self.losses.items():
                self.context.lost(what, count)
        if end is None or self.stopped:  # whatever came of it, it came too late
            end = e.RunCancelled(reason=self.context.run.cancel_reason or "")
        self.context.emit(end)

    async def cancel(self) -> None:
        """See `Outbound.cancel`. The call ends with it, and with that the agent is told."""
        self._stopped = True
        self._scope.move(0.0)

    @property
    def stopped(self) -> bool:
        return self._stopped or self.context.cancelled

    # --- what comes while the call is under way --------------------------------------------------------------------

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        if self.over:
            self.context.lost(self.late)
            return None
        self.say(*self.told(method, params))
        self._count += 1
        self._bytes += len(params)
        if self._count >= DRAIN_EVERY or self._bytes > DRAIN_BYTES:
            self._count = self._bytes = 0
            self.flush()
            return self.context.drain()
        return None

    def say(self, *events: e.Event) -> None:
        """Log what the agent said: what arrives together is logged together, which is three times as fast."""
        if events and not self._held:
            asyncio.get_running_loop().call_soon(self.flush)
        self._held += events

    def flush(self) -> None:
        if self._held:
            held, self._held = self._held, []
            self.context.emit(*held)

    # --- what the server asks for it -------------------------------------------------------------------------------

    async def asked(self, method: str, params: Raw) -> Any:
        """See `CallListener.asked`."""
        try:
            if method == ELICIT:
                return await self._elicited(params)
            if RELAYED.get(method) in self.declared:
                return await self._relayed(method, params)
        except RpcError:
            raise
        except Invalid as error:
            raise RpcError(jsonrpc.INVALID_PARAMS, str(error), {"path": error.path}) from error
        except InterlinguaError as error:
            raise RpcError(jsonrpc.INTERNAL_ERROR, str(error)) from error
        raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})

    def numbered(self, kind: str) -> str:
        """An id for the next question of the run."""
        self._numbered += 1
        return f"{kind}-{self._numbered}"

    async def _elicited(self, params: Raw) -> JsonObject:
        interrupt = forms.elicitation(read(params), self.numbered("elicitation"))
        if interrupt.payload["mode"] == forms.URL and not declares(self.declared, "elicitation", forms.URL):
            raise Invalid("the client has not declared this mode", path="/mode")
        return forms.elicitation_result(await self.ask(interrupt), interrupt.payload)

    async def _relayed(self, method: str, params: Raw) -> Raw:
        caller = self.context.caller
        if caller is None:
            raise Unavailable("the client has gone")
        return await caller.ask(method, params or Raw(b"{}"))

    async def ask(self, interrupt: Interrupt) -> Answer:
        """Put a question to the run's client. Never returns once the run is cancelled: then the call is taken back."""
        while interrupt.id in self._questions:
            interrupt = replace(interrupt, id=f"{interrupt.id}'")
        self._questions.add(interrupt.id)
        self.flush()
        answer = await self.context.ask(interrupt)
        if self.context.cancelled:  # servers exist that end where an answer and a cancel cross
            await asyncio.Event().wait()
        return answer


class CalledRuns:
    """All runs of one agent: what `gateway.contract.Outbound` has of runs."""

    def __init__(self, begin: Callable[[RunContext], CalledRun]) -> None:
        self._begin = begin
        self._turns: dict[str, CalledRun] = {}

    async def run(self, context: RunContext) -> None:
        turn = self._turns[context.run.id] = self._begin(context)
        try:
            await turn.run()
        finally:
            del self._turns[context.run.id]

    async def attach(self, context: RunContext) -> None:
        """A call has no way back to it, and is never made twice. Raises OutcomeUnknown."""
        raise OutcomeUnknown

    async def cancel(self, context: RunContext) -> None:
        turn = self._turns.get(context.run.id)
        if turn is not None:
            await turn.cancel()
