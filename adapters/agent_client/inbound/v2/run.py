"""Tells one client of version 2 of one run: the prompt, states, updates, and the end."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Final

import msgspec

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec import turn as turn_v1
from adapters.agent_client.codec.v2 import turn
from adapters.agent_client.codec.v2 import updates_out as out
from adapters.agent_client.codec.v2.updates_out import V2UpdateEncoder
from adapters.agent_client.codec.v2.wire import ORIGIN_V2, REQUIRES_ACTION, RUNNING, STATE, UPDATE, WHOLE
from adapters.agent_client.inbound import turns
from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.inbound.turns import V2PromptTurn, answer_id, message_id
from adapters.agent_client.inbound.updates import STATES, RunUpdates
from adapters.agent_client.inbound.v2.state import V2SessionState
from adapters.agent_client.wire import PROTOCOL
from gateway.core import events as e
from gateway.core.types import Agent, Answer, Interrupt, Outcome, Run, RunStatus, StopReason, ThreadUpdate

ANSWERED: Final = b""
"""Stands among updates where a question has been answered."""
_USER: Final = frozenset(("user_message", "user_message_chunk"))
_WORK: Final = frozenset((*WHOLE, *WHOLE.values(), "tool_call_update", "tool_call_content_chunk")) - _USER
_CONTENT: Final = b',"content":'
_CHUNKS: Final = frozenset(("agent_message_chunk", "agent_thought_chunk"))


class _About(msgspec.Struct, rename="camel"):
    """The subject of an update."""

    session_update: str = ""
    message_id: str | None = None


head: Final = msgspec.json.Decoder(_About).decode


class _Aside(bytes):
    """An update that says nothing of the run."""


class V2RunUpdates(RunUpdates):
    """See `RunUpdates`.

    What was said comes before everything else of the run, and not before the prompt is answered. An agent of version 2
    says it itself; where it begins to work without having done so, it is said for it.
    """

    def __init__(
        self, session: SessionContext, state: V2SessionState, run: Run, agent: Agent | None, *, mine: bool, past: bool
    ) -> None:
        super().__init__(session, run, agent, mine=mine)
        self.encoder = self._encoder = V2UpdateEncoder(agent, run=run.id)
        self._state = state
        self._past = past
        self._history = state.history if past else None
        self._rounds = None if self._encoder.says_user else AnswerRounds(run.id)
        self._unsaid = False
        self._dismissed = 0

    @property
    def _prompt(self) -> V2PromptTurn | None:
        """The client's prompt that the run belongs to, if that is not over."""
        mine = self._session.turn
        return mine if isinstance(mine, V2PromptTurn) and self._session.owns(self._run) else None

    # --- updates ----------------------------------------------------------------------------------------------

    async def begin(self, *, quiet: bool) -> None:
        self._unsaid = not quiet
        if self._unsaid and self._agent is not None and not self._encoder.says_user:
            await self._say_user()

    def tell(self, updates: Sequence[bytes]) -> Awaitable[None] | None:
        mine = self._session.turn
        if (self._unsaid and updates) or (mine is not None and mine.answers is not None):
            return self._tell_once_answered(updates)
        self._tell(updates)
        return None

    async def _tell_once_answered(self, updates: Sequence[bytes]) -> None:
        if self._unsaid and updates:
            updates = await self._first(updates)
        if (mine := self._session.turn) is not None and mine.answers is not None:
            await self._answered()
        self._tell(updates)

    def _tell(self, updates: Sequence[bytes]) -> None:
        mine = self._session.turn
        if self._dismissed:  # the agent goes on, unless this is the end
            if self._dismissed > 1 and updates and not (mine is not None and mine.cancelled):
                updates = [*self._state.to(RUNNING), *updates]
            self._dismissed = 2 if self._dismissed == 1 or not updates else 0
        updates = self._named(updates)
        self._session.tell(*(updates if self._history is None else self._history.fold(updates)))

    def skip(self, updates: Sequence[bytes]) -> None:
        self._named(updates)

    def _named(self, updates: Sequence[bytes]) -> Sequence[bytes]:
        if self._rounds is not None:
            return self._rounds.named(updates)
        return [update for update in updates if update != ANSWERED] if ANSWERED in updates else updates

    async def _say_user(self) -> None:
        name = message_id(self._run.id)
        await self._accepted(name)
        blocks = await turns.said(self._session.gateway, self._run, self._agent)
        self._session.tell(*([out.user(blocks, name)] if blocks else ()), *self._running())

    async def _first(self, updates: Sequence[bytes]) -> Sequence[bytes]:
        """Updates of an agent that is to say what was said to it."""
        for number, update in enumerate(updates):
            if update == ANSWERED or isinstance(update, _Aside):
                continue
            about = head(update)
            if about.session_update in _USER and about.message_id is not None:
                await self._accepted(about.message_id)
                return [*updates[: number + 1], *self._running(), *updates[number + 1 :]]
            if about.session_update in _WORK:
                await self._say_user()
                return updates
        return updates

    async def _accepted(self, name: str) -> None:
        """Called when the user's message is in the conversation, by this id. Returns once the prompt is answered."""
        self._unsaid = False
        mine = self._prompt if self._mine else None
        if mine is not None:
            mine.accept({"messageId": name})
            await mine.answered.wait()

    async def _answered(self) -> None:
        mine = self._prompt
        if mine is not None:
            await mine.answered.wait()

    def _running(self) -> list[bytes]:
        return [] if self._past else self._state.to(RUNNING)

    def state_of(self, event: e.Custom) -> list[bytes] | None:
        data: Any = event.data
        kind = data.get(UPDATE) if isinstance(data, dict) else None
        if event.name == PROTOCOL and kind in STATES:
            return self._state.news(ThreadUpdate(protocol=PROTOCOL, kind=kind, data=data))
        if (event_forms.beyond(event, ORIGIN_V2) or {}).get("aside"):
            return [_Aside(update) for update in self.encoder.feed([(0, event)])]
        if event.name == ORIGIN_V2 and kind == STATE:
            return [] if self._past else self._state.agent_state(data, works=True)
        return None

    # --- questions --------------------------------------------------------------------------------------------

    def resumed(self, answer: Answer, *, open: bool) -> list[bytes]:
        """A cancelled run is most often about to end, and does not run before."""
        if self._past or open:
            return [ANSWERED]
        if answer.outcome is Outcome.CANCELLED:
            self._dismissed = 1
            return [ANSWERED]
        return [*self._state.to(RUNNING), ANSWERED]

    def replied(self, interrupt: Interrupt, said: str | None, *, here: bool) -> list[bytes]:
        mine = self._prompt if here else None
        blocks = [{"type": "text", "text": said}] if said is not None else []
        if mine is not None and mine.answers == interrupt.id:
            blocks = list(mine.blocks)
        return [out.user(blocks, answer_id(self._run.id, interrupt.id))] if blocks else []

    def waiting(self) -> None:
        self._session.tell(*self._state.to(REQUIRES_ACTION))

    def snapshot(self, *, asks: bool) -> None:
        self._session.tell(*self._state.to(REQUIRES_ACTION if asks else RUNNING, again=True))

    # --- the end ----------------------------------------------------------------------------------------------

    async def close(self, run: Run) -> None:
        """A prompt that the agent has not taken is answered with its error."""
        mine = self._prompt
        if self._unsaid and not (mine is not None and turn_v1.failed_run(run) and not mine.accepted.done()):
            await self._say_user()

    def over(self, run: Run) -> None:
        mine = None if self._past else self._prompt
        run = self._counted(run)
        said = turn.over(run, self.encoder.end, agent=self._agent, usage=self.encoder.usage)
        if mine is not None and not mine.accepted.done():
            said = []
        elif mine is not None and mine.cancelled and run.status is not RunStatus.CANCELLED:
            said = [turn.idle(StopReason.CANCELLED)]
        if self._past:
            said.pop()
        else:
            self._state.ended()
        if mine is not None:
            self._session.finish(mine)
            mine.end(self._result(run))
        self._session.tell(*said)


