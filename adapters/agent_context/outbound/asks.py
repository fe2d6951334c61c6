"""What an agent asks while it runs: a person, by a question of the run's; or what only a client of its own kind has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Raw

from adapters.agent_context.outbound.answers import text_in
from adapters.agent_context.outbound.pools import QUESTIONS
from adapters.agent_context.wire.constants import PROTOCOL, RESPONSE
from gateway.adapter import Caller
from gateway.core import delta, projection
from gateway.core.errors import InterlinguaError, Invalid, Unavailable
from gateway.core.types import Answer, Interrupt, Json, JsonObject, Outcome
from gateway.mcp import forms
from gateway.mcp.wire import ELICIT, ROOTS, SAMPLE
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

RELAYED: Final = {SAMPLE: "sampling", ROOTS: "roots"}
"""What is asked of a client of the same protocol -> the capability that it has declared then."""
_KINDS: Final = {"sampling": ("context", "tools"), "roots": ()}
"""Capability -> what of it is declared in turn. Changes of the roots are not: they would have to be told."""
INPUT: Final = "input"
"""Of an interrupt that an agent asked in a message and did not name."""

Ask = Callable[[Interrupt], Awaitable[Answer]]


def capabilities(caller: Caller | None) -> JsonObject:
    """What the gateway declares for a run: messages, questions, and what the run's client can do if it speaks this
    protocol. There are few that differ, since each set has connections of its own.
    """
    if caller is None or caller.protocol != PROTOCOL:
        return QUESTIONS
    declared = dict(QUESTIONS)
    if _has(caller.capabilities.get("elicitation"), forms.URL):
        declared["elicitation"] = {forms.FORM: {}, forms.URL: {}}
    for name, kinds in _KINDS.items():
        if _has(caller.capabilities, name):
            declared[name] = {kind: {} for kind in kinds if _has(caller.capabilities[name], kind)}
    return declared


def _has(capabilities: Any, name: str) -> bool:
    return isinstance(capabilities, dict) and capabilities.get(name) not in (None, False)


class Asks:
    """Answers the requests that belong to one run."""

    def __init__(self, ask: Ask, caller: Callable[[], Caller | None], declared: JsonObject) -> None:
        self._ask = ask
        self._caller = caller
        self._declared = declared
        self._questions = 0

    async def message(self, payload: Json) -> JsonObject:
        """The content that answers a message of type request."""
        self._questions += 1
        interrupt = question(payload, f"question-{self._questions}")
        return answered(interrupt, await self._ask(interrupt))

    async def answer(self, method: str, params: Raw) -> Any:
        """The result of any other request. Raises RpcError for an error answer."""
        try:
            if method == ELICIT:
                return await self._elicited(params)
            if RELAYED.get(method) in self._declared:
                return await self._relayed(method, params)
        except RpcError:
            raise
        except Invalid as error:
            raise RpcError(jsonrpc.INVALID_PARAMS, str(error), {"path": error.path}) from error
        except InterlinguaError as error:
            raise RpcError(jsonrpc.INTERNAL_ERROR, str(error)) from error
        raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})

    async def _elicited(self, params: Raw) -> JsonObject:
        asked = read(params)
        self._questions += 1
        interrupt = forms.elicitation(asked, f"elicitation-{self._questions}")
        if interrupt.payload["mode"] == forms.URL and not _has(self._declared["elicitation"], forms.URL):
            raise Invalid("the client has not declared this mode", path="/mode")
        return forms.elicitation_result(await self._ask(interrupt), interrupt.payload)

    async def _relayed(self, method: str, params: Raw) -> Raw:
        caller = self._caller()
        if caller is None:
            raise Unavailable("the client has gone")
        return await caller.ask(method, params or Raw(b"{}"))


def question(payload: Json, id: str) -> Interrupt:
    """The question of a message of type request.

    Its payload may say of which kind it is (`kind`), what the answer looks like (`answerSchema`) and what exactly is
    asked (`question`), as another gateway's does; else any text answers it.
    """
    payload = delta.sound(payload)
    said: JsonObject = payload if isinstance(payload, dict) else {}
    kind, schema = said.get("kind"), said.get("answerSchema")
    asked = payload
    if isinstance(schema, dict) and said.keys() <= {"messages", "kind", "answerSchema", "question"}:
        asked = said.get("question")
    return Interrupt(
        id=id,
        kind=kind if isinstance(kind, str) and kind else INPUT,
        payload=asked,
        message=text_in(payload),
        answer_schema=schema if isinstance(schema, dict) else projection.MESSAGE_SCHEMA,
    )


def answered(interrupt: Interrupt, answer: Answer) -> JsonObject:
    """The content that answers it: the value under `answer`, its text as a message; or the outcome that is none."""
    if answer.outcome is not Outcome.ANSWERED:
        return {"type": RESPONSE, "payload": {"outcome": answer.outcome.value}}
    payload: JsonObject = {"answer": answer.value}
    text = projection.text_of(answer.value, projection.text_pointer(interrupt.answer_schema))
    if text is not None:
        payload = {"messages": [{"text": text}], **payload}
    return {"type": RESPONSE, "payload": payload}


def read(params: Raw) -> JsonObject:
    """Params as an object. Raises Invalid."""
    try:
        return jsonrpc.unpack(params or Raw(b"{}"), dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise Invalid("params are no object") from error
