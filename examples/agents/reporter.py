"""An Agent Protocol agent that answers in three steps and leaves a file, report.md.

Only Starlette and uvicorn are needed: python reporter.py --port 9002
"""

from __future__ import annotations

import argparse
import json
import math
import uuid
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

STEPS = ("outline", "research", "write")


@dataclass
class File:
    """An artifact."""

    name: str
    content: bytes
    by_agent: bool
    path: str | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def public(self) -> dict[str, Any]:
        """As the protocol shows it."""
        return {
            "artifact_id": self.id,
            "agent_created": self.by_agent,
            "file_name": self.name,
            "relative_path": self.path,
        }


@dataclass
class Task:
    """One report."""

    input: str
    additional_input: dict[str, Any]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    steps: list[dict[str, Any]] = field(default_factory=list)
    files: list[File] = field(default_factory=list)

    def public(self) -> dict[str, Any]:
        """As the protocol shows it."""
        return {
            "task_id": self.id,
            "input": self.input,
            "additional_input": self.additional_input,
            "artifacts": [file.public() for file in self.files],
        }

    def step(self, given: dict[str, Any]) -> dict[str, Any]:
        """Do the next step."""
        number = len(self.steps)
        name, made, topic = STEPS[number], [], self.input.strip() or "nothing"
        if name == "outline":
            output = f"A report on {topic}: what it is, what is known, what follows."
        elif name == "research":
            output = f"Read {len(self.files)} attached file(s) and thought about {topic}."
        else:
            output = f"Wrote report.md about {topic}."
            sections = "\n".join(f"- {step['output']}" for step in self.steps)
            made.append(File("report.md", f"# {topic}\n\n{sections}\n".encode(), by_agent=True))
            self.files += made
        step = {
            "task_id": self.id,
            "step_id": str(uuid.uuid4()),
            "name": name,
            "input": given.get("input"),
            "additional_input": given.get("additional_input") or {},
            "status": "completed",
            "output": output,
            "additional_output": {},
            "artifacts": [file.public() for file in made],
            "is_last": number + 1 == len(STEPS),
        }
        self.steps.append(step)
        return step


tasks: dict[str, Task] = {}


def the(request: Request) -> Task:
    """The task that a path names."""
    task = tasks.get(request.path_params["task_id"])
    if task is None:
        raise HTTPException(404, "no such task")
    return task


async def body(request: Request) -> dict[str, Any]:
    """The JSON body; an empty one is an empty object."""
    raw = await request.body()
    try:
        found = json.loads(raw) if raw else {}
    except ValueError:
        raise HTTPException(422, "the body is no JSON") from None
    if not isinstance(found, dict):
        raise HTTPException(422, "the body has to be an object")
    return found


def page(request: Request, name: str, items: list[dict[str, Any]]) -> Response:
    """One page of a list."""
    try:
        size = max(1, int(request.query_params.get("page_size", 10)))
        current = max(1, int(request.query_params.get("current_page", 1)))
    except ValueError:
        raise HTTPException(422, "pages are numbers") from None
    shown = items[(current - 1) * size : current * size]
    count = {"total_items": len(items), "total_pages": math.ceil(len(items) / size)}
    return JSONResponse({name: shown, "pagination": {**count, "current_page": current, "page_size": size}})


async def create_task(request: Request) -> Response:
    given = await body(request)
    task = Task(str(given.get("input") or ""), given.get("additional_input") or {})
    tasks[task.id] = task
    return JSONResponse(task.public())


async def list_tasks(request: Request) -> Response:
    return page(request, "tasks", [task.public() for task in tasks.values()])


async def get_task(request: Request) -> Response:
    return JSONResponse(the(request).public())


async def execute_step(request: Request) -> Response:
    task = the(request)
    given = await body(request)
    if len(task.steps) == len(STEPS):
        raise HTTPException(409, "the task is done")
    return JSONResponse(task.step(given))


async def list_steps(request: Request) -> Response:
    return page(request, "steps", the(request).steps)


async def get_step(request: Request) -> Response:
    for step in the(request).steps:
        if step["step_id"] == request.path_params["step_id"]:
            return JSONResponse(step)
    raise HTTPException(404, "no such step")


async def list_artifacts(request: Request) -> Response:
    return page(request, "artifacts", [file.public() for file in the(request).files])


async def upload(request: Request) -> Response:
    task = the(request)
    async with request.form() as form:
        sent, path = form.get("file"), form.get("relative_path")
        if not isinstance(sent, UploadFile):
            raise HTTPException(422, "the form needs a file")
        content = await sent.read()
        file = File(sent.filename or "file", content, by_agent=False, path=path if isinstance(path, str) else None)
    task.files.append(file)
    return JSONResponse(file.public())


async def download(request: Request) -> Response:
    for file in the(request).files:
        if file.id == request.path_params["artifact_id"]:
            named = {"content-disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"}
            return Response(file.content, media_type="application/octet-stream", headers=named)
    raise HTTPException(404, "no such artifact")


async def failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"message": error.detail}, error.status_code)


app = Starlette(
    routes=[
        Mount(
            "/ap/v1/agent/tasks",
            routes=[
                Route("/{task_id}/steps/{step_id}", get_step),
                Route("/{task_id}/steps", list_steps, methods=["GET"]),
                Route("/{task_id}/steps", execute_step, methods=["POST"]),
                Route("/{task_id}/artifacts/{artifact_id}", download),
                Route("/{task_id}/artifacts", list_artifacts, methods=["GET"]),
                Route("/{task_id}/artifacts", upload, methods=["POST"]),
                Route("/{task_id}", get_task),
            ],
        ),
        Route("/ap/v1/agent/tasks", list_tasks, methods=["GET"]),
        Route("/ap/v1/agent/tasks", create_task, methods=["POST"]),
    ],
    exception_handlers={HTTPException: failed},
)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9002)
    options = parser.parse_args()
    uvicorn.run(app, host=options.host, port=options.port, log_level="warning")
