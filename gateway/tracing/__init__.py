"""Traces and metrics. The engine and the application wrap their work in the spans made here; nobody else knows any.

    inbound_span    the client's HTTP request              made by the application around each request
      RequestSpans  its JSON-RPC request, whatever it      made by the engine, entered by the inbound half that serves
                    came over                              the request (`Gateway.requests`)
      run_span      the run, from dispatch to its end      made by the engine; its parent is `Run.request.traceparent`
        call_span   the call of the agent                  made by the engine around `Outbound.run` and `attach`
        (tools)     its tool calls                         made by the run's span, of the events that the engine emits
        RunSpan.approval  whether one may be made          made by the engine around the question
    describe_span   asking an agent what it is             made by the engine around `Outbound.describe`
    callback_span   one attempt to deliver a callback      made by the engine around the request

Nothing is traced until `configure` finds an OTLP endpoint, and nothing of OpenTelemetry is imported before. Without
one a span is a small object that passes an incoming `traceparent` on unchanged. Metrics are always kept (metrics.py),
and sent where there is an endpoint for them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec import Raw

from gateway.core.events import ToolCallEnded, ToolCallStarted, UsageReported
from gateway.core.types import Agent, Failure, Interrupt, Outcome, Run, RunStatus
from gateway.tracing import metrics, names

if TYPE_CHECKING:
    from gateway.config import Telemetry
    from gateway.contract import TargetOptions
    from gateway.tracing.otel import Backend, Export, Recording

__all__ = [
    "ApprovalSpan",
    "CallbackSpan",
    "RequestSpans",
    "RunSpan",
    "Span",
    "call_span",
    "callback_span",
    "configure",
    "describe_span",
    "inbound_span",
    "joined",
    "metrics",
    "run_span",
    "shutdown",
    "traceparent",
    "tracing",
]

MOST_ORIGINAL = 100
"""Characters that are recorded of what a client made up: a method that is not known, an id."""

SUCCESS_ENDS = 300

_backend: Backend | None = None
_export: Export | None = None
_current: ContextVar[Span | None] = ContextVar("interlingua_span", default=None)


def configure(telemetry: Telemetry) -> bool:
    """Begin to trace, and to send metrics, if the file or the environment names an OTLP endpoint for that.

    Called once at start. True if anything is traced.
    """
    global _backend, _export  # noqa: PLW0603 - the switches of this module
    from gateway.tracing.endpoint import METRICS, TRACES, endpoint

    shutdown()
    if (to := endpoint(telemetry, TRACES)) is not None:
        from gateway.tracing.otel import Backend

        _backend = Backend(to)
    if (to := endpoint(telemetry, METRICS)) is not None:
        from gateway.tracing.otel import Export

        _export = Export(to)
    return _backend is not None


def shutdown() -> None:
    """Send what has not been sent yet (waits for the endpoint, bounded), and trace and send no more."""
    global _backend, _export
    backend, _backend, export, _export = _backend, None, _export, None
    if backend is not None:
        backend.shutdown()
    if export is not None:
        export.shutdown()


def tracing() -> bool:
    """Whether anything is traced."""
    return _backend is not None


class Span:
    """A piece of work. Enter it around the work; an exception that leaves it marks it as failed.

    The innermost entered span is the parent of those made inside it, in child tasks too.
    """

    __slots__ = ("_before", "_recording", "over", "traceparent")

    def __init__(self, given: str | None, recording: Recording | None) -> None:
        self._recording = recording
        self.traceparent = given if recording is None else recording.traceparent
        """The W3C header that makes the receiver's work part of this span; the incoming one if nothing is traced."""
        self.over = False
        """It was left: what still runs in its context belongs to it no more."""
        self._before: Span | None = None

    def __enter__(self) -> Self:
        self._before = _current.get()
        _current.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        _current.set(self._before)
        self.over = True
        if self._recording is not None:
            self._recording.end(error)

    def answered(self, status: int) -> None:
        """The request was answered with this HTTP status."""
        if self._recording is not None:
            self._recording.http(status)


class RequestSpan(Span):
    """A client's JSON-RPC request, which is counted when it is left."""

    __slots__ = ("_code", "_named", "_protocol")

    def __init__(
        self,
        protocol: str,
        method: str | None,
        code: Callable[[Exception], int],
        given: str | None,
        recording: Recording | None,
    ) -> None:
        super().__init__(given, recording)
        self._protocol, self._code = protocol, code
        self._named = method

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        status = metrics.OK if error is None else metrics.CANCELLED
        if isinstance(error, Exception):
            code = self._code(error)
            status = metrics.code(code)
            if self._recording is not None:
                self._recording.rpc(code)
        metrics.requests.add(1, self._protocol, status)
        super().__exit__(None, None, None)

    def tool_failed(self) -> None:
        if self._recording is not None:
            self._recording.failed(names.TOOL_FAILED)

    def about(self, agent: str) -> None:
        """A run of this agent came of it: the first names the span."""
        if self._recording is not None and self._named is not None:
            self._recording.set({names.GEN_AI_AGENT_NAME: agent})
            self._recording.rename(names.REQUEST_SPAN_OF_AGENT.format(method=self._named, agent=agent))
            self._named = None


