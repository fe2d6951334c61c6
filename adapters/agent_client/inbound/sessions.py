"""The sessions that one connection has open, and the methods that open, list and end them (docs: session-setup)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import datetime
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client import wire
from adapters.agent_client.codec import agents
from adapters.agent_client.governed import folders
from adapters.agent_client.inbound import governed, replay, set_option, turns
from adapters.agent_client.inbound.client import EditorClient, SharedSession
from adapters.agent_client.inbound.config_options import settings
from adapters.agent_client.inbound.context import OpenedBy, SessionContext
from adapters.agent_client.inbound.session import EditorSession
from adapters.agent_client.inbound.turns import FOLDER
from adapters.agent_client.tunnel import mcp_messages as tunnel
from adapters.agent_client.wire import LOST_SERVERS, OURS, PROTOCOL, JsonObject, offers, takes_up, with_meta
from gateway.contract import Gateway
from gateway.core.errors import InterlinguaError, Invalid, NotFound, Unavailable
from gateway.core.types import Json, Thread, ThreadQuery
from gateway.wire import jsonrpc

PAGE = 50
LOOKED_AT = 500
"""Threads that one request looks at, at most: a page may be short, and still not be the last."""
log = logging.getLogger(__name__)


# --- `session/list` -------------------------------------------------------------------------------------------------


async def recorded(gateway: Gateway, params: Raw, wanted: Callable[[Thread], bool]) -> JsonObject:
    """A page of the sessions that the gateway has a record of, newest first. Raises Invalid (path /cursor)."""
    asked = jsonrpc.read(params, wire.ListSessions)
    offset = _offset(asked.cursor)
    query = ThreadQuery(protocol=PROTOCOL, metadata={} if asked.cwd is None else {FOLDER: asked.cwd}, limit=PAGE)
    sessions: list[JsonObject] = []
    end = offset + LOOKED_AT
    while offset < end:
        threads = await gateway.threads.list(replace(query, offset=offset))
        for thread in threads:
            offset += 1
            if wanted(thread):
                sessions.append(_info(thread))
            if len(sessions) == PAGE:
                break
        if len(sessions) == PAGE or len(threads) < PAGE:
            break
    more = await gateway.threads.list(replace(query, offset=offset, limit=1))
    return {"sessions": sessions, **({"nextCursor": _cursor(offset)} if more else {})}


async def renamed(gateway: Gateway, agent: str, answer: Raw) -> Raw | JsonObject:
    """The agent's own list. Sessions that are threads here, and not open at the agent now, get their names here."""
    found = jsonrpc.unpack(answer)
    listed = found.get("sessions") if isinstance(found, dict) else None
    if not isinstance(listed, list) or not listed:
        return answer
    known = await _known(gateway, agent)
    changed = False
    for each in listed:
        here = known.get(str(each.get("sessionId"))) if isinstance(each, dict) else None
        if here is not None:
            each["sessionId"] = here
            changed = True
    return found if changed else answer


async def _known(gateway: Gateway, agent: str) -> dict[str, str]:
    """The agent's ids of the sessions that it was given lately -> ours."""
    known: dict[str, str] = {}
    for thread in await gateway.threads.list(ThreadQuery(protocol=PROTOCOL, limit=LOOKED_AT)):
        theirs = thread.upstream.get(agent, {}).get("session")
        if isinstance(theirs, str):
            known.setdefault(theirs, thread.id)
    return known


def _info(thread: Thread) -> JsonObject:
    info: JsonObject = {"sessionId": thread.id, "cwd": thread.metadata.get(FOLDER) or "/"}
    if folders := thread.attributes.get("additionalDirectories"):
        info["additionalDirectories"] = folders
    title = thread.attributes.get("title")
    for update in thread.updates:
        if update.kind == "session_info_update" and isinstance(update.data, dict) and "title" in update.data:
            title = update.data["title"]
    if title:
        info["title"] = title
    info["updatedAt"] = datetime.datetime.fromtimestamp(thread.updated_at, datetime.UTC).isoformat()
    return info


