"""Updates of version 2 to try the codec on: every kind the schema has, extra keys, unknown variants and all."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from adapters.agent_client.codec.v2 import updates
from adapters.agent_client.codec.v2.agents import agent_of
from adapters.agent_client.codec.v2.memory import SessionMemory
from adapters.agent_client.codec.v2.updates_in import V2UpdateDecoder
from adapters.agent_client.codec.v2.updates_out import V2UpdateEncoder
from gateway.core import events as e
from gateway.core.stream import Opener, coalesce
from gateway.core.types import Agent, ThreadUpdate
from tests.adapters.agent_client.codec_cases import ANY, BLOCKS, META, PLAIN_TEXT, dumped, extended
from tests.core.json_values import FLOATS, SOUND

SCHEMA = json.loads((Path(__file__).parents[2] / "specs/agent-client/v2/schema.json").read_text(encoding="utf-8"))
ANSWER = {
    "protocolVersion": 2,
    "info": {"name": "coder", "version": "1"},
    "capabilities": {"session": {"prompt": {"image": {}}}},
}
NEWER = agent_of(ANSWER, "the agent")


@cache
def validator(name: str, kind: str | None = None) -> Draft202012Validator:
    """`kind`: of the alternatives of an update only the one that can fit it, which saves most of the time."""
    schema: Any = {"$ref": f"#/$defs/{name}"}
    if kind is not None:
        ways = SCHEMA["$defs"][name]["anyOf"]
        fitting = [way for way in ways if way["properties"]["sessionUpdate"].get("const") == kind]
        schema = fitting[0] if fitting else ways[-1]
    return Draft202012Validator({"$defs": SCHEMA["$defs"], **schema})


def valid(name: str, value: Any) -> Any:
    """The value, if it is what the schema of version 2 calls by that name."""
    kind = value.get("sessionUpdate") if name == "SessionUpdate" else None
    errors = [f"{error.json_path}: {error.message[:200]}" for error in validator(name, kind).iter_errors(value)]
    assert not errors, (value, errors)
    return value


# --- there and back ----------------------------------------------------------------------------------------------


def read(updates: Iterable[Any], known: SessionMemory | None = None, end: e.Event | None = None) -> list[e.Event]:
    """The events of one run whose agent sends these updates, as the log has them: legal, written and read again.

    What is noted on the thread stands among them as a Custom, its name "note".
    """
    decoder, opener = V2UpdateDecoder(known), Opener()
    said = [event for update in updates for event in decoder.feed(dumped(update))]
    said += [*decoder.close(), end or e.RunFinished()]
    events = [_noted(each) if isinstance(each, ThreadUpdate) else each for each in said]
    return [e.decode(e.encode(event)) for event in opener.feed(events)]


def _noted(update: ThreadUpdate) -> e.Event:
    data = {"protocol": update.protocol, "kind": update.kind, "data": update.data, "kept": update.kept}
    return e.Custom(name="note", data=data)


def note_of(event: e.Event) -> ThreadUpdate | None:
    """The note that stands there."""
    return ThreadUpdate(**event.data) if isinstance(event, e.Custom) and event.name == "note" else None


def written(
    events: Sequence[e.Event], agent: Agent | None = NEWER, *, size: int = 3, bursts: bool = False
) -> list[Any]:
    """What a client of version 2 is told of these events, that come in batches of a size; `bursts`: coalesced."""
    encoder, numbered = V2UpdateEncoder(agent, run="r"), list(enumerate(events, 1))
    out: list[Any] = []
    for at in range(0, len(numbered), size):
        batch = numbered[at : at + size]
        piece: list[tuple[int, e.Event]] = []
        for number, event in [*batch, (0, e.RunStarted())]:
            note = note_of(event)
            if note is None and number:
                piece.append((number, event))
                continue
            out += [json.loads(update) for update in encoder.feed(coalesce(piece) if bursts else piece)]
            piece = []
            said = updates.told(note) if note is not None else None
            if said is not None:
                out.append(said)
    return out


# --- strategies --------------------------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "m1", "call_1", "a#2", ""])
_BASE64 = st.binary(max_size=6).map(lambda data: base64.b64encode(data).decode())
UNKNOWN_BLOCKS = extended({"type": st.just("_chart")}, {"points": ANY})
ALL_BLOCKS = BLOCKS | UNKNOWN_BLOCKS | st.just({"type": "text", "text": "x", "annotations": {"audience": ["_bot"]}})


def _update(kind: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    return extended({"sessionUpdate": st.just(kind), **required}, optional)


def chunks(kind: str) -> st.SearchStrategy[Any]:
    plain = st.fixed_dictionaries({"sessionUpdate": st.just(kind), "messageId": IDS, "content": PLAIN_TEXT})
    return plain | plain | _update(kind, {"messageId": IDS, "content": ALL_BLOCKS})


def wholes(kind: str) -> st.SearchStrategy[Any]:
    content = st.none() | st.lists(PLAIN_TEXT, max_size=3) | st.lists(ALL_BLOCKS, max_size=3)
    return _update(kind, {"messageId": IDS}, {"content": content, "_meta": st.none() | META})


CHUNKS = chunks("agent_message_chunk") | chunks("agent_thought_chunk") | chunks("user_message_chunk")
WHOLES = wholes("agent_message") | wholes("agent_thought") | wholes("user_message")
MESSAGES = CHUNKS | WHOLES
_CHANGES = st.lists(
    extended({"operation": st.sampled_from(["add", "delete", "modify"]), "path": SOUND}, {"fileType": st.just("text")})
    | extended({"operation": st.just("move"), "path": SOUND, "oldPath": SOUND})
    | extended({"operation": st.just("_touch")}),
    max_size=2,
)
ITEMS = (
    extended({"type": st.just("content"), "content": ALL_BLOCKS})
    | extended(
        {"type": st.just("diff"), "changes": _CHANGES},
        {"patch": st.none() | st.fixed_dictionaries({"format": st.just("git_patch"), "text": SOUND})},
    )
    | extended({"type": st.just("terminal"), "terminalId": SOUND})
    | extended({"type": st.just("_canvas")})
)
_LOCATIONS = st.lists(extended({"path": SOUND}, {"line": st.none() | st.integers(0, 9)}), max_size=2)
CALLS = _update(
    "tool_call_update",
    {"toolCallId": IDS},
    {
        "title": st.none() | SOUND,
        "kind": st.none() | st.sampled_from(["read", "edit", "other", "_dream"]),
        "status": st.none() | st.sampled_from(["pending", "in_progress", "completed", "failed", "cancelled", "_odd"]),
        "content": st.none() | st.lists(ITEMS, max_size=2),
        "locations": st.none() | _LOCATIONS,
        "rawInput": ANY,
        "rawOutput": ANY,
    },
) | _update("tool_call_content_chunk", {"toolCallId": IDS, "content": ITEMS})
_ENTRIES = st.lists(
    extended(
        {
            "content": SOUND,
            "priority": st.sampled_from(["high", "medium", "low", "_odd"]),
            "status": st.sampled_from(["pending", "in_progress", "completed", "cancelled", "_odd"]),
        }
    ),
    max_size=3,
)
PLANS = _update(
    "plan_update",
    {
        "plan": extended({"type": st.just("items"), "planId": IDS | st.just("main"), "entries": _ENTRIES})
        | extended({"type": st.just("_graph"), "planId": IDS})
    },
) | _update("plan_removed", {"planId": IDS})
TERMINALS = _update(
    "terminal_update",
    {"terminalId": IDS},
    {
        "command": st.none() | SOUND,
        "cwd": st.none() | st.just("/tmp"),
        "output": st.none() | extended({"data": _BASE64}),
        "exitStatus": st.none() | extended({}, {"exitCode": st.none() | st.integers(0, 255), "signal": st.none()}),
    },
) | _update("terminal_output_chunk", {"terminalId": IDS, "data": _BASE64})
_VALUES = st.lists(extended({"value": SOUND, "name": SOUND}), max_size=2)
_OPTIONS = st.lists(
    extended(
        {"configId": SOUND, "name": SOUND, "type": st.just("select"), "currentValue": SOUND, "options": _VALUES},
        {"category": st.none() | st.sampled_from(["mode", "model", "_odd"])},
    )
    | extended(
        {
            "configId": SOUND,
            "name": SOUND,
            "type": st.just("select"),
            "currentValue": SOUND,
            "options": st.lists(extended({"groupId": SOUND, "name": SOUND, "options": _VALUES}), max_size=2),
        }
    )
    | extended({"configId": SOUND, "name": SOUND, "type": st.just("boolean"), "currentValue": st.booleans()})
    | extended({"configId": SOUND, "name": SOUND, "type": st.just("_slider")}),
    max_size=2,
)
_INPUT = st.none() | extended({"type": st.just("text"), "hint": SOUND}) | extended({"type": st.just("_form")})
STATES = (
    _update(
        "available_commands_update",
        {"availableCommands": st.lists(extended({"name": SOUND, "description": SOUND}, {"input": _INPUT}), max_size=2)},
    )
    | _update("config_option_update", {"configOptions": _OPTIONS})
    | _update("session_info_update", {}, {"title": st.none() | SOUND, "updatedAt": st.none() | SOUND})
)
_COST = extended({"amount": FLOATS, "currency": st.just("USD")})
USAGE = _update("usage_update", {"used": st.integers(0, 9), "size": st.integers(0, 9)}, {"cost": st.none() | _COST})
UNKNOWN = _update("_weather", {"sky": ANY}) | _update("notice", {"severity": SOUND, "title": SOUND})
ODD_STATES = _update("state_update", {"state": st.just("_dreaming")}) | st.just(
    {"sessionUpdate": "state_update", "state": "running", "_meta": {"a": 1}}
)
OTHERS = PLANS | TERMINALS | STATES | USAGE | UNKNOWN | ODD_STATES
UPDATES = st.one_of(MESSAGES, CALLS, OTHERS)
"""Whatever the schema allows, but for the plain states, which are the run's own."""
ODD = st.builds(
    lambda update, key, value: {**update, key: value},
    UPDATES,
    st.sampled_from(["content", "toolCallId", "plan", "used", "messageId", "status", "title", "kind", "state"]),
    ANY,
)
"""What it does not allow."""
