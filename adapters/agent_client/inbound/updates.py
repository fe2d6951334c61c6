"""Tells a session's client of its runs and answers its prompts: here as in version 1, at the end of their run.

`SessionUpdates` serves one session, `RunUpdates` one run. updates_v2.py has those of version 2, which tells more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec.structs import replace

from adapters.agent_client import wire
from adapters.agent_client.codec import turn as codec
from adapters.agent_client.codec import updates_out_v1 as out
from adapters.agent_client.codec.event_forms import KEY
from adapters.agent_client.codec.updates_out import UpdateEncoder
from adapters.agent_client.codec.version import V1, ProtocolVersion
from adapters.agent_client.inbound import config_options, turns
from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.inbound.turns import PromptTurn
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.core import events as e
from gateway.core.errors import InterlinguaError
from gateway.core.types import Agent, Answer, Interrupt, Json, Run, ThreadUpdate
from gateway.wire import jsonrpc

STATES: Final = frozenset(
    {"available_commands_update", "current_mode_update", "config_option_update", "session_info_update"}
)
"""Updates of which only the newest counts: history leaves them out, and the newest are told after it."""

Take = Callable[[PromptTurn], Awaitable[bool]]
"""Begins what a prompt asks for. See `EditorSession.take`."""


class RunUpdates:
    """Tells one client of one run, here one of version 1.

    encoder: makes updates of the run's events, for `tell`.
    """

    def __init__(
        self,
        session: SessionContext,
        say: Callable[..., None],
        run: Run,
        agent: Agent | None,
        encoder: UpdateEncoder,
        *,
        mine: bool,
    ) -> None:
        """`mine`: a prompt of this client started the run. `say` is its `SessionUpdates.say`."""
        self.encoder = encoder
        self._session = session
        self._say = say
        self._run = run
        self._agent = agent
        self._mine = mine

    async def begin(self, *, quiet: bool) -> None:
        """The run is about to be told from its first event on: say what started it, unless the client knows. `quiet`:
        say nothing.
        """
        if not (self._mine or quiet):
            blocks = await turns.said(self._session.gateway, self._run, self._agent)
            self._say(*V1.user(blocks, turns.message_id(self._run.id)))

    def tell(self, updates: Sequence[bytes]) -> Awaitable[None] | None:
        """Say updates of the run. Returns what is to be awaited before the next, if there is anything."""
        if updates:
            self._say(*updates)
        return None

    def state_of(self, event: e.Custom) -> list[bytes] | None:
        """Updates for an agent's word of the session's state that the encoder is not to see; None for all else."""
        return None

    def resumed(self, answer: Answer, *, open: bool) -> list[bytes]:
        """Updates for a question that has been answered. `open`: others are not."""
        return []

    def replied(self, interrupt: Interrupt, said: str | None, *, here: bool) -> list[bytes]:
        """Updates for an answer in words: what the person said, if anything. `here`: by a prompt of this client."""
        name = turns.answer_id(self._run.id, interrupt.id)
        return [] if here or said is None else V1.user([{"type": "text", "text": said}], name)

    def waiting(self) -> None:
        """The client is being asked: say that the run waits for it."""

    def snapshot(self, *, asks: bool) -> None:
        """Everything that has happened by now was told; say how it stands. `asks`: questions are open."""

    async def close(self, run: Run) -> None:
        """The run has ended, and was told."""

    def over(self, run: Run) -> None:
        """Answer the prompt, or say how the run ended. Called last."""
        mine = self._session.turn
        if mine is not None and self._session.owns(run):
            mine.end(self._result(self._counted(run)))

    def _counted(self, run: Run) -> Run:
        """The run with all losses: the last ones came too late to be counted in the record."""
        return replace(run, losses={**self.encoder.losses, **run.losses}) if self.encoder.lossy else run

    def _result(self, run: Run) -> JsonObject | jsonrpc.RpcError:
        """How the prompt is answered at the run's end."""
        try:
            return codec.prompt_result(run, self.encoder.end, agent=self._agent, usage=self.encoder.usage)
        except jsonrpc.RpcError as error:
            return error


class SessionUpdates:
    """Makes the `session/update`s of one session, as bytes without their envelope.

    version: the version that its client speaks.
    """

    version: ProtocolVersion = V1

    def __init__(self, session: SessionContext) -> None:
        self._session = session

    async def prepare(self) -> None:
        """Prepare for a session that is not new. Raises what reading it raises."""

    def say(self, *updates: bytes) -> None:
        """Send updates, in this order. Dropped if the client has gone."""
        if self._session.choosing:
            updates = tuple(config_options.completed(self._session, update) for update in updates)
        self._session.tell(*updates)

    def run(self, run: Run, agent: Agent | None, *, mine: bool, past: bool) -> RunUpdates:
        """`mine`: a prompt of this client started the run. `past`: it is history."""
        encoder = out.V1UpdateEncoder(agent, replay=not mine)
        return RunUpdates(self._session, self.say, run, agent, encoder, mine=mine)

    async def prompt(self, asked: wire.Prompt, take: Take, *, cancelled: bool) -> JsonObject:
        """The answer of `session/prompt`: nothing but "cancelled" once the turn was cancelled.

        `cancelled`: it was given up before. Raises what `take` does.
        """
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
        if isinstance(how, jsonrpc.RpcError):
            raise how
        return how

    def news(self, update: ThreadUpdate) -> list[bytes]:
        """The updates that a word about the session is, an agent's or the gateway's own; none if it is no update."""
        said = update.data
        if update.protocol != PROTOCOL or not isinstance(said, dict) or KEY not in said:
            return []
        return [out.update(said)]

    def remember(self, said: JsonObject) -> Json:
        """Note what an answer says of the session. Returns its modes as they are then, if they count."""
        return None

    def is_mode(self, option: str) -> bool:
        """Whether the client sets the session's mode when it sets this option."""
        return False

    def asked(self, turn: PromptTurn | None) -> None:
        """The client was told a question that its next prompt answers. `turn` is its prompt that waits, if one does."""
        if turn is not None:
            turn.end(turns.END_TURN)

    def misunderstood(self, turn: PromptTurn, said: Sequence[bytes]) -> None:
        """A prompt was no answer to the question that is open: say so, in these updates, and end the turn."""
        self.say(*said)
        turn.end(turns.END_TURN)

    def over(self, turn: PromptTurn | None, how: JsonObject | jsonrpc.RpcError) -> None:
        """A run came to an end that was not told (it could not be)."""
        if turn is not None:
            turn.end(how)

    def standing(self) -> None:
        """Nothing goes on; say so, if that is said before a session that is resumed is answered for."""
