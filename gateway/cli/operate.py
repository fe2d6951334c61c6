"""An operator's commands, by way of `/admin`: `interlingua runs`, `watch`, `answer`, `cancel`, `top`. Each returns the
exit code.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import httpx2

from gateway.cli.codes import FAILED, NEEDS_ANSWER, OK, leave
from gateway.cli.remote import CONNECT_SECONDS, REFUSALS, http_client, reached
from gateway.cli.talk import File, Notes, PendingQuestion, as_answer, asks, ending, shown
from gateway.core.errors import AgentFailed, Invalid, NotFound
from gateway.core.types import JsonObject, RunStatus
from gateway.wire import sse

SECONDS: Final = 30.0
EVERY: Final = 2.0
"""Seconds between two looks of `top`."""
LEAST_ID: Final = 4
"""Characters of a run's id that name it, if no other run's has them."""
SHOWN: Final = 12
"""Characters of a run's id in a table: its last, since the ids of runs of one minute begin alike."""


class AdminClient:
    """Asks `/admin` of a gateway.

    Raises NotFound, Invalid and AgentFailed with what it says; AgentGone where it says nothing.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._http = http_client(self._url, token, SECONDS)

    async def get(self, path: str, **query: Any) -> JsonObject:
        given = {name: value for name, value in query.items() if value is not None}
        async with reached(self._url):
            return _said(await self._http.get(f"{self._url}/admin{path}", params=given))

    async def post(self, path: str, body: JsonObject) -> JsonObject:
        async with reached(self._url):
            return _said(await self._http.post(f"{self._url}/admin{path}", json=body))

    async def events(self, run: str) -> AsyncIterator[JsonObject]:
        """A run's events, from its beginning until it ends."""
        accept = {"accept": "text/event-stream"}
        forever = httpx2.Timeout(None, connect=CONNECT_SECONDS)
        async with (
            reached(self._url),
            self._http.stream("GET", f"{self._url}/admin/runs/{run}/events", headers=accept, timeout=forever) as answer,
        ):
            if answer.is_error:
                await answer.aread()
                _said(answer)
            frames = sse.SseDecoder()
            async for piece in answer.aiter_bytes():
                for frame in frames.feed(piece):
                    if frame.event != "run":
                        yield json.loads(frame.data)

    async def run(self, named: str) -> JsonObject:
        """A run by its id, or by how its id begins or ends where that is one of the newest. Raises NotFound."""
        try:
            return await self.get(f"/runs/{named}")
        except NotFound:
            runs = (await self.get("/runs", limit=500))["runs"] if len(named) >= LEAST_ID else []
            found = [run["id"] for run in runs if run["id"].startswith(named) or run["id"].endswith(named)]
            if len(found) != 1:
                raise NotFound(f"{len(found) or 'no'} runs have {named} in their id") from None
            return await self.get(f"/runs/{found[0]}")


def _said(answer: httpx2.Response) -> JsonObject:
    try:
        found = answer.json()
    except ValueError:
        found = None
    if answer.is_success and isinstance(found, dict):
        return found
    why = found.get("error") if isinstance(found, dict) else None
    message = str(why or f"{answer.url} is no operator's page of a gateway (HTTP {answer.status_code})")
    raise REFUSALS.get(answer.status_code, AgentFailed)(message)


async def list_runs(client: AdminClient, agent: str | None, status: str | None, limit: int) -> int:
    """Print the newest runs: a table at a terminal, else a line of JSON each."""
    found = await client.get("/runs", agent=agent, status=status, limit=limit)
    if not sys.stdout.isatty():
        for run in found["runs"]:
            print(json.dumps(run, ensure_ascii=False))
        return OK
    from rich.console import Console

    from gateway.cli.view import table

    rows = [
        (
            run["id"][-SHOWN:],
            run["agent"],
            run["protocol"],
            run["status"],
            _ago(run["created_at"]),
            run["principal"] or "",
        )
        for run in found["runs"]
    ]
    Console().print(table(("run", "agent", "from", "status", "begun", "person"), rows))
    return OK


