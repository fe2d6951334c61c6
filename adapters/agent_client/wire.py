"""The Agent Client Protocol's own messages, as far as the adapter reads them (schema v1, `schema.json`).

Read with `gateway.wire.jsonrpc.unpack(raw, Type)`. Unknown keys are ignored here and lost nowhere: what is passed on is
the raw params. A field that may be left out has a default. Nothing here is sent; what is sent is made by codec/.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from gateway.mcp import wire as mcp

PROTOCOL: Final = "agent_client"
"""This adapter's name: key of `origin`, of `Agent.extra` and of `ThreadUpdate.protocol`."""
ORIGIN_V2: Final = "agent_client.v2"
"""Marks what an agent of version 2 said that version 1 cannot (codec/v2): key of `origin` and of `Agent.extra`, name of
`Custom`s, `ThreadUpdate.protocol`, and key of a `ThreadUpdate`'s data, with which no client of version 1 is sent it."""
VERSION: Final = 1

INITIALIZE: Final = "initialize"
LOAD: Final = "session/load"
FORK: Final = "session/fork"
CANCEL_REQUEST: Final = "$/cancel_request"
NAMING: Final = ("session/new", FORK)
"""Their answers name a session that the client has not heard of."""
TAKING_UP: Final = (LOAD, "session/resume")
"""They name a session that is not open yet."""
ENDING: Final = ("session/close", "session/delete")
"""After them there is nothing more to say about the session."""
OPENING: Final = (*NAMING, *TAKING_UP)
OPTIONS: Final = (*OPENING, "session/set_config_option", "session/set_mode")
"""Methods whose answers may say what options a session has."""

JsonObject = dict[str, Any]
OURS: Final = "interlingua"
"""The key of `_meta` that is the gateway's."""
AIP44: Final = "aip44"
"""The key of `_meta` that is the profile's."""
LOST_SERVERS: Final = "mcp_servers"
"""The loss of MCP servers that an agent cannot be given."""


def as_object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def without(said: Mapping[str, Any], *keys: str) -> JsonObject:
    return {key: value for key, value in said.items() if key not in keys}


def offers(initialized: JsonObject | None, *path: str) -> bool:
    """Whether an agent that answered `initialize` so (None: it is of another protocol) declared that capability."""
    return mcp.declares(initialized, "agentCapabilities", *path)


def takes_up(initialized: JsonObject | None) -> bool:
    """Whether such an agent finds sessions again that are not open."""
    return offers(initialized, "sessionCapabilities", "resume") or offers(initialized, "loadSession")


def taken_in_prompts(initialized: JsonObject | None) -> JsonObject:
    """The `promptCapabilities` that it declared."""
    return as_object(as_object(as_object(initialized).get("agentCapabilities")).get("promptCapabilities"))


def auth_methods(initialized: JsonObject) -> list[Any]:
    """The ids of its ways to authenticate."""
    methods = initialized.get("authMethods")
    return [each.get("id") for each in methods if isinstance(each, dict)] if isinstance(methods, list) else []


def meta_of(said: JsonObject, key: str) -> JsonObject:
    """What a message has in its `_meta` below `key`."""
    return as_object(as_object(said.get("_meta")).get(key))


def with_meta(said: JsonObject, key: str, value: JsonObject) -> JsonObject:
    """The message with this in its `_meta` below `key`, besides what is there below others."""
    return {**said, "_meta": {**as_object(said.get("_meta")), key: value}}


CONNECTION_ID: Final = "Acp-Connection-Id"
"""Header of Streamable HTTP: a client POSTs its messages to one endpoint, and receives on long GETs of server-sent
events, one for the connection and one for each session."""
SESSION_ID: Final = "Acp-Session-Id"
"""The header that names the session."""


class _Params(Struct, rename="camel", gc=False):
    pass


class Implementation(_Params):
    """`clientInfo`, `agentInfo`."""

    name: str = ""
    title: str | None = None
    version: str = ""


class Initialize(_Params):
    """`initialize`. Some clients say `capabilities` for `clientCapabilities`: use `capabilities_of`."""

    protocol_version: int = VERSION
    client_capabilities: JsonObject | None = None
    capabilities: JsonObject | None = None
    client_info: Implementation | None = None


def capabilities_of(params: Initialize) -> JsonObject:
    """The capabilities that the client declared, whichever key it used."""
    return params.client_capabilities or params.capabilities or {}


