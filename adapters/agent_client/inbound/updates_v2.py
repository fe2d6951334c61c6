"""Tells the client of version 2 of one session, and answers its prompts (docs: prompt-lifecycle).

A prompt is answered when it is taken: with the id of the message that it has become, which both official SDKs demand.
What becomes of it is told by `state_update`s, to every client that has the session open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

import msgspec

from adapters.agent_client import wire
from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec import turn as turn_v1
from adapters.agent_client.codec.event_forms import CHUNKS
from adapters.agent_client.codec.updates_out import UpdateEncoder
from adapters.agent_client.codec.v2 import agents, conversions, turn, updates
from adapters.agent_client.codec.v2 import updates_out as out
from adapters.agent_client.codec.v2.updates_out import V2UpdateEncoder
from adapters.agent_client.codec.v2.version import V2
from adapters.agent_client.codec.v2.wire import CHUNK, IDLE, MODE, REQUIRES_ACTION, RUNNING, STATE, UPDATE, WHOLE
from adapters.agent_client.codec.version import ProtocolVersion
from adapters.agent_client.forwarded import KnownSettings
from adapters.agent_client.inbound import config_options, turns
from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.inbound.follower import PromptFollower
from adapters.agent_client.inbound.turns import PromptTurn, V2PromptTurn, answer_id, message_id
from adapters.agent_client.inbound.updates import STATES, SessionUpdates, Take
from adapters.agent_client.wire import ORIGIN_V2, PROTOCOL, JsonObject
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import InterlinguaError
from gateway.core.types import Answer, Interrupt, Json, Outcome, RunStatus, StopReason, ThreadUpdate
from gateway.wire import jsonrpc

_KEYS = {UPDATE, "messageId", "content"}
_USER: Final = frozenset(("user_message", "user_message_chunk"))
_WORK: Final = frozenset((*WHOLE, *WHOLE.values(), "tool_call_update", "tool_call_content_chunk")) - _USER


class MessageFolding:
    """History as whole messages: chunks of one message become the message (docs: session-setup, resuming).

    Used for one history. A message that is told in several batches, or runs, goes on by chunks in the later ones."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def heard(self, update: Mapping[str, Any]) -> None:
        """An update that is told as it is."""
        name, kind = update.get("messageId"), update.get(UPDATE)
        if isinstance(name, str) and isinstance(kind, str):
            self._told.add((CHUNK.get(kind, kind), name))

    def fold(self, updates: Sequence[bytes]) -> list[bytes]:
        """The same updates, the chunks of each message in the place of the first."""
        out: list[bytes | JsonObject] = []
        open: dict[tuple[str, str], list[Any]] = {}
        for update in updates:
            said: Any = msgspec.json.decode(update)
            name, kind = said.get("messageId"), said.get(UPDATE)
            whole = CHUNK.get(kind, kind)
            message = (whole, name)
            if not isinstance(name, str) or whole not in WHOLE:
                out.append(update)
            elif kind == whole or said.keys() != _KEYS:
                open.pop(message, None)
                self._told.add(message)
                out.append(update)
            elif message in open:
                _add(open[message], said["content"])
            else:
                content = open[message] = [said["content"]]
                begins = message not in self._told
                self._told.add(message)
                out.append({UPDATE: whole if begins else kind, "messageId": name, "content": content})
        return [each for one in out for each in ([one] if isinstance(one, bytes) else _encoded(one))]


def _encoded(piece: JsonObject) -> list[bytes]:
    """All of a message so far, or the chunks that it goes on by."""
    contents = piece["content"] if piece[UPDATE] in CHUNK else [piece["content"]]
    return [msgspec.json.encode({**piece, "content": each}) for each in contents]


def _add(content: list[Any], block: Any) -> None:
    last = content[-1]
    if _is_text(last) and _is_text(block):
        content[-1] = {"type": "text", "text": last["text"] + block["text"]}
    else:
        content.append(block)


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.keys() == {"type", "text"} and block["type"] == "text"


# --- one run --------------------------------------------------------------------------------------------------------


class _About(msgspec.Struct, rename="camel"):
    """The subject of an update."""

    session_update: str = ""
    message_id: str | None = None


head: Final = msgspec.json.Decoder(_About).decode


class _Aside(bytes):
    """An update that says nothing of the run."""


