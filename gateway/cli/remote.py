"""A small client of a running gateway, over its public Agent Connect door (httpx2), for `--gateway URL`."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urljoin

import httpx2

from gateway.cli import loop
from gateway.cli.codes import OK, perhaps_tls
from gateway.cli.talk import (
    AnswerText,
    File,
    Item,
    ListedAgent,
    Notes,
    PendingQuestion,
    RunEnd,
    Wants,
    as_answer,
    as_text,
    asks,
)
from gateway.core.errors import AgentFailed, AgentGone, Denied, InterlinguaError, Invalid, NotFound
from gateway.core.projection import text_pointer
from gateway.core.types import JsonObject, RunStatus
from gateway.wire import sse

DOOR = "/agent-connect"
PAGE = 1000
CONNECT_SECONDS = 5.0
REFUSALS: Mapping[int, type[InterlinguaError]] = {400: Invalid, 404: NotFound, 422: Invalid}
"""What an error's status is here; every other is AgentFailed."""
CANCELLED = 499
"""`errcode` of a run that was cancelled: the door has no status of that name."""
CONTEXT_DOOR = "/agent-context"
SECONDS = 60.0


def revoke_agent(agent: str, gateway: str, token: str | None, *, reason: str | None, restore: bool) -> int:
    """Revoke or restore an agent and print that. Raises Denied if the gateway refuses, and as `reached` does."""
    method = "agent/restore" if restore else "agent/revoke"
    params = {"agentId": agent, **({} if reason is None or restore else {"reason": reason})}
    result = loop.run(_asked(gateway.rstrip("/"), token, method, params))
    unknown = "" if result.get("known", True) else ", although there is no such agent now"
    print(f"{agent}: {result.get('status', 'done')}{unknown}")
    return OK


async def _asked(url: str, token: str | None, method: str, params: JsonObject) -> JsonObject:
    """Make one request. The door is at its own path below the URL, or the URL is the door's own."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with reached(url), http_client(url, token, SECONDS) as http:
        for address in (url + CONTEXT_DOOR, url):
            response = await http.post(address, json=message)
            if response.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
                break
    try:
        answer: Any = response.json()
    except ValueError:
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("result"), dict):
        return dict(answer["result"])
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        raise Denied(str(answer["error"].get("message")))
    raise AgentGone(f"{url} is no gateway with an Agent Context door ({response.status_code})")


class Remote:
    """A `Talk` with the agents of a running gateway. Use as an async context manager; one run at a time."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._http = http_client(self._url, token, None)  # a run may be silent for as long as its agent thinks
        self._door: str | None = None
        self._begun: asyncio.Future[JsonObject] | None = None
        self._asked: PendingQuestion | None = None
        self._answered = False
        self._at = "0"  # the last frame's id, after which the stream goes on

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def agents(self) -> Sequence[ListedAgent]:
        return [
            ListedAgent(
                agent["metadata"]["ref"]["name"], agent["metadata"]["ref"]["version"], agent["metadata"]["description"]
            )
            for agent in await self._agents()
        ]

    async def run(self, agent: str, prompt: str | None, document: Any = None) -> AsyncIterator[Item]:
        """Implements `Talk.run`. Raises NotFound, Invalid, AgentGone (the gateway cannot be reached)."""
        agent_id, _, specs = await self._descriptor(agent)
        said = document if prompt is None else prompt
        modes = [mode for mode, offered in (specs["capabilities"].get("streaming") or {}).items() if offered]
        body: JsonObject = {"agent_id": agent_id, "input": said, "stream_mode": modes or ["values"]}
        self._begun = asyncio.ensure_future(self._json("POST", "/runs", body))
        path, notes = f"/runs/{await self._id()}/stream", Notes()
        while True:
            self._asked, self._answered = None, False
            async for item in self._stream(path, specs, notes):
                if isinstance(item, PendingQuestion):
                    self._asked = item
                yield item
                if isinstance(item, RunEnd):
                    return
            if not (self._asked and self._answered):
                raise AgentGone("the gateway closed the stream before the run had ended")

    async def wants(self, agent: str) -> Wants:
        _, about, specs = await self._descriptor(agent)
        schema = specs["input"]
        return Wants(
            ListedAgent(about["ref"]["name"], about["ref"]["version"], about["description"]),
            schema,
            text_pointer(schema),
        )

    async def _descriptor(self, agent: str) -> tuple[str, JsonObject, JsonObject]:
        """Return an agent's id, metadata and specs."""
        found = await self._agents()
        by_name = {entry["metadata"]["ref"]["name"]: entry["agent_id"] for entry in found}
        agent_id = by_name.get(agent, agent if agent in by_name.values() else None)
        if agent_id is None:
            raise NotFound(f"no agent '{agent}'; have {', '.join(by_name) or 'none'}")
        told = await self._json("GET", f"/agents/{agent_id}/descriptor")
        return agent_id, told["metadata"], told["specs"]

    async def answer(self, value: Any) -> None:
        await self._json("POST", f"/runs/{await self._id()}", value)
        self._answered = True

    async def read(self, file: File) -> AsyncIterator[bytes]:
        """Implements `Talk.read`. Raises InterlinguaErrors."""
        async with reached(self._url), self._http.stream("GET", urljoin(self._url, file.url)) as response:
            if response.is_error:
                raise _refused(response.status_code, await response.aread())
            async for piece in response.aiter_bytes():
                yield piece

    async def cancel(self) -> bool:
        if self._begun is None:
            return False
        await self._json("POST", f"/runs/{await self._id()}/cancel")
        return True

    async def _id(self) -> str:
        """The run's id, as soon as the gateway has said it."""
        assert self._begun is not None, "called once a run is asked for"
        return str((await asyncio.shield(self._begun))["run_id"])

    async def leave(self) -> str:
        """Implements `Talk.leave`: the run waits at the gateway."""
        run = await self._id()
        address = await self._address(f"/runs/{run}")
        example = json.dumps(as_answer("ANSWER", self._asked.schema if self._asked else {}))
        return (
            f"run {run} waits for the answer: curl {address} -H 'content-type: application/json' -d '{example}'\n"
            f"or is given up: curl -X POST {address}/cancel"
        )

    # --- the wire ----------------------------------------------------------------------------------------------

    async def _stream(self, path: str, specs: JsonObject, notes: Notes) -> AsyncIterator[Item]:
        output = text_pointer(specs.get("output"))
        schemas = {item["interrupt_type"]: item["resume_payload"] for item in specs.get("interrupts") or []}
        decoder, last, short = sse.SseDecoder(), AnswerText(""), ""
        headers = {"Last-Event-ID": self._at}
        async with reached(self._url), self._http.stream("GET", await self._address(path), headers=headers) as response:
            if response.is_error:
                raise _refused(response.status_code, await response.aread())
            async for chunk in response.aiter_raw():
                for frame in decoder.feed(chunk):
                    self._at = frame.id or self._at
                    told = json.loads(frame.data)
                    if told["type"] == "values":
                        last = as_text(told.get("values"), output)
                    if told["type"] == "custom" and told["update"].get("type") == "run_finished":
                        short = str(told["update"].get("message"))
                    item = _item(told, last, schemas, notes)
                    if item is not None:
                        yield item
                    if told["type"] == "values" and told["status"] == RunStatus.SUCCESS:
                        yield RunEnd(RunStatus.SUCCESS, short, text=last)

    async def _agents(self) -> list[JsonObject]:
        found: list[JsonObject] = await self._json("POST", "/agents/search", {"limit": PAGE})
        return found

    async def _json(self, method: str, path: str, body: Any = None) -> Any:
        address = await self._address(path)
        async with reached(self._url):
            response = await self._http.request(method, address, json=body)
        if response.is_error:
            raise _refused(response.status_code, response.content)
        return response.json() if response.content else None

    async def _address(self, path: str) -> str:
        """Find the door: at its own path below the URL, or at the URL itself (if it was moved)."""
        if self._door is None:
            async with reached(self._url):
                found = await self._http.post(f"{self._url}{DOOR}/agents/search", json={"limit": 1})
                here = found if found.is_success else await self._http.post(f"{self._url}/agents/search", json={})
            if HTTPStatus.UNAUTHORIZED in (found.status_code, here.status_code):
                raise Denied(
                    f"{self._url} asks who you are: give a token by --token-file or $INTERLINGUA_TOKEN, or another one"
                )
            if not here.is_success:
                raise AgentGone(f"{self._url} is no gateway with an Agent Connect door ({found.status_code})")
            self._door = self._url + (DOOR if here is found else "")
        return self._door + path


