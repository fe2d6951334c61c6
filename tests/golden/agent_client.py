"""Agent Client: what recorded agents said, read; what clients are sent, written.

Lines are those of standard input and output. What is written was read back with the models of the official SDK,
`agent-client-protocol` 0.12.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from adapters.agent_client.codec import agents, questions, turn
from adapters.agent_client.codec import updates_out_v1 as updates_out
from adapters.agent_client.codec.updates_in import SpokenSession, UpdateDecoder
from adapters.agent_client.codec.updates_out import envelope
from adapters.agent_client.codec.updates_out_v1 import V1UpdateEncoder
from adapters.agent_client.wire import ORIGIN_V2, PROTOCOL, SessionUpdate
from gateway.core import events as e
from gateway.core.types import Agent, Interrupt, Run, ThreadUpdate
from gateway.wire import jsonrpc, ndjson, sse
from gateway.wire.jsonrpc import Notification, Request, Response, RpcError, unpack
from tests.golden import agent_client_v2

# --- reads: what an agent says -----------------------------------------------------------------------------------


def _lines(chunks: Iterable[bytes]) -> Iterator[jsonrpc.Message]:
    splitter = ndjson.Splitter()
    for line in [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.close():
        assert isinstance(line, bytes)
        yield jsonrpc.decode(line)


def _heard(messages: Iterable[jsonrpc.Message]) -> list[e.Event]:
    """What the outbound half makes of one turn: updates, permission questions (which go through `ask`), the end."""
    decoder = UpdateDecoder()
    events: list[e.Event] = []
    for message in messages:
        if isinstance(message, Notification):
            for event in decoder.feed(unpack(message.params, SessionUpdate).update):
                if isinstance(event, ThreadUpdate):  # goes through `note`
                    event = e.Custom(name=event.protocol, data=event.data)  # noqa: PLW2901
                events.append(event)
        elif isinstance(message, Request) and message.method == "session/request_permission":
            params = unpack(message.params)
            known = decoder.call(params["toolCall"]["toolCallId"])
            events.append(e.Interrupted(interrupt=questions.permission(params, f"q{message.id}", known)))
        elif isinstance(message, Response) and message.error is not None:
            error = message.error
            events += [*decoder.close(failed=True), turn.failed(RpcError(error.code, error.message, error.data))]
        elif isinstance(message, Response):
            events += [*decoder.close(), *turn.ended(message.result)]
    return events


def _turn(chunks: Iterable[bytes], given: Any) -> list[e.Event]:
    """A turn on standard output."""
    return _heard(_lines(chunks))


def _streamed(chunks: Iterable[bytes], given: Any) -> list[e.Event]:
    """A turn on a session's stream of Streamable HTTP."""
    decoder = sse.SseDecoder()
    return _heard(jsonrpc.decode(frame.data) for chunk in chunks for frame in decoder.feed(chunk))


def _between(chunks: Iterable[bytes], given: Any) -> Any:
    """Updates that belong to no turn."""
    session = SpokenSession()
    said = [unpack(m.params, SessionUpdate).update for m in _lines(chunks) if isinstance(m, Notification)]
    return json.loads(msgspec.json.encode([each for update in said for each in session.stray(update)]))


def _agent(chunks: Iterable[bytes], given: Any) -> Any:
    """An answer of `initialize`, as the agent it describes; its own words, kept whole, left out."""
    (message,) = _lines(chunks)
    assert isinstance(message, Response)
    found = agents.agent_of(unpack(message.result), "the agent")
    assert found.extra == {"agent_client": unpack(message.result)}
    return json.loads(msgspec.json.encode(msgspec.structs.replace(found, extra={})))


# --- writes: what a client is sent -------------------------------------------------------------------------------


def _told(events: list[tuple[int, e.Event]], given: Any) -> bytes:
    """A turn: the updates, then the answer of `session/prompt` with the request's id. Given: agent, run, id."""
    agent, run = msgspec.convert(given["agent"], Agent), _record(given["run"])
    if given.get("native"):
        newer: dict[str, Any] = {ORIGIN_V2: {}} if given.get("v2") else {}
        agent = msgspec.structs.replace(agent, extra={"agent_client": {"protocolVersion": 1}, **newer})
    encoder, whole = V1UpdateEncoder(agent), envelope(run.thread or "")
    lines = [line for at in range(len(events)) for line in whole(encoder.feed(events[at : at + 1]))]
    lines += whole(encoder.finish(run))
    try:
        answer = turn.prompt_result(run, encoder.end, agent=agent, usage=encoder.usage)
        lines.append(jsonrpc.result(given["id"], answer))
    except RpcError as error:
        lines.append(jsonrpc.error(given["id"], error.error))
    return b"".join(line + b"\n" for line in lines)


def _asked(value: Any, given: Any) -> bytes:
    """A question as each of the protocol's requests that can ask it, then in words."""
    interrupt = msgspec.convert(value, Interrupt)
    asked = [
        ("session/request_permission", questions.as_permission(interrupt)),
        ("elicitation/create", questions.as_elicitation(interrupt, ("form", "url"))),
    ]
    lines = [jsonrpc.request(0, method, {"sessionId": "s", **params}) for method, params in asked if params is not None]
    lines += envelope("s")([updates_out.text(questions.as_text(interrupt))])
    return b"".join(line + b"\n" for line in lines)


def _noted(value: Any, given: Any) -> bytes:
    """Notes of a thread as updates; those of what only version 2 has left out."""
    noted = [update.data for update in msgspec.convert(value, list[ThreadUpdate]) if update.protocol == PROTOCOL]
    return b"".join(line + b"\n" for line in envelope("s")([updates_out.update(said) for said in noted]))


def _published(value: Any, given: Any) -> bytes:
    """The answer of `initialize`."""
    return jsonrpc.result(0, agents.initialize_result(msgspec.convert(value, Agent))) + b"\n"


def _record(value: Any) -> Run:
    return msgspec.json.decode(msgspec.json.encode(value), type=Run)


READ = {"turn": _turn, "stream": _streamed, "between": _between, "agent": _agent, **agent_client_v2.READ}
WRITE = {"turn": _told, "question": _asked, "notes": _noted, "agent": _published, **agent_client_v2.WRITE}
