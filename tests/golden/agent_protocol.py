"""Agent Protocol: what a recorded agent answered, read; what the real client was given, written.

What was recorded through the gateway was recorded with `agent-protocol-client` 1.1.0, which read all of it back. A
document ends with a line feed here that it does not have on the wire.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from pydantic import BaseModel

from adapters.agent_protocol import codec
from adapters.agent_protocol.api import Api
from adapters.agent_protocol.options import AgentProtocolTarget
from adapters.agent_protocol.steps import announced, cut, run_steps, step_json
from adapters.agent_protocol.upstream import step_events
from gateway.core import events as e
from gateway.core.delta import encode
from gateway.core.types import Agent, Artifact, Run, Thread
from gateway.transport.http import HttpResponse

TARGET = AgentProtocolTarget(protocol="agent_protocol", url="http://agent", base_path="ap_v1")


class Canned:
    """An HTTP client whose every request is answered the same."""

    def __init__(self, body: bytes) -> None:
        self.answer = HttpResponse(200, {"Content-Type": "application/json"}, body)

    async def request(self, *args: Any, **options: Any) -> HttpResponse:
        return self.answer


def _called(chunks: Iterable[bytes], call: Callable[[Api], Awaitable[Any]]) -> Any:
    """What an operation makes of an answer. Nothing is waited for, so no loop is needed."""
    api = Api(TARGET)
    api._client = Canned(b"".join(chunks))  # type: ignore[assignment]
    operation = call(api).__await__()
    try:
        next(operation)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits for something")


def _plain(messages: Iterable[BaseModel]) -> Any:
    return [message.model_dump(exclude_unset=True) for message in messages]


# --- reads: an agent's answers -----------------------------------------------------------------------------------


def _executed(chunks: Iterable[bytes], given: Any) -> list[e.Event]:
    """The answer of `POST steps`."""
    return step_events(_called(chunks, lambda api: api.execute("t", {}, None)))


def _created(chunks: Iterable[bytes], given: Any) -> Any:
    """The answer of `POST tasks`."""
    return _plain([_called(chunks, lambda api: api.create_task({}, None))])[0]


def _listed(chunks: Iterable[bytes], given: Any) -> list[e.Event]:
    """The answer of `GET steps`."""
    return [codec.plan(_called(chunks, lambda api: api.steps("t", None)))]


def _files(chunks: Iterable[bytes], given: Any) -> Any:
    """The answer of `GET artifacts`."""
    return _plain(_called(chunks, lambda api: api.artifacts("t", None)))


# --- writes: what clients are given ------------------------------------------------------------------------------


def _step(events: list[tuple[int, e.Event]], given: Any) -> bytes:
    """The answers of `POST steps`, one a line: each leg when it had just stopped. Given: run, agent, task."""
    run, agent = _given(given)
    legs = cut(event for _, event in events)
    steps = [step_json(given["task"], run, legs[: n + 1], agent) for n in range(len(legs))]
    return b"".join(encode(step) + b"\n" for step in steps)


def _steps(events: list[tuple[int, e.Event]], given: Any) -> bytes:
    """The answers of `GET steps`, one page a line. Given: run, agent, task, size of a page."""
    run, agent = _given(given)
    legs, task, size = cut(event for _, event in events), given["task"], given["size"]
    steps = run_steps(task, run, legs, agent) + announced(task, run, legs)
    pages = [steps[at : at + size] for at in range(0, len(steps), size)]
    return b"".join(
        encode(codec.page_json("steps", page, len(steps), n, size)) + b"\n" for n, page in enumerate(pages, 1)
    )


def _task(value: Any, given: Any) -> bytes:
    """The answer of `POST tasks` and of `GET tasks/{task_id}`: thread and files."""
    thread = msgspec.convert(value["thread"], Thread)
    return encode(codec.task_json(thread, msgspec.convert(value["artifacts"], list[Artifact]))) + b"\n"


def _artifacts(value: Any, given: Any) -> bytes:
    """The answer of `GET artifacts`: files."""
    files = [codec.artifact_json(artifact) for artifact in msgspec.convert(value, list[Artifact])]
    return encode(codec.page_json("artifacts", files, len(files), 1, 10)) + b"\n"


def _given(given: Any) -> tuple[Run, Agent]:
    return msgspec.json.decode(msgspec.json.encode(given["run"]), type=Run), msgspec.convert(given["agent"], Agent)


READ = {"step": _executed, "task": _created, "steps": _listed, "artifacts": _files}
WRITE = {"step": _step, "steps": _steps, "task": _task, "artifacts": _artifacts}
