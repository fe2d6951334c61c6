"""Connections to the target's agent: one for each set of client capabilities, started when needed, kept warm.

An agent is told once, in `initialize`, what its client can do. So clients that can do the same share a connection, and
no client is asked for what it did not offer.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import Callable
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

from adapters.agent_client.codec.v2.version import V2
from adapters.agent_client.codec.version import V1
from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.outbound.connection import AgentConnection, AgentHandler
from adapters.agent_client.wire import PROTOCOL, as_object
from gateway.contract import Caller, ThreadContext, governing
from gateway.core.errors import AgentError, Unavailable
from gateway.core.types import JsonObject
from gateway.transport.http import credentials_of
from gateway.transport.pipe import Pipe
from gateway.transport.stdio import Reserve, Supervisor
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc

NOT_PASSED_ON = ("subagents",)
"""Client capabilities that a proxy cannot pass on: a subagent's updates come in a session that no client opened."""
_encode = msgspec.json.Encoder(order="sorted").encode
log = logging.getLogger(__name__)


SharedConnection: TypeAlias = Supervisor[AgentConnection]


class AgentConnections:
    """All connections to one target."""

    def __init__(self, target: AgentClientTarget, handler: AgentHandler) -> None:
        self._target = target
        self._auth = credentials_of(target)
        self._handler = handler
        self._shared: dict[bytes, SharedConnection] = {}
        self._closing = TaskSet()
        self._closed = False
        self.name = target.agent or target.called

    def profile(self, caller: Caller | None) -> JsonObject:
        """The client's declared capabilities, without those that are not passed on.

        A client of another protocol is asked through interrupts, so forms can be shown to it, and options set.
        """
        if caller is not None and caller.protocol == PROTOCOL:
            return {name: each for name, each in caller.capabilities.items() if name not in NOT_PASSED_ON}
        return {"elicitation": {"form": {}}, "session": {"configOptions": {"boolean": {}}}}

    def shared(self, context: ThreadContext | None, profile: JsonObject | None = None) -> SharedConnection:
        """The connection for the client of a conversation, or for one with this `profile`, as far as the agent may use
        what it can do. None: for clients of other protocols.

        Raises Unavailable for one profile too many, and once closed.
        """
        if profile is None:
            profile = self.profile(context.caller if context is not None else None)
        governor = governing.governor_of(context) if context is not None else None
        if self._closed:
            raise Unavailable(f"{self.name} is not called any more")
        capabilities = self._with_workspace(profile)
        if governor is not None:
            capabilities = governor.lends(capabilities)
        key = _encode(capabilities)
        found = self._shared.get(key)
        if found is None:
            if len(self._shared) >= self._target.most_connections:
                self._make_room()
            found = self._shared[key] = self._made(capabilities)
        return found

    def _with_workspace(self, profile: JsonObject) -> JsonObject:
        """The capabilities told to the agent: the client's, and those of the workspace."""
        workspace = self._target.workspace
        if workspace is None:
            return profile
        files = dict(as_object(profile.get("fs")))
        files["readTextFile"] = True
        files["writeTextFile"] = bool(files.get("writeTextFile")) or workspace.write
        return {**profile, "fs": files, "terminal": bool(profile.get("terminal")) or workspace.terminals}

    def any(self) -> SharedConnection:
        """One that is connected; else that for clients of other protocols."""
        for shared in self._shared.values():
            if shared.reachable:
                return shared
        return self.shared(None)

    @property
    def reachable(self) -> bool | None:
        known = [shared.reachable for shared in self._shared.values()]
        return True if True in known else (False if False in known else None)

    async def aclose(self) -> None:
        self._closed = True
        shared, self._shared = list(self._shared.values()), {}
        await asyncio.gather(*(each.aclose() for each in shared), *self._closing, self._spares.aclose())

    def _made(self, capabilities: JsonObject) -> SharedConnection:
        target = self._target
        return SharedConnection(
            lambda: self._open(capabilities),
            name=target.route or self.name,
            idle=math.inf
            if target.warmed and capabilities == self._with_workspace(self.profile(None))
            else target.idle,
            start_timeout=target.start_timeout,
            wait=target.start_timeout,
        )

    async def _open(self, capabilities: JsonObject) -> AgentConnection:
        connection = AgentConnection(await self._pipe(), self._handler, capabilities, V2 if self._target.v2 else V1)
        try:
            await connection.start()
        except jsonrpc.RpcError as error:
            await connection.aclose()
            raise AgentError(f"{self.name} refused initialize: {error}", detail=error.detail) from error
        except BaseException:
            await connection.aclose()
            raise
        return connection

    async def _pipe(self) -> Pipe:
        target = self._target
        if target.url is None:
            return await self._spares.take()
        if urlsplit(target.url).scheme in ("ws", "wss"):
            from gateway.transport.websocket.client import connect

            return await connect(
                target.url, auth=self._auth, limit=target.max_message, open_timeout=target.start_timeout
            )
        from adapters.agent_client.outbound.http import HttpPipe

        return HttpPipe(target.url, auth=self._auth, limit=target.max_message, timeout=target.request_timeout)

    @functools.cached_property
    def _spares(self) -> Reserve:
        """Where processes come from. Not made before the first is needed: its name is that of the target's route."""
        target = self._target
        return Reserve.of(
            target.command,
            lambda: min(target.warm - 1, target.most_connections - len(self._shared)),
            name=target.route or self.name,
            cwd=target.cwd,
            env=target.env,
            limit=target.max_message,
            grace=target.stop_timeout,
        )

    def _make_room(self) -> None:
        for key, shared in self._shared.items():
            if not shared.used:
                del self._shared[key]
                self._closing.start(shared.aclose())
                return
        raise Unavailable(f"{self.name} is connected for {self._target.most_connections} kinds of clients already")