async def watch_run(client: AdminClient, named: str) -> int:
    """Print what happens in a run until it ends, from its beginning. The exit code says how it ended."""
    run = await client.run(named)
    notes = Notes()
    in_line = False  # whether text stands in the last line
    async for event in client.events(run["id"]):
        if event["event"] == "part_delta" and isinstance(event["delta"], str):
            print(shown(event["delta"]), end="", flush=True)
            in_line = True
            continue
        told = _told(event, notes)
        if told:
            print("\n" * in_line + f"[{shown(told)}]", flush=True)
            in_line = False
    run = await client.get(f"/runs/{run['id']}")
    why = run["cancel_reason"] if run["status"] == RunStatus.CANCELLED else (run["failure"] or {}).get("message")
    print("\n" * in_line + shown(ending(run["status"], why)))
    return OK if run["status"] == RunStatus.SUCCESS else FAILED


def _told(event: JsonObject, notes: Notes) -> str:
    """A line about an event beside the answer; "" for one of no interest."""
    if event["event"] == "interrupted":
        return _question(event["interrupt"]).text
    item = notes.of({**event, "type": event["event"]})
    return f"file: {item.name}" if isinstance(item, File) else item.text if item is not None else ""


def _question(asked: JsonObject) -> PendingQuestion:
    schema = asked.get("answer_schema") or {}
    return asks(asked.get("payload"), schema, kind=asked["kind"], message=asked.get("message", ""))


async def answer_run(client: AdminClient, named: str, text: str | None) -> int:
    """Answer the oldest question of a run, or decline it without a text. Without a question, print so."""
    run = await client.run(named)
    if not run["interrupts"]:
        leave(FAILED, f"run {run['id']} asks nothing: it is {run['status']}")
    asked = run["interrupts"][0]
    question = _question(asked)
    body = {"outcome": "declined"} if text is None else {"value": as_answer(text, question.schema)}
    try:
        found = await client.post(f"/runs/{run['id']}/answer", {**body, "interrupt": asked["id"]})
    except Invalid as error:
        choices = f" (one of: {', '.join(question.choices)})" if question.choices else ""
        leave(NEEDS_ANSWER, f"{question.text}{choices}", f"the answer is refused: {error}")
    print(f"{run['id']}: {found['status']}")
    return OK


async def cancel_run(client: AdminClient, named: str, reason: str) -> int:
    run = await client.run(named)
    found = await client.post(f"/runs/{run['id']}/cancel", {"reason": reason})
    print(f"{run['id']}: {found['status']}")
    return OK


async def top(client: AdminClient, *, once: bool) -> int:
    """Show agents and how their runs go, again and again."""
    from rich.console import Console
    from rich.live import Live

    from gateway.cli.view import table

    if once or not sys.stdout.isatty():
        Console().print(table(HEADS, _rows(await client.get("/agents"))))
        return OK
    with Live(screen=True, auto_refresh=False) as live:
        while True:
            live.update(table(HEADS, _rows(await client.get("/agents"))), refresh=True)
            await asyncio.sleep(EVERY)


HEADS: Final = ("agent", "speaks", "ready", "now", "ended", "half within", "95% within", "lost")


def _rows(found: JsonObject) -> Sequence[tuple[str, ...]]:
    return [
        (
            agent["name"],
            agent["protocol"],
            "yes" if agent["ready"] else "no",
            str(agent["active"]),
            ", ".join(f"{count} {status}" for status, count in agent["ended"].items()),
            _seconds(agent["seconds"]["p50"]),
            _seconds(agent["seconds"]["p95"]),
            str(agent["losses"] or ""),
        )
        for agent in found["agents"]
    ]


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def _ago(moment: float) -> str:
    seconds = max(0, int(time.time() - moment))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
