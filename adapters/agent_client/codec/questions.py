"""Questions: `session/request_permission` and `elicitation/create` to interrupts and back (docs: elicitation).

Nothing is approval but the choice of an option that was offered. An agent of this protocol asks: `permission` and
`elicitation` are the interrupt, and the `..._result` answers the agent. A client of this protocol is asked whatever any
agent wants to know: `as_permission` by a choice, `as_elicitation` by a form, `as_text` in words; the `..._answer` reads
what it says. Forms are MCP's (gateway/mcp/forms.py), with a pattern for texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any, Final, TypeAlias

from msgspec import UNSET

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.v2.tool_calls import patch
from adapters.agent_client.wire import AIP44, without
from gateway.contract import governing, reading
from gateway.core import choices, delta, wording
from gateway.core.errors import AgentBroken, Invalid
from gateway.core.types import Answer, Interrupt, Json, JsonObject, Outcome
from gateway.mcp import forms

ANSWER: Final = "_answer"
"""In an answer's value: what a client of this protocol said in full, where that is more than the option."""
QUESTION: Final = "question"
"""In `_meta.aip44` of a tool call that stands for a question."""
_SHOWN: Final = 4000
"""Characters of a tool call's content that a question has in its message."""
_KINDS: Final = {0: "read", 1: "edit"}
_CONSENT: Final = frozenset(("yes", "y", "ok", "okay", "done", "accept", "open", "continue"))
_DISSENT: Final = frozenset(("no", "n", "decline", "refuse", "cancel", "stop"))

PERMISSION: Final = "session/request_permission"
ELICITATION: Final = "elicitation/create"
_OPTION_KINDS: Final = ("allow_once", "allow_always", "reject_once", "reject_always")
Form: TypeAlias = tuple[str, JsonObject, Callable[[Interrupt, Any], Answer]]
"""How a client is asked: the method, its params without the session, and what reads the answer."""

elicitation_result = forms.elicitation_result
_DIALECT: Final = forms.FormDialect(pattern=True)


# --- an agent asks for permission ---------------------------------------------------------------------------------


def permission(params: JsonObject, id: str, known: JsonObject | None = None) -> Interrupt:
    """The question of a `session/request_permission`. `payload` is `params` less `sessionId`.

    `known` is what the agent has said of the call before (`UpdateDecoder.call`), for requests that do not say it again.
    The message has the call's texts and changes of files too: some agents call it by its tool and say only there what
    is to be done. The answer is `{"optionId": ...}`; its schema has the options' names beside their ids. Raises Invalid
    (with path) for params without tool call or options.
    """
    call, options = params.get("toolCall"), params.get("options")
    if not isinstance(call, dict) or not isinstance(call.get("toolCallId"), str):
        raise Invalid("a permission request needs a tool call", path="/toolCall")
    if not isinstance(options, list) or not offered(params):
        raise Invalid("a permission request needs options", path="/options")
    said = (of.get("title") for of in (call, known or {}))
    what = next((title for title in said if isinstance(title, str) and title), f"tool call {call['toolCallId']}")
    ids = list(dict.fromkeys(option["optionId"] for option in offered(params)))
    first = {option["optionId"]: option for option in reversed(offered(params))}
    labels = [name if isinstance(name := first[one].get("name"), str) and name else one for one in ids]
    refusing = [
        one
        for one, label in zip(ids, labels, strict=True)
        if rejects(first[one]) and not choices.Choice(one, one, label).refuses
    ]
    values: JsonObject = {"enum": delta.sound(ids), "enumNames": delta.sound(labels)}
    if refusing:
        values[choices.REFUSING] = delta.sound(refusing)
    return Interrupt(
        id=id,
        kind="permission",
        payload=delta.sound(without(params, "sessionId")),
        message=delta.sound("\n\n".join((f"The agent asks for permission: {what}", *shown(call, known)))),
        answer_schema={
            "type": "object",
            "properties": {"optionId": values},
            "required": ["optionId"],
        },
    )


def shown(call: JsonObject, known: JsonObject | None) -> list[str]:
    """The first texts and changes of files of a tool call's content, of `_SHOWN` characters in all."""
    content = call.get("content") or (known or {}).get("content")
    found: list[str] = []
    left = _SHOWN
    for item in content if isinstance(content, list) else []:
        text = _text(item)
        if text and left > 0:
            some = text if len(text) <= left else f"{text[:left]}..."
            found.append(event_forms.fenced(some, "diff") if item["type"] == "diff" else some)
            left -= len(text)
    return found


