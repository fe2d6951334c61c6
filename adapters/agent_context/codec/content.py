"""Payloads of messages and tasks, and an agent's documents.

A payload is any JSON. Where it is an object the protocol knows `messages[].text`, `context` and `requirements` in it;
`input` and `output` are the gateway's: the agent's own document, where text alone does not say it. An agent of this
protocol gets the payload that its client sent as it is, and what it answers becomes its output document.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from adapters.agent_context.codec import files, nlip
from adapters.agent_context.wire import PROTOCOL
from gateway.contract import fitting
from gateway.core import delta, projection
from gateway.core.errors import Invalid
from gateway.core.files import Attachment
from gateway.core.memory import Recalled
from gateway.core.types import Agent, Json, JsonObject, Run

# --- whether a document fits an agent's schema, and if not, what is wrong with it ------------------------------------


_KEPT: Final = 256

_judges: OrderedDict[int, tuple[JsonObject, fitting.SchemaJudge | None]] = OrderedDict()


def _judge(schema: JsonObject) -> fitting.SchemaJudge | None:
    """None for what is no schema: it allows anything, as everywhere in the gateway."""
    known = _judges.get(id(schema))
    if known is not None and known[0] is schema:
        _judges.move_to_end(id(schema))
        return known[1]
    judge = None if fitting.fault(schema) else fitting.SchemaJudge(schema)
    _judges[id(schema)] = schema, judge
    while len(_judges) > _KEPT:
        _judges.popitem(last=False)
    return judge


def fits(schema: JsonObject, value: Json) -> bool:
    """Whether a value fits a schema. Nothing fits a schema that cannot be applied."""
    judge = _judge(schema)
    if judge is None:
        return True
    try:
        return judge.fits(value)
    except fitting.Inapplicable:
        return False


def misfit(schema: JsonObject, value: Json, at: str) -> Invalid:
    judge = _judge(schema)
    try:
        if judge is not None:
            judge.check(value, at)
    except Invalid as error:
        return error
    return Invalid(f"{at or '/'}: does not fit the agent's schema", path=at)


MESSAGES: Final = files.MESSAGES
INPUT: Final = "input"
OUTPUT: Final = "output"
STRUCTURED: Final = "structured"
"""Member of an input or output: what an NLIP message has beside its text."""
CONTEXT: Final = "context"
REQUIREMENTS: Final = "requirements"
PAYLOAD: Final = "/content/payload"
"""Where it is in a message."""

_TEXTS: Final = ("text", "message", "prompt")
_ENVELOPE: Final = frozenset({CONTEXT, REQUIREMENTS})
"""Members that are about the payload, and no part of its content."""


# --- payload -> input ------------------------------------------------------------------------------------------------


class PayloadRun(msgspec.Struct, frozen=True):
    """The start of a run. Either `input` or `prompt` is set; `losses` has the name of each loss."""

    input: Json = None
    prompt: str | None = None
    files: Sequence[Attachment] = ()
    losses: Sequence[str] = ()


def start_of(agent: Agent, payload: Json) -> PayloadRun:
    """The run that a message starts: `task_of`, or else the words of a payload that has no more to say, of which the
    gateway makes an input and asks for the rest. Raises Invalid with a path below `PAYLOAD`.
    """
    payload, attached = _apart(agent, payload, PAYLOAD)
    try:
        return _input_of(agent, payload, attached, PAYLOAD)
    except Invalid:
        text, rest = _text_in(payload)
        if text is None or rest:
            raise
        return PayloadRun(prompt=text, files=attached)


def task_of(agent: Agent, payload: Json, *, at: str = PAYLOAD) -> PayloadRun:
    """The run that does a task: its input fits the agent's schema with the files in their places.

    `payload.input` where that is given; else the payload itself, if it fits and the agent would find its text; else the
    text in it, or the whole of it as JSON text, where the agent takes text. Raises Invalid with a path below `at`.
    """
    return _input_of(agent, *_apart(agent, payload, at), at)


def _apart(agent: Agent, payload: Json, at: str) -> tuple[Json, Sequence[Attachment]]:
    """A payload in the draft's form without its files, and these. An agent of this protocol is sent the payload."""
    schema = agent.input_schema
    if nlip.spoken(payload):
        payload = nlip.plain(payload)
        if MESSAGES in payload and INPUT in payload and not fits(schema, payload[INPUT]):
            payload = {**payload, STRUCTURED: payload[INPUT]}  # beside its text, not instead of it
            del payload[INPUT]
    if PROTOCOL in agent.extra:
        return payload, ()
    if not files.any_in(payload):
        return payload, ()
    whole = fits(schema, payload) and not _lacks_text(payload, agent.text_input)
    return files.taken(payload, schema.get("properties", ()) if whole else (), at=at)


