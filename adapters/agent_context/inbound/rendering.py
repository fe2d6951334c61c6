"""A run in the words of who sent the message or delegated the task: what is told before its end, and the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_context import wire
from adapters.agent_context.codec import content, nlip
from adapters.agent_context.codec.errors import Expired, data_of, failure_error, to_rpc
from adapters.agent_context.coordination.task_record import KeptTask, task_of
from adapters.agent_context.inbound.environment import PASSED, TOOK, Environment
from gateway.contract import Snapshot
from gateway.core import delta, projection
from gateway.core import events as e
from gateway.core.errors import AgentFailed, InterlinguaError
from gateway.core.stopping import cancelled
from gateway.core.types import Agent, Interrupt, JsonObject, Run, RunStatus
from gateway.mcp import versions
from gateway.mcp.runs import Events, Refusals, keys, questions
from gateway.mcp.runs.tools import NewText, tool_progress
from gateway.mcp.server.contract import McpCall
from gateway.mcp.wire import META
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

# --- before its end ---------------------------------------------------------------------------------------------------


class RunNotifications:
    """Notifications about one run to one client: `notifications/progress` if it sent a token, and `agent/message` of
    type `update` if it declared that it speaks this protocol. New text is told once: the progress of who gets updates
    has no `message`.
    """

    def __init__(self, call: McpCall, agent: Agent, head: JsonObject, meta: JsonObject) -> None:
        """`head`: source and target of its messages; `meta`: their `_meta`."""
        self._version = call.client.version
        self._token = call.progress_token
        self._speaks = call.client.can("agent")
        self._head = head
        self._meta = meta
        self._text = NewText(agent)

    @property
    def on(self) -> bool:
        return self._token is not None or self._speaks

    def feed(self, events: Iterable[tuple[int, e.Event]]) -> list[bytes]:
        """Whole notifications for these events: every one of the run, in order."""
        return list(self._told(events)) if self.on else []

    def _told(self, events: Iterable[tuple[int, e.Event]]) -> Iterator[bytes]:
        for number, event in events:
            text, beside = self._said(event)
            if text and self._token is not None:
                yield tool_progress(self._token, number, None if self._speaks else text, self._version)
            if self._speaks and (text or beside is not None):
                yield self._update(text, beside)

    def _said(self, event: e.Event) -> tuple[str, e.Event | None]:
        """The text that an event adds to the output's, and what is told of it besides."""
        text = self._text.feed(event)
        text = self._text.gap + text
        match event:
            case e.PartStarted(value=None):
                return text, None
            case e.PartStarted() | e.PartDelta():
                told = event.part in self._text.beside or (event.part == self._text.data and not text)
                return text, event if told else None
        return text, event if isinstance(event, e.DONE_BESIDE) or type(event) is e.PartReplaced else None

    def _update(self, text: str, event: e.Event | None) -> bytes:
        payload: JsonObject = {"messages": [{"text": text}]} if text else {}
        meta = self._meta
        if event is not None:
            meta = {**meta, wire.EVENT: Raw(e.encode(replace(event, origin=None)))}
        params = {**self._head, "content": {"type": "update", "payload": payload}, META: meta}
        return jsonrpc.notification(wire.MESSAGE, params)


# --- results of tools -------------------------------------------------------------------------------------------------


def result(call: McpCall, text: str, structured: JsonObject, meta: JsonObject | None = None) -> JsonObject:
    """A tool's result: for a model to read, and for a program where the revision has a place for that."""
    blocks = [{"type": "text", "text": said} for said in (text, delta.encode(structured).decode())]
    told: JsonObject = {"content": blocks, "isError": False}
    if versions.has_structured_output(call.client.version):
        told["structuredContent"] = structured
    return told if meta is None else {**told, META: meta}


def failed(error: InterlinguaError, meta: JsonObject | None = None) -> JsonObject:
    failure: JsonObject = {"code": error.code, "message": str(error), "retryable": error.retryable}
    if isinstance(error, RpcError):
        failure = {"message": str(error), **(data_of(error.error) or {}), "errorCode": error.error.code}
    text = str(error)
    return {
        "content": [{"type": "text", "text": text}],
        "isError": True,
        META: {**(meta or {}), keys.FAILURE: failure},
    }


# --- the answers that appendix B of the protocol shows, as they are there --------------------------------------------


def registered() -> JsonObject:
    return {"status": "registered", "directory": wire.DIRECTORY, "capabilities": {wire.AGENT: dict(wire.SERVED)}}


def found_agents(found: Sequence[JsonObject], version: str, *, native: bool) -> JsonObject:
    """The result of the tool `agentSearch`: the agents as appendix B has them, under `_meta`.

    As structured content too, where the revision of MCP (`version`) knows that. A client that is not of this protocol
    (`native`) may show its model the content only, so there they are as JSON text as well.
    """
    count = len(found)
    said = f"Found {count} matching agent{'' if count == 1 else 's'}" if count else "No matching agents"
    agents: JsonObject = {"agents": list(found)}
    result: JsonObject = {"content": [{"type": "text", "text": said}], META: agents}
    if not native:
        result["content"].append({"type": "text", "text": delta.encode(agents).decode()})
    if versions.has_structured_output(version):
        result["structuredContent"] = agents
    return result


# --- the answer to a message ------------------------------------------------------------------------------------------