def _text(item: Any) -> str:
    """An item of a tool call's content as a person may read it: its text, or its change of a file as a patch."""
    if not event_forms.is_tool_content(item):
        return ""
    if item["type"] == "diff":
        return (patch(item["path"], item.get("oldText"), item["newText"]) or "").rstrip("\n")
    block = item.get("content") or {}
    return str(block.get("text") or "").strip()


def permission_result(answer: Answer, payload: Json) -> JsonObject:
    """The answer of `session/request_permission` (`payload` is the interrupt's).

    Cancelled is `cancelled`. Declined, and whatever names no option that was offered, is the offered `reject_once`,
    else `reject_always`, else `cancelled`: never approval.
    """
    options = offered(payload)
    if answer.outcome is Outcome.ANSWERED:
        value = answer.value
        wanted = value.get("optionId") if isinstance(value, dict) else value
        if isinstance(wanted, str) and any(option["optionId"] == wanted for option in options):
            said = value.get(ANSWER) if isinstance(value, dict) else None
            return said if isinstance(said, dict) and selected(said) == wanted else selecting(wanted)
    if answer.outcome is not Outcome.CANCELLED:
        approving = {option["optionId"] for option in options if not rejects(option)}
        for kind in ("reject_once", "reject_always"):
            for option in options:
                if option.get("kind") == kind and option["optionId"] not in approving:
                    return selecting(option["optionId"])
    return {"outcome": {"outcome": "cancelled"}}


def rejects(option: JsonObject) -> bool:
    return option.get("kind") in ("reject_once", "reject_always")


def selecting(option_id: str) -> JsonObject:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


# --- a client is asked --------------------------------------------------------------------------------------------


def is_permission(interrupt: Interrupt) -> bool:
    """Whether it is the permission request of an agent of this protocol, to be asked in its own words."""
    payload = interrupt.payload
    return (
        interrupt.kind == "permission"
        and isinstance(payload, dict)
        and isinstance(payload.get("toolCall"), dict)
        and bool(offered(payload))
    )


def is_approval(interrupt: Interrupt) -> bool:
    """Whether a gateway asks, by the rules of a governed route, if a tool may be called."""
    payload = interrupt.payload
    return interrupt.kind == governing.APPROVAL and isinstance(payload, dict) and {"call", "tool"} <= payload.keys()


def is_question(payload: JsonObject) -> bool:
    """Whether a permission request is about no tool call: a gateway asks something else in its words."""
    subject = payload.get("subject")
    about = subject.get("type") if isinstance(subject, dict) else None
    return event_forms.is_question(payload["toolCall"]) or (is_v2(payload) and about not in ("tool_call", "command"))


def is_v2(payload: Json) -> bool:
    """Whether a permission request was asked in version 2 of the protocol: its own title stands beside the call."""
    return isinstance(payload, dict) and isinstance(payload.get("title"), str)


def is_url(interrupt: Interrupt) -> bool:
    payload = interrupt.payload
    return interrupt.kind == "elicitation" and isinstance(payload, dict) and payload.get("mode") == "url"


def options_of(interrupt: Interrupt) -> tuple[list[choices.Choice], str | None] | None:
    """The values of which the answer is one, and the key it has in the answer, if any. None if it is no choice."""
    if is_permission(interrupt):
        found = [
            choices.Choice(option["optionId"], option["optionId"], str(option.get("name") or option["optionId"]))
            for option in offered(interrupt.payload)
        ]
        return found, "optionId"
    return choices.offered(interrupt.answer_schema)


def form(interrupt: Interrupt, elicitation: JsonObject | None, permission: JsonObject | None) -> Form | None:
    """The way to ask a client, given what there is in its version; None if there is none."""
    if elicitation is not None and (permission is None or interrupt.kind == forms.KIND):
        return ELICITATION, elicitation, forms.elicitation_answer
    return None if permission is None else (PERMISSION, permission, permission_answer)


# --- a choice ----------------------------------------------------------------------------------------------------


def as_permission(interrupt: Interrupt) -> JsonObject | None:
    """Params of a `session/request_permission` (without `sessionId`), None if the answer is no choice.

    A choice is a list of values (`enum`, alternatives of `const`), a boolean, or an object whose only required property
    is one. What an agent of this protocol asked is asked verbatim.
    """
    if is_permission(interrupt):
        return _without_v2(interrupt.payload) if is_v2(interrupt.payload) else dict(interrupt.payload)
    found = options_of(interrupt)
    if found is None:
        return None
    options = [
        {"optionId": choice.id, "name": choice.label, "kind": "reject_once" if choice.refuses else "allow_once"}
        for choice in found[0]
    ]
    return {"toolCall": _call(interrupt), "options": options}


