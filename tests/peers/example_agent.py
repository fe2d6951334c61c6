"""Agents of the example protocol, for the matrix and the contract suite: `python example_agent.py --port N`.

| path | behaviour |
|---|---|
| `/echo` | the input's message, word by word, as text; then done |
| `/fail` | says `so far`, then an error |
| `/ask` | asks `approve?`, tells the answer |
| `/slow` | says `working`, then nothing until it is cancelled or left |
| `/big?bytes=N` | N bytes in 20-byte chunks, as fast as they are taken |

Runs on the project's own libraries and imports nothing of the project. `GET /_seen` lists what was POSTed where.
"""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

WAITING: dict[str, asyncio.Future[dict[str, Any]]] = {}
SEEN: list[dict[str, Any]] = []


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def text_of(value: Any) -> str:
    return value.get("message", "") if isinstance(value, dict) else str(value)


async def echo(body: dict[str, Any], query: dict[str, str]) -> AsyncIterator[bytes]:
    words = text_of(body["input"]).split(" ")
    for at, word in enumerate(words):
        yield line(part="text", delta=word if at == 0 else f" {word}")
    yield line(done=None)


async def fail(body: dict[str, Any], query: dict[str, str]) -> AsyncIterator[bytes]:
    yield line(part="text", delta="so far")
    yield line(error="it failed on purpose")


async def ask(body: dict[str, Any], query: dict[str, str]) -> AsyncIterator[bytes]:
    answer = WAITING[body["run"]] = asyncio.get_running_loop().create_future()
    schema = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
    yield line(
        ask={"id": "q1", "question": "approve?", "kind": "approval", "payload": {"what": "it"}, "schema": schema}
    )
    given = await answer
    yield line(part="text", delta=f"answer: {json.dumps(given.get('answer'))}")
    yield line(done=None)


async def slow(body: dict[str, Any], query: dict[str, str]) -> AsyncIterator[bytes]:
    stopped = WAITING[body["run"]] = asyncio.get_running_loop().create_future()
    yield line(part="text", delta="working")
    await stopped
    yield line(cancelled=True)


async def big(body: dict[str, Any], query: dict[str, str]) -> AsyncIterator[bytes]:
    chunk = line(part="text", delta="x" * 20)
    left = int(query.get("bytes", "1000000")) // 20
    while left > 0:
        batch = min(left, 50)
        yield chunk * batch
        left -= batch
    yield line(done=None)


AGENTS = {"echo": echo, "fail": fail, "ask": ask, "slow": slow, "big": big}


async def run(request: Request) -> Response:
    body = await request.json()
    SEEN.append({"path": request.url.path, "headers": dict(request.headers), "body": body})
    lines = AGENTS[request.path_params["agent"]](body, dict(request.query_params))

    async def started() -> AsyncIterator[bytes]:
        yield line(run=body["run"])
        async for part in lines:
            yield part

    return StreamingResponse(started(), media_type="application/x-ndjson")


async def told(request: Request) -> Response:
    body = await request.json()
    SEEN.append({"path": request.url.path, "headers": dict(request.headers), "body": body})
    waiting = WAITING.pop(body["run"], None)
    if waiting is not None and not waiting.done():
        waiting.set_result(body)
    return JSONResponse({})


async def seen(request: Request) -> Response:
    return JSONResponse(SEEN)


app = Starlette(
    routes=[
        Route("/_seen", seen),
        Route("/{agent}", run, methods=["POST"]),
        Route("/{agent}/answer", told, methods=["POST"]),
        Route("/{agent}/cancel", told, methods=["POST"]),
    ]
)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    uvicorn.run(app, host="127.0.0.1", port=parser.parse_args().port, log_level="warning")
