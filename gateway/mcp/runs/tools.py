"""An agent as a tool: the run of `tools/call` for clients that know nothing of agents. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Raw

from gateway.contract import Snapshot, fitting
from gateway.core import choices, projection
from gateway.core import delta as deltas
from gateway.core import events as e
from gateway.core.errors import Invalid
from gateway.core.output import OutputParts, PartOf
from gateway.core.stopping import cut_short
from gateway.core.types import Agent, Answer, Artifact, Interrupt, Json, JsonObject, Outcome, Run, RunStatus
from gateway.mcp import versions
from gateway.mcp.runs import questions
from gateway.mcp.runs.documents import Documents
from gateway.mcp.runs.keys import FAILURE, INTERRUPT, LOST, OUTPUT, RESUME, told
from gateway.mcp.server.contract import McpCall
from gateway.mcp.wire import PROGRESS

Events = Sequence[tuple[int, e.Event]]
ANSWER: Final = "interlingua_answer"
"""The name of the tool that answers a question."""
RESUME_PATH: Final = "/arguments/resume"
"""Where a call of it has the handle in its params."""
_NONE: Final[Counter[str]] = Counter()
JUDGES: Final = 256
"""Agents whose output schemas are kept ready; all are forgotten where there is one more."""


class Tools:
    """The answers of `tools/call`. `documents`: how the protocol publishes them."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._judges: dict[str, tuple[Agent, fitting.SchemaJudge]] = {}
        """Of the output schemas that the agents' tools are listed with, by the agents' names."""

    def result(self, agent: Agent, run: Run, version: str, artifacts: Sequence[Artifact] = ()) -> JsonObject:
        """The result for a run that has ended, in words that the revision knows.

        `content` has what a model reads, `structuredContent` the whole document; files are links. A run that did not
        succeed is an error, with the output so far.
        """
        if run.status is not RunStatus.SUCCESS:
            return self.failed(agent, run)
        document = bytes(run.output)
        value, files = deltas.decode(document), [artifact for artifact in artifacts if artifact.agent_created]
        content = [_text(_words(agent, document, value)), *[_link(file, version) for file in files]]
        result: JsonObject = {"content": content, "isError": False}
        said = told(run)
        if (short := cut_short(run.stop_reason)) is not None:
            content.append(_text(f"{agent.name}: {short}"))
        if versions.has_structured_output(version):
            published = self._documents.output_of(agent, document)
            unfit = self._unfit(agent, value if published is document else deltas.decode(published))
            if unfit is None:
                result["structuredContent"] = Raw(published)
            else:
                result["isError"] = True
                result["content"].insert(0, _text(f"The output does not fit the output schema: {unfit}"))
                said[LOST] = {**said.get(LOST, {}), "output_schema": 1}
        elif files:
            said[LOST] = {**said.get(LOST, {}), "artifact": len(files)}
        return {**result, "_meta": said}

    def _unfit(self, agent: Agent, published: Json) -> str | None:
        """Why a document does not fit the schema that the agent's tool is listed with; None if it does."""
        of, judge = self._judges.get(agent.name, (None, None))
        if of is not agent or judge is None:
            judge = fitting.SchemaJudge(self._documents.tool_output(agent))
            if len(self._judges) >= JUDGES:
                self._judges.clear()
            self._judges[agent.name] = agent, judge
        try:
            error = judge.misfit(published)
        except (fitting.Inapplicable, RecursionError, ValueError):
            return None
        return None if error is None else f"{error.json_path}: {error.message}"

    def failed(self, agent: Agent, run: Run) -> JsonObject:
        """The result for a run that did not succeed."""
        failure = run.failure
        why = failure.message if failure is not None else "cancelled" if run.status is RunStatus.CANCELLED else "failed"
        content = [_text(f"{agent.name}: {why}")]
        said = told(run)
        if failure is not None:
            said[FAILURE] = {"code": failure.code, "message": failure.message, "retryable": failure.retryable}
            if failure.retry_after is not None:
                said[FAILURE]["retryAfter"] = failure.retry_after
        document = bytes(run.output)
        if document != b"null":
            said[OUTPUT] = Raw(self._documents.output_of(agent, document))
            words = _words(agent, document, deltas.decode(document))
            if words:
                content.append(_text(f"Its output so far:\n\n{words}"))
        return {"content": content, "isError": True, "_meta": said}

    def interrupted(self, agent: Agent, run: Run, interrupt: Interrupt, output: bytes) -> JsonObject:
        """The result for a run that waits for an answer; `output` is the agent's own document so far."""
        published = None if output == b"null" else self._documents.output_of(agent, output)
        carried = questions.carried(run, interrupt, published)
        question = interrupt.message or f"The agent asks: {interrupt.kind}"
        lines = [question, ""]
        if interrupt.payload is not None and interrupt.kind != "elicitation":
            lines += ["About: " + deltas.encode(interrupt.payload).decode(), ""]
        lines += [
            f"Nothing is done before this is answered. To answer, call the tool {ANSWER} with `resume` "
            f'"{carried["resume"]}" and `answer` as JSON of this schema:',
            deltas.encode(interrupt.answer_schema or {}).decode(),
        ]
        content = [_text("\n".join(lines))]
        said = {**told(run), INTERRUPT: carried["interrupt"], RESUME: carried["resume"]}
        if published is not None:
            said[OUTPUT] = Raw(published)
            if words := _words(agent, output, deltas.decode(output)):
                content.insert(0, _text(words))
        return {"content": content, "isError": True, "_meta": said}

    def answer_tool(self) -> JsonObject:
        return {
            "name": ANSWER,
            "description": "Answers the question that the result of another tool has asked, and goes on with that "
            "call.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "resume": {"type": "string", "description": "The handle that came with the question."},
                    "answer": {
                        "description": "The answer, of the schema that came with the question; a choice also by its "
                        "value, label or number alone."
                    },
                    "outcome": {
                        "type": "string",
                        "enum": ["answered", "declined", "cancelled"],
                        "description": "answered unless the question is refused; no answer is needed then.",
                    },
                },
                "required": ["resume"],
            },
        }


