"""An Agent Connect agent that drafts a mail, a word at a time, and asks before it sends one.

Say "send" in your message and the run is interrupted with a question: answer `{"approved": true}` or `false`. Only
Starlette and uvicorn are needed: python mailcomposer.py --port 9001
"""

from __future__ import annotations

import argparse
import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

AGENT_ID = str(uuid.uuid5(uuid.NAMESPACE_URL, "https://interlingua.example/mailcomposer"))
PACE = 0.05
METADATA = {
    "ref": {"name": "mailcomposer", "version": "1.0.0"},
    "description": "Drafts a mail from a sentence, and asks before it sends it.",
}
TEXT = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
DESCRIPTOR = {
    "metadata": METADATA,
    "specs": {
        "capabilities": {"threads": False, "interrupts": True, "callbacks": False, "streaming": {"values": True}},
        "input": TEXT,
        "output": TEXT,
        "config": {"type": "object", "properties": {}},
        "interrupts": [
            {
                "interrupt_type": "approve",
                "interrupt_payload": TEXT,
                "resume_payload": {
                    "type": "object",
                    "properties": {"approved": {"type": "boolean"}},
                    "required": ["approved"],
                },
            }
        ],
    },
}


@dataclass
class Run:
    """One draft. `changed` is set, and replaced, whenever there is more to see."""

    creation: dict[str, Any]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    status: str = "pending"
    message: str = ""
    why: str = ""
    answer: asyncio.Future[bool] | None = None
    task: asyncio.Task[None] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, message: str | None = None, status: str | None = None) -> None:
        """Change what is seen of the run and wake those who watch."""
        self.message = self.message if message is None else message
        self.status = status or self.status
        self.changed.set()
        self.changed = asyncio.Event()

    async def work(self) -> None:
        """Write the draft; ask if it is to be sent."""
        wish = self.creation["input"]["message"].strip()
        draft = f"Dear friend,\n\n{wish[:1].upper()}{wish[1:]}\n\nYours, Mail Composer"
        try:
            for end in (at for at, letter in enumerate(draft + " ") if letter.isspace()):
                self.show(draft[:end])
                await asyncio.sleep(PACE)
            if "send" in wish.lower():
                self.answer = asyncio.get_running_loop().create_future()
                self.show(status="interrupted")
                sent = await self.answer
                self.show(f"{draft}\n\n({'Sent' if sent else 'Kept as a draft'}.)")
            self.show(status="success")
        except asyncio.CancelledError:
            self.why = "cancelled"
            self.show(status="error")

    def public(self) -> dict[str, Any]:
        """The run as the protocol shows it."""
        return {
            "run_id": self.id,
            "agent_id": AGENT_ID,
            "created_at": self.created_at,
            "updated_at": datetime.now(UTC).isoformat(),
            "status": self.status,
            "creation": self.creation,
        }

    def output(self) -> dict[str, Any]:
        """What the run has come to, once it has stopped."""
        if self.status == "interrupted":
            return {"type": "interrupt", "interrupt": {"approve": {"message": "Send this mail?"}}}
        if self.status == "success":
            return {"type": "result", "values": {"message": self.message}}
        return {"type": "error", "run_id": self.id, "errcode": 499, "description": self.why}

    async def stopped(self) -> None:
        """Return once the run has ended or asks."""
        while self.status == "pending":
            await self.changed.wait()


runs: dict[str, Run] = {}


def the(request: Request) -> Run:
    """The run that a path names."""
    run = runs.get(request.path_params["run_id"])
    if run is None:
        raise HTTPException(404, "no such run")
    return run


