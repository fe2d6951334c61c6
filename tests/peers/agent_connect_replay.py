"""A server that answers as the Agent Connect server in use did when it was recorded, with all its quirks.

`python agent_connect_replay.py --port N [--api-key KEY] [--slow SECONDS]`; ready when `/_seen` answers. It plays
`captures/agntcy-sdk152_workflow-srv.txt`: every body is the recorded one with ids, times and the user's words put in.
What it does that the specification does not say:

- searching agents with neither name nor version is 422; so is a `stream_mode` in any form;
- every `values` event says `pending`, and a stream ends without a terminal event;
- after an error the same error comes three times and then bare `:` comments for as long as anybody listens;
- an interrupt ends a stream without an event; the payload is keyed by the interrupt's name; resuming takes any object;
- the stream of a run that is over is empty, and `/wait` alone tells the truth;
- cancel, delete, background runs on threads, streams on threads and resuming on threads are 500;
- waiting for a run on a thread that interrupts is 500, as it starts and later; the run is there, `interrupted`, and is
  waited for and resumed below `/runs`;
- a thread on which a run is pending is 409;
- times carry no zone; errors are `{"detail": ...}`; deleting a thread is 200 with `null`; patching replaces metadata;
- a stateless run has a thread id.

The run's input message chooses what happens: `fail` in it fails, `interrupt` in it interrupts once, `slow` in it takes
`--slow` seconds, anything else STEP_SECONDS. Not recorded, so not to be relied on: streams that join a run which is
still going (they send what a creating stream sends), the 401, and the 500 of a stream on a thread, whose connection was
dropped while it was recorded (the body is the one of the background run). Not recorded, but read in the server's source
(`apis/threads_runs.py` of workflow-srv 0.3.0): interrupts on threads, the 409, and getting one run of a thread.
"""

import argparse
import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import jsonschema
import uvicorn
from agent_connect_tape import AGENT, DESCRIPTOR, NO_SUCH, OPTIONS, Body, Refused, Run, now, put_in, recorded, refuse
from recorder import Recorder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

RUNS: dict[str, Run] = {}
THREADS: dict[str, Body] = {}


async def body_of(request: Request) -> Any:
    raw = await request.body()
    return json.loads(raw) if raw else {}


async def search_agents(request: Request) -> Response:
    asked = await body_of(request)
    if not (asked.get("name") or asked.get("version")):
        raise refuse(recorded("POST", "/agents/search", 422))
    ref = AGENT["metadata"]["ref"]
    fits = all(asked.get(key) in (None, ref[key]) for key in ("name", "version"))
    return JSONResponse([AGENT] if fits else [])


async def get_agent(request: Request) -> Response:
    if (agent_id := request.path_params["agent_id"]) != AGENT["agent_id"]:
        raise refuse(recorded("GET", f"/agents/{NO_SUCH}", 404), id=agent_id)
    return JSONResponse(DESCRIPTOR if request.url.path.endswith("/descriptor") else AGENT)


async def create(request: Request, thread_id: str | None = None) -> Run:
    asked = await body_of(request)
    if (mode := asked.get("stream_mode")) is not None:
        refusal = refuse(recorded("POST", "/runs/stream", 422))
        raise Refused(422, {"detail": [{**one, "input": mode} for one in refusal.body["detail"]]})
    if asked.get("agent_id") != AGENT["agent_id"]:
        raise refuse(recorded("POST", "/runs", 404), id=str(asked.get("agent_id")))
    try:
        jsonschema.validate(asked.get("input"), DESCRIPTOR["specs"]["input"])
    except jsonschema.ValidationError as error:
        raise Refused(422, {"detail": f": {error}"}) from None  # to the letter what was recorded for a number
    run = Run(asked, thread_id or str(uuid.uuid4()))
    RUNS[run.run_id] = run
    run.task = asyncio.create_task(run.play())
    return run


