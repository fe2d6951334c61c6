"""The recorded Agent Connect server's words, and a run that plays them; the state behind `agent_connect_replay.py`."""

import argparse
import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import capture

Body = dict[str, Any]

TAPE = capture.read(Path(__file__).parent / "captures" / "agntcy-sdk152_workflow-srv.txt")
OPTIONS = argparse.Namespace(api_key=None, slow=2.0)
STEP_SECONDS = 0.1
KEEP_ALIVE_SECONDS = 0.2


def recorded(method: str, path: str, status: int = 200, **said: str) -> capture.Exchange:
    """The first exchange like this; `said` picks by what the request's JSON, as text, holds."""
    for one in TAPE:
        same = one.method == method and re.fullmatch(path, one.path) and one.status == status
        if same and all(text in json.dumps(one.asked) for text in said.values()):
            return one
    raise LookupError(f"nothing recorded for {method} {path} {status} {said}")


AGENT = recorded("POST", "/agents/search").json[0]
DESCRIPTOR = recorded("GET", "/agents/.+/descriptor").json
NO_SUCH = "00000000-0000-0000-0000-000000000000"


def put_in(body: Any, new: dict[str, str]) -> Any:
    """The body with every recorded text that is a key of `new` replaced by its value, wherever it stands."""
    if isinstance(body, dict):
        return {key: put_in(value, new) for key, value in body.items()}
    if isinstance(body, list):
        return [put_in(value, new) for value in body]
    if isinstance(body, str):
        for old, value in new.items():
            body = body.replace(old, value)
    return body


def now() -> str:
    return datetime.now().isoformat()  # without a zone, as recorded


class Refused(Exception):
    """The request is answered with this status and body."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(str(body))
        self.status, self.body = status, body


def refuse(one: capture.Exchange, **new: str) -> Refused:
    """The recorded refusal, with the unknown id in it replaced."""
    body = put_in(one.json, {NO_SUCH: new.get("id", NO_SUCH)})
    return Refused(one.status, body)


@dataclass
class Run:
    """One run of the recorded agent: what was asked, what it has said, whether it is over."""

    asked: Body
    thread_id: str
    status: str = "pending"
    output: Body | None = None
    events: list[str] = field(default_factory=list)
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: str = field(default_factory=now)
    updated: str = field(default_factory=now)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None

    @property
    def message(self) -> str:
        return str(self.asked["input"]["message"])

    def public(self) -> Body:
        stateful = "stream_subgraphs" in self.asked
        tape = recorded("POST", "/threads/.+/runs/wait").json["run"] if stateful else recorded("POST", "/runs").json
        creation = {key: self.asked.get(key) for key in tape["creation"]}
        if creation["config"]:
            configurable = creation["config"].get("configurable") or {}
            creation["config"] = {**creation["config"], "configurable": {**configurable, "thread_id": self.thread_id}}
        ids = {"run_id": self.run_id, "thread_id": self.thread_id}
        times = {"created_at": self.created, "updated_at": self.updated}
        return {**tape, **ids, **times, "status": self.status, "creation": creation}

    def move(self, status: str | None = None, output: Body | None = None, event: str | None = None) -> None:
        """One step forward; whoever waits is told."""
        self.status, self.output, self.updated = status or self.status, output or self.output, now()
        self.events += [event] if event else []
        self.changed.set()
        self.changed = asyncio.Event()

    def event(self, tape: capture.Exchange, number: int, words: str) -> str:
        """One recorded event with this run's id and message, framed as it was."""
        fields = tape.events[number]
        data = json.loads(fields["data"])
        data = {**put_in(data, {words: self.message}), "run_id": self.run_id}
        return f"id: {fields['id']}\nevent: {fields['event']}\ndata: {json.dumps(data)}\n\n"

    async def play(self) -> None:
        """What the agent behind the server did."""
        if "fail" in self.message:
            tape = recorded("POST", "/runs/stream", words='"fail"')
            output = recorded("POST", "/runs/wait", words='"fail"').json["output"]
            for number in range(len(tape.events)):
                self.move("error", {**output, "run_id": self.run_id}, self.event(tape, number, "fail"))
            return
        tape = recorded("POST", "/runs/stream", words="stream this")
        self.move(event=self.event(tape, 0, "stream this"))
        if "interrupt" in self.message:
            self.move("interrupted", recorded("POST", "/runs/wait", words="interrupt me").json["output"])
            return
        await asyncio.sleep(OPTIONS.slow if "slow" in self.message else STEP_SECONDS)
        output = recorded("GET", "/runs/.+/wait").json["output"]
        done = put_in(output, {"hello": self.message})
        self.move("success", done, self.event(tape, 1, "stream this"))

    def resume(self, payload: Any) -> None:
        tape = next(one for one in TAPE if one.path.endswith("/wait") and "resumed with" in one.answer)
        self.move("success", put_in(tape.json["output"], {"{'message': 'blue'}": repr(payload)}))

    async def settled(self) -> None:
        while self.status == "pending":
            await self.changed.wait()

    async def stream(self) -> AsyncIterator[str]:
        """What a stream of this run sends; it never ends after an error."""
        sent = 0
        while True:
            changed = self.changed
            while sent < len(self.events):
                yield self.events[sent]
                sent += 1
            if self.status in ("success", "interrupted"):
                return
            try:
                await asyncio.wait_for(changed.wait(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                yield ":\n\n"
