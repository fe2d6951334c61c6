"""Version 1: nothing is translated, and a prompt ends with its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from adapters.agent_client.codec import agents, questions, turn, updates_in
from adapters.agent_client.wire import VERSION
from gateway.core import events as e
from gateway.core.types import Agent, Interrupt, JsonObject, ThreadUpdate
from gateway.wire.jsonrpc import Id

if TYPE_CHECKING:
    from adapters.agent_client.outbound.connection import Connection
    from adapters.agent_client.outbound.session import Session
    from adapters.agent_client.outbound.turn import Turn


class Answered:
    """A prompt whose answer is its end."""

    answered = False

    def __init__(self, turn: Turn, session: Session) -> None:
        self._turn = turn
        self._session = session

    async def run(self, connection: Connection, params: JsonObject, named: Callable[[Id], None]) -> list[e.Event]:
        """The turn is over with the answer, and not when somebody has looked at it: what comes next is not its."""
        session = self._session
        session.turn = self._turn
        try:
            answer = await connection.ask("session/prompt", params, context=self._turn.context, named=named)
        finally:
            self._turn.over = True
            if session.turn is self._turn:
                session.turn = None
        return turn.ended(answer)

    def cancelling(self) -> None:
        """The answer says what came of it."""


class Version1:
    """See `Dialect`."""

    version = VERSION

    def greeting(self, client: JsonObject, info: JsonObject) -> JsonObject:
        return {"protocolVersion": VERSION, "clientCapabilities": client, "clientInfo": info}

    def read_agent(self, initialized: JsonObject, source: str) -> Agent:
        return agents.agent_of(initialized, source)

    def decoder(self, session: Session) -> updates_in.UpdateDecoder:
        return updates_in.UpdateDecoder()

    def stray(self, session: Session, update: Raw) -> Sequence[ThreadUpdate]:
        return (updates_in.stray(update),)

    def aside(self, update: ThreadUpdate) -> None:
        return None

    def foreground(self) -> None:
        return None

    def prompt(self, turn: Turn, session: Session) -> Answered:
        return Answered(turn, session)

    def request(self, method: str, params: Any, sessions: Mapping[str, Session]) -> tuple[str, Any]:
        return method, params

    def result(self, method: str, result: Raw) -> Raw:
        return result

    def asked(self, method: str, params: Raw, id: Id = None) -> tuple[str, Raw]:
        return method, params

    def answered(self, method: str, answer: Any) -> Any:
        return answer

    def permission(self, asked: JsonObject, id: str, known: str | None) -> Interrupt:
        return questions.permission(asked, id, known)


V1 = Version1()
