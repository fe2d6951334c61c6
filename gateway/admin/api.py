"""The operations below `/admin`. Bodies and answers are JSON (openapi.json); errors are `{"error": text}`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import resources
from typing import Any, Final, TypeVar

import msgspec
from starlette.routing import Route

from gateway.admin.operators import Operators
from gateway.agents.entry import Entry
from gateway.config import Config
from gateway.contract import LIST_SECONDS, Batch
from gateway.core.errors import InterlinguaError, Invalid, NotFound, Unsupported
from gateway.core.types import Answer, Identity, JsonObject, Outcome, Run, RunQuery, RunStatus
from gateway.health import Overlooker
from gateway.recording import LIMITS, MOST_SECONDS, AllRecordings, ReadRecording, Recorder, TurnRecording
from gateway.runs import Engine
from gateway.runs.post import Unanswered
from gateway.store import Undelivered
from gateway.tracing import metrics
from gateway.transport.asgi import HttpRequest, Reply, RestEndpoint, RestOperation, WhileConnected, refusals
from gateway.transport.asgi.request import EventStream

T = TypeVar("T")

MAX_BODY: Final = 1024 * 1024
PAGE: Final = 50
MOST: Final = 500
"""The most runs of one page."""
MOST_NUMBER: Final = 2**53
"""A number above it is taken for it: no log is so long."""
EVENTS_BYTES: Final = 1024 * 1024
"""About how much of a log one page has."""
SHOWN_BYTES: Final = 256 * 1024
"""The largest input or output that is shown in a run; of a larger one its size is."""
KEEP_ALIVE: Final = 15.0
WAIT_SECONDS: Final = 10.0
"""How long a process is asked to wait for news of a recording: shorter than its answer is waited for."""
RECORDED_SECONDS: Final = 600
_TRACE: Final = re.compile(r"00-([0-9a-f]{32})-")
NO_STORE: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class OperatorAnswer(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an answer. `interrupt`: the one that is answered; left out, the oldest."""

    value: Any = None
    outcome: Outcome = Outcome.ANSWERED
    interrupt: str | None = None


