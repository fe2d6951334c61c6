"""What becomes of one request of a client."""

from __future__ import annotations

import logging
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from gateway.contract import Watched
from gateway.core.errors import AgentGone, InterlinguaError, Invalid, Unsupported
from gateway.mcp import versions, wire
from gateway.mcp.server.contract import EMPTY, InputRequired, McpCall, Service
from gateway.transport.rpc.incoming import plain_errors
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

T = TypeVar("T")

log = logging.getLogger(__name__)

UNASKED_LEVEL = "warning"
"""From which level on a client of a handshake is sent messages before it asked for any level: what was lost, and what
failed. The specification leaves it to the server."""


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


def noted(request: Watched, result: Any) -> Any:
    """The result of a request that is traced and counted: whether it says that a tool failed is, too."""
    if isinstance(result, dict) and result.get("isError") is True:
        request.tool_failed()
    return result


async def serve(service: Service, call: McpCall) -> Any:
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


def failure(service: Service, call: McpCall, error: Exception) -> RpcError:
    """The error that answers a failed request. Logs it."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, InterlinguaError):
        level = logging.INFO if isinstance(error, Invalid) else logging.DEBUG
        log.log(level, "%s is answered %s (%s)", call.method, error, error.detail)
    else:
        log.error("answering %s failed", call.method, exc_info=error)
    try:
        return service.error(call, error)
    except Exception:
        log.exception("the error of %s cannot be said", call.method)
        said = plain_errors(error)
        return RpcError(said.code, said.message)


def refused(service: Service, call: McpCall, code: int, why: InterlinguaError) -> RpcError:
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