class AnswerRounds:
    """Tells what an agent says after a question has been answered as another message, so that it stands behind it.

    Clients of version 2 put what they are told of a message where that began, however much came in between. So the
    messages that the gateway has named begin anew with each answer. One that the agent has named is the agent's affair.
    Used for one run, by the order of its updates alone: so names are the same for all, each time.
    """

    def __init__(self, run: str) -> None:
        self._ours = f"{run}-"
        self._count = 0
        self._more: dict[str, list[str]] = {}  # message -> the names of what it went on as
        self._begun: dict[bytes, bytes] = {}  # how a chunk begins, up to its content -> how it does since the answer

    def named(self, updates: Sequence[bytes]) -> Sequence[bytes]:
        """The updates, ANSWERED left out."""
        if not self._count and ANSWERED not in updates:
            return updates
        out: list[bytes] = []
        for update in updates:
            if update == ANSWERED:
                self._count += 1
                self._begun.clear()
            elif self._count:
                at = update.find(_CONTENT)
                begins = self._begun.get(update[:at])
                out += self._renamed(update) if begins is None else [begins + update[at:]]
            else:
                out.append(update)
        return out

    def _renamed(self, update: bytes) -> list[bytes]:
        about = head(update)
        name = about.message_id
        if name is None or not name.startswith(self._ours):
            return [update]
        if about.session_update in _CHUNKS:
            other = f"{name}-{self._count}"
            known = self._more.setdefault(name, [])
            if other not in known:
                known.append(other)
            old, new = (b'"messageId":' + msgspec.json.encode(each) for each in (name, other))
            renamed = update.replace(old, new, 1)
            if (at := update.find(_CONTENT)) > 0 and old in update[:at]:
                self._begun[update[:at]] = renamed[: renamed.find(_CONTENT)]
            return [renamed]
        emptied = [
            {UPDATE: about.session_update, "messageId": each, "content": []} for each in self._more.get(name, ())
        ]
        return [update, *map(msgspec.json.encode, emptied)]
