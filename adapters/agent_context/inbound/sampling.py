"""`sampling/createMessage` of a client (section 4.3): another client that offers it samples, else a route does.

First the client on whose behalf the asking agent works; then any other that is connected and offers
it; then the routes that stand for models, best first by what the asker prefers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec import Raw

from adapters.agent_context.codec import content
from adapters.agent_context.codec.errors import data_of, failure_error, refusal
from adapters.agent_context.inbound.environment import Environment, correlation_of, same_work
from adapters.agent_context.security import ClientPrincipal
from adapters.agent_context.wire import INVALID, PROTOCOL, SAMPLE
from adapters.agent_context.wire.messages import read
from gateway.core import delta as deltas
from gateway.core import files, projection
from gateway.core.errors import AgentGone, InterlinguaError, Invalid
from gateway.core.files import Attachment
from gateway.core.types import Agent, JsonObject, ModelTraits, Run, RunRequest, RunStatus, StopReason
from gateway.mcp.runs import keys
from gateway.mcp.server.contract import McpCall, McpSession
from gateway.mcp.wire import META
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)

PATIENCE: Final = 300.0
"""Seconds that a client may take: a person may look at what is asked."""
TRIED: Final = 3
"""Routes, before the last one's error is the answer."""
_STOPPED: Final = {StopReason.MAX_TOKENS: "maxTokens"}


class Sampling:
    """One per gateway process."""

    def __init__(self, env: Environment, sessions: Callable[[], Collection[McpSession]]) -> None:
        self._env = env
        self._sessions = sessions

    async def create(self, call: McpCall) -> Raw | JsonObject:
        asked = read(call.params, "CreateMessage")
        principal = self._env.people.may(call, "sample")
        for other in self._offers(call):
            try:
                sample = await other.ask(SAMPLE, _passed_on(call), timeout=PATIENCE)
            except AgentGone:
                continue
            except RpcError as error:
                if error.error.code != jsonrpc.METHOD_NOT_FOUND:
                    raise _theirs(error) from error
                continue
            try:
                read(sample, "MessageCreated")
            except RpcError as error:
                log.warning("a client answered %s with what is none: %s", SAMPLE, error)
                continue
            return sample
        return await self._by_route(call, asked, principal)

    def _offers(self, call: McpCall) -> list[McpCall | McpSession]:
        """Clients that sample and can be asked now, in order; without the asker, and those that lack the right."""
        own, known = set(self._env.directory.agents_of(call.session)), correlation_of(call.meta)
        served = [each for each in self._env.served.values() if each.call.can_ask]
        callers = [each.call for each in served if same_work(known, each.correlation)]
        callers += [each.call for each in served if each.agent in own and each.call not in callers]
        found: list[McpCall | McpSession] = [each for each in callers if self._offered(each.session, call.session)]
        sessions = (each for each in self._sessions() if each.can_ask and self._offered(each, call.session))
        return found + [each for each in sessions if all(each is not one.session for one in callers)]

    def _offered(self, session: McpSession, asker: McpSession) -> bool:
        if session is asker or not session.alive or not session.client.can("sampling"):
            return False
        try:
            return self._env.people.principal(session, session.bearer).can("sample")
        except InterlinguaError:
            return False

    # --- routes -----------------------------------------------------------------------------------------------

    async def _by_route(self, call: McpCall, asked: JsonObject, principal: ClientPrincipal) -> JsonObject:
        runs = self._env.runs
        agents = [agent for agent in await runs.agents(runs.names(call.session)) if agent.model is not None]
        agents = [agent for agent in agents if principal.can("sample", agent.name)]
        if not agents:
            raise RpcError(
                jsonrpc.METHOD_NOT_FOUND, "nobody here offers sampling", {"code": "unsupported", "retryable": False}
            )
        text, attached = transcript(asked)
        if attached:
            takers = [each for each in agents if all(files.takes(each, file.media_type) for _, file in attached)]
            if not takers:
                raise unread(*attached[0])
            agents = takers
        error: RpcError | None = None
        for agent in ranked(agents, asked.get("modelPreferences") or {})[:TRIED]:
            try:
                run = await self._run(
                    call, agent, text, [file for _, file in attached], asked=asked, principal=principal
                )
            except Invalid as refused:
                error = RpcError(INVALID, str(refused), {"code": refused.code, "path": "/messages", "retryable": False})
                continue
            if run.status is RunStatus.SUCCESS:
                return _sampled(agent, run)
            error = failure_error(run.failure, **{keys.RUN_ID: run.id})
        assert error is not None, "at least one was tried"
        raise error

    async def _run(
        self,
        call: McpCall,
        agent: Agent,
        text: str,
        attached: Sequence[Attachment],
        *,
        asked: JsonObject,
        principal: ClientPrincipal,
    ) -> Run:
        """A run to its end; one that asks something is given up: nobody is there who could answer."""
        env = self._env
        wishes = {key: value for key, value in asked.items() if key not in ("messages", META, "systemPrompt")}
        begun = content.PayloadRun(prompt=text)
        if not attached:
            begun = content.task_of(agent, {"messages": [{"text": text}]})
        request = RunRequest(
            agent=agent.name,
            input=begun.input,
            prompt=begun.prompt,
            protocol=PROTOCOL,
            metadata={"sampling": wishes},
            traceparent=keys.traceparent(call.meta),
            principal=principal.name,
        )
        run = await env.runs.start(request, call, files=attached)
        try:
            done = await env.gateway.runs.wait(run.id)
            assert done is not None, "without a timeout it waits"
        except BaseException:
            env.runs.cancel(run.id)
            raise
        if not done.status.ended:
            return await env.gateway.runs.cancel(run.id, reason="nobody can answer its question", wait=True)
        return done


