"""Calls Agent Connect agents: sends a run once, by the first way that the server offers (by stream, in the background
or blocking, on a thread or not).

follow.py  sees it to its end: streams, questions, cancels
poll.py    asks the agent what became of it: blocking waits, or its record
locate.py  which agent it is, and what it says of itself
client.py  HTTP, and what refusals mean
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence

from adapters.agent_connect import decode
from adapters.agent_connect.decode import Verdict
from adapters.agent_connect.options import AgentConnectTarget
from adapters.agent_connect.outbound.client import AgentConnectClient, NotOffered, RemoteRun, encode, explanation
from adapters.agent_connect.outbound.follow import Follower, stop
from adapters.agent_connect.outbound.locate import Locator
from adapters.agent_connect.outbound.threads import RemoteThreads
from adapters.agent_connect.wire import PROTOCOL
from gateway.contract import RunContext
from gateway.core.errors import (
    AgentBroken,
    AgentError,
    AgentFailed,
    AgentGone,
    Conflict,
    Invalid,
    NotFound,
    Unsupported,
)
from gateway.core.types import Agent, ChatMessage, Checkpoint, Json, JsonObject, RunRequest
from gateway.transport.http import HttpResponse, segment

STREAM, BACKGROUND, WAIT = "stream", "background", "wait"
NAMING = (0.25, 1.0, 4.0)
"""Seconds after which the name of a run that was started by a blocking request is looked for."""
_SUFFIX = {STREAM: "/stream", BACKGROUND: "", WAIT: "/wait"}
_WAYS = {
    (True, False): (STREAM, BACKGROUND),
    (False, False): (BACKGROUND,),
    (True, True): (STREAM, BACKGROUND, WAIT),
    (False, True): (BACKGROUND, WAIT),
}
"""Ways to try, in order, by whether the agent streams and whether the run is on a thread: servers in use fail to stream
runs on threads and to run them in the background, but can block.
"""


class ServerQuirks:
    """Behaviour of a server that its descriptor does not tell; kept until the agent is described again."""

    def __init__(self) -> None:
        self.refused: set[tuple[str, bool]] = set()
        """(way, on a thread) that it does not offer."""
        self.stream_mode = True
        """It takes `stream_mode`."""
        self.trusted = False
        """It has started a run on a thread without making the client wait: a 500 from it means the run, not the way."""

    def started(self, refused: Iterable[str], threaded: bool, way: str | None = None) -> None:
        """A run was started, after these ways were refused; `way` is the one that the server says it was."""
        self.refused |= {(one, threaded) for one in refused}
        self.trusted |= threaded and way is not None and way != WAIT

    def refuses_modes(self) -> None:
        """It does not take `stream_mode`."""
        self.stream_mode = False

    def forget(self) -> None:
        """Believe the descriptor again."""
        self.refused.clear()
        self.stream_mode = True
        self.trusted = False


class RunSender:
    """Starts one run. Used once."""

    _fresh = True
    """The agent's thread is new, or there is none: it knows nothing of ours."""
    _knows = False
    """It was given the state of ours."""
    _relocated = False
    _renewed: str | None = None
    _before: frozenset[str] | None = None
    """Runs of the thread that are older than this one; None if that is not known."""

    def __init__(
        self,
        context: RunContext,
        client: AgentConnectClient,
        locator: Locator,
        quirks: ServerQuirks,
        follower: Follower,
    ) -> None:
        self._context = context
        self._trace = context.traceparent
        self._client = client
        self._locator = locator
        self._can = follower.can
        self._quirks = quirks
        self._follower = follower

    async def start(self) -> Verdict | None:
        """Send the run. Its verdict, if the agent's answer had one; None while it works.

        Raises Unsupported where the server has no way for a run on a thread, Conflict where another run is in the way,
        AgentError for other refusals.
        """
        thread = await self._thread() if self._context.thread is not None else None
        threaded = thread is not None
        if thread is not None and self._before is None and not self._quirks.trusted:
            with contextlib.suppress(AgentError):  # sending the run tells what is wrong
                self._before = await self._listed(thread)
        ways: Sequence[str] = _WAYS[self._follower.streams, threaded]
        if refused := self._quirks.refused:
            ways = [way for way in ways if (way, threaded) not in refused] or ways[-1:]
        tried: list[str] = []
        while True:
            way = ways[len(tried)]
            modes = self._modes() if way == STREAM else None
            try:
                verdict = await self._send(way, self._renewed or thread, modes)
            except NotOffered as refusal:
                if await self._otherwise(modes, refusal.reply.status, thread):
                    continue
                if refusal.reply.status == 409:
                    raise Conflict(f"the agent is busy: {refusal.complaint()}") from None
                if not _leaves_others(refusal.reply, threaded and not self._quirks.trusted):
                    raise refusal.complaint() from None
                if refusal.reply.status == 500 and thread is not None and await self._find(self._renewed or thread):
                    self._quirks.started(tried, threaded)
                    return None  # the server failed to say so, but the run is there: it is not sent twice
                tried.append(way)
                if len(tried) < len(ways):
                    continue
                complaint = refusal.complaint()
                if threaded and refusal.reply.status != 500:
                    text = f"the agent cannot run on a thread: {complaint}"
                    raise Unsupported(text, detail=complaint.detail) from None
                raise complaint from None
            if tried or threaded:
                self._quirks.started(tried, threaded, way)
            return verdict

    async def _otherwise(self, modes: list[str] | None, status: int, thread: str | None) -> bool:
        """Whether to try the same way again after a refusal: without the `stream_mode` that was sent, or where the
        agent, or the thread, has been found anew.
        """
        if status == 422 and modes:
            self._quirks.refuses_modes()
            return True
        return status == 404 and not self._relocated and await self._relocate(thread)

    async def _send(self, way: str, thread: str | None, modes: list[str] | None) -> Verdict | None:
        base = "/runs" if thread is None else f"/threads/{segment(thread)}/runs"
        path = base + _SUFFIX[way]
        body = encode(
            _run_create(
                self._context.run.request,
                self._locator.known or await self._agent_id(),
                (await self._context.recall(fresh=self._fresh, knows=self._knows)).input,
                threaded=thread is not None,
                stream_mode=modes,
            )
        )
        if way == STREAM:
            try:
                verdict = await self._follower.stream("POST", path, body, thread=thread)
            except AgentGone:
                if self._follower.remote is None:
                    raise
                return None  # it broke in the middle: the run itself is still there
            return verdict if verdict is not None else await self._follower.confirmed()
        if way == WAIT:
            assert thread is not None
            return await self._blocking(path, body, thread)
        reply = await self._client.send("POST", path, body, trace=self._trace)
        if not 200 <= reply.status < 300:
            raise NotOffered(reply, f"POST {path}")
        record = decode.run_record(reply.body, f"POST {path}")
        await self._follower.name(RemoteRun(record.run_id, thread, record.thread_id))
        return None

    async def _blocking(self, path: str, body: bytes, thread: str) -> Verdict | None:
        """Start the run and hold the line until it stops. Its name is looked up meanwhile, for cancels and restarts."""
        follower, where = self._follower, f"POST {path}"
        naming = asyncio.create_task(self._look_for(thread))
        try:
            reply = await self._client.patient("POST", path, body, timeout=None, trace=self._trace)
        except AgentGone:
            if follower.remote is None:
                raise
            return None  # the line broke: the run itself is still there
        finally:
            naming.cancel()
            await asyncio.gather(naming, return_exceptions=True)
        assert reply is not None  # it has no time limit
        if not 200 <= reply.status < 300:
            raise NotOffered(reply, where)
        run, verdict = decode.waited(reply.body, where)
        if run is not None:
            await follower.name(RemoteRun(run.run_id, thread, run.thread_id))
        elif follower.remote is None and (verdict is None or isinstance(verdict, decode.RunQuestion)):
            raise AgentBroken(f"{where} answered without a run")
        return verdict

    async def _look_for(self, thread: str) -> None:
        """Name the run that was just started, as soon as the agent lists it."""
        for pause in NAMING:
            await asyncio.sleep(pause)
            if await self._find(thread) is not False:
                return

    async def _find(self, thread: str) -> bool | None:
        """Name the run that this request has made, whatever state it is in: the only one of the thread that was not
        there before. False if there is none, None if the agent does not tell.
        """
        listed = await self._listed(thread)
        if listed is None or self._before is None:
            return None
        made = listed - self._before
        if len(made) != 1:
            return False
        (run_id,) = made
        await self._follower.name(RemoteRun(run_id, thread, thread))
        return True

    async def _listed(self, thread: str) -> frozenset[str] | None:
        """The ids of a thread's runs. None if the agent does not list them."""
        path = f"/threads/{segment(thread)}/runs"
        reply = await self._client.send("GET", path, trace=self._trace)
        if reply.status != 200:
            return None
        return frozenset(record.run_id for record in decode.run_records(reply.body, f"GET {path}"))

    def _modes(self) -> list[str] | None:
        """`stream_mode`, only where it says more than its absence: servers in use refuse it in any form."""
        if not self._quirks.stream_mode or not self._can.custom_streaming:
            return None
        return ["values", "custom"] if self._can.streaming else ["custom"]

    # --- what may be missing -----------------------------------------------------------------------------------

    async def _agent_id(self, *, again: bool = False) -> str:
        try:
            return await self._locator.id(again=again)
        except NotFound as error:
            raise AgentGone.of(error) from error

    async def _thread(self) -> str | None:
        """The agent's own thread for a run on one; made with the first run. None for an agent without threads."""
        if not self._can.threads:
            return None
        known = (self._context.upstream_thread or {}).get("thread_id")
        self._fresh = not isinstance(known, str)
        thread_id = known if isinstance(known, str) else await self._new_thread()
        if (state := await self._context.thread_state()) is not None:
            self._knows = await self._carry(thread_id, state)
        return thread_id

    async def _carry(self, thread_id: str, state: Checkpoint) -> bool:
        """Give the agent's thread the state of ours. Whether it has it."""
        if isinstance(state.values, dict):  # the specification has no other
            with contextlib.suppress(AgentError, Invalid, Unsupported):  # the run tells whether the thread is there
                await RemoteThreads(self._client, self._trace).update(
                    thread_id, None, state.values, state.messages or None
                )
                return True
        self._context.lost("thread_state")
        return False

    async def _new_thread(self) -> str:
        thread = self._context.thread
        self._before = frozenset()
        threads = RemoteThreads(self._client, self._trace)
        return await threads.create(thread.metadata if thread is not None else {})

    async def _relocate(self, thread: str | None) -> bool:
        """Something that we name is not there: look for both anew, once. False if neither has changed."""
        self._relocated = True
        before = await self._agent_id()
        if await self._agent_id(again=True) != before:
            return True
        if thread is None:
            return False
        reply = await self._client.send("GET", f"/threads/{segment(thread)}", trace=self._trace)
        if reply.status != 404:
            return False
        self._context.lost("thread_recreated")
        self._renewed = await self._new_thread()
        self._fresh, self._knows = True, False
        return True


