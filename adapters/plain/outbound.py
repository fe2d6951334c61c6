"""Calls plain agents: POST the input, read lines, answer questions at `/answer`."""

from __future__ import annotations

import asyncio

import msgspec

from adapters.plain import codec, wire
from adapters.plain.options import PlainTarget
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentFailed, AgentGone, Unsupported
from gateway.core.types import Agent, AgentCapabilities, Answer, Outcome
from gateway.transport.http import HttpAuth, HttpClient, HttpResponse
from gateway.wire import ndjson


class PlainOutbound:
    """See `gateway.contract.Outbound`."""

    def __init__(self, target: PlainTarget) -> None:
        auth = target.auth
        self._client = HttpClient(
            target.url,
            auth=HttpAuth(
                bearer=auth.bearer.get_secret_value() if auth.bearer else "",
                api_key=auth.api_key.get_secret_value() if auth.api_key else "",
            ),
            timeout=target.request_timeout,
        )
        self._idle = target.idle_timeout

    async def describe(self) -> Agent:
        """Describe the agent: text in, text out. It publishes nothing, and is not asked whether it is there."""
        return Agent(
            name="plain",
            input_schema={},
            output_schema={},
            capabilities=AgentCapabilities(interrupts=True, streaming=True, cancel=True),
            text_input="/message",
            text_output="/message",
        )

    async def run(self, context: RunContext) -> None:
        recalled = await context.recall(fresh=True)
        body = msgspec.json.encode({"input": recalled.input, "run": context.run.id})
        headers = {"traceparent": context.traceparent} if context.traceparent else None
        decoder = ndjson.NdjsonDecoder()
        async with (
            asyncio.TaskGroup() as questions,
            self._client.stream("POST", "", json=body, headers=headers, idle_timeout=self._idle) as response,
        ):
            if response.status != 200:
                raise AgentFailed(f"the agent answered {response.status}", detail=repr(await response.read(4096)))
            async for chunk in response.chunks():
                await self._lines(context, decoder.feed(chunk), questions)
            await self._lines(context, decoder.close(), questions)
        await context.drain()

    async def attach(self, context: RunContext) -> None:
        """Raise AgentGone: a plain agent's run cannot be found again."""
        raise Unsupported("a plain agent's stream cannot be taken up again")

    async def cancel(self, context: RunContext) -> None:
        body = msgspec.json.encode({"run": context.run.id})
        await self._post("/cancel", body)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _lines(self, context: RunContext, lines: list[bytes], questions: asyncio.TaskGroup) -> None:
        events: list[e.Event] = []
        for raw in lines:
            line = codec.parse(raw)
            if line.run:
                await context.set_upstream({"run": line.run})
            if line.ask is not None:
                context.emit(*events)
                events = []
                questions.create_task(self._question(context, line.ask))
            events += codec.decode(line)
        if events:
            context.emit(*events)
        await context.drain()

    async def _question(self, context: RunContext, ask: wire.Ask) -> None:
        answer = await context.ask(codec.question(ask))
        if not context.cancelled:  # then the agent is told that instead
            await self._post("/answer", _answer(context.run.id, ask.id, answer))

    async def _post(self, path: str, body: bytes) -> HttpResponse:
        response = await self._client.request("POST", path, json=body, timeout=10.0)
        if response.status >= 500:
            raise AgentGone(f"the agent answered {response.status} to {path}")
        if response.status >= 400:
            raise AgentBroken(f"the agent answered {response.status} to {path}")
        return response


def _answer(run: str, question: str, answer: Answer) -> bytes:
    declined = answer.outcome is not Outcome.ANSWERED
    return msgspec.json.encode({"run": run, "id": question, "answer": answer.value, "declined": declined})
