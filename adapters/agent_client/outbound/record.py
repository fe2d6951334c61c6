"""The record of an agent's session on its thread, to open it again."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from adapters.agent_client import forwarded
from gateway.contract import ThreadContext
from gateway.core.types import JsonObject
from gateway.wire import jsonrpc


class SessionRecord(Struct, rename="camel", omit_defaults=True, frozen=True):
    """One session, and what its agent was told there.

    session: the agent's own id. profile: what the client could do for whom it was made. partial: the agent has
    forgotten the session that the thread began with, and knows only what came after that. fresh: there was a
    conversation before the session that the agent has not been told of. files: ids of those that the agent was given in
    the session.
    """

    session: str
    cwd: str
    mcp_servers: list[Any] = []
    additional_directories: list[Any] = []
    profile: JsonObject = {}
    partial: bool = False
    fresh: bool = False
    files: list[str] = []

    @property
    def upstream(self) -> JsonObject:
        """As `ThreadContext.set_thread` takes it."""
        found = msgspec.to_builtins(self)
        assert isinstance(found, dict)
        return found

    def setup(self, offers: Callable[..., bool]) -> JsonObject:
        """The params that all ways of opening a session share. `offers`: what the agent can do, by path."""
        setup: JsonObject = {"cwd": self.cwd, "mcpServers": self.mcp_servers}
        if self.additional_directories and offers("sessionCapabilities", "additionalDirectories"):
            setup["additionalDirectories"] = self.additional_directories
        return setup


def recorded(context: ThreadContext) -> SessionRecord | None:
    """The record on the thread; None if there is none that can be read."""
    try:
        return msgspec.convert(context.upstream_thread, SessionRecord) if context.upstream_thread else None
    except msgspec.ValidationError:
        return None


def asked(params: Raw) -> SessionRecord:
    """Read a client's `session/new`, `session/load` or `session/resume`, as far as it is needed again."""
    found = {name: jsonrpc.unpack(value) for name, value in forwarded.members(params).items()}
    cwd, servers, folders = (found.get(name) for name in ("cwd", "mcpServers", "additionalDirectories"))
    return SessionRecord(
        session="",
        cwd=cwd if isinstance(cwd, str) else os.getcwd(),
        mcp_servers=servers if isinstance(servers, list) else [],
        additional_directories=folders if isinstance(folders, list) else [],
    )
