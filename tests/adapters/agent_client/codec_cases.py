"""Updates to try the codec on: every kind the schema has, as agents in use send them, extra keys and all."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from adapters.agent_client.codec.agents import agent_of
from adapters.agent_client.codec.updates_in import UpdateDecoder
from adapters.agent_client.codec.updates_out_v1 import V1UpdateEncoder
from gateway.core import events as e
from gateway.core.projection import MESSAGE_OUTPUT_SCHEMA, MESSAGE_SCHEMA
from gateway.core.stream import Opener
from gateway.core.types import Agent, ThreadUpdate
from tests.adapters.agent_client.outbound_agent import OPTIONS
from tests.core.json_values import FLOATS, INTEGERS, SOUND, json_values
from tests.support.examples import EXAMPLES

SCHEMA = json.loads((Path(__file__).parents[2] / "specs/agent-client/v1/schema.json").read_text(encoding="utf-8"))
NATIVE = agent_of({"protocolVersion": 1, "agentInfo": {"name": "coder", "version": "1"}}, "the agent")
FOREIGN = Agent(name="writer", input_schema=MESSAGE_SCHEMA, output_schema=MESSAGE_OUTPUT_SCHEMA, text_output="/message")
PARAMS = {
    "sessionId": "s",
    "toolCall": {"toolCallId": "c", "title": "Delete /etc", "rawInput": {"path": "/etc"}},
    "options": OPTIONS,
    "_meta": {"x": 1},
}
"""What an agent asks for permission."""
unhurried = settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
"""Property tests are judged by what they find, not by how long a busy machine takes over it."""


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$defs": SCHEMA["$defs"], "$ref": f"#/$defs/{name}"})


def valid(name: str, value: Any) -> Any:
    """The value, if it is what the protocol's schema calls by that name."""
    errors = [f"{error.json_path}: {error.message[:200]}" for error in validator(name).iter_errors(value)]
    assert not errors, (value, errors)
    return value


# --- there and back ----------------------------------------------------------------------------------------------


def read(updates: Iterable[Any]) -> list[e.Event]:
    """The events of one run whose agent sends these updates, as the log has them: legal, written and read again."""
    decoder, opener = UpdateDecoder(), Opener()
    said = [event for update in updates for event in decoder.feed(dumped(update))]
    said += [*decoder.close(), e.RunFinished()]
    events = [e.Custom(name=x.protocol, data=x.data) if isinstance(x, ThreadUpdate) else x for x in said]
    return [e.decode(e.encode(event)) for event in opener.feed(events)]


def written(events: Sequence[e.Event], agent: Agent | None = NATIVE, *, size: int = 3, replay: bool = False) -> Any:
    """What a client is told of these events, that come in batches of a size."""
    encoder, numbered = V1UpdateEncoder(agent, replay=replay), list(enumerate(events, 1))
    batches = [numbered[at : at + size] for at in range(0, len(numbered), size)]
    return [json.loads(update) for batch in batches for update in encoder.feed(batch)]


def dumped(update: Any) -> bytes:
    return json.dumps(update, separators=(",", ":")).encode()


def text_of(updates: Iterable[Any], kind: str = "agent_message_chunk") -> str:
    """All text of one kind of chunk."""
    chunks = [update["content"] for update in updates if update["sessionUpdate"] == kind]
    return "".join(chunk["text"] for chunk in chunks if chunk["type"] == "text")


# --- strategies --------------------------------------------------------------------------------------------------

ANY = json_values(SOUND, INTEGERS | FLOATS)
META = st.dictionaries(st.sampled_from(["traceparent", "claudeCode", "a"]), ANY, max_size=2)
IDS = st.sampled_from(["a", "b", "call_1", "m1", "p1", "a#2", ""])


