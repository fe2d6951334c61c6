"""Serves clients of Agent Connect: every operation of openapi 0.2.3, below the mount point.

agents.py   search, one agent, its descriptor
threads.py  conversations
runs.py     runs, stateless and on threads
stream.py   runs as server-sent events
call.py     one request and its answer, on ASGI itself
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from adapters.agent_connect import codec
from adapters.agent_connect.inbound import call
from adapters.agent_connect.inbound.agents import Agents
from adapters.agent_connect.inbound.call import Call, Endpoint, Operation, Reply
from adapters.agent_connect.inbound.runs import Runs
from adapters.agent_connect.inbound.threads import Threads
from adapters.agent_connect.options import AgentConnectServe
from gateway.adapter import Callback, Gateway
from gateway.adapter.access import Door
from gateway.core.errors import InterlinguaError
from gateway.core.types import Run

_RUN = "/runs/{run_id}"
_THREAD = "/threads/{thread_id}"


class Operations:
    """The operations as one client has them, or everybody where nobody is asked who it is."""

    def __init__(self, gateway: Gateway, keep_alive: float) -> None:
        self.agents = Agents(gateway)
        self.threads = Threads(gateway)
        self.runs = Runs(gateway, keep_alive)


Pick = Callable[[Operations], Operation]


class AgentConnectInbound:
    """See `Inbound` and `Knowing` of `gateway.adapter`."""

    def __init__(self, options: AgentConnectServe, gateway: Gateway) -> None:
        self._limit = options.max_body
        self._door = Door(options.authentication, gateway, lambda own: Operations(own, options.keep_alive))

    def sees(self, headers: Iterable[tuple[bytes, bytes]]) -> Callable[[str], bool] | None:
        """See `gateway.adapter.Knowing`."""
        return self._door.sees(headers)

    def routes(self) -> Sequence[BaseRoute]:
        """Those most used first: the router tries them in order."""
        table: list[tuple[str, str, Pick]] = []
        for under in ("", _THREAD):
            table += [
                ("POST", f"{under}/runs/wait", lambda operations: operations.runs.create_and_wait),
                ("POST", f"{under}/runs/stream", lambda operations: operations.runs.create_and_stream),
                ("POST", f"{under}/runs", lambda operations: operations.runs.create),
            ]
        table.append(("POST", "/runs/search", lambda operations: operations.runs.search))
        for under in ("", _THREAD):
            table += [
                ("GET", f"{under}{_RUN}", lambda operations: operations.runs.get),
                ("GET", f"{under}{_RUN}/wait", lambda operations: operations.runs.wait),
                ("GET", f"{under}{_RUN}/stream", lambda operations: operations.runs.stream),
                ("POST", f"{under}{_RUN}", lambda operations: operations.runs.resume),
                ("POST", f"{under}{_RUN}/cancel", lambda operations: operations.runs.cancel),
                ("DELETE", f"{under}{_RUN}", lambda operations: operations.runs.delete),
            ]
        table += [
            ("GET", f"{_THREAD}/runs", lambda operations: operations.runs.of_thread),
            ("POST", "/threads", lambda operations: operations.threads.create),
            ("POST", "/threads/search", lambda operations: operations.threads.search),
            ("GET", _THREAD, lambda operations: operations.threads.get),
            ("PATCH", _THREAD, lambda operations: operations.threads.patch),
            ("DELETE", _THREAD, lambda operations: operations.threads.delete),
            ("POST", f"{_THREAD}/copy", lambda operations: operations.threads.copy),
            ("GET", f"{_THREAD}/history", lambda operations: operations.threads.history),
            ("POST", "/agents/search", lambda operations: operations.agents.search),
            ("GET", "/agents/agent/{agent_id}/descriptor", lambda operations: operations.agents.descriptor),
            ("GET", "/agents/{agent_id}/descriptor", lambda operations: operations.agents.descriptor),
            ("GET", "/agents/{agent_id}", lambda operations: operations.agents.get),
        ]
        served = self._everybody() if self._door.open else self._asked
        return [Route(path, Endpoint(served(pick), self._limit), methods=[method]) for method, path, pick in table]

    def _everybody(self) -> Callable[[Pick], Operation]:
        operations = self._door.everybody()
        return lambda pick: pick(operations)

    def _asked(self, pick: Pick) -> Operation:
        async def operation(call: Call) -> Reply | None:
            return await pick(self._door.enter(call.scope))(call)

        return operation

    def refusal(self, error: InterlinguaError) -> Response:
        """See `Inbound.refusal`."""
        reply = call.refusal(error)
        return Response(reply.body, reply.status, reply.headers, "application/json")

    def callback(self, run: Run) -> Callback:
        """A webhook's request: the `Run` object, as `GET .../runs/{run_id}` has it."""
        return Callback(body=codec.encode_run(run), headers={"content-type": "application/json"})
