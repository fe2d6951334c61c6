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
from gateway.access import Door
from gateway.contract import Callback, Gateway
from gateway.core.errors import InterlinguaError
from gateway.core.types import Run

_THREAD = "/threads/{thread_id}"


class Operations:
    """The operations as one client has them, or everybody where nobody is asked who it is."""

    def __init__(self, gateway: Gateway, keep_alive: float) -> None:
        self.agents = Agents(gateway)
        self.threads = Threads(gateway)
        self.runs = Runs(gateway, keep_alive)


Pick = Callable[[Operations], Operation]


def _runs(under: str) -> dict[str, dict[str, Pick]]:
    """The operations that start runs below a path."""
    return {
        f"{under}/runs/wait": {"POST": lambda operations: operations.runs.create_and_wait},
        f"{under}/runs/stream": {"POST": lambda operations: operations.runs.create_and_stream},
    }


def _run(under: str) -> dict[str, dict[str, Pick]]:
    """The operations on one run below a path."""
    run = f"{under}/runs/{{run_id}}"
    return {
        run: {
            "GET": lambda operations: operations.runs.get,
            "POST": lambda operations: operations.runs.resume,
            "DELETE": lambda operations: operations.runs.delete,
        },
        f"{run}/wait": {"GET": lambda operations: operations.runs.wait},
        f"{run}/stream": {"GET": lambda operations: operations.runs.stream},
        f"{run}/cancel": {"POST": lambda operations: operations.runs.cancel},
    }


_TABLE: dict[str, dict[str, Pick]] = {
    **_runs(""),
    "/runs": {"POST": lambda operations: operations.runs.create},
    **_runs(_THREAD),
    f"{_THREAD}/runs": {
        "POST": lambda operations: operations.runs.create,
        "GET": lambda operations: operations.runs.of_thread,
    },
    "/runs/search": {"POST": lambda operations: operations.runs.search},
    **_run(""),
    **_run(_THREAD),
    "/threads": {"POST": lambda operations: operations.threads.create},
    "/threads/search": {"POST": lambda operations: operations.threads.search},
    _THREAD: {
        "GET": lambda operations: operations.threads.get,
        "PATCH": lambda operations: operations.threads.patch,
        "DELETE": lambda operations: operations.threads.delete,
    },
    f"{_THREAD}/copy": {"POST": lambda operations: operations.threads.copy},
    f"{_THREAD}/history": {"GET": lambda operations: operations.threads.history},
    "/agents/search": {"POST": lambda operations: operations.agents.search},
    "/agents/agent/{agent_id}/descriptor": {"GET": lambda operations: operations.agents.descriptor},
    "/agents/{agent_id}/descriptor": {"GET": lambda operations: operations.agents.descriptor},
    "/agents/{agent_id}/errors": {"GET": lambda operations: operations.agents.errors},
    "/agents/{agent_id}/instances": {"POST": lambda operations: operations.agents.configure},
    "/agents/{agent_id}/instances/{instance_id}": {"DELETE": lambda operations: operations.agents.remove},
    "/agents/{agent_id}": {"GET": lambda operations: operations.agents.get},
}
"""Every operation that asks who the client is, by path and method. Those most used come first: the router tries paths
in order.
"""


SCHEMES = "/authentication"
"""Where anybody learns how to authenticate. The prose documentation wants such a path, and names none."""


class AgentConnectInbound:
    """See `Inbound` and `Knowing` of `gateway.contract`."""

    def __init__(self, options: AgentConnectServe, gateway: Gateway) -> None:
        self._limit = options.max_body
        self._door = Door(options.authentication, gateway, lambda own: Operations(own, options.keep_alive))

    def sees(self, headers: Iterable[tuple[bytes, bytes]]) -> Callable[[str], bool] | None:
        """See `gateway.contract.Knowing`."""
        return self._door.sees(headers)

    def routes(self) -> Sequence[BaseRoute]:
        """One route a path, for any method: what its operations do not have is 405, and no other path is looked at."""
        served = self._everybody() if self._door.open else self._asked
        return [
            Route(path, Endpoint({method: served(pick) for method, pick in operations.items()}, self._limit))
            for path, operations in _TABLE.items()
        ] + [Route(SCHEMES, Endpoint({"GET": self._schemes}, self._limit))]

    async def _schemes(self, _: Call) -> Reply:
        return Reply(codec.encode_schemes(asked=not self._door.open))

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