def ranked(agents: Collection[Agent], wishes: JsonObject) -> list[Agent]:
    """The best model first: by the first hint that a name fits, then by what counts most (0.5 where it is not said)."""
    said = (wishes.get(f"{what}Priority") for what in ("cost", "speed", "intelligence"))
    cost, speed, wit = (0.5 if each is None else each for each in said)
    hints = [hint["name"].casefold() for hint in wishes.get("hints") or () if hint.get("name")]

    def place(agent: Agent) -> tuple[int, float]:
        names = [agent.name, *agent.labels.get("models", ())]
        fits = (at for at, hint in enumerate(hints) if any(hint in name.casefold() for name in names))
        traits = agent.model or ModelTraits()
        worth = cost * (1 - traits.cost) + speed * traits.speed + wit * traits.intelligence
        return next(fits, len(hints)), -worth

    return sorted(agents, key=place)


def transcript(asked: JsonObject) -> tuple[str, list[tuple[str, Attachment]]]:
    """The conversation as one text, and the files in it with their paths. Raises RpcError for what is neither."""
    turns: list[tuple[str, str]] = []
    attached: list[tuple[str, Attachment]] = []
    for at, message in enumerate(asked["messages"]):
        path, blocks = f"/messages/{at}/content", message["content"]
        for block in blocks if isinstance(blocks, list) else [blocks]:
            if block["type"] == "text" and block.get("text") is not None:
                turns.append((message["role"].title(), block["text"]))
            elif files.is_file(block):
                attached.append((path, files.file_in(block, block["type"], path=path)))
            else:
                raise unread(path, block["type"])
    prompt = asked.get("systemPrompt")
    if prompt is None and len(turns) <= 1:
        return (turns[0][1] if turns else ""), attached
    system = [] if prompt is None else [("System", prompt)]
    return "\n\n".join(f"{who}: {text}" for who, text in (*system, *turns)), attached


def unread(path: str, received: Attachment | str) -> RpcError:
    said = received if isinstance(received, str) else received.media_type.partition("/")[0]
    words = f"{path}: the models here take text only"
    return refusal(INVALID, words, "invalid", "content of type text", said, path=path)


def _sampled(agent: Agent, run: Run) -> JsonObject:
    document = deltas.decode(run.output)
    text = projection.text_of(document, agent.text_output)
    said = text if text is not None else bytes(run.output).decode()
    names = agent.labels.get("models") or [agent.name]
    return {
        "role": "assistant",
        "content": {"type": "text", "text": said},
        "model": names[0],
        "stopReason": _STOPPED.get(run.stop_reason or StopReason.END_TURN, "endTurn"),
        META: keys.told(run),
    }


def _theirs(error: RpcError) -> RpcError:
    """A client's own error, with what every error here says."""
    data = data_of(error.error)
    if data is None:
        return error
    return RpcError(error.error.code, error.error.message, {"code": error.code, "retryable": False, **data})


def _passed_on(call: McpCall) -> JsonObject:
    """The params for another client: less what belongs to this request."""
    params: JsonObject = deltas.decode(bytes(call.params))
    meta = {key: value for key, value in call.meta.items() if key not in keys.OWN and not key.startswith(keys.OURS)}
    rest = {key: value for key, value in params.items() if key != META}
    return {**rest, META: meta} if meta else rest
