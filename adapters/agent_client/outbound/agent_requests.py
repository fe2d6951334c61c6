"""Answers what an agent asks for: from the run's client, a policy or a workspace; or refuses it.

A permission or an elicitation is a question of the run's, whatever protocol its client speaks. Everything else is
handed to a client of this protocol that declared it; files and terminals else come from the route's workspace.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from msgspec import Raw, Struct

from adapters.agent_client import forwarded
from adapters.agent_client.codec import errors, questions
from adapters.agent_client.inbound.client import EditorClient
from adapters.agent_client.options import AgentClientTarget, Permissions
from adapters.agent_client.outbound import governed
from adapters.agent_client.outbound.connection import AgentConnection
from adapters.agent_client.outbound.session import AgentSession
from adapters.agent_client.outbound.turn import TurnPhase
from adapters.agent_client.outbound.workspace import PREFIX, Files, exit_status, output
from adapters.agent_client.tunnel import mcp_messages as tunnel
from adapters.agent_client.tunnel.tunnels import Tunnels
from adapters.agent_client.wire import PROTOCOL, as_object
from gateway.contract import Caller, ThreadContext, governing
from gateway.core.errors import Invalid, NotFound
from gateway.core.types import Answer, JsonObject, Outcome
from gateway.wire import jsonrpc

log = logging.getLogger(__name__)

NOT_ASKED: JsonObject = {"outcome": {"outcome": "cancelled"}}
ALLOW = ("allow_once", "allow_always")
CREATING = ("terminal/create",)


class _Params(Struct, rename="camel", gc=False):
    pass


class _Read(_Params):
    """`fs/read_text_file`."""

    path: str
    line: int | None = None
    limit: int | None = None


class _Write(_Params):
    """`fs/write_text_file`."""

    path: str
    content: str


class _Variable(_Params):
    """Of a command's environment."""

    name: str
    value: str


class _Create(_Params):
    """`terminal/create`."""

    command: str
    args: list[str] = []
    env: list[_Variable] = []
    cwd: str | None = None
    output_byte_limit: int | None = None


class _OfTerminal(_Params):
    """The other `terminal/` requests."""

    terminal_id: str