def _leaves_others(reply: HttpResponse, threaded: bool) -> bool:
    """True if the refusal means the way, not the run. Servers say 500 for what they have not implemented."""
    if reply.status == 500:
        return threaded or "not implemented" in explanation(reply).lower()
    return reply.status in (404, 405, 501)


_OURS = {
    "agent_id",
    "input",
    "metadata",
    "config",
    "webhook",
    "stream_mode",
    "on_disconnect",
    "on_completion",
    "multitask_strategy",
    "after_seconds",
    "if_not_exists",
}
"""The members of `RunCreate...` (openapi 0.2.3) that the gateway sets."""


def _run_create(
    request: RunRequest, agent_id: str, given: Json, *, threaded: bool, stream_mode: list[str] | None
) -> JsonObject:
    """The body; `given` is the input. What only the gateway may decide is decided here, whoever the client is:

    - `on_disconnect: continue`: the run must outlive this gateway;
    - `on_completion: keep`: its result is fetched after its end, perhaps by the next gateway;
    - no `webhook`, no `after_seconds`: the gateway calls back and starts late itself.

    A client of the same protocol gets everything else that it said through: `config.tags`, `recursion_limit`,
    `stream_subgraphs`, unknown fields.
    """
    creation = request.creation if request.protocol == PROTOCOL else {}
    body: JsonObject = {}
    if not creation.keys() <= _OURS:
        body.update((name, value) for name, value in creation.items() if name not in _OURS)
    body["agent_id"] = agent_id
    body["input"] = given
    if request.metadata:
        body["metadata"] = request.metadata
    config = creation.get("config")
    config = {**config} if isinstance(config, dict) else {}
    if request.config:
        config["configurable"] = request.config
    if config:
        body["config"] = config
    if stream_mode:
        body["stream_mode"] = stream_mode
    body["on_disconnect"] = "continue"
    if threaded:
        body["multitask_strategy"] = request.if_busy.value
    else:
        body["on_completion"] = "keep"
        body.pop("stream_subgraphs", None)
    return body