class RequestSpans:
    """See `gateway.contract.Requests`, and `Gateway.requests` for the parameters."""

    def __init__(
        self, protocol: str, methods: Collection[str], code: Callable[[Exception], int], *, mcp: bool = False
    ) -> None:
        self._protocol = protocol
        self._methods = frozenset(methods)
        self._code = code
        self._mcp = mcp

    def __call__(self, method: str, params: Raw, id: object, *, session: str = "", version: str = "") -> RequestSpan:
        ambient = _around()
        if _backend is None:
            return RequestSpan(self._protocol, None, self._code, ambient, None)
        known = method in self._methods
        named = method if known else names.UNKNOWN
        said = {names.PROTOCOL: self._protocol, names.RPC_SYSTEM: names.JSONRPC, names.RPC_METHOD: named}
        if not known:
            said[names.RPC_METHOD_ORIGINAL] = method[:MOST_ORIGINAL]
        if id is not None:
            said[names.RPC_ID] = str(id)[:MOST_ORIGINAL]
        if self._mcp:
            said[names.MCP_METHOD] = named
            said |= {names.MCP_SESSION: session} if session else {}
            said |= {names.MCP_VERSION: version} if version else {}
        recording = _backend.request(named, params, ambient, said)
        return RequestSpan(self._protocol, method if known else None, self._code, ambient, recording)


class ApprovalSpan(Span):
    """The question whether a tool may be called."""

    __slots__ = ()

    def decided(self, outcome: Outcome, *, approved: bool) -> None:
        """What came of it. Who answered is the audit log's affair."""
        if self._recording is not None:
            said = names.NOBODY if outcome is Outcome.CANCELLED else names.APPROVED if approved else names.REJECTED
            self._recording.set({names.APPROVAL_OUTCOME: said})


class CallbackSpan(Span):
    """One attempt to deliver a callback."""

    __slots__ = ()

    def ended(self, *, again: bool, status: int | None = None, why: Exception | None = None) -> None:
        """How it ended: with an answer's status, or with what was raised. `again`: it is to be tried again."""
        if self._recording is None:
            return
        failed = why is not None or (status is not None and status >= SUCCESS_ENDS)
        outcome = names.AGAIN if again else names.DROPPED if failed else names.DELIVERED
        self._recording.set({names.CALLBACK_OUTCOME: outcome})
        if status is not None:
            self._recording.set({names.HTTP_STATUS: status})
            if failed:
                self._recording.failed(str(status))
        elif why is not None:
            self._recording.failed(getattr(why, "code", type(why).__qualname__))