class AgentRequests:
    """See `AgentHandler`. One for all connections to one target."""

    def __init__(self, target: AgentClientTarget, tunnels: Tunnels) -> None:
        self._tunnels = tunnels
        self._policy = target.permissions
        workspace = target.workspace
        self._workspace = workspace
        self._files = Files(workspace) if workspace is not None else None
        self._may_run = workspace is not None and workspace.terminals

    async def answer(self, connection: AgentConnection, method: str, params: Raw) -> Any:
        """A request of the agent's. Raises RpcError and errors of the tree: they are the answer then."""
        if method in tunnel.METHODS:
            return await self._tunnels.answer(connection, method, params)
        session, context = _request_from(connection, params)
        if session is None:
            if (name := forwarded.session_of(params)) is not None:
                raise NotFound(f"session {name} is not open")
            await connection.shown()
        if method == "session/request_permission":
            return await self._permission(session, params)
        if method == "elicitation/create":
            return await self._elicitation(connection, session, context, params)
        if session is not None and (method in governed.FILES or method.startswith("terminal/")):
            return await self._served(session, method, params)
        return await self._of_client(session, context, method, params)

    async def tell(self, connection: AgentConnection, method: str, params: Raw) -> None:
        """A notification that concerns the client alone: one in a session has its place among the updates of its turn.

        One that names no session goes to every client that is there.
        """
        if method in tunnel.METHODS:
            await self._tunnels.tell(connection, method, params)
            return
        session, context = _request_from(connection, params)
        if session is not None and session.turn is not None:
            session.turn.notify(method, _for_client(session, params))
            return
        if session is None:
            await connection.shown()
        contexts = [context] if context is not None else []
        if context is None and forwarded.session_of(params) is None and not jsonrpc.members(params).get("requestId"):
            contexts = connection.contexts()
        told = False
        for each in contexts:
            caller = _client(each)
            if caller is not None:
                await _up_to_date(session, caller)
                caller.tell(method, _for_client(session, params))
                told = True
        if not told:
            log.debug("%s: nobody is there for %s", connection.name, method)

    # --- questions -----------------------------------------------------------------------------------------------

    async def _permission(self, session: AgentSession | None, params: Raw) -> Any:
        """Choose only what was offered. A question that belongs to no turn is nearly always refused."""
        turn = session.turn if session is not None else None
        asked = jsonrpc.read(params, dict[str, Any])
        call = as_object(asked.get("toolCall"))
        if turn is None:
            await governed.late(session, call)
            return await self._unasked(session, call, params)
        name = str(call.get("toolCallId"))
        interrupt = turn.question(asked)
        said = call.get("kind")
        kinds = turn.kinds(name) | ({said} if isinstance(said, str) else set())
        if turn.calls is not None:
            turn.flush()
            answer = await turn.calls.permission(interrupt, kinds, turn.ask)
            if answer is not None:
                return answer
        verdict = judged(self._policy, kinds or {"other"})
        if turn.calls is None:
            turn.asked(call, told=verdict != "forward")
        if verdict == "allow":
            options = [option for option in asked["options"] if isinstance(option, dict)]
            offered = {option.get("kind"): option for option in reversed(options)}
            chosen = next((offered[kind] for kind in ALLOW if kind in offered), None)
            if chosen is not None:
                return questions.selecting(chosen["optionId"])
        if verdict == "deny":
            return questions.permission_result(Answer(outcome=Outcome.DECLINED), interrupt.payload)
        return questions.permission_result(await turn.ask(interrupt), interrupt.payload)

    async def _unasked(self, session: AgentSession | None, call: JsonObject, params: Raw) -> Any:
        """A permission outside of any turn: a client is asked only about the agent's own work."""
        context = session.context if session is not None else None
        caller = _client(context)
        if session is None or context is None or caller is None or session.governor is not None:
            return NOT_ASKED
        kind = call.get("kind")
        own = session.work is not None and session.work.working
        if not own or judged(self._policy, {kind if isinstance(kind, str) else "other"}) != "forward":
            return NOT_ASKED
        return await _asked(session, caller, "session/request_permission", params)

    async def _elicitation(
        self, connection: AgentConnection, session: AgentSession | None, context: ThreadContext | None, params: Raw
    ) -> Any:
        """Put it as a question of the run; outside of a turn, hand it to a client that is there."""
        asked = jsonrpc.read(params, dict[str, Any])
        if asked.get("mode") not in questions.elicitation_modes(connection.capabilities):
            raise Invalid("the client has not declared this mode", path="/mode")
        turn = session.turn if session is not None else None
        if turn is not None:
            interrupt = questions.elicitation(asked, turn.name_question("elicitation"))
            return questions.elicitation_result(await turn.ask(interrupt), interrupt.payload)
        for caller in _clients(context):
            if asked["mode"] in questions.elicitation_modes(caller.capabilities):
                return await _asked(session, caller, "elicitation/create", params)
        return {"action": "cancel"}

    # --- files, terminals, and what else there may be ---------------------------------------------------------------

    async def _served(self, session: AgentSession, method: str, params: Raw) -> Any:
        governor = session.governor
        if governor is not None and not governed.lent(governor, method):
            raise errors.unknown(method)
        if governor is None or method not in governed.ACTS:
            return await self._serve(session, method, params)
        if _client(session.context, method) is None:
            if self._files is None or (method in CREATING and not self._may_run):
                raise errors.unknown(method)
            if method in CREATING and not jsonrpc.members(params).get("cwd"):
                params = jsonrpc.replaced(params, cwd=self._files.root)
        return await governed.act(
            session, method, params, lambda found: self._serve(session, method, found, links=False)
        )

    async def _serve(self, session: AgentSession, method: str, params: Raw, *, links: bool = True) -> Any:
        """`links` as in `Files.read`."""
        of_terminal = method.startswith("terminal/") and method not in CREATING
        if of_terminal and jsonrpc.read(params, _OfTerminal).terminal_id.startswith(PREFIX):
            return await self._terminal(session, method, params)
        caller = _client(session.context, method)
        if caller is not None:
            return await self._lent(session, caller, method, params)
        if self._files is None or self._workspace is None:
            raise errors.unknown(method)
        if method == "fs/read_text_file":
            asked = jsonrpc.read(params, _Read)
            read = self._files.read
            return {"content": await asyncio.to_thread(read, asked.path, asked.line, asked.limit, links=links)}
        if method == "fs/write_text_file":
            written = jsonrpc.read(params, _Write)
            await asyncio.to_thread(self._files.write, written.path, written.content, links=links)
            return {}
        if method == "terminal/create" and self._workspace.terminals:
            return await self._create(session, self._files, jsonrpc.read(params, _Create))
        if self._workspace.terminals:
            raise NotFound(f"there is no terminal {jsonrpc.read(params, _OfTerminal).terminal_id}")
        raise errors.unknown(method)

    async def _lent(self, session: AgentSession, caller: Caller, method: str, params: Raw) -> Raw:
        """A file or command of a client. A command stays with the client that began it, whichever others are there."""
        commands = session.commands
        if method not in CREATING and method.startswith("terminal/"):
            caller = commands.lender(jsonrpc.read(params, _OfTerminal).terminal_id) or caller
        answer = await _asked(session, caller, method, params)
        if method in CREATING and (name := jsonrpc.members(answer).get("terminalId")):
            commands.lend(str(jsonrpc.unpack(name)), caller)
        elif method == "terminal/release":
            commands.returned(jsonrpc.read(params, _OfTerminal).terminal_id)
        return answer

    async def _create(self, session: AgentSession, files: Files, asked: _Create) -> JsonObject:
        env = {each.name: each.value for each in asked.env}
        limit = asked.output_byte_limit
        name = await session.commands.workspace(files).create(
            asked.command, asked.args, env=env, cwd=asked.cwd, limit=limit
        )
        return {"terminalId": name}

    async def _terminal(self, session: AgentSession, method: str, params: Raw) -> JsonObject:
        name = jsonrpc.read(params, _OfTerminal).terminal_id
        terminals = session.commands.terminals
        if terminals is None:
            raise NotFound(f"there is no terminal {name}")
        if method == "terminal/release":
            await terminals.release(name)
            return {}
        command = terminals.find(name)
        if method == "terminal/output":
            return output(command)
        if method == "terminal/wait_for_exit":
            return await exit_status(command)
        if method == "terminal/kill":
            await command.kill()
            return {}
        raise errors.unknown(method)

    async def _of_client(
        self, session: AgentSession | None, context: ThreadContext | None, method: str, params: Raw
    ) -> Raw:
        """Extensions above all: ask the clients of this protocol, the newest first, until one knows the method."""
        if method in governed.FILES or method.startswith("terminal/"):
            raise errors.unknown(method)
        if method.startswith("fs/") and context is not None and governing.governor_of(context) is not None:
            raise errors.unknown(method)  # a path in it could lead anywhere
        unknown = errors.unknown(method)
        for caller in _clients(context):
            try:
                answer = await _asked(session, caller, method, params)
                break
            except jsonrpc.RpcError as error:
                if error.error.code != jsonrpc.METHOD_NOT_FOUND:
                    raise
                unknown = error
        else:
            raise unknown
        if session is None or session.thread is None:
            return answer
        return forwarded.renamed(answer, lambda name: session.name if name == session.thread else name)


