"""Answers a session's prompts, here as in version 1 at the end of their run, and tells its client what is of no run.

follower.py tells of runs; updates_v2.py has what differs in version 2.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from adapters.agent_client import wire
from adapters.agent_client.codec import updates_out_v1 as out
from adapters.agent_client.codec.event_forms import KEY
from adapters.agent_client.codec.version import V1, ProtocolVersion
from adapters.agent_client.inbound import config_options, turns
from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.inbound.turns import PromptTurn
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.core.errors import InterlinguaError
from gateway.core.types import Json, ThreadUpdate
from gateway.wire import jsonrpc

STATES: Final = frozenset(
    {"available_commands_update", "current_mode_update", "config_option_update", "session_info_update"}
)
"""Updates of which only the newest counts: history leaves them out, and the newest are told after it."""

Take = Callable[[PromptTurn], Awaitable[bool]]
"""Begins what a prompt asks for. See `EditorSession.take`."""


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