def _cursor(offset: int) -> str:
    return base64.urlsafe_b64encode(b"%d" % offset).decode()


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    try:
        text = base64.b64decode(cursor.encode(), b"-_", validate=True)
        if not text.isdigit() or len(text) > 12:
            raise ValueError(cursor)
        return int(text)
    except (ValueError, binascii.Error):
        raise Invalid("cursor: it is none that was given here", path="/cursor") from None


# --- MCP servers that are named when a session is taken up again, of which its agent may not know -------------------
# For a session that is told from the gateway's record: its agent is asked for nothing but this then.


async def told(session: SessionContext, answer: JsonObject) -> JsonObject:
    """The answer of `session/load` or `session/resume`, after the agent was told of servers that are new to it.

    It resumes the session, or loads it if it cannot do that, with what this client names, and others who have it open.
    Where it works, or takes up no sessions, or refuses, they are lost, which the answer says.
    """
    asked = _named(session)
    if not asked:
        return answer
    native = agents.native(await session.gateway.agents.get(session.agent, PROTOCOL))
    if native is not None and not _new(
        asked, (await session.gateway.threads.get(session.id)).upstream.get(session.agent)
    ):
        return answer
    if native is None or session.busy or not await _again(session, native):
        return with_meta(answer, OURS, {"lost": [LOST_SERVERS]})
    return {**answer, **await settings(session)}


async def _again(session: SessionContext, native: JsonObject) -> bool:
    """Have the agent take the session up with these servers. Whether it did."""
    if not takes_up(native):
        return False
    try:
        await session.relay("session/resume", together(session))
    except (InterlinguaError, jsonrpc.RpcError) as error:
        log.info("session %s: its agent was not told of new MCP servers: %s", session.id, error)
        return False
    return True


def together(session: SessionContext) -> Raw:
    """The params that the session is taken up with, and the servers of others who have it open, for its agent."""
    asked = _named(session)
    names = [each.get("name") for each in asked]  # of any type: the agent judges them
    others = [each for other in session.elsewhere() for each in _named(other) if each.get("name") not in names]
    if not others:
        return session.params
    return jsonrpc.raw({**jsonrpc.unpack(session.params), tunnel.SERVERS: [*asked, *others]})


def _named(session: SessionContext | SharedSession) -> list[JsonObject]:
    return jsonrpc.read(session.params, wire.NewSession).mcp_servers


def _new(asked: list[JsonObject], recorded: Any) -> bool:
    """Whether one of them is new to the agent, as far as that was recorded.

    Servers that a client offers over its connection are compared by name, since their ids change each time.
    """
    servers = recorded.get(tunnel.SERVERS, []) if isinstance(recorded, dict) else []
    known = [_identity(each) for each in servers if isinstance(each, dict)]
    return any(_identity(each) not in known for each in asked)


def _identity(server: JsonObject) -> JsonObject:
    return {"name": server.get("name")} if server.get("type") == tunnel.TYPE else server


# --- the sessions of a connection -----------------------------------------------------------------------------------


