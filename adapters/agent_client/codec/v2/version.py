"""Version 2: other words, upserts instead of starts and updates, acknowledged prompts (docs: v2/migration).

Its updates become core events, with what they say beyond them under ORIGIN_V2 ("agent_client.v2"), so that version 2 in
and out loses nothing. Its requests, answers and questions are taken in version 1's words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client import forwarded, wire
from adapters.agent_client.codec import errors, event_forms
from adapters.agent_client.codec import questions as v1
from adapters.agent_client.codec.v2 import agents, conversions, tool_calls, updates_in, updates_out
from adapters.agent_client.codec.v2.wire import CALL, MODE, VERSION
from adapters.agent_client.codec.version import Noted, OptionsOf, ProtocolVersion
from adapters.agent_client.wire import OPENING, OPTIONS, as_object
from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.types import Agent, Interrupt, JsonObject
from gateway.wire import jsonrpc

_OWN: Final = ("toolCall", "options", "sessionId")
SET_OPTION: Final = "session/set_config_option"
_NAMES_V1: Final = {"auth/login": "authenticate", "auth/logout": "logout"}
_NAMES_V2: Final = {old: new for new, old in _NAMES_V1.items()}
CHANGED: Final = frozenset((*_NAMES_V1, *_NAMES_V2, *OPTIONS))
"""Methods of version 1 and 2 whose name, params or result differ. `initialize` is agents.py's."""
_START: Final[JsonObject] = {"type": "start"}
_V1_ONLY: Final = frozenset(("authenticate", "logout", "session/load", "session/set_mode"))
_OF_V1_CLIENTS: Final = ("fs/", "terminal/")
"""Beginnings of requests that are made of clients of version 1 alone."""


# --- permissions in version 2 ---------------------------------------------------------------------------------------
# The question in between is version 1's, so that whoever asks or answers in other words sees no difference: `toolCall`
# and `options`, with version 2's own keys (`title`, `description`, `subject`) beside them, verbatim.


def permission(params: JsonObject, id: str, known: str | None = None) -> Interrupt:
    """The question of a `session/request_permission` of version 2.

    `known` is what the tool call was called before (`UpdateDecoder.title`). Answers are version 1's, and
    `permission_result` is what the agent is answered. Raises Invalid (with path) for params without title or options.
    """
    title = params.get("title")
    if not isinstance(title, str):
        raise Invalid("a permission request needs a title", path="/title")
    said = {key: value for key, value in params.items() if key not in ("sessionId", "toolCall")}
    call = tool_call_of(params, id)
    found = v1.permission({"toolCall": call, "options": params.get("options")}, id, known)
    description = params.get("description")
    message = f"{title}\n\n{description}" if isinstance(description, str) and description else title
    return replace(found, payload=delta.sound({**said, "toolCall": call}), message=delta.sound(message))


def tool_call_of(params: JsonObject, id: str) -> JsonObject:
    """The tool call, in version 1's words, that a permission request of version 2 is about.

    A command is one that executes it. A request about nothing that is known is one of its own: then `id` names it.
    """
    subject = as_object(params.get("subject"))
    call = subject.get("toolCall")
    if subject.get("type") == "tool_call" and isinstance(call, dict) and isinstance(call.get("toolCallId"), str):
        said, _ = tool_calls.to_v1({**call, event_forms.KEY: CALL}, first=False)
        return {key: value for key, value in said.items() if key != event_forms.KEY}
    if subject.get("type") == "command" and isinstance(subject.get("command"), str):
        named = subject.get("toolCallId")
        return {
            "toolCallId": named if isinstance(named, str) else id,
            "title": subject["command"],
            "kind": "execute",
            "rawInput": {key: subject[key] for key in ("command", "cwd") if key in subject},
        }
    return {"toolCallId": id, "title": str(params.get("title")), "kind": "other"}


def as_permission(interrupt: Interrupt) -> JsonObject | None:
    """Params of a `session/request_permission` (without `sessionId`), None if the answer is no choice.

    What an agent of version 2 asked is asked verbatim, and whether a tool may be called is asked about that call. Any
    other question needs no tool call here: its payload is told as the description.

    `permission_answer` reads the answer.
    """
    payload = interrupt.payload
    if not v1.is_permission(interrupt):
        found = v1.as_permission(interrupt)
        if found is None:
            return None
        said: JsonObject = {"title": interrupt.message or interrupt.kind, "options": found["options"]}
        if v1.is_approval(interrupt):
            return {**said, **_approval(found["toolCall"], payload)}
        return said if payload is None else {**said, "description": event_forms.fenced(payload)}
    rest = {key: value for key, value in payload.items() if key not in _OWN}
    if v1.is_v2(payload):
        return {**rest, "options": payload["options"]}
    call, title = payload["toolCall"], payload["toolCall"].get("title")
    shown = title if isinstance(title, str) and title else interrupt.message or interrupt.kind
    return {**rest, "title": shown, "subject": _subject(call), "options": payload["options"]}


