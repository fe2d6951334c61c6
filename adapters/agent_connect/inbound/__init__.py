"""Serves clients of Agent Connect: every operation of openapi 0.2.3, below the mount point.

This file has the agents: search, one agent, its descriptor, its instances.

threads.py     conversations
runs.py        runs, stateless and on threads
stream.py      runs as server-sent events
parameters.py  what requests say: bodies, path and query parameters
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from adapters.agent_connect import codec, codec_agents, wire
from adapters.agent_connect.inbound import parameters
from adapters.agent_connect.inbound.runs import RunOperations
from adapters.agent_connect.inbound.threads import ThreadOperations
from adapters.agent_connect.options import AgentConnectServe
from gateway.access import serving
from gateway.contract import Callback, Gateway
from gateway.core.errors import InterlinguaError, NotFound, lookup
from gateway.core.types import Run
from gateway.transport.asgi import Everybody, HttpRequest, Reply, RestEndpoint, RestOperation, refusals

T = TypeVar("T")
Table = Mapping[str, Mapping[str, RestOperation[T]]]
"""Operations by path and method. Those most used come first: the router tries paths in order."""


class AgentOperations:
    """Every agent that clients of this protocol may call."""

    def __init__(self, gateway: Gateway, limit: int) -> None:
        """limit: bytes that a request's body may have."""
        self._gateway = gateway
        self._limit = limit

    async def search(self, request: HttpRequest) -> Reply:
        """`POST /agents/search`: by name (the route's, or the agent's own) and version."""
        wanted = await parameters.body(request, wire.agent_search, self._limit)
        name, version = wanted.get("name"), wanted.get("version")
        offset, limit = wanted.get("offset") or 0, wanted.get("limit") or 10
        agents = self._gateway.agents
        if name is None and version is None:  # then only those that are told of need to be described
            page = agents.names(wire.PROTOCOL)[offset : offset + limit]
            return Reply(200, codec_agents.encode_agents(await agents.list(wire.PROTOCOL, page)))
        found = [
            agent
            for agent in await agents.list(wire.PROTOCOL)
            if (name is None or name in codec_agents.names(agent)) and version in (None, agent.version)
        ]
        return Reply(200, codec_agents.encode_agents(found[offset : offset + limit]))

    async def get(self, request: HttpRequest) -> Reply:
        """`GET /agents/{agent_id}`. A name will do for the id."""
        return Reply(
            200,
            codec_agents.encode_agent(await self._gateway.agents.get(request.path_params["agent_id"], wire.PROTOCOL)),
        )

    async def errors(self, request: HttpRequest) -> Reply:
        """`GET /agents/{agent_id}/errors`: which errors there are. The specification has no such operation, only the
        prose documentation asks for it.
        """
        agent = await self._gateway.agents.get(request.path_params["agent_id"], wire.PROTOCOL)
        return Reply(200, codec.encode_errors(codec_agents.own_errors(agent)))

    async def configure(self, request: HttpRequest) -> Reply:
        """`POST /agents/{agent_id}/instances`: an `Agent` that is this one with a configuration for all of its runs.

        The prose documentation asks for it, and the specification has no such operation.
        """
        wanted = await parameters.body(request, wire.instance_create, self._limit)
        config = (wanted.get("config") or {}).get("configurable") or {}
        agent = await self._gateway.agents.create(request.path_params["agent_id"], wire.PROTOCOL, config)
        return Reply(200, codec_agents.encode_agent(agent))

    async def remove(self, request: HttpRequest) -> Reply:
        """`DELETE /agents/{agent_id}/instances/{instance_id}`: of what `configure` made. Its runs go on."""
        template = await self._gateway.agents.get(request.path_params["agent_id"], wire.PROTOCOL)
        instance = await self._gateway.agents.get(request.path_params["instance_id"], wire.PROTOCOL)
        made = self._gateway.agents.created(instance.name)
        if made is None or made[0] != template.name:
            raise NotFound(f"agent {instance.name} is no instance of {template.name}")
        await self._gateway.agents.destroy(instance.name, wire.PROTOCOL)
        return Reply(204)

    async def descriptor(self, request: HttpRequest) -> Reply:
        """`GET /agents/{agent_id}/descriptor`, in prose documentation `/agents/agent/{agent_id}/descriptor`."""
        return Reply(
            200,
            codec_agents.encode_descriptor(
                await self._gateway.agents.get(request.path_params["agent_id"], wire.PROTOCOL)
            ),
        )