async def new(request: Request) -> Run:
    """The run that a body asks for, at work."""
    try:
        body = await request.json()
        wanted, message = body.get("agent_id", AGENT_ID), body["input"]["message"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise HTTPException(422, "the input needs a message") from None
    if wanted not in (AGENT_ID, "mailcomposer"):
        raise HTTPException(404, "no such agent")
    if not isinstance(message, str):
        raise HTTPException(422, "the message has to be text")
    run = Run(body)
    runs[run.id] = run
    run.task = asyncio.create_task(run.work())
    return run


async def follow(run: Run) -> AsyncIterator[bytes]:
    """The run as server-sent events, until it stops."""
    number = 0
    while True:
        changed = run.changed
        about = {"run_id": run.id, "status": run.status}
        if run.status in ("pending", "success"):
            data = {"type": "values", **about, "values": {"message": run.message}}
        else:
            data = {**run.output(), **about}
        number += 1
        yield f"id: {number}\nevent: agent_event\ndata: {json.dumps(data)}\n\n".encode()
        if run.status != "pending":
            return
        await changed.wait()


async def search(request: Request) -> Response:
    asked = (await request.json()).get("name", METADATA["ref"]["name"])
    found = [{"agent_id": AGENT_ID, "metadata": METADATA}] if asked == METADATA["ref"]["name"] else []
    return JSONResponse(found)


async def agent(request: Request) -> Response:
    if request.path_params["agent_id"] != AGENT_ID:
        raise HTTPException(404, "no such agent")
    wants_descriptor = request.url.path.endswith("/descriptor")
    return JSONResponse(DESCRIPTOR if wants_descriptor else {"agent_id": AGENT_ID, "metadata": METADATA})


async def create(request: Request) -> Response:
    return JSONResponse((await new(request)).public())


async def create_and_wait(request: Request) -> Response:
    return await waited(await new(request))


async def create_and_stream(request: Request) -> Response:
    return StreamingResponse(follow(await new(request)), media_type="text/event-stream")


async def show(request: Request) -> Response:
    return JSONResponse(the(request).public())


async def wait(request: Request) -> Response:
    return await waited(the(request))


async def stream(request: Request) -> Response:
    return StreamingResponse(follow(the(request)), media_type="text/event-stream")


async def resume(request: Request) -> Response:
    run = the(request)
    if run.status != "interrupted" or run.answer is None:
        raise HTTPException(409, "the run asks nothing")
    body = await request.json()
    body = body.get("approve", body) if isinstance(body, dict) else {}
    if not isinstance(body, dict) or not isinstance(body.get("approved"), bool):
        raise HTTPException(422, "answer with approved: true or false")
    run.show(status="pending")
    run.answer.set_result(body["approved"])
    return JSONResponse(run.public())


async def cancel(request: Request) -> Response:
    run = the(request)
    if run.task is not None:
        run.task.cancel()
    return Response(status_code=204)


async def delete(request: Request) -> Response:
    await cancel(request)
    runs.pop(request.path_params["run_id"], None)
    return Response(status_code=204)


async def waited(run: Run) -> Response:
    await run.stopped()
    return JSONResponse({"run": run.public(), "output": run.output()})


async def failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse(error.detail, error.status_code)


app = Starlette(
    routes=[
        Route("/agents/search", search, methods=["POST"]),
        Route("/agents/{agent_id}", agent),
        Route("/agents/{agent_id}/descriptor", agent),
        Route("/runs", create, methods=["POST"]),
        Route("/runs/wait", create_and_wait, methods=["POST"]),
        Route("/runs/stream", create_and_stream, methods=["POST"]),
        Route("/runs/{run_id}", show, methods=["GET"]),
        Route("/runs/{run_id}", resume, methods=["POST"]),
        Route("/runs/{run_id}", delete, methods=["DELETE"]),
        Route("/runs/{run_id}/wait", wait),
        Route("/runs/{run_id}/stream", stream),
        Route("/runs/{run_id}/cancel", cancel, methods=["POST"]),
    ],
    exception_handlers={HTTPException: failed},
)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9001)
    options = parser.parse_args()
    uvicorn.run(app, host=options.host, port=options.port, log_level="warning")