class AgentConnectOutbound:
    """See `gateway.contract.Outbound`. One per route; opens no connection before the first call."""

    def __init__(self, target: AgentConnectTarget) -> None:
        self._target = target
        self._client = AgentConnectClient(target)
        self._locator = Locator(target, self._client)
        self._quirks = ServerQuirks()
        self._threads = RemoteThreads(self._client)
        self._runs: dict[str, Follower] = {}

    async def describe(self) -> Agent:
        """The agent as its descriptor says, the descriptor itself in `extra["agent_connect"]`."""
        self._quirks.forget()
        return await self._locator.describe()

    async def run(self, context: RunContext) -> None:
        """Send the run, see it to its end."""
        follower = self._follower(context)
        try:
            verdict = await RunSender(context, self._client, self._locator, self._quirks, follower).start()
            if verdict is None and follower.remote is None:
                raise AgentGone("the agent went away before it named the run")
            await follower.conclude(verdict)
        finally:
            self._runs.pop(context.run.id, None)
            follower.close()

    async def attach(self, context: RunContext) -> None:
        """Find the run again and see it to its end."""
        remote = RemoteRun.of(context.run.upstream or {})
        if remote is None:
            raise AgentFailed("nothing is known of where the run is at the agent")
        follower = self._follower(context, resumed=True)
        try:
            await follower.name(remote)
            await follower.conclude(await follower.again())
        finally:
            self._runs.pop(context.run.id, None)
            follower.close()

    def _follower(self, context: RunContext, *, resumed: bool = False) -> Follower:
        can = (self._locator.agent or context.agent).capabilities
        follower = self._runs[context.run.id] = Follower(context, self._client, self._target, can, resumed=resumed)
        return follower

    async def cancel(self, context: RunContext) -> None:
        """`POST .../cancel`; a server that cannot is the loss `cancel_unsupported`."""
        follower = self._runs.get(context.run.id)
        if follower is not None:
            return await follower.cancel()
        remote = RemoteRun.of(context.run.upstream or {})
        if remote is not None:  # `run` has been given up already: the time was over
            await stop(context, self._client, remote)

    async def read_thread(self, upstream: JsonObject) -> Checkpoint:
        """See `gateway.contract.Stateful`: `GET /threads/{id}`."""
        return await self._threads.read(_named(upstream))

    async def read_history(self, upstream: JsonObject, *, limit: int, before: str | None) -> Sequence[Checkpoint]:
        """See `Stateful`: `GET /threads/{id}/history`."""
        return await self._threads.history(_named(upstream), limit, before)

    async def copy_thread(self, upstream: JsonObject) -> JsonObject:
        """See `Stateful`: `POST /threads/{id}/copy`."""
        return {"thread_id": await self._threads.copy(_named(upstream))}

    async def update_thread(
        self, upstream: JsonObject, *, base: str | None, values: Json, messages: Sequence[ChatMessage] | None
    ) -> None:
        """See `Stateful`: `PATCH /threads/{id}`."""
        await self._threads.update(_named(upstream), base, values, messages)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()


def _named(upstream: JsonObject) -> str:
    """The thread at the agent. Raises AgentGone where none is recorded."""
    known = upstream.get("thread_id")
    if not isinstance(known, str):
        raise AgentGone("nothing is known of where the thread is at the agent")
    return known