def _subject(call: JsonObject) -> JsonObject:
    said = tool_calls.to_v2({**call, event_forms.KEY: "tool_call_update"})
    return {"type": "tool_call", "toolCall": {key: value for key, value in said.items() if key != event_forms.KEY}}


def _approval(call: JsonObject, payload: JsonObject) -> JsonObject:
    """The subject of a gateway's question: the call has the tool's name, since the question has a title of its own."""
    why = payload.get("why")
    described = {"description": why} if isinstance(why, str) and why else {}
    return {"subject": _subject({**call, "title": str(payload["tool"])}), **described}


def whole(asked: JsonObject) -> JsonObject:
    """A form with all that the TypeScript SDK wants of it: the Python SDK of version 1 leaves out what goes without
    saying."""
    schema = asked.get("requestedSchema")
    if not isinstance(schema, dict) or ("type" in schema and "properties" in schema):
        return asked
    return {**asked, "requestedSchema": {"type": "object", "properties": {}, **schema}}


# --- requests between client and agent, version 1 to 2 and back -----------------------------------------------------
# Between the halves of the adapter requests are version 1's. The inbound half turns what a client of version 2 asks
# into that (`to_v1`) and answers it (`result_to_v2`); the outbound half asks an agent of version 2 (`to_v2`) and turns
# its answer back (`result_to_v1`). A method that is not in CHANGED is the same in both, params and result. Unknown keys
# are kept. Nothing here raises.


def to_v1(method: str, params: JsonObject) -> tuple[str, JsonObject]:
    """A client's request of version 2 in version 1's words: (method, params).

    `session/resume` from the start is `session/load`. Where an agent has modes and no option for them, setting the
    option "mode" is `set_mode` (below) instead.
    """
    if method in _NAMES_V1:
        return _NAMES_V1[method], params
    if method in OPENING:
        params = {**params, "mcpServers": conversions.servers_to_v1(params.get("mcpServers"))}
        start = params.get("replayFrom")
        if method == "session/resume" and isinstance(start, dict) and start.get("type") == "start":
            rest = {key: value for key, value in params.items() if key != "replayFrom" or start != _START}
            return "session/load", rest
        return method, params
    if method == SET_OPTION and params.get("type") == "id":
        return method, {key: value for key, value in params.items() if key != "type"}
    return method, params


def to_v2(method: str, params: JsonObject, *, mode: str = MODE) -> tuple[str, JsonObject]:
    """A request of version 1 for an agent of version 2. `mode` is the id of its option that is the mode."""
    if method in _NAMES_V2:
        return _NAMES_V2[method], params
    if method in OPENING:
        if "mcpServers" in params:
            params = {**params, "mcpServers": conversions.servers_to_v2(params["mcpServers"])}
        if method == "session/load":
            return "session/resume", {**params, "replayFrom": params.get("replayFrom", _START)}
        return method, params
    if method == SET_OPTION and "type" not in params:
        kind = "boolean" if isinstance(params.get("value"), bool) else "id"
        return method, {**params, "type": kind}
    if method == "session/set_mode":
        rest = {key: value for key, value in params.items() if key != "modeId"}
        return SET_OPTION, {**rest, "configId": mode, "type": "id", "value": params.get("modeId")}
    return method, params


def result_to_v1(method: str, result: Any) -> Any:
    """Convert a version 2 agent's answer to a request that is called `method` in version 1.

    The option that is the mode is told as `modes` too where a session is opened. A mode that is set is an option
    there, and the answer says what became of all options.
    """
    if not isinstance(result, dict) or method not in OPTIONS or not isinstance(result.get("configOptions"), list):
        return result
    options = conversions.options_to_v1(result["configOptions"])
    modes = conversions.modes_of(options) if method in OPENING else None
    return {**result, "configOptions": options, **({"modes": modes} if modes is not None else {})}