class V2PromptFollower(PromptFollower):
    """See `PromptFollower`.

    What was said comes before everything else of the run, and not before the prompt is answered. An agent of version 2
    says it itself; where it begins to work without having done so, it is said for it.
    """

    encoder: V2UpdateEncoder
    _updates: V2SessionUpdates
    _unsaid = False
    _dismissed = 0

    def _make_encoder(self) -> UpdateEncoder:
        return V2UpdateEncoder(self._agent, run=self.run.id)

    @property
    def _prompt(self) -> V2PromptTurn | None:
        """The client's prompt that the run belongs to, if that is not over."""
        mine = self._session.turn
        return mine if isinstance(mine, V2PromptTurn) and self._session.owns(self.run) else None

    # --- updates ----------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        self._unsaid = not self._quiet
        if self._unsaid and self._agent is not None and not self.encoder.says_user:
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
                updates = [*self._updates.to(RUNNING), *updates]
            self._dismissed = 2 if self._dismissed == 1 or not updates else 0
        self._session.tell(*(self._updates.history.fold(updates) if self._past else updates))

    async def _say_user(self) -> None:
        name = message_id(self.run.id)
        await self._accepted(name)
        blocks = await turns.said(self._session.gateway, self.run, self._agent)
        self._session.tell(*([out.user(blocks, name)] if blocks else ()), *self._running())

    async def _first(self, updates: Sequence[bytes]) -> Sequence[bytes]:
        for number, update in enumerate(updates):
            if isinstance(update, _Aside):
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
        return [] if self._past else self._updates.to(RUNNING)

    def state_of(self, event: e.Custom) -> list[bytes] | None:
        data: Any = event.data
        kind = event_forms.kind_of(data)
        if event.name == PROTOCOL and kind in STATES:
            return self._updates.news(ThreadUpdate(protocol=PROTOCOL, kind=kind, data=data))
        if (event_forms.beyond(event, ORIGIN_V2) or {}).get("aside"):
            return [_Aside(update) for update in self.encoder.feed([(0, event)])]
        if event.name == ORIGIN_V2 and kind == STATE:
            return [] if self._past else self._updates.agent_state(data, works=True)
        return None

    # --- questions --------------------------------------------------------------------------------------------

    def resumed(self, answer: Answer, *, open: bool) -> list[bytes]:
        """A cancelled run is most often about to end, and does not run before."""
        self.encoder.answered()
        if self._past or open:
            return []
        if answer.outcome is Outcome.CANCELLED:
            self._dismissed = 1
            return []
        return self._updates.to(RUNNING)

    def replied(self, interrupt: Interrupt, said: str | None, *, here: bool) -> list[bytes]:
        mine = self._prompt if here else None
        blocks = [{"type": "text", "text": said}] if said is not None else []
        if mine is not None and mine.answers == interrupt.id:
            blocks = list(mine.blocks)
        return [out.user(blocks, answer_id(self.run.id, interrupt.id))] if blocks else []

    def waits(self) -> None:
        self._session.tell(*self._updates.to(REQUIRES_ACTION))

    def snapshot(self, *, asks: bool) -> None:
        self._session.tell(*self._updates.to(REQUIRES_ACTION if asks else RUNNING, again=True))

    # --- the end ----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """A prompt that the agent has not taken is answered with its error."""
        mine = self._prompt
        if self._unsaid and not (mine is not None and turn_v1.failed_run(self.run) and not mine.accepted.done()):
            await self._say_user()

    def over(self) -> None:
        mine = None if self._past else self._prompt
        run = self._with_losses()
        said = turn.over(run, self.encoder.end, agent=self._agent, usage=self.encoder.usage)
        if mine is not None and not mine.accepted.done():
            said = []
        elif mine is not None and mine.cancelled and run.status is not RunStatus.CANCELLED:
            said = [turn.idle(StopReason.CANCELLED)]
        if self._past:
            said.pop()
        else:
            self._updates.ended()
        if mine is not None:
            self._session.finish(mine)
            mine.end(self._result(run))
        self._session.tell(*said)


# --- the session ----------------------------------------------------------------------------------------------------


