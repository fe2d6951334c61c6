"""The resources (sections 4.1, 5.4): the directory, the tasks, the status, the metrics of each agent; and who wants to
know.

Bodies are JSON text. What changes is told at most some times a second, however often it does.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from adapters.agent_context import wire
from adapters.agent_context.codec.errors import refusal
from adapters.agent_context.coordination.task_record import Tasks
from adapters.agent_context.inbound.environment import Environment
from adapters.agent_context.security import ClientPrincipal
from adapters.agent_context.wire.messages import read
from gateway.core import delta
from gateway.core.errors import InterlinguaError, Limited, NotFound
from gateway.core.types import JsonObject
from gateway.mcp import versions
from gateway.mcp.runs.paging import listed, page
from gateway.mcp.server.contract import MOST_SUBSCRIPTIONS, McpCall, McpSession
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)

THEIRS: Final = "agent:"
"""Prefix of the cursors that are the server's own."""
OURS: Final = "agent://"
CALM_SECONDS: Final = 0.25
"""Between two tellings."""
LAST_ACTIVE: Final = "lastActive"
"""Of metrics."""
LOOKED: Final = 50
"""Metrics that are looked at each time; others the next time, as each takes a few questions to the store."""


class Resources:
    """One per gateway process."""

    def __init__(self, env: Environment, tasks: Tasks, sessions: Callable[[], Collection[McpSession]]) -> None:
        self._env = env
        self._tasks = tasks
        self._sessions = sessions
        self._wanted: WeakKeyDictionary[McpSession, dict[str, None]] = WeakKeyDictionary()
        self._due: set[str] = set()
        self._names: frozenset[str] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._seen: dict[str, bytes] = {}
        self._looked = ""
        self._looking: asyncio.Task[None] | None = None

    # --- requests ---------------------------------------------------------------------------------------------

    async def listing(self, call: McpCall) -> JsonObject:
        cursor: str | None = read(call.params, "Page").get("cursor")
        principal = self._env.people.may(call, "read")
        if cursor is not None and cursor.startswith(THEIRS):
            return listed("resources", *await self._more(call, "resources", cursor))
        only = call.session.agent
        names = [name for name in self._env.directory.ids() if only in (None, name) and principal.can("read", name)]
        names = [*_DESCRIBED, *(wire.METRICS_PREFIX + name for name in names)]
        found, following = page("resources", names, cursor, self._env.options.page_size)
        theirs: list[JsonObject] = []
        if following is None:
            theirs, following = await self._more(call, "resources", THEIRS)
        return listed("resources", [*(_listed(uri) for uri in found), *theirs], following)

    async def templates(self, call: McpCall) -> JsonObject:
        cursor: str | None = read(call.params, "Page").get("cursor")
        self._env.people.may(call, "read")
        theirs, following = await self._more(call, "resourceTemplates", cursor or THEIRS)
        if cursor is not None:
            return listed("resourceTemplates", theirs, following)
        told = "What the gateway has measured of an agent, and how it was evaluated"
        metrics = {"uriTemplate": wire.METRICS, "name": "metrics", "description": told, "mimeType": wire.JSON_TYPE}
        return listed("resourceTemplates", [metrics, *theirs], following)

    async def read(self, call: McpCall) -> JsonObject:
        """`resources/read`."""
        uri = read(call.params, "Resource")["uri"]
        if call.session.agent is not None and not uri.startswith(OURS):
            return await self._relay(call, call.session.agent, {"uri": uri})
        principal = self._env.people.may(call, "read", _agent_in(uri))
        body = await self._body(uri, call.session, principal)
        text = delta.encode(body).decode()
        found = {"contents": [{"uri": uri, "mimeType": wire.JSON_TYPE, "text": text}]}
        return {**found, "ttlMs": 0, "cacheScope": "private"} if versions.modern(call.client.version) else found

    async def subscribe(self, call: McpCall) -> JsonObject:
        """`resources/subscribe`. Refused where the request is the whole session: nothing could be told later."""
        if versions.modern(call.client.version):
            why = f"{call.method} needs a session: nothing can be told to a client of a single request"
            raise RpcError(jsonrpc.METHOD_NOT_FOUND, why, {"code": "unsupported", "retryable": False})
        uri = read(call.params, "Resource")["uri"]
        principal = self._env.people.may(call, "read", _agent_in(uri))
        body = await self._body(uri, call.session, principal)
        wanted = self._wanted.setdefault(call.session, {})
        if len(wanted) >= MOST_SUBSCRIPTIONS and uri not in wanted:
            raise Limited(f"no more than {MOST_SUBSCRIPTIONS} subscriptions")
        wanted[uri] = None
        self._seen.setdefault(uri, _digest(body))
        return {}

    async def unsubscribe(self, call: McpCall) -> JsonObject:
        """`resources/unsubscribe`. No error if it was not subscribed to."""
        uri = read(call.params, "Resource")["uri"]
        self._wanted.get(call.session, {}).pop(uri, None)
        return {}

    def joined(self, session: McpSession) -> None:
        if self._names is None:
            self._names = self._now()
        if versions.modern(session.client.version):  # it listens already
            self.look()

    def left(self, session: McpSession) -> None:
        self._wanted.pop(session, None)

    # --- prompts and resources of an MCP server behind a route ------------------------------------------------

    async def prompts(self, call: McpCall) -> JsonObject:
        asked = read(call.params, "Page")
        self._env.people.known(call)
        return listed("prompts", *await self._more(call, "prompts", asked.get("cursor") or THEIRS))

    async def prompt(self, call: McpCall) -> JsonObject:
        asked = read(call.params, "GetPrompt")
        if call.session.agent is None:
            said, expected = f"/name: no prompt {asked['name']} here", "a prompt, at the door of its agent"
            raise refusal(wire.INVALID, said, "not_found", expected, asked["name"], path="/name")
        params = {key: asked[key] for key in ("name", "arguments") if asked.get(key) is not None}
        return await self._relay(call, call.session.agent, params)

    async def _more(self, call: McpCall, key: str, cursor: str) -> tuple[list[JsonObject], str | None]:
        """A page of what the server lists under `key`, and the cursor of the next. Nothing from one that has no such
        list. `cursor` begins with THEIRS, and is only that for the first page.
        """
        if call.session.agent is None:
            return [], None
        theirs = cursor.removeprefix(THEIRS)
        try:
            result = await self._relay(call, call.session.agent, {"cursor": theirs} if theirs else {})
        except InterlinguaError as error:
            if theirs:
                raise
            log.info("agent %s lists no %s: %s", call.session.agent, key, error)
            return [], None
        items = result.get(key)
        found = [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
        found = [each for each in found if not str(each.get("uri", each.get("uriTemplate", ""))).startswith(OURS)]
        following = result.get("nextCursor")
        return found, THEIRS + following if isinstance(following, str) and following else None

    async def _relay(self, call: McpCall, agent: str, params: JsonObject) -> JsonObject:
        """Ask the server the same. Raises the server's own error, Denied, Unsupported."""
        env = self._env
        env.people.may(call, "message", agent)
        env.directory.check(agent)
        answer = await env.gateway.backchannel.relay(agent, wire.PROTOCOL, call.method, Raw(jsonrpc.encoded(params)))
        result: Any = jsonrpc.unpack(answer)
        if not isinstance(result, dict):
            raise RpcError(wire.AGENT_FAILED, f"agent {agent} answers {call.method} with what is no object")
        return result

    # --- changes ----------------------------------------------------------------------------------------------

    def changed(self, uris: Iterable[str]) -> None:
        """Note that these have changed: their subscribers are told soon."""
        if not self._sessions():
            self._names = None
            return
        self._due.update(uris)
        if wire.DIRECTORY in self._due:
            self._due.add(wire.STATUS)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CALM_SECONDS, self._tell)

    def look(self) -> None:
        """`refresh`, in the background, unless that is under way."""
        if self._looking is None or self._looking.done():
            self._looking = self._env.background.do(None, self.refresh(), "what clients want to know of")

    async def refresh(self) -> None:
        """Look at what somebody wants to know of and nobody reports: tasks and metrics, which come of runs."""
        wanted = {uri for session in self._sessions() for uri in self._wanted_by(session)}
        for uri in self._seen.keys() - wanted:
            del self._seen[uri]
        for uri in self._turn(wanted - {wire.DIRECTORY}):
            try:
                now = _digest(await self._body(uri, None, None))
            except InterlinguaError as error:
                log.debug("%s cannot be looked at: %s", uri, error)
                continue
            if self._seen.setdefault(uri, now) != now:
                self._seen[uri] = now
                self.changed((uri,))

    def _turn(self, wanted: Collection[str]) -> list[str]:
        """The resources to look at this time: the tasks, the status, and the next of the metrics."""
        metrics = sorted(uri for uri in wanted if uri not in (wire.TASKS, wire.STATUS))
        after = bisect_right(metrics, self._looked)
        turn = [*metrics[after:], *metrics[:after]][:LOOKED]
        self._looked = turn[-1] if turn else ""
        return [*(uri for uri in (wire.TASKS, wire.STATUS) if uri in wanted), *turn]

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self) -> None:
        self._timer = None
        due, self._due = self._due, set()
        names = self._now()
        listed_anew = self._names is not None and names != self._names
        self._names = names
        for session in self._sessions():
            if listed_anew:
                session.tell(wire.RESOURCES_CHANGED)
            wanted = self._wanted.get(session, {})
            for uri in sorted(due):
                if uri in wanted or versions.modern(session.client.version):
                    session.tell(wire.RESOURCE_UPDATED, {"uri": uri})

    def _now(self) -> frozenset[str]:
        return frozenset(self._env.directory.ids())

    def _wanted_by(self, session: McpSession) -> list[str]:
        if not versions.modern(session.client.version):
            return [*self._wanted.get(session, ())]
        every = (wire.TASKS, wire.STATUS, *(wire.METRICS_PREFIX + name for name in self._now()))
        return [uri for uri in every if session.subscribed(uri)]

    # --- bodies -----------------------------------------------------------------------------------------------

    async def _body(self, uri: str, session: McpSession | None, principal: ClientPrincipal | None) -> Any:
        """The body of a resource, limited to what the principal may see. Raises RpcError for an unknown one."""
        env = self._env
        only = None if session is None else session.agent
        if uri == wire.DIRECTORY:
            entries = await env.directory.entries()
            shown = [each for each in entries if principal is None or principal.can("read", each["id"])]
            return {"agents": [each for each in shown if only in (None, each["id"])]}
        if uri == wire.TASKS:
            return {"tasks": await self._tasks.list(principal)}
        if uri == wire.STATUS:
            return await self._status(only, principal)
        name = _agent_in(uri)
        if name is not None and only in (None, name):
            try:
                return await env.directory.metrics(name)
            except NotFound as error:
                raise _unknown(uri, str(error)) from None
        raise _unknown(uri, f"no resource {uri}")

    async def _status(self, only: str | None, principal: ClientPrincipal | None) -> JsonObject:
        """`agent://status`; the revocations for a principal that may revoke, left out for any other."""
        found = await self._env.directory.status(
            lambda agent: only in (None, agent) and (principal is None or principal.can("read", agent)),
            lambda agent: principal is None or principal.can("revoke", agent),
        )
        if principal is not None and not principal.can("revoke"):
            del found["revoked"]
        return {"protocol": wire.VERSION, **found, "connections": len(self._sessions())}


