"""The agent that stands for the coordination: a run of it is a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from adapters.agent_context.codec import files
from adapters.agent_context.coordination import approval, attempt_run
from adapters.agent_context.coordination.choosing import AgentChooser, CandidateSource
from adapters.agent_context.coordination.task_record import KeptTask, task_in
from adapters.agent_context.coordination.task_work import Failed, TaskWork
from adapters.agent_context.options import AgentContextServe
from adapters.agent_context.outbound.registered import HERE, AgentPlace
from adapters.agent_context.outbound.request import uploads_of
from adapters.agent_context.wire.constants import PROTOCOL
from gateway.contract import Gateway, RunContext
from gateway.contract.optional import Hosted
from gateway.core.media import ANY
from gateway.core.types import Agent, AgentCapabilities, InterruptSpec, JsonObject

INPUT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What is to be done, by whichever agent is best."},
        "capabilities": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Each is one of the agent's tools, models or specializations.",
        },
        "requirements": {"type": "object", "description": "As a task has them, instead of capabilities."},
        "task": {"type": "object", "description": "A task of the Agent Context Protocol, instead of both."},
    },
    "anyOf": [{"required": ["message"]}, {"required": ["task"]}],
}
OUTPUT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "messages": {
            "type": "array",
            "items": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        },
        "output": {"description": "The agent's output by its own schema, where it is more than text."},
    },
}


class Coordinator:
    """See `gateway.contract.Outbound` and `Placed`. One per gateway process; `hosted` is what its inbound half brings.

    failed: told each agent that failed a task, and the code of its failure. place: the process that sees to tasks, so
    that one knows how many each agent has, and whose turn it is.
    """

    def __init__(
        self,
        options: AgentContextServe,
        gateway: Gateway,
        directory: CandidateSource,
        *,
        failed: Failed,
        place: AgentPlace = HERE,
    ) -> None:
        self.name = options.tasks_of
        self._options = options
        self._gateway = gateway
        self._failed = failed
        self._place = place
        self._chooser = AgentChooser(gateway, directory, options.weights.model_dump(), options.per_agent)
        self.queue = self._chooser.queue
        """Call `queue.changed()` when the directory has changed."""

    def hosted(self) -> Mapping[str, Hosted]:
        """The coordinator under its name; for other protocols' clients only where the options give it one.

        It has no time limit: tasks have deadlines, and their attempts the limits of their agents. Each turn of a
        conversation with it is a task of its own.
        """
        protocols = () if self._options.coordinator is not None else (PROTOCOL,)
        return {self.name: Hosted(self, protocols=protocols, timeout=None, lossy=True)}

    @property
    def process(self) -> str | None:
        return self._place.process

    def doubt(self) -> None:
        self._place.doubt()

    async def describe(self) -> Agent:
        permission = InterruptSpec(
            kind=approval.KIND, payload_schema=approval.PAYLOAD_SCHEMA, answer_schema=approval.ANSWER_SCHEMA
        )
        return Agent(
            name=self.name,
            description="Has a task done by the best agent that can do it.",
            input_schema=INPUT,
            output_schema=OUTPUT,
            text_input="/message",
            text_output="/messages/-/text",
            interrupts=(permission,),
            capabilities=AgentCapabilities(interrupts=True, streaming=True, cancel=True, artifacts=True, files=(ANY,)),
        )

    async def run(self, context: RunContext) -> None:
        await context.set_upstream(KeptTask().told())  # first of all: from here on it can be taken up again
        await self._see_to(context, KeptTask(), again=False)

    async def attach(self, context: RunContext) -> None:
        """See `Outbound.attach`: what was under way is found by what was kept before it began."""
        await self._see_to(context, KeptTask.of(context.run), again=True)

    async def cancel(self, context: RunContext) -> None:
        """See `Outbound.cancel`: the attempt is cancelled; a task that waits leaves the queue."""
        self.queue.wake(context.run.id)
        attempt = KeptTask.of(context.run).attempt
        if attempt is not None:
            reason = context.run.cancel_reason or "its task is over"
            await attempt_run.stop(self._gateway, context.run.id, attempt, reason)

    async def aclose(self) -> None:
        """Nothing is open but runs."""

    async def _see_to(self, context: RunContext, kept: KeptTask, *, again: bool) -> None:
        task = task_in(context.run)
        uploads = await context.uploads()
        if uploads:
            payload = files.with_parts(task.payload, await uploads_of(context, uploads))
            task = task.model_copy(update={"payload": payload})
        work = TaskWork(self._gateway, self._chooser, self._options, context, task=task, kept=kept, failed=self._failed)
        context.emit(await work.go(again=again))
        await context.drain()
