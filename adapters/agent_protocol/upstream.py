"""Translates an agent's tasks and steps to core, and a run to them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from adapters.agent_protocol import codec, wire
from gateway.core import events as e
from gateway.core.delta import encode
from gateway.core.memory import Recalled
from gateway.core.projection import USER, text_of, wrap
from gateway.core.types import Agent, Answer, Interrupt, Json, JsonObject, Role, Run, Thread

_REWRITTEN = {"task_id", "step_id", "output", "additional_output", "artifacts"}
TEXT_LIMIT = 500


class RemoteTask(msgspec.Struct):
    """The record of an agent's task, kept with the run and its thread to find it again.

    `done`: ids of the steps already told; `artifacts`: of files already fetched; `uploaded`: their ids of our
    artifacts. `in_flight` is set while a step may be executing at the agent. `finished`: it said `is_last`.
    """

    task_id: str
    done: list[str] = []
    artifacts: list[str] = []
    uploaded: dict[str, str] = {}
    in_flight: bool = False
    finished: bool = False

    @classmethod
    def read(cls, stored: JsonObject | None) -> Self | None:
        """The record that `dump` wrote, None if there is none."""
        try:
            return msgspec.convert(stored, cls) if stored else None
        except msgspec.ValidationError:
            return None

    def dump(self) -> JsonObject:
        found: JsonObject = msgspec.to_builtins(self)
        return found

    def step_sent(self) -> None:
        """A step may be executing from now on."""
        self.in_flight = True

    def step_refused(self) -> None:
        """The agent has not executed it."""
        self.in_flight = False

    def step_done(self, step: str) -> None:
        """The step with this id was told."""
        self.done.append(step)
        self.in_flight = False

    def finish(self) -> None:
        """No other run goes on with the task."""
        self.finished = True
        self.in_flight = False

    @property
    def reusable(self) -> bool:
        """Whether another run may go on with the task: it waits for its next step, and none is under way."""
        return not self.finished and not self.in_flight

    @property
    def begun(self) -> bool:
        """Whether the agent has been asked for a step of the task."""
        return bool(self.done) or self.in_flight or self.finished


class CreatedTask(msgspec.Struct):
    """The answer to the relay of `codec.CREATE`: the task's record, and the names of its planned steps."""

    record: JsonObject
    steps: list[str | None]


# --- requests ------------------------------------------------------------------------------------------------------


def first_bodies(
    run: Run, thread: Thread | None, agent: Agent, given: Recalled, *, again: bool
) -> tuple[JsonObject, JsonObject, int]:
    """Bodies of `POST tasks` and of the first `POST steps`, and how many things they cannot say.

    A client of this protocol gets its own bodies passed on as they were; `again` says that steps of its task have been
    executed already, so that a new task is asked what the step asks.
    """
    request = run.request
    if request.protocol == codec.PROTOCOL and thread is not None and thread.protocol == codec.PROTOCOL:
        step = dict(request.creation)
        task = dict(codec.task_body(thread))
        if again:
            task |= {key: value for key, value in step.items() if value not in (None, "")}
        if given.before:
            task["input"] = step["input"] = "\n\n".join(filter(None, (given.before, step.get("input"))))
        return task, step, 0
    text = text_of(given.input, agent.text_input)
    more, lost = _additional_input(run, agent, given.input, text)
    body: JsonObject = {"input": text} | ({"additional_input": more} if more else {})
    return body, dict(body), lost


def _additional_input(run: Run, agent: Agent, document: Json, text: str | None) -> tuple[JsonObject, int]:
    """The whole input document where it is more than its text, and config and metadata."""
    more: JsonObject = {}
    bare = text is not None and wrap(text, agent.text_input, agent.input_schema, USER) == document
    if not bare and document is not None:
        more = dict(document) if isinstance(document, dict) else {"input": document}
    lost = 0
    for key, value in (("config", run.request.config), ("metadata", run.request.metadata)):
        if value and key in more:
            lost += 1
        elif value:
            more[key] = value
    return more, lost


def answer_body(answer: Answer) -> JsonObject:
    """Body of the next `POST steps`, from the answer to a `step` question.

    `{"message": text}`, the shape of an agent's input where it publishes none, is the text as well.
    """
    value = answer.value
    if isinstance(value, dict) and "input" not in value and isinstance(value.get("message"), str):
        value = {"input": value["message"], **{key: item for key, item in value.items() if key != "message"}}
    if isinstance(value, dict):
        body = {key: value[key] for key in ("input", "additional_input") if value.get(key) is not None}
        rest = {key: item for key, item in value.items() if key not in ("input", "additional_input")}
        if rest:
            own = body.get("additional_input")
            body["additional_input"] = rest | (own if isinstance(own, dict) else {})
        if "input" in body:
            body["input"] = codec.as_text(body["input"])
        return body
    return {} if value is None else {"input": codec.as_text(value)}


