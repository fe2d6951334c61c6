"""An Agent Protocol agent in the test's own process: correct, unless a test replaces what it answers."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from adapters.agent_protocol.options import AgentProtocolTarget
from adapters.agent_protocol.outbound import AgentProtocolOutbound
from tests.support import raw_http

Override = Callable[[raw_http.Exchange], Awaitable[None]]


def says(status: int, body: bytes | str | Any, content_type: str = "application/json") -> Override:
    """An answer: bytes and text as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()

    async def answer(exchange: raw_http.Exchange) -> None:
        await exchange.answer(data, f"{status} X", Content_Type=content_type)

    return answer


@dataclass
class Agent:
    """`plan`: what its steps say, in order; the last is the last. `override`: by operation, what is answered instead.

    Operations are named as in `POST /tasks/t1/steps`; a list of overrides is used up, one a request.
    """

    plan: list[dict[str, Any]] = field(default_factory=lambda: [{"name": "Only", "output": "done"}])
    prefix: str = "/ap/v1"
    files: dict[str, bytes] = field(default_factory=dict)
    override: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    bodies: dict[str, list[Any]] = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    async def handle(self, exchange: raw_http.Exchange) -> None:
        """Answer one request."""
        url = urlsplit(exchange.target)
        path = url.path.removeprefix(f"{self.prefix}/agent")
        if path == url.path:
            await says(404, {"detail": "Not Found"})(exchange)
            return
        operation = f"{exchange.method} {path}"
        self.asked.append(operation)
        self.headers.append(exchange.headers)
        if exchange.method == "POST":
            body: Any = exchange.body
            if exchange.headers.get("content-type") == "application/json":
                body = json.loads(exchange.body)
            self.bodies.setdefault(operation, []).append(body)
        override = self.override.get(operation)
        if isinstance(override, list):
            override = override.pop(0) if override else None
        if override is not None:
            await override(exchange)
            return
        found = self._answer(exchange.method, path, parse_qs(url.query), exchange.body)
        await (found if callable(found) else says(200, found))(exchange)

    def _answer(self, method: str, path: str, query: dict[str, list[str]], body: bytes) -> Any:
        if path == "/tasks":
            return self._page("tasks", list(self.tasks.values()), query) if method == "GET" else self._create(body)
        match = re.fullmatch(r"/tasks/(\w+)(?:/(steps|artifacts|artifact)(?:/([\w-]+))?)?", path)
        if match is None or match[1] not in self.tasks:
            return says(404, {"message": "no such task"})
        task, kind, item = match[1], match[2], match[3]
        if kind is None:
            return self.tasks[task]
        if kind == "steps":
            if method == "POST":
                return self._execute(task, json.loads(body or b"{}"))
            if item is None:
                return self._page("steps", self.steps[task], query)
            return next((s for s in self.steps[task] if s["step_id"] == item), says(404, {"message": "no such step"}))
        if method == "POST":
            made = {"artifact_id": f"up{len(self.tasks[task]['artifacts'])}", "file_name": "u", "agent_created": False}
            self.tasks[task]["artifacts"].append(made)
            return made
        if item is None:
            return self._page("artifacts", self.tasks[task]["artifacts"], query)
        if item not in self.files:
            return says(404, {"message": "no such artifact"})
        return says(200, self.files[item], "application/octet-stream")

    def _create(self, body: bytes) -> dict[str, Any]:
        task = f"t{len(self.tasks) + 1}"
        self.tasks[task] = {**json.loads(body), "task_id": task, "artifacts": []}
        self.steps[task] = []
        self._announce(task)
        return self.tasks[task]

    def _announce(self, task: str) -> None:
        number = len(self.steps[task])
        if number < len(self.plan):
            planned = {key: value for key, value in self.plan[number].items() if key == "name"}
            step = {"task_id": task, "step_id": f"{task}s{number + 1}", "status": "created", "is_last": False}
            self.steps[task].append(step | planned | {"artifacts": []})

    def _execute(self, task: str, body: dict[str, Any]) -> Any:
        number = next((n for n, s in enumerate(self.steps[task]) if s["status"] == "created"), None)
        if number is None:
            return says(500, "Internal Server Error", "text/plain")
        step = self.steps[task][number]
        step |= {"input": None, **body, "status": "completed", "is_last": number == len(self.plan) - 1}
        step |= self.plan[number]
        self.tasks[task]["artifacts"] += step["artifacts"]
        self._announce(task)
        return step

    def _page(self, name: str, items: list[Any], query: dict[str, list[str]]) -> dict[str, Any]:
        page, size = int(query.get("current_page", ["1"])[0]), min(int(query.get("page_size", ["10"])[0]), 2)
        pagination = {"total_items": len(items), "total_pages": len(items) // size, "current_page": page}
        return {name: items[(page - 1) * size : page * size], "pagination": pagination | {"page_size": size}}

    def posted(self, task: str = "t1") -> list[Any]:
        """The bodies of the steps it was asked to execute."""
        return self.bodies.get(f"POST /tasks/{task}/steps", [])


@asynccontextmanager
async def calling(
    agent: Agent | None = None, /, *, path: str = "", **options: Any
) -> AsyncIterator[tuple[AgentProtocolOutbound, Agent]]:
    """The outbound half, and the agent it calls."""
    agent = agent or Agent()
    async with raw_http.serving(agent.handle) as server:
        agent.url = server.url
        options = {"poll_interval": 0.01, **options}
        target = AgentProtocolTarget(protocol="agent_protocol", url=server.url + path, **options)
        outbound = AgentProtocolOutbound(target)
        try:
            yield outbound, agent
        finally:
            await outbound.aclose()


def file(name: str, **more: Any) -> dict[str, Any]:
    """An artifact as an agent lists it, its id made of its name."""
    return {"artifact_id": name.partition(".")[0], "file_name": name, "agent_created": True, **more}
