"""A plain and correct Agent Connect 0.2.3 server with a few small agents, made from the OpenAPI alone.

`python agent_connect_agent.py --port N [--api-key KEY]`; ready when `/_seen` answers. It runs on the project's own
libraries but imports nothing of the project. The agents are described in `agent_connect_agents.py`.

Decisions where the specification leaves room: a run is executed in a task of its own and outlives every connection,
but for the one that created it with `/stream` or `/wait` and `on_disconnect: cancel` (the default).
`GET .../stream` begins with the latest snapshot, or after the event named by `Last-Event-ID`. A wait that takes
longer than WAIT_SECONDS is 204. A cancelled run has the status `error` and the description `cancelled`. Resuming
a run that does not wait is 409. Runs on threads are found under their thread only. Errors are JSON strings; a wrong or
missing `x-api-key` is 401.

`GET /_seen` lists every request so far as `{method, path, query, headers, body}` (headers in lower case), for tests
that ask what really went over the wire (`traceparent`, say); `DELETE /_seen` forgets them.
"""

import argparse
import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import jsonschema
import uvicorn
from agent_connect_agents import DESCRIPTORS, IDS, NAMES, WORK
from agent_connect_runs import Document, Refused, Run, World
from recorder import Recorder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

WORLD = World()
OPTIONS = argparse.Namespace(api_key=None)
WAIT_SECONDS = 30.0


def check(instance: Any, schema: Document, where: str) -> None:
    """422 with the failing path where `instance` does not fit."""
    try:
        jsonschema.validate(instance, schema)
    except jsonschema.ValidationError as error:
        path = "".join(f"/{part}" for part in error.absolute_path)
        raise Refused(422, f"{where}{path}: {error.message}") from None


