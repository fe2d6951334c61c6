"""Three gateways on one store, one of them killed every few seconds: no run without an end, and nothing lost or twice.

Beside plain clients of Agent Connect five programs work with SDKs (tests/peers/steadfast.py), with agents of four
protocols. A proxy stands before the gateways where one is installed (haproxy); else clients go round the gateways
themselves.

INTERLINGUA_KILL_SECONDS=120 does it for so long, with a hundred clients at once instead of a dozen.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.core import events as e
from gateway.store.opening import open_store
from tests.e2e.conftest import routes
from tests.support import peers
from tests.support.agent_client import agent_client_agent_server
from tests.support.agent_communication import agents_server
from tests.support.aio import run
from tests.support.processes import PEERS, Gateway, Process, free_port, start

LONG = float(os.environ.get("INTERLINGUA_KILL_SECONDS", "0"))
SECONDS = LONG or 4.0
CLIENTS = 100 if LONG else 8
KILL_EVERY = 4.0 if LONG else 2.0
DOWN = 1.5
"""How long a killed gateway is away."""
PATIENCE = 60.0
WORDS = 12
"""Ticks that the agent says, ten a second."""
SDKS = {
    "e2b": "e2b-client",
    "editor": "agent-client-py",
    "mcp": "mcp-2",
    "bee": "agent-communication-py",
    "context": "mcp-2",
}
"""The kinds of `steadfast.py`, and whose environment each needs."""
DONE = {
    "e2b": "e2b: success",
    "editor": "editor: prompts of echo",
    "mcp": "mcp: calls of slow",
    "bee": "bee: runs of echo",
    "context": "context: tasks",
}
"""What each kind counts in any case."""
OURS = ("stream: success", "question: success", "cancelled")
"""What the clients of this file count in any case."""
SDK_CLIENTS = 15 if LONG else 2
"""Of each kind, beside the others."""
ROUTES = """\
  - name: coder
    target: {{protocol: agent_client, url: "{coder}"}}
  - name: stream
    target: {{protocol: agent_communication, url: "{stream}/sse", agent: stream}}
  - name: repeater
    target: {{protocol: agent_connect, url: "{agent}", agent: echo}}
    labels: {{specializations: [repeating]}}
store: {{url: "{store}"}}
"""
HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CONFIGURATION = """\
defaults
    mode http
    timeout connect 2s
    timeout client 120s
    timeout server 120s
    timeout tunnel 120s
    retries 3
    retry-on conn-failure
    option redispatch 1
listen gateways
    bind 127.0.0.1:{port}
    balance roundrobin
