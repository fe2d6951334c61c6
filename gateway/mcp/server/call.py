"""One request of a client, and what becomes of it."""

from __future__ import annotations

import logging
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Raw

from gateway.contract import Watched
from gateway.core.errors import AgentGone, InterlinguaError, Invalid, Unsupported
from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.server.contract import InputRequired, McpSession, ProgressToken, Service
from gateway.transport.rpc.incoming import plain_errors
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Request, RpcError

T = TypeVar("T")

log = logging.getLogger(__name__)

EMPTY = Raw(b"{}")
UNASKED_LEVEL = "warning"
"""From which level on a client of a handshake is sent messages before it asked for any level: what was lost, and what
failed. The specification leaves it to the server."""


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

    async def ask(self, method: str, params: Any, timeout: float | None) -> Raw:
        """See `McpCall.ask`. Not called where `can_ask` is false."""


class Nowhere:
    """An Out for a call whose client gets the answer and nothing before it."""

    can_ask = False
    full = False

    def put(self, message: bytes) -> None:
        """See `Out`."""

    async def drain(self) -> None:
        """See `Out`."""

    async def ask(self, method: str, params: Any, timeout: float | None) -> Raw:
        raise AgentGone("nobody is there to be asked")


class ServedCall:
    """See `gateway.mcp.server.contract.McpCall`."""

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
        """It is answered: no message belongs to it any more."""
        self._out = out

    def log_from(self, level: str) -> None:
        """Send log messages from `level` on."""
        self.log_level = level

    def answered(self) -> None:
        """It is answered, or will not be."""
        self.over = True

    @property
    def can_ask(self) -> bool:
        return self._out.can_ask

    def notify(self, method: str, params: Any = None) -> None:
        self.send(jsonrpc.notification(method, params))

    def send(self, notification: bytes) -> None:
        if not self.over:
            self._out.put(notification)

    async def drain(self) -> None:
        await self._out.drain()

    async def ask(self, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        if not self._out.can_ask:
            raise Unsupported(f"a client of {self.client.version} is not asked while its request is under way")
        if self.over:
            raise AgentGone("the request is answered already")
        return await self._out.ask(method, params, timeout)


def _params(given: Raw) -> Raw:
    """Params as a service gets them: `null` is none."""
    return EMPTY if not given or bytes(memoryview(given)[:1]) == b"n" else given


def noted(request: Watched, result: Any) -> Any:
    """The result of a request that is traced and counted: whether it says that a tool failed is, too."""
    if isinstance(result, dict) and result.get("isError") is True:
        request.tool_failed()
    return result


async def serve(service: Service, call: ServedCall) -> Any:
    """The result of what is the service's own business. Raises RpcError; InputRequired, in a modern revision."""
    try:
        if call.method not in service.methods:
            raise refused(service, call, jsonrpc.METHOD_NOT_FOUND, Unsupported(f"no method {call.method}"))
        if bytes(memoryview(call.params)[:1]) != b"{":
            raise refused(service, call, jsonrpc.INVALID_PARAMS, Invalid("params must be an object"))
        return await service.request(call)
    except RpcError:
        raise
    except Exception as error:
        if isinstance(error, InputRequired) and versions.modern(call.client.version):
            raise
        raise failure(service, call, error) from error
    finally:
        call.answered()


def failure(service: Service, call: ServedCall, error: Exception) -> RpcError:
    """The error that answers a failed request. Logs it."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, InterlinguaError):
        level = logging.INFO if isinstance(error, Invalid) else logging.DEBUG
        log.log(level, "%s is answered %s (%s)", call.method, error, error.detail)
    else:
        log.error("answering %s failed", call.method, exc_info=error)
    try:
        said = service.error(call, error)
    except Exception:
        log.exception("the error of %s cannot be said", call.method)
        said = plain_errors(error)
    return RpcError(said.code, said.message, said.data)


def refused(service: Service, call: ServedCall, code: int, why: InterlinguaError) -> RpcError:
    """The same under a code of JSON-RPC's own."""
    said = failure(service, call, why).error
    return RpcError(code, said.message, said.data)


def read(params: Raw, type: type[T]) -> T:
    """Params as `type`. Raises Invalid."""
    try:
        return jsonrpc.unpack(params or EMPTY, type)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"params: {error}") from None


def cancelled() -> RpcError:
    """The error that answers a cancelled request."""
    return RpcError(wire.REQUEST_CANCELLED, "Request cancelled")