class RunSpan(Span):
    """A run. Besides the trace, keeps the run's metrics; to be entered at once."""

    __slots__ = ("_agent", "_began", "_losses", "_protocol", "_tools")

    def __init__(self, run: Run, resumed: bool, given: str | None, recording: Recording | None) -> None:
        super().__init__(given, recording)
        self._agent, self._protocol = metrics.agent(run.request.agent), run.request.protocol
        self._began = run.created_at
        self._losses: Counter[str] | None = None
        self._tools: dict[str, Recording] = {}
        if not resumed:
            metrics.runs_started.add(1, self._agent, self._protocol)
        metrics.runs_active.add(1, self._agent, self._protocol)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        metrics.runs_active.add(-1, self._agent, self._protocol)
        for tool in self._tools.values():
            tool.end(None)
        super().__exit__(kind, error, _)

    def record_tool(self, event: ToolCallStarted | ToolCallEnded) -> None:
        """A tool call begins or ends: a span of its own, without what goes in and what comes out."""
        if self._recording is None or _backend is None or not self._recording.sampled:
            return
        if isinstance(event, ToolCallStarted):
            if event.call not in self._tools:
                self._tools[event.call] = _backend.tool(event, self._recording.traceparent)
        elif (tool := self._tools.pop(event.call, None)) is not None:
            if event.failed:
                tool.failed(names.TOOL_FAILED)
            tool.end(None)

    def approval(self, tool: str, call: str, policy: str | None) -> ApprovalSpan:
        """The question whether a tool may be called, from when it is asked to its answer."""
        if self._recording is None or _backend is None:
            return ApprovalSpan(self.traceparent, None)
        return ApprovalSpan(self.traceparent, _backend.approval(tool, call, policy, self.traceparent))

    def record_interrupt(self, interrupt: Interrupt) -> None:
        """The agent asks."""
        metrics.interrupts.add(1, self._agent, metrics.kind(interrupt.kind))
        if self._recording is not None:
            about = {names.INTERRUPT_ID: interrupt.id, names.INTERRUPT_KIND: interrupt.kind}
            self._recording.event(names.INTERRUPT_EVENT, about)

    def record_answer(self, interrupt_id: str, outcome: Outcome) -> None:
        """It was answered, declined or cancelled. The answer itself is never recorded."""
        if self._recording is not None:
            about = {names.INTERRUPT_ID: interrupt_id, names.ANSWER_OUTCOME: str(outcome)}
            self._recording.event(names.ANSWER_EVENT, about)

    def record_loss(self, what: str, count: int = 1) -> None:
        """Something could not be said. May be called for every token: only the first becomes an event."""
        metrics.losses.add(count, self._agent, self._protocol, what)
        if self._recording is not None:
            if self._losses is None:
                self._losses = Counter()
            if what not in self._losses:
                self._recording.event(names.LOSS_EVENT, {names.LOSS_WHAT: what})
            self._losses[what] += count

    def finish(
        self,
        status: RunStatus,
        *,
        usage: UsageReported | None = None,
        tokens: int = 0,
        failure: Failure | None = None,
    ) -> None:
        """How the run ended: called once, before the span is left. `tokens` is the number of deltas streamed.

        A run that is let go of unfinished (shutdown) leaves its span without.
        """
        metrics.runs_ended.add(1, self._agent, self._protocol, status)
        metrics.run_seconds.observe(max(0.0, time.time() - self._began), self._agent, status)
        said: dict[str, str | int] = {}
        if usage is not None:
            for name, direction, count in (
                (names.GEN_AI_INPUT_TOKENS, "input", usage.input_tokens),
                (names.GEN_AI_OUTPUT_TOKENS, "output", usage.output_tokens),
            ):
                if count is not None:
                    said[name] = count
                    metrics.tokens.add(count, self._agent, direction)
        if self._recording is not None:
            said |= {names.RUN_STATUS: status.value, names.DELTAS: tokens}
            said |= {names.LOSS.format(what=what): count for what, count in (self._losses or {}).items()}
            self._recording.set(said)
            if failure is not None:
                self._recording.failed(failure.code)


def inbound_span(protocol: str, operation: str, traceparent: str | None = None) -> Span:
    """A client's request. `operation` is the protocol's own name for it (`POST /runs/wait`, `agents/run`)."""
    return Span(traceparent, _backend.inbound(protocol, operation, traceparent) if _backend is not None else None)


def run_span(run: Run, agent: Agent, *, resumed: bool = False) -> RunSpan:
    """A run that is dispatched now, or (`resumed`) was found again after a restart."""
    given = run.request.traceparent or traceparent()
    return RunSpan(run, resumed, given, _backend.run(run, agent, given, resumed) if _backend is not None else None)


def call_span(protocol: str, target: TargetOptions | None = None) -> Span:
    """The call of an agent that speaks `protocol`. Its `traceparent` is the one to send."""
    given = traceparent()
    return Span(given, _backend.call(protocol, getattr(target, "url", None), given) if _backend is not None else None)


def joined(given: str | None, agent: str) -> str | None:
    """The `traceparent` of a run of `agent` that is made now, for a request that carried `given`."""
    current = _current.get()
    if isinstance(current, RequestSpan) and not current.over:
        current.about(agent)
    return traceparent(given)


def describe_span(agent: str, protocol: str, target: TargetOptions | None = None) -> Span:
    """Asking an agent what it is, for the request that wants to know, if that is still under way."""
    given = _around()
    if _backend is None:
        return Span(given, None)
    return Span(given, _backend.describe(agent, protocol, getattr(target, "url", None), given))


def callback_span(run: Run, protocol: str, url: str, attempt: int) -> CallbackSpan:
    """One attempt (from 1) to tell a client of its run; part of the client's trace."""
    given = run.request.traceparent
    return CallbackSpan(given, None if _backend is None else _backend.callback(run, protocol, url, attempt))


def _around() -> str | None:
    """The span that the caller works for, if that goes on."""
    current = _current.get()
    return None if current is None or current.over else current.traceparent


def traceparent(given: str | None = None) -> str | None:
    """What a run made now has to remember, where the client's request carried `given`.

    The current request's span if that continues the client's trace (or the client has none). A client that names
    another trace in its message than in its headers is believed, and the request's span is linked to it.
    """
    current = _current.get()
    if current is None:
        return given
    own = current.traceparent
    if given is None or own is None or current._recording is None:
        return given or own
    if own.split("-")[1:2] == given.split("-")[1:2]:
        return own
    current._recording.link(given)
    return given
