"""Another gateway's question that it could not ask us: it ended the call, and the next call answers it."""

from __future__ import annotations

from dataclasses import dataclass

from adapters.agent_communication.outbound.request import data_of
from gateway.core.types import Answer, Interrupt, JsonObject, Outcome
from gateway.mcp.runs.keys import INTERRUPTED, OUTCOME, RESUME
from gateway.mcp.runs.questions import as_input
from gateway.mcp.wire import META
from gateway.wire.jsonrpc import RpcError


@dataclass(frozen=True)
class Question:
    """`handle` names it to the other gateway, whose run waits for the answer."""

    interrupt: Interrupt
    handle: str

    def answered(self, params: JsonObject, answer: Answer) -> JsonObject:
        """The params of the call that answers it; `params` are those of the run."""
        meta = {**params.get(META, {}), RESUME: self.handle}
        if answer.outcome is not Outcome.ANSWERED:
            meta[OUTCOME] = answer.outcome.value
        return {**params, "input": as_input(self.interrupt, answer), META: meta}


def question(error: RpcError) -> Question | None:
    """The question that an error carries, None where it is an error."""
    data = data_of(error) if error.error.code == INTERRUPTED else None
    asked = data.get("interrupt") if isinstance(data, dict) else None
    handle = data.get("resume") if isinstance(data, dict) else None
    if not isinstance(asked, dict) or not isinstance(handle, str):
        return None
    id, kind, message, schema = (asked.get(key) for key in ("id", "kind", "message", "answerSchema"))
    interrupt = Interrupt(
        id=id if isinstance(id, str) and id else "question",
        kind=kind if isinstance(kind, str) and kind else "input",
        payload=asked.get("payload"),
        message=message if isinstance(message, str) else "",
        answer_schema=schema if isinstance(schema, dict) else {},
    )
    return Question(interrupt, handle)
