"""Serves plain clients: POST a run, read lines; come back with `?after=`, answer, cancel."""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from adapters.plain import codec, wire
from adapters.plain.options import PlainServe
from gateway.contract import Callback, Gateway
from gateway.core.errors import InterlinguaError, Invalid, TooLarge, Unsupported
from gateway.core.stream import coalesce
from gateway.core.types import Answer, Outcome, Run, RunRequest
from gateway.wire import ndjson, strict

_M = TypeVar("_M", bound=BaseModel)
Handler = Callable[["PlainInbound", Request], Awaitable[Response]]


def answered(handler: Handler) -> Handler:
    """Turn errors of the tree into this protocol's."""

    @functools.wraps(handler)
    async def wrapper(self: PlainInbound, request: Request) -> Response:
        try:
            return await handler(self, request)
        except InterlinguaError as error:
            return self.refusal(error)
        except ClientDisconnect:  # in the middle of its body: nobody reads this
            return Response(status_code=400)

    return wrapper


class PlainInbound:
    """See `gateway.contract.Inbound`."""

    def __init__(self, options: PlainServe, gateway: Gateway) -> None:
        self._gateway = gateway
        self._limit = options.max_body

    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/agents", self.agents, methods=["GET"]),
            Route("/runs/{run}", self.resume, methods=["GET"]),
            Route("/runs/{run}/answer", self.answer, methods=["POST"]),
            Route("/runs/{run}/cancel", self.cancel, methods=["POST"]),
            Route("/{agent}", self.start, methods=["POST"]),
        ]

    def refusal(self, error: InterlinguaError) -> Response:
        return JSONResponse({"error": str(error)}, status_code=codec.status(error))

    def callback(self, run: Run) -> Callback:
        """The toy has no callbacks."""
        raise Unsupported("the plain protocol has no callbacks")

    @answered
    async def agents(self, request: Request) -> Response:
        """GET /agents: the names."""
        return JSONResponse({"agents": list(self._gateway.names("plain"))})

    @answered
    async def start(self, request: Request) -> Response:
        """POST /{agent}: start a run and stream its lines."""
        body = await _body(request, wire.RunBody, self._limit)
        run = await self._gateway.start(
            RunRequest(
                agent=request.path_params["agent"],
                input=body.input,
                protocol="plain",
                thread=body.thread,
                metadata=body.metadata,
                traceparent=request.headers.get("traceparent"),
            )
        )
        return self._stream(run.id, 0)

    @answered
    async def resume(self, request: Request) -> Response:
        """GET /runs/{run}?after=N: the lines from N on."""
        run = await self._gateway.run(request.path_params["run"])
        after = request.query_params.get("after", "0")
        if re.fullmatch("[0-9]{1,18}", after) is None:
            raise Invalid("after is not a number of at most 18 digits", path="/after")
        return self._stream(run.id, int(after))

    @answered
    async def answer(self, request: Request) -> Response:
        """POST /runs/{run}/answer."""
        body = await _body(request, wire.AnswerBody, self._limit)
        outcome = Outcome.DECLINED if body.declined else Outcome.ANSWERED
        answer = Answer(outcome=outcome, value=body.answer)
        run = await self._gateway.answer(request.path_params["run"], answer, body.id)
        return JSONResponse({"run": run.id, "status": run.status})

    @answered
    async def cancel(self, request: Request) -> Response:
        """POST /runs/{run}/cancel."""
        run = await self._gateway.cancel(request.path_params["run"], wait=True)
        return JSONResponse({"run": run.id, "status": run.status})

    def _stream(self, run_id: str, after: int) -> Response:
        return StreamingResponse(self._lines(run_id, after), media_type="application/x-ndjson")

    async def _lines(self, run_id: str, after: int) -> AsyncIterator[bytes]:
        yield ndjson.encode(codec.dump(wire.Line(run=run_id)))
        async with self._gateway.watch(run_id, after) as watch:
            while (batch := await watch.next()) is not None:
                lines = [codec.encode(number, event) for number, event in coalesce(batch.events)]
                frame = b"".join(ndjson.encode(codec.dump(line)) for line in lines if line is not None)
                if frame:
                    yield frame


async def _body(request: Request, model: type[_M], limit: int) -> _M:
    """The body as `model`. Raises TooLarge while it is still coming, Invalid with the path of the first mistake."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise TooLarge(f"the body is larger than {limit} bytes")
    try:
        found = model.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors()[0]
        path = "".join(f"/{step}" for step in first["loc"])
        raise Invalid(f"{path or '/'}: {first['msg']}", path=path) from error
    strict.check(body, "/: Invalid JSON")
    return found
