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
from adapters.agent_client.wire import LOAD, OPENING, OPTIONS, as_object, without
from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.types import Agent, Interrupt, JsonObject
from gateway.wire import jsonrpc

_OWN: Final = ("toolCall", "options", "sessionId")
SET_OPTION: Final = "session/set_config_option"
RESUME: Final = "session/resume"
_NAMES_V1: Final = {"auth/login": "authenticate", "auth/logout": "logout"}
_NAMES_V2: Final = {old: new for new, old in _NAMES_V1.items()}
CHANGED: Final = frozenset((*_NAMES_V1, *_NAMES_V2, *OPTIONS))
"""Methods of version 1 and 2 whose name, params or result differ. `initialize` is agents.py's."""
_START: Final[JsonObject] = {"type": "start"}
_SET_MODE: Final = "session/set_mode"
_V1_ONLY: Final = frozenset(("authenticate", "logout", LOAD, _SET_MODE))
_OF_V1_CLIENTS: Final = ("fs/", "terminal/")
"""Beginnings of requests that are made of clients of version 1 alone."""


# --- permissions in version 2 ---------------------------------------------------------------------------------------
# The question in between is version 1's, so that whoever asks or answers in other words sees no difference: `toolCall`
# and `options`, with version 2's own keys (`title`, `description`, `subject`) beside them, verbatim. `from_agent` puts
# the call there.


def tool_call_of(params: JsonObject, id: str) -> JsonObject:
    """The tool call, in version 1's words, that a permission request of version 2 is about.

    A command is one that executes it. A request about nothing that is known is one of its own: then `id` names it.
    """
    subject = as_object(params.get("subject"))
    call = subject.get("toolCall")
    if subject.get("type") == "tool_call" and isinstance(call, dict) and isinstance(call.get("toolCallId"), str):
        said, _ = tool_calls.to_v1({**call, event_forms.KEY: CALL}, first=False)
        return without(said, event_forms.KEY)
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
    rest = without(payload, *_OWN)
    if v1.is_v2(payload):
        return {**rest, "options": payload["options"]}
    call, title = payload["toolCall"], payload["toolCall"].get("title")
    shown = title if isinstance(title, str) and title else interrupt.message or interrupt.kind
    return {**rest, "title": shown, "subject": _subject(call), "options": payload["options"]}


def _subject(call: JsonObject) -> JsonObject:
    said = tool_calls.to_v2({**call, event_forms.KEY: "tool_call_update"})
    return {"type": "tool_call", "toolCall": without(said, event_forms.KEY)}


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


# --- the version ----------------------------------------------------------------------------------------------------


class Version2(ProtocolVersion):
    """See `ProtocolVersion`. A method that is not in CHANGED is the same in both, params and result. Unknown keys are
    kept."""

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
        if "mcpServers" in said and method in OPENING:
            said = {**said, "mcpServers": conversions.servers_to_v2(said["mcpServers"])}
        if method == LOAD:
            return RESUME, {**said, "replayFrom": said.get("replayFrom", _START)}
        if method == SET_OPTION and "type" not in said:
            return method, {**said, "type": "boolean" if isinstance(said.get("value"), bool) else "id"}
        if method == _SET_MODE:
            mode = conversions.mode_option(options(str(said.get("sessionId"))))
            own = (conversions.option_id(mode) if mode else None) or MODE
            return SET_OPTION, {**without(said, "modeId"), "configId": own, "type": "id", "value": said.get("modeId")}
        return _NAMES_V2.get(method, method), said

    def agent_answer(self, method: str, result: Raw) -> Raw:
        """The option that is the mode is told as `modes` too where a session is opened. A mode that is set is an option
        here, and the answer says what became of all options."""
        said = jsonrpc.unpack(result) if method in OPTIONS and result else None
        if not isinstance(said, dict) or not isinstance(said.get("configOptions"), list):
            return result
        options = conversions.options_to_v1(said["configOptions"])
        modes = conversions.modes_of(options) if method in OPENING else None
        return jsonrpc.raw({**said, "configOptions": options, **({"modes": modes} if modes is not None else {})})

    def from_agent(self, method: str, params: Raw, id: jsonrpc.Id = None) -> tuple[str, Raw]:
        if id is not None and method.startswith(_OF_V1_CLIENTS):
            raise errors.unknown(method)
        if method == v1.PERMISSION and params:
            said = _object(params)
            return method, jsonrpc.raw({**said, "toolCall": tool_call_of(said, f"permission-{id}")})
        return method, params

    def permission(self, asked: JsonObject, id: str, known: JsonObject | None) -> Interrupt:
        """Raises Invalid (with path) for a request without title or options."""
        title, description = asked.get("title"), asked.get("description")
        if not isinstance(title, str):
            raise Invalid("a permission request needs a title", path="/title")
        more = [description] if isinstance(description, str) and description else []
        message = "\n\n".join((title, *more, *v1.shown(asked["toolCall"], known)))
        return replace(super().permission(asked, id, known), message=delta.sound(message))

    def capabilities(self, asked: wire.Initialize) -> JsonObject:
        return agents.capabilities_v1(asked.capabilities or {})

    def initialized(self, agent: Agent | None, answer: JsonObject) -> JsonObject:
        return agents.initialized(agent, answer)

    def from_client(self, method: str, params: Raw) -> tuple[str, Raw]:
        """`session/resume` from the start is `session/load`. Raises Invalid (path /replayFrom) for another place."""
        if method in _V1_ONLY:
            raise errors.unknown(method)
        if method not in CHANGED:
            return method, params
        said = _object(params)
        if method in OPENING:
            said = {**said, "mcpServers": conversions.servers_to_v1(said.get("mcpServers"))}
        start = said.get("replayFrom") if method == RESUME else None
        if isinstance(start, dict) and start.get("type") == "start":
            method = LOAD
            said = {key: value for key, value in said.items() if key != "replayFrom" or start != _START}
        elif start is not None:
            raise Invalid("replayFrom: there is no such place; there is start", path="/replayFrom/type")
        elif method == SET_OPTION and said.get("type") == "id":
            said = without(said, "type")
        return _NAMES_V1.get(method, method), jsonrpc.raw(said)

    def client_answer(self, method: str, params: Raw, result: Any, noted: Noted) -> Any:
        """The session's modes become an option, unless there is one for them."""
        if method not in OPTIONS:
            return result
        said = jsonrpc.unpack(result) if isinstance(result, Raw) else result
        if not isinstance(said, dict):
            return said
        name = said.get("sessionId") or _object(params).get("sessionId")
        modes = noted(name, said) if isinstance(name, str) else None
        options = conversions.options_to_v2(said.get("configOptions"), said.get("modes", modes))
        rest = without(said, "modes", "configOptions")
        told = bool(options) or isinstance(said.get("configOptions"), list) or method not in OPENING
        return {**rest, "configOptions": options} if told else rest

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