"""
TEXT = " ".join(f"tick {number}" for number in range(1, WORDS + 1)) + " done"

Refusal = (httpx2.TransportError, httpx2.StreamError)


class House:
    """The gateways, as clients see them: each request goes to any of them, and again to another while it is refused."""

    def __init__(self, gateways: list[Gateway], urls: list[str]) -> None:
        """`urls`: where they are asked, through a proxy maybe."""
        self.gateways = gateways
        self.urls = urls
        self.clients = [
            httpx2.AsyncClient(base_url=f"{url}/agent-connect", timeout=PATIENCE, limits=httpx2.Limits())
            for url in urls
        ]
        self.dice = random.Random(7)
        self.counts: Counter[str] = Counter()
        self.created: dict[str, str] = {}
        """What was acknowledged: the agent of each run."""
        self.answered: set[str] = set()
        """Runs with an answer that was acknowledged."""

    def any(self) -> httpx2.AsyncClient:
        return self.dice.choice(self.clients)

    async def ask(self, method: str, path: str, *, once: bool = False, **more: Any) -> httpx2.Response:
        """The answer of whoever can give one. `once`: what is cut off may have been done, and is not sent again."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                answer: httpx2.Response = await self.any().request(method, path, **more)
                if of_the_proxy(answer):
                    raise httpx2.RemoteProtocolError("cut off behind the proxy")
                if answer.status_code != 503:
                    return answer
                assert answer.headers["retry-after"], "a refusal says when to come again"
                self.counts["refused"] += 1
            except httpx2.ConnectError:
                self.counts["not connected"] += 1
            except Refusal:
                self.counts["cut off"] += 1
                if once:
                    raise
            assert time.monotonic() < deadline, f"nobody answers {method} {path}"
            await asyncio.sleep(0.05)

    async def create(self, agent: str, message: str) -> str:
        body = {"agent_id": agent, "input": {"message": message}, "on_disconnect": "continue"}
        while True:
            try:
                answer = await self.ask("POST", "/runs", once=True, json=body)
            except Refusal:
                continue  # nobody was told of that run
            assert answer.status_code == 200, answer.text
            run_id = str(answer.json()["run_id"])
            self.created[run_id] = agent
            return run_id

    async def settled(self, run_id: str) -> dict[str, Any]:
        """What a wait for the run is answered with."""
        answer = await self.ask("GET", f"/runs/{run_id}/wait")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    # --- what clients do

    async def stream(self) -> None:
        """A run that is created here, watched there, and watched on elsewhere whenever that gateway is killed."""
        run_id = await self.create("slow", f"{WORDS / 10} seconds")
        numbers: list[str] = []
        texts: list[str] = []
        last: dict[str, Any] = {}
        while True:
            try:
                async for number, event in self._events(run_id, numbers[-1] if numbers else None):
                    numbers.append(number)
                    last = event
                    if message := event.get("values", {}).get("message"):
                        texts.append(message)
            except Refusal:
                self.counts["streams cut off"] += 1
            if last.get("status") in ("success", "error"):
                break
        assert numbers == sorted(set(numbers), key=place), f"events of {run_id} came twice or out of order: {numbers}"
        lengths = [len(text) for text in texts]
        assert lengths == sorted(lengths), f"the text of {run_id} went back"
        assert all(TEXT.startswith(text) for text in texts), texts
        if last["status"] == "success":
            assert texts[-1] == TEXT, texts[-1]
        self.counts[f"stream: {last['status']}"] += 1

    async def _events(self, run_id: str, after: str | None) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        headers = {"last-event-id": after} if after is not None else {}
        async with self.any().stream("GET", f"/runs/{run_id}/stream", headers=headers) as response:
            if response.status_code == 503 or of_the_proxy(response):
                await asyncio.sleep(0.05)
                return
            assert response.status_code == 200, await response.aread()
            number = ""
            async for line in response.aiter_lines():
                if line.startswith("id: "):
                    number = line[4:]
                elif line.startswith("data: ") and number:
                    yield number, json.loads(line[6:])
                    number = ""
                elif line.startswith("data: "):  # an error of the stream's, and no event of the run's
                    self.counts["streams that failed"] += 1
                    return

    async def question(self) -> None:
        """A run that is created here, asks there, and is answered elsewhere."""
        run_id = await self.create("asker", "please")
        asked = await self.settled(run_id)
        if asked["run"]["status"] == "interrupted":
            try:
                answer = await self.ask("POST", f"/runs/{run_id}", once=True, json={"approved": True})
                assert answer.status_code in (200, 409, 422), answer.text
                if answer.status_code == 200:
                    self.answered.add(run_id)
            except Refusal:
                self.counts["answers that were cut off"] += 1
            deadline = time.monotonic() + PATIENCE
            while (asked := await self.settled(run_id))["run"]["status"] == "interrupted":  # it was not given, then
                assert time.monotonic() < deadline
                with contextlib.suppress(*Refusal):
                    await self.ask("POST", f"/runs/{run_id}", once=True, json={"approved": True})
        if asked["run"]["status"] == "success":
            assert asked["output"]["values"] == {"message": "approved: please"}, asked
        self.counts[f"question: {asked['run']['status']}"] += 1

    async def cancel(self) -> None:
        """A run that is created here and cancelled there."""
        run_id = await self.create("slow", "60 seconds")
        answer = await self.ask("POST", f"/runs/{run_id}/cancel")
        assert answer.status_code == 204, answer.text
        ended = await self.settled(run_id)
        assert ended["run"]["status"] == "error", ended
        self.counts["cancelled"] += 1


def of_the_proxy(answer: httpx2.Response) -> bool:
    """Whether the proxy says that the gateway it asked has gone."""
    return answer.status_code in (502, 503, 504) and answer.headers.get("content-type") == "text/html"


def place(event_id: str) -> tuple[int, float]:
    """Where a frame is in its stream: the frames of event n are `n.1`, `n` and `n.2`."""
    number, _, frame = event_id.partition(".")
    return int(number), float(frame or 1.5)


@contextlib.contextmanager
def three(table: str, folder: Path) -> Iterator[list[Gateway]]:
    with contextlib.ExitStack() as stack:
        gateways = []
        for name in ("one", "two", "three"):
            (folder / name).mkdir()
            gateways.append(stack.enter_context(Gateway(table, folder / name)))
        yield gateways


