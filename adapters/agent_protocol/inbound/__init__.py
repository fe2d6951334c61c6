"""Serves clients of Agent Protocol.

tasks.py: the operations (a task is a thread, a step one leg of a run), bodies, pages and errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from adapters.agent_protocol.inbound.tasks import TaskOperations, refusal
from adapters.agent_protocol.options import AgentProtocolServe
from gateway.access import serving
from gateway.contract import Gateway
from gateway.core.errors import InterlinguaError
from gateway.transport.asgi import RestEndpoint, RestOperation

__all__ = ["AgentProtocolInbound"]

PREFIXES = ("/ap/v1", "", "/ap/v1/ap/v1")
"""The specification's, the RFC's older one, and what a client makes of a base address that already has it."""

UNDECLARED = "{method} is not an operation of this path"
"""See `RestEndpoint`."""


class AgentProtocolInbound:
    """See `gateway.contract.Inbound`."""

    def __init__(self, options: AgentProtocolServe, gateway: Gateway) -> None:
        self._options = options
        self._gateway = gateway

    def routes(self) -> Sequence[BaseRoute]:
        """See `Inbound.routes`. Below `[/{agent}]`, `/ap/v1/agent/tasks...` and the RFC's `/agent/tasks...`."""
        serve = serving(lambda gateway: TaskOperations(self._options, gateway), self._gateway, self._options)
        task = "/agent/tasks/{task_id}"
        paths: dict[str, dict[str, RestOperation[TaskOperations]]] = {
            "/agent/tasks": {"GET": TaskOperations.list_tasks, "POST": TaskOperations.create_task},
            task: {"GET": TaskOperations.get_task},
            f"{task}/steps": {"GET": TaskOperations.list_steps, "POST": TaskOperations.execute_step},
            f"{task}/steps/{{step_id}}": {"GET": TaskOperations.get_step},
        }
        for word in ("artifacts", "artifact"):
            paths[f"{task}/{word}"] = {"GET": TaskOperations.list_artifacts, "POST": TaskOperations.upload_artifact}
            paths[f"{task}/{word}/{{artifact_id}}"] = {"GET": TaskOperations.download_artifact}
        return [
            Route(agent + prefix + path, RestEndpoint(operations, serve, refusal, undeclared=UNDECLARED))
            for agent in ("", "/{agent}")
            for prefix in PREFIXES
            for path, operations in paths.items()
        ]

    def refusal(self, error: InterlinguaError) -> Response:
        return refusal(error).for_starlette()