def _agent_in(uri: str) -> str | None:
    name = uri.removeprefix(wire.METRICS_PREFIX)
    return name if name != uri and name else None


def _unknown(uri: str, said: str) -> RpcError:
    expected = f"one of {wire.DIRECTORY}, {wire.TASKS}, {wire.STATUS}, {wire.METRICS}"
    return refusal(wire.NOT_FOUND, said, "not_found", expected, uri, uri=uri, path="/uri")


def _listed(uri: str) -> JsonObject:
    agent = _agent_in(uri)
    metrics = (f"metrics of {agent}", f"What the gateway has measured of {agent}")
    name, description = metrics if agent is not None else _DESCRIBED[uri]
    return {"uri": uri, "name": name, "description": description, "mimeType": wire.JSON_TYPE}


_DESCRIBED: Final = {
    wire.DIRECTORY: ("directory", "All agents, with what they can do and how they are"),
    wire.TASKS: ("tasks", "Tasks that wait, are done, or were, with their results"),
    wire.STATUS: ("status", "How many agents and tasks there are, by status"),
}


def _digest(body: Any) -> bytes:
    if isinstance(body, dict):  # a heartbeat alone is nothing to tell
        body = {key: value for key, value in body.items() if key != LAST_ACTIVE}
    return hashlib.blake2b(msgspec.json.encode(body), digest_size=16).digest()
