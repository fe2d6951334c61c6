"""`agent/message`: a message becomes a run of the agent that it is for, and what the run says the answer."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from adapters.agent_context import wire
from adapters.agent_context.codec import content, nlip
from adapters.agent_context.codec.errors import WAITED_FOR, NoMatch, refusal
from adapters.agent_context.codec.ranking import Needs, why_not
from adapters.agent_context.coordination.task_record import ALLOWED
from adapters.agent_context.inbound.environment import (
    TOLD,
    Aside,
    Environment,
    Served,
    ahead,
    both,
    correlation_of,
    fresh,
    metadata_of,
    told_of,
)
from adapters.agent_context.inbound.questions import again
from adapters.agent_context.inbound.rendering import MessageWords, RunNotifications
from adapters.agent_context.options import Right
from adapters.agent_context.security import ClientPrincipal
from adapters.agent_context.wire.base import read
from adapters.agent_context.wire.messages import MessageParams, Payload, payload_of
from gateway.core.errors import Conflict, Invalid, NotFound, Unsupported
from gateway.core.types import Agent, JsonObject, Run, RunRequest, Thread
from gateway.mcp.runs import RunFollower, elsewhere, keys
from gateway.mcp.server.contract import McpCall
from gateway.mcp.wire import META
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

REQUIRED_PATH: Final = f"{content.PAYLOAD}/requirements"
DEADLINE_PATH: Final = f"{REQUIRED_PATH}/constraints/deadline"
CONVERSATION: Final = "conversation"
"""Key of a run's attributes: the token that the answer brings to a client that speaks NLIP."""
SESSIONS: Final = uuid.UUID("0d6e7a63-9c0a-5b1f-8f0e-6a8e3f5f7c11")
"""Namespace of the threads that `context.sessionId` stands for."""


class Letter(msgspec.Struct, frozen=True):
    """A message of type request that may be delivered. `told`: what its payload says of itself."""

    asked: MessageParams
    told: Payload
    agent: Agent
    principal: ClientPrincipal
    source: str | None
    correlation: str
    token: str | None = None

    @property
    def session(self) -> str | None:
        """`context.sessionId`, or the token that begins a conversation in NLIP."""
        known = None if self.told.context is None else self.told.context.session_id
        return self.token if known is None else known