def named(request: Request) -> Run:
    run_id = request.path_params["run_id"]
    if run_id not in RUNS:
        raise refuse(recorded("GET", f"/runs/{NO_SUCH}", 404), id=run_id)
    return RUNS[run_id]


async def waited(run: Run) -> Response:
    await run.settled()
    return JSONResponse({"run": run.public(), "output": run.output})


def streamed(run: Run) -> Response:
    return StreamingResponse(run.stream(), media_type="text/event-stream")


async def create_run(request: Request) -> Response:
    return JSONResponse((await create(request)).public())


async def create_and_wait(request: Request) -> Response:
    return await waited(await create(request))


async def create_and_stream(request: Request) -> Response:
    return streamed(await create(request))


async def get_run(request: Request) -> Response:
    return JSONResponse(named(request).public())


async def wait_run(request: Request) -> Response:
    return await waited(named(request))


async def stream_run(request: Request) -> Response:
    run = named(request)
    return Response(media_type="text/event-stream") if run.status == "success" else streamed(run)


async def resume_run(request: Request) -> Response:
    run = named(request)
    if run.status != "interrupted":
        raise refuse(recorded("POST", "/runs/[^/]+", 400))
    answer = {**run.public(), "status": "pending"}
    run.resume(await body_of(request))
    return JSONResponse(answer)


async def not_implemented(_: Request) -> Response:
    raise refuse(recorded("POST", "/runs/.+/cancel", 500))


async def search_runs(request: Request) -> Response:
    asked = await body_of(request)
    wanted = {key: asked[key] for key in ("agent_id", "status") if asked.get(key)}
    runs = [run.public() for run in RUNS.values() if "stream_subgraphs" not in run.asked]
    found = [run for run in runs if wanted.items() <= {"agent_id": run["agent_id"], "status": run["status"]}.items()]
    offset = asked.get("offset", 0)
    return JSONResponse(found[offset : offset + asked.get("limit", 10)])


# threads


def thread_of(request: Request) -> Body:
    thread_id = request.path_params["thread_id"]
    if thread_id not in THREADS:
        raise refuse(recorded("GET", "/threads/[^/]+", 404))
    return THREADS[thread_id]


async def create_thread(request: Request) -> Response:
    asked = await body_of(request)
    thread_id, born = asked.get("thread_id") or str(uuid.uuid4()), now()
    tape = recorded("POST", "/threads").json
    times = {"created_at": born, "updated_at": born}
    THREADS[thread_id] = {**tape, "thread_id": thread_id, **times, "metadata": asked.get("metadata") or {}}
    return JSONResponse(THREADS[thread_id])


async def one_thread(request: Request) -> Response:
    thread = thread_of(request)
    if request.method == "DELETE":
        del THREADS[thread["thread_id"]]
        return JSONResponse(recorded("DELETE", "/threads/.+").json)
    if request.method == "PATCH":
        thread.update(await body_of(request), updated_at=now())
    return JSONResponse(thread)


async def copy_thread(request: Request) -> Response:
    thread, born = thread_of(request), now()
    twin = {**recorded("POST", "/threads/.+/copy").json, "metadata": thread["metadata"]}
    twin.update(thread_id=str(uuid.uuid4()), created_at=born, updated_at=born)
    THREADS[twin["thread_id"]] = twin
    return JSONResponse(twin)


async def search_threads(request: Request) -> Response:
    wanted = (await body_of(request)).get("metadata") or {}
    return JSONResponse([one for one in THREADS.values() if wanted.items() <= one["metadata"].items()])


def runs_of(thread: Body) -> list[Run]:
    return [run for run in RUNS.values() if run.thread_id == thread["thread_id"]]


async def thread_history(request: Request) -> Response:
    """The four checkpoints that were recorded for one run, once for each run, the latest first."""
    states: list[Body] = []
    thread = thread_of(request)
    for run in reversed(runs_of(thread)):
        tape = recorded("GET", "/threads/.+/history").json
        ids = {state["checkpoint"]["checkpoint_id"]: str(uuid.uuid4()) for state in tape}
        old = tape[0]["metadata"]["thread_id"]
        states += put_in(tape, {**ids, old: thread["thread_id"], "in thread": run.message})
    return JSONResponse(states)


