"""The sessions that one connection has open, and the methods that open, list and end them (docs: session-setup)."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.codec import agents
from adapters.agent_client.inbound import choices, lists, turns
from adapters.agent_client.inbound.encoding import encoded
from adapters.agent_client.inbound.session import Session, Way
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.core.errors import Conflict, InterlinguaError, Invalid, NotFound, Unavailable
from gateway.core.types import Thread
from gateway.wire.jsonrpc import read

if TYPE_CHECKING:
    from adapters.agent_client.inbound.connection import Connection


class Sessions:
    """By id. What is asked of a session that another connection has opened opens it here too."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._gateway = connection.gateway
        self._agent = connection.agent
        self._whole = connection.clients.whole
        self._open: dict[str, Session] = {}

    def here(self, session_id: str) -> Session | None:
        """One that is open on this connection. Never waits."""
        session = self._open.get(session_id)
        return session if session is not None and session.alive else None

    async def get(self, session_id: str) -> Session:
        """One that is open here, or that is taken up now. Raises NotFound."""
        session = self.here(session_id)
        if session is None:
            thread = await self.find(session_id)
            params = encoded({"cwd": thread.metadata.get(turns.FOLDER, "/"), "mcpServers": []})
            session = await self._opened(thread, self._agent_of(thread), params, Way.RESUME)
            session.go()
        return session

    async def named(self, params: Raw) -> Session | None:
        """The session that the params of an extension name, if they name one."""
        try:
            return await self.get(read(params, wire.OfSession).session_id)
        except (Invalid, NotFound):
            return None

    async def find(self, session_id: str) -> Thread:
        """The thread of a session that this client may have. Raises NotFound."""
        thread = await self._gateway.thread(session_id)
        if not self.may_have(thread):
            raise NotFound(f"no session {session_id}")
        return thread

    def may_have(self, thread: Thread) -> bool:
        """Whether the thread belongs to the agent that this client talks to, or to none yet."""
        return self._agent is None or bound(thread) in (None, self._agent)

    async def leave(self) -> None:
        """The client has gone. What is going on goes on."""
        sessions, self._open = list(self._open.values()), {}
        await asyncio.gather(*(session.close() for session in sessions))

    # --- methods ----------------------------------------------------------------------------------------------

    async def new(self, params: Raw) -> Any:
        """`session/new`."""
        asked = read(params, wire.NewSession)
        name = self._agent or next(iter(self._gateway.names(PROTOCOL)), None)
        if name is None:
            raise NotFound("there are no agents")
        thread = self._thread(str(uuid.uuid4()), asked)
        session = None
        try:
            await self._whole(self._gateway.create_thread(thread))
            session = await self._opened(thread, name, params, Way.NEW)
            return self._shown(session, await choices.begin(session))
        except BaseException:
            await self._undo(thread.id, session)
            raise

    async def load(self, params: Raw) -> Any:
        """`session/load`."""
        return await self._again(params, "session/load", Way.LOAD)

    async def resume(self, params: Raw) -> Any:
        """`session/resume`."""
        return await self._again(params, "session/resume", Way.RESUME)

    async def list(self, params: Raw) -> Any:
        """`session/list`."""
        name = self._agent
        if name is not None and choices.offers(await self._native(name), "list"):
            answer = await self._gateway.relay(name, PROTOCOL, "session/list", params, caller=self._connection)
            return await lists.renamed(self._gateway, name, answer)
        return await lists.recorded(self._gateway, params, self.may_have)

    async def close(self, params: Raw) -> Any:
        """`session/close`: what runs is cancelled first."""
        session = await self.get(read(params, wire.OfSession).session_id)
        await session.stop()
        answer = await self._if_offered("close", session, params)
        await self.drop(session)
        return answer

    async def delete(self, params: Raw) -> Any:
        """`session/delete`. What is not there is deleted."""
        session_id = read(params, wire.OfSession).session_id
        try:
            session = await self.get(session_id)
        except NotFound:
            if self._agent is None or not choices.offers(await self._native(self._agent), "delete"):
                return {}
            return await self._connection.beside("session/delete", params)
        await session.stop()
        answer = await self._if_offered("delete", session, params)
        for each in (session, *session.elsewhere()):
            await each.connection.sessions.drop(each)
        await self._whole(self._gateway.delete_thread(session_id))
        return answer

    async def _if_offered(self, what: str, session: Session, params: Raw) -> Any:
        """What the agent answers to `session/<what>`, if it is one of this protocol that declared it."""
        if not choices.offers(await self._native(session.agent), what):
            return {}
        return await session.relay(f"session/{what}", params)

    async def _native(self, name: str) -> JsonObject | None:
        """What an agent of this protocol answered to `initialize`; None for every other agent."""
        return agents.native(await self._gateway.agent(name, PROTOCOL))

    # --- inside -----------------------------------------------------------------------------------------------

    async def _again(self, params: Raw, method: str, way: Way) -> Any:
        asked = read(params, wire.OpenSession)
        there = self._open.get(asked.session_id)
        if there is not None:
            if there.turn is not None:
                raise Conflict(f"session {there.id} is busy: its last prompt is not answered yet")
            await self.drop(there)
        try:
            thread = await self.find(asked.session_id)
        except NotFound:
            return await self._of_agent(asked, params, method)
        session = await self._opened(thread, self._agent_of(thread), params, way)
        try:
            return self._shown(session, await choices.settings(session))
        except BaseException:
            await self.drop(session)
            raise

    async def _of_agent(self, asked: wire.OpenSession, params: Raw, method: str) -> Any:
        """A session that the gateway has no record of, but its agent may: what it replays is passed on, and kept."""
        if self._agent is None or await self._native(self._agent) is None:
            raise NotFound(f"no session {asked.session_id}")
        session = await self.adopt(asked.session_id, asked, params)
        session.go()
        try:
            answer = await session.relay(method, params)
            await session.caught_up()
            return answer
        except BaseException:
            await self._undo(session.id, session)
            raise

    async def adopt(self, session_id: str, asked: wire.NewSession, params: Raw) -> Session:
        """Make a record of a session that the agent has made under this id. Raises NotFound if it is not free."""
        assert self._agent is not None
        try:
            thread = await self._whole(self._gateway.create_thread(self._thread(session_id, asked)))
        except Conflict:
            raise NotFound(f"no session {session_id}") from None
        try:
            session = await self._opened(thread, self._agent, params, Way.NEW)
        except BaseException:
            await self._undo(thread.id, None)
            raise
        asyncio.get_running_loop().call_soon(session.go)
        return session

    async def _undo(self, thread_id: str, session: Session | None) -> None:
        """It came to nothing: no record of it is kept."""
        if session is not None:
            await self.drop(session)
        with contextlib.suppress(InterlinguaError):
            await self._whole(self._gateway.delete_thread(thread_id))

    async def _opened(self, thread: Thread, agent: str, params: Raw, way: Way) -> Session:
        """Open a session and tell what is to be told before its client is answered. Raises NotFound, Unavailable."""
        if len(self._open) >= self._connection.clients.options.max_sessions:
            raise Unavailable("too many sessions are open on this connection; close some")
        session = Session(self._connection, thread, agent, Raw(bytes(params)))
        self._open[session.id] = session
        try:
            await session.open(way)
        except BaseException:
            if self._open.get(session.id) is session:
                del self._open[session.id]
            raise
        return session

    def _shown(self, session: Session, answer: Any) -> Any:
        """The answer that makes the session known: what happens in it is told when this has been sent."""
        asyncio.get_running_loop().call_soon(session.go)
        return answer

    async def drop(self, session: Session) -> None:
        """Have it open no more."""
        if self._open.get(session.id) is session:
            del self._open[session.id]
        await session.close()

    def _thread(self, id: str, asked: wire.NewSession) -> Thread:
        now = time.time()
        attributes: JsonObject = {}
        if asked.additional_directories:
            attributes["additionalDirectories"] = asked.additional_directories
        return Thread(
            id=id,
            created_at=now,
            updated_at=now,
            protocol=PROTOCOL,
            agent=self._agent,
            metadata={**turns.metadata_of(asked.meta), turns.FOLDER: asked.cwd},
            attributes=attributes,
        )

    def _agent_of(self, thread: Thread) -> str:
        name = self._agent or bound(thread) or next(iter(self._gateway.names(PROTOCOL)), None)
        if name is None:
            raise NotFound("there are no agents")
        return name


def bound(thread: Thread) -> str | None:
    """The agent that a thread belongs to."""
    chosen = thread.attributes.get("agent")
    return chosen if isinstance(chosen, str) else thread.agent
