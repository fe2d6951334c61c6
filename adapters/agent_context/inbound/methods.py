"""The requests and notifications of this protocol, each by its name."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Raw

from adapters.agent_context.codec.errors import note, to_rpc
from adapters.agent_context.directory.conduct import REQUESTS
from adapters.agent_context.inbound.environment import Environment, correlation_of
from adapters.agent_context.inbound.messages import MessageRequests
from adapters.agent_context.inbound.registering import RegistrationRequests
from adapters.agent_context.inbound.resources import Resources
from adapters.agent_context.inbound.sampling import Sampling
from adapters.agent_context.inbound.tasks import TaskRequests
from adapters.agent_context.inbound.tools import StandardTools
from adapters.agent_context.wire import constants as wire
from gateway.core.errors import Denied, InterlinguaError, NotFound
from gateway.core.types import JsonObject
from gateway.core.version import version
from gateway.mcp import versions
from gateway.mcp.server.contract import McpCall, McpSession, ServerIdentity
from gateway.mcp.wire import ELICIT, meta_of
from gateway.wire.jsonrpc import METHOD_NOT_FOUND, ErrorObject, RpcError, internal

log = logging.getLogger(__name__)

INSTRUCTIONS: Final = (
    "A directory of agents of many protocols. Read agent://directory or call agentSearch to find agents, taskAssign to "
    "have one do a task, agentEvaluate to say how well it did; agent://tasks has the tasks and their results, "
    "agent://metrics/{agentId} what was measured of an agent, agent://status how many agents and tasks there are. A "
    "task that waits for an answer is answered with taskAnswer; taskList lists tasks, taskCancel cancels one."
)
OURS: Final = "agent/"

Handler = Callable[[McpCall], Awaitable[Any]]
Teller = Callable[[McpSession, Raw], None]


class AgentContextService:
    """See `gateway.mcp.server.contract.Service`."""

    def __init__(self, env: Environment, tasks: TaskRequests, resources: Resources, sampling: Sampling) -> None:
        self._env, belongings = env, resources.belongings
        self._resources = resources
        registering, messages = RegistrationRequests(env), MessageRequests(env)
        tools = StandardTools(env, tasks)
        self._handlers: Mapping[str, Handler] = {
            wire.REGISTER: registering.register,
            wire.UNREGISTER: registering.unregister,
            wire.HEARTBEAT: registering.heartbeat,
            wire.REVOKE: registering.revoke,
            wire.RESTORE: registering.restore,
            wire.MESSAGE: messages.message,
            wire.DELEGATE: tasks.delegate,
            wire.RESOURCES_LIST: resources.listing,
            wire.TEMPLATES_LIST: resources.templates,
            wire.RESOURCES_READ: resources.read,
            wire.SUBSCRIBE: resources.subscribe,
            wire.UNSUBSCRIBE: resources.unsubscribe,
            wire.PROMPTS_LIST: belongings.prompts,
            wire.PROMPTS_GET: belongings.prompt,
            wire.TOOLS_LIST: tools.listing,
            wire.TOOLS_CALL: tools.call,
            wire.SAMPLE: sampling.create,
            wire.ERROR: self._nothing,
            ELICIT: self._nothing,
        }
        self._tellers: Mapping[str, Teller] = {
            wire.MESSAGE: messages.told,
            wire.DELEGATE: tasks.told,
            wire.REGISTER: registering.told(wire.REGISTER, registering.register),
            wire.UNREGISTER: registering.told(wire.UNREGISTER, registering.unregister),
            wire.HEARTBEAT: registering.told(wire.HEARTBEAT, registering.heartbeat),
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
                asked = env.links.asked(call.session, call.method, call.params)
                if asked is not None:
                    return await asked
                env.did(call.session, REQUESTS)
                return await self._handlers[call.method](call)
        except InterlinguaError as error:
            told = to_rpc(error, correlation_of(call.meta), call.params)
            env.refused(call.session, told)
            raise told from error

    def error(self, call: McpCall, error: Exception) -> ErrorObject:
        failed = error if isinstance(error, InterlinguaError) else internal()
        return to_rpc(failed, correlation_of(call.meta), call.params).error

    def notification(self, session: McpSession, method: str, params: Raw) -> None:
        """See `Service.notification`. What cannot be done is answered by `agent/error`."""
        env = self._env
        env.directory.heard(session)
        try:
            env.directory.admit(session)
        except Denied as error:
            if method.startswith(OURS):
                session.tell(wire.ERROR, note(to_rpc(error, correlation_of(meta_of(params)))))
            return
        if method == wire.MESSAGE and self._answers(session, params):
            return
        if env.links.heard(session, method, params):
            return
        if method == wire.ERROR:
            log.info("session %s tells an error that belongs to nothing", session.id)
            return
        teller = self._tellers.get(method)
        if teller is not None:
            env.did(session, REQUESTS)
            teller(session, params)
        elif method.startswith(OURS):
            unknown = RpcError(METHOD_NOT_FOUND, f"no method {method}", {"code": "unsupported", "retryable": False})
            session.tell(wire.ERROR, note(unknown, correlation_of(meta_of(params))))

    def joined(self, session: McpSession) -> None:
        self._resources.joined(session)

    def left(self, session: McpSession) -> None:
        """See `Service.left`. Its agents are offline, its messages cancelled; its tasks go on."""
        self._env.links.left(session)
        self._env.directory.left(session)
        self._env.pending.left(session)
        self._env.background.left(session)
        self._resources.left(session)

    def _answers(self, session: McpSession, params: Raw) -> bool:
        """Whether a message answers a question that its sender has acknowledged, and is no agent's word on its run."""
        env = self._env
        if env.pending.answered(session, params, by_handle=True):
            return True
        known = correlation_of(meta_of(params))
        if known is None or known in env.links.ends(session).lines:
            return False
        return env.pending.answered(session, params, by_handle=False)

    async def _nothing(self, call: McpCall) -> Any:
        """Refuse a method that is valid only for a run that its sender works on."""
        raise RpcError(
            wire.NOT_FOUND,
            f"{call.method} belongs to nothing that is under way",
            {
                "code": "not_found",
                "retryable": False,
                "details": {
                    "expected": "the correlationId of a message that waits for a response",
                    "received": correlation_of(call.meta),
                },
            },
        )