def refused(error: Invalid) -> JsonObject:
    """The result for arguments that do not fit: a model reads it, and may do better."""
    return {
        "content": [_text(str(error))],
        "isError": True,
        "_meta": {FAILURE: {"code": error.code, "message": str(error), "path": error.path}},
    }


# --- the call of the tool that answers ---------------------------------------------------------------------------


def answers(arguments: JsonObject) -> tuple[str, str]:
    """(run, interrupt) that its arguments answer. Raises Invalid."""
    return questions.named(arguments.get("resume"), RESUME_PATH)


def answer_given(interrupt: Interrupt, arguments: JsonObject) -> Answer:
    """The answer in them. Raises Invalid."""
    return questions.given(interrupt, arguments.get("answer"), arguments.get("outcome"), path="/arguments/outcome")


# --- progress ----------------------------------------------------------------------------------------------------


def tool_progress(token: str | int | float, progress: float, message: str | None, version: str) -> bytes:
    """A whole `notifications/progress` (JSON-RPC text, one line)."""
    said = b""
    if message is not None and versions.has_progress_message(version):
        said = b',"message":' + deltas.encode(message)
    start = b'{"jsonrpc":"2.0","method":"' + PROGRESS.encode() + b'","params":{"progressToken":'
    return start + deltas.encode(token) + b',"progress":' + deltas.encode(progress) + said + b"}}"


class NewText:
    """The text that each event of a run adds to its output's. Fed every event of the run, in order.

    gap: what stands before the text of the last event, in the output. beside: parts that the assistant says beside it.
    """

    def __init__(self, agent: Agent) -> None:
        self.gap = ""
        self.beside: set[str] = set()
        self._steps = deltas.split(agent.text_output or "")
        self._parts = OutputParts()
        self._texts: set[str] = set()

    @property
    def data(self) -> str | None:
        """The part that is the output itself, if one is."""
        return self._parts.data

    def feed(self, event: e.Event) -> str:
        self.gap = ""
        match event:
            case e.MessageStarted():
                self._parts.message(event)
            case e.PartStarted():
                return self._begun(event)
            case e.PartDelta() if event.part in self._texts:
                return self._spoken(event.part, event.delta)
            case e.PartDelta() if event.part == self.data:
                return text_in(event.delta, self._steps)
        return ""

    def _begun(self, event: e.PartStarted) -> str:
        what = self._parts.start(event)
        if what is PartOf.TEXT and event.kind == "text":
            self._texts.add(event.part)
            return self._spoken(event.part, event.value)
        if what is PartOf.DATA:
            self.beside |= self._texts  # they have said nothing yet
            self._texts.clear()
            return text_in(event.value, self._steps)
        if what not in (PartOf.USER, PartOf.OTHERS):
            self.beside.add(event.part)
        return ""

    def _spoken(self, part: str, text: Json) -> str:
        if not isinstance(text, str) or not text:
            return ""
        if part not in self._parts.spoken:
            self.gap = self._parts.speak(part)
        return text