async def thread_runs(request: Request) -> Response:
    return JSONResponse([run.public() for run in runs_of(thread_of(request))])


async def wait_on_thread(request: Request) -> Response:
    """Create a run and wait for it, or wait for one that is there."""
    thread = thread_of(request)
    if request.method == "GET":
        run = named(request)
    elif any(run.status == "pending" for run in runs_of(thread)):
        raise Refused(409, {"detail": f"Thread with ID {thread['thread_id']} has pending runs."})
    else:
        run = await create(request, thread["thread_id"])
    answer = await waited(run)
    if run.status == "interrupted":  # it takes the question for an error's description, and cannot encode it
        return await broken_on_thread(request)
    if run.output and run.output["type"] == "result":
        thread["values"] = run.output["values"]
    return answer


async def broken_on_thread(request: Request) -> Response:
    thread_of(request)
    return Response(recorded("POST", "/threads/.+/runs", 500).answer.rstrip("\n"), 500, media_type="text/plain")


async def refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse(error.body, error.status)


async def not_found(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, error.status_code)


Handler = Callable[[Request], Awaitable[Response]]
ROUTES: list[tuple[str, str, Handler]] = [
    ("POST", "/agents/search", search_agents),
    ("GET", "/agents/{agent_id}", get_agent),
    ("GET", "/agents/{agent_id}/descriptor", get_agent),
    ("POST", "/runs", create_run),
    ("POST", "/runs/search", search_runs),
    ("POST", "/runs/wait", create_and_wait),
    ("POST", "/runs/stream", create_and_stream),
    ("GET", "/runs/{run_id}", get_run),
    ("POST", "/runs/{run_id}", resume_run),
    ("DELETE", "/runs/{run_id}", not_implemented),
    ("GET", "/runs/{run_id}/wait", wait_run),
    ("GET", "/runs/{run_id}/stream", stream_run),
    ("POST", "/runs/{run_id}/cancel", not_implemented),
    ("POST", "/threads", create_thread),
    ("POST", "/threads/search", search_threads),
    ("GET", "/threads/{thread_id}", one_thread),
    ("PATCH", "/threads/{thread_id}", one_thread),
    ("DELETE", "/threads/{thread_id}", one_thread),
    ("POST", "/threads/{thread_id}/copy", copy_thread),
    ("GET", "/threads/{thread_id}/history", thread_history),
    ("GET", "/threads/{thread_id}/runs", thread_runs),
    ("POST", "/threads/{thread_id}/runs", broken_on_thread),
    ("POST", "/threads/{thread_id}/runs/wait", wait_on_thread),
    ("GET", "/threads/{thread_id}/runs/{run_id}", get_run),
    ("GET", "/threads/{thread_id}/runs/{run_id}/wait", wait_on_thread),
    ("POST", "/threads/{thread_id}/runs/stream", broken_on_thread),
    ("POST", "/threads/{thread_id}/runs/{run_id}", not_implemented),
    ("POST", "/threads/{thread_id}/runs/{run_id}/cancel", not_implemented),
    ("GET", "/threads/{thread_id}/runs/{run_id}/stream", not_implemented),
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--api-key")
    parser.add_argument("--slow", type=float, default=OPTIONS.slow, help="seconds a slow run takes")
    parser.parse_args(namespace=OPTIONS)
    routes = [Route(path, handler, methods=[method]) for method, path, handler in ROUTES]
    app = Starlette(routes=routes, exception_handlers={Refused: refused, HTTPException: not_found})
    frame = Recorder(app, lambda: OPTIONS.api_key, {"detail": "Invalid API key"})
    options = {"log_level": "warning", "timeout_graceful_shutdown": 1}
    uvicorn.run(frame, host="127.0.0.1", port=OPTIONS.port, **options)


if __name__ == "__main__":
    main()
