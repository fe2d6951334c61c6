"""Calls Agent Protocol agents: makes a task, drives its steps, fetches its artifacts (one run: task_driver.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from adapters.agent_protocol import codec
from adapters.agent_protocol.api import Api
from adapters.agent_protocol.options import AgentProtocolTarget
from adapters.agent_protocol.task_driver import TaskDriver
from adapters.agent_protocol.upstream import CreatedTask, RemoteTask
from gateway.contract import RunContext, ThreadContext
from gateway.core.errors import AgentError, Unsupported
from gateway.core.media import ANY
from gateway.core.projection import MESSAGE_OUTPUT_SCHEMA, MESSAGE_SCHEMA, text_pointer
from gateway.core.types import Agent, AgentCapabilities, InterruptSpec

STEP_PAYLOAD = {
    "type": "object",
    "title": "Step",
    "properties": {name: {"type": "string"} for name in ("step_id", "name", "output", "next")},
}


class AgentProtocolOutbound:
    """See `gateway.contract.Outbound` and `Relay`."""

    def __init__(self, target: AgentProtocolTarget) -> None:
        self._target = target
        self._api = Api(target)
        self._drivers: dict[str, TaskDriver] = {}

    async def describe(self) -> Agent:
        """The protocol publishes nothing about an agent: asks whether it is there, and gives the default schemas."""
        await self._api.probe()
        drive = self._target.drive
        asks = drive in ("one", "approve")
        kind, answers = (codec.PERMISSION, codec.APPROVAL) if drive == "approve" else (codec.STEP, codec.STEP_BODY)
        spec = InterruptSpec(kind=kind, payload_schema=STEP_PAYLOAD, answer_schema=answers)
        return Agent(
            name=self._target.agent or "agent",
            version="v1",
            input_schema=MESSAGE_SCHEMA,
            output_schema=MESSAGE_OUTPUT_SCHEMA,
            input_assumed=True,
            output_assumed=True,
            interrupts=(spec,) if asks else (),
            capabilities=AgentCapabilities(
                threads=True, interrupts=asks, streaming=True, custom_streaming=False, artifacts=True, files=(ANY,)
            ),
            text_input=text_pointer(MESSAGE_SCHEMA),
            text_output=text_pointer(MESSAGE_OUTPUT_SCHEMA),
        )

    async def run(self, context: RunContext) -> None:
        with self._driver(context) as driver:
            await driver.run()

    async def attach(self, context: RunContext) -> None:
        """See `Outbound.attach`: waits for a step under way, asks an open question again, else says why it cannot."""
        with self._driver(context) as driver:
            await driver.attach()

    @contextmanager
    def _driver(self, context: RunContext) -> Iterator[TaskDriver]:
        driver = self._drivers[context.run.id] = TaskDriver(self._target, self._api, context)
        try:
            yield driver
        finally:
            del self._drivers[context.run.id]

    async def cancel(self, context: RunContext) -> None:
        """The protocol has no such operation: no further step is executed, the one under way is not waited for."""
        context.lost("cancel_not_in_protocol")
        driver = self._drivers.get(context.run.id)
        if driver is not None:
            driver.cancel()

    async def relay(self, context: ThreadContext, method: str, params: msgspec.Raw) -> msgspec.Raw:
        """Create a client's task before its first run. `params` is the client's body; the answer is a `CreatedTask`."""
        if method != codec.CREATE:
            raise Unsupported(f"agent {context.agent.name} is not sent {method} before a run")
        task = (await self._api.create_task(msgspec.json.decode(params), None)).task_id
        try:
            steps = await self._api.steps(task, None)
        except AgentError:  # the first run looks again, and counts the loss
            steps = []
        waiting = [step.name for step in steps if step.status == "created"]
        return msgspec.Raw(msgspec.json.encode(CreatedTask(RemoteTask(task).dump(), waiting)))

    async def forward(self, context: ThreadContext, method: str, params: msgspec.Raw) -> None:
        """The protocol has no notifications."""
        raise Unsupported("Agent Protocol has no notifications")

    async def aclose(self) -> None:
        await self._api.aclose()