def _without_v2(payload: JsonObject) -> JsonObject:
    """Convert a permission request of version 2 to version 1.

    Its title and description, which version 1 has no place for, are content of the tool call.
    """
    call, title, description = payload["toolCall"], payload.get("title"), payload.get("description")
    rest = without(payload, "title", "description", "subject")
    said = [text for text in (title, description) if isinstance(text, str) and text and text != call.get("title")]
    if said:
        shown = call.get("content")
        text = {"type": "content", "content": {"type": "text", "text": "\n\n".join(said)}}
        call = {**call, "content": [text, *(shown if isinstance(shown, list) else [])]}
    options = [_known_option(each) if isinstance(each, dict) else each for each in payload["options"]]
    return {**rest, "toolCall": call, "options": options}


def _known_option(option: JsonObject) -> JsonObject:
    """An option of a kind that version 1 has not counts as approval: nothing is declined by choosing it."""
    return option if option.get("kind") in _OPTION_KINDS else {**option, "kind": "allow_once"}


def permission_answer(interrupt: Interrupt, result: Json) -> Answer:
    """The answer that a client gave to `as_permission(interrupt)`.

    `cancelled` is cancelled; an option that was not offered, and whatever is unclear, is declined. Never raises.
    """
    if is_cancelled(result):
        return forms.CANCELLED
    option_id, found = selected(result), options_of(interrupt)
    chosen = next((choice for choice in (found or ([], None))[0] if choice.id == option_id), None)
    if found is None or chosen is None:
        return forms.DECLINED
    value: Json = chosen.value if found[1] is None else {found[1]: chosen.value}
    if is_permission(interrupt) and not delta.same(result, selecting(chosen.id)):
        value = {**value, ANSWER: delta.sound(result)}
    return Answer(value=value)


def asked_call(interrupt: Interrupt) -> bytes | None:
    """A `tool_call` update to send before `as_permission` is asked, so that the question belongs to one.

    None for a question of an agent of this protocol: it is about that agent's own tool call. None for one whether a
    tool may be called: that call is told when it may.
    """
    if is_permission(interrupt) or is_approval(interrupt):
        return None
    return delta.encode({event_forms.KEY: "tool_call", **_call(interrupt)})


def answered_call(interrupt: Interrupt, answer: Answer) -> bytes | None:
    """The `tool_call_update` that ends what `asked_call` started, to send after the answer, wherever it came from."""
    if is_permission(interrupt) or is_approval(interrupt):
        return None
    done = answer.outcome is Outcome.ANSWERED
    said: JsonObject = {
        event_forms.KEY: "tool_call_update",
        "toolCallId": _call(interrupt)["toolCallId"],
        "status": "completed" if done else "failed",
    }
    if done:
        said["rawOutput"] = answer.value
    return delta.encode(said)


def _call(interrupt: Interrupt) -> JsonObject:
    if is_approval(interrupt):
        return _wanted(interrupt, interrupt.payload)
    call: JsonObject = {
        "toolCallId": f"question-{interrupt.id}",
        "title": interrupt.message or interrupt.kind,
        "kind": "other",
        "status": "pending",
        "_meta": {AIP44: {QUESTION: True}},
    }
    return call if interrupt.payload is None else {**call, "rawInput": interrupt.payload}


def _wanted(interrupt: Interrupt, said: JsonObject) -> JsonObject:
    """The call that is to be approved: the very one, so that another gateway in front of us knows it for the same."""
    about = {key: said[key] for key in ("tool", "server", "risk", "policy", "approvers", "why") if key in said}
    call: JsonObject = {
        "toolCallId": str(said["call"]),
        "title": interrupt.message or str(said["tool"]),
        "name": str(said["tool"]),
        "kind": _KINDS.get(said.get("risk", 2), "other"),
        "status": "pending",
        "_meta": {AIP44: about},
    }
    return call if said.get("arguments") is None else {**call, "rawInput": said["arguments"]}


# --- in words ----------------------------------------------------------------------------------------------------


def as_text(interrupt: Interrupt) -> str:
    """The question for a client that can only be told: what to answer is said too."""
    question = interrupt.message or interrupt.kind
    found = options_of(interrupt)
    if found is not None:
        return f"{question}\n\n{choices.listing(found[0])}"
    if is_url(interrupt):
        return f"{question}\n\n{interrupt.payload.get('url')}\n\nAnswer `done` when you have opened it, or `no`."
    inner = choices.in_object(interrupt.answer_schema)
    if _is_text(interrupt.answer_schema) or (inner is not None and _is_text(inner[1])):
        return question
    listed = wording.listing(interrupt.answer_schema)
    if listed is not None:
        return f"{question}\n\n{listed}"
    schema = event_forms.fenced(json.dumps(interrupt.answer_schema, indent=2, ensure_ascii=False))
    return f"{question}\n\nAnswer with JSON of this schema:\n\n{schema}"