class ToolProgress:
    """Progress of one run, for the client that called it as a tool: `progress` is the number of the event."""

    def __init__(self, agent: Agent, version: str, token: str | int | float) -> None:
        self._version = version
        self._token = token
        self._text = NewText(agent)

    def feed(self, events: Sequence[tuple[int, e.Event]]) -> list[bytes]:
        """Whole notifications: new text, thoughts, and the names of tools that are called."""
        out = []
        for number, event in events:
            message = self._message(event)
            if message:
                out.append(tool_progress(self._token, number, message, self._version))
        return out

    def _message(self, event: e.Event) -> str:
        text = self._text.feed(event)
        match event:
            case e.PartStarted() if event.part in self._text.beside and event.kind in ("text", "thought"):
                return event.value if isinstance(event.value, str) else ""
            case e.PartDelta() if event.part in self._text.beside:
                return event.delta if isinstance(event.delta, str) else ""
            case e.ToolCallStarted():
                return event.title or event.name
        return text


def text_in(change: Json, steps: Sequence[str]) -> str:
    """The text that a delta adds at a pointer, wherever it is in a list."""
    for step in steps:
        if isinstance(change, dict):
            change = change.get(step)
        elif isinstance(change, list):
            change = change[-1] if change else None
        else:
            return ""
    return change if isinstance(change, str) else ""


# --- a run as a tool's result ---


class Refusals:
    """The questions of a run that were not granted, for the model that reads the result of its tool call. Fed every
    event of the run, in order.
    """

    def __init__(self) -> None:
        self._open: dict[str, Interrupt] = {}
        self._said: dict[str, None] = {}

    def feed(self, events: Iterable[tuple[int, e.Event]]) -> None:
        """Note the questions, and what became of them."""
        for _, event in events:
            if type(event) is e.Interrupted:
                self._open[event.interrupt.id] = event.interrupt
            elif type(event) is e.Resumed:
                asked = self._open.pop(event.interrupt, None)
                if asked is not None and (said := _refusal(asked, event.answer)) is not None:
                    self._said[said] = None

    def told(self, result: JsonObject) -> JsonObject:
        """The result of a tool with a text that says what was refused; as it was if nothing was."""
        if not self._said:
            return result
        return {**result, "content": [*result["content"], {"type": "text", "text": "\n".join(self._said)}]}


def _refusal(asked: Interrupt, answer: Answer) -> str | None:
    """One line about an answer that refuses; None for any other."""
    question = asked.message.partition("\n")[0] or f"The agent asks: {asked.kind}"
    if answer.outcome is not Outcome.ANSWERED:
        return f'"{question}" was {answer.outcome.value}.'
    found = choices.offered(asked.answer_schema)
    if found is None:
        return None
    value = answer.value.get(found[1]) if found[1] is not None and isinstance(answer.value, dict) else answer.value
    chosen = next((choice for choice in found[0] if choice.value == value), None)
    return f'"{question}" was answered "{chosen.label}".' if chosen is not None and chosen.refuses else None


class ToolRendering:
    """Renders a run for a model, as the result of a tool."""

    def __init__(self, tools: Tools, call: McpCall, agent: Agent) -> None:
        self._agent = agent
        self._version = call.client.version
        self._tools = tools
        token = call.progress_token
        self._refusals = Refusals()
        self._made: list[Artifact] = []
        self._progress = None if token is None else ToolProgress(agent, self._version, token)

    @property
    def tells(self) -> bool:
        return self._progress is not None

    @property
    def losses(self) -> Counter[str]:
        return _NONE  # the result has it all

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        self._refusals.feed(events)
        for _, event in events:
            if type(event) is e.ArtifactAdded:
                self._made.append(event.artifact)
        return [] if self._progress is None else self._progress.feed(events)

    def last(self, run: Run) -> list[bytes]:
        return []

    async def result(self, run: Run, end: e.Event | None) -> JsonObject:
        return self._refusals.told(self._tools.result(self._agent, run, self._version, self._made))

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> JsonObject:
        return self._tools.interrupted(self._agent, run, interrupt, output)


# --- content -----------------------------------------------------------------------------------------------------


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _words(agent: Agent, document: bytes, value: Json) -> str:
    """The text for a model: the text of the document (`value`, decoded) where it is nothing else, otherwise the
    document as JSON.
    """
    text = projection.unwrap(value, agent.text_output) if agent.text_output is not None else None
    if text is None:
        return value if isinstance(value, str) else document.decode()
    if not isinstance(value, dict) or _leaves(value) <= 1:
        return text
    return document.decode()


def _leaves(value: Json) -> int:
    if isinstance(value, dict):
        return sum(_leaves(part) for key, part in value.items() if key != "artifacts")
    if isinstance(value, list):
        return sum(map(_leaves, value))
    return 0 if value is None else 1


def _link(artifact: Artifact, version: str) -> JsonObject:
    """A link where the revision has one and the gateway knows its own address: SDKs take no other for a URI."""
    if not versions.has_structured_output(version) or "://" not in artifact.url:
        return _text(f"{artifact.name}: {artifact.url}")
    return {
        "type": "resource_link",
        "uri": artifact.url,
        "name": artifact.name,
        "mimeType": artifact.media_type,
        "size": artifact.size,
    }
