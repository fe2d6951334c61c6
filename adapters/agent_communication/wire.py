"""The pre-alpha Agent Communication Protocol's own messages, as far as the adapter reads them.

Sources: the protocol's documentation, and what its SDKs (acp-sdk 0.0.6, @i-am-bee/acp-sdk 0.0.6) insist on. Read with
`gateway.wire.jsonrpc.unpack(raw, Type)`; unknown keys are ignored here and lost nowhere, since what is passed on is the
raw params. What is sent is made by codec/. The base protocol is in gateway/mcp/wire.py.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

PROTOCOL: Final = "agent_communication"
"""This adapter's name: key of `Agent.extra`."""

LIST: Final = "agents/list"
TEMPLATES: Final = "agents/templates/list"
CREATE: Final = "agents/create"
DESTROY: Final = "agents/destroy"
RUN: Final = "agents/run"
TOOLS: Final = "tools/list"
CALL: Final = "tools/call"

RUN_PROGRESS: Final = "notifications/agents/run/progress"
AGENTS_CHANGED: Final = "notifications/agents/list_changed"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"

EVENT: Final = "interlingua/event"
"""Key in the `_meta` of a progress notification: an event that no output can say, in the form of
gateway/core/events.py. The gateway's other keys are in gateway/mcp/runs/keys.py."""


class _Params(Struct, rename="camel", gc=False):
    pass


class ListParams(_Params):
    """`agents/list`, `agents/templates/list`, `tools/list`."""

    cursor: str | None = None


class CreateParams(_Params):
    """`agents/create`."""

    template_name: str
    config: dict[str, Any] = {}


class DestroyParams(_Params):
    """`agents/destroy`."""

    name: str


class RunParams(_Params):
    """`agents/run`. `config` is an extension."""

    name: str
    input: Any = None
    config: dict[str, Any] | None = None


class CallToolParams(_Params):
    """`tools/call`."""

    name: str
    arguments: dict[str, Any] | None = None


Fields = dict[str, Raw]
"""An object of which nothing is read but the keys."""
read_fields: Final = msgspec.json.Decoder(Fields).decode
"""Bytes to Fields. Raises ValueError, also for half a surrogate pair anywhere in it."""