# --- what the agent says -------------------------------------------------------------------------------------------


def part_of(step: str) -> str:
    """Name of the part that holds a step's output."""
    return f"{step}/output"


def step_events(step: wire.Step, *, again: bool = False) -> list[e.Event]:
    """An executed step: a message with its output. `again`: it may have been told before, in part or whole."""
    message, part = step.step_id, part_of(step.step_id)
    raw = step.model_dump(exclude=_REWRITTEN)
    said: list[e.Event] = [e.MessageStarted(message=message, role=Role.ASSISTANT, origin=codec.origin(step=raw))]
    text = codec.as_text(step.output)
    if text and again:
        said += [e.PartReplaced(part=part, value=text), e.PartEnded(part=part)]
    elif text:
        said += [e.PartStarted(part=part, message=message), e.PartDelta(part=part, delta=text), e.PartEnded(part=part)]
    said.append(e.MessageEnded(message=message))
    if step.additional_output is not None:
        more = codec.origin(message=message)
        said.append(e.Custom(name=codec.ADDITIONAL_OUTPUT, data=step.additional_output, origin=more))
    return said


def question(task: str, count: int, step: wire.Step, plan: Sequence[wire.Step], *, approve: bool = False) -> Interrupt:
    """The question of an agent driven one step at a time, after its `count`-th step: the next step's input.

    With `approve` it asks whether it may go on at all.
    """
    following = next((planned.name for planned in plan if planned.status == "created"), None)
    then = f": {following}" if following else ""
    payload = {"step_id": step.step_id, "name": step.name, "output": codec.as_text(step.output), "next": following}
    return Interrupt(
        id=f"{task}/{count}",
        kind=codec.PERMISSION if approve else codec.STEP,
        payload={key: value for key, value in payload.items() if value is not None},
        message=f"Go on with the next step{then}?"
        if approve
        else codec.as_text(step.output) or f"Input for the next step{then}",
        answer_schema=codec.APPROVAL if approve else codec.STEP_BODY,
    )


def asked(task: str, count: int, step: wire.Step) -> Interrupt | None:
    """The question that an agent which is a gateway itself ends a step with, None if there is none.

    It has the form that steps.py writes.
    """
    found = step.additional_output.get("interrupt") if isinstance(step.additional_output, dict) else None
    if step.is_last or not isinstance(found, dict) or not isinstance(found.get("answer_schema"), dict):
        return None
    try:
        return replace(msgspec.convert(found, Interrupt), id=f"{task}/{count}")
    except msgspec.ValidationError:
        return None


def again(question: Interrupt, reason: str, attempt: int) -> Interrupt:
    """The same question after an answer that the agent refused for `reason`."""
    message = "\n\n".join(filter(None, (reason, question.message)))
    return replace(question, id=f"{question.id}/{attempt}", message=message)


def reply_body(answer: Answer) -> JsonObject:
    """Body of the `POST steps` that answers a question of `asked`: such that it is read as just this value.

    An object goes as `additional_input`: as a text it might be taken for the text of an answer.
    """
    value = answer.value
    if isinstance(value, dict) and value:
        return {"additional_input": value}
    return {"input": value if isinstance(value, str) else encode(value).decode()}


def failure(step: wire.Step) -> str | None:
    """The failure in a completed step (the form steps.py writes); None if it has not failed."""
    found = step.additional_output.get("error") if isinstance(step.additional_output, dict) else None
    if step.is_last and isinstance(found, dict) and isinstance(found.get("code"), str):
        message = found.get("message")
        return message if isinstance(message, str) else "the agent failed"
    return None


def error_text(content_type: str, body: bytes) -> str:
    """The text of an agent's error answer: its message, detail or error, or the body; "" if there is none."""
    try:
        data: Json = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return "" if "html" in content_type else body[:TEXT_LIMIT].decode("utf-8", "replace").strip()
    return _message(data)[:TEXT_LIMIT]


def _message(data: Any) -> str:
    if isinstance(data, dict):
        for key in ("message", "detail", "error", "msg"):
            if data.get(key):
                return _message(data[key])
        return ""
    if isinstance(data, list):
        return "; ".join(filter(None, map(_message, data)))
    return data if isinstance(data, str) else ""
