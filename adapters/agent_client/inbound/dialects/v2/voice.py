"""What the client of one session of version 2 is told, and its prompts (docs: prompt-lifecycle).

A prompt is answered when it is taken: with the id of the message that it has become, which both official SDKs demand.
What becomes of it is told by `state_update`s, to every client that has the session open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec.plain import CHUNKS
from adapters.agent_client.codec.v2 import agents, questions, shapes, states, turn
from adapters.agent_client.codec.v2 import updates_out as out
from adapters.agent_client.codec.v2.wire import IDLE, MODE, ORIGIN_V2, REQUIRES_ACTION, RUNNING, STATE, UPDATE
from adapters.agent_client.inbound import choices, turns
from adapters.agent_client.inbound.dialects import Account
from adapters.agent_client.inbound.dialects.v1 import as_answer
from adapters.agent_client.inbound.dialects.v2.account import V2Account
from adapters.agent_client.inbound.dialects.v2.folding import Folding
from adapters.agent_client.inbound.dialects.v2.prompts import Prompt, answer_id, message_id
from adapters.agent_client.inbound.turns import Turn
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.core.errors import InterlinguaError, Invalid
from gateway.core.types import Agent, Interrupt, Json, Run, StopReason, ThreadUpdate
from gateway.wire.jsonrpc import RpcError

if TYPE_CHECKING:
    from adapters.agent_client.inbound.asking import Form, Questions
    from adapters.agent_client.inbound.session import Session


class V2Voice:
    """See `Voice`.

    state: how the client was last told that the session stands.
    modes, options: the session's, in version 1's words. Modes are an option here: neither is told without the other.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.state = IDLE
        self.modes: Json = None
        self.options: Json = None
        self.folding = Folding()
        """Of the history, while that is told."""
        self._strand = ("", "")  # what was last said between runs: after which run, and by whom
        self._strands = 0

    async def prepare(self) -> None:
        """See `Voice.prepare`."""
        self.remember(await choices.settings(self._session))

    def remember(self, said: JsonObject) -> None:
        """What an answer said of modes and options."""
        self.modes = said.get("modes", self.modes)
        self.options = said.get("configOptions", self.options)

    def account(self, run: Run, agent: Agent | None, *, mine: bool, past: bool) -> Account:
        """See `Voice.account`."""
        return V2Account(self._session, self, run, agent, mine=mine, past=past)

    @property
    def unanswered(self) -> bool:
        """See `Voice.unanswered`."""
        mine = self._session.turn
        return isinstance(mine, Prompt) and not mine.accepted.done()

    # --- prompts ----------------------------------------------------------------------------------------------

    async def prompt(self, asked: wire.Prompt, params: Raw, *, cancelled: bool) -> JsonObject:
        """See `Voice.prompt`. An agent of version 2 names the message itself, and may still refuse it."""
        session = self._session
        blocks = [block for block in asked.prompt if isinstance(block, dict)]
        mine = Prompt(blocks=blocks, cancelled=cancelled)
        session.turn = mine
        session.connection.linger_for(mine.over)
        try:
            if not await session.take(mine, asked, params):
                self._later(mine, self._unheard(mine))
            elif (name := await self._named(mine)) is not None:
                mine.accept({"messageId": name})
            how = await mine.accepted
        except InterlinguaError as error:
            self._untaken(mine)
            raise as_answer(error) from error
        except BaseException:
            self._untaken(mine)
            raise
        finally:
            asyncio.get_running_loop().call_soon(mine.answered.set)
        if isinstance(how, RpcError):
            raise how
        return how

    def _untaken(self, mine: Prompt) -> None:
        mine.over.cancel()
        if self._session.turn is mine:
            self._session.turn = None

    async def _named(self, mine: Prompt) -> str | None:
        """The id of what was said; None where the agent has yet to say it."""
        if mine.message is not None:
            return mine.message
        assert mine.run is not None
        if mine.answers is not None:
            return answer_id(mine.run, mine.answers)
        agent = await self._session.gateway.agent(self._session.agent, PROTOCOL)
        return None if agents.speaks_v2(agent) else message_id(mine.run)

    def _later(self, mine: Prompt, updates: Sequence[bytes]) -> None:
        """A prompt that came to nothing is taken all the same: say what was said, and why, once it is answered."""

        async def tell() -> None:
            await mine.answered.wait()
            self.say(updates)
            self.finish(mine, turns.END_TURN)

        mine.message = mine.message or mine.mark
        mine.accept({"messageId": mine.message})
        self._session.connection.keep(tell())

    def _unheard(self, mine: Prompt) -> list[bytes]:
        """It was cancelled before anything had begun."""
        return [*self.user(mine.blocks, mine.mark), turn.idle(StopReason.CANCELLED)]

    def misunderstood(self, mine: Turn, asking: Questions, question: Interrupt, why: Invalid) -> None:
        """See `Voice.misunderstood`."""
        assert isinstance(mine, Prompt)
        said = [*self.user(mine.blocks, mine.mark), turn.running(), *asking.again(question, why)]
        self._later(mine, [*said, turn.idle(StopReason.END_TURN)])

    def asked(self, mine: Turn | None) -> None:
        """See `Voice.asked`. The client may prompt, so the session is idle."""
        self.say([] if self.state == IDLE else [turn.idle(StopReason.END_TURN)])
        self.state = IDLE
        if mine is not None:
            self.finish(mine, turns.END_TURN)

    def over(self, mine: Turn | None, how: JsonObject | RpcError) -> None:
        """See `Voice.over`."""
        self.say([out.update(turn.failure(how)) if isinstance(how, RpcError) else turn.idle(StopReason.END_TURN)])
        self.state = IDLE
        if mine is not None:
            self.finish(mine, how)

    def finish(self, mine: Turn, how: JsonObject | RpcError) -> None:
        """What a prompt began is over."""
        if self._session.turn is mine:
            self._session.turn = None
        mine.end(how)

    def ended(self) -> None:
        """The client is about to be told that a run has ended."""
        self.state = IDLE

    async def settled(self) -> None:
        """See `Voice.settled`."""
        await self._session.told()

    # --- states -----------------------------------------------------------------------------------------------

    def to(self, state: str, *, again: bool = False) -> list[bytes]:
        """The update that says that the session is running, or waits for an action. `again`: even if it was told."""
        if state == self.state and not again:
            return []
        self.state = state
        return [{RUNNING: turn.running, REQUIRES_ACTION: turn.requires_action, IDLE: turn.idle}[state]()]

    def standing(self) -> None:
        """See `Voice.standing`."""
        if self._session.resumed:
            self.say(self.to(self.state, again=True))

    def agent_state(self, said: JsonObject, *, works: bool) -> list[bytes]:
        """A `state_update` of an agent of version 2 that says more than which it is. `works`: a run is being told.

        Then it is not idle before the run has ended, and the end of the run says it.
        """
        state = said.get("state")
        if state == IDLE and works:
            return []
        if state in (IDLE, RUNNING, REQUIRES_ACTION):
            self.state = state
        return [out.update(said)]

    def say(self, updates: Sequence[bytes]) -> None:
        """Send updates."""
        self._session.tell(*updates)

    # --- words ------------------------------------------------------------------------------------------------

    def news(self, update: ThreadUpdate) -> list[bytes]:
        """See `Voice.news`."""
        data = update.data
        if update.protocol == ORIGIN_V2 and update.kind == STATE and isinstance(data, dict):
            return self.agent_state(data, works=self._session.busy)
        if update.protocol == PROTOCOL and isinstance(data, dict):
            if update.kind == "config_option_update" and isinstance(data.get("configOptions"), list):
                own = choices.choice(self._session)
                ids = [option["id"] for option in own]
                rest = [each for each in data["configOptions"] if isinstance(each, dict) and each.get("id") not in ids]
                self.options = [*own, *rest]
                data = {**data, "configOptions": self.options}
            elif update.kind == "current_mode_update" and isinstance(self.modes, dict):
                self.modes = {**self.modes, "currentModeId": data.get("currentModeId")}
            elif update.kept:
                data = self._stray(data, update.after or "session")
        noted = ThreadUpdate(protocol=update.protocol, kind=update.kind, data=data, after=update.after)
        said = states.told(noted, options=self.options, modes=self.modes)
        if said is None:
            return []
        if self._session.replaying:
            self.folding.heard(said)
        return [out.update(said)]

    def _stray(self, said: JsonObject, after: str) -> JsonObject:
        """What was said between runs. Chunks without an id that follow one another are one message."""
        kind = said.get(UPDATE)
        if kind not in CHUNKS or said.get("messageId") is not None:
            self._strand = (after, "")
            return said
        if (after, kind) != self._strand:
            self._strands = 1 if after != self._strand[0] else self._strands + 1
            self._strand = (after, kind)
        return {**said, "messageId": f"{after}-more-{self._strands}"}

    def is_mode(self, option: str) -> bool:
        """See `Voice.is_mode`."""
        known = len(shapes.options_to_v2(self.options))
        return option == MODE and len(shapes.options_to_v2(self.options, self.modes)) > known

    def completed(self, update: bytes) -> bytes:
        """See `Voice.completed`. Options are completed where they are told (`news`)."""
        return update

    def text(self, said: str, id: str) -> list[bytes]:
        """See `Voice.text`."""
        return [out.text(said, id)]

    def user(self, blocks: Sequence[JsonObject], id: str) -> list[bytes]:
        """See `Voice.user`."""
        return [out.user(blocks, id)]

    def call(self, update: bytes | None) -> list[bytes]:
        """See `Voice.call`. A question needs no tool call here."""
        return []

    def form(self, interrupt: Interrupt, modes: frozenset[str]) -> Form | None:
        """See `Voice.form`."""
        asked = questions.as_elicitation(interrupt, modes)
        if asked is not None:
            asked = whole(asked)
        if interrupt.kind == "elicitation" and asked is not None:
            return "elicitation/create", asked, questions.elicitation_answer
        if (params := questions.as_permission(interrupt)) is not None:
            return "session/request_permission", params, questions.permission_answer
        return None if asked is None else ("elicitation/create", asked, questions.elicitation_answer)


def whole(asked: JsonObject) -> JsonObject:
    """A form with all that the TypeScript SDK wants of it: the Python SDK of version 1 leaves out what goes without
    saying."""
    schema = asked.get("requestedSchema")
    if not isinstance(schema, dict) or ("type" in schema and "properties" in schema):
        return asked
    return {**asked, "requestedSchema": {"type": "object", "properties": {}, **schema}}
