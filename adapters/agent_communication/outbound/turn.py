"""One `agents/run`: turns the agent's progress and answer into events of the run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec import Raw

from adapters.agent_communication.codec.deltas_in import PART, Defaults, DeltaDecoder
from adapters.agent_communication.codec.deltas_out import NOTIFICATION
from adapters.agent_communication.outbound.server import QUESTIONS
from adapters.agent_communication.wire import PROTOCOL, RUN, RUN_PROGRESS
from gateway.contract import RunContext
from gateway.core import delta
from gateway.core import events as e
from gateway.core.delta import NO_DIFF, Fold
from gateway.core.errors import InterlinguaError, Invalid
from gateway.core.types import Agent, Answer, Failure, Interrupt, Json, JsonObject, Outcome
from gateway.mcp.client.called_run import CalledRun
from gateway.mcp.client.session import ClientSession
from gateway.mcp.runs.keys import INTERRUPTED, OUTCOME, RESUME
from gateway.mcp.runs.questions import as_input
from gateway.mcp.wire import META, PROGRESS_TOKEN, passed_on
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

OF_THE_CALL: Final = frozenset({"name", "input", "config", META, "inputResponses", "requestState", "task"})
"""Members of `params` that the gateway says itself."""


def run_params(context: RunContext, name: str, given: Json, *, configured: bool) -> JsonObject:
    """The params of `agents/run` for the agent `name` and the input `given`. Raises Invalid for one that is no object.

    What a client of the same protocol sent besides goes along as it is. So does, with `configured`, the run's
    configuration: the protocol has no place for it, but another gateway reads it, and nobody minds.
    """
    check_input(given)
    request = context.run.request
    said = request.creation if request.protocol == PROTOCOL else {}
    meta = said.get(META)
    meta = {**(meta if isinstance(meta, dict) else {}), **request.metadata}
    if meta:
        meta = {key: value for key, value in meta.items() if passed_on(key, value)}
    if context.traceparent is not None:
        meta["traceparent"] = context.traceparent
    extra = {key: value for key, value in said.items() if key not in OF_THE_CALL} if said else {}
    if configured and request.config:
        extra["config"] = request.config
    return {**extra, "name": name, "input": given, **({META: meta} if meta else {})}


def check_input(given: Json) -> None:
    """Raises Invalid for an input that is no object."""
    if not isinstance(given, dict):  # which ends acp-sdk's server for Python
        raise Invalid("the agent's input is an object", path="/input")


def noted(method: str, params: Raw) -> list[e.Event]:
    """Another notification about the run, for clients of the same protocol; nothing where it cannot be read."""
    try:
        data = jsonrpc.unpack(params) if params else None
        if isinstance(data, dict):
            data.pop(PROGRESS_TOKEN, None)
        return [e.Custom(name=PROTOCOL, data=delta.sound({NOTIFICATION: method, "params": data}))]
    except (ValueError, RecursionError):
        return []


def run_failed(error: RpcError) -> e.RunFailed:
    """The end of a run that was answered with an error; clients of the same protocol hear it in the agent's words."""
    said = error.error
    origin: JsonObject = {"code": said.code, "message": delta.sound(said.message)}
    data = data_of(error)
    if data is not None:
        origin["data"] = data
    failure = Failure(code=error.code, message=delta.sound(str(error)) or "the agent failed")
    return e.RunFailed(failure=failure, origin={"error": origin})


def data_of(error: RpcError) -> Json:
    """The data of an error; None where there is none, or it cannot be read."""
    data = error.error.data
    try:
        return delta.sound(jsonrpc.unpack(data) if isinstance(data, Raw) else data)
    except (ValueError, RecursionError):
        return None


LEAVE_SECONDS = 1.0
"""How long to follow another gateway's run in order to cancel it."""
MOST = 10_000
"""The most events beside the output to recognize as repeated."""


@dataclass(frozen=True)
class ForeignQuestion:
    """A question of another gateway. `handle` names it there, where the run waits for the answer."""

    interrupt: Interrupt
    handle: str

    def answered(self, params: JsonObject, answer: Answer) -> JsonObject:
        """Return the params of the call that answers it. `params` are those of the run."""
        meta = {**params.get(META, {}), RESUME: self.handle}
        if answer.outcome is not Outcome.ANSWERED:
            meta[OUTCOME] = answer.outcome.value
        return {**params, "input": as_input(self.interrupt, answer), META: meta}


def question_of(error: RpcError) -> ForeignQuestion | None:
    """Return the question that an error carries; None for any other error."""
    data = data_of(error) if error.error.code == INTERRUPTED else None
    asked = data.get("interrupt") if isinstance(data, dict) else None
    handle = data.get("resume") if isinstance(data, dict) else None
    if not isinstance(asked, dict) or not isinstance(handle, str):
        return None
    id, kind, message, schema = (asked.get(key) for key in ("id", "kind", "message", "answerSchema"))
    interrupt = Interrupt(
        id=id if isinstance(id, str) and id else "question",
        kind=kind if isinstance(kind, str) and kind else "input",
        payload=asked.get("payload"),
        message=message if isinstance(message, str) else "",
        answer_schema=schema if isinstance(schema, dict) else {},
    )
    return ForeignQuestion(interrupt, handle)


