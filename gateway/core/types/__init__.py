"""What the gateway talks about: agents, runs, threads, interrupts, artifacts.

Immutable records (`msgspec` structs); change one with `msgspec.structs.replace`. Times are seconds since the
epoch (float, UTC). JSON values are plain Python objects, except documents that pass through untouched: those
stay encoded (`msgspec.Raw`) so that nobody parses them on the way.

    records.py    what every record is made of
    agents.py     agents, as they are published
    questions.py  what agents ask in mid-run, and what comes back
    runs.py       what is asked for, and what became of it
    threads.py    conversations: their state, their history, their files
"""

from gateway.core.types.agents import (
    AGENT_NAMESPACE,
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
    "AGENT_NAMESPACE",
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
