"""Version 1: nothing is translated, and a prompt ends with its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Raw

from adapters.agent_client.codec import agents, questions, turn, updates_in
from adapters.agent_client.outbound.dialect import OptionsOf, PromptOwner, Send
from adapters.agent_client.wire import VERSION
from gateway.core import events as e
from gateway.core.errors import AgentGone
from gateway.core.types import Agent, Interrupt, JsonObject, ThreadUpdate
from gateway.wire.jsonrpc import Id


class AnsweredPrompt:
    """A prompt whose answer is its end. See `SentPrompt`."""

    answered = False

    def __init__(self, owner: PromptOwner) -> None:
        self._owner = owner

    async def run(self, send: Send, closed: asyncio.Future[AgentGone]) -> list[e.Event]:
        """See `SentPrompt`. The end is where the answer stands among the messages, not when the run has seen it."""
        self._owner.begins()
        try:
            answer = await send()
        finally:
            self._owner.ends()
        return turn.ended(answer)

    def cancelling(self) -> None:
        """See `SentPrompt`: the answer says what came of it."""


class Speech1:
    """How agents of version 1 speak in a session: the `SessionSpeech` of all of them."""

    def decoder(self) -> updates_in.UpdateDecoder:
        return updates_in.UpdateDecoder()

    def stray(self, update: Raw) -> Sequence[ThreadUpdate]:
        return (updates_in.stray(update),)

    def aside(self, update: ThreadUpdate) -> None:
        return None

    def prompt(self, owner: PromptOwner) -> AnsweredPrompt:
        return AnsweredPrompt(owner)


class Version1:
    """The `AgentDialect` of version 1."""

    version = VERSION

    def greeting(self, client: JsonObject, info: JsonObject) -> JsonObject:
        return {"protocolVersion": VERSION, "clientCapabilities": client, "clientInfo": info}

    def read_agent(self, initialized: JsonObject, source: str) -> Agent:
        return agents.agent_of(initialized, source)

    def opened(self) -> tuple[Speech1, None]:
        return SPEECH1, None

    def request(self, method: str, params: Any, options: OptionsOf) -> tuple[str, Any]:
        return method, params

    def result(self, method: str, result: Raw) -> Raw:
        return result

    def asked(self, method: str, params: Raw, id: Id = None) -> tuple[str, Raw]:
        return method, params

    def answered(self, method: str, answer: Any) -> Any:
        return answer

    def permission(self, asked: JsonObject, id: str, known: str | None) -> Interrupt:
        return questions.permission(asked, id, known)


SPEECH1 = Speech1()
V1 = Version1()