def _input_of(agent: Agent, payload: Json, attached: Sequence[Attachment], at: str) -> PayloadRun:
    schema, pointer = agent.input_schema, agent.text_input

    def fit(document: Json) -> bool:
        return fits(schema, files.placed(agent, document, attached))

    def started(document: Json, losses: Sequence[str] = ()) -> PayloadRun:
        return PayloadRun(document, files=attached, losses=() if PROTOCOL in agent.extra else losses)

    given = isinstance(payload, dict) and INPUT in payload
    if given and fit(payload[INPUT]):
        return started(payload[INPUT])
    text, rest = _text_in(payload)
    said = spoken(payload.get(MESSAGES)) if isinstance(payload, dict) else None
    whole = fit(payload)
    if whole and not (said is not None and _lacks_text(payload, pointer)):
        return started(payload)
    if given and not whole:
        raise misfit(schema, payload[INPUT], f"{at}/{INPUT}")
    if pointer is not None:
        losses = ["payload_rest"] if rest else []
        if text is None and attached and not rest:
            text = ""
        if text is None:
            text, losses = delta.encode(payload).decode(), ["payload_as_text"]
        document = projection.wrap(text, pointer, schema)
        if fit(document):
            return started(document, losses)
    if whole:
        return started(payload)
    raise misfit(schema, payload, at)


def _lacks_text(document: Json, pointer: str | None) -> bool:
    return pointer is not None and projection.unwrap(document, pointer) is None


def _text_in(payload: Json) -> tuple[str | None, JsonObject]:
    """The text of a payload, None if it has none, and what else is in it."""
    if isinstance(payload, str):
        return payload, {}
    if not isinstance(payload, dict):
        return None, {}
    rest = {key: value for key, value in payload.items() if key not in _ENVELOPE}
    said = spoken(payload.get(MESSAGES))
    if said is not None:
        if all(each.keys() <= {"text", "role"} for each in payload[MESSAGES]):
            del rest[MESSAGES]
        return said, rest
    for key in _TEXTS:
        if isinstance(payload.get(key), str):
            return rest.pop(key), rest
    return None, rest


def spoken(messages: Json) -> str | None:
    """The text of `messages`, one below the other; None where there are none, or they are not all text."""
    if not isinstance(messages, list) or not messages:
        return None
    texts = [each["text"] for each in messages if isinstance(each, dict) and isinstance(each.get("text"), str)]
    return "\n".join(texts) if len(texts) == len(messages) else None


# --- output -> payload -----------------------------------------------------------------------------------------------


def payload_of(agent: Agent, output: bytes | msgspec.Raw) -> JsonObject:
    """The payload that tells an agent's output document (JSON): its text, and all of it where it is more than that.

    A document without text is told as JSON text besides. `output_of` is the inverse.
    """
    document = delta.decode(output)
    text = projection.text_of(document, agent.text_output)
    if text is not None and agent.text_output is not None:
        plain = projection.wrap(text, agent.text_output, agent.output_schema, projection.ASSISTANT)
        if delta.same(plain, document):
            return {MESSAGES: [{"text": text}]}
    shown = text if text is not None else delta.encode(document).decode()
    return {MESSAGES: [{"text": shown}], OUTPUT: document}


