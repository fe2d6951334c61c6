"""Tells the client of version 2 of one session, and answers its prompts (docs: prompt-lifecycle).

A prompt is answered when it is taken: with the id of the message that it has become, which both official SDKs demand.
What becomes of it is told by `state_update`s, to every client that has the session open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from adapters.agent_client import wire
from adapters.agent_client.codec.v2 import agents, turn
from adapters.agent_client.codec.v2 import updates_out as out
from adapters.agent_client.codec.v2.version import V2
from adapters.agent_client.codec.v2.wire import IDLE
from adapters.agent_client.codec.version import ProtocolVersion
from adapters.agent_client.inbound import config_options, turns
from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.inbound.turns import PromptTurn, V2PromptTurn, answer_id, message_id
from adapters.agent_client.inbound.updates import RunUpdates, SessionUpdates, Take
from adapters.agent_client.inbound.v2.run import V2RunUpdates
from adapters.agent_client.inbound.v2.state import V2SessionState
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.core import delta
from gateway.core.errors import InterlinguaError
from gateway.core.types import Agent, Json, Run, StopReason, ThreadUpdate
from gateway.wire.jsonrpc import RpcError


class V2SessionUpdates(SessionUpdates):
    """See `SessionUpdates`."""

    version: ProtocolVersion = V2

    def __init__(self, session: SessionContext) -> None:
        super().__init__(session)
        self._state = V2SessionState(session)

    async def prepare(self) -> None:
        self.remember(await config_options.settings(self._session))

    def remember(self, said: JsonObject) -> Json:
        return self._state.remember(said)

    def say(self, *updates: bytes) -> None:
        """Options are completed where they are told (`news`)."""
        self._session.tell(*updates)

    def news(self, update: ThreadUpdate) -> list[bytes]:
        return self._state.news(update)

    def is_mode(self, option: str) -> bool:
        return self._state.is_mode(option)

    def run(self, run: Run, agent: Agent | None, *, mine: bool, past: bool) -> RunUpdates:
        return V2RunUpdates(self._session, self._state, run, agent, mine=mine, past=past)

    def standing(self) -> None:
        if self._session.resumed:
            self.say(*self._state.to(self._state.state, again=True))

    # --- prompts ----------------------------------------------------------------------------------------------

    async def prompt(self, asked: wire.Prompt, take: Take, *, cancelled: bool) -> JsonObject:
        """An agent of version 2 names the message itself, and may still refuse it."""
        session = self._session
        blocks = [block for block in asked.prompt if isinstance(block, dict)]
        mine = V2PromptTurn(blocks, session.answered, cancelled=cancelled)
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
        if isinstance(how, RpcError):
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
        told = [out.user(mine.blocks, mine.mark), turn.running(), *said]
        self._later(mine, [*told, turn.idle(StopReason.END_TURN)])

    def asked(self, mine: PromptTurn | None) -> None:
        """The client may prompt, so the session is idle."""
        if self._state.state != IDLE:
            self.say(turn.idle(StopReason.END_TURN))
        self._state.ended()
        if mine is not None:
            self._finish(mine, turns.END_TURN)

    def over(self, mine: PromptTurn | None, how: JsonObject | RpcError) -> None:
        self.say(delta.encode(turn.failure(how)) if isinstance(how, RpcError) else turn.idle(StopReason.END_TURN))
        self._state.ended()
        if mine is not None:
            self._finish(mine, how)

    def _finish(self, mine: PromptTurn, how: JsonObject | RpcError) -> None:
        """Called when the turn that a prompt began is over."""
        self._session.finish(mine)
        mine.end(how)
