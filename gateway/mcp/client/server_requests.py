"""Answers a server's requests during one of its runs.

A request to a person becomes a question of the run. A request that only a client of the server's own protocol can
answer is passed on to it in the server's own words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Raw

from gateway.contract import Caller
from gateway.core.errors import InterlinguaError, Invalid, Unavailable
from gateway.core.types import Answer, Interrupt, JsonObject
from gateway.mcp import forms
from gateway.mcp.wire import ELICIT, ROOTS, SAMPLE, declares
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

RELAYED: Final = {SAMPLE: "sampling", ROOTS: "roots"}
"""Requests that are passed on to a client of the same protocol -> the capability that it must have declared."""
_KINDS: Final = {"sampling": ("context", "tools"), "roots": ()}
"""Capability -> what of it is declared in turn. Changes of the roots are not: they would have to be told."""

Ask = Callable[[Interrupt], Awaitable[Answer]]


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


class ServerRequests:
    """Answers the requests that belong to one run. `ask` puts a question to the run's client."""

    def __init__(self, ask: Ask, caller: Callable[[], Caller | None], declared: JsonObject) -> None:
        self._ask = ask
        self._caller = caller
        self._declared = declared
        self._questions = 0

    async def answer(self, method: str, params: Raw) -> Any:
        """The result. Raises RpcError for an error answer."""
        try:
            if method == ELICIT:
                return await self._elicited(params)
            if RELAYED.get(method) in self._declared:
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
        self._questions += 1
        return f"{kind}-{self._questions}"

    async def _elicited(self, params: Raw) -> JsonObject:
        interrupt = forms.elicitation(read(params), self.numbered("elicitation"))
        if interrupt.payload["mode"] == forms.URL and not declares(self._declared, "elicitation", forms.URL):
            raise Invalid("the client has not declared this mode", path="/mode")
        return forms.elicitation_result(await self._ask(interrupt), interrupt.payload)

    async def _relayed(self, method: str, params: Raw) -> Raw:
        caller = self._caller()
        if caller is None:
            raise Unavailable("the client has gone")
        return await caller.ask(method, params or Raw(b"{}"))


def read(params: Raw) -> JsonObject:
    """Params as an object. Raises Invalid."""
    try:
        return jsonrpc.unpack(params or Raw(b"{}"), dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise Invalid("params are no object") from error
