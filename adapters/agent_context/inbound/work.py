"""Requests for work, each of which becomes a run: `agent/message`, `agent/delegate`, and the tools for tasks.

A message is a run of the agent that it is for, and what the run says the answer. A task is a run of the coordinator: it
goes on when its client's connection ends, and is cancelled when the client takes its request back.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from adapters.agent_context import wire
from adapters.agent_context.codec import content, nlip
from adapters.agent_context.codec.errors import WAITED_FOR, NoMatch, note, refusal, to_rpc
from adapters.agent_context.codec.ranking import Needs, why_not
from adapters.agent_context.coordination import Coordinator
from adapters.agent_context.coordination.task_record import (
    ALLOWED,
    HOPS,
    SOURCE,
    TARGET,
    TASK,
    KeptTask,
    Tasks,
    document,
)
from adapters.agent_context.directory.evaluation import ACTIVE_RUNS
from adapters.agent_context.inbound import rendering
from adapters.agent_context.inbound.environment import (
    TOLD,
    Aside,
    Environment,
    ahead,
    both,
    correlation_of,
    fresh,
    metadata_of,
    same_work,
    told_of,
)
from adapters.agent_context.inbound.questions import answer_in
from adapters.agent_context.inbound.rendering import MessageWords, RunNotifications, TaskRendering, TaskToolRendering
from adapters.agent_context.options import Right
from adapters.agent_context.security import ClientPrincipal
from adapters.agent_context.wire.messages import (
    DelegatedTask,
    MessageNeeds,
    correlation_in,
    read,
    task_in,
    task_of_tool,
    told_in,
)
from gateway.core import delta
from gateway.core.errors import Conflict, InterlinguaError, Invalid, NotFound, Unavailable, Unsupported
from gateway.core.types import Agent, Answer, Json, JsonObject, Outcome, Run, RunQuery, RunRequest, Thread
from gateway.mcp.runs import elsewhere, keys
from gateway.mcp.server.contract import McpCall
from gateway.mcp.wire import META
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

# --- agent/message ----------------------------------------------------------------------------------------------------


REQUIRED_PATH: Final = f"{content.PAYLOAD}/requirements"
DEADLINE_PATH: Final = f"{REQUIRED_PATH}/constraints/deadline"
CONVERSATION: Final = "conversation"
"""Key of a run's attributes: the token that the answer brings to a client that speaks NLIP."""
SESSIONS: Final = uuid.UUID("0d6e7a63-9c0a-5b1f-8f0e-6a8e3f5f7c11")
"""Namespace of the threads that `context.sessionId` stands for."""


class Letter(msgspec.Struct, frozen=True):
    """A message of type request that may be delivered. `told`: what its payload says of itself."""

    params: JsonObject
    payload: Json
    told: MessageNeeds
    agent: Agent
    principal: ClientPrincipal
    source: str | None
    correlation: str
    token: str | None = None

    @property
    def session(self) -> str | None:
        return self.told.session or self.token


