"""The coordination service (section 5.2): tasks go to the best agent that may have them.

A task is a run of an agent of the gateway's own, the coordinator: a retry policy over attempts, each of which is a run
of the agent that was chosen. So a task has the log, the questions, the cancelling and the recovery that every run has.

here            Coordinator: the outbound half of that agent, which is there from the start. What tasks are worked on
                with is loaded by the first
task_work.py    TaskWork: choose an agent, have it approved, have it try, take the next
task_record.py  what is kept of a task: phases, moves, and the table of which move is legal when; the question whether
                an agent may have it; runs seen as tasks: agent://tasks; which run a task is
attempt_run.py  an attempt's run: started, followed; what it says is said by the task
choosing.py     who may have a task, best first; who waits, and how much each agent has to do

    inbound -> Tasks -> Gateway.runs.start(coordinator) -> Coordinator.run -> Gateway.runs.start(agent) -> agent
    inbound <- Watch <- run of the coordinator <- AttemptSpeech <- Watch <- run of the agent
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from adapters.agent_context.options import AgentContextServe
from adapters.agent_context.wire import PROTOCOL
from gateway.contract import Gateway, Hosted, RunContext
from gateway.core.media import ANY
from gateway.core.types import Agent, AgentCapabilities, InterruptSpec, JsonObject
from gateway.core.version import version

if TYPE_CHECKING:
    from adapters.agent_context.coordination.choosing import AgentChooser, TaskQueue
    from adapters.agent_context.coordination.task_record import KeptTask
    from adapters.agent_context.directory import Directory

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

    Tasks are seen to by one process, so that it knows how many each agent has, and whose turn it is.
    """

    def __init__(
        self,
        options: AgentContextServe,
        gateway: Gateway,
        directory: Callable[[], "Directory"],
        is_made: Callable[[], bool] = lambda: True,
        opened: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`directory` makes it, if need be, and `opened` waits until it is open, where that is not done by the start:
        other processes know of this one then, and those that serve this protocol are known here.
        """
        self.name = options.tasks_of
        self._options = options
        self._gateway = gateway
        self._directory = directory
        self._is_made = is_made
        self._opened = opened

    @cached_property
    def _chooser(self) -> "AgentChooser":
        from adapters.agent_context.coordination.choosing import AgentChooser

        options = self._options
        return AgentChooser(self._gateway, self._directory(), options.weights.model_dump(), options.per_agent)

    @property
    def queue(self) -> "TaskQueue":
        """Call `queue.changed()` when the directory has changed."""
        return self._chooser.queue

    def hosted(self) -> Mapping[str, Hosted]:
        """The coordinator under its name; for other protocols' clients only where the options give it one.

        It has no time limit: tasks have deadlines, and their attempts the limits of their agents. Each turn of a
        conversation with it is a task of its own.
        """
        protocols = () if self._options.coordinator is not None else (PROTOCOL,)
        return {self.name: Hosted(self, protocols=protocols, timeout=None, lossy=True, reserved=True)}

    @property
    def process(self) -> str | None:
        return self._directory().coordinated_at if self._is_made() else None

    async def known(self) -> None:
        if self._opened is not None:
            await self._opened()

    def doubt(self) -> None:
        self._directory().doubt()

    async def describe(self) -> Agent:
        from adapters.agent_context.coordination import task_record as record

        permission = InterruptSpec(
            kind=record.APPROVAL_KIND,
            payload_schema=record.APPROVAL_PAYLOAD_SCHEMA,
            answer_schema=record.APPROVAL_ANSWER_SCHEMA,
        )
        return Agent(
            name=self.name,
            version=version(),
            description="Has a task done by the best agent that can do it.",
            input_schema=INPUT,
            output_schema=OUTPUT,
            text_input="/message",
            text_output="/messages/-/text",
            interrupts=(permission,),
            capabilities=AgentCapabilities(interrupts=True, streaming=True, cancel=True, artifacts=True, files=(ANY,)),
        )

    async def run(self, context: RunContext) -> None:
        from adapters.agent_context.coordination.task_record import KeptTask

        await context.set_upstream(KeptTask().told())  # first of all: from here on it can be taken up again
        await self._see_to(context, KeptTask(), again=False)

    async def attach(self, context: RunContext) -> None:
        """See `Outbound.attach`: what was under way is found by what was kept before it began."""
        from adapters.agent_context.coordination.task_record import KeptTask

        await self._see_to(context, KeptTask.of(context.run), again=True)

    async def cancel(self, context: RunContext) -> None:
        """See `Outbound.cancel`: the attempt is cancelled; a task that waits leaves the queue."""
        from adapters.agent_context.coordination import attempt_run
        from adapters.agent_context.coordination.task_record import KeptTask

        self.queue.wake(context.run.id)
        attempt = KeptTask.of(context.run).attempt
        if attempt is not None:
            reason = context.run.cancel_reason or "its task is over"
            await attempt_run.cancel(self._gateway, attempt_run.run_of(context.run.id, attempt), reason)

    async def aclose(self) -> None:
        """Nothing is open but runs."""

    async def _see_to(self, context: RunContext, kept: "KeptTask", *, again: bool) -> None:
        from msgspec.structs import replace

        from adapters.agent_context.codec import files
        from adapters.agent_context.coordination.task_record import task_by
        from adapters.agent_context.coordination.task_work import TaskWork
        from adapters.agent_context.outbound.messages import uploads_of

        task = task_by(context.run)
        uploads = await context.uploads()
        if uploads:
            payload = files.with_parts(task.payload, await uploads_of(context, uploads))
            task = replace(task, payload=payload, document={**task.document, "payload": payload})
        failed = self._directory().conduct.failed
        work = TaskWork(self._gateway, self._chooser, self._options, context, task=task, kept=kept, failed=failed)
        context.emit(await work.go(again=again))
        await context.drain()
