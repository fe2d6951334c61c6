"""Calls Agent Protocol agents: makes a task, drives its steps, fetches its artifacts (drive.py has one run's story)."""

from __future__ import annotations

from adapters.agent_protocol import codec
from adapters.agent_protocol.api import Api
from adapters.agent_protocol.drive import Drive
from adapters.agent_protocol.options import AgentProtocolTarget
from gateway.contract import RunContext
from gateway.core.media import ANY
from gateway.core.projection import MESSAGE_OUTPUT_SCHEMA, MESSAGE_SCHEMA, text_pointer
from gateway.core.types import Agent, AgentCapabilities, InterruptSpec

STEP_PAYLOAD = {
    "type": "object",
    "title": "Step",
    "properties": {name: {"type": "string"} for name in ("step_id", "name", "output", "next")},
}


class AgentProtocolOutbound:
    """See `gateway.contract.Outbound`."""

    def __init__(self, target: AgentProtocolTarget) -> None:
        self._target = target
        self._api = Api(target)
        self._drives: dict[str, Drive] = {}

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
        """See `Outbound.run`."""
        drive = self._drives[context.run.id] = Drive(self._target, self._api, context)
        try:
            await drive.run()
        finally:
            del self._drives[context.run.id]

    async def attach(self, context: RunContext) -> None:
        """See `Outbound.attach`: ends a finished task well, asks an open question again, else says why it cannot."""
        drive = self._drives[context.run.id] = Drive(self._target, self._api, context)
        try:
            await drive.attach()
        finally:
            del self._drives[context.run.id]

    async def cancel(self, context: RunContext) -> None:
        """The protocol has no such operation: no further step is executed, the one under way is not waited for."""
        context.lost("cancel_not_in_protocol")
        drive = self._drives.get(context.run.id)
        if drive is not None:
            drive.stop.set()

    async def aclose(self) -> None:
        """See `Outbound.aclose`."""
        await self._api.aclose()