def http_client(url: str, token: str | None, seconds: float | None) -> httpx2.AsyncClient:
    """A client that shows a token to the gateway alone. `seconds`: how long the gateway may say nothing."""
    return httpx2.AsyncClient(
        auth=_Token(url, token) if token else None,
        timeout=httpx2.Timeout(seconds, connect=CONNECT_SECONDS),
        trust_env=False,  # no proxy of the environment, but no SSL_CERT_FILE either, which `ssl` takes
        verify=ssl.create_default_context(),
    )


class _Token(httpx2.Auth):
    """Shows a token to the gateway, and to nobody else: a file may lie at another address."""

    def __init__(self, url: str, token: str) -> None:
        self._gateway = httpx2.URL(url)
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        there, gateway = request.url, self._gateway
        if (there.scheme, there.host, there.port) == (gateway.scheme, gateway.host, gateway.port):
            request.headers["authorization"] = f"Bearer {self._token}"
        yield request


def _item(told: JsonObject, text: AnswerText, schemas: JsonObject, notes: Notes) -> Item | None:
    """Convert one event of the stream."""
    match told["type"]:
        case "values":
            return text
        case "custom":
            return notes.of(told.get("update"))
        case "interrupt":
            asked = told["interrupt"]
            kind = str(asked.get("interrupt_type") or (next(iter(asked)) if len(asked) == 1 else ""))
            payload = asked.get("interrupt_payload", asked.get(kind, asked))
            own = payload.get("schema") if kind == "input" and isinstance(payload, dict) else None
            return asks(payload, own if isinstance(own, dict) else schemas.get(kind, {}), kind=kind)
        case "error":
            stopped = RunStatus.TIMEOUT if told.get("status") == RunStatus.TIMEOUT else RunStatus.ERROR
            if told.get("errcode") == CANCELLED:
                stopped = RunStatus.CANCELLED
            return RunEnd(stopped, str(told.get("description", "")))
    return None


@asynccontextmanager
async def reached(url: str) -> AsyncIterator[None]:
    """Map connection errors to messages that say what a person can do."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        if isinstance(error, httpx2.ConnectError) and "SSL" in str(error):
            raise AgentGone(f"no TLS connection could be made to {url}: {error}") from error
        raise AgentGone(f"no gateway answers at {url}") from error
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise Invalid(f"{url} is not the address of a gateway: {error}") from error
    except httpx2.TransportError as error:
        why = str(error) or "the connection was closed"
        raise AgentGone(f"the gateway at {url} went away: {why}{perhaps_tls(url)}") from error


def _refused(status: int, body: bytes) -> InterlinguaError:
    try:
        said = json.loads(body)
    except ValueError:
        said = body.decode(errors="replace")
    message = said if isinstance(said, str) and said else f"HTTP {status}: {said}"
    return REFUSALS.get(status, AgentFailed)(message)