class MessageRequests:
    """One per gateway process."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    async def message(self, call: McpCall) -> JsonObject:
        return await self._message(call, read(call.params, "Message"))

    async def _message(self, call: McpCall, asked: JsonObject) -> JsonObject:
        target, kind, payload = asked["target"], asked["content"]["type"], asked["content"]["payload"]
        principal = self._env.people.may(call, self._right(target), target)
        source = self._env.people.source(call, principal, asked.get("source"))
        correlation = correlation_in(asked)
        if kind != wire.REQUEST:
            said = f"nothing with this correlation id waits for a message of type {kind}"
            raise refusal(wire.NOT_FOUND, said, "not_found", WAITED_FOR, correlation)
        self._env.directory.check(target)
        agent = await self._env.agent(call, target, "/target")
        told = told_in(nlip.plain(payload))
        token = fresh() if nlip.spoken(payload) else None
        letter = Letter(asked, payload, told, agent, principal, source, correlation or fresh(), token)
        ahead(told.needs, DEADLINE_PATH)
        run = await self._env.runs.answered(call, agent, payload, content.PAYLOAD, answer_in)
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
        asked = read(aside.params, "Message")
        result = await self._message(aside, asked)
        head = both(asked["target"], asked.get("source"))
        aside.notify(wire.MESSAGE, {**head, "content": result["content"], META: result[META]})

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
        needs = letter.told.needs
        wanted = Needs(needs.capabilities, needs.min_score, needs.max_cost)
        if wanted == Needs() or letter.agent.name == self._env.options.tasks_of:
            return
        why = why_not(await self._env.directory.candidate(letter.agent.name), wanted)
        if why is not None:
            raise NoMatch(f"{REQUIRED_PATH}: agent {letter.agent.name} {why}")

    async def _start(self, call: McpCall, letter: Letter) -> tuple[Run, Sequence[str]]:
        """The run that the message becomes, and the name of each loss."""
        env, agent, needs = self._env, letter.agent, letter.told.requirements
        try:
            begun = content.start_of(agent, letter.payload)
            given = begun.input
            if begun.prompt is None and agent.name == env.options.tasks_of and needs is not None:
                given = given if "task" in given else {**given, "requirements": needs}
            thread = None if letter.session is None else await self._thread(letter, letter.session)
            attributes: JsonObject = {wire.CORRELATION: letter.correlation}
            beside = _beside(nlip.plain(letter.payload))
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
                creation=sent(letter.params, letter.source) if wire.PROTOCOL in agent.extra else {},
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
        env.limit(run.id, letter.told.needs)
        telling = RunNotifications(call, agent, head, {wire.CORRELATION: correlation, keys.RUN_ID: run.id})
        token = letter.session if letter.token is not None else None
        words = MessageWords(env, agent, telling, correlation, losses=losses, conversation=token)
        result: JsonObject = await env.follow(call, run, agent, words, head=head, correlation=correlation)
        return result


def _beside(payload: Any) -> JsonObject:
    """Members about the message, not its content: agents of other protocols get them as metadata."""
    if not isinstance(payload, dict):
        return {}
    return {key: payload[key] for key in ("context", "requirements") if isinstance(payload.get(key), dict)}


def sent(params: JsonObject, source: str | None) -> JsonObject:
    """The params as they came; with the agent that they are from, where that was left out."""
    return params if source is None else {**params, "source": source}


# --- tasks -----------------------------------------------------------------------------------------------------------


ARGUMENTS: Final = "/arguments"
LISTED: Final = 20
"""Tasks that `taskList` has, if not told otherwise."""


class Order(msgspec.Struct, frozen=True):
    """A task as somebody asks for it. `place`: of its deadline in the params; `named`: of the target."""

    params: JsonObject
    task: DelegatedTask
    principal: ClientPrincipal
    source: str | None
    target: str | None
    correlation: str
    place: str
    named: str = "/target"


class TaskRequests:
    """One per gateway process. `changed` is called with the resources that have changed."""

    def __init__(
        self, env: Environment, tasks: Tasks, coordinator: Coordinator, changed: Callable[[Iterable[str]], None]
    ) -> None:
        self._env = env
        self._tasks = tasks
        self._changed = changed
        self._name = coordinator.name

    # --- agent/delegate ---------------------------------------------------------------------------------------

    async def delegate(self, call: McpCall) -> JsonObject:
        asked = read(call.params, "Delegate")
        agent, run = await self._delegated(call, asked)
        if not asked.get("wait", True) and not run.status.ended:
            self._tell_later(Aside(call.session, wire.DELEGATE, call.params), agent, run)
            return rendering.status_result(run, correlation_by(run))
        return await self._follow(call, agent, run, self._words(call, agent, run))

    async def told(self, aside: Aside) -> None:
        """The notification: what comes of it is told by a message, or by `agent/error`, with the same id."""
        self._tell_later(aside, *await self._delegated(aside, read(aside.params, "Delegate")))

    def _tell_later(self, aside: Aside, agent: Agent, run: Run) -> None:
        self._env.background.do(aside.session, self._later(aside, agent, run), f"task of run {run.id}")

    async def _later(self, aside: Aside, agent: Agent, run: Run) -> None:
        """Tell the outcome of a task that nobody waits for."""
        correlation = correlation_by(run)
        try:
            await self._follow(aside, agent, run, self._words(aside, agent, run))
        except InterlinguaError as error:
            aside.notify(wire.ERROR, note(to_rpc(error, correlation), correlation, wire.SELF))
        except Exception:
            aside.notify(wire.ERROR, note(jsonrpc.internal(), correlation, wire.SELF))
            raise
        else:
            ended = await self._env.gateway.runs.get(run.id)
            aside.notify(wire.MESSAGE, {**self._head(run), **rendering.response(ended, correlation)})

    async def _delegated(self, call: McpCall, asked: JsonObject) -> tuple[Agent, Run]:
        task, target = task_in(asked["task"]), asked.get("target")
        principal = self._env.people.may(call, "delegate", target)
        source = self._env.people.source(call, principal, asked.get("source"))
        agent = await self._coordinator()
        run = await self._env.runs.answered(call, agent, task.payload, "/task/payload", answer_in)
        if run is not None:
            return agent, run
        place = "/task/requirements/constraints/deadline"
        order = Order(asked, task, principal, source, target, correlation_in(asked) or fresh(), place)
        return agent, await self._start(call, order)

    # --- tools ------------------------------------------------------------------------------------------------

    async def assign(self, call: McpCall, asked: JsonObject, given: JsonObject) -> JsonObject:
        agent, target = await self._coordinator(), given.get("agentId")
        task = task_of_tool(given, given.get("id") or fresh(), ARGUMENTS)
        run = await self._env.runs.returned(call, agent)
        principal = self._env.people.may(call, "delegate", target)
        if run is None:
            correlation = correlation_of(call.meta) or fresh()
            source = self._env.people.source(call, principal, None)
            places = f"{ARGUMENTS}/deadline", f"{ARGUMENTS}/agentId"
            run = await self._start(call, Order(asked, task, principal, source, target, correlation, *places))
        return await self._tool_result(call, agent, run, wait=given.get("wait", True))

    async def answer(self, call: McpCall, asked: JsonObject, given: JsonObject) -> JsonObject:
        """`taskAnswer`: the question of a task of one's own, by the task's id; then as `taskAssign` goes on."""
        agent = await self._coordinator()
        run = await self._env.runs.returned(call, agent)
        principal = self._env.people.may(call, "delegate")
        if run is None:
            run, wanted = await self._own(given["taskId"], principal), given.get("interrupt")
            open_ = [each for each in run.interrupts if wanted in (None, each.id)]
            if not open_:
                said = f"task {given['taskId']} waits for no {'such ' if wanted else ''}answer"
                raise _unfit(f"{ARGUMENTS}/interrupt", "a question that is open", wanted, said)
            outcome = Outcome(given.get("outcome", Outcome.ANSWERED))
            value = given["answer"] if outcome is Outcome.ANSWERED else None
            answer = answer_in(open_[0], value) if isinstance(value, str) else Answer(outcome=outcome, value=value)
            try:
                await self._env.runs.answer(call, run.id, answer, open_[0].id)
            except Invalid as error:
                expected = delta.encode(open_[0].answer_schema).decode()
                raise _unfit(f"{ARGUMENTS}/answer", expected, value, str(error)) from None
            except Conflict as error:
                return rendering.failed(error)
        return await self._tool_result(call, agent, run)

    async def listed(self, call: McpCall, asked: JsonObject, given: JsonObject) -> JsonObject:
        """`taskList`: as `agent://tasks` has them."""
        principal, status = self._env.people.may(call, "read"), given.get("status")
        found = [each for each in await self._tasks.list(principal) if status in (None, each["status"])]
        shown = found[: int(given.get("limit", LISTED))]
        few = f"{len(shown)} of {len(found)} tasks" if len(found) > len(shown) else f"{len(found)} tasks"
        return rendering.result(call, few, {"tasks": shown})

    async def cancel(self, call: McpCall, asked: JsonObject, given: JsonObject) -> JsonObject:
        """`taskCancel`: a task of one's own, by its id. One that has ended stays as it is."""
        principal = self._env.people.may(call, "delegate")
        run = await self._own(given["taskId"], principal)
        reason = given.get("reason") or f"cancelled by {principal.name}"
        run = await self._env.runs.whole(self._env.gateway.runs.cancel(run.id, reason=reason, wait=True))
        self._changed((wire.TASKS,))
        task = rendering.told(run)
        return rendering.result(call, f"Task {task['id']} is {task['status']}", {"task": task})

    async def had(self, task_id: str, principal: ClientPrincipal, agent: str) -> bool:
        run = await self._tasks.find(task_id, principal.name)
        return run is not None and any(one.agent == agent for one in KeptTask.of(run).attempts)

    async def _tool_result(self, call: McpCall, agent: Agent, run: Run, *, wait: bool = True) -> JsonObject:
        """The task once it is done, or asks; with `wait` false as it is now."""
        words = TaskToolRendering(call, agent, self._telling(call, agent, run), correlation_by(run))
        if not wait and not run.status.ended:
            return words.under_way(run)
        return await self._follow(call, agent, run, words)

    async def _own(self, task_id: str, principal: ClientPrincipal) -> Run:
        """The run of a task that the principal delegated. Raises RpcError."""
        run = await self._tasks.find(task_id, principal.name)
        if run is None:
            raise _unfit(f"{ARGUMENTS}/taskId", "the id of a task of yours", task_id, f"no task {task_id}")
        return run

    async def _coordinator(self) -> Agent:
        if self._env.gateway.agents.routed(self._name):
            raise Unavailable(f"no tasks are taken: the coordinator's name, {self._name}, is a route's")
        return await self._env.gateway.agents.get(self._name, wire.PROTOCOL)

    async def _start(self, call: McpCall, order: Order) -> Run:
        env, task = self._env, order.task
        only = order.target
        if call.session.agent is not None and call.session.agent != self._name:
            if only not in (None, call.session.agent):
                await env.agent(call, str(only), order.named)  # which says so
            only = call.session.agent
        if only is not None:
            env.directory.check(only)
            await env.agent(call, only, order.named)
        attributes: JsonObject = {wire.CORRELATION: order.correlation, HOPS: await self._hops(call, order)}
        if "*" not in order.principal.agents:
            attributes[ALLOWED] = list(order.principal.agents)
        attributes |= {key: value for key, value in ((SOURCE, order.source), (TARGET, only)) if value is not None}
        request = RunRequest(
            agent=self._name,
            input={TASK: document(task)},
            protocol=wire.PROTOCOL,
            metadata={**metadata_of(call.meta), TASK: task.id},
            principal=order.principal.name,
            traceparent=keys.traceparent(call.meta),
            creation=sent(order.params, order.source),
            attributes=attributes,
            id=self._tasks.run_of(task.id, order.principal.name),
        )

        async def start(asked: RunRequest) -> Run:
            ahead(task.needs, order.place)
            return await env.runs.start(asked, call, outlives=True)

        return await self._tasks.delegate(request, start)

    async def _hops(self, call: McpCall, order: Order) -> int:
        """How often work was delegated before this, each time because of the other: what its delegator works on, and
        what another gateway says."""
        told = call.meta.get(wire.HOPS)
        before = min(told, 1000) if isinstance(told, int) and told > 0 else 0
        if order.source is None:
            return before
        runs = await self._env.gateway.runs.list(RunQuery(agent=order.source, statuses=ACTIVE_RUNS, limit=100))
        known = correlation_of(call.meta)
        if known is not None:
            runs = [run for run in runs if same_work(correlation_of(run.request.attributes), known)]
        hops = [run.request.attributes.get(HOPS) for run in runs]
        return max((each for each in (*hops, before) if isinstance(each, int)), default=0)

    def _head(self, run: Run) -> JsonObject:
        return both(wire.SELF, run.request.attributes.get("source"))

    def _telling(self, call: McpCall, agent: Agent, run: Run) -> RunNotifications:
        marks = {wire.CORRELATION: correlation_by(run), keys.RUN_ID: run.id}
        return RunNotifications(call, agent, self._head(run), marks)

    def _words(self, call: McpCall, agent: Agent, run: Run) -> TaskRendering:
        return TaskRendering(self._telling(call, agent, run), correlation_by(run))

    async def _follow(self, call: McpCall, agent: Agent, run: Run, words: TaskRendering) -> JsonObject:
        head, correlation = self._head(run), correlation_by(run)
        self._changed((wire.TASKS,))
        try:
            result: JsonObject = await self._env.follow(
                call, run, agent, words, head=head, correlation=correlation, outlives=True
            )
            return result
        finally:
            self._changed((wire.TASKS,))


def correlation_by(run: Run) -> str:
    return correlation_of(run.request.attributes) or run.id


def _unfit(path: str, expected: str, received: Any, said: str) -> RpcError:
    code = wire.NOT_FOUND if path.endswith("taskId") else wire.INVALID
    return refusal(code, f"{path}: {said}", "invalid", expected, received, path=path)
