"""Serves clients of the Agent Context Protocol, and plain MCP clients: their server, and their directory.

here            the methods by name; agents that register; the standard tools; the half itself
work.py         agent/message, agent/delegate and the tools for tasks: runs
rendering.py    what is told of a run or a task, before its end and at it
questions.py    a run's questions
resources.py    directory, tasks, metrics; prompts and resources of an MCP server
sampling.py     sampling/createMessage
environment.py  what all requests share: who a client is, and what was a notification and takes a while
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Raw
from starlette.responses import Response
from starlette.routing import BaseRoute

from adapters.agent_context import wire
from adapters.agent_context.codec.errors import WAITED_FOR, note, refusal, to_rpc
from adapters.agent_context.coordination import Coordinator
from adapters.agent_context.coordination.task_record import Tasks
from adapters.agent_context.directory.announcing import Announcing
from adapters.agent_context.directory.evaluation import REQUESTS
from adapters.agent_context.inbound.environment import Aside, Environment, correlation_of
from adapters.agent_context.inbound.rendering import failed, found_agents, registered, result
from adapters.agent_context.inbound.resources import Resources
from adapters.agent_context.inbound.sampling import Sampling
from adapters.agent_context.inbound.work import ARGUMENTS, MessageRequests, TaskRequests
from adapters.agent_context.options import AgentContextServe
from adapters.agent_context.outbound.links import stray
from adapters.agent_context.wire.messages import TOOLS, agent_record, checked, read, refused
from gateway.contract import Gateway, Hosted
from gateway.core.errors import Denied, InterlinguaError, NotFound
from gateway.core.types import JsonObject
from gateway.core.version import version
from gateway.mcp import versions
from gateway.mcp import wire as mcp
from gateway.mcp.runs.paging import listed, page
from gateway.mcp.server import McpServer
from gateway.mcp.server.contract import McpCall, McpSession, ServerIdentity
from gateway.transport.pipe import Pipe
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

Handler = Callable[[McpCall], Awaitable[Any]]

# --- the standard tools (section 4.2), for clients that may know nothing but MCP --------------------------------------


GUARDED: Final = (wire.AGENT_REVOKE, wire.AGENT_RESTORE)
"""Tools that are listed only for who may use them."""
MODELS: Final = (wire.INVALID, wire.NOT_FOUND, wire.DEADLINE)
"""Errors that a model can mend by other arguments: results that it can read."""

ToolHandler = Callable[[McpCall, JsonObject, JsonObject], Awaitable[JsonObject]]
"""The call, its params, and the arguments in them."""


class StandardTools:
    """One per gateway process."""

    def __init__(self, env: Environment, tasks: TaskRequests) -> None:
        self._env = env
        self._tasks = tasks
        self._handlers: Mapping[str, tuple[str, ToolHandler]] = {
            wire.AGENT_SEARCH: ("AgentSearch", self._search),
            wire.TASK_ASSIGN: ("TaskAssign", tasks.assign),
            wire.AGENT_EVALUATE: ("AgentEvaluate", self._evaluate),
            wire.TASK_ANSWER: ("TaskAnswer", tasks.answer),
            wire.TASK_LIST: ("TaskList", tasks.listed),
            wire.TASK_CANCEL: ("TaskCancel", tasks.cancel),
            wire.AGENT_REVOKE: ("AgentRevoke", self._revoke),
            wire.AGENT_RESTORE: ("AgentRestore", self._restore),
        }
        """With the definition of its arguments."""

    async def listing(self, call: McpCall) -> JsonObject:
        cursor = read(call.params, "Page").get("cursor")
        revokes = self._env.people.known(call).can("revoke")
        by_name = {tool["name"]: tool for tool in TOOLS if revokes or tool["name"] not in GUARDED}
        names, following = page("tools", list(by_name), cursor, self._env.options.page_size)
        return listed("tools", [by_name[name] for name in names], following)

    async def call(self, call: McpCall) -> JsonObject:
        """`tools/call`. What a model did wrong, or an agent, is a result that it can read; the rest is an error."""
        asked = read(call.params, "CallTool")
        known_as = self._handlers.get(asked["name"])
        if known_as is None:
            known = ", ".join(self._handlers)
            said = f"no tool {asked['name']}; there are {known}"
            raise refusal(jsonrpc.INVALID_PARAMS, said, "not_found", known, asked["name"], path="/name")
        try:
            definition, handler = known_as
            return await handler(call, asked, checked(asked.get("arguments") or {}, definition, ARGUMENTS))
        except (RpcError, NotFound) as error:
            told, correlation = to_rpc(error), correlation_of(call.meta)
            if told.error.code not in MODELS:
                raise
            self._env.refused(call.session, told)
            return failed(told, None if correlation is None else {wire.CORRELATION: correlation})

    # --- the tools that are done at once ----------------------------------------------------------------------

    async def _search(self, call: McpCall, asked: JsonObject, given: JsonObject) -> JsonObject:
        principal = self._env.people.may(call, "read")
        wanted = (given.get(key) for key in ("capabilities", "minScore", "maxCost"))
        found = await self._env.directory.search(*wanted)
        only = call.session.agent
        found = [each for each in found if principal.can("read", each["id"]) and only in (None, each["id"])]
        return found_agents(found, call.client.version, native=call.client.can(wire.AGENT))

    async def _evaluate(self, call: McpCall, asked: JsonObject, given: JsonObject) -> JsonObject:
        agent, score, task = given["agentId"], given["score"], given.get("taskId")
        principal = self._env.people.may(call, "evaluate", agent)
        if task is not None and not await self._tasks.had(task, principal, agent):
            task = None  # one that is made up is no reason for another vote
        evaluation = await self._env.directory.evaluate(
            agent, score, principal, task, given.get("review"), session=call.session
        )
        return result(call, f"Recorded {score:g} for {agent}", {"agentId": agent, "evaluation": evaluation})

    async def _revoke(self, call: McpCall, asked: JsonObject, given: JsonObject) -> JsonObject:
        agent = given["agentId"]
        known = await self._env.revoke(call, agent, given.get("reason"))
        text = f"The access of {agent} is revoked" + ("" if known else "; there is no such agent now")
        return result(call, text, {"agentId": agent, "status": wire.REVOKED, "known": known})

    async def _restore(self, call: McpCall, asked: JsonObject, given: JsonObject) -> JsonObject:
        agent = given["agentId"]
        await self._env.restore(call, agent)
        return result(call, f"The access of {agent} is restored", {"agentId": agent, "status": "restored"})


# --- all of them by name ----------------------------------------------------------------------------------------------


log = logging.getLogger(__name__)

INSTRUCTIONS: Final = (
    "A directory of agents of many protocols. Read agent://directory or call agentSearch to find agents, taskAssign to "
    "have one do a task, agentEvaluate to say how well it did; agent://tasks has the tasks and their results, "
    "agent://metrics/{agentId} what was measured of an agent, agent://status how many agents and tasks there are. A "
    "task that waits for an answer is answered with taskAnswer; taskList lists tasks, taskCancel cancels one."
)
OURS: Final = "agent/"


class AgentContextService:
    """See `gateway.mcp.server.contract.Service`."""

    def __init__(self, env: Environment, tasks: TaskRequests, resources: Resources, sampling: Sampling) -> None:
        self._env = env
        self._resources = resources
        messages, tools = MessageRequests(env), StandardTools(env, tasks)
        self._handlers: Mapping[str, Handler] = {
            wire.REGISTER: self._register,
            wire.UNREGISTER: self._unregister,
            wire.HEARTBEAT: self._heartbeat,
            wire.REVOKE: self._revoke,
            wire.RESTORE: self._restore,
            wire.MESSAGE: messages.message,
            wire.DELEGATE: tasks.delegate,
            wire.RESOURCES_LIST: resources.listing,
            wire.TEMPLATES_LIST: resources.templates,
            wire.RESOURCES_READ: resources.read,
            wire.SUBSCRIBE: resources.subscribe,
            wire.UNSUBSCRIBE: resources.unsubscribe,
            wire.PROMPTS_LIST: resources.prompts,
            wire.PROMPTS_GET: resources.prompt,
            wire.TOOLS_LIST: tools.listing,
            wire.TOOLS_CALL: tools.call,
            wire.SAMPLE: sampling.create,
            wire.ERROR: self._nothing,
            mcp.ELICIT: self._nothing,
        }
        self._asides: Mapping[str, Callable[[Aside], Awaitable[Any]]] = {
            wire.MESSAGE: messages.told,
            wire.DELEGATE: tasks.told,
            wire.REGISTER: self._register,
            wire.UNREGISTER: self._unregister,
            wire.HEARTBEAT: self._heartbeat,
        }
        self.methods: Sequence[str] = tuple(self._handlers)

    def identity(self, session: McpSession) -> ServerIdentity:
        """See `Service.identity`. Raises NotFound where the session is for an agent that there is not."""
        runs = self._env.runs
        if session.agent is not None and not runs.names(session):
            raise NotFound(self._env.people.unknown(session, session.agent, session.bearer))
        info: JsonObject = {"name": wire.SELF, "version": version()}
        if versions.has_structured_output(session.client.version):
            info["title"] = "Interlingua"
        capabilities: JsonObject = {
            wire.AGENT: {**wire.SERVED, "protocols": [wire.VERSION]},
            "resources": {"subscribe": True, "listChanged": True},
            "tools": {"listChanged": True},
            "logging": {},
        }
        if session.agent is not None:
            capabilities["prompts"] = {}
        return ServerIdentity(capabilities=capabilities, info=info, instructions=INSTRUCTIONS)

    async def request(self, call: McpCall) -> Any:
        """See `Service.request`. Every error carries the correlation id that the request had."""
        env = self._env
        env.directory.heard(call.session)
        try:
            env.directory.admit(call.session)
            with env.runs.progressing(call):
                if call.method == wire.MESSAGE and self._answers(call.session, call.params):
                    return {}
                link = env.directory.link(call.session)
                if link is not None and (asked := link.asked(call.method, call.params)) is not None:
                    return await asked
                env.did(call.session, REQUESTS)
                return await self._handlers[call.method](call)
        except InterlinguaError as error:
            told = to_rpc(error, correlation_of(call.meta), call.params)
            env.refused(call.session, told)
            raise told from error

    def error(self, call: McpCall, error: Exception) -> RpcError:
        failed = error if isinstance(error, InterlinguaError) else jsonrpc.internal()
        return to_rpc(failed, correlation_of(call.meta), call.params)

    def notification(self, session: McpSession, method: str, params: Raw) -> None:
        """See `Service.notification`. What cannot be done is answered by `agent/error`."""
        env = self._env
        env.directory.heard(session)
        try:
            env.directory.admit(session)
        except Denied as error:
            if method.startswith(OURS):
                session.tell(wire.ERROR, note(to_rpc(error, correlation_of(mcp.meta_of(params)))))
            return
        if method == wire.MESSAGE and self._answers(session, params):
            return
        link = env.directory.link(session)
        if link is not None and link.heard(method, params):
            return
        if (refused := stray(method, params)) is not None:
            session.tell(wire.ERROR, refused)
            return
        if method == wire.ERROR:
            log.info("session %s tells an error that belongs to nothing", session.id)
            return
        if method in self._asides:
            env.did(session, REQUESTS)
            env.background.do(session, self._aside(Aside(session, method, params)), f"{method} without an answer")
        elif method.startswith(OURS):
            unknown = RpcError(
                jsonrpc.METHOD_NOT_FOUND, f"no method {method}", {"code": "unsupported", "retryable": False}
            )
            session.tell(wire.ERROR, note(unknown, correlation_of(mcp.meta_of(params))))

    def joined(self, session: McpSession) -> None:
        self._resources.joined(session)

    def left(self, session: McpSession) -> None:
        """See `Service.left`. Its agents are offline, its messages cancelled; its tasks go on."""
        self._env.directory.left(session)
        self._env.pending.left(session)
        self._env.background.left(session)
        self._resources.left(session)

    # --- agents that register, tell that they are there, and leave; and access that is revoked -----------------

    async def _register(self, call: McpCall) -> JsonObject:
        record = agent_record(read(call.params, "Register")["agent"], "/agent")
        env, modern = self._env, versions.modern(call.client.version)
        if record.get("endpoint") is None and modern:
            expected = "an endpoint: an agent that registers without a session is called there"
            raise refused("/agent/endpoint", "is missing", expected, "nothing")
        principal = env.people.registers(call, record)
        await env.runs.whole(env.directory.register(record, principal, None if modern else call.session))
        env.people.speaks_for(call, record, principal)
        return registered()

    async def _unregister(self, call: McpCall) -> JsonObject:
        agent = read(call.params, "Unregister")["agentId"]
        principal = self._env.people.may(call, "register", agent)
        await self._env.runs.whole(self._env.directory.unregister(agent, principal, call.session))
        return {"status": "unregistered"}

    async def _heartbeat(self, call: McpCall) -> JsonObject:
        asked = read(call.params, "Heartbeat")
        principal = self._env.people.may(call, "register", asked["agentId"])
        status = asked.get("status", wire.ACTIVE)
        await self._env.directory.heartbeat(asked["agentId"], status, principal, call.session)
        return {}

    async def _revoke(self, call: McpCall) -> JsonObject:
        asked = read(call.params, "Revoke")
        known = await self._env.revoke(call, asked["agentId"], asked.get("reason"))
        return {"status": wire.REVOKED, "known": known}

    async def _restore(self, call: McpCall) -> JsonObject:
        await self._env.restore(call, read(call.params, "Restore")["agentId"])
        return {"status": "restored"}

    # --- notifications ----------------------------------------------------------------------------------------

    def _answers(self, session: McpSession, params: Raw) -> bool:
        """Whether a message answers a question that its sender has acknowledged, and is no agent's word on its run."""
        link = self._env.directory.link(session)
        return self._env.pending.answered(session, params, lambda known: link is not None and link.has(known))

    async def _aside(self, aside: Aside) -> None:
        """Serve a notification: what goes wrong is told by `agent/error`, of a message in the name of its target."""
        try:
            await self._asides[aside.method](aside)
        except InterlinguaError as error:
            told = to_rpc(error, correlation_of(aside.meta), aside.params)
            self._env.refused(aside.session, told)
            source = wire.SELF if aside.method in (wire.MESSAGE, wire.DELEGATE) else None
            if aside.method == wire.MESSAGE:
                with contextlib.suppress(RpcError):
                    source = read(aside.params, "Message")["target"]
            aside.notify(wire.ERROR, note(told, source=source))
        except Exception:
            aside.notify(wire.ERROR, note(jsonrpc.internal(), correlation_of(aside.meta)))
            raise

    async def _nothing(self, call: McpCall) -> Any:
        """Refuse a method that is valid only for a run that its sender works on."""
        said = f"{call.method} belongs to nothing that is under way"
        raise refusal(wire.NOT_FOUND, said, "not_found", WAITED_FOR, correlation_of(call.meta))


