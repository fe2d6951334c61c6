"""Every outbound half there is, made as the gateway makes it, and targets that misbehave in any way a socket allows."""

from __future__ import annotations

import asyncio
import gc
import os
import warnings
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any

import httpx2
import yaml

import gateway.transport.http.session  # noqa: F401 - else the first call does, in an impatient adapter's one second
from gateway import registry
from gateway.contract import Outbound
from gateway.core import events as e
from gateway.core.errors import AgentBroken, InterlinguaError
from gateway.core.projection import MESSAGE_OUTPUT_SCHEMA, MESSAGE_SCHEMA
from gateway.core.types import Agent, AgentCapabilities
from tests.matrix.agents import ROUTES
from tests.support.context import FakeContext, context
from tests.support.raw_http import Exchange, Handler, Server, serving

NAMES = sorted(ROUTES)

IMPATIENT: dict[str, dict[str, Any]] = {
    "example": {"request_timeout": 1, "idle_timeout": 1},
    "agent_client": {"request_timeout": 1, "start_timeout": 1},
    "agent_communication": {"request_timeout": 1, "start_timeout": 1},
    "agent_context": {"request_timeout": 1, "start_timeout": 1},
    "agent_connect": {
        "request_timeout": 1,
        "idle_timeout": 0.5,
        "poll_timeout": 0.5,
        "poll_interval": 0.1,
        "reconnect_timeout": 1,
    },
    "agent_protocol": {"request_timeout": 1, "step_timeout": 1, "poll_interval": 0.1},
}
"""Options that make an adapter give up within a second or two."""

NOT_ASKED = ("example",)
"""Protocols that publish nothing and have nothing to ask: `describe` works whoever is there."""

FORGETFUL = ("agent_communication", "agent_context")
"""Protocols where a run is one call: there is nothing by which it could be found again."""

AGENT = Agent(
    name="somebody",
    input_schema=MESSAGE_SCHEMA,
    output_schema=MESSAGE_OUTPUT_SCHEMA,
    capabilities=AgentCapabilities(threads=True, interrupts=True, streaming=True, cancel=True),
    text_input="/message",
    text_output="/message",
)
"""For runs of agents that cannot be asked what they are."""

adapters = cache(registry.scan)


def outbound(name: str, behaviour: str, url: str, **options: Any) -> Outbound:
    """The outbound half of one route of the matrix, its target at `url`."""
    given = yaml.safe_load(ROUTES[name][behaviour].format(**{name: url}))
    adapter = adapters()[name]
    assert adapter.call is not None
    return adapter.call(adapter.target_options.model_validate({**given, **options}))


@asynccontextmanager
async def calling(name: str, behaviour: str, url: str, **options: Any) -> AsyncIterator[Outbound]:
    """The same, closed at the end."""
    made = outbound(name, behaviour, url, **options)
    try:
        yield made
    finally:
        await made.aclose()


async def outcome(made: Outbound, ctx: FakeContext) -> e.Event | InterlinguaError:
    """How a run ends: its terminal event, or the error that is raised instead. Whatever is in no tree goes through."""
    try:
        await made.run(ctx)
    except (InterlinguaError, BaseExceptionGroup) as error:
        return first(error)
    if not ctx.events or not isinstance(ctx.events[-1], e.TERMINAL):
        return AgentBroken("the agent stopped without a result")  # which the engine makes of it
    return ctx.end


def first(error: BaseException) -> InterlinguaError:
    """The error of the tree in a group, which is what the engine takes it for."""
    if isinstance(error, BaseExceptionGroup):
        _, strange = error.split(InterlinguaError)
        if strange is not None:
            raise strange
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, InterlinguaError)
    return error


def somebody(message: str = "hello my friend", **request: Any) -> FakeContext:
    """A context for an agent nothing is known of."""
    return context(AGENT, message, **request)


# --- nothing left behind -------------------------------------------------------------------------------------------


@asynccontextmanager
async def tidy() -> AsyncIterator[None]:
    """What was done in here leaves no task and no socket behind."""
    tasks, files = asyncio.all_tasks(), _open_files()
    yield
    async with asyncio.timeout(30):
        while len(_open_files()) > len(files) or asyncio.all_tasks() - tasks:  # noqa: ASYNC110 - in no one's hands
            await asyncio.sleep(0.01)


def _open_files() -> list[str]:
    return os.listdir("/dev/fd")


@contextmanager
def quiet() -> Iterator[None]:
    """What was done in here is warned of by nobody: no resource unclosed, no coroutine or exception forgotten."""
    gc.freeze()  # so that the collection below looks through what was made in here, not through everything
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert not warned, [str(warning.message) for warning in warned]


# --- targets that misbehave ------------------------------------------------------------------------------------------


async def mute(asked: Exchange) -> None:
    """Takes the request, and never says a word."""
    await asked.gone()