class Authenticate(_Params):
    """`authenticate`. `_meta` may hold a token: never log it."""

    method_id: str
    meta: Any = msgspec.field(name="_meta", default=None)


class OfSession(_Params):
    """Params of whatever names a session: `session/cancel`, `session/close`, `session/delete`, extension methods."""

    session_id: str


class NewSession(_Params):
    """`session/new`; the parameters that also `session/load` and `session/resume` have."""

    cwd: str
    mcp_servers: list[JsonObject] = []
    additional_directories: list[str] = []
    meta: Any = msgspec.field(name="_meta", default=None)


class OpenSession(NewSession, kw_only=True):
    """`session/load`, `session/resume`."""

    session_id: str


class ListSessions(_Params):
    """`session/list`."""

    cwd: str | None = None
    cursor: str | None = None


class Prompt(_Params):
    """`session/prompt`. `prompt` is checked by `codec.content.check`."""

    session_id: str
    prompt: list[Any]
    meta: Any = msgspec.field(name="_meta", default=None)


class SetMode(_Params):
    """`session/set_mode`."""

    session_id: str
    mode_id: str


class SetConfigOption(_Params):
    """`session/set_config_option`. `value` is a string, or a boolean with `type: boolean`; in version 2 anything."""

    session_id: str
    config_id: str
    value: Any


class CancelRequest(_Params):
    """`$/cancel_request`."""

    request_id: int | float | str | None


def cancel_request(id: int | float | str | None) -> tuple[str, JsonObject]:
    return CANCEL_REQUEST, {"requestId": id}


NOTIFICATION = "notification"
"""In the data of a `Custom` event: the method of an agent's own notification in a turn, beside its `params`."""
PARAMS_META = "interlingua/params._meta"
"""Under this key an update carries the `_meta` that stood beside it, on its way from agent to client."""


class SessionUpdate(_Params):
    """`session/update`. `update` goes to `codec.updates_in` as it is."""

    session_id: str
    update: Raw
    meta: Raw = msgspec.field(default=Raw(), name="_meta")


class SessionResult(_Params):
    """The answer of `session/new`, `session/load` and `session/resume`; `session_id` only in the first."""

    session_id: str = ""
    modes: JsonObject | None = None
    config_options: list[JsonObject] | None = None


# --- what must look like this to be sent on as it is (schema: ContentBlock, ToolCallContent) -----------------------

Role = Literal["assistant", "user"]


class Annotations(Struct, rename="camel", gc=False):
    """Hints for a client."""

    audience: list[Role] | None = None
    last_modified: str | None = None
    priority: float | None = None
    meta: JsonObject | None = msgspec.field(name="_meta", default=None)


class _Block(Struct, rename="camel", tag_field="type", kw_only=True, gc=False):
    annotations: Annotations | None = None
    meta: JsonObject | None = msgspec.field(name="_meta", default=None)


class TextBlock(_Block, tag="text"):
    """Markdown."""

    text: str


class Image(_Block, tag="image"):
    """`data` is base64."""

    data: str
    mime_type: str
    uri: str | None = None


class Audio(_Block, tag="audio"):
    """`data` is base64."""

    data: str
    mime_type: str


class ResourceLink(_Block, tag="resource_link"):
    """`size` in bytes."""

    name: str
    uri: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


class Contents(Struct, rename="camel", gc=False):
    """Of an embedded resource: it has `text`, or `blob` (base64)."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None
    meta: JsonObject | None = msgspec.field(name="_meta", default=None)


class ResourceBlock(_Block, tag="resource"):
    """An embedded resource."""

    resource: Contents


Block = TextBlock | Image | Audio | ResourceLink | ResourceBlock


class _ToolContent(Struct, rename="camel", tag_field="type", kw_only=True, gc=False):
    meta: JsonObject | None = msgspec.field(name="_meta", default=None)


class ContentItem(_ToolContent, tag="content"):
    """Any block."""

    content: Block


class DiffItem(_ToolContent, tag="diff"):
    """A file that was changed, or made."""

    path: str
    new_text: str
    old_text: str | None = None


class TerminalItem(_ToolContent, tag="terminal"):
    """A terminal of the client's."""

    terminal_id: str


ToolContent = ContentItem | DiffItem | TerminalItem
