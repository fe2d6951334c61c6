"""Serves clients: POST a run and read its lines, come back with `?after=`, answer, cancel, fetch files."""

from __future__ import annotations

import asyncio
import math
import re
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from typing import TypeVar, cast

from pydantic import BaseModel, ValidationError
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from adapters.example import codec, wire
from adapters.example.options import ExampleServe
from gateway.access import serving
from gateway.contract import Batch, Gateway
from gateway.core.delta import encode
from gateway.core.errors import InterlinguaError, Invalid
from gateway.core.files import Attachment
from gateway.core.stream import coalesce
from gateway.core.types import Answer, JsonObject, Outcome, RunRequest, Thread
from gateway.transport.asgi import HttpRequest, Reply, RestEndpoint, RestOperation, WhileConnected, refusals
from gateway.wire import ndjson, strict

PROTOCOL = "example"

_M = TypeVar("_M", bound=BaseModel)


class ExampleInbound:
    """Implements `gateway.contract.Inbound`."""

    def __init__(self, options: ExampleServe, gateway: Gateway) -> None:
        self._options = options
        self._gateway = gateway

    def routes(self) -> Sequence[BaseRoute]:
        serve = serving(lambda gateway: Operations(self._options, gateway), self._gateway, self._options)
        operations: Sequence[tuple[str, str, RestOperation[Operations]]] = (
            ("GET", "/agents", Operations.agents),
            ("POST", "/threads", Operations.thread),
            ("GET", "/files/{file}", Operations.file),
            ("GET", "/runs/{run}", Operations.resume),
            ("POST", "/runs/{run}/answer", Operations.answer),
            ("POST", "/runs/{run}/cancel", Operations.cancel),
            ("POST", "/{agent}", Operations.start),
        )
        return [
            Route(path, RestEndpoint({method: operation}, serve, _refusal), methods=[method])
            for method, path, operation in operations
        ]

    def refusal(self, error: InterlinguaError) -> Response:
        return _refusal(error).for_starlette()


class Operations:
    """The protocol's operations, on the gateway as one client may see it."""

    def __init__(self, options: ExampleServe, gateway: Gateway) -> None:
        self._limit = options.max_body
        self._longest = math.inf if options.max_stream is None else options.max_stream
        self._gateway = gateway

    async def agents(self, request: HttpRequest) -> Reply:
        """GET /agents: the names."""
        return _reply({"agents": list(self._gateway.agents.names(PROTOCOL))})

    async def thread(self, request: HttpRequest) -> Reply:
        """POST /threads: a new conversation, whose id runs name."""
        now = time.time()
        thread = Thread(id=str(uuid.uuid4()), created_at=now, updated_at=now, protocol=PROTOCOL)
        return _reply({"thread": (await self._gateway.threads.create(thread)).id})

    async def start(self, request: HttpRequest) -> None:
        """POST /{agent}: start a run and stream its lines."""
        body = await _body(request, wire.RunBody, self._limit)
        run = await self._gateway.runs.start(
            RunRequest(
                agent=request.path_params["agent"],
                input=body.input,
                protocol=PROTOCOL,
                thread=body.thread,
                metadata=body.metadata,
                traceparent=request.header("traceparent"),
            ),
            files=[Attachment(name=file.name, media_type=file.media_type, content=file.data) for file in body.files],
        )
        await self._stream(request, run.id, 0, first=True)

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

    async def file(self, request: HttpRequest) -> None:
        """GET /files/{file}: its bytes, with headers that keep a browser from showing them."""
        artifact = await self._gateway.files.get(request.path_params["file"])
        headers = [
            (b"content-type", b"application/octet-stream"),
            (b"content-length", b"%d" % artifact.size),
            (b"x-content-type-options", b"nosniff"),
        ]
        content = cast(AsyncGenerator[bytes, None], self._gateway.files.open(artifact.id))
        with WhileConnected(request):
            await request.begin(200, headers)
            async with aclosing(content):
                async for chunk in content:
                    await request.sent(chunk)
            await request.end()

    async def _stream(self, request: HttpRequest, run: str, after: int, *, first: bool = False) -> None:
        """Stream the run's lines from a number on. Losses are counted once a run: by its `first` watcher."""
        with WhileConnected(request):
            await request.begin(200, [(b"content-type", b"application/x-ndjson")])
            await request.sent(ndjson.encode(codec.dump(wire.ExampleLine(run=run))))
            async with self._gateway.runs.watch(run, after) as watch:

                def take(batch: Batch) -> Awaitable[None] | None:
                    frame = b""
                    for number, event in coalesce(batch.events):
                        if (line := codec.encode(number, event)) is not None:
                            frame += ndjson.encode(codec.dump(line))
                        elif first and (lost := codec.LOSSES.get(type(event))) is not None:
                            self._gateway.runs.lost(run, lost)
                    return request.write(frame) if frame else None

                timer = asyncio.get_running_loop().call_later(self._longest, watch.stop)
                try:
                    await watch.follow(take)
                finally:
                    timer.cancel()
            await request.end()


def _reply(content: JsonObject) -> Reply:
    return Reply(200, encode(content))


def _refusal(error: InterlinguaError) -> Reply:
    return Reply(codec.status(error), encode({"error": str(error)}), refusals.headers(error))


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