def says(*pieces: bytes, reset: bool = False) -> Handler:
    """Says exactly this, and ends the connection."""

    async def handle(asked: Exchange) -> None:
        await asked.say(*pieces)
        asked.reset() if reset else asked.writer.close()

    return handle


def answers(body: bytes, kind: str = "application/json", status: str = "200 OK") -> Handler:
    """A well-formed answer, whatever is in it."""

    async def handle(asked: Exchange) -> None:
        await asked.answer(body, status, Content_Type=kind)

    return handle


GARBAGE: dict[str, Handler] = {
    "a page": answers(b"<!doctype html><title>Welcome</title><p>It works!", "text/html; charset=utf-8"),
    "a page that is called JSON": answers(b"<!doctype html><p>It works!"),
    "half a JSON document": answers(b'{"run_id": "1", "task_id": "1", "steps": [{'),
    "JSON in a nest": answers(b"[" * 20_000),
    "an empty object": answers(b"{}"),
    "an empty list": answers(b"[]"),
    "a list of numbers": answers(b"[1, 2, 3]"),
    "null": answers(b"null"),
    "a number with too many digits": answers(b"1" * 10_000),
    "a stream of bytes that are no text": answers(b'data: {"run_id": "\xff"}\n\n', "text/event-stream"),
    "objects of wrong types": answers(
        b'{"run_id": 5, "agent_id": [], "task_id": {}, "steps": 7, "tasks": "x", "delta": {"a": 1}, "n": "one"}'
    ),
    "a picture": answers(b"\x89PNG\r\n\x1a\n\x00\x00", "image/png"),
    "bytes that are no text": answers(b'{"message": "\xff\xfe"}'),
    "nothing, successfully": answers(b"", status="204 No Content"),
    "nothing, called JSON": answers(b""),
    "a stream of nonsense": answers(b"data: nonsense\n\nid\n\n:\n\nevent: x\n\n", "text/event-stream"),
    "a redirect": answers(b"", status="302 Found"),
    "an error in words": answers(b"Internal Server Error", "text/plain", "500 Internal Server Error"),
    "an error in JSON": answers(b'{"detail": [{"loc": ["body"], "msg": "no"}]}', status="422 Unprocessable Entity"),
    "no such path": answers(b'{"message": "Not Found"}', status="404 Not Found"),
    "a body that stops short": says(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    ),
    "a chunk that stops short": says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{\n"),
    "a head that stops short": says(b"HTTP/1.1 200 OK\r\nContent-Ty"),
    "a reset": says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", reset=True),
    "another protocol": says(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "a hang-up": says(),
}


@asynccontextmanager
async def turning(url: str, after: int, into: Handler) -> AsyncIterator[Server]:
    """A server that passes its first `after` requests on to the real one at `url`, and then turns."""

    async def handle(asked: Exchange) -> None:
        await (into(asked) if len(there.seen) > after else until_gone(asked, pass_on(asked, url)))

    async with serving(handle) as there:
        yield there


@asynccontextmanager
async def cut_short(url: str, after: int) -> AsyncIterator[Server]:
    """A server that dies in the middle of its answer to the request after the first `after`."""

    async def handle(asked: Exchange) -> None:
        await until_gone(asked, pass_on(asked, url, half=len(there.seen) > after))

    async with serving(handle) as there:
        yield there


async def until_gone(asked: Exchange, answering: Coroutine[Any, Any, None]) -> None:
    """Answer until the client has gone, which a stream that says nothing would not notice."""
    answer, gone = asyncio.ensure_future(answering), asyncio.ensure_future(asked.gone())
    try:
        await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            answer.result()
    finally:
        answer.cancel()
        gone.cancel()
        await asyncio.gather(answer, gone, return_exceptions=True)


async def pass_on(asked: Exchange, url: str, *, half: bool = False) -> None:
    """Ask the real server, give its answer as it comes: all of it, or half of what comes first and then a reset."""
    headers = {k: v for k, v in asked.headers.items() if k not in ("host", "content-length", "accept-encoding")}
    headers["accept-encoding"] = "identity"
    async with (
        httpx2.AsyncClient(timeout=60) as client,
        client.stream(asked.method, url + asked.target, content=asked.body, headers=headers) as got,
    ):
        lines = [f"{k}: {v}" for k, v in got.headers.multi_items() if k not in ("connection", "transfer-encoding")]
        chunked = "content-length" not in got.headers
        lines += ["transfer-encoding: chunked"] * chunked
        await asked.say("\r\n".join([f"HTTP/1.1 {got.status_code} X", *lines, "", ""]).encode())
        async for piece in got.aiter_raw():
            told = b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
            await asked.say(told[: len(told) // 2] if half else told)
            if half:
                break
    if half:
        asked.reset()
    elif chunked:
        await asked.say(b"0\r\n\r\n")
