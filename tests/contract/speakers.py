"""Clients of each inbound protocol, for what `tests/matrix/clients.py` does not say: ids, limits, watching, leaving.

A new adapter adds a class to `SPEAKERS`. Ids of runs are those that the protocol's own clients see.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Protocol, Self

import httpx2

PATIENCE = 60.0
Request = tuple[str, str, Any]
"""Method, path below the mount, JSON body or None."""


@dataclass(frozen=True)
class Seen:
    """What a watcher of a run has seen: the text in the end, how it ended, and what stood under each number."""

    text: str
    status: str
    numbered: dict[str, Any]


class Speaker(Protocol):
    """One client that talks to one agent."""

    def __init__(self, base: str, agent: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...
    def ask(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        """A request below the mount, with JSON if there is a body."""

    def post(self, method: str, path: str, content: Any) -> httpx2.Response:
        """A request whose body is whatever it is, and is said to be JSON."""

    def complaint(self, answer: httpx2.Response) -> str:
        """The words of an error answer; AssertionError if it is not of the protocol's own shape."""

    def unknown(self) -> list[Request]:
        """Every operation on ids that nothing has."""

    def whole(self, text: str) -> Request:
        """The request that brings the agent its text."""

    def start(self, text: str) -> str:
        """Have a run going; its id."""

    def watch(self, run: str) -> Seen:
        """From its first event to its end."""

    def leave(self, text: str, on_disconnect: str) -> str:
        """Start a run, and go away in the middle of its answer; its id."""

    def became(self, run: str) -> str:
        """How the run ended; waits for it."""


