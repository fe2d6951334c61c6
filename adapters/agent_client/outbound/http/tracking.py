"""What is under way on one connection: which session a message belongs to, and who waits for what."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from adapters.agent_client.streamable import CANCEL_REQUEST, cancelled_in, session_in
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Id, Notification, Request, Response


class Asked(Struct, frozen=True, gc=False):
    """A request of ours that is not answered yet."""

    method: str
    session: str | None


class Tracking:
    """Told of every message, both ways. What is kept is bounded by what is under way."""

    def __init__(self) -> None:
        self._ours: dict[Id, Asked] = {}
        self._theirs: dict[Id, str] = {}

    def sent(self, message: jsonrpc.Message) -> str | None:
        """A message of ours; the session that it is about."""
        if isinstance(message, Response):
            return self._theirs.pop(message.id, None)
        if not isinstance(message, Request | Notification):
            return None
        session = session_in(message.params)
        if isinstance(message, Request):
            self._ours[message.id] = Asked(message.method, session)
        return session

    def heard(self, message: jsonrpc.Message, stream: str | None) -> Asked | None:
        """A message of the agent's, on the stream of that session; what it answers, if it does."""
        if isinstance(message, Response):
            return self._ours.pop(message.id, None)
        if isinstance(message, Request):
            session = session_in(message.params) or stream
            if session is not None:
                self._theirs[message.id] = session
        elif isinstance(message, Notification) and message.method == CANCEL_REQUEST:
            self._theirs.pop(cancelled_in(message.params), None)
        return None

    def unanswered(self, session: str) -> Iterator[Id]:
        """Our requests about a session, whose answers will not come. They are forgotten."""
        for id in [id for id, asked in self._ours.items() if asked.session == session]:
            del self._ours[id]
            yield id

    def forget(self, id: Id) -> None:
        """Nobody will answer this request of ours."""
        self._ours.pop(id, None)
