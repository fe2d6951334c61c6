"""Version 1, in whose words the gateway keeps what passes between agents and clients of this protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec import agents, event_forms, questions, updates_in
from adapters.agent_client.codec.updates_in import OUTPUT, UpdateDecoder
from adapters.agent_client.codec.v1 import updates_out
from adapters.agent_client.codec.version import Noted, ProtocolVersion, unknown
from adapters.agent_client.wire import ORIGIN_V2, PROTOCOL, VERSION
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Agent, Interrupt, JsonObject, ThreadUpdate
from gateway.wire import jsonrpc

_CONTENT: Final = (*event_forms.CHUNKS, "tool_call", "tool_call_update")
_V2_ONLY: Final = frozenset(("auth/login", "auth/logout"))
_V2: Final = ORIGIN_V2.encode()


class V1UpdateDecoder(UpdateDecoder):
    """See `UpdateDecoder`."""

    __slots__ = ()

    def _slowly(self, update: Raw | bytes) -> list[e.Event | ThreadUpdate]:
        said = updates_in.read(update)
        kind = said[event_forms.KEY]
        self._kind = ""
        events: list[e.Event] | None
        if kind in event_forms.CHUNKS:
            events = self._messages.chunk(kind, said)
            return [updates_in.own(said)] if events is None else [*events]
        said = delta.sound(said)
        if kind == "tool_call":
            events = self._tools.call(said)
            if events and isinstance(events[0], e.ToolCallStarted):
                events = [*self._messages.tool_called(), *events]
        elif kind == "tool_call_update":
            events = self._tools.update(said)
        elif kind == "plan":
            events = updates_in.plan(said)
        elif kind == "usage_update":
            events = [e.UsageReported(detail=said)] if event_forms.is_usage(said) else None
        else:
            return [ThreadUpdate(protocol=PROTOCOL, kind=kind, data=said)]
        return [updates_in.own(said)] if events is None else [*events]


def stray(update: Raw | bytes) -> ThreadUpdate:
    """An update that belongs to no run. Said content is `kind="output", kept=True`. Raises AgentBroken as `feed`."""
    said = updates_in.read(update)
    kind = said[event_forms.KEY]
    content = kind in _CONTENT
    return ThreadUpdate(protocol=PROTOCOL, kind=OUTPUT if content else kind, data=delta.sound(said), kept=content)


class V1Spoken:
    """See `SpokenSession`: nothing is remembered."""

    def decoder(self) -> V1UpdateDecoder:
        return V1UpdateDecoder()

    def stray(self, update: Raw) -> Sequence[ThreadUpdate]:
        return (stray(update),)

    def aside(self, update: ThreadUpdate) -> None:
        return None


class Version1(ProtocolVersion):
    """See `ProtocolVersion`."""

    number = VERSION
    acknowledges = False
    asks_as_calls = True

    def greeting(self, client: JsonObject, info: JsonObject) -> JsonObject:
        return {"protocolVersion": VERSION, "clientCapabilities": client, "clientInfo": info}

    def read_agent(self, initialized: JsonObject, source: str) -> Agent:
        return agents.agent_of(initialized, source)

    def session(self) -> V1Spoken:
        return V1Spoken()

    def permission(self, asked: JsonObject, id: str, known: str | None) -> Interrupt:
        return questions.permission(asked, id, known)

    def capabilities(self, asked: wire.Initialize) -> JsonObject:
        return wire.capabilities_of(asked)

    def from_client(self, method: str, params: Raw) -> tuple[str, Raw]:
        if method in _V2_ONLY:
            raise unknown(method)
        return method, params

    def client_answer(self, method: str, params: Raw, result: Any, noted: Noted) -> Any:
        """Only what is said of options can be more than version 1 knows."""
        if method not in wire.OPTIONS or (isinstance(result, Raw) and _V2 not in bytes(result)):
            return result
        said = jsonrpc.unpack(result) if isinstance(result, Raw) else result
        return updates_out.told(said)[0] if isinstance(said, dict) else said

    def form(self, interrupt: Interrupt, modes: frozenset[str]) -> questions.Form | None:
        return questions.form(interrupt, questions.as_elicitation(interrupt, modes), questions.as_permission(interrupt))

    def text(self, said: str, id: str) -> list[bytes]:
        return [updates_out.text(said)]

    def user(self, blocks: Sequence[JsonObject], id: str) -> list[bytes]:
        return updates_out.user(blocks)


V1: Final = Version1()
