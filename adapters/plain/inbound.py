"""Serves plain clients: POST a run, read lines; come back with `?after=`, answer, cancel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from adapters.plain import codec, wire
from adapters.plain.options import PlainServe
from gateway.contract import Callback, Gateway
from gateway.core.delta import encode
from gateway.core.errors import InterlinguaError, Invalid, Unsupported
from gateway.core.stream import coalesce
from gateway.core.types import Answer, JsonObject, Outcome, Run, RunRequest
from gateway.transport.asgi import HttpRequest, Reply, RestEndpoint, RestOperation, WhileConnected
from gateway.wire import ndjson, strict

_M = TypeVar("_M", bound=BaseModel)


class PlainInbound:
    """See `gateway.contract.Inbound`."""

    def __init__(self, options: PlainServe, gateway: Gateway) -> None:
        self._gateway = gateway
        self._limit = options.max_body

    def routes(self) -> Sequence[BaseRoute]:
        operations: Sequence[tuple[str, str, RestOperation[PlainInbound]]] = (
            ("GET", "/agents", PlainInbound.agents),
            ("GET", "/runs/{run}", PlainInbound.resume),
            ("POST", "/runs/{run}/answer", PlainInbound.answer),
            ("POST", "/runs/{run}/cancel", PlainInbound.cancel),
            ("POST", "/{agent}", PlainInbound.start),
        )
        return [
            Route(path, RestEndpoint({method: operation}, lambda _: self, _refusal), methods=[method])
            for method, path, operation in operations
        ]

    def refusal(self, error: InterlinguaError) -> Response:
        return _refusal(error).for_starlette()

    def callback(self, run: Run) -> Callback:
        """Raise Unsupported: the protocol has no callbacks."""
        raise Unsupported("the plain protocol has no callbacks")

    async def agents(self, request: HttpRequest) -> Reply:
        """GET /agents: the names."""
        return _reply({"agents": list(self._gateway.agents.names("plain"))})

    async def start(self, request: HttpRequest) -> None:
        """POST /{agent}: start a run and stream its lines."""
        body = await _body(request, wire.RunBody, self._limit)
        run = await self._gateway.runs.start(
            RunRequest(
                agent=request.path_params["agent"],
                input=body.input,
                protocol="plain",
                thread=body.thread,
                metadata=body.metadata,
                traceparent=request.header("traceparent"),
            )
        )
        await self._stream(request, run.id, 0)

    async def resume(self, request: HttpRequest) -> None:
        """GET /runs/{run}?after=N: the lines from N on."""
        run = await self._gateway.runs.get(request.path_params["run"])
        after = request.query("after")
        after = "0" if after is None else after
        if re.fullmatch("[0-9]{1,18}", after) is None:
            raise Invalid("after is not a number of at most 18 digits", path="/after")
        await self._stream(request, run.id, int(after))

    async def answer(self, request: HttpRequest) -> Reply:
        """POST /runs/{run}/answer."""
        body = await _body(request, wire.AnswerBody, self._limit)
        outcome = Outcome.DECLINED if body.declined else Outcome.ANSWERED
        answer = Answer(outcome=outcome, value=body.answer)
        run = await self._gateway.runs.answer(request.path_params["run"], answer, body.id)
        return _reply({"run": run.id, "status": run.status})

    async def cancel(self, request: HttpRequest) -> Reply:
        """POST /runs/{run}/cancel."""
        run = await self._gateway.runs.cancel(request.path_params["run"], wait=True)
        return _reply({"run": run.id, "status": run.status})

    async def _stream(self, request: HttpRequest, run_id: str, after: int) -> None:
        """Stream the run's lines from a number on."""
        with WhileConnected(request):
            await request.begin(200, [(b"content-type", b"application/x-ndjson")])
            await request.write(ndjson.encode(codec.dump(wire.PlainLine(run=run_id))))
            async with self._gateway.runs.watch(run_id, after) as watch:
                while (batch := await watch.next()) is not None:
                    lines = [codec.encode(number, event) for number, event in coalesce(batch.events)]
                    frame = b"".join(ndjson.encode(codec.dump(line)) for line in lines if line is not None)
                    if frame:
                        await request.write(frame)
            await request.end()


def _reply(content: JsonObject) -> Reply:
    return Reply(200, encode(content))


def _refusal(error: InterlinguaError) -> Reply:
    return Reply(codec.status(error), encode({"error": str(error)}))


async def _body(request: HttpRequest, model: type[_M], limit: int) -> _M:
    """Decode the body as `model`. Raises TooLarge, ClientGone, and Invalid with the path of the first mistake."""
    body = await request.body(limit)
    try:
        found = model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        path = "".join(f"/{step}" for step in first["loc"])
        raise Invalid(f"{path or '/'}: {first['msg']}", path=path) from error
    strict.check(body, "/: Invalid JSON")
    return found
