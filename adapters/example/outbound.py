"""Calls agents: POST the input, read lines, store files, answer questions at `/answer`."""

from __future__ import annotations

import asyncio
from typing import Any

from adapters.example import codec, wire
from adapters.example.options import ExampleTarget
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentFailed, AgentGone, Unsupported
from gateway.core.types import Agent, AgentCapabilities
from gateway.transport.http import HttpClient, credentials_of
from gateway.wire import ndjson


class ExampleOutbound:
    """Implements `gateway.contract.Outbound`."""

    def __init__(self, target: ExampleTarget) -> None:
        self._target = target
        self._client = HttpClient(target.url, auth=credentials_of(target), timeout=target.request_timeout)

    async def describe(self) -> Agent:
        """Describe the agent: text in, text out, and what the route says. The agent itself is not asked."""
        return Agent(
            name="example",
            input_schema={},
            output_schema={},
            capabilities=AgentCapabilities(
                threads=self._target.remembers,
                interrupts=True,
                streaming=True,
                cancel=True,
                artifacts=True,
                files=self._target.files,
            ),
            text_input="/message",
            text_output="/message",
        )

    async def run(self, context: RunContext) -> None:
        sent, given = await self._request(context)
        headers = {"traceparent": context.traceparent} if context.traceparent else None
        decoder = ndjson.NdjsonDecoder()
        idle = self._target.idle_timeout
        async with (
            asyncio.TaskGroup() as questions,
            self._client.stream("POST", "", json=codec.dump(sent), headers=headers, idle_timeout=idle) as response,
        ):
            if response.status != 200:
                raise AgentFailed(f"the agent answered {response.status}", detail=repr(await response.read(4096)))
            if self._target.remembers and context.thread is not None:
                await context.set_thread({"files": given})
            async for chunk in response.chunks():
                await self._lines(context, decoder.feed(chunk), questions)
            await self._lines(context, decoder.close(), questions)
        await context.drain()

    async def attach(self, context: RunContext) -> None:
        """Raise Unsupported: an agent's stream cannot be taken up again."""
        raise Unsupported("the example protocol cannot take an agent's stream up again")

    async def cancel(self, context: RunContext) -> None:
        await self._post("/cancel", {"run": context.run.id})

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _request(self, context: RunContext) -> tuple[wire.AgentRun, list[str]]:
        """The run as the agent is sent it, and the ids of all files that it then has.

        An agent that remembers a thread gets its earlier turns and each of its files once.
        """
        known = (context.upstream_thread or {}) if self._target.remembers else {}
        recalled = await context.recall(fresh=not known)
        given = known.get("files", [])
        files = [file for file in await context.uploads() if file.id not in given]
        contents = await context.contents([file.id for file in files])
        run = wire.AgentRun(
            input=recalled.input,
            run=context.run.id,
            thread=context.run.thread or "",
            files=[wire.FileLine(name=f.name, media_type=f.media_type, data=contents[f.id]) for f in files],
        )
        return run, [*given, *contents]

    async def _lines(self, context: RunContext, lines: list[bytes], questions: asyncio.TaskGroup) -> None:
        events: list[e.Event] = []
        for raw in lines:
            line = codec.parse(raw)
            if line.run:
                await context.set_upstream({"run": line.run})
            if line.ask is not None or line.file is not None:
                context.emit(*events)  # what was said before comes before it
                events = []
            if line.ask is not None:
                questions.create_task(self._question(context, line.ask))
            if line.file is not None:
                await context.add_artifact(line.file.name, line.file.data, media_type=line.file.media_type)
            events += codec.decode(line)
        if events:
            context.emit(*events)
        await context.drain()

    async def _question(self, context: RunContext, ask: wire.Ask) -> None:
        answer = await context.ask(codec.question(ask))
        if not context.cancelled:  # then the agent is told that instead
            await self._post("/answer", codec.answered(context.run.id, ask.id, answer))

    async def _post(self, path: str, body: Any) -> None:
        response = await self._client.request("POST", path, json=codec.dump(body), timeout=10.0)
        if response.status >= 500:
            raise AgentGone(f"the agent answered {response.status} to {path}")
        if response.status >= 400:
            raise AgentBroken(f"the agent answered {response.status} to {path}")
