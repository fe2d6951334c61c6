"""A task in the words of who delegated it: the answer of `agent/delegate`, or of the tools."""

from __future__ import annotations

from adapters.agent_context.codec.errors import data_of
from adapters.agent_context.coordination.tasks import assignment_of, task_of
from adapters.agent_context.inbound.notifications import RunNotifications
from adapters.agent_context.inbound.rendering import RunWords, refuse
from adapters.agent_context.inbound.results import result
from adapters.agent_context.wire.constants import ASSIGNMENT, CORRELATION, META, RESPONSE, TASK_ANSWER
from gateway.contract import Snapshot
from gateway.core import delta, projection
from gateway.core import events as e
from gateway.core.types import Agent, Interrupt, JsonObject, Run, RunStatus
from gateway.mcp.runs import Events, Refusals, keys
from gateway.mcp.server.contract import McpCall
from gateway.wire.jsonrpc import RpcError


class TaskRendering(RunWords):
    """The answer of `agent/delegate`."""

    async def result(self, run: Run, end: e.Event | None) -> JsonObject:
        if run.status is not RunStatus.SUCCESS:
            raise _failure(run, self._correlation)
        return status_result(run, self._correlation)


class TaskToolRendering(TaskRendering):
    """The same for a model, or for the person behind it."""

    def __init__(self, call: McpCall, agent: Agent, telling: RunNotifications, correlation: str) -> None:
        super().__init__(telling, correlation)
        self._call = call
        self._agent = agent
        self._refusals = Refusals()

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        self._refusals.feed(events)
        return super().feed(events, snapshot)

    async def result(self, run: Run, end: e.Event | None) -> JsonObject:
        task = told(run)
        if run.status is RunStatus.SUCCESS:
            document = delta.decode(bytes(run.output))
            text = projection.text_of(document, self._agent.text_output)
            return self._refusals.told(self._answer(run, text if text is not None else bytes(run.output).decode()))
        failure = data_of(_failure(run, self._correlation).error) or {}
        why = run.failure.message if run.failure is not None else "it was cancelled"
        answer = self._answer(run, f"Task {task['id']} is {task['status']}: {why}")
        whole = {**answer, "isError": True, META: {**answer[META], keys.FAILURE: {"message": why, **failure}}}
        return self._refusals.told(whole)

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> JsonObject:
        task = told(run)
        asked = interrupt.message or f"The agent asks: {interrupt.kind}"
        lines = [
            asked,
            "",
            f"Nothing is done before this is answered. To answer, call the tool {TASK_ANSWER} with `taskId` "
            f'"{task["id"]}" and `answer` as JSON of this schema:',
            delta.encode(interrupt.answer_schema or {}).decode(),
        ]
        answer = self._answer(run, "\n".join(lines))
        carried: JsonObject = {
            "id": interrupt.id,
            "kind": interrupt.kind,
            "message": interrupt.message,
            "payload": interrupt.payload,
            "answerSchema": interrupt.answer_schema,
        }
        return {**answer, "isError": True, META: {**answer[META], keys.INTERRUPT: carried}}

    def under_way(self, run: Run) -> JsonObject:
        """The answer for who does not wait."""
        task = told(run)
        return self._answer(run, f"Task {task['id']} is {task['status']}; agent://tasks has what comes of it")

    def _answer(self, run: Run, text: str) -> JsonObject:
        return result(self._call, text, {"task": told(run)}, meta_of(run, self._correlation))


def told(run: Run) -> JsonObject:
    """A task as its delegator is told of it; what is about the run goes into the `_meta` of the answer."""
    return {key: value for key, value in task_of(run).items() if key != META}


def meta_of(run: Run, correlation: str) -> JsonObject:
    """`_meta` of an answer about a task."""
    meta = {**keys.told(run), CORRELATION: correlation}
    assignment = assignment_of(run)
    return {**meta, ASSIGNMENT: assignment} if assignment else meta


def status_result(run: Run, correlation: str) -> JsonObject:
    """The answer of `agent/delegate`."""
    return {"task": told(run), META: meta_of(run, correlation)}


def response(run: Run, correlation: str) -> JsonObject:
    """The message that tells the outcome of a task later: its payload is the result's, with the task itself."""
    task = told(run)
    found = task.pop("result", None)
    payload = {**(found if isinstance(found, dict) else {}), "task": task}
    return {"content": {"type": RESPONSE, "payload": payload}, META: meta_of(run, correlation)}


def _failure(run: Run, correlation: str) -> RpcError:
    """The error for a task that has ended without success: of its run, with the task as it is."""
    try:
        refuse(run, correlation)
    except RpcError as error:
        data = {**(data_of(error.error) or {}), "task": told(run)}
        assignment = assignment_of(run)
        if assignment:
            data[ASSIGNMENT] = assignment
        return RpcError(error.error.code, error.error.message, data)
