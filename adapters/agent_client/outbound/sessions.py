"""Makes the agent's sessions of threads, finds them again after a restart, and closes them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client import forwarded
from adapters.agent_client.codec.errors import AUTH_REQUIRED
from adapters.agent_client.codec.version import V1
from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.outbound import governed
from adapters.agent_client.outbound.connection import AgentConnection
from adapters.agent_client.outbound.connections import AgentConnections
from adapters.agent_client.outbound.session import AgentSession, SessionRecord, Stray, asked, recorded
from adapters.agent_client.tunnel.tunnels import Tunnels
from adapters.agent_client.wire import OURS, PROTOCOL, as_object, auth_methods, takes_up, with_meta
from gateway.contract import ThreadContext, governing
from gateway.core import delta
from gateway.core.errors import AgentBroken, AgentError, AgentGone, AgentTimeout, InterlinguaError, Unsupported
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc

log = logging.getLogger(__name__)

FORGOTTEN = "session_forgotten"
Lost = Callable[[str], None]
_encode = msgspec.json.encode


class Opening:
    """A session that the agent was asked to make: for `AgentSessions.begun` once it has answered, or to be withdrawn.

    answer: None before it comes.
    """

    def __init__(
        self,
        session: AgentSession,
        connection: AgentConnection,
        record: SessionRecord,
        context: ThreadContext,
        answered: Callable[[], None],
    ) -> None:
        self.session = session
        self.connection = connection
        self.record = record
        self.answer: Raw | InterlinguaError | None = None
        self._answered = answered
        self._late: Callable[[AgentConnection, str], None] | None = None
        connection.opens(session)
        try:
            params = Raw(_encode(record.setup(connection.offers)))
            self._asked = connection.send("session/new", params, context, self._came)
        except AgentGone as error:
            self._came(error)

    def _came(self, answer: Raw | InterlinguaError) -> None:
        self.answer = answer
        name = forwarded.session_of(answer) if isinstance(answer, Raw) else None
        if self._late is None:
            self.connection.named(self.session, name or "")
            self._answered()
        elif name:
            self._late(self.connection, name)

    def withdraw(self, late: Callable[[AgentConnection, str], None]) -> None:
        """The answer is not waited for any more. `late` is given the id of a session that is made all the same."""
        self._late = late
        self.connection.withdraw(self._asked, forget=False)
        self.connection.opened(self.session)


class AgentSessions:
    """All sessions of one target's agent, by the gateway's thread."""

    def __init__(self, target: AgentClientTarget, connections: AgentConnections, tunnels: Tunnels) -> None:
        self._target = target
        self._connections = connections
        self._tunnels = tunnels
        self._by_thread: dict[str, AgentSession] = {}
        self._closing = TaskSet()
        self._hanging: set[AgentConnection] = set()
        """Connections to be ended once no session works there."""

    def of(self, context: ThreadContext) -> AgentSession:
        """The session of the context's thread, open or not; a new one without a thread."""
        if (thread := context.thread) is None:
            return AgentSession(None, self._target.idle, self._tunnels.forget, self._unused)
        key = thread.id
        session = self._by_thread.get(key)
        if session is None:
            self._sweep()
            session = self._by_thread[key] = AgentSession(key, self._target.idle, self._tunnels.forget, self._unused)
        return session

    def _sweep(self) -> None:
        """Drop what has nothing open any more, now and then."""
        if len(self._by_thread) % 256 == 255:
            for key in [key for key, session in self._by_thread.items() if session.disposable]:
                del self._by_thread[key]

    async def open(self, session: AgentSession, context: ThreadContext, lost: Lost | None = None) -> AgentConnection:
        """See that the agent has the session open. To be called inside its lease; returns its connection.

        `lost` is called with FORGOTTEN if the agent has forgotten the conversation; only runs have it. Raises
        AgentError if the agent wants to be authenticated to and no client of this protocol is there, RpcError if one
        is, and the errors of the tree.
        """
        if (there := self.there(session, context)) is not None:
            return there
        in_run, governor = lost is not None, governing.governor_of(context)
        async with session.lock:
            session.seen(context)
            if await self._recovered(session) and session.open:
                connection = await session.lease.connect(self._connections.shared(context, session.record.profile))
                if connection is session.connection:
                    return connection
            known = recorded(context)
            session.settled()
            profile = known.profile if known else self._connections.profile(context.caller)
            connection = await session.lease.connect(self._connections.shared(context, profile))
            if known is not None:
                known = await governed.placed(governor, known)
                if await self._again(session, connection, known, in_run):
                    return connection
                log.warning("thread %s: %s has forgotten its session", session.thread, self._connections.name)
                if lost is not None:
                    lost(FORGOTTEN)
                known = replace(known, partial=True)
            elif session.thread is not None and connection.claim(session.thread):
                session.bind(connection, session.thread)
                await self._record(session, replace(self._default(governor), profile=profile))
                return connection
            record = known or await governed.placed(governor, self._default(governor))
            begun = context.thread is not None and context.thread.begun
            record = replace(record, profile=profile, fresh=begun, files=[])
            await self._new(session, connection, Raw(_encode(record.setup(connection.offers))), record, in_run)
            return connection

    def there(self, session: AgentSession, context: ThreadContext) -> AgentConnection | None:
        """The connection where the session is open already and nothing has to be waited for; None otherwise."""
        connection = session.connection
        if session.lock.locked() or not session.name or session.owed is not None or not session.lease.holds(connection):
            return None
        if governing.governor_of(context) is not None:  # whose documents say what a client may lend, and may be others
            shared = self._connections.shared(context, session.record.profile)
            if session.lease.connected(shared) is not connection:
                return None
        session.seen(context)
        return connection

    def begin(self, session: AgentSession, context: ThreadContext, answered: Callable[[], None]) -> Opening | None:
        """Have the agent make the session of a run without a thread, where nothing has to be waited for before that;
        None elsewhere. `answered` is called when it has answered.
        """
        if governing.governor_of(context) is not None:
            return None
        session.seen(context)
        profile = self._connections.profile(context.caller)
        connection = session.lease.connect_now(self._connections.shared(context, profile))
        if connection is None:
            return None
        return Opening(session, connection, replace(self._plain, profile=profile), context, answered)

    def begun(self, opening: Opening) -> AgentConnection:
        """The session, now that the agent has answered. Raises as `open` does."""
        session, connection, answer = opening.session, opening.connection, opening.answer
        try:
            if isinstance(answer, jsonrpc.RpcError):
                raise self._denied(answer, connection, session.context) from answer
            if isinstance(answer, InterlinguaError):
                raise answer
            assert answer is not None
            self._made(session, connection, connection.version.agent_answer("session/new", answer), in_run=True)
        finally:
            connection.opened(session)
        session.recorded(replace(opening.record, session=session.name))
        return connection

    def give_up(self, opening: Opening) -> None:
        """The session is not wanted any more, and what the agent has said in it is told nobody: there may be no run."""
        if opening.answer is None:
            opening.withdraw(self._late)
        else:
            with opening.session.telling(Stray.KNOWN), contextlib.suppress(InterlinguaError):
                self.begun(opening)

    def _late(self, connection: AgentConnection, name: str) -> None:
        if connection.can_close:
            self._closing.start(self._close_late(connection, name))

    async def _close_late(self, connection: AgentConnection, name: str) -> None:
        with contextlib.suppress(AgentError):
            await connection.ask("session/close", {"sessionId": name}, timeout=self._target.request_timeout)

    async def new(self, context: ThreadContext, params: Raw) -> Raw:
        """`session/new` of a client: a session for its thread, with its very params. Returns the agent's answer."""
        session = self.of(context)
        async with session.lease, session.lock:
            session.seen(context)
            profile = self._connections.profile(context.caller)
            connection = await session.lease.connect(self._connections.shared(context, profile))
            return await self._new(session, connection, params, replace(asked(params), profile=profile))

    async def load(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        """`session/load` or `session/resume` of a client. What the agent replays is told as it comes.

        An agent that can only load is asked for that, and its replay is dropped. Raises Unsupported if the replay would
        not be the conversation: the agent works at that moment, has forgotten the beginning, or may still be telling of
        the load before, since it told of that behind its answer.
        """
        session = self.of(context)
        async with session.lease, session.lock:
            known = recorded(context)
            partial = known is not None and known.partial
            if method == "session/load" and (partial or session.busy or session.run is not None or session.late):
                raise Unsupported(f"{self._connections.name} cannot replay session {session.thread} now")
            session.seen(context)
            if "cwd" not in jsonrpc.members(params):
                params = jsonrpc.replaced(params, cwd=self._default(governing.governor_of(context)).cwd)
            name = known.session if known else session.thread or ""
            profile = known.profile if known else self._connections.profile(context.caller)
            await self._recovered(session)
            before = session.connection if session.open and session.name == name else None
            alone = before is not None and before.can_close and before.version is V1 and len(context.callers) < 2
            if alone and method == "session/load":
                # an editor that was started again would have a new agent: there are some (Mistral Vibe 3.0) that tell
                # all twice where a session is loaded that is open. In version 2 it may be at work on its own
                await self._put_down(session)
            connection = await session.lease.connect(self._connections.shared(context, profile))
            there = session.connection is connection and session.name == name
            if not there:
                session.bind(connection, name)
            loads = connection.offers("loadSession") and not connection.offers("sessionCapabilities", "resume")
            telling: AbstractContextManager[None] = nullcontext()
            if method == "session/resume" and loads:
                method, telling = "session/load", session.telling(Stray.KNOWN)
            elif method == "session/load" or "replayFrom" in jsonrpc.members(params):
                telling = session.telling(Stray.HISTORY)
            told = {"fresh": known.fresh, "files": known.files} if known is not None else {}
            record = replace(asked(params), session=name, profile=profile, partial=partial, **told)
            asking: asyncio.Future[Raw] | None = None
            try:
                with telling:
                    sent, lost = await self.given(session, connection, forwarded.with_session(params, name))
                    asking = asyncio.ensure_future(self._asked(session, connection, context, method, sent))
                    result = await asyncio.shield(asking)
            except BaseException:
                if asking is not None and not asking.done():  # the client has gone, and the agent tells on
                    session.recorded(record)
                    session.owes(asking)
                elif not there:
                    session.detach(connection)
                raise
            session.settle(jsonrpc.unpack(result))
            await self._record(session, record)
            return losing(result, lost)

    async def end_for(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        """`session/close` and `session/delete` of a client. If it is not open, only the latter concerns the agent."""
        session, patience = self.of(context), self._target.request_timeout
        async with session.lease, session.lock:
            known, connection = recorded(context), session.connection
            if session.open and connection is not None:
                result = await self._ended(session, connection, context, method, params)
            elif method == "session/close" or known is None:
                result = forwarded.NOTHING
            else:
                async with self._connections.shared(context, known.profile).use() as connection:
                    renamed = forwarded.with_session(params, known.session)
                    result = await connection.ask(method, renamed, timeout=patience, context=context)
        if session.disposable:
            await self.forget(session)
        return result

    async def _ended(
        self, session: AgentSession, connection: AgentConnection, context: ThreadContext, method: str, params: Raw
    ) -> Raw:
        """The agent's answer to a request to end a session that it has open. It is not, unless the agent refuses."""
        renamed, patience = forwarded.with_session(params, session.name), self._target.request_timeout
        try:
            result = await connection.ask(method, renamed, timeout=patience, context=context)
        except jsonrpc.RpcError:
            raise
        except BaseException as error:
            if isinstance(error, AgentTimeout) and method == "session/close":
                await self.hangs(session)
            if takes_up(connection.initialized):  # it may have ended it
                session.detach(connection)
            raise
        session.detach(connection)
        await session.commands.end()
        return result

    async def told(self, session: AgentSession, files: Sequence[str] = ()) -> None:
        """The agent is about to be told of the conversation before its session, and given these files."""
        record = session.record
        if (record.fresh or files) and session.context is not None and recorded(session.context) is not None:
            await self._record(session, replace(record, fresh=False, files=[*record.files, *files]))

    async def close(self, session: AgentSession) -> None:
        await self._tell_closed(session)
        await self.forget(session)

    def end(self, session: AgentSession) -> None:
        """The run without a thread is over that had the session: the same, in the background if it takes time."""
        connection = session.connection
        if (connection is not None and connection.can_close) or not session.drop():
            self._closing.start(self.close(session))

    def _unused(self, session: AgentSession) -> None:
        """Close what the agent can find again: neither it nor the gateway may grow with every conversation."""
        connection = session.connection
        if session.thread is not None and session.open and connection is not None and takes_up(connection.initialized):
            self._closing.start(self._put_away(session))

    async def _put_away(self, session: AgentSession) -> None:
        async with session.lock:
            if session.lease.used:
                return
            await self._put_down(session)
        if session.disposable:
            await self.forget(session)

    async def _put_down(self, session: AgentSession) -> None:
        """Close a session that the agent can find again. It is not open any more, whatever comes of that."""
        try:
            await self._tell_closed(session)
        finally:
            if session.connection is not None:
                session.detach(session.connection)
        await session.commands.end()

    async def _tell_closed(self, session: AgentSession) -> None:
        connection = session.connection
        if connection is None or not connection.can_close:
            return
        try:
            await connection.ask("session/close", {"sessionId": session.name}, timeout=self._target.request_timeout)
        except AgentTimeout:
            await self.hangs(session)
        except AgentError as error:
            log.info("%s did not close session %s: %s", self._connections.name, session.name, error)

    async def hangs(self, session: AgentSession) -> None:
        """End an agent that does not answer a `session/close`, once no other session works there (AIP-44, security)."""
        connection = session.connection
        if connection is None:
            return
        if self._needed(session, connection):
            self._closing.start(self._end_later(session, connection))
            return
        log.warning("%s does not close session %s and is ended", self._connections.name, session.name)
        await connection.aclose()

    async def forget(self, session: AgentSession) -> None:
        if session.thread is not None and self._by_thread.get(session.thread) is session:
            del self._by_thread[session.thread]
        await session.aclose()

    async def aclose(self) -> None:
        """Forget all. The connections are closed meanwhile: no agent answers any more."""
        sessions, self._by_thread = list(self._by_thread.values()), {}
        await asyncio.gather(*(session.aclose() for session in sessions), *self._closing, return_exceptions=True)

    # --- inside --------------------------------------------------------------------------------------------------

    async def _new(
        self,
        session: AgentSession,
        connection: AgentConnection,
        params: Raw,
        record: SessionRecord,
        in_run: bool = False,
    ) -> Raw:
        sent, lost = await self.given(session, connection, params)
        connection.opens(session)
        try:
            result = await connection.ask(
                "session/new", sent, timeout=self._target.request_timeout, context=session.context
            )
            self._made(session, connection, result, in_run=in_run)
        except jsonrpc.RpcError as error:
            raise self._denied(error, connection, session.context) from error
        finally:
            connection.opened(session)
            if not session.open:
                self._tunnels.forget(session)
        await self._record(session, record)
        return losing(result, lost)

    def _made(self, session: AgentSession, connection: AgentConnection, result: Raw, *, in_run: bool) -> None:
        """The agent has answered `session/new`. Raises AgentBroken."""
        answer = jsonrpc.unpack(result)
        name = answer.get("sessionId") if isinstance(answer, dict) else None
        if not isinstance(name, str) or not name or delta.sound(name) != name:
            raise AgentBroken(f"{self._connections.name} made a session without an id that can be kept")
        session.bind(connection, name)
        session.settle(answer, in_run=in_run)

    async def given(self, session: AgentSession, connection: AgentConnection, params: Raw) -> tuple[Raw, list[str]]:
        """The params that open a session, as its agent is to get them; and the loss, if it cannot have all of them."""
        params, taken = governed.mounted(session.governor, params)
        sent, lost = await self._tunnels.declared(session, connection, params)
        return sent, lost or taken

    async def _again(
        self, session: AgentSession, connection: AgentConnection, known: SessionRecord, in_run: bool
    ) -> bool:
        """Open a session of before the agent or the gateway was started again. False if the agent cannot."""
        if connection.offers("sessionCapabilities", "resume"):
            method = "session/resume"
        elif connection.offers("loadSession"):
            method = "session/load"
        else:
            return False
        try:
            with session.telling(Stray.KNOWN):
                session.bind(connection, known.session)
                params = Raw(_encode({"sessionId": known.session, **known.setup(connection.offers)}))
                params, _ = await self.given(session, connection, params)
                result = await self._asked(session, connection, session.context, method, params)
        except jsonrpc.RpcError as error:
            session.detach(connection)
            if error.error.code == AUTH_REQUIRED:
                raise self._denied(error, connection, session.context) from error
            log.info("%s: %s of %s: %s", self._connections.name, method, known.session, error)
            return False
        except BaseException:
            session.detach(connection)
            raise
        session.settle(jsonrpc.unpack(result), in_run=in_run)
        session.recorded(known)
        return True

    async def _asked(
        self,
        session: AgentSession,
        connection: AgentConnection,
        context: ThreadContext | None,
        method: str,
        params: Raw,
    ) -> Raw:
        """The agent's answer to `session/load` or `session/resume`, once it has told all that was."""
        result = await connection.ask(method, params, timeout=self._target.request_timeout, context=context)
        if method == "session/load":
            await session.quiet(connection)
        return result

    async def _recovered(self, session: AgentSession) -> bool:
        """Whether an open session can be used. One that owes an answer is waited for, for a moment.

        If the end does not come, the agent is ended. Raises AgentTimeout if others work with it: then it is ended when
        they have done.
        """
        if (owed := session.owed) is None:
            return True
        await asyncio.wait([owed], timeout=self._target.stop_timeout)
        if owed.done() or (connection := session.connection) is None:
            return session.open
        if self._needed(session, connection):
            self._closing.start(self._end_later(session, connection, owed))
            raise AgentTimeout(
                f"{self._connections.name} is still busy with a prompt of this session that was cancelled"
            )
        log.warning("%s does not end a cancelled prompt and is ended itself", self._connections.name)
        await connection.aclose()
        return False

    def _needed(self, session: AgentSession, connection: AgentConnection) -> bool:
        """Whether other sessions work with the agent, or would be forgotten by it."""
        others = [each for each in connection.sessions.values() if each is not session]
        return any(each.busy or not takes_up(connection.initialized) for each in others)

    async def _end_later(
        self, session: AgentSession, connection: AgentConnection, owed: asyncio.Future[Any] | None = None
    ) -> None:
        """End an agent that does not answer in a session, once no other works with it; unless it has given what it
        `owed` by then, or would forget another's session.
        """
        if connection in self._hanging:
            return
        self._hanging.add(connection)
        try:
            while connection.alive and self._needed(session, connection):
                others = [each.run for each in connection.sessions.values() if each is not session]
                ends = [asyncio.ensure_future(run.ended.wait()) for run in others if run is not None]
                if not ends:
                    return
                waits: list[asyncio.Future[Any]] = [*ends, connection.closed]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for end in ends:
                    end.cancel()
            if connection.alive and not (owed is not None and owed.done()):
                log.warning("%s did not answer in session %s and is ended", self._connections.name, session.name)
                await connection.aclose()
        finally:
            self._hanging.discard(connection)

    async def _record(self, session: AgentSession, record: SessionRecord) -> None:
        session.recorded(replace(record, session=session.name))
        if session.thread is not None and session.context is not None:
            await session.context.set_thread(session.record.upstream)

    def _default(self, governor: governing.Governor | None) -> SessionRecord:
        """For a client that names no folder."""
        plain, target = self._plain, self._target
        if governor is None or target.cwd or target.workspace or not governor.home:
            return plain
        return replace(plain, cwd=os.path.abspath(governor.home))

    @functools.cached_property
    def _plain(self) -> SessionRecord:
        target = self._target
        named = target.cwd or (target.workspace.root if target.workspace else None)
        return SessionRecord(session="", cwd=os.path.abspath(named or os.getcwd()))

    def _denied(
        self, error: jsonrpc.RpcError, connection: AgentConnection, context: ThreadContext | None
    ) -> AgentError:
        """The error for a client: one of this protocol authenticates itself, all others are told what is to be done."""
        caller = context.caller if context is not None else None
        if error.error.code != AUTH_REQUIRED or (caller is not None and caller.protocol == PROTOCOL):
            return error
        methods = ", ".join(map(str, auth_methods(connection.initialized))) or "none that it names"
        return AgentError(
            f"{self._connections.name} wants to be authenticated to first ({methods}): {error}", detail=error.detail
        )


def losing(answer: Raw, lost: list[str]) -> Raw:
    """The answer, naming in its `_meta` what was asked for in vain."""
    said = with_meta(as_object(jsonrpc.unpack(answer)), OURS, {"lost": lost}) if lost else {}
    return jsonrpc.replaced(answer, _meta=said["_meta"]) if lost else answer