_THREAD: Final = "/threads/{thread_id}"


def _starting(under: str) -> Table[RunOperations]:
    """The operations that start runs below a path, and are answered when they have stopped or with what they say."""
    return {
        f"{under}/runs/wait": {"POST": RunOperations.create_and_wait},
        f"{under}/runs/stream": {"POST": RunOperations.create_and_stream},
    }


def _one_run(under: str) -> Table[RunOperations]:
    """The operations on one run below a path."""
    run = f"{under}/runs/{{run_id}}"
    return {
        run: {"GET": RunOperations.get, "POST": RunOperations.resume, "DELETE": RunOperations.delete},
        f"{run}/wait": {"GET": RunOperations.wait},
        f"{run}/stream": {"GET": RunOperations.stream},
        f"{run}/cancel": {"POST": RunOperations.cancel},
    }


_RUNS: Final[Table[RunOperations]] = {
    **_starting(""),
    "/runs": {"POST": RunOperations.create},
    **_starting(_THREAD),
    f"{_THREAD}/runs": {"POST": RunOperations.create, "GET": RunOperations.of_thread},
    "/runs/search": {"POST": RunOperations.search},
    **_one_run(""),
    **_one_run(_THREAD),
}
_THREADS: Final[Table[ThreadOperations]] = {
    "/threads": {"POST": ThreadOperations.create},
    "/threads/search": {"POST": ThreadOperations.search},
    _THREAD: {
        "GET": ThreadOperations.get,
        "PATCH": ThreadOperations.patch,
        "DELETE": ThreadOperations.delete,
    },
    f"{_THREAD}/copy": {"POST": ThreadOperations.copy},
    f"{_THREAD}/history": {"GET": ThreadOperations.history},
}
_AGENTS: Final[Table[AgentOperations]] = {
    "/agents/search": {"POST": AgentOperations.search},
    "/agents/agent/{agent_id}/descriptor": {"GET": AgentOperations.descriptor},
    "/agents/{agent_id}/descriptor": {"GET": AgentOperations.descriptor},
    "/agents/{agent_id}/errors": {"GET": AgentOperations.errors},
    "/agents/{agent_id}/instances": {"POST": AgentOperations.configure},
    "/agents/{agent_id}/instances/{instance_id}": {"DELETE": AgentOperations.remove},
    "/agents/{agent_id}": {"GET": AgentOperations.get},
}
SCHEMES: Final = "/authentication"
"""Where anybody learns how to authenticate. The prose documentation wants such a path, and names none."""


class AgentConnectInbound:
    """See `gateway.contract.Inbound`."""

    def __init__(self, options: AgentConnectServe, gateway: Gateway) -> None:
        self._options = options
        self._gateway = gateway

    def routes(self) -> Sequence[BaseRoute]:
        """One route a path, for any method: what its operations do not have is 405, and no other path is looked at."""
        options = self._options
        return [
            *self._routes(_RUNS, lambda gateway: RunOperations(gateway, options)),
            *self._routes(_THREADS, lambda gateway: ThreadOperations(gateway, options.max_body)),
            *self._routes(_AGENTS, lambda gateway: AgentOperations(gateway, options.max_body)),
            Route(SCHEMES, RestEndpoint({"GET": self._schemes}, Everybody(None), _refusal)),
        ]

    def _routes(self, table: Table[T], make: Callable[[Gateway], T]) -> Sequence[BaseRoute]:
        serve = serving(make, self._gateway, self._options)
        return [Route(path, RestEndpoint(operations, serve, _refusal)) for path, operations in table.items()]

    async def _schemes(self, _: None, request: HttpRequest) -> Reply:
        return Reply(200, codec.encode_schemes(asked=self._options.authenticates))

    def refusal(self, error: InterlinguaError) -> Response:
        """See `Inbound.refusal`."""
        return _refusal(error).for_starlette()

    def callback(self, run: Run) -> Callback:
        """A webhook's request: the `Run` object, as `GET .../runs/{run_id}` has it."""
        return Callback(body=codec.encode_run(run), headers={"content-type": "application/json"})


def _refusal(error: InterlinguaError) -> Reply:
    """An error as `ErrorResponse`: a JSON string."""
    body = msgspec.json.encode(codec.error_text(error))
    return Reply(lookup(codec.ERRORS, error), body, refusals.headers(error))