class OperatorCancel(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a cancel."""

    reason: str = ""


class OperatorRecording(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a wish to have the wire of runs recorded, or not, for some seconds. `agent`: left out, all."""

    record: bool
    agent: str | None = None
    seconds: int = RECORDED_SECONDS


class AdminApi:
    """The operations. `reread` reads the route table again: it returns what is wrong with the file, "" for nothing.
    None where there is no file.
    """

    def __init__(
        self,
        engine: Engine,
        config: Callable[[], Config],
        operators: Operators,
        overlooker: Overlooker,
        reread: Callable[[], Awaitable[str]] | None,
        *,
        recorder: Recorder,
    ) -> None:
        self._recorder = recorder
        self._recordings = AllRecordings(recorder, engine.store, engine.records, engine.post)
        engine.on_opened(self._recordings.learn)
        self._engine = engine
        self._config = config
        self._operators = operators
        self._overlooker = overlooker
        self._reread = reread

    def routes(self) -> Sequence[Route]:
        table: Mapping[str, Mapping[str, RestOperation[Identity | None]]] = {
            "/admin": {"GET": self._summary},
            "/admin/openapi.json": {"GET": self._described},
            "/admin/agents": {"GET": self._agents},
            "/admin/protocols": {"GET": self._protocols},
            "/admin/losses": {"GET": self._losses},
            "/admin/recording": {"GET": self._recording, "POST": self._record},
            "/admin/reload": {"POST": self._reloaded},
            "/admin/runs": {"GET": self._runs},
            "/admin/runs/{run}": {"GET": self._run},
            "/admin/runs/{run}/events": {"GET": self._events},
            "/admin/runs/{run}/wire": {"GET": self._wire},
            "/admin/runs/{run}/answer": {"POST": self._answer},
            "/admin/runs/{run}/cancel": {"POST": self._cancel},
        }
        admit = self._operators.admit
        return [Route(path, RestEndpoint(methods, admit, _refusal)) for path, methods in table.items()]

    # --- the gateway -----------------------------------------------------------------------------------------------

    async def _summary(self, who: Identity | None, request: HttpRequest) -> Reply:
        """The operator's name, and the number of runs of each status."""
        counted = await asyncio.gather(*(self._engine.runs.count(RunQuery(statuses=(one,))) for one in RunStatus))
        everybody = await self._overlooker.all()
        runs = {str(status): count for status, count in zip(RunStatus, counted, strict=True)}
        found = {
            "operator": who.id if who is not None else None,
            "process": self._engine.process,
            "runs": runs,
            "backlog": everybody.backlog,
        }
        return _json(found)

    async def _described(self, who: Identity | None, request: HttpRequest) -> Reply:
        return Reply(200, resources.files(__package__).joinpath("openapi.json").read_bytes(), NO_STORE)

    async def _reloaded(self, who: Identity | None, request: HttpRequest) -> Reply:
        """Reads the route table again. Raises Invalid for a file that is refused: the old routes stay."""
        if self._reread is None:
            raise Unsupported("the routes of this gateway are not read from a file")
        if wrong := await self._reread():
            raise Invalid(wrong)
        return await self._agents(who, request)

    async def _agents(self, who: Identity | None, request: HttpRequest) -> Reply:
        """Every agent: what it is, where it is, how its runs went since the gateway started."""
        agents = self._engine.agents
        entries = [entry for entry in agents.entries if not entry.hidden]
        await asyncio.gather(*(entry.describe(LIST_SECONDS) for entry in entries))
        everybody = await self._overlooker.all()
        figures = {metric.name: metric for metric in everybody.metrics()}
        return _json({"agents": [_agent(entry, figures) for entry in (*entries, *agents.unlisted)]})

    async def _protocols(self, who: Identity | None, request: HttpRequest) -> Reply:
        """Every protocol: its door, if clients are served, and what it cannot say."""
        config = self._config()
        protocols = [
            {
                "name": name,
                "title": adapter.title,
                "door": config.inbound[name].path if name in config.inbound else None,
                "calls": adapter.call is not None,
                "losses": dict(adapter.losses),
            }
            for name, adapter in config.adapters.items()
        ]
        return _json({"protocols": protocols})

    async def _losses(self, who: Identity | None, request: HttpRequest) -> Reply:
        """Losses since the gateway started, with the reason where a protocol's list has one."""
        everybody = await self._overlooker.all()
        losses = next(metric for metric in everybody.metrics() if metric.name == metrics.losses.name)
        adapters = self._config().adapters
        reasons = {what: why for adapter in adapters.values() for what, why in adapter.losses.items()}
        counted = [
            {"agent": agent, "protocol": protocol, "what": what, "count": int(count), "why": reasons.get(what)}
            for (agent, protocol, what), count in sorted(losses.values.items(), key=lambda item: -item[1])
        ]
        return _json({"losses": counted})

    # --- runs --------------------------------------------------------------------------------------------------------

    async def _runs(self, who: Identity | None, request: HttpRequest) -> Reply:
        """A page of runs, newest first, and how many there are of the filter."""
        query = RunQuery(
            agent=request.query("agent"),
            protocol=request.query("protocol"),
            thread=request.query("thread"),
            principal=request.query("principal"),
            statuses=_statuses(request.query("status")),
            limit=_number(request, "limit", PAGE, 1, MOST),
            offset=_number(request, "offset", 0, 0, MOST_NUMBER),
            brief=True,
        )
        runs, count = await asyncio.gather(self._engine.runs.list(query), self._engine.runs.count(query))
        return _json({"runs": [_listed(run) for run in runs], "count": count})

    async def _run(self, who: Identity | None, request: HttpRequest) -> Reply:
        run = await self._engine.runs.get(request.path_params["run"])
        traces, known = self._config().telemetry.traces, _TRACE.match(run.request.traceparent or "")
        trace = traces.replace("{trace}", known[1]) if traces is not None and known is not None else None
        return _json({**self._whole(run), "recorded": await self._recordings.recorded(run.id), "trace": trace})

    def _whole(self, run: Run) -> JsonObject:
        return _whole(run, self._recorder.secrets.document(run.request.metadata))

    async def _answer(self, who: Identity | None, request: HttpRequest) -> Reply:
        body = await _body(request, OperatorAnswer)
        answer = Answer(outcome=body.outcome, value=body.value, by=who)
        return _json(self._whole(await self._engine.runs.answer(request.path_params["run"], answer, body.interrupt)))

    async def _cancel(self, who: Identity | None, request: HttpRequest) -> Reply:
        """Cancels a run. One that has ended stays as it is."""
        body = await _body(request, OperatorCancel)
        reason = body.reason or "cancelled by the operator"
        return _json(self._whole(await self._engine.runs.cancel(request.path_params["run"], reason=reason)))

    async def _events(self, who: Identity | None, request: HttpRequest) -> Reply | None:
        """The log above `after`: a page of it, or for who accepts `text/event-stream` all that comes until the run
        ends. `Last-Event-ID` counts as `after`.
        """
        run = request.path_params["run"]
        await self._engine.runs.get(run)
        if "text/event-stream" in (request.header("accept") or ""):
            await self._follow(run, _after(request), request)
            return None
        after = _number(request, "after", 0, 0, MOST_NUMBER)
        entries = await self._engine.store.events(run, after, max_bytes=EVENTS_BYTES)
        events = b",".join(b'{"number":%d,"event":%b}' % (entry.number, entry.data) for entry in entries)
        last_number = entries[-1].number if entries else after
        return Reply(200, b'{"events":[%b],"last":%d}' % (events, last_number), NO_STORE)

    async def _follow(self, run: str, after: int, request: HttpRequest) -> None:
        out = EventStream(request, NO_STORE[1:])
        await out.sent(b": following\n\n")
        with WhileConnected(request):
            async with self._engine.runs.watch(run, after) as watch:
                ended = False
                while not ended:
                    try:
                        ended = await watch.follow(lambda batch: out.write(_frames(batch)), KEEP_ALIVE)
                    except TimeoutError:
                        await out.sent(b": alive\n\n")
                last = msgspec.json.encode(_listed(watch.run))
                await out.end(b"event: run\ndata: %b\n\n" % last)

    # --- their wire --------------------------------------------------------------------------------------------------

    async def _recording(self, who: Identity | None, request: HttpRequest) -> Reply:
        """What is recorded now, until when, and how much is kept, in this process."""
        return self._kept(0)

    def _kept(self, unheard: int) -> Reply:
        recorder = self._recorder
        names = dict.fromkeys(entry.route.name for entry in self._engine.agents.entries if not entry.hidden)
        return _json(
            {
                "agents": {name: recorder.wanted(name, name) for name in names},
                "wishes": [
                    {"agent": agent, "record": wish.record, "until": wish.until}
                    for agent, wish in recorder.wishes.items()
                ],
                "runs": recorder.runs,
                "bytes": recorder.bytes,
                "unheard": unheard,
                "limits": LIMITS,
            }
        )

    async def _record(self, who: Identity | None, request: HttpRequest) -> Reply:
        """Has the wire of an agent's runs, or of all, recorded or not from now on, for some time, by every process."""
        body = await _body(request, OperatorRecording)
        if not 1 <= body.seconds <= MOST_SECONDS:
            raise Invalid(f"seconds: from 1 to {MOST_SECONDS}")
        if body.agent is not None and body.agent not in {entry.route.name for entry in self._engine.agents.entries}:
            raise NotFound(f"there is no agent {body.agent!r}")
        return self._kept(await self._recordings.turn(TurnRecording(body.agent, body.record, body.seconds)))

    async def _wire(self, who: Identity | None, request: HttpRequest) -> Reply | None:
        """What was recorded of a run above `after`: a page of it, or for who accepts `text/event-stream` all that comes
        until the run ends. `Last-Event-ID` counts as `after`.
        """
        run, after = request.path_params["run"], _after(request)
        await self._engine.runs.get(run)
        process = await self._recordings.where(run)
        try:
            page = await self._recordings.read(process, ReadRecording(run, after))
        except Undelivered as error:
            raise NotFound("what was recorded of this run, if it was, is gone with its process") from error
        if page is None:
            raise NotFound("the wire of this run is not recorded")
        if "text/event-stream" not in (request.header("accept") or ""):
            last = page.entries[-1][0] if page.entries else after
            entries = b",".join(bytes(data) for _, data in page.entries)
            return Reply(200, b'{"entries":[%b],"last":%d}' % (entries, last), NO_STORE)
        await self._listen(process, run, after, request)
        return None

    async def _listen(self, process: str, run: str, after: int, request: HttpRequest) -> None:
        out = EventStream(request, NO_STORE[1:])
        await out.sent(b": following\n\n")
        with WhileConnected(request):
            while True:
                try:
                    page = await self._recordings.read(process, ReadRecording(run, after, WAIT_SECONDS))
                except Unanswered:  # if it has died, the next try says so
                    await out.sent(b": alive\n\n")
                    continue
                except Undelivered:
                    break
                if page is None:
                    break
                if page.entries:
                    after = page.entries[-1][0]
                    await out.sent(b"".join(b"id: %d\ndata: %b\n\n" % entry for entry in page.entries))
                elif not page.over:
                    await out.sent(b": alive\n\n")
                if page.over:
                    break
            await out.end(b"event: over\ndata: {}\n\n")


def _after(request: HttpRequest) -> int:
    """The number after which a client goes on: `Last-Event-ID` of one that was interrupted, else `after`."""
    last = request.header("last-event-id")
    if last is not None and last.isascii() and last.isdigit() and len(last) < 20:
        return min(int(last), MOST_NUMBER)
    return _number(request, "after", 0, 0, MOST_NUMBER)


def _frames(batch: Batch) -> bytes:
    return b"".join(b"id: %d\ndata: %b\n\n" % (number, msgspec.json.encode(event)) for number, event in batch.events)


async def _body(request: HttpRequest, kind: type[T]) -> T:
    """The body, which has to say that it is JSON: no page of another site can send that unasked."""
    if (request.header("content-type") or "").partition(";")[0].strip().lower() != "application/json":
        raise Invalid("Content-Type: send application/json")
    try:
        return msgspec.json.decode(await request.body(MAX_BODY) or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise Invalid(f"body: {error}") from None


def _refusal(error: InterlinguaError) -> Reply:
    headers = [*refusals.headers(error), *NO_STORE]
    return Reply(refusals.status(error), msgspec.json.encode({"error": str(error)}), headers)


def _json(found: Any) -> Reply:
    return Reply(200, msgspec.json.encode(found), NO_STORE)


def _number(request: HttpRequest, name: str, default: int, least: int, most: int) -> int:
    text = request.query(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) >= least):
        raise Invalid(f"{name}: {text!r} is not a whole number from {least} up")
    return min(int(text), most)


def _statuses(text: str | None) -> tuple[RunStatus, ...]:
    """Statuses with commas between them."""
    try:
        return tuple(RunStatus(word) for word in text.split(",")) if text else ()
    except ValueError:
        raise Invalid(f"status: {text!r}: each is one of {', '.join(RunStatus)}") from None


def _listed(run: Run) -> JsonObject:
    asked = run.request
    return {
        "id": run.id,
        "agent": run.agent,
        "protocol": asked.protocol,
        "thread": run.thread,
        "principal": asked.principal,
        "status": run.status,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "stop_reason": run.stop_reason,
        "failure": run.failure,
        "losses": run.losses,
        "waits": len(run.interrupts),
    }


def _whole(run: Run, metadata: JsonObject) -> JsonObject:
    """A run with what it was asked and what it said, and the questions that wait. `metadata`: without secrets."""
    return {
        **_listed(run),
        "interrupts": run.interrupts,
        "cancel_reason": run.cancel_reason,
        "traceparent": run.request.traceparent,
        "metadata": metadata,
        "input": _shown(msgspec.Raw(msgspec.json.encode(run.request.input))),
        "output": _shown(run.output),
    }


def _shown(document: msgspec.Raw) -> JsonObject:
    """A document, or only its size where that is too large to look at."""
    size = len(memoryview(document))
    return {"bytes": size, "document": document} if size <= SHOWN_BYTES else {"bytes": size}


def _agent(entry: Entry, figures: Mapping[str, metrics.Metric]) -> JsonObject:
    name, agent = entry.route.name, entry.agent
    label = metrics.agent(name)
    seconds = figures[metrics.run_seconds.name]
    assert isinstance(seconds, metrics.Histogram)
    return {
        "name": name,
        "version": agent.version if agent is not None else None,
        "description": (agent.description if agent is not None else entry.route.description) or "",
        "protocol": entry.route.target.protocol,
        "target": entry.route.target.shown,
        "targets": _targets(entry),
        "labels": entry.route.labels,
        "match": entry.route.match.model_dump(mode="json", exclude_defaults=True),
        "governed": entry.route.manifest is not None,
        "ready": entry.ready,
        "reason": entry.reason,
        "capabilities": agent.capabilities if agent is not None else None,
        "converses": agent.converses if agent is not None else None,
        "input_schema": agent.input_schema if agent is not None else None,
        "text_input": agent.text_input if agent is not None else None,
        "active": int(figures[metrics.runs_active.name].total(label)),
        "started": int(figures[metrics.runs_started.name].total(label)),
        "ended": _ended(label, figures[metrics.runs_ended.name]),
        "seconds": {"p50": seconds.quantile(0.5, label), "p95": seconds.quantile(0.95, label)},
        "losses": int(figures[metrics.losses.name].total(label)),
    }


def _ended(label: str, ended: metrics.Metric) -> dict[str, int]:
    """How many runs of an agent ended, by status."""
    found: dict[str, int] = {}
    for (agent, _, status), count in ended.values.items():
        if agent == label:
            found[status] = found.get(status, 0) + int(count)
    return found


def _targets(entry: Entry) -> list[JsonObject]:
    """The targets of an agent of the route table, and which of them get runs."""
    group = entry.targets or (entry.host.targets if entry.host is not None else None)
    if group is None:
        return []
    return [
        {
            "protocol": member.options.protocol,
            "target": member.label,
            "weight": member.options.weight,
            "state": member.breaker.state.name.lower(),
            "wait": round(member.breaker.wait, 1),
            "reason": member.unlike or member.breaker.reason,
            "unlike": bool(member.unlike),
        }
        for member in group.members
    ]