class V2SessionUpdates(SessionUpdates):
    """See `SessionUpdates`.

    state: the last state that the client was told.
    settings: the session's modes and options. Modes are an option of version 2: neither is told without the other.
    history: what was told of the history, while that is told.
    """

    version: ProtocolVersion = V2

    def __init__(self, session: SessionContext) -> None:
        super().__init__(session)
        self.state = IDLE
        self.settings = KnownSettings()
        self.history = MessageFolding()
        self._strand = ("", "")  # what was last said between runs: after which run, and by whom
        self._strands = 0

    async def prepare(self) -> None:
        self.remember(await config_options.settings(self._session))

    def say(self, *updates: bytes) -> None:
        """Options are completed where they are told (`news`)."""
        self._session.tell(*updates)

    def standing(self) -> None:
        if self._session.resumed:
            self.say(*self.to(self.state, again=True))

    # --- states and options -----------------------------------------------------------------------------------

    def remember(self, said: JsonObject) -> Json:
        self.settings.answered(said)
        return self.settings.modes

    def to(self, state: str, *, again: bool = False) -> list[bytes]:
        """The update that says that the session is running, or waits for an action. `again`: even if it was told."""
        if state == self.state and not again:
            return []
        self.state = state
        return [turn.standing(state)]

    def agent_state(self, said: JsonObject, *, works: bool) -> list[bytes]:
        """A `state_update` of an agent of version 2 that says more than which it is. `works`: a run is being told.

        Then it is not idle before the run has ended, and the end of the run says it.
        """
        state = said.get("state")
        if state == IDLE and works:
            return []
        if state in (IDLE, RUNNING, REQUIRES_ACTION):
            self.state = state
        return [delta.encode(said)]

    def ended(self) -> None:
        self.state = IDLE

    def news(self, update: ThreadUpdate) -> list[bytes]:
        data = update.data
        if update.protocol == ORIGIN_V2 and update.kind == STATE and isinstance(data, dict):
            return self.agent_state(data, works=self._session.busy)
        if update.protocol == PROTOCOL and isinstance(data, dict):
            if update.kind == "config_option_update" and isinstance(data.get("configOptions"), list):
                own = config_options.choice(self._session)
                ids = [option["id"] for option in own]
                rest = [each for each in data["configOptions"] if isinstance(each, dict) and each.get("id") not in ids]
                data = {**data, "configOptions": [*own, *rest]}
            if update.kind in STATES:
                self.settings.heard(update.kind, data)
            elif update.kept:
                data = self._stray(data, update.after or "session")
        noted = ThreadUpdate(protocol=update.protocol, kind=update.kind, data=data, after=update.after)
        said = updates.told(noted, options=self.settings.options, modes=self.settings.modes)
        if said is None:
            return []
        if self._session.replaying:
            self.history.heard(said)
        return [delta.encode(said)]

    def _stray(self, said: JsonObject, after: str) -> JsonObject:
        """An update said between runs. Chunks without an id that follow one another are one message."""
        kind = said.get(UPDATE)
        if kind not in CHUNKS or said.get("messageId") is not None:
            self._strand = (after, "")
            return said
        if (after, kind) != self._strand:
            self._strands = 1 if after != self._strand[0] else self._strands + 1
            self._strand = (after, kind)
        return {**said, "messageId": f"{after}-more-{self._strands}"}

    def is_mode(self, option: str) -> bool:
        options, modes = self.settings.options, self.settings.modes
        known = len(conversions.options_to_v2(options))
        return option == MODE and len(conversions.options_to_v2(options, modes)) > known

    # --- prompts ----------------------------------------------------------------------------------------------

    async def prompt(self, asked: wire.Prompt, take: Take, *, cancelled: bool) -> JsonObject:
        """An agent of version 2 names the message itself, and may still refuse it."""
        session = self._session
        blocks = [block for block in asked.prompt if isinstance(block, dict)]
        mine = V2PromptTurn(blocks, cancelled=cancelled)
        session.begin(mine)
        session.client.linger_for(mine.over)
        try:
            if not await take(mine):  # it was cancelled before anything had begun
                self._later(mine, [out.user(blocks, mine.mark), turn.idle(StopReason.CANCELLED)])
            elif (name := await self._named(mine)) is not None:
                mine.accept({"messageId": name})
            how = await mine.accepted
        except InterlinguaError as error:
            self._untaken(mine)
            raise turns.refusal(error) from error
        except BaseException:
            self._untaken(mine)
            raise
        finally:
            asyncio.get_running_loop().call_soon(mine.answered.set)
        if isinstance(how, jsonrpc.RpcError):
            raise how
        return how

    def _untaken(self, mine: V2PromptTurn) -> None:
        mine.over.cancel()
        self._session.finish(mine)

    async def _named(self, mine: V2PromptTurn) -> str | None:
        """The id of what was said; None where the agent has yet to say it."""
        if mine.message is not None:
            return mine.message
        assert mine.run is not None
        if mine.answers is not None:
            return answer_id(mine.run, mine.answers)
        agent = await self._session.gateway.agents.get(self._session.agent, PROTOCOL)
        return None if agents.speaks_v2(agent) else message_id(mine.run)

    def _later(self, mine: V2PromptTurn, updates: Sequence[bytes]) -> None:
        """A prompt that came to nothing is taken all the same: say what was said, and why, once it is answered."""

        async def tell() -> None:
            await mine.answered.wait()
            self.say(*updates)
            self._finish(mine, turns.END_TURN)

        mine.heard()
        self._session.client.keep(tell())

    def misunderstood(self, mine: PromptTurn, said: Sequence[bytes]) -> None:
        assert isinstance(mine, V2PromptTurn)
        told = [out.user(mine.blocks, mine.mark), turn.standing(RUNNING), *said]
        self._later(mine, [*told, turn.idle(StopReason.END_TURN)])

    def asked(self, mine: PromptTurn | None) -> None:
        """The client may prompt, so the session is idle."""
        if self.state != IDLE:
            self.say(turn.idle(StopReason.END_TURN))
        self.ended()
        if mine is not None:
            self._finish(mine, turns.END_TURN)

    def over(self, mine: PromptTurn | None, how: JsonObject | jsonrpc.RpcError) -> None:
        self.say(
            delta.encode(turn.failure(how)) if isinstance(how, jsonrpc.RpcError) else turn.idle(StopReason.END_TURN)
        )
        self.ended()
        if mine is not None:
            self._finish(mine, how)

    def _finish(self, mine: PromptTurn, how: JsonObject | jsonrpc.RpcError) -> None:
        self._session.finish(mine)
        mine.end(how)