class AgentContextInbound:
    """See `Inbound`, `Conversing`, `Knowing`, `Informed`, `Leaving` and `Hosting` of `gateway.contract`."""

    def __init__(self, options: AgentContextServe, gateway: Gateway, coordinator: Coordinator | None = None) -> None:
        """`coordinator`: who asks for the directory made here."""
        self.env = Environment(options, gateway)
        self.directory = self.env.directory
        self.coordinator = coordinator or Coordinator(options, gateway, lambda: self.directory)
        tasks = Tasks(gateway, self.coordinator.name)

        def sessions() -> Collection[McpSession]:
            return self.server.sessions

        self.resources = Resources(self.env, tasks, sessions)
        self.service = AgentContextService(
            self.env,
            TaskRequests(self.env, tasks, self.coordinator, self.resources.changed),
            self.resources,
            Sampling(self.env, sessions),
        )
        dialects = {wire.VERSION: wire.MCP_VERSION}
        client = self.env.people.name
        self.server = McpServer(self.service, options, gateway, wire.PROTOCOL, dialects=dialects, client=client)
        path = options.path or wire.PATH
        self.announcing = [Announcing(each, gateway, path) for each in options.announce]
        self.directory.on_change(self._changed)

    # --- Inbound, Conversing ----------------------------------------------------------------------------------

    def sees(self, headers: Iterable[tuple[bytes, bytes]]) -> Callable[[str], bool] | None:
        known = self.env.access.shown(headers)
        return None if known is None else lambda agent: known.can("read", agent)

    def known(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        known = self.env.access.shown(headers)
        return None if known is None else known.name

    def routes(self) -> Sequence[BaseRoute]:
        return self.server.at("")

    def refusal(self, error: InterlinguaError) -> Response:
        return self.server.refusal(error)

    async def converse(self, pipe: Pipe, agent: str | None) -> None:
        await self.server.converse(pipe, agent)

    # --- Informed, Leaving ------------------------------------------------------------------------------------

    def agents_changed(self) -> None:
        self._changed((wire.DIRECTORY,))

    def quiet(self) -> None:
        self.env.runs.go_quiet()
        self.server.quiet()
        self.env.background.stop()
        self.resources.close()

    # --- Hosting ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self.directory.open()
        for each in self.announcing:
            each.open()

    def hosted(self) -> Mapping[str, Hosted]:
        return {**self.coordinator.hosted(), **self.directory.hosted()}

    async def refresh(self) -> None:
        await self.directory.refresh()
        self.resources.look()

    async def aclose(self) -> None:
        await asyncio.gather(*(each.aclose() for each in self.announcing))
        await self.directory.aclose()

    async def settled(self) -> None:
        """Until what is done in the background is done; for tests."""
        await self.env.background.settled()
        await self.env.runs.settled()

    def _changed(self, uris: Iterable[str]) -> None:
        """Agents came, went, or are not as they were."""
        self.resources.changed(uris)
        self.coordinator.queue.changed()