# --- run -> payload, for an agent of this protocol -------------------------------------------------------------------


def request_of(agent: Agent, run: Run, given: Recalled, uploads: files.Uploads = ()) -> Json:
    """The payload that an agent of this protocol is sent for a run, with what it is told of the conversation before.

    An agent that says it speaks NLIP is sent an NLIP message, every other none.
    What a client of this protocol sent goes as it is, below that. Else the input as text; as `input` too where the
    agent published a schema for it or it is more than text; and the thread as the session. `uploads` go beside it.
    """
    said = _sent(run)
    if nlip.speaks(agent):
        same = nlip.spoken(said) and not given.before and not uploads
        payload = said if same else files.with_parts(_request_of(agent, run, given, nlip.plain(said)), uploads)
        return nlip.of(payload) if isinstance(payload, dict) and not same else payload
    return files.with_parts(_request_of(agent, run, given, nlip.plain(said)), uploads)


def _request_of(agent: Agent, run: Run, given: Recalled, said: Json) -> Json:
    """The payload in the draft's form. `said`: what a client of this protocol sent, `ABSENT` from any other."""
    if said is not delta.ABSENT:
        told = given.before and isinstance(said, dict) and isinstance(said.get(MESSAGES), list)
        return {**said, MESSAGES: [{"text": given.before}, *said[MESSAGES]]} if told else said
    document = given.input
    text = projection.text_of(document, agent.text_input)
    plain = text is not None and agent.text_input is not None
    if plain:
        plain = delta.same(projection.wrap(text or "", agent.text_input, agent.input_schema), document)
    payload: JsonObject = {MESSAGES: [{"text": text if text is not None else delta.encode(document).decode()}]}
    if not plain or "inputSchema" in agent.extra.get(PROTOCOL, {}):
        payload[INPUT] = document
    if run.thread is not None:
        payload[CONTEXT] = {"sessionId": run.thread}
    return payload


def _sent(run: Run) -> Json:
    """The payload of a run that a client of this protocol started: of its message, or of its task."""
    request = run.request
    if request.protocol != PROTOCOL:
        return delta.ABSENT
    task = request.attributes.get("task")
    for said in (task, request.creation.get("content")):
        if isinstance(said, dict) and "payload" in said:
            return said["payload"]
    return delta.ABSENT


# --- payload -> output -----------------------------------------------------------------------------------------------


def output_of(agent: Agent, payload: Json) -> Json:
    """The output document that an agent of this protocol means by the payload of its response.

    `payload.output` where that is given; else the payload itself if it fits the agent's output schema and has its text
    where that says; else its text there, with whatever is beside it. It may not fit: it is what the agent said.
    """
    schema, pointer = agent.output_schema, agent.text_output
    if nlip.spoken(payload):
        payload = _answered(agent, nlip.plain(payload))
    if isinstance(payload, dict) and OUTPUT in payload:
        document = payload[OUTPUT]
        if MESSAGES in payload or fits(schema, document) or not fits(schema, payload):
            return document
    if pointer is None or (fits(schema, payload) and not _lacks_text(payload, pointer)):
        return payload
    text, rest = _text_in(payload)
    if text is None:
        text = delta.encode(payload).decode()
    document = projection.wrap(text, pointer, schema, projection.ASSISTANT)
    return {**rest, **document} if isinstance(document, dict) else document


def _answered(agent: Agent, payload: JsonObject) -> JsonObject:
    """An NLIP message as an answer: its structured part is the output, or beside the text of an agent that publishes
    no such output. Its conversation is known.
    """
    rest = {key: value for key, value in payload.items() if key not in (CONTEXT, INPUT)}
    if INPUT not in payload:
        return rest
    published = not agent.output_assumed and fits(agent.output_schema, payload[INPUT])
    return {**rest, OUTPUT if published or MESSAGES not in rest else STRUCTURED: payload[INPUT]}