def answer_from_text(interrupt: Interrupt, text: str) -> Answer:
    """The answer that the next prompt is to `as_text(interrupt)`.

    A choice by its value, label or number, whatever the case; a text as it is; else JSON, or one value a line. Raises
    Invalid (its message is for the person) for what is none of these; the gateway checks the rest against the answer
    schema.
    """
    found = options_of(interrupt)
    if found is not None:
        chosen = choices.named(found[0], text)
        if chosen is None:
            labels = ", ".join(choice.label for choice in found[0])
            raise Invalid(f"Please answer with one of: {labels}")
        return Answer(value=chosen.value if found[1] is None else {found[1]: chosen.value})
    if is_url(interrupt):
        word = text.strip().casefold()
        if word in _CONSENT:
            return Answer(value={})
        if word in _DISSENT:
            return forms.DECLINED
        raise Invalid("Please answer `done` or `no`.")
    if _is_text(interrupt.answer_schema):
        return Answer(value=text)
    inner = choices.in_object(interrupt.answer_schema)
    if inner is not None and _is_text(inner[1]) and not _is_object(text):
        return Answer(value={inner[0]: text})
    bare = text.strip().removeprefix("```json").strip("`").strip()
    try:
        value = delta.decode(bare.encode())
    except AgentBroken:
        value = reading.meant(interrupt.answer_schema, bare)
        if value is UNSET:  # what names its values is refused for what is wrong with them
            value = next(reading.written(interrupt.answer_schema, bare, named=True), UNSET)
        if value is UNSET:
            raise Invalid("Please answer with JSON, or with one value a line, as asked.") from None
    return Answer(value=value if inner is None or isinstance(value, dict) else {inner[0]: value})


def _is_text(schema: JsonObject) -> bool:
    """Whether any text is an answer; without a schema everything is one."""
    return not schema or schema.get("type") == "string"


def _is_object(text: str) -> bool:
    try:
        return isinstance(delta.decode(text.strip().encode()), dict)
    except AgentBroken:
        return False


# --- options of a permission request ------------------------------------------------------------------------------


def offered(payload: Json) -> list[JsonObject]:
    options = payload.get("options") if isinstance(payload, dict) else None
    if not isinstance(options, list):
        return []
    return [option for option in options if isinstance(option, dict) and isinstance(option.get("optionId"), str)]


def selected(result: Json) -> str | None:
    """The id of the option that an answer of `session/request_permission` selects, None if it does not."""
    outcome = result.get("outcome") if isinstance(result, dict) else None
    if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
        return None
    option_id = outcome.get("optionId")
    return option_id if isinstance(option_id, str) else None


def is_cancelled(result: Json) -> bool:
    outcome = result.get("outcome") if isinstance(result, dict) else None
    return isinstance(outcome, dict) and outcome.get("outcome") == "cancelled"


# --- forms --------------------------------------------------------------------------------------------------------


def elicitation_modes(capabilities: JsonObject) -> frozenset[str]:
    """The modes a client declared in its `clientCapabilities`; `{}` and null declare none (docs: elicitation)."""
    declared = capabilities.get("elicitation")
    if not isinstance(declared, dict):
        return frozenset()
    return frozenset(mode for mode in (forms.FORM, forms.URL) if isinstance(declared.get(mode), dict))


def as_elicitation(interrupt: Interrupt, modes: Collection[str]) -> JsonObject | None:
    """Params of an `elicitation/create` (without `sessionId`), None if no form fits or its mode is not in `modes`.

    See `gateway.mcp.forms.as_elicitation`. What an agent of this protocol asked is asked verbatim, less the id of a
    request of its own that it may name.
    """
    payload = interrupt.payload
    if interrupt.kind == forms.KIND and isinstance(payload, dict) and payload.get("mode") in (forms.FORM, forms.URL):
        asked = without(payload, "requestId")
        return asked if asked["mode"] in modes else None
    return forms.as_elicitation(interrupt, modes, _DIALECT)


def elicitation(params: JsonObject, id: str) -> Interrupt:
    """The question of an `elicitation/create`, form or url. `payload` is `params` less `sessionId`.

    See `gateway.mcp.forms.elicitation`. Raises Invalid.
    """
    return forms.elicitation(without(params, "sessionId"), id, mode=None)
