"""Questions: `session/request_permission` and `elicitation/create` to interrupts and back.

Nothing is approval but the choice of an option that was offered. This file has what the outbound half needs, where an
agent of this protocol asks; what the inbound half needs, where a client of this protocol is asked whatever any agent
wants to know, is in asking.py (a choice, or text) and forms.py, and is exported here.
"""

from __future__ import annotations

from adapters.agent_client.codec.asking import (
    answer_from_text,
    answered_call,
    as_permission,
    as_text,
    asked_call,
    permission_answer,
)
from adapters.agent_client.codec.forms import (
    as_elicitation,
    elicitation,
    elicitation_answer,
    elicitation_modes,
    elicitation_result,
)
from adapters.agent_client.codec.offers import ANSWER, offered, selected
from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Interrupt, Json, JsonObject, Outcome

__all__ = [
    "answer_from_text",
    "answered_call",
    "as_elicitation",
    "as_permission",
    "as_text",
    "asked_call",
    "elicitation",
    "elicitation_answer",
    "elicitation_modes",
    "elicitation_result",
    "permission",
    "permission_answer",
    "permission_result",
]


def permission(params: JsonObject, id: str, known: str | None = None) -> Interrupt:
    """The question of a `session/request_permission`. `payload` is `params` less `sessionId`.

    `known` is what the tool call was called before (`UpdateDecoder.title`), for requests that do not say it again. The
    answer is `{"optionId": ...}`; its schema has the options' names beside their ids. Raises Invalid (with path) for
    params without tool call or options.
    """
    call, options = params.get("toolCall"), params.get("options")
    if not isinstance(call, dict) or not isinstance(call.get("toolCallId"), str):
        raise Invalid("a permission request needs a tool call", path="/toolCall")
    if not isinstance(options, list) or not offered(params):
        raise Invalid("a permission request needs options", path="/options")
    title = call.get("title")
    what = (title if isinstance(title, str) else None) or known or f"tool call {call['toolCallId']}"
    names = {option["optionId"]: option.get("name") for option in reversed(offered(params))}
    ids = list(dict.fromkeys(option["optionId"] for option in offered(params)))
    labels = [name if isinstance(name := names[one], str) and name else one for one in ids]
    return Interrupt(
        id=id,
        kind="permission",
        payload=delta.sound({key: value for key, value in params.items() if key != "sessionId"}),
        message=delta.sound(f"The agent asks for permission: {what}"),
        answer_schema={
            "type": "object",
            "properties": {"optionId": {"enum": delta.sound(ids), "enumNames": delta.sound(labels)}},
            "required": ["optionId"],
        },
    )


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
            return said if isinstance(said, dict) and selected(said) == wanted else _selected(wanted)
    if answer.outcome is not Outcome.CANCELLED:
        approving = {option["optionId"] for option in options if not _rejects(option)}
        for kind in ("reject_once", "reject_always"):
            for option in options:
                if option.get("kind") == kind and option["optionId"] not in approving:
                    return _selected(option["optionId"])
    return {"outcome": {"outcome": "cancelled"}}


def _rejects(option: JsonObject) -> bool:
    return option.get("kind") in ("reject_once", "reject_always")


def _selected(option_id: str) -> JsonObject:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}