def result_to_v2(method: str, result: Any, *, modes: Any = None) -> Any:
    """The answer of a request that is called `method` in version 1, for a client of version 2.

    The session's modes become an option, unless there is one for them. `modes`: as they are now, where the result does
    not say them (`session/set_config_option`; and `session/set_mode`, after which `states.options` has them).
    """
    if not isinstance(result, dict) or method not in OPTIONS:
        return result
    modes = result.get("modes", modes)
    options = conversions.options_to_v2(result.get("configOptions"), modes)
    rest = {key: value for key, value in result.items() if key not in ("modes", "configOptions")}
    said = bool(options) or isinstance(result.get("configOptions"), list) or method not in OPENING
    return {**rest, "configOptions": options} if said else rest


# --- the version ----------------------------------------------------------------------------------------------------


class Version2(ProtocolVersion):
    """See `ProtocolVersion`."""

    number = VERSION
    acknowledges = True
    asks_as_calls = False

    def greeting(self, client: JsonObject, info: JsonObject) -> JsonObject:
        return agents.hello(client, info)

    def read_agent(self, initialized: JsonObject, source: str) -> Agent:
        return agents.agent_of(initialized, source)

    def session(self) -> updates_in.V2SpokenSession:
        return updates_in.V2SpokenSession()

    def to_agent(self, method: str, params: Any, options: OptionsOf) -> tuple[str, Any]:
        if method not in CHANGED:
            return method, params
        said = jsonrpc.unpack(params or forwarded.NOTHING) if isinstance(params, Raw) else params
        if not isinstance(said, dict):
            return method, params
        mode = conversions.mode_option(options(str(said.get("sessionId"))))
        return to_v2(method, said, mode=(conversions.option_id(mode) if mode else None) or MODE)

    def agent_answer(self, method: str, result: Raw) -> Raw:
        if method not in CHANGED or not result:
            return result
        return jsonrpc.raw(result_to_v1(method, jsonrpc.unpack(result)))

    def from_agent(self, method: str, params: Raw, id: jsonrpc.Id = None) -> tuple[str, Raw]:
        if id is not None and method.startswith(_OF_V1_CLIENTS):
            raise errors.unknown(method)
        if method == v1.PERMISSION and params:
            said = _object(params)
            return method, jsonrpc.raw({**said, "toolCall": tool_call_of(said, f"permission-{id}")})
        return method, params

    def permission(self, asked: JsonObject, id: str, known: str | None) -> Interrupt:
        return replace(permission(asked, asked["toolCall"]["toolCallId"], known), id=id)

    def capabilities(self, asked: wire.Initialize) -> JsonObject:
        return agents.capabilities_v1(asked.capabilities or {})

    def initialized(self, agent: Agent | None, answer: JsonObject) -> JsonObject:
        return agents.initialized(agent, answer)

    def from_client(self, method: str, params: Raw) -> tuple[str, Raw]:
        """Raises Invalid (path /replayFrom) for a place to replay from that is not the start."""
        if method in _V1_ONLY:
            raise errors.unknown(method)
        if method not in CHANGED:
            return method, params
        method, said = to_v1(method, _object(params))
        if method == "session/resume" and said.get("replayFrom") is not None:
            raise Invalid("replayFrom: there is no such place; there is start", path="/replayFrom/type")
        return method, jsonrpc.raw(said)

    def client_answer(self, method: str, params: Raw, result: Any, noted: Noted) -> Any:
        if method not in CHANGED:
            return result
        said = jsonrpc.unpack(result) if isinstance(result, Raw) else result
        if not isinstance(said, dict):
            return said
        name = said.get("sessionId") or _object(params).get("sessionId")
        return result_to_v2(method, said, modes=noted(name, said) if isinstance(name, str) else None)

    def to_client(self, method: str, params: Raw) -> Raw:
        """The client has neither files nor terminals, and declared none."""
        if method.startswith(_OF_V1_CLIENTS):
            raise errors.unknown(method)
        return jsonrpc.raw(whole(_object(params))) if method == v1.ELICITATION else params

    def form(self, interrupt: Interrupt, modes: frozenset[str]) -> v1.Form | None:
        elicitation = v1.as_elicitation(interrupt, modes)
        said = None if elicitation is None else whole(elicitation)
        return v1.form(interrupt, said, as_permission(interrupt))

    def text(self, said: str, id: str) -> list[bytes]:
        return [updates_out.text(said, id)]

    def user(self, blocks: Sequence[JsonObject], id: str) -> list[bytes]:
        return [updates_out.user(blocks, id)]


def _object(params: Raw) -> JsonObject:
    try:
        return as_object(jsonrpc.unpack(params))
    except (ValueError, RecursionError):
        return {}


V2: Final = Version2()
