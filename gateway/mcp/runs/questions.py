"""Interrupts to an MCP client: as a form where it takes forms, else as an answer to its call. Keeps no state.

The answer that carries a question also has a handle. The next call that brings the handle in its `_meta` answers the
question: with its `input` (or a tool's arguments), or with an outcome in place of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from msgspec import Raw

from gateway.contract import reading
from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Interrupt, Json, JsonObject, Outcome, Run
from gateway.mcp import forms
from gateway.mcp.runs.keys import INTERRUPTED, OUTCOME, RESUME
from gateway.mcp.server.contract import McpCall, McpClient
from gateway.mcp.wire import ELICIT
from gateway.wire.jsonrpc import RpcError

ANSWER: Final = "answer"
"""The key of an answer that is no object: `input` is one."""
RESUME_PATH: Final = "/_meta/" + delta.escape(RESUME)
"""Where a call has the handle in its params."""
STATE_PATH: Final = "/requestState"
TRIES: Final = 3
"""How often a question is put to a client whose answers do not fit; then it is declined."""
_OUTCOME_PATH: Final = "/_meta/" + delta.escape(OUTCOME)


def elicitation(interrupt: Interrupt, client: McpClient) -> JsonObject | None:
    """Params of an `elicitation/create` for that client, None if it takes none, or the question has no form."""
    modes = forms.elicitation_modes(client.capabilities, client.version)
    return forms.as_elicitation(interrupt, modes, forms.dialect(client.version))


# --- as an answer ------------------------------------------------------------------------------------------------


def handle(run_id: str, interrupt_id: str) -> str:
    """The name of a run's question, for its client."""
    return f"{run_id}.{interrupt_id}"


def carried(run: Run, interrupt: Interrupt, output: bytes | None = None) -> JsonObject:
    """A question as `data` of an error, or for `_meta` of an answer; `output` is the published output so far."""
    data: JsonObject = {
        "interrupt": {
            "id": interrupt.id,
            "kind": interrupt.kind,
            "message": interrupt.message,
            "payload": interrupt.payload,
            "answerSchema": interrupt.answer_schema,
        },
        "resume": handle(run.id, interrupt.id),
        "run": run.id,
    }
    return data if output is None else {**data, "output": Raw(output)}


def interrupted_error(run: Run, interrupt: Interrupt, output: bytes | None = None) -> RpcError:
    """The error that answers a call while its run waits; `output` as in `carried`."""
    message = interrupt.message or f"the agent asks: {interrupt.kind}"
    return RpcError(INTERRUPTED, message, carried(run, interrupt, output))


# --- the call that answers ---------------------------------------------------------------------------------------


def resumed(meta: JsonObject) -> tuple[str, str] | None:
    """(run, interrupt) that a call answers, None for one that starts a run. Raises Invalid for what is no handle."""
    return None if RESUME not in meta else named(meta[RESUME], RESUME_PATH)


def named(resume: Json, path: str) -> tuple[str, str]:
    """(run, interrupt) of a handle. Raises Invalid."""
    run_id, dot, interrupt_id = resume.partition(".") if isinstance(resume, str) else ("", "", "")
    if not (run_id and dot and interrupt_id):
        raise Invalid(f"{path}: no handle of a question", path=path)
    return run_id, interrupt_id


def state_of(run_id: str, misses: int = 0) -> str:
    """The state that a modern client sends back: the run, and how many answers did not fit."""
    return f"{run_id}.{misses}"


def given(interrupt: Interrupt, value: Json, outcome: Json = None, *, path: str = _OUTCOME_PATH) -> Answer:
    """The answer that a call gives with its input and `_meta["interlingua/outcome"]` (at `path`, for complaints).

    A question whose answer is no object takes it as `{"answer": value}`; a bare choice, or another text, is taken for
    what it means (`gateway.contract.reading`). Raises Invalid for an unknown outcome.
    """
    try:
        said = Outcome.ANSWERED if outcome is None else Outcome(outcome)
    except ValueError:
        known = ", ".join(Outcome)
        raise Invalid(f"{path}: there is no outcome {outcome!r}, only {known}", path=path) from None
    if said is not Outcome.ANSWERED:
        return Answer(outcome=said)
    if isinstance(value, dict) and value.keys() == {ANSWER} and not takes(interrupt, ANSWER):
        value = value[ANSWER]
    return Answer(value=reading.answered(interrupt.answer_schema, value))


def as_input(interrupt: Interrupt, answer: Answer) -> JsonObject:
    """The `input` of a call that answers a question of another gateway's: what `given` makes the same answer of."""
    value = answer.value
    if answer.outcome is not Outcome.ANSWERED:
        return {}
    if isinstance(value, dict) and (value.keys() != {ANSWER} or takes(interrupt, ANSWER)):
        return value
    return {ANSWER: value}


def takes(interrupt: Interrupt, key: str) -> bool:
    """Whether an answer may be an object with that key."""
    properties = interrupt.answer_schema.get("properties")
    return isinstance(properties, dict) and key in properties


def elsewhere(error: Invalid, places: Mapping[str, str]) -> Invalid:
    """The complaint with the place in the params; the longest beginning that is known counts."""
    before = max((each for each in places if error.path.startswith(each)), key=len, default=None)
    if before is None:
        return error
    path = places[before] + error.path.removeprefix(before)
    told = str(error)
    said = told.removeprefix(f"{error.path or '/'}: ")
    return Invalid(f"{path}: {said}" if said != told else told, path=path, detail=error.detail)


class QuestionFormat(Protocol):
    """Puts questions in the words of a protocol. Keeps no state."""

    def form(self, interrupt: Interrupt, call: McpCall) -> tuple[str, JsonObject] | None:
        """The request (method, params) that puts the question to the client of that call; None if there is none.

        Cheap, and asked more than once. In a modern revision it is not sent but handed back with the call.
        """

    async def ask(self, call: McpCall, method: str, params: JsonObject) -> Raw:
        """The client's result for that request. Raises what `McpCall.ask` does."""

    def again(self, params: JsonObject, why: str) -> JsonObject:
        """The same params once more, to be told with it why the answer to them did not fit."""

    def answer(self, interrupt: Interrupt, result: Json) -> Answer:
        """The answer in the client's result. Raises the tree's errors or ValueError if there is none: a refusal."""


class Elicitation:
    """`elicitation/create`, as far as the client takes forms and the question has one (gateway/mcp/forms.py)."""

    def form(self, interrupt: Interrupt, call: McpCall) -> tuple[str, JsonObject] | None:
        params = elicitation(interrupt, call.client)
        return None if params is None else (ELICIT, params)

    async def ask(self, call: McpCall, method: str, params: JsonObject) -> Raw:
        return await call.ask(method, params)

    def again(self, params: JsonObject, why: str) -> JsonObject:
        return {**params, "message": f"{why}\n\n{params.get('message', '')}"}

    def answer(self, interrupt: Interrupt, result: Json) -> Answer:
        return forms.elicitation_answer(interrupt, result)


ELICITATION: Final = Elicitation()