class RepeatFilter:
    """Drops what an agent repeats when its call is sent again: `new` filters its events, `again` marks a new call."""

    def __init__(self) -> None:
        self._before: Fold | None = None  # the output as it was told, while the agent is behind that
        self._now: Fold  # since `again`
        self._seen: dict[int, int] = {}  # how often what was said beside the output, in this call
        self._seen_before: dict[int, int] = {}

    def again(self, said: Fold) -> None:
        """Begin a new call. `said` is the output of the last one, which does not change any more."""
        if self._before is None and not said.absent:
            self._before = said
        self._now = Fold()
        for key, count in self._seen.items():
            self._seen_before[key] = max(count, self._seen_before.get(key, 0))
        self._seen.clear()

    def new(self, events: Iterable[e.Event]) -> list[e.Event]:
        """Return the events of a notification that are new.

        The output is held back until there is as much of it as before: then it goes on from there, or, if the agent
        says something else now, is replaced. Where it never gets as long, the result says it.
        """
        out: list[e.Event] = []
        for event in events:
            if isinstance(event, e.PartStarted | e.PartDelta | e.PartReplaced) and event.part == PART:
                if self._before is None:
                    out.append(event)
                elif isinstance(event, e.PartDelta):
                    self._now.apply(event.delta)
                elif isinstance(event, e.PartReplaced):
                    self._now.replace(event.pointer, event.value)
            elif not self._repeated(event):
                out.append(event)
        if self._before is not None:
            out += self._caught_up(self._before)
        return out

    def _caught_up(self, before: Fold) -> list[e.Event]:
        now = self._now
        if now.absent or now.size < before.size or len(now.encoded()) < len(before.encoded()):
            return []
        self._before = None
        change = delta.diff(before.document(), now.document())
        if change is NO_DIFF:
            return [e.PartReplaced(part=PART, value=now.document())]
        return [] if change is None else [e.PartDelta(part=PART, delta=change)]

    def _repeated(self, event: e.Event) -> bool:
        if len(self._seen) >= MOST:
            return False
        key = hash(e.encode(event))
        count = self._seen[key] = self._seen.get(key, 0) + 1
        return count <= self._seen_before.get(key, 0)


class Home(Protocol):
    """The place of an agent. `configured`: it got the run's configuration when it was made."""

    configured: bool

    async def describe(self) -> Agent:
        """See `Outbound.describe`."""

    def use(
        self, context: RunContext, capabilities: JsonObject
    ) -> AbstractAsyncContextManager[tuple[ClientSession, str]]:
        """For one run: a session in which the gateway has the capabilities, and the agent's name there."""

    async def aclose(self) -> None:
        """Give up what it keeps. The server's sessions are closed later."""


class AgentRunTurn(CalledRun):
    """See `gateway.mcp.client.called_run`."""

    late = "late_progress"

    def __init__(self, context: RunContext, home: Home, defaults: Defaults) -> None:
        """`defaults` are those of the agent's output schema."""
        super().__init__(context, PROTOCOL, QUESTIONS)
        self._home = home
        self._defaults = defaults
        self._decoder = DeltaDecoder(context.agent, defaults, self.losses)
        self._repeats = RepeatFilter()

    # --- what comes while the call is under way ---------------------------------------------------------------------

    def told(self, method: str, params: Raw) -> list[e.Event]:
        """Convert a notification to events, unless it was told before."""
        told = self._decoder.feed(params) if method == RUN_PROGRESS else noted(method, params)
        return self._repeats.new(told)

    def again(self) -> None:
        self._repeats.again(self._decoder.said)
        self._decoder = DeltaDecoder(self.context.agent, self._defaults, self.losses)

    def failed(self, error: RpcError) -> e.RunFailed:
        """The end of a run whose agent has answered with an error."""
        return run_failed(error)

    # --- the call -----------------------------------------------------------------------------------------------------

    async def called(self) -> e.Event:
        """Call `agents/run`, again after each question that it ends with."""
        context = self.context
        configured = not self._home.configured
        request = context.run.request
        check_input(request.input)  # what is wrong is said before anything is started
        if configured and request.config and request.protocol != PROTOCOL:
            context.lost("config")
        async with self._home.use(context, self.declared) as (session, name):
            recalled = await context.recall(fresh=True)
            params = run_params(context, name, recalled.input, configured=configured)
            call = params
            while True:
                try:
                    result = await session.call(RUN, call, listener=self)
                    break
                except RpcError as error:
                    question = question_of(error)
                    if question is None:
                        raise
                call = await self._answering(session, params, question)
            self.over = True
        return self._decoder.result(result)

    async def _answering(self, session: ClientSession, run: JsonObject, question: ForeignQuestion) -> JsonObject:
        """Ask what another gateway could not ask. Returns the params of the next call, which answers."""
        try:
            answer = await self.ask(question.interrupt)
        except asyncio.CancelledError:
            if self.stopped:
                await self._leave(session, question.answered(run, Answer(outcome=Outcome.CANCELLED)))
            raise
        self.again()
        return question.answered(run, answer)

    async def _leave(self, session: ClientSession, params: JsonObject) -> None:
        """Cancel a waiting run of another gateway, by a call that follows it and is cancelled."""
        with contextlib.suppress(InterlinguaError):
            await session.call(RUN, params, timeout=LEAVE_SECONDS)
