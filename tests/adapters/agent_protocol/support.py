"""An Agent Protocol server in the test's own process, over a real engine, and a client that checks what it answers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import yaml
from starlette.applications import Starlette
from starlette.routing import Mount

from adapters.agent_protocol import ADAPTER
from adapters.agent_protocol.options import AgentProtocolServe
from adapters.agent_protocol.outbound import AgentProtocolOutbound
from gateway.access import Authenticator, identifying
from gateway.config import Route
from gateway.contract import TargetOptions
from gateway.core import events as e
from gateway.core import projection
from gateway.core.types import Agent, AgentCapabilities
from gateway.routing import served
from gateway.runs import Engine
from tests.support.scripted import Scripted, engine, route

SPEC = Path(__file__).parents[2] / "specs" / "agent-protocol" / "openapi.yml"

AGENT = Agent(
    name="writer",
    input_schema=projection.MESSAGE_SCHEMA,
    output_schema=projection.MESSAGE_OUTPUT_SCHEMA,
    text_input="/message",
    text_output="/message",
    capabilities=AgentCapabilities(threads=True, interrupts=True, artifacts=True, files=("*/*",)),
)


@cache
def spec() -> dict[str, Any]:
    """`openapi.yml`, its OpenAPI 3.0 `nullable` put as JSON Schema has it."""
    loaded: dict[str, Any] = _nullable(yaml.safe_load(SPEC.read_text(encoding="utf-8")))
    return loaded


def _nullable(node: Any) -> Any:
    if isinstance(node, list):
        return [_nullable(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _nullable(value) for key, value in node.items()}
    if node.pop("nullable", False):
        node["type"] = [node["type"], "null"]
    return node


def check(value: Any, schema: str) -> None:
    """Raises ValidationError if `value` is not what the specification calls `schema`."""
    _validate(value, {"$ref": f"#/components/schemas/{schema}"})


def _validate(value: Any, schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator({**schema, "components": spec()["components"]}).validate(value)


def checked(method: str, path: str, status: int, content: bytes) -> None:
    """Hold an answer to its operation's schema."""
    path = "/ap/v1/agent" + path.partition("/agent/tasks")[1].removeprefix("/agent") + path.partition("/agent/tasks")[2]
    path = re.sub(r"/artifact(?=/|$)", "/artifacts", path)
    for template, operations in spec()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path) and method.lower() in operations:
            responses = operations[method.lower()]["responses"]
            found = responses.get(str(status))
            if found is None:
                return
            found = _resolve(found)
            schema = found.get("content", {}).get("application/json", {}).get("schema")
            if schema is not None:
                _validate(httpx2.Response(200, content=content).json(), schema)
            return
    raise AssertionError(f"{method} {path} is no operation of the specification")


def _resolve(node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        target: Any = spec()
        for key in node["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        node = target
    return node


class Client:
    """Calls the server in process; every answer is held to the specification."""

    def __init__(self, app: Any, prefix: str = "/agent-protocol/ap/v1") -> None:
        self.app = app
        self.prefix = prefix
        self._http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://gateway", timeout=30)

    async def call(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """`path` begins after `/agent`, as in `/tasks`."""
        response = await self._http.request(method, f"{self.prefix}/agent{path}", **options)
        checked(method, f"/agent{path.partition('?')[0]}", response.status_code, response.content)
        return response

    async def task(self, input: str | None = "write a poem", **body: Any) -> str:
        """A new task's id."""
        response = await self.call("POST", "/tasks", json={"input": input, **body})
        assert response.status_code == 200, response.text
        task: str = response.json()["task_id"]
        return task

    async def step(self, task: str, input: str | None = None, **body: Any) -> dict[str, Any]:
        """One executed step."""
        response = await self.call("POST", f"/tasks/{task}/steps", json={"input": input, **body})
        assert response.status_code == 200, response.text
        step: dict[str, Any] = response.json()
        return step

    async def get(self, path: str) -> Any:
        """The JSON of a GET."""
        response = await self.call("GET", path)
        assert response.status_code == 200, response.text
        return response.json()


def app(gateway: Engine, **options: Any) -> Starlette:
    """The inbound half, mounted where it is by default."""
    assert ADAPTER.serve is not None
    serve = AgentProtocolServe(**options)
    inbound = ADAPTER.serve(serve, gateway)
    identify = identifying(Authenticator(serve.authentication)) if serve.by_request else None
    routes = served(inbound.routes(), ADAPTER.name, inbound.refusal, identify=identify)
    return Starlette(routes=[Mount(ADAPTER.path, routes=list(routes))])


def native(name: str) -> Route:
    """A route to an agent that speaks this protocol itself."""
    return Route(name=name, target=TargetOptions(protocol=ADAPTER.name))


@asynccontextmanager
async def serving(script: Any, *, agent: Agent = AGENT, **options: Any) -> AsyncIterator[tuple[Client, Engine]]:
    """A client of a gateway with one agent, `writer`. `script`: a function of the run's context, or an outbound."""
    outbound = script if hasattr(script, "describe") else Scripted(script, agent=agent)
    made = native("writer") if isinstance(outbound, AgentProtocolOutbound) else route("writer")
    async with engine((made, outbound)) as gateway:
        yield Client(app(gateway, **options)), gateway


def say(text: str, part: str = "text", message: str = "message") -> list[e.Event]:
    """A message with one text."""
    return [
        e.MessageStarted(message=message),
        e.PartStarted(part=part, message=message),
        e.PartDelta(part=part, delta=text),
        e.PartEnded(part=part),
        e.MessageEnded(message=message),
    ]


async def echo(context: Any) -> None:
    """An agent that says what it was told."""
    context.emit(*say(f"you said: {context.run.request.input['message']}"), e.RunFinished())
    await context.drain()
