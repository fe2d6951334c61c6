"""Version 1: a prompt is answered when its run has ended."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from adapters.agent_client import wire
from adapters.agent_client.codec import questions, turn
from adapters.agent_client.codec import updates_out as out
from adapters.agent_client.codec.updates_out import UpdateEncoder
from adapters.agent_client.codec.v2.wire import UPDATE
from adapters.agent_client.inbound import config_options, turns
from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.inbound.turns import PromptTurn
from adapters.agent_client.inbound.updates import Form, RunUpdates, Take
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.core import events as e
from gateway.core.errors import InterlinguaError
from gateway.core.types import Agent, Answer, Interrupt, Run, ThreadUpdate
from gateway.wire.jsonrpc import RpcError


class V1SessionUpdates:
    """See `SessionUpdates`."""

    tells_ends = False

    def __init__(self, session: SessionContext) -> None:
        self._session = session

    async def prepare(self) -> None:
        pass

    def say(self, *updates: bytes) -> None:
        if self._session.choosing:
            updates = tuple(config_options.completed(self._session, update) for update in updates)
        self._session.tell(*updates)

    def run(self, run: Run, agent: Agent | None, *, mine: bool, past: bool) -> RunUpdates:
        return V1RunUpdates(self._session, self, run, agent, mine=mine)

    async def prompt(self, asked: wire.Prompt, take: Take, *, cancelled: bool) -> JsonObject:
        """Nothing but "cancelled" once the turn was cancelled."""
        mine = PromptTurn(cancelled=cancelled)
        self._session.begin(mine)
        try:
            how = await mine.over if await take(mine) else turns.CANCELLED
        except InterlinguaError as error:
            if mine.cancelled:
                return turns.CANCELLED
            raise turns.refusal(error) from error
        finally:
            self._session.finish(mine)
        if isinstance(how, RpcError):
            raise how
        return how

    def news(self, update: ThreadUpdate) -> list[bytes]:
        said = update.data
        if update.protocol != PROTOCOL or not isinstance(said, dict) or UPDATE not in said:
            return []
        return [out.update(said)]

    def remember(self, said: JsonObject) -> None:
        pass

    def is_mode(self, option: str) -> bool:
        return False

    def text(self, said: str, id: str) -> list[bytes]:
        return [out.text(said)]

    def user(self, blocks: Sequence[JsonObject], id: str) -> list[bytes]:
        return out.user(blocks)

    def call(self, update: bytes | None) -> list[bytes]:
        return [] if update is None else [update]

    def form(self, interrupt: Interrupt, modes: frozenset[str]) -> Form | None:
        if interrupt.kind == "elicitation" and (params := questions.as_elicitation(interrupt, modes)) is not None:
            return "elicitation/create", params, questions.elicitation_answer
        if (params := questions.as_permission(interrupt)) is not None:
            return "session/request_permission", params, questions.permission_answer
        if (params := questions.as_elicitation(interrupt, modes)) is not None:
            return "elicitation/create", params, questions.elicitation_answer
        return None

    def asked(self, turn: PromptTurn | None) -> None:
        if turn is not None:
            turn.end(turns.END_TURN)

    def misunderstood(self, turn: PromptTurn, said: Sequence[bytes]) -> None:
        self.say(*said)
        turn.end(turns.END_TURN)

    def over(self, turn: PromptTurn | None, how: JsonObject | RpcError) -> None:
        if turn is not None:
            turn.end(how)

    def standing(self) -> None:
        pass


class V1RunUpdates:
    """See `RunUpdates`."""

    def __init__(
        self, session: SessionContext, updates: V1SessionUpdates, run: Run, agent: Agent | None, *, mine: bool
    ) -> None:
        self.encoder = UpdateEncoder(agent, replay=not mine)
        self._session = session
        self._say = updates.say
        self._run = run
        self._agent = agent
        self._mine = mine

    async def begin(self, *, quiet: bool) -> None:
        """The client knows what it said itself."""
        if not (self._mine or quiet):
            self._say(*out.user(await turns.said(self._session.gateway, self._run, self._agent)))

    async def tell(self, updates: Sequence[bytes]) -> None:
        self._say(*updates)

    def skip(self, updates: Sequence[bytes]) -> None:
        pass

    def state_of(self, event: e.Custom) -> list[bytes] | None:
        return None

    def resumed(self, answer: Answer, *, open: bool) -> list[bytes]:
        return []

    def replied(self, interrupt: Interrupt, said: str | None, *, here: bool) -> list[bytes]:
        return [] if here or said is None else out.user([{"type": "text", "text": said}])

    def waiting(self) -> None:
        pass

    def snapshot(self, *, asks: bool) -> None:
        pass

    async def close(self, run: Run) -> None:
        pass

    def over(self, run: Run) -> None:
        mine = self._session.turn
        if mine is not None and self._session.owns(run):
            mine.end(self._end(run))

    def _end(self, run: Run) -> JsonObject | RpcError:
        """How the prompt is answered."""
        encoder = self.encoder
        losses = {**encoder.losses, **run.losses}  # the last ones came too late to be counted in the record
        try:
            run = replace(run, losses=losses)
            return turn.prompt_result(run, encoder.end, agent=self._agent, usage=encoder.usage)
        except RpcError as error:
            return error