class _Http:
    mount = ""

    def __init__(self, base: str, agent: str) -> None:
        self.base, self.agent = base, agent
        # Connections that nobody used are let go before the gateway's own 5 s: it may not close one that is just used.
        limits = httpx2.Limits(keepalive_expiry=2.0)
        self.http = httpx2.Client(base_url=f"{base}{self.mount}", timeout=PATIENCE, verify=False, limits=limits)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.http.close()

    def ask(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        return self.http.request(method, path) if body is None else self.http.request(method, path, json=body)

    def post(self, method: str, path: str, content: Any) -> httpx2.Response:
        return self.http.request(method, path, content=content, headers={"content-type": "application/json"})

    def until(self, question: Callable[[], str | None]) -> str:
        deadline = time.monotonic() + PATIENCE
        while (found := question()) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return found


class Example(_Http):
    mount = "/example"

    def complaint(self, answer: httpx2.Response) -> str:
        body = answer.json()
        assert list(body) == ["error"] and isinstance(body["error"], str)
        return str(body["error"])

    def unknown(self) -> list[Request]:
        run, file = f"/runs/{uuid.uuid4()}", f"/files/{uuid.uuid4()}"
        asked = [("GET", run, None), ("GET", file, None), ("POST", f"{run}/answer", {"answer": 1})]
        return [*asked, ("POST", f"{run}/cancel", None)]

    def whole(self, text: str) -> Request:
        return "POST", f"/{self.agent}", {"input": {"message": text}}

    def start(self, text: str) -> str:
        return self.leave(text, "")

    def watch(self, run: str) -> Seen:
        said, numbered = "", {}
        with self.http.stream("GET", f"/runs/{run}", params={"after": 0}) as response:
            for raw in response.iter_lines():
                line = json.loads(raw)
                said += line["delta"].get("message", "") if isinstance(line.get("delta"), dict) else ""
                if line.keys() & {"done", "error", "cancelled"}:
                    numbered[str(line["n"])] = line
                    status = next(name for name in ("done", "error", "cancelled") if name in line)
                    return Seen(line["done"]["message"] if "done" in line else said, status, numbered)
        raise AssertionError("the stream ended without an end")

    def leave(self, text: str, on_disconnect: str) -> str:
        method, path, body = self.whole(text)
        with self.http.stream(method, path, json=body) as response:
            run: str = json.loads(next(response.iter_lines()))["run"]
        return run

    def became(self, run: str) -> str:
        return {"done": "success"}.get(status := self.watch(run).status, status)


class AgentConnect(_Http):
    mount = "/agent-connect"

    def complaint(self, answer: httpx2.Response) -> str:
        body = answer.json()
        assert isinstance(body, str) and body
        return body

    def unknown(self) -> list[Request]:
        run, thread, agent = (f"/{kind}/{uuid.uuid4()}" for kind in ("runs", "threads", "agents"))
        body = self.whole("x")[2]
        found: list[Request] = [("GET", agent, None), ("GET", f"{agent}/descriptor", None)]
        for path in (run, f"{thread}{run}"):
            found += [("GET", path, None), ("GET", f"{path}/wait", None), ("GET", f"{path}/stream", None)]
            found += [("POST", path, {"a": 1}), ("POST", f"{path}/cancel", None), ("DELETE", path, None)]
        found += [("GET", thread, None), ("GET", f"{thread}/history", None), ("GET", f"{thread}/runs", None)]
        found += [("PATCH", thread, {"metadata": {}}), ("POST", f"{thread}/copy", None), ("DELETE", thread, None)]
        return [*found, *(("POST", f"{thread}/runs{end}", body) for end in ("", "/wait", "/stream"))]

    def whole(self, text: str) -> Request:
        return "POST", "/runs/wait", {"agent_id": self.agent, "input": {"message": text}}

    def start(self, text: str) -> str:
        run: str = self.http.post("/runs", json=self.whole(text)[2]).json()["run_id"]
        return run

    def watch(self, run: str) -> Seen:
        numbered: dict[str, Any] = {}
        number = ""
        with self.http.stream("GET", f"/runs/{run}/stream", headers={"last-event-id": "0"}) as response:
            for line in response.iter_lines():
                if line.startswith("id: "):
                    number = line[4:]
                elif line.startswith("data: "):
                    numbered[number] = json.loads(line[6:])
        last = numbered[number]
        return Seen(last.get("values", {}).get("message", ""), last["status"], numbered)

    def leave(self, text: str, on_disconnect: str) -> str:
        body = {**self.whole(text)[2], "on_disconnect": on_disconnect}
        with self.http.stream("POST", "/runs/stream", json=body) as response:
            line = next(line for line in response.iter_lines() if line.startswith("data: "))
        run: str = json.loads(line[6:])["run_id"]
        return run

    def became(self, run: str) -> str:
        said = self.http.get(f"/runs/{run}/wait").json()
        return "cancelled" if "cancel" in said["output"].get("description", "") else str(said["run"]["status"])


class AgentProtocol(_Http):
    mount = "/agent-protocol"

    @property
    def tasks(self) -> str:
        return f"/{self.agent}/ap/v1/agent/tasks"

    def complaint(self, answer: httpx2.Response) -> str:
        body = answer.json()
        assert isinstance(body["message"], str) and body.keys() <= {"message", "detail"}
        return str(body["message"])

    def unknown(self) -> list[Request]:
        task = f"{self.tasks}/{uuid.uuid4()}"
        known = f"{self.tasks}/{self.task()}"
        found: list[Request] = [("GET", task, None), ("GET", f"{task}/steps", None), ("POST", f"{task}/steps", {})]
        found += [("GET", f"{task}/artifacts", None), ("POST", f"{task}/artifacts", {})]
        for path in (task, known):
            found += [("GET", f"{path}/{kind}/{uuid.uuid4()}", None) for kind in ("steps", "artifacts")]
        return found

    def whole(self, text: str) -> Request:
        return "POST", self.tasks, {"input": text}

    def task(self, text: str = "x") -> str:
        method, path, body = self.whole(text)
        task: str = self.http.request(method, path, json=body).json()["task_id"]
        return task

    def start(self, text: str) -> str:
        """Its one request waits for the whole step: it goes on beside us."""
        task = self.task(text)

        def step() -> None:
            with suppress(httpx2.HTTPError), type(self)(self.base, self.agent) as own:
                own.ask("POST", f"{self.tasks}/{task}/steps", {})

        threading.Thread(target=step, daemon=True).start()
        self.until(lambda: "begun" if self.steps(task) else None)
        return task

    def steps(self, task: str) -> list[Any]:
        found: list[Any] = self.http.get(f"{self.tasks}/{task}/steps").json()["steps"]
        return found

    def watch(self, run: str) -> Seen:
        self.until(lambda: "over" if (steps := self.steps(run)) and steps[-1]["is_last"] else None)
        steps = self.steps(run)
        return Seen(steps[-1]["output"] or "", steps[-1]["status"], {step["step_id"]: step for step in steps})

    def leave(self, text: str, on_disconnect: str) -> str:
        task, there = self.task(text), httpx2.URL(self.base)
        with closing(http.client.HTTPConnection(there.host, there.port, timeout=PATIENCE)) as own:
            own.request("POST", f"{self.mount}{self.tasks}/{task}/steps", "{}", {"content-type": "application/json"})
            self.until(lambda: "begun" if self.steps(task) else None)
        return task

    def became(self, run: str) -> str:
        (seen,) = self.watch(run).numbered.values()
        error = (seen["additional_output"] or {}).get("error")
        return str(error["code"]) if error else "success"


SPEAKERS: dict[str, type[Speaker]] = {
    "example": Example,
    "agent_connect": AgentConnect,
    "agent_protocol": AgentProtocol,
}

LEAVING = [
    ("example", "", "success"),
    ("agent_connect", "continue", "success"),
    ("agent_connect", "cancel", "cancelled"),
    ("agent_protocol", "", "success"),
]
"""What becomes of a run whose client leaves: protocol, what it asked for, how the run ends."""


def pieces(body: bytes) -> Iterator[bytes]:
    """A body whose length nobody announces."""
    for at in range(0, len(body), 1000):
        yield body[at : at + 1000]