class MessageRequests:
    """One per gateway process."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    async def message(self, call: McpCall) -> JsonObject:
        """The request: its result is the response, or the error that is it."""
        asked = read(call.params, MessageParams)
        principal = self._env.people.may(call, self._right(asked.target), asked.target)
        source = self._env.people.source(call, principal, asked.source)
        if asked.content.type != wire.REQUEST:
            raise nobody_waits(asked)
        self._env.directory.check(asked.target)
        agent = await self._env.agent(call, asked.target, "/target")
        told = payload_of(nlip.plain(asked.content.payload))
        token = fresh() if nlip.spoken(asked.content.payload) else None
        letter = Letter(asked, told, agent, principal, source, asked.correlation_id or fresh(), token)
        ahead(told.limits.deadline_at, DEADLINE_PATH, told.limits.deadline)
        run = await again(self._env.waiting, call, agent, asked, payload=asked.content.payload, path=content.PAYLOAD)
        if run is None:
            await self._required(letter)
            run, losses = await self._start(call, letter)
            return await self._follow(call, letter, run, losses)
        known = correlation_of(run.request.attributes) or letter.correlation
        token = run.request.attributes.get(CONVERSATION, token)
        letter = replace(letter, told=told_of(run), correlation=known, token=token)
        return await self._follow(call, letter, run)

    async def told(self, aside: Aside) -> None:
        """The notification: what comes of it is told by a message with the same id."""
        result = await self.message(aside)
        asked = read(aside.params, MessageParams)
        head = both(asked.target, asked.source)
        aside.notify(wire.MESSAGE, {**head, "content": result["content"], META: result[META]})

    # --- inside -----------------------------------------------------------------------------------------------

    def _right(self, target: str) -> Right:
        """The right that a message to an agent needs. Raises NotFound for a coordinator without a name of its own."""
        options = self._env.options
        if target != options.tasks_of or self._env.gateway.agents.routed(target):
            return "message"
        if options.coordinator is None:
            raise NotFound(f"/target: no agent {target}; tasks are delegated by {wire.DELEGATE}")
        return "delegate"

    async def _required(self, letter: Letter) -> None:
        """Raises NoMatch for an agent that is not what the message requires. The coordination looks for one that is."""
        needs, limits = letter.told.requirements, letter.told.limits
        if needs is None or letter.agent.name == self._env.options.tasks_of:
            return
        wanted = Needs(needs.capabilities or (), limits.min_score, limits.max_cost)
        if wanted == Needs():
            return
        why = why_not(await self._env.directory.candidate(letter.agent.name), wanted)
        if why is not None:
            raise NoMatch(f"{REQUIRED_PATH}: agent {letter.agent.name} {why}")

    async def _start(self, call: McpCall, letter: Letter) -> tuple[Run, Sequence[str]]:
        """The run that the message becomes, and the name of each loss."""
        env, agent, asked = self._env, letter.agent, letter.asked
        try:
            begun = content.start_of(agent, asked.content.payload)
            given = begun.input
            if begun.prompt is None and agent.name == env.options.tasks_of and letter.told.requirements is not None:
                needs = letter.told.requirements.model_dump(by_alias=True, exclude_unset=True)
                given = given if "task" in given else {**given, "requirements": needs}
            thread = None if letter.session is None else await self._thread(letter, letter.session)
            attributes: JsonObject = {wire.CORRELATION: letter.correlation}
            beside = _beside(nlip.plain(asked.content.payload))
            if beside:
                attributes[TOLD] = beside
            if letter.token is not None:
                attributes[CONVERSATION] = letter.session
            if letter.source is not None:
                attributes["source"] = letter.source
            if "*" not in letter.principal.agents:
                attributes[ALLOWED] = list(letter.principal.agents)
            request = RunRequest(
                agent=agent.name,
                input=given,
                prompt=begun.prompt,
                protocol=wire.PROTOCOL,
                thread=thread,
                metadata={**metadata_of(call.meta), **beside},
                traceparent=keys.traceparent(call.meta),
                principal=letter.principal.name,
                creation=sent(call, letter.source) if wire.PROTOCOL in agent.extra else {},
                attributes=attributes,
            )
            run = await env.runs.start(request, call, files=begun.files)
        except Invalid as error:
            raise elsewhere(error, {"/input": content.PAYLOAD}) from None
        except Unsupported as error:
            if not begun.files:
                raise
            raise Invalid(f"{content.PAYLOAD}: {error}", path=content.PAYLOAD) from None
        except Conflict:
            raise Conflict("the conversation is busy: the agent has not answered an earlier message yet") from None
        for what in begun.losses:
            env.gateway.runs.lost(run.id, what)
        return run, begun.losses

    async def _thread(self, letter: Letter, session: str) -> str:
        """The conversation that a session id stands for: of this client, with this agent."""
        named = json.dumps([letter.principal.name, letter.source, session, letter.agent.name])
        now = time.time()
        thread = Thread(
            id=str(uuid.uuid5(SESSIONS, named)),
            created_at=now,
            updated_at=now,
            protocol=wire.PROTOCOL,
            attributes={"session": session},
        )
        found = await self._env.gateway.threads.create(thread, or_get=True)
        if found.protocol != wire.PROTOCOL:  # in other protocols clients choose ids: this one would read along
            raise Conflict(f"the conversation {session!r} cannot be had: its id is taken")
        return found.id

    async def _follow(self, call: McpCall, letter: Letter, run: Run, losses: Sequence[str] = ()) -> JsonObject:
        env, agent, correlation = self._env, letter.agent, letter.correlation
        head = both(agent.name, letter.source)
        served = Served(call, agent.name, correlation)
        env.limit(run.id, letter.told.limits)
        with env.following(run.id, served):
            telling = RunNotifications(call, agent, head, {wire.CORRELATION: correlation, keys.RUN_ID: run.id})
            token = letter.session if letter.token is not None else None
            words = MessageWords(env, agent, telling, correlation, losses=losses, conversation=token)
            how = env.asker(call, head, correlation, run.id)
            follower = RunFollower(env.runs, env.pending.patient(call), agent, words, asker=how)
            result: JsonObject = await follower.go(run)
            return result


def nobody_waits(asked: MessageParams) -> RpcError:
    """The error for a response or update that belongs to nothing."""
    said = f"nothing with this correlation id waits for a message of type {asked.content.type}"
    return refusal(wire.NOT_FOUND, said, "not_found", WAITED_FOR, asked.correlation_id)


def _beside(payload: Any) -> JsonObject:
    """Members about the message, not its content: agents of other protocols get them as metadata."""
    if not isinstance(payload, dict):
        return {}
    return {key: payload[key] for key in ("context", "requirements") if isinstance(payload.get(key), dict)}


def sent(call: McpCall, source: str | None) -> JsonObject:
    """The params as they came; with the agent that they are from, where that was left out."""
    params: JsonObject = jsonrpc.unpack(call.params)
    return params if source is None else {**params, "source": source}
