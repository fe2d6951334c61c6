"""Conversations: their state, their history, their files."""

import enum
from typing import TypeVar

from msgspec.structs import replace

from gateway.core.types.records import Json, JsonObject, Record
from gateway.core.types.runs import RunStatus

OWNER = "owner"
"""Key of `Thread.attributes`: the owner's id, left out for none. The store finds and counts threads by it."""


class ThreadStatus(enum.StrEnum):
    """The state of a thread, which is that of its newest run."""

    IDLE = "idle"
    BUSY = "busy"
    INTERRUPTED = "interrupted"
    ERROR = "error"

    @classmethod
    def after(cls, run: RunStatus) -> "ThreadStatus":
        """The status of a thread whose newest run has this one."""
        return _AFTER[run]


_AFTER = {
    RunStatus.PENDING: ThreadStatus.BUSY,
    RunStatus.RUNNING: ThreadStatus.BUSY,
    RunStatus.INTERRUPTED: ThreadStatus.INTERRUPTED,
    RunStatus.SUCCESS: ThreadStatus.IDLE,
    RunStatus.CANCELLED: ThreadStatus.IDLE,
    RunStatus.ERROR: ThreadStatus.ERROR,
    RunStatus.TIMEOUT: ThreadStatus.ERROR,
}

KEPT_UPDATES = 200
"""Updates of a thread that all count; more push out the oldest."""


class Role(enum.StrEnum):
    """The speaker of a message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class ThreadUpdate(Record, frozen=True, kw_only=True):
    """A change of a conversation outside its runs: modes, commands, title, stray output.

    `protocol` says whose words `kind` and `data` are in. Of most kinds only the newest counts; where `kept` is true
    every one does. `after` is the run that had last started when it came (set by the engine).
    """

    protocol: str
    kind: str
    data: Json = None
    kept: bool = False
    after: str | None = None


class Thread(Record, frozen=True, kw_only=True):
    """A conversation: what each protocol calls thread, session or task.

    `values` is the newest state that a client gave the thread, beside its messages; the whole state is derived from the
    checkpoints, or is with the agent (`Gateway.threads.state`). `checkpoint` is the newest one's id. `upstream` holds
    the outbound adapters' own ids, by agent name. `attributes` are the inbound adapter's own marks. `agent` is set
    where the protocol binds the thread to one (a task of an agent's), and `protocol` names the inbound that made it.
    `updates` are what came beside its runs, oldest first. `untold` is the oldest checkpoint that an agent has not been
    told of, by the agent's name; agents that know all of them are not in it.
    """

    id: str
    created_at: float
    updated_at: float
    protocol: str = ""
    agent: str | None = None
    metadata: JsonObject = {}
    attributes: JsonObject = {}
    values: Json = None
    checkpoint: str | None = None
    status: ThreadStatus = ThreadStatus.IDLE
    upstream: dict[str, JsonObject] = {}
    untold: dict[str, str] = {}
    updates: tuple[ThreadUpdate, ...] = ()

    @property
    def begun(self) -> bool:
        """Whether it has a state. (Records of older versions have `values` and no `checkpoint`.)"""
        return self.checkpoint is not None or self.values is not None


AnyThread = TypeVar("AnyThread", bound=Thread)


class ThreadChange(Record, frozen=True, kw_only=True):
    """An addition to a thread's record. The store applies it to the newest record, so that changes from several
    processes add up.

    Keys replace those of the same name in `metadata`, `attributes`, `upstream` and `untold`; the others stay. None in
    `untold` removes the key.
    """

    metadata: JsonObject = {}
    attributes: JsonObject = {}
    upstream: dict[str, JsonObject] = {}
    untold: dict[str, str | None] = {}
    updates: tuple[ThreadUpdate, ...] = ()

    def of(self, thread: AnyThread) -> AnyThread:
        """The thread with this change."""
        updates = thread.updates
        for update in self.updates:
            updates = with_update(updates, update)
        return replace(
            thread,
            metadata={**thread.metadata, **self.metadata},
            attributes={**thread.attributes, **self.attributes},
            upstream={**thread.upstream, **self.upstream},
            untold={name: point for name, point in {**thread.untold, **self.untold}.items() if point is not None},
            updates=updates,
        )


def with_update(updates: tuple[ThreadUpdate, ...], update: ThreadUpdate) -> tuple[ThreadUpdate, ...]:
    """The updates with one more: it takes the place of the last one of its kind unless every one counts.

    Of those that all count the oldest go when there are more than KEPT_UPDATES.
    """
    if update.kept:
        kept = [each for each in updates if each.kept]
        gone = kept[: max(0, len(kept) + 1 - KEPT_UPDATES)]
        return (*(each for each in updates if not any(each is old for old in gone)), update)
    same = (update.protocol, update.kind)
    return (*(each for each in updates if each.kept or (each.protocol, each.kind) != same), update)


class ChatMessage(Record, frozen=True, kw_only=True):
    """One message of a thread's record: text only, the rest by reference in `metadata`."""

    role: Role
    content: str
    id: str | None = None
    metadata: JsonObject = {}


class Checkpoint(Record, frozen=True, kw_only=True):
    """The thread's state after one run (or patch), as what this step added.

    `messages` are added to those before, or are all there are if `replaces`. `values` is the state beside the messages
    as a client gave it, None if this step left it as it was. A run's checkpoint has none: what older versions kept
    there is the run's output, and no state.
    """

    id: str
    thread: str
    created_at: float
    run: str | None = None
    values: Json = None
    messages: tuple[ChatMessage, ...] = ()
    replaces: bool = False
    metadata: JsonObject = {}


class Artifact(Record, frozen=True, kw_only=True):
    """A file an agent made or a client uploaded. `name` and `relative_path` are labels, never paths on our disk.

    `size` in bytes. `url` is where the gateway serves it. Belongs to a run, a thread or both.
    """

    id: str
    name: str
    run: str | None = None
    thread: str | None = None
    relative_path: str | None = None
    media_type: str = "application/octet-stream"
    size: int = 0
    agent_created: bool = True
    created_at: float = 0.0
    url: str = ""
    metadata: JsonObject = {}


class ThreadQuery(Record, frozen=True, kw_only=True):
    """Filter for threads; as `RunQuery`. `attributes`: the thread's marks have these keys with these values."""

    agent: str | None = None
    protocol: str | None = None
    status: ThreadStatus | None = None
    metadata: JsonObject = {}
    attributes: JsonObject = {}
    limit: int = 10
    offset: int = 0
    oldest_first: bool = False