class RunWords:
    """The part of `gateway.mcp.runs.Rendering` that all answers of this protocol share."""

    def __init__(self, telling: RunNotifications, correlation: str) -> None:
        self.losses: Counter[str] = Counter()
        self._telling = telling
        self._correlation = correlation

    @property
    def tells(self) -> bool:
        return self._telling.on

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        return self._telling.feed(events)

    def last(self, run: Run) -> list[bytes]:
        return []

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> Any:
        """The client cannot be asked: the error carries the question, and a handle to answer with."""
        error = questions.interrupted_error(run, interrupt).error
        details = {
            "expected": f"the same method with the answer as its payload and _meta {keys.RESUME}",
            "received": "no way to ask the client",
        }
        more = {"code": "interrupted", "retryable": False, "details": details, wire.CORRELATION: self._correlation}
        raise RpcError(error.code, error.message, {**error.data, **more})


class MessageWords(RunWords):
    """The answer of `agent/message`, and what a response says.

    losses: what of the message itself could not be said, counted already. conversation: its token, for a client that
    speaks NLIP.
    """

    def __init__(
        self,
        env: Environment,
        agent: Agent,
        telling: RunNotifications,
        correlation: str,
        *,
        losses: Sequence[str] = (),
        conversation: str | None = None,
    ) -> None:
        super().__init__(telling, correlation)
        self._before = Counter(losses)
        self._conversation = conversation
        self._env = env
        self._agent = agent

    async def result(self, run: Run, end: e.Event | None) -> JsonObject:
        if run.failure is not None:
            self._env.directory.conduct.failed(run.agent, run.failure.code)
        if run.status is not RunStatus.SUCCESS:
            raise unsuccessful(run, self._correlation)
        payload = content.payload_of(self._agent, run.output)
        made = () if run.made == 0 else await self._env.gateway.files.list(run=run.id)
        files = [
            {"name": each.name, "url": each.url, "mimeType": each.media_type, "size": each.size}
            for each in made
            if each.agent_created
        ]
        if files:
            payload.setdefault("artifacts", files)
        if self._conversation is not None:
            payload = nlip.of(payload, self._conversation)
        run = replace(run, losses={**(Counter(run.losses) | self._before)})
        meta = {**keys.told(run), wire.CORRELATION: self._correlation}
        return {"status": "completed", "content": {"type": wire.RESPONSE, "payload": payload}, META: meta}


def unsuccessful(run: Run, correlation: str) -> RpcError:
    """The error answer for a run that has ended without success."""
    beside = {keys.RUN_ID: run.id, wire.CORRELATION: correlation}
    reason = run.cancel_reason or ""
    if reason == PASSED or reason.startswith(TOOK):
        error = to_rpc(Expired(PASSED) if reason == PASSED else AgentFailed(reason), correlation).error
        return RpcError(error.code, error.message, {**error.data, **beside})
    if run.status is RunStatus.CANCELLED:
        return RpcError(wire.CANCELLED, cancelled(reason), {"code": "cancelled", "retryable": False, **beside})
    return failure_error(run.failure, **beside)


# --- the answer about a task ------------------------------------------------------------------------------------------


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
            document = delta.decode(run.output)
            text = projection.text_of(document, self._agent.text_output)
            return self._refusals.told(self._answer(run, text if text is not None else bytes(run.output).decode()))
        why = run.failure.message if run.failure is not None else "it was cancelled"
        answer = self._answer(run, f"Task {task['id']} is {task['status']}: {why}")
        failure = {"message": why, **_failure(run, self._correlation).error.data}
        return self._refusals.told({**answer, "isError": True, META: {**answer[META], keys.FAILURE: failure}})

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> JsonObject:
        task = told(run)
        asked = interrupt.message or f"The agent asks: {interrupt.kind}"
        lines = [
            asked,
            "",
            f"Nothing is done before this is answered. To answer, call the tool {wire.TASK_ANSWER} with `taskId` "
            f'"{task["id"]}" and `answer` as JSON of this schema:',
            delta.encode(interrupt.answer_schema or {}).decode(),
        ]
        answer = self._answer(run, "\n".join(lines))
        carried = questions.carried(run, interrupt)["interrupt"]
        return {**answer, "isError": True, META: {**answer[META], keys.INTERRUPT: carried}}

    def under_way(self, run: Run) -> JsonObject:
        task = told(run)
        return self._answer(run, f"Task {task['id']} is {task['status']}; agent://tasks has what comes of it")

    def _answer(self, run: Run, text: str) -> JsonObject:
        return result(self._call, text, {"task": told(run)}, meta_of(run, self._correlation))


def told(run: Run) -> JsonObject:
    return {key: value for key, value in task_of(run).items() if key != META}


def meta_of(run: Run, correlation: str) -> JsonObject:
    meta = {**keys.told(run), wire.CORRELATION: correlation}
    assignment = KeptTask.of(run).assignment
    return {**meta, wire.ASSIGNMENT: assignment} if assignment else meta


def status_result(run: Run, correlation: str) -> JsonObject:
    return {"task": told(run), META: meta_of(run, correlation)}


def response(run: Run, correlation: str) -> JsonObject:
    """The message that tells the outcome of a task later: its payload is the result's, with the task itself."""
    task = told(run)
    found = task.pop("result", None)
    payload = {**(found if isinstance(found, dict) else {}), "task": task}
    return {"content": {"type": wire.RESPONSE, "payload": payload}, META: meta_of(run, correlation)}


def _failure(run: Run, correlation: str) -> RpcError:
    """The error for a task that has ended without success: of its run, with the task as it is."""
    error = unsuccessful(run, correlation).error
    why = {wire.ASSIGNMENT: assignment} if (assignment := KeptTask.of(run).assignment) else {}
    return RpcError(error.code, error.message, {**error.data, "task": told(run), **why})
