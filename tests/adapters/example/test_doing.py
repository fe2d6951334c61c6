"""A client and an agent of the example protocol: who may ask, a thread that the agent remembers, files both ways."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from starlette.applications import Starlette

from adapters.example.inbound import ExampleInbound
from adapters.example.options import ExampleServe, ExampleTarget
from adapters.example.outbound import ExampleOutbound
from gateway.access import Authenticator, identifying
from gateway.agents.entry import Entry
from gateway.config import Route
from gateway.routing import served
from tests.support.raw_http import Exchange, serving
from tests.support.scripted import engine

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
SAID = b'{"part": "text", "delta": "Here."}\n{"file": {"name": "b.txt", "data": "Yg=="}}\n{"done": null}\n'
PICTURE = {"name": "a.png", "media_type": "image/png", "data": "YQ=="}


@asynccontextmanager
async def between(told: list[Any], **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Ana and Bob may come in; the agent notes what it is told, and says some words and a file."""

    async def agent(exchange: Exchange) -> None:
        told.append(json.loads(exchange.body))
        await exchange.say(HEAD + SAID)
        exchange.writer.close()

    clients = [{"name": name, "token": f"{name}-token"} for name in ("ana", "bob")]
    serve = ExampleServe.model_validate({"authentication": {"clients": clients}})
    async with serving(agent) as server, engine() as gateway:
        target = ExampleTarget(protocol="example", url=server.url, **options)
        gateway.use([Entry(Route(name="poet", target=target), ExampleOutbound(target))])
        inbound, identify = ExampleInbound(serve, gateway), identifying(Authenticator(serve.authentication))
        routes = served(inbound.routes(), "example", inbound.refusal, identify=identify)
        transport = httpx2.ASGITransport(Starlette(routes=list(routes)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client:
            client.headers["authorization"] = "Bearer ana-token"
            yield client


async def lines(client: httpx2.AsyncClient, **body: Any) -> list[Any]:
    answer = await client.post("/poet", json={"input": {"message": "Go"}, **body})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_an_agent_that_remembers_a_thread_is_told_its_id_and_each_file_once() -> None:
    told: list[Any] = []
    async with between(told, remembers=True, files=["image/*"]) as client:
        thread = (await client.post("/threads")).json()["thread"]
        await lines(client, thread=thread, files=[PICTURE])
        await lines(client, thread=thread)
    first, second = told
    assert first["thread"] == second["thread"] == thread
    assert first["files"] == [PICTURE] and "files" not in second
    assert second["input"] == {"message": "Go"}


async def test_an_agent_that_remembers_nothing_gets_the_earlier_turn_in_its_input() -> None:
    told: list[Any] = []
    async with between(told) as client:
        thread = (await client.post("/threads")).json()["thread"]
        await lines(client, thread=thread)
        await lines(client, thread=thread)
        refused = await client.post("/poet", json={"input": {"message": "Go"}, "files": [PICTURE]})
    assert "assistant: Here." in told[1]["input"]["message"]
    assert refused.status_code == 422 and "file" in refused.text


async def test_a_file_of_an_agents_is_fetched_by_its_run_s_client_and_nobody_else() -> None:
    async with between([]) as client:
        (file,) = [line["file"] for line in await lines(client) if "file" in line]
        assert (file["name"], file["size"]) == ("b.txt", 1)
        got = await client.get(f"/files/{file['id']}")
        assert got.content == b"b" and got.headers["x-content-type-options"] == "nosniff"
        foreign = await client.get(f"/files/{file['id']}", headers={"authorization": "Bearer bob-token"})
        nobody = await client.get("/agents", headers={"authorization": "Bearer stolen"})
    assert foreign.status_code == 404
    assert nobody.status_code == 401 and "invalid_token" in nobody.headers["www-authenticate"]
