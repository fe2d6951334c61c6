"""Serves clients of Agent Connect: every operation of openapi 0.2.3, below the mount point.

agents.py   search, one agent, its descriptor
threads.py  conversations
runs.py     runs, stateless and on threads
stream.py   runs as server-sent events
call.py     one request and its answer, on ASGI itself
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from adapters.agent_connect import codec
from adapters.agent_connect.inbound import call
from adapters.agent_connect.inbound.agents import Agents
from adapters.agent_connect.inbound.call import Endpoint, Operation
from adapters.agent_connect.inbound.runs import Runs
from adapters.agent_connect.inbound.threads import Threads
from adapters.agent_connect.options import AgentConnectServe
from gateway.adapter import Callback, Gateway
from gateway.core.errors import InterlinguaError
from gateway.core.types import Run

_RUN = "/runs/{run_id}"
_THREAD = "/threads/{thread_id}"


class AgentConnectInbound:
    """See `gateway.adapter.Inbound`."""

    def __init__(self, options: AgentConnectServe, gateway: Gateway) -> None:
        self._options = options
        self._agents = Agents(gateway)
        self._threads = Threads(gateway)
        self._runs = Runs(gateway, options.keep_alive)

    def routes(self) -> Sequence[BaseRoute]:
        """Those most used first: the router tries them in order."""
        agents, threads, runs = self._agents, self._threads, self._runs
        table: list[tuple[str, str, Operation]] = []
        for under in ("", _THREAD):
            table += [
                ("POST", f"{under}/runs/wait", runs.create_and_wait),
                ("POST", f"{under}/runs/stream", runs.create_and_stream),
                ("POST", f"{under}/runs", runs.create),
            ]
        table.append(("POST", "/runs/search", runs.search))
        for under in ("", _THREAD):
            table += [
                ("GET", f"{under}{_RUN}", runs.get),
                ("GET", f"{under}{_RUN}/wait", runs.wait),
                ("GET", f"{under}{_RUN}/stream", runs.stream),
                ("POST", f"{under}{_RUN}", runs.resume),
                ("POST", f"{under}{_RUN}/cancel", runs.cancel),
                ("DELETE", f"{under}{_RUN}", runs.delete),
            ]
        table += [
            ("GET", f"{_THREAD}/runs", runs.of_thread),
            ("POST", "/threads", threads.create),
            ("POST", "/threads/search", threads.search),
            ("GET", _THREAD, threads.get),
            ("PATCH", _THREAD, threads.patch),
            ("DELETE", _THREAD, threads.delete),
            ("POST", f"{_THREAD}/copy", threads.copy),
            ("GET", f"{_THREAD}/history", threads.history),
            ("POST", "/agents/search", agents.search),
            ("GET", "/agents/agent/{agent_id}/descriptor", agents.descriptor),
            ("GET", "/agents/{agent_id}/descriptor", agents.descriptor),
            ("GET", "/agents/{agent_id}", agents.get),
        ]
        limit = self._options.max_body
        return [Route(path, Endpoint(operation, limit), methods=[method]) for method, path, operation in table]

    def refusal(self, error: InterlinguaError) -> Response:
        """See `Inbound.refusal`."""
        reply = call.refusal(error)
        return Response(reply.body, reply.status, reply.headers, "application/json")

    def callback(self, run: Run) -> Callback:
        """A webhook's request: the `Run` object, as `GET .../runs/{run_id}` has it."""
        return Callback(body=codec.encode_run(run), headers={"content-type": "application/json"})
