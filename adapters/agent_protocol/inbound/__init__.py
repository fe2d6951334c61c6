"""Serves clients of Agent Protocol. service.py: the operations; files.py: artifacts; http.py: what they share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from adapters.agent_protocol.inbound.http import Handler, Operations, refusal
from adapters.agent_protocol.inbound.service import Tasks
from adapters.agent_protocol.options import AgentProtocolServe
from gateway.access import Door
from gateway.contract import Callback, Gateway
from gateway.core.errors import InterlinguaError, Unsupported
from gateway.core.types import Run

__all__ = ["AgentProtocolInbound"]

PREFIXES = ("/ap/v1", "", "/ap/v1/ap/v1")
"""The specification's, the RFC's older one, and what a client makes of a base address that already has it."""

Operation = Callable[[Tasks, Request], Awaitable[Response]]


class AgentProtocolInbound:
    """See `Inbound` and `Knowing` of `gateway.contract`."""

    def __init__(self, options: AgentProtocolServe, gateway: Gateway) -> None:
        self._door = Door(options.authentication, gateway, lambda own: Tasks(options, own))

    def sees(self, headers: Iterable[tuple[bytes, bytes]]) -> Callable[[str], bool] | None:
        """See `gateway.contract.Knowing`."""
        return self._door.sees(headers)

    def routes(self) -> Sequence[BaseRoute]:
        """See `Inbound.routes`. Below `[/{agent}]`, `/ap/v1/agent/tasks...` and the RFC's `/agent/tasks...`."""
        of = self._everybody() if self._door.open else self._asked
        task = "/agent/tasks/{task_id}"
        paths = {
            "/agent/tasks": Operations(GET=of(Tasks.list_tasks), POST=of(Tasks.create_task)),
            task: Operations(GET=of(Tasks.get_task)),
            f"{task}/steps": Operations(GET=of(Tasks.list_steps), POST=of(Tasks.execute_step)),
            f"{task}/steps/{{step_id}}": Operations(GET=of(Tasks.get_step)),
        }
        for word in ("artifacts", "artifact"):
            paths[f"{task}/{word}"] = Operations(GET=of(Tasks.list_artifacts), POST=of(Tasks.upload_artifact))
            paths[f"{task}/{word}/{{artifact_id}}"] = Operations(GET=of(Tasks.download_artifact))
        return [
            Route(agent + prefix + path, operations)
            for agent in ("", "/{agent}")
            for prefix in PREFIXES
            for path, operations in paths.items()
        ]

    def refusal(self, error: InterlinguaError) -> Response:
        """See `Inbound.refusal`."""
        return refusal(error)

    def callback(self, run: Run) -> Callback:
        """The protocol has no callbacks."""
        raise Unsupported("Agent Protocol has no callbacks")

    def _everybody(self) -> Callable[[Operation], Handler]:
        tasks = self._door.everybody()
        return lambda operation: partial(operation, tasks)

    def _asked(self, operation: Operation) -> Handler:
        async def handler(request: Request) -> Response:
            return await operation(self._door.enter(request.scope), request)

        return handler
