"""An Agent Connect agent that says exactly what a test wants, over a raw socket, and the runs against it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.core.errors import InterlinguaError
from tests.adapters.agent_connect.outbound_calls import calling, play
from tests.support.aio import run
from tests.support.context import FakeContext, context
from tests.support.raw_http import Exchange, Server, serving

RUN = "11111111-2222-4333-8444-555555555555"
OTHER = "99999999-2222-4333-8444-555555555555"
SPECS = {
    "capabilities": {"threads": True, "interrupts": True, "streaming": {"values": True}},
    "input": {"type": "object"},
    "output": {"type": "object"},
    "config": {},
}
REF = {"name": "bad", "version": "1"}

Handler = Callable[[Exchange], Awaitable[None]]


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def record(status: str = "pending", **more: Any) -> dict[str, Any]:
    return {"run_id": RUN, "thread_id": "t", "agent_id": "a", "status": status, **more}


def event(values: Any = None, **more: Any) -> bytes:
    data = {"type": "values", "run_id": RUN, "status": "pending", "values": values, **more}
    return b"id: 1\nevent: agent_event\ndata: " + text(data) + b"\n\n"


def result(values: Any, status: str = "success") -> bytes:
    return text({"run": record(status), "output": {"type": "result", "values": values}})


def says(body: bytes, status: str = "200 OK", kind: str = "application/json") -> Handler:
    async def answer(asked: Exchange) -> None:
        await asked.answer(body, status, Content_Type=kind)

    return answer


def refuses(status: str) -> Handler:
    return says(text("no"), status)


def streams(*pieces: bytes, then: str = "end", kind: str = "text/event-stream") -> Handler:
    """Chunked pieces, and then: `end` the body, `reset` the connection, or `hang`."""

    async def answer(asked: Exchange) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        await asked.say(head.encode())
        for piece in pieces:
            await asked.say(b"%x\r\n%b\r\n" % (len(piece), piece))
        if then == "end":
            await asked.say(b"0\r\n\r\n")
        elif then == "reset":
            await asyncio.sleep(0.05)  # let what was written leave first
            asked.reset()
        else:
            await asked.gone()

    return answer


async def hangs(asked: Exchange) -> None:
    await asked.gone()


async def drops(asked: Exchange) -> None:
    asked.writer.close()


def in_turn(*handlers: Handler) -> Handler:
    """One after the other, the last one for ever."""
    left = list(handlers)

    async def answer(asked: Exchange) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(asked)

    return answer


def script(**handlers: Handler) -> Handler:
    """An agent: `descriptor`, `create`, `stream`, `join`, `get`, `wait`, `resume`, `cancel`; what is missing is 404."""
    names = {
        "POST /runs": "create",
        "POST /runs/stream": "stream",
        f"GET /runs/{RUN}": "get",
        f"GET /runs/{RUN}/wait": "wait",
        f"GET /runs/{RUN}/stream": "join",
        f"POST /runs/{RUN}": "resume",
        f"POST /runs/{RUN}/cancel": "cancel",
        "POST /agents/search": "search",
        "GET /agents/a/descriptor": "descriptor",
    }
    listing = text([{"agent_id": "a", "metadata": {"ref": REF, "description": ""}}])
    known: dict[str, Handler] = {
        "search": says(listing),
        "descriptor": says(text({"metadata": {"ref": REF, "description": "d"}, "specs": SPECS})),
        **handlers,
    }

    async def answer(asked: Exchange) -> None:
        name = names.get(f"{asked.method} {asked.target}", asked.target)
        await known.get(name, refuses("404 Not Found"))(asked)

    return answer


async def against(agent: Handler, *, server: list[Server] | None = None, **how: Any) -> FakeContext:
    async with serving(agent) as there:
        if server is not None:
            server.append(there)
        return await play(there.url, "bad", how.pop("message", "hi"), **how)


def ended(agent: Handler, **how: Any) -> FakeContext:
    return run(against(agent, **how))


def raised(
    agent: Handler,
    error: type[InterlinguaError],
    match: str,
    *,
    thread: str | None = None,
    upstream_thread: dict[str, Any] | None = None,
    **how: Any,
) -> FakeContext:
    """The context of a run that fails so."""
    kept: list[FakeContext] = []

    async def go() -> None:
        async with serving(agent) as there, calling(there.url, "bad", **how) as outbound:
            known = await outbound.describe()
            kept.append(context(known, "hi", thread=thread, upstream_thread=upstream_thread))
            await outbound.run(kept[0])

    with pytest.raises(error, match=match):
        run(go())
    return kept[0]