async def _asked(session: AgentSession | None, caller: Caller, method: str, params: Raw) -> Raw:
    await _up_to_date(session, caller)
    return await caller.ask(method, _for_client(session, params))


async def _up_to_date(session: AgentSession | None, caller: Caller) -> None:
    """Wait until the client was told what the agent has said in the session; a run's end is recorded first."""
    if session is None:
        return
    await session.shown()
    run = session.run
    if run is not None and run.phase is TurnPhase.OVER:
        await run.ended.wait()
    if session.thread is not None and isinstance(caller, EditorClient):
        await caller.up_to_date(session.thread)


def _request_from(connection: AgentConnection, params: Raw) -> tuple[AgentSession | None, ThreadContext | None]:
    session, context = connection.request_from(params)
    assert session is None or isinstance(session, AgentSession)
    return session, context


def judged(policy: Permissions, kinds: set[str]) -> str:
    """Decide a question about a tool call: `deny`, `forward` or `allow`.

    `kinds` are what the agent said of it, now and before; where it contradicts itself, the strictest counts.
    """
    if kinds & set(policy.deny):
        return "deny"
    if kinds & set(policy.forward):
        return "forward"
    listed = kinds & set(policy.allow)
    if listed and (listed == kinds or policy.default == "allow"):
        return "allow"
    return policy.default


def _client(context: ThreadContext | None, method: str = "") -> Caller | None:
    """The newest client that speaks this protocol and offers the file or terminal `method`, if one is given."""
    return next((each for each in _clients(context) if not method or _has(each.capabilities, method)), None)


def _clients(context: ThreadContext | None) -> list[Caller]:
    return [each for each in (context.callers if context is not None else ()) if each.protocol == PROTOCOL]


def _for_client(session: AgentSession | None, params: Raw) -> Raw:
    if session is None or session.thread is None:
        return params
    return forwarded.with_session(params, session.thread)


def _has(capabilities: JsonObject, method: str) -> bool:
    """Whether a client declared that it serves a file or terminal request."""
    if method.startswith("terminal/"):
        return bool(capabilities.get("terminal"))
    files = capabilities.get("fs")
    return isinstance(files, dict) and bool(files.get(governed.FILES[method]))
