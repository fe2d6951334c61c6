"""Tells an agent the turns of a conversation that it does not know.

The gateway's record of a thread (its checkpoints' messages) is put into the input of:

- an agent that keeps no threads, with every run;
- an agent whose own conversation is new on the thread: its first run there, a copied thread, a session that it lost;
- an agent that keeps threads and whose `Thread.untold` names a checkpoint: the turns since then, which others took.

`known_now` (threads.py) keeps `Thread.untold` up to date in the transaction of a run's end: nothing is told twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from gateway.agents.entry import Entry
from gateway.config import Memory
from gateway.core import memory, projection
from gateway.core.delta import ABSENT
from gateway.core.errors import Invalid
from gateway.core.memory import Recalled
from gateway.core.types import Agent, ChatMessage, Checkpoint, Json, Thread
from gateway.store import Store

PAGE: Final = 20


def knows_all(thread: Thread, agent: Agent, *, fresh: bool) -> bool:
    """Whether an agent knows all turns of a thread that it is to know. `fresh`: its own conversation is new."""
    return agent.capabilities.threads and not fresh and not thread.untold.get(agent.name)


class Conversation(Struct, frozen=True):
    """The thread of one run, as far as the run's agent must be told of it. `lost` counts what it is not told."""

    _store: Store
    _thread: Thread
    _agent: Agent
    _entry: Entry
    _lost: Callable[[str, int], None]

    @property
    def _options(self) -> Memory:
        return self._entry.route.memory

    async def recalled(self, given: Json, *, fresh: bool) -> Recalled:
        """`given`, the run's input, with the turns before it that the agent does not know (see `knows_all`)."""
        thread, agent, options = self._thread, self._agent, self._options
        if memory.replays(agent, options.mode, options.messages):
            whole = fresh or not agent.capabilities.threads
            return await self._replayed(given, None if whole else thread.untold.get(agent.name))
        if agent.capabilities.threads or agent.name not in thread.untold:
            self._lost(memory.LOST, 1)
        return Recalled(input=given)

    async def _replayed(self, given: Json, since: str | None) -> Recalled:
        messages = await self._messages(since)
        if messages:
            told = self._as_messages(given, messages) or self._as_text(given, messages)
            if told is not None and self._fits(told.input):
                return told
            self._lost(memory.LOST, 1)
        return Recalled(input=given)

    def _as_messages(self, given: Json, messages: Sequence[ChatMessage]) -> Recalled | None:
        place = self._chat()
        if place is None:
            return None
        document = memory.as_messages(given, *place, messages)
        return None if document is ABSENT else Recalled(input=document)

    def _chat(self) -> tuple[str, projection.Schema] | None:
        """Where messages go, and the schema that says how they are written."""
        schema, named = self._agent.input_schema, self._options.messages
        pointer = projection.chat_pointer(schema, named)
        if pointer is not None:
            return pointer, schema
        return None if named is None else (f"{named}/{projection.LAST}/content", None)

    def _as_text(self, given: Json, messages: Sequence[ChatMessage]) -> Recalled | None:
        before = memory.transcript(messages, self._options.template)
        document = projection.preceded(given, self._agent.text_input, before)
        return None if document is ABSENT else Recalled(input=document, before=before)

    def _fits(self, document: Json) -> bool:
        try:
            self._entry.validate("input", self._agent.input_schema, document, "/input")
        except Invalid:
            return False
        return True

    async def _messages(self, since: str | None) -> list[ChatMessage]:
        """The newest turns within the route's limits, oldest message first. `since`: the oldest to tell."""
        turns: list[Checkpoint] = []
        left, before = self._options.bytes, None
        while page := await self._store.history(self._thread.id, limit=PAGE, before=before):
            before = page[-1].id
            for point in page:
                left -= sum(len(one.content.encode()) for one in point.messages)
                if left < 0 or len(turns) == self._options.turns:
                    self._lost(memory.LOST, 1)
                    return _in_order(turns)
                if point.messages:
                    turns.append(point)
                if point.id == since or point.replaces:
                    return _in_order(turns)
            if len(page) < PAGE:
                break
        return _in_order(turns)


def _in_order(turns: Sequence[Checkpoint]) -> list[ChatMessage]:
    return [message for point in reversed(turns) for message in point.messages]
