"""Agent Client, version 2: what an agent made with the official Python SDK 1.0.0rc3 said; what clients are sent.

What is written was read back with the models of that SDK and with the schemas of the TypeScript SDK 2.4.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from adapters.agent_client.codec.agents import initialize_result
from adapters.agent_client.codec.updates_out import envelope
from adapters.agent_client.codec.v2 import agents, turn, updates, version
from adapters.agent_client.codec.v2.memory import SessionMemory
from adapters.agent_client.codec.v2.updates_in import V2SpokenSession, V2UpdateDecoder
from adapters.agent_client.codec.v2.updates_out import V2UpdateEncoder
from adapters.agent_client.codec.v2.version import V2
from adapters.agent_client.wire import ORIGIN_V2, SessionUpdate
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Agent, Interrupt, Run, ThreadUpdate
from gateway.wire import jsonrpc, ndjson
from gateway.wire.jsonrpc import Notification, Request, Response, unpack


def _lines(chunks: Iterable[bytes]) -> list[jsonrpc.Message]:
    splitter = ndjson.Splitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.close()
    return [jsonrpc.decode(line) for line in lines if isinstance(line, bytes)]


def _heard(chunks: Iterable[bytes], given: Any) -> list[e.Event]:
    """What the outbound half makes of a prompt's updates and questions, up to the idle state."""
    decoder, events = V2UpdateDecoder(SessionMemory()), list[e.Event]()
    for message in _lines(chunks):
        if isinstance(message, Notification):
            update = unpack(message.params, SessionUpdate).update
            state = unpack(update)
            if state.get("state") == "idle":
                events += [*decoder.close(), *turn.ended(state)]
            for event in decoder.feed(update):
                if isinstance(event, ThreadUpdate):  # goes through `note`
                    event = e.Custom(name=event.protocol, data=event.data)  # noqa: PLW2901
                events.append(event)
        elif isinstance(message, Request):
            asked, id = unpack(message.params), f"q{message.id}"
            asked["toolCall"] = version.tool_call_of(asked, id)
            events.append(e.Interrupted(interrupt=V2.permission(asked, id, None)))
    return events


def _between(chunks: Iterable[bytes], given: Any) -> Any:
    """Updates that belong to no turn."""
    session = V2SpokenSession()
    said = [unpack(m.params, SessionUpdate).update for m in _lines(chunks) if isinstance(m, Notification)]
    return json.loads(msgspec.json.encode([each for update in said for each in session.stray(update)]))


def _agent(chunks: Iterable[bytes], given: Any) -> Any:
    """An answer of `initialize`, as the agent that it describes to the rest of the gateway."""
    (message,) = _lines(chunks)
    assert isinstance(message, Response)
    found = agents.agent_of(unpack(message.result), "the agent")
    assert found.extra[ORIGIN_V2] == unpack(message.result)
    return found.extra["agent_client"]


def _told(events: list[tuple[int, e.Event]], given: Any) -> bytes:
    """A run: its updates, last the idle state. Given: run, agent, whether it speaks version 2."""
    agent, run = (
        msgspec.convert(given["agent"], Agent),
        msgspec.json.decode(msgspec.json.encode(given["run"]), type=Run),
    )
    if given.get("native"):
        agent = msgspec.structs.replace(agent, extra={"agent_client": {}, ORIGIN_V2: {}})
    encoder, whole = V2UpdateEncoder(agent, run=run.id), envelope(run.thread or "")
    lines = [line for at in range(len(events)) for line in whole(encoder.feed(events[at : at + 1]))]
    lines += whole(encoder.finish(run))
    lines += whole(turn.over(run, encoder.end, agent=agent, usage=encoder.usage))
    return b"".join(line + b"\n" for line in lines)


def _asked(value: Any, given: Any) -> bytes:
    """A question as a permission request."""
    params = version.as_permission(msgspec.convert(value, Interrupt))
    return jsonrpc.request(0, "session/request_permission", {"sessionId": "s", **(params or {})}) + b"\n"


def _noted(value: Any, given: Any) -> bytes:
    """Notes of a thread as updates; those that are none left out."""
    told = [updates.told(update) for update in msgspec.convert(value, list[ThreadUpdate])]
    lines = envelope("s")([delta.encode(said) for said in told if said is not None])
    return b"".join(line + b"\n" for line in lines)


def _published(value: Any, given: Any) -> bytes:
    """The answer of `initialize`."""
    agent = msgspec.convert(value, Agent)
    return jsonrpc.result(0, V2.initialized(agent, initialize_result(agent))) + b"\n"


READ = {"turn_v2": _heard, "between_v2": _between, "agent_v2": _agent}
WRITE = {"turn_v2": _told, "question_v2": _asked, "notes_v2": _noted, "agent_v2": _published}
