"""The model's records: agents, runs, threads, interrupts, artifacts.

Immutable records (`msgspec` structs); change one with `msgspec.structs.replace`. Times are seconds since the
epoch (float, UTC). JSON values are plain Python objects, except documents that pass through untouched: those
stay encoded (`msgspec.Raw`) so that nobody parses them on the way.

    records.py    the base of every record
    agents.py     agents, as they are published
    questions.py  interrupts of a run, and their answers
    runs.py       run requests, and runs
    threads.py    conversations: their state, their history, their files
"""

from gateway.core.types.agents import (
    Agent,
    AgentCapabilities,
    InterruptSpec,
    ModelTraits,
    Standing,
    agent_id,
    description,
)
from gateway.core.types.questions import (
    Answer,
    Identity,
    Interrupt,
    Outcome,
)
from gateway.core.types.records import (
    NULL,
    Json,
    JsonObject,
    Record,
)
from gateway.core.types.runs import (
    ENDED,
    UNFINISHED,
    Failure,
    IfBusy,
    Run,
    RunQuery,
    RunRequest,
    RunStatus,
    StopReason,
    Webhook,
)
from gateway.core.types.threads import (
    OWNER,
    Artifact,
    ChatMessage,
    Checkpoint,
    Role,
    Thread,
    ThreadChange,
    ThreadQuery,
    ThreadStatus,
    ThreadUpdate,
)

__all__ = [
    "ENDED",
    "NULL",
    "OWNER",
    "UNFINISHED",
    "Agent",
    "AgentCapabilities",
    "Answer",
    "Artifact",
    "ChatMessage",
    "Checkpoint",
    "Failure",
    "Identity",
    "IfBusy",
    "Interrupt",
    "InterruptSpec",
    "Json",
    "JsonObject",
    "ModelTraits",
    "Outcome",
    "Record",
    "Role",
    "Run",
    "RunQuery",
    "RunRequest",
    "RunStatus",
    "Standing",
    "StopReason",
    "Thread",
    "ThreadChange",
    "ThreadQuery",
    "ThreadStatus",
    "ThreadUpdate",
    "Webhook",
    "agent_id",
    "description",
]