async def body_of(request: Request) -> Document:
    raw = await request.body()
    try:
        body = json.loads(raw or b"{}")
    except ValueError:
        raise Refused(422, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refused(422, "the body is not an object")
    return body


def page(found: list[Document], asked: Document) -> JSONResponse:
    offset, limit = int(asked.get("offset") or 0), int(asked.get("limit") or 10)
    if not 1 <= limit <= 1000 or offset < 0:
        raise Refused(422, "limit or offset out of range")
    return JSONResponse(found[offset : offset + limit])


def within(wanted: Document | None, there: Document | None) -> bool:
    return all((there or {}).get(key) == value for key, value in (wanted or {}).items())


# agents


def agent_named(agent_id: str | None) -> str:
    if agent_id is None:
        return "echo"
    if agent_id not in NAMES:
        raise Refused(404, f"agent {agent_id} not found")
    return NAMES[agent_id]


async def search_agents(request: Request) -> Response:
    asked = await body_of(request)
    found = []
    for name, agent_id in IDS.items():
        metadata = DESCRIPTORS[name]["metadata"]
        wanted = {key: asked[key] for key in ("name", "version") if asked.get(key)}
        if within(wanted, metadata["ref"]):
            found.append({"agent_id": agent_id, "metadata": metadata})
    return page(found, asked)


async def get_agent(request: Request) -> Response:
    agent_id = request.path_params["agent_id"]
    metadata = DESCRIPTORS[agent_named(agent_id)]["metadata"]
    return JSONResponse({"agent_id": agent_id, "metadata": metadata})


async def get_descriptor(request: Request) -> Response:
    return JSONResponse(DESCRIPTORS[agent_named(request.path_params["agent_id"])])


# runs, without a thread and on one: the path decides


async def create(request: Request) -> Run:
    asked = await body_of(request)
    name = agent_named(asked.get("agent_id"))
    specs = DESCRIPTORS[name]["specs"]
    check(asked.get("input"), specs["input"], "input")
    config = (asked.get("config") or {}).get("configurable")
    check(config or {}, specs["config"], "config/configurable")
    for mode in modes_of(asked):
        if not specs["capabilities"]["streaming"].get(mode):
            raise Refused(422, f"stream_mode: {name} does not stream {mode}")
    thread = None
    if (thread_id := request.path_params.get("thread_id")) is not None:
        if thread_id not in WORLD.threads and asked.get("if_not_exists") == "create":
            WORLD.create_thread({"thread_id": thread_id})
        thread = WORLD.thread(thread_id)
    return await WORLD.start(IDS[name], WORK[name], asked, thread)


def modes_of(creation: Document) -> set[str]:
    mode = creation.get("stream_mode") or "values"
    return {mode} if isinstance(mode, str) else set(mode)


def named_run(request: Request) -> Run:
    return WORLD.run(request.path_params["run_id"], request.path_params.get("thread_id"))


async def create_run(request: Request) -> Response:
    return JSONResponse((await create(request)).public())


async def get_run(request: Request) -> Response:
    return JSONResponse(named_run(request).public())


async def resume_run(request: Request) -> Response:
    run, payload = named_run(request), await body_of(request)
    interrupts = DESCRIPTORS[NAMES[run.agent_id]]["specs"].get("interrupts", [])
    if run.status == "interrupted":
        check(payload, interrupts[0]["resume_payload"], "resume payload")
    run.resume(payload)
    return JSONResponse(run.public())


async def delete_run(request: Request) -> Response:
    await WORLD.cancel(named_run(request), rollback=True)
    return Response(status_code=204)


async def cancel_run(request: Request) -> Response:
    action = request.query_params.get("action", "interrupt")
    if action not in ("interrupt", "rollback"):
        raise Refused(422, f"action: {action!r} is neither interrupt nor rollback")
    await WORLD.cancel(named_run(request), rollback=action == "rollback")
    return Response(status_code=204)


async def search_runs(request: Request) -> Response:
    asked = await body_of(request)
    wanted = {key: asked[key] for key in ("agent_id", "status") if asked.get(key)}
    found = [
        run.public()
        for run in reversed(WORLD.runs.values())
        if run.thread is None
        and within(wanted, run.public())
        and within(asked.get("metadata"), run.creation.get("metadata"))
    ]
    return page(found, asked)


async def create_and_wait(request: Request) -> Response:
    run = await create(request)
    return await waited(request, run, bound=run.creation.get("on_disconnect") != "continue")


async def wait_run(request: Request) -> Response:
    return await waited(request, named_run(request), bound=False)


async def waited(request: Request, run: Run, *, bound: bool) -> Response:
    settled = asyncio.create_task(run.until_settled())
    left = asyncio.create_task(gone(request.receive))
    done, waiting = await asyncio.wait({settled, left}, timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    if settled in done:
        return JSONResponse({"run": run.public(), "output": run.output})
    if left in done and bound:
        await WORLD.cancel(run)
    return Response(status_code=204)


async def gone(receive: Receive) -> None:
    """Returns when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events of a run, each in one write; a client that leaves is noticed at once."""

    def __init__(self, run: Run, after: int | None, *, bound: bool) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._run, self._after, self._bound = run, after, bound

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        left = asyncio.create_task(gone(receive))
        await asyncio.wait({sending, left}, return_when=asyncio.FIRST_COMPLETED)
        if not sending.done() and self._bound:
            await WORLD.cancel(self._run)
        for task in (sending, left):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        events = self._run.watch(modes_of(self._run.creation), self._after)
        async with contextlib.aclosing(events):  # type: ignore[type-var]
            async for number, event in events:
                text = f"id: {number}\nevent: agent_event\ndata: {json.dumps(event)}\n\n"
                part = {"type": "http.response.body", "body": text.encode(), "more_body": True}
                await send(part)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def create_and_stream(request: Request) -> Response:
    run = await create(request)
    return EventStream(run, 0, bound=run.creation.get("on_disconnect") != "continue")


async def stream_run(request: Request) -> Response:
    last = request.headers.get("last-event-id")
    return EventStream(named_run(request), int(last) if last else None, bound=False)


# threads


async def create_thread(request: Request) -> Response:
    return JSONResponse(WORLD.create_thread(await body_of(request)).public(None))


async def search_threads(request: Request) -> Response:
    asked = await body_of(request)
    found = [thread.public(WORLD.active(thread)) for thread in WORLD.threads.values()]
    status = {"status": asked["status"]} if asked.get("status") else {}
    chosen = [
        thread
        for thread in found
        if within(status, thread)
        and within(asked.get("metadata"), thread["metadata"])
        and within(asked.get("values"), thread["values"])
    ]
    return page(chosen, asked)


async def one_thread(request: Request) -> Response:
    thread = WORLD.thread(request.path_params["thread_id"])
    if request.method == "DELETE":
        for run in WORLD.runs_of(thread):
            await WORLD.cancel(run, rollback=True)
        del WORLD.threads[thread.thread_id]
        return Response(status_code=204)
    if request.method == "PATCH":
        WORLD.patch_thread(thread, await body_of(request))
    return JSONResponse(thread.public(WORLD.active(thread)))


async def copy_thread(request: Request) -> Response:
    thread = WORLD.thread(request.path_params["thread_id"])
    return JSONResponse(WORLD.copy_thread(thread).public(None))


async def thread_history(request: Request) -> Response:
    states = WORLD.thread(request.path_params["thread_id"]).history[::-1]
    if before := request.query_params.get("before"):
        ids = [state["checkpoint"]["checkpoint_id"] for state in states]
        states = states[ids.index(before) + 1 :] if before in ids else []
    return page(states, dict(request.query_params))


async def thread_runs(request: Request) -> Response:
    runs = WORLD.runs_of(WORLD.thread(request.path_params["thread_id"]))
    return page([run.public() for run in runs][::-1], dict(request.query_params))


# the frame


async def refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse(error.text, error.status)


Handler = Callable[[Request], Awaitable[Response]]


def run_routes(base: str) -> list[Route]:
    """What can be done with a run, the same with and without a thread."""
    one = f"{base}/{{run_id}}"
    table: list[tuple[str, str, Handler]] = [
        ("POST", base, create_run),
        ("POST", f"{base}/wait", create_and_wait),
        ("POST", f"{base}/stream", create_and_stream),
        ("GET", one, get_run),
        ("POST", one, resume_run),
        ("DELETE", one, delete_run),
        ("GET", f"{one}/wait", wait_run),
        ("GET", f"{one}/stream", stream_run),
        ("POST", f"{one}/cancel", cancel_run),
    ]
    return [Route(path, handler, methods=[method]) for method, path, handler in table]


ROUTES = [
    Route("/agents/search", search_agents, methods=["POST"]),
    Route("/agents/{agent_id}", get_agent),
    Route("/agents/{agent_id}/descriptor", get_descriptor),
    Route("/runs/search", search_runs, methods=["POST"]),
    *run_routes("/runs"),
    Route("/threads", create_thread, methods=["POST"]),
    Route("/threads/search", search_threads, methods=["POST"]),
    Route("/threads/{thread_id}", one_thread, methods=["GET", "PATCH", "DELETE"]),
    Route("/threads/{thread_id}/copy", copy_thread, methods=["POST"]),
    Route("/threads/{thread_id}/history", thread_history),
    Route("/threads/{thread_id}/runs", thread_runs),
    *run_routes("/threads/{thread_id}/runs"),
]


@contextlib.asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    yield
    for run in list(WORLD.runs.values()):
        await WORLD.cancel(run)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--api-key")
    parser.parse_args(namespace=OPTIONS)
    app = Starlette(routes=ROUTES, exception_handlers={Refused: refused}, lifespan=lifespan)
    # a test that ends does not wait for streams that nobody reads any more
    options = {"log_level": "warning", "timeout_graceful_shutdown": 1}
    denied = "x-api-key is wrong or missing"
    frame = Recorder(app, lambda: OPTIONS.api_key, denied)
    uvicorn.run(frame, host="127.0.0.1", port=OPTIONS.port, **options)


if __name__ == "__main__":
    main()
