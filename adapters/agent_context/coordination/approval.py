"""Asking a person before an agent is given a task (section 7.1), where its route or the options say so."""

from __future__ import annotations

from typing import Final

from adapters.agent_context.coordination.task_record import PendingApproval
from adapters.agent_context.wire.messages import DelegatedTask
from gateway.core.types import Answer, Interrupt, JsonObject, Outcome

KIND: Final = "permission"
APPROVAL: Final = "approve-"
"""Prefix of the ids of these questions."""
OPTION: Final = "optionId"
APPROVE: Final = "approve"
DECLINE: Final = "decline"
ANSWER_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {OPTION: {"enum": [APPROVE, DECLINE], "enumNames": ["Approve", "Decline"]}},
    "required": [OPTION],
}
PAYLOAD_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {"agent": {"type": "string"}, "why": {"type": "object"}, "task": {"type": "object"}},
    "required": ["agent", "why", "task"],
}


def question(task: DelegatedTask, asking: PendingApproval) -> Interrupt:
    """May this agent have the task?"""
    return Interrupt(
        id=f"{APPROVAL}{asking.number}-{asking.agent}",
        kind=KIND,
        message=f"Give the task {task.id} ({task.type}) to the agent {asking.agent}?",
        payload={
            "agent": asking.agent,
            "why": asking.why,
            "task": task.model_dump(by_alias=True, exclude_unset=True, exclude={"status"}),
        },
        answer_schema=ANSWER_SCHEMA,
    )


def approved(answer: Answer) -> bool:
    """Whether it was approved: nothing else than the choice of that option is."""
    chosen = answer.value.get(OPTION) if isinstance(answer.value, dict) else None
    return answer.outcome is Outcome.ANSWERED and chosen == APPROVE


def is_approval(interrupt: Interrupt) -> bool:
    """Whether a question of a task's run is about its agent, and not its agent's own."""
    return interrupt.kind == KIND and interrupt.id.startswith(APPROVAL)