def extended(required: dict[str, Any], optional: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    """An object, sometimes with `_meta` and with a key that no schema has."""
    more = {"_meta": st.none() | META, "x-extra": ANY}
    plain = st.fixed_dictionaries(required, optional=optional or {})
    return plain | st.fixed_dictionaries(required, optional={**(optional or {}), **more})


_ANNOTATIONS = st.none() | st.fixed_dictionaries(
    {},
    optional={"audience": st.lists(st.sampled_from(["user", "assistant"])), "priority": st.sampled_from([0, 0.5, 1])},
)
_NOTED = {"annotations": _ANNOTATIONS}
_BASE64 = st.binary(max_size=6).map(lambda data: base64.b64encode(data).decode())


def _block(kind: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    return extended({"type": st.just(kind), **required}, {**_NOTED, **(optional or {})})


TEXT_BLOCKS = _block("text", {"text": SOUND})
FILE_BLOCKS = (
    _block("image", {"data": _BASE64, "mimeType": st.just("image/png")}, {"uri": st.none() | SOUND})
    | _block("audio", {"data": _BASE64, "mimeType": st.just("audio/wav")})
    | _block("resource_link", {"name": SOUND, "uri": SOUND}, {"size": st.none() | st.integers(0, 9), "title": SOUND})
    | _block("resource", {"resource": extended({"uri": SOUND, "text": SOUND}, {"mimeType": st.none() | SOUND})})
    | _block("resource", {"resource": extended({"uri": SOUND, "blob": _BASE64})})
)
BLOCKS = TEXT_BLOCKS | FILE_BLOCKS
PLAIN_TEXT = st.fixed_dictionaries({"type": st.just("text"), "text": SOUND})


def _update(kind: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    return extended({"sessionUpdate": st.just(kind), **required}, optional)


def chunks(kind: str) -> st.SearchStrategy[Any]:
    plain = st.fixed_dictionaries({"sessionUpdate": st.just(kind), "content": PLAIN_TEXT})
    named = st.fixed_dictionaries({"sessionUpdate": st.just(kind), "content": PLAIN_TEXT, "messageId": IDS})
    noted = _update(kind, {"content": PLAIN_TEXT}, {"messageId": st.none() | IDS})
    return plain | named | noted | _update(kind, {"content": BLOCKS}, {"messageId": st.none() | IDS})


_TOOL_KINDS = st.sampled_from(["read", "edit", "execute", "other"])
_STATUSES = st.sampled_from(["pending", "in_progress", "completed", "failed"])
TOOL_CONTENT = (
    extended({"type": st.just("content"), "content": BLOCKS})
    | extended({"type": st.just("diff"), "path": SOUND, "newText": SOUND}, {"oldText": st.none() | SOUND})
    | extended({"type": st.just("terminal"), "terminalId": SOUND})
)
_TOOL = {
    "content": st.lists(TOOL_CONTENT, max_size=2),
    "locations": st.lists(extended({"path": SOUND}, {"line": st.none() | st.integers(0, 9)}), max_size=2),
    "rawInput": ANY,
    "rawOutput": ANY,
}
TOOL_CALLS = _update(
    "tool_call", {"toolCallId": IDS, "title": SOUND}, {"kind": _TOOL_KINDS, "status": _STATUSES, **_TOOL}
)
TOOL_UPDATES = _update(
    "tool_call_update",
    {"toolCallId": IDS},
    {
        "title": st.none() | SOUND,
        "kind": st.none() | _TOOL_KINDS,
        "status": st.none() | _STATUSES,
        **{key: st.none() | value for key, value in _TOOL.items()},
    },
)
_ENTRIES = st.lists(
    extended(
        {
            "content": SOUND,
            "priority": st.sampled_from(["high", "medium", "low"]),
            "status": st.sampled_from(["pending", "in_progress", "completed"]),
        }
    ),
    max_size=3,
)
_COST = extended({"amount": FLOATS, "currency": st.just("USD")})
_SELECT = extended(
    {
        "id": SOUND,
        "name": SOUND,
        "type": st.just("select"),
        "currentValue": SOUND,
        "options": st.lists(extended({"value": SOUND, "name": SOUND}), max_size=2),
    }
)
OTHERS = (
    _update("plan", {"entries": _ENTRIES})
    | _update("usage_update", {"used": st.integers(0, 9), "size": st.integers(0, 9)}, {"cost": st.none() | _COST})
    | _update(
        "available_commands_update", {"availableCommands": st.lists(extended({"name": SOUND, "description": SOUND}))}
    )
    | _update("current_mode_update", {"currentModeId": SOUND})
    | _update("config_option_update", {"configOptions": st.lists(_SELECT, max_size=2)})
    | _update("session_info_update", {}, {"title": st.none() | SOUND, "updatedAt": st.none() | SOUND})
)
NOTED = ("available_commands_update", "current_mode_update", "config_option_update", "session_info_update")
"""Kinds that are noted on the thread."""
CHUNKS = chunks("agent_message_chunk") | chunks("agent_thought_chunk") | chunks("user_message_chunk")
UPDATES = st.one_of(CHUNKS, TOOL_CALLS, TOOL_UPDATES, OTHERS)
"""Whatever the schema allows."""
STRANGE = _update("notice", {"title": ANY}) | st.dictionaries(st.just("sessionUpdate"), SOUND, min_size=1).map(dict)
ODD = st.builds(
    lambda update, key, value: {**update, key: value},
    UPDATES,
    st.sampled_from(["content", "toolCallId", "entries", "used", "messageId", "status", "title", "kind"]),
    ANY,
)
"""What it does not allow, and agents send."""


def selected(option_id: str) -> dict[str, Any]:
    """The answer that chooses an option."""
    return {"outcome": {"outcome": "selected", "optionId": option_id}}
