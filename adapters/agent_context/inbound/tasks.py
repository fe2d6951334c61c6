"""`agent/delegate`, and the tools for tasks: a task is a run of the coordinator.

A task goes on when its client's connection ends; it is cancelled when the client takes its request back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from adapters.agent_context import wire
from adapters.agent_context.codec.errors import note, refusal, to_rpc
from adapters.agent_context.coordination import Coordinator
from adapters.agent_context.coordination.task_record import ALLOWED, HOPS, KeptTask, Tasks
from adapters.agent_context.directory.evaluation import ACTIVE_RUNS
from adapters.agent_context.inbound.environment import (
    Aside,
    Environment,
    Served,
    ahead,
    both,
    correlation_of,
    fresh,
    metadata_of,
    same_work,
)
from adapters.agent_context.inbound.messages import sent
from adapters.agent_context.inbound.questions import again, answer_in, returned
from adapters.agent_context.inbound.rendering import (
    RunNotifications,
    TaskRendering,
    TaskToolRendering,
    failed,
    response,
    status_result,
    told,
)
from adapters.agent_context.inbound.rendering import result as tool_result
from adapters.agent_context.security import ClientPrincipal
from adapters.agent_context.wire import HOPS as HOPS_KEY
from adapters.agent_context.wire import messages as params
from adapters.agent_context.wire.base import checked, read
from adapters.agent_context.wire.messages import Delegate, DelegatedTask
from gateway.core import delta
from gateway.core.errors import Conflict, InterlinguaError, Invalid, Unavailable
from gateway.core.types import Agent, Answer, JsonObject, Outcome, Run, RunQuery, RunRequest
from gateway.mcp.runs import Rendering, RunFollower, keys
from gateway.mcp.server.contract import McpCall
from gateway.wire.jsonrpc import RpcError, internal

TASK_PATH: Final = "/task"
LIMITS: Final = "/requirements/constraints/deadline"
ARGUMENTS: Final = "/arguments"


class Order(msgspec.Struct, frozen=True):
    """A task as somebody asks for it. `place`: of its deadline in the params; `named`: of the target."""

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
        """The request: its result is the task once it is done; with `wait: false` the task as it is now."""
        asked = read(call.params, Delegate)
        agent, run = await self._delegated(call, asked)
        if not asked.wait and not run.status.ended:
            self._tell_later(Aside(call.session, wire.DELEGATE, call.params), agent, run)
            return status_result(run, correlation_in(run))
        result: JsonObject = await self._follow(call, agent, run, self._rendering(call, agent, run))
        return result

    async def told(self, aside: Aside) -> None:
        """The notification: what comes of it is told by a message, or by `agent/error`, with the same id."""
        self._tell_later(aside, *await self._delegated(aside, read(aside.params, Delegate)))

    def _tell_later(self, aside: Aside, agent: Agent, run: Run) -> None:
        self._env.background.do(aside.session, self._later(aside, agent, run), f"task of run {run.id}")

    async def _later(self, aside: Aside, agent: Agent, run: Run) -> None:
        """Tell the outcome of a task that nobody waits for."""
        correlation = correlation_in(run)
        try:
            await self._follow(aside, agent, run, self._rendering(aside, agent, run))
        except InterlinguaError as error:
            aside.notify(wire.ERROR, note(to_rpc(error, correlation), correlation, wire.SELF))
        except Exception:
            aside.notify(wire.ERROR, note(internal(), correlation, wire.SELF))
            raise
        else:
            ended = await self._env.gateway.runs.get(run.id)
            aside.notify(wire.MESSAGE, {**self._head(run), **response(ended, correlation)})

    async def _delegated(self, call: McpCall, asked: Delegate) -> tuple[Agent, Run]:
        principal = self._env.people.may(call, "delegate", asked.target)
        source = self._env.people.source(call, principal, asked.source)
        agent = await self._coordinator()
        payload, path = asked.task.payload, f"{TASK_PATH}/payload"
        run = await again(self._env.waiting, call, agent, asked, payload=payload, path=path)
        if run is not None:
            return agent, run
        correlation = asked.correlation_id or fresh()
        order = Order(asked.task, principal, source, asked.target, correlation, TASK_PATH + LIMITS)
        return agent, await self._start(call, order)

    # --- tools ------------------------------------------------------------------------------------------------

    async def assign(self, call: McpCall, asked: params.ToolCallParams) -> JsonObject:
        """`taskAssign`."""
        given = checked(asked.arguments or {}, params.TaskAssign, ARGUMENTS)
        agent = await self._coordinator()
        run = await returned(self._env.waiting, call, agent, asked.request_state, asked.input_responses)
        principal = self._env.people.may(call, "delegate", given.agent_id)
        if run is None:
            correlation = correlation_of(call.meta) or fresh()
            task = given.task(given.id or fresh())
            source = self._env.people.source(call, principal, None)
            order = Order(
                task, principal, source, given.agent_id, correlation, f"{ARGUMENTS}/deadline", f"{ARGUMENTS}/agentId"
            )
            run = await self._start(call, order)
        return await self._tool_result(call, agent, run, wait=given.wait)

    async def answer(self, call: McpCall, asked: params.ToolCallParams) -> JsonObject:
        """`taskAnswer`: the question of a task of one's own, by the task's id; then as `taskAssign` goes on."""
        given = checked(asked.arguments or {}, params.TaskAnswer, ARGUMENTS)
        agent = await self._coordinator()
        run = await returned(self._env.waiting, call, agent, asked.request_state, asked.input_responses)
        principal = self._env.people.may(call, "delegate")
        if run is None:
            run = await self._own(given.task_id, principal)
            open_ = [each for each in run.interrupts if given.interrupt in (None, each.id)]
            if not open_:
                said = f"task {given.task_id} waits for no {'such ' if given.interrupt else ''}answer"
                raise _unfit(f"{ARGUMENTS}/interrupt", "a question that is open", given.interrupt, said)
            outcome = Outcome(given.outcome)
            value = given.answer if outcome is Outcome.ANSWERED else None
            answer = answer_in(open_[0], value) if isinstance(value, str) else Answer(outcome=outcome, value=value)
            try:
                await self._env.runs.answer(call, run.id, answer, open_[0].id)
            except Invalid as error:
                raise _unfit(
                    f"{ARGUMENTS}/answer", delta.encode(open_[0].answer_schema).decode(), given.answer, str(error)
                ) from None
            except Conflict as error:
                return failed(error)
        return await self._tool_result(call, agent, run)

    async def listed(self, call: McpCall, asked: params.ToolCallParams) -> JsonObject:
        """`taskList`: as `agent://tasks` has them."""
        given = checked(asked.arguments or {}, params.TaskList, ARGUMENTS)
        principal = self._env.people.may(call, "read")
        found = [each for each in await self._tasks.list(principal) if given.status in (None, each["status"])]
        shown = found[: given.limit]
        few = f"{len(shown)} of {len(found)} tasks" if len(found) > len(shown) else f"{len(found)} tasks"
        return tool_result(call, few, {"tasks": shown})

    async def cancel(self, call: McpCall, asked: params.ToolCallParams) -> JsonObject:
        """`taskCancel`: a task of one's own, by its id. One that has ended stays as it is."""
        given = checked(asked.arguments or {}, params.TaskCancel, ARGUMENTS)
        principal = self._env.people.may(call, "delegate")
        run = await self._own(given.task_id, principal)
        reason = given.reason or f"cancelled by {principal.name}"
        run = await self._env.runs.whole(self._env.gateway.runs.cancel(run.id, reason=reason, wait=True))
        self._changed((wire.TASKS,))
        task = told(run)
        return tool_result(call, f"Task {given.task_id} is {task['status']}", {"task": task})

    async def had(self, task_id: str, principal: ClientPrincipal, agent: str) -> bool:
        """Whether an agent was given a task that the principal delegated."""
        run = await self._tasks.find(task_id, principal.name)
        return run is not None and any(one.agent == agent for one in KeptTask.of(run).attempts)

    # --- inside -----------------------------------------------------------------------------------------------

    async def _tool_result(self, call: McpCall, agent: Agent, run: Run, *, wait: bool = True) -> JsonObject:
        """The task once it is done, or asks; with `wait` false as it is now."""
        rendering = TaskToolRendering(call, agent, self._telling(call, agent, run), correlation_in(run))
        if not wait and not run.status.ended:
            return rendering.under_way(run)
        result: JsonObject = await self._follow(call, agent, run, rendering)
        return result

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
        request = self._tasks.request(
            task,
            order.principal.name,
            source=order.source,
            target=only,
            creation=sent(call, order.source),
            metadata=metadata_of(call.meta),
            attributes=attributes,
            traceparent=keys.traceparent(call.meta),
        )

        async def start(asked: RunRequest) -> Run:
            ahead(task.constraints.deadline_at, order.place, task.constraints.deadline)
            return await env.runs.start(asked, call, outlives=True)

        return await self._tasks.delegate(request, start)

    async def _hops(self, call: McpCall, order: Order) -> int:
        """How often work was delegated before this, each time because of the other: what its delegator works on, and
        what another gateway says."""
        told = call.meta.get(HOPS_KEY)
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
        source = run.request.attributes.get("source")
        return both(wire.SELF, source if isinstance(source, str) else None)

    def _telling(self, call: McpCall, agent: Agent, run: Run) -> RunNotifications:
        return RunNotifications(
            call, agent, self._head(run), {wire.CORRELATION: correlation_in(run), keys.RUN_ID: run.id}
        )

    def _rendering(self, call: McpCall, agent: Agent, run: Run) -> TaskRendering:
        return TaskRendering(self._telling(call, agent, run), correlation_in(run))

    async def _follow(self, call: McpCall, agent: Agent, run: Run, rendering: Rendering) -> Any:
        env, correlation = self._env, correlation_in(run)
        how, patient = env.asker(call, self._head(run), correlation, run.id), env.pending.patient(call)
        self._changed((wire.TASKS,))
        try:
            with env.following(run.id, Served(call, self._name, correlation)):
                return await RunFollower(env.runs, patient, agent, rendering, asker=how, outlives=True).go(run)
        finally:
            self._changed((wire.TASKS,))


def correlation_in(run: Run) -> str:
    """The correlation id of a task."""
    return correlation_of(run.request.attributes) or run.id


def _unfit(path: str, expected: str, received: Any, said: str) -> RpcError:
    code = wire.NOT_FOUND if path.endswith("taskId") else wire.INVALID
    return refusal(code, f"{path}: {said}", "invalid", expected, received, path=path)