class EditorSessions:
    """By id. What is asked of a session that another connection has opened opens it here too."""

    def __init__(self, client: EditorClient) -> None:
        self._client = client
        self._gateway = client.gateway
        self._agent = client.agent
        self._whole = client.clients.whole
        self._open: dict[str, EditorSession] = {}

    def _alone(self, session_id: str) -> asyncio.Lock:
        """Held while a session is opened: what asks for it in the meantime finds it open, and opens no second one."""
        return self._client.clients.alone(session_id, self)

    def _recording(self, session_id: str) -> asyncio.Lock:
        """Held by one connection of all while its agent is asked for a session that is not on record: there is a record
        once it has answered.
        """
        return self._client.clients.alone(session_id, EditorSessions)

    def here(self, session_id: str) -> EditorSession | None:
        """One that is open on this connection. Never waits."""
        session = self._open.get(session_id)
        return session if session is not None and session.alive else None

    @property
    def following(self) -> bool:
        """Whether the client is told of a run that has not ended, whoever started it."""
        return any(session.following for session in self._open.values())

    async def get(self, session_id: str, *, ending: bool = False, own: bool = False) -> EditorSession:
        """One that is open here, or that is taken up now, maybe to be ended. Raises NotFound, Conflict.

        `own`: one that is not on record may be the agent's own: then it is asked for it, and says itself if it is not.
        """
        if (session := self.here(session_id)) is not None:
            return session
        async with self._alone(session_id):
            if (session := self.here(session_id)) is not None:
                return session
            found = await self._found(session_id, (lambda: self._unrecorded(session_id)) if own else None)
            if isinstance(found, tuple):
                await self._told_of(found[0])
                return found[0]
            thread, name = found, self._agent_of(found)
            params = await governed.known(governed.of(self._gateway, name), thread, ending=ending)
            session = await self._opened(thread, name, params, OpenedBy.TAKEN)
            session.go()
            return session

    async def named(self, params: Raw) -> EditorSession | None:
        """The session that the params of an extension name, if they name one.

        Raises NotFound for one that is not this client's. Where clients are told apart, an agent's own has no owner.
        """
        try:
            return await self.get(jsonrpc.read(params, wire.OfSession).session_id)
        except Invalid:
            return None
        except NotFound:
            if self._client.visitor.required:
                raise
            return None

    async def find(self, session_id: str) -> Thread:
        """The thread of a session that this client may have. Raises NotFound."""
        try:
            thread: Thread | None = await self._gateway.threads.get(session_id)
        except NotFound:
            thread = None
        if thread is None or not self.may_have(thread):  # in the same words: nobody is told what others have
            raise NotFound(f"no session {session_id}")
        return thread

    async def _found(
        self, session_id: str, begin: Callable[[], Awaitable[tuple[EditorSession, Raw]]] | None
    ) -> Thread | tuple[EditorSession, Raw]:
        """As `find`; of a session that is not on record what `begin` makes of it. Raises NotFound.

        Another process may record it while `begin` runs, to which it is not free then.
        """
        async with self._recording(session_id):
            try:
                return await self.find(session_id)
            except NotFound:
                if begin is None:
                    raise
            try:
                return await begin()
            except NotFound:
                return await self.find(session_id)

    def may_have(self, thread: Thread) -> bool:
        """Whether the session is this client's, and its agent one that it talks to, or none yet."""
        visitor, name = self._client.visitor, bound(thread)
        if not visitor.owns(thread) or (name is not None and not visitor.may_use(name)):
            return False
        return self._agent is None or name in (None, self._agent)

    async def cancel(self, session_id: str) -> None:
        """Cancel what runs in one that is not open here. Never waits for its agent. Raises NotFound, Unavailable."""
        thread = await self.find(session_id)
        for run in await replay.active(self._gateway, thread.id):
            self._client.keep(self._client.cancel_run(run.id))

    async def leave(self) -> None:
        """Called when the client has gone, or a new one takes its place, also if it does not wait for this: then
        `gather` would close none. Runs go on.
        """
        sessions, self._open = list(self._open.values()), {}
        if sessions:
            await asyncio.wait([asyncio.create_task(session.close()) for session in sessions])

    def noted(self, session_id: str, said: JsonObject) -> Json:
        session = self.here(session_id)
        return None if session is None else session.updates.remember(said)

    # --- methods ----------------------------------------------------------------------------------------------

    async def new(self, params: Raw) -> Any:
        asked = jsonrpc.read(params, wire.NewSession)
        name = self._agent or next(iter(self._client.names()), None)
        if name is None:
            raise NotFound("there are no agents")
        governor = governed.of(self._gateway, name)
        params = await folders(governor, params)
        thread = self._thread(str(uuid.uuid4()), asked)
        session = None
        try:
            await governed.opened(governor, thread.id, self._client.visitor.name)
            session = await self._opened(thread, name, params, OpenedBy.NEW)
            return self._shown(session, await set_option.begin(session.context))
        except BaseException:
            if session is not None:
                await session.close()
            with contextlib.suppress(InterlinguaError):
                await self._whole(self._gateway.threads.delete(thread.id))
            raise

    async def again(self, method: str, way: OpenedBy, params: Raw) -> Any:
        asked = jsonrpc.read(params, wire.OpenSession)
        async with self._alone(asked.session_id):
            return await self._taken_up(asked, params, method, way)

    async def list(self, params: Raw) -> Any:
        name = self._agent
        told_apart = self._client.visitor.required  # the agent would list everybody's
        if name is not None and not told_apart and offers(await self._native(name), "sessionCapabilities", "list"):
            answer = await self._gateway.backchannel.relay(name, PROTOCOL, "session/list", params, caller=self._client)
            listed = await renamed(self._gateway, name, answer)
        else:
            listed = await recorded(self._gateway, params, self.may_have)
        return await governed.listed(governed.of(self._gateway, name), listed)

    async def end(self, what: str, params: Raw) -> Any:
        """`session/close`, `session/delete`: what runs is cancelled first. One that is not on record is the agent's to
        answer for; what is not there is deleted.
        """
        try:
            session = await self.get(jsonrpc.read(params, wire.OfSession).session_id, ending=True)
        except NotFound:
            if await self._may_be_its_own(what):
                return await self._client.beside(f"session/{what}", params)
            if what == "delete":
                return {}
            raise
        await session.stop()
        answer = await self._if_offered(what, session, params)
        forgotten = await governed.closed(session.context.governor, session.id)
        if what == "close" and not forgotten:
            await session.close()
            return answer
        if what == "close":
            with contextlib.suppress(InterlinguaError):  # the agent is to forget it, too
                await self._if_offered("delete", session, params)
        for each in (session, *session.context.elsewhere()):
            await each.close()
        if forgotten:
            await self._whole(governed.forget(self._gateway, session.id))
        else:
            with contextlib.suppress(NotFound):  # it was deleted twice at once
                await self._whole(self._gateway.threads.delete(session.id))
        return answer

    async def _may_be_its_own(self, what: str) -> bool:
        """Whether the agent is asked to end a session that the gateway has no record of. Such a session has no owner,
        so it does not exist where clients are told apart.
        """
        if self._client.visitor.required or self._agent is None:
            return False
        return offers(await self._native(self._agent), "sessionCapabilities", what)

    async def _if_offered(self, what: str, session: EditorSession, params: Raw) -> Any:
        """The agent's answer to `session/<what>`, if it speaks this protocol and declared it."""
        native = await self._native(session.context.agent)
        if offers(native, "sessionCapabilities", what):
            return await session.context.relay(f"session/{what}", params)
        if native is not None and session.context.servers:  # which go with the session in any case
            with contextlib.suppress(InterlinguaError):
                await self._gateway.backchannel.forward(
                    session.context.agent, PROTOCOL, tunnel.DISCONNECT, params, thread=session.id
                )
        return {}

    async def _native(self, name: str) -> JsonObject | None:
        return agents.native(await self._gateway.agents.get(name, PROTOCOL))

    # --- inside -----------------------------------------------------------------------------------------------

    async def _taken_up(self, asked: wire.OpenSession, params: Raw, method: str, way: OpenedBy) -> Any:
        there = self._open.get(asked.session_id)
        if there is not None:
            there.context.may_reopen()
            await there.close()
        found = await self._found(asked.session_id, lambda: self._of_agent(asked, params, method))
        if isinstance(found, tuple):
            await self._told_of(found[0])
            return found[1]
        thread, name = found, self._agent_of(found)
        params = await folders(governed.of(self._gateway, name), params)
        if await replay.is_the_agents(self._client, thread, name, everything=way is OpenedBy.LOAD):
            with contextlib.suppress(replay.Untold):
                return await self._told_by_agent(thread, name, params, method, way)
        session = await self._opened(thread, name, params, way)
        async with _or_closed(session):
            return self._shown(session, await told(session.context, await settings(session.context)))

    async def _told_by_agent(self, thread: Thread, name: str, params: Raw, method: str, way: OpenedBy) -> Any:
        """The agent's own answer, after what it replays. Raises replay.Untold where the record is to serve."""
        session = await self._opened(thread, name, params, OpenedBy.NEW)
        context = session.context
        async with _or_closed(session):
            context.replays()
            answer = await replay.by_agent(context, session.updates, method, together(context))
            await session.reloaded(way)
            return self._shown(session, set_option.completed_answer(context, answer))

    async def _of_agent(self, asked: wire.OpenSession, params: Raw, method: str) -> tuple[EditorSession, Raw]:
        """A session that the gateway has no record of, but its agent may: what it replays is passed on, and kept. With
        the agent's own answer; `_told_of` has the client told all that came before it.
        """
        if self._client.visitor.required or self._agent is None or not takes_up(await self._native(self._agent)):
            raise NotFound(f"no session {asked.session_id}")
        params = await folders(governed.of(self._gateway, self._agent), params)
        session = await self._begun(asked.session_id, asked, params)
        session.go()
        session.context.replays()
        relay = self._gateway.backchannel.relay
        async with _or_closed(session):
            return session, await relay(self._agent, PROTOCOL, method, params, thread=session.context.thread)

    async def _told_of(self, session: EditorSession) -> None:
        """Return once the client was told what the agent replayed of a session that was not on record."""
        async with _or_closed(session):
            await session.reloaded(OpenedBy.RESUME)
            self._shown(session, None)

    async def _unrecorded(self, session_id: str) -> tuple[EditorSession, Raw]:
        """Take up a session of the agent's own by nothing but its id. Raises NotFound, and the agent's own error."""
        if governed.of(self._gateway, self._agent) is not None:
            raise NotFound(f"no session {session_id}")
        asked = wire.OpenSession(session_id=session_id, cwd="/")
        params = jsonrpc.raw({"sessionId": session_id, "mcpServers": []})
        return await self._of_agent(asked, params, "session/resume")

    async def adopt(self, session_id: str, asked: wire.NewSession, params: Raw) -> None:
        """Make a record of a session that the agent has made under this id, and of which its client is about to be
        told. Raises NotFound if it is not free.
        """
        session = await self._begun(session_id, asked, params)
        async with _or_closed(session):
            await self._whole(self._gateway.threads.create(session.context.thread))
        self._shown(session, None)

    async def _begun(self, session_id: str, asked: wire.NewSession, params: Raw) -> EditorSession:
        """Open a session of the agent's that is not on record. Raises NotFound if there is another by this id."""
        assert self._agent is not None
        try:
            await self._gateway.threads.get(session_id)
        except NotFound:
            await governed.opened(governed.of(self._gateway, self._agent), session_id, self._client.visitor.name)
            return await self._opened(self._thread(session_id, asked), self._agent, params, OpenedBy.NEW)
        raise NotFound(f"no session {session_id}")

    async def _opened(self, thread: Thread, agent: str, params: Raw, way: OpenedBy) -> EditorSession:
        """Open a session and tell what is to be told before its client is answered.

        Raises NotFound, Unavailable, and Denied for a client that has logged out since it asked for it.
        """
        if way is not OpenedBy.NEW:  # which is told nothing before it is looked at once more
            self._still(thread)
        if len(self._open) >= self._client.clients.options.max_sessions:
            raise Unavailable("too many sessions are open on this connection; close some")
        session = EditorSession(SessionContext(self._client, thread, agent, Raw(bytes(params))), self._left)
        self._open[session.id] = session
        await session.open(way)
        try:
            self._still(thread)
        except InterlinguaError:
            await session.close()
            raise
        return session

    def _still(self, thread: Thread) -> None:
        """Raises Denied or NotFound where the client is, by now, nobody who may have the session."""
        self._client.visitor.check("", self._agent)
        if not self.may_have(thread):
            raise NotFound(f"no session {thread.id}")

    def _shown(self, session: EditorSession, answer: Any) -> Any:
        """The answer that makes the session known: what happens in it is told when this has been sent."""
        asyncio.get_running_loop().call_soon(session.go)
        return answer

    def _left(self, session: EditorSession) -> None:
        if self._open.get(session.id) is session:
            del self._open[session.id]

    def _thread(self, id: str, asked: wire.NewSession) -> Thread:
        now = time.time()
        attributes = self._client.visitor.marks()
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
        name = self._agent or bound(thread) or next(iter(self._client.names()), None)
        if name is None:
            raise NotFound("there are no agents")
        return name


@contextlib.asynccontextmanager
async def _or_closed(session: EditorSession) -> AsyncIterator[None]:
    """Close the session where what opens it fails."""
    try:
        yield
    except BaseException:
        await session.close()
        raise


def bound(thread: Thread) -> str | None:
    chosen = thread.attributes.get("agent")
    return chosen if isinstance(chosen, str) else thread.agent