# --- how long a session keeps its connection ------------------------------------------------------------------------


class ConnectionLease:
    """One session's. Enter it to work with the session; `connect` is called inside."""

    def __init__(self, idle: float, needed: Callable[[], bool] | None, unused: Callable[[], None]) -> None:
        """`unused` is called when the session was not in use, nor `needed` by a client that is there, for `idle`
        seconds. None: it is that of a run, which has it for as long as there is one.
        """
        self._idle = idle
        self._needed = needed
        self._unused = unused
        self._users = 0
        self._of: SharedConnection | None = None
        self._connection: AgentConnection | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def used(self) -> bool:
        return self._users > 0

    async def __aenter__(self) -> None:
        self.take()

    async def __aexit__(self, *_: object) -> None:
        self.give_back()

    def take(self) -> None:
        """Somebody begins to work with the session, and is to `give_back`."""
        self._users += 1
        self.stop()

    def give_back(self) -> None:
        self._users -= 1
        self._rest()

    def leave(self, task: asyncio.Task[Any]) -> None:
        """Let work on the session go on by itself; its result is not wanted."""
        self._users += 1

        def done(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and task.exception() is not None:
                log.info("a session that is not waited for any more: %s", task.exception())
            self.give_back()

        task.add_done_callback(done)

    async def connect(self, shared: SharedConnection) -> AgentConnection:
        """The connection, started if need be. Raises as `Supervisor.join` does."""
        if (connection := self.connect_now(shared)) is not None:
            return connection
        self.release()
        self._connection = await shared.join()
        self._of = shared
        return self._connection

    def connect_now(self, shared: SharedConnection) -> AgentConnection | None:
        """The connection, where nothing has to be waited for; None otherwise."""
        connection = self.connected(shared)
        if connection is None and (connection := shared.join_now()) is not None:
            self.release()
            self._connection, self._of = connection, shared
        return connection

    def holds(self, connection: AgentConnection | None) -> bool:
        """Whether it is that connection that it keeps, and the agent is there."""
        return self._of is not None and self._connection is connection is not None and connection.alive

    def connected(self, shared: SharedConnection) -> AgentConnection | None:
        """The connection, if it is held already and alive."""
        connection = self._connection
        return connection if self._of is shared and connection is not None and connection.alive else None

    def release(self) -> None:
        shared, self._of = self._of, None
        if shared is not None:
            shared.leave(self._connection)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rest(self, late: bool = False) -> None:
        if self._users or self._needed is None:
            return
        if not self._needed():
            self.release()
            if late:
                self._unused()
                return
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(self._idle, self._rest, True)