@contextlib.contextmanager
def before(gateways: list[Gateway], folder: Path) -> Iterator[list[str]]:
    """What clients ask: a proxy, if there is one to start, else the gateways."""
    if HAPROXY is None:
        yield [each.url for each in gateways]
        return
    port, file = free_port(), folder / "haproxy.cfg"
    servers = (f"    server g{each.port} 127.0.0.1:{each.port}\n" for each in gateways)
    file.write_text(CONFIGURATION.format(port=port) + "".join(servers), encoding="utf-8")
    with start([HAPROXY, "-f", str(file)], port=port) as proxy:
        yield [proxy.url]


@contextlib.contextmanager
def steadfast(kind: str, urls: list[str]) -> Iterator[Process]:
    """A program of clients made with an SDK, which asks these URLs for as long as gateways are killed."""
    argv = [str(peers.peer_python(SDKS[kind])), "-P", str(PEERS / "steadfast.py"), kind]
    argv += ["--seconds", f"{SECONDS:g}", "--until", DONE[kind], "--clients", str(SDK_CLIENTS)]
    with start([*argv, *urls]) as program:
        yield program


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_gateways_that_are_killed_lose_nothing_that_was_acknowledged(
    kind: str, agent_protocol_server: Process, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'shared.db'}"
        if kind == "postgresql":
            url = request.getfixturevalue("postgres").database()
        agent = stack.enter_context(peers.agent_connect_agent())
        coder = stack.enter_context(agent_client_agent_server("py")).url.replace("http", "ws")
        stream = stack.enter_context(agents_server("py")).url
        more = ROUTES.format(coder=coder, stream=stream, agent=agent.url, store=url)
        gateways = stack.enter_context(three(routes(agent_protocol_server, agent) + more, tmp_path))
        house = House(gateways, stack.enter_context(before(gateways, tmp_path)))
        own = [each.url for each in gateways]  # a session over HTTP+SSE is at one of them
        sdks = {name: stack.enter_context(steadfast(name, own if name == "bee" else house.urls)) for name in SDKS}
        run(story(house), timeout=SECONDS + 3 * PATIENCE)
        for program in sdks.values():
            (counts,) = peers.lines_of(program, PATIENCE)
            house.counts.update(counts)
        run(logs_are_whole(house, url))
        house.counts["answers"] = len(house.answered)
        print(f"{kind}, {SECONDS:g} s, {CLIENTS} clients: {dict(sorted(house.counts.items()))}")
    assert house.counts["kills"] >= 2 and not house.counts["streams that failed"], house.counts
    assert not [each for each in (*OURS, *DONE.values()) if not house.counts[each]], house.counts


async def logs_are_whole(house: House, url: str) -> None:
    """No event has the number of another, each run has one end, and each answer that was acknowledged is there once."""
    store = open_store(url)
    await store.open()
    for run_id in house.created:
        events: list[tuple[int, e.Event]] = []
        while page := await store.events(run_id, events[-1][0] if events else 0):
            events += [(entry.number, e.decode(entry.data)) for entry in page]
        numbers = [number for number, _ in events]
        assert numbers == sorted(set(numbers)), f"{run_id}: {numbers}"
        ends = [number for number, event in events if isinstance(event, e.TERMINAL)]
        assert ends == numbers[-1:], f"{run_id}: {events}"
        answers = [event.answer for _, event in events if isinstance(event, e.Resumed)]
        assert len(answers) <= 1 and (answers or run_id not in house.answered), f"{run_id}: {events}"
    await store.close()


async def story(house: House) -> None:
    over = time.monotonic() + SECONDS

    async def client(number: int) -> None:
        deeds = [house.stream, house.stream, house.question, house.cancel]
        while time.monotonic() < over or not all(house.counts[each] for each in OURS):
            await deeds[number % len(deeds)]()
            number += 1

    async def killer() -> None:
        for number in range(round(SECONDS / KILL_EVERY)):
            await asyncio.sleep(KILL_EVERY - (DOWN if number else 0))
            gateway = house.gateways[number % len(house.gateways)]
            await asyncio.to_thread(gateway.kill9)
            house.counts["kills"] += 1
            await asyncio.sleep(DOWN)
            await asyncio.to_thread(gateway.restart)

    async with contextlib.AsyncExitStack() as stack:
        for each in house.clients:
            await stack.enter_async_context(each)
        async with asyncio.TaskGroup() as group:
            group.create_task(killer())
            for number in range(CLIENTS):
                group.create_task(client(number))
        for run_id, agent in house.created.items():
            ended = await house.settled(run_id)
            assert ended["run"]["status"] in ("success", "error"), f"run {run_id} of {agent} has no end: {ended}"
            if ended["run"]["status"] == "error":
                house.counts[f"error: {ended['output'].get('description')}"] += 1
