"""A run of an agent of this protocol: the request for it (`agent/message` or `agent/delegate`), what the agent asks
meanwhile, and its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw

from adapters.agent_context import wire
from adapters.agent_context.codec import files, nlip
from adapters.agent_context.codec.content import output_of, request_of
from adapters.agent_context.codec.errors import note
from adapters.agent_context.codec.files import Uploads
from adapters.agent_context.outbound import answers
from adapters.agent_context.outbound.answers import GrowingText, SideEvents
from adapters.agent_context.outbound.links import AgentLine, with_meta
from gateway.contract import RunContext
from gateway.core import delta, projection
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentGone, Invalid
from gateway.core.memory import Recalled
from gateway.core.types import NULL, Answer, Artifact, Interrupt, Json, JsonObject, Outcome
from gateway.mcp import wire as mcp
from gateway.mcp.client import called_run
from gateway.mcp.wire import META
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)


# --- the request for a run --------------------------------------------------------------------------------------------


OF_THE_CALL: Final = frozenset(
    {"source", "target", "content", "task", "wait", META, "inputResponses", "requestState", "name", "arguments"}
)
"""Members of `params` that the gateway says itself, or that are its client's own business."""
TASK: Final = "task"
"""Attribute of a run: the whole task that it is an attempt at."""


INLINE_BYTES: Final = 16_000_000
"""Bytes of files that are sent with one message; files beyond it are sent as links."""


async def uploads_of(context: RunContext, given: Sequence[Artifact]) -> Uploads:
    left = INLINE_BYTES
    inline: list[str] = []
    for file in given:
        left -= file.size
        if left >= 0 or not file.url.startswith("http"):
            inline.append(file.id)
    contents = await context.contents(inline) if inline else {}
    return [(file, contents.get(file.id)) for file in given]


def correlation(context: RunContext) -> str:
    """The correlation id of a run's messages: its client's own where there is one."""
    said = context.run.request.attributes.get(wire.CORRELATION)
    if not isinstance(said, str):
        sent = _sent(context).get(META)
        said = sent.get(wire.CORRELATION) if isinstance(sent, dict) else None
    return said if isinstance(said, str) and said else context.run.id


def task_in(context: RunContext) -> JsonObject | None:
    """The task that a run is an attempt at; None if it is not one."""
    found = _marks(context).get(TASK)
    return found if isinstance(found, dict) else None


def message(context: RunContext, given: Recalled, target: str, uploads: Uploads) -> JsonObject:
    content = _sent(context).get("content")
    content = {key: value for key, value in content.items() if key != "payload"} if isinstance(content, dict) else {}
    content = {**content, "type": wire.REQUEST, "payload": request_of(context.agent, context.run, given, uploads)}
    return {**_envelope(context, target), "content": content}


def delegation(context: RunContext, given: Recalled, target: str | None, uploads: Uploads) -> JsonObject:
    """The params of an `agent/delegate`: of the task that the run is an attempt at, or of one made of it."""
    payload = request_of(context.agent, context.run, given, uploads)
    known = task_in(context) or {}
    requirements = payload.get("requirements") if isinstance(payload, dict) else None
    task: JsonObject = {
        "id": context.run.id,
        "type": "message",
        **({"requirements": requirements} if isinstance(requirements, dict) else {}),
        **known,
        "payload": payload if given.before or uploads else known.get("payload", payload),
        "status": "pending",
    }
    return {**_envelope(context, target), "task": task}


def meta(context: RunContext) -> JsonObject:
    """`_meta` of a request for a run: its client's, less what belongs to the client's own request."""
    sent = _sent(context).get(META)
    found = sent if isinstance(sent, dict) else context.run.request.metadata
    found = {key: value for key, value in found.items() if key != wire.CORRELATION and mcp.passed_on(key, value)}
    if context.traceparent is not None:
        found["traceparent"] = context.traceparent
    hops = _marks(context).get("hops")
    if isinstance(hops, int) and hops > 0:
        found[wire.HOPS] = hops
    return found


def _sent(context: RunContext) -> JsonObject:
    """What a client of this protocol sent; {} of any other."""
    request = context.run.request
    return request.creation if request.protocol == wire.PROTOCOL else {}


def _marks(context: RunContext) -> JsonObject:
    request = context.run.request
    return request.attributes if request.protocol == wire.PROTOCOL else {}


def _envelope(context: RunContext, target: str | None) -> JsonObject:
    said = _sent(context)
    source = _marks(context).get("source", said.get("source"))
    envelope: JsonObject = {key: value for key, value in said.items() if key not in OF_THE_CALL}
    envelope["source"] = source if isinstance(source, str) and source else wire.SELF
    envelope[META] = meta(context)
    return envelope if target is None else {**envelope, "target": target}


# --- what an agent asks while it runs --------------------------------------------------------------------------------


INPUT: Final = "input"
"""Kind of an interrupt that the agent did not name."""


async def replied(run: called_run.CalledRun, payload: Json) -> JsonObject:
    """The content that answers a message of type request: its question is put to the run's client."""
    interrupt = question(payload, run.numbered("question"))
    return answered(interrupt, await run.ask(interrupt))


def question(payload: Json, id: str) -> Interrupt:
    """The question of a message of type request.

    Its payload may say of which kind it is (`kind`), what the answer looks like (`answerSchema`) and what exactly is
    asked (`question`), as another gateway's does; else any text answers it.
    """
    payload = delta.sound(payload)
    said: JsonObject = payload if isinstance(payload, dict) else {}
    kind, schema = said.get("kind"), said.get("answerSchema")
    asked = payload
    if isinstance(schema, dict) and said.keys() <= {"messages", "kind", "answerSchema", "question"}:
        asked = said.get("question")
    return Interrupt(
        id=id,
        kind=kind if isinstance(kind, str) and kind else INPUT,
        payload=asked,
        message=answers.told_in(payload)[0],
        answer_schema=schema if isinstance(schema, dict) else projection.MESSAGE_SCHEMA,
    )


def answered(interrupt: Interrupt, answer: Answer) -> JsonObject:
    """The content that answers it: the value under `answer`, its text as a message; or the outcome."""
    if answer.outcome is not Outcome.ANSWERED:
        return {"type": wire.RESPONSE, "payload": {"outcome": answer.outcome.value}}
    payload: JsonObject = {"answer": answer.value}
    text = projection.text_of(answer.value, projection.text_pointer(interrupt.answer_schema))
    if text is not None:
        payload = {"messages": [{"text": text}], **payload}
    return {"type": wire.RESPONSE, "payload": payload}


# --- the run itself ---------------------------------------------------------------------------------------------------


OUTPUT: Final = "output"
"""The part that has the text."""
RECEIVED: Final[JsonObject] = {"status": "received"}
"""Answer to a message that the agent sent as a request and that asks nothing."""
ANSWER_SECONDS: Final = 2.0
"""How long the answer to a message may still take once its response has come in a message of its own."""
MOST_ASKED: Final = 100
"""Questions of an agent that may be open at once, of those that came as notifications."""
MOST_ROUNDS: Final = 100
"""Questions that an agent may answer a message with, one after the other."""

How = Literal["auto", "message", "delegate", "tool"]
Say = Callable[..., None]
"""`CalledRun.say`: logs events."""


class NativeRun:
    """One run over a line, made for it. `target` is the agent's id there."""

    def __init__(self, run: called_run.CalledRun, line: AgentLine, *, target: str | None, how: How) -> None:
        self._run = run
        self._context = run.context
        self.line = line
        self._target = target
        self._how = how
        self._beside = SideEvents()
        self._text = GrowingText(OUTPUT)
        self._end: asyncio.Future[answers.AgentWord] = asyncio.get_running_loop().create_future()
        self._asking = TaskSet(lambda error: log.warning("a question of the agent's failed: %r", error))

    async def go(self) -> e.Event:
        """To its end: the last event. Raises RpcError with the agent's own error, and errors of the tree."""
        context = self._context
        recalled = await context.recall(fresh=not context.upstream_thread)
        sent = (context.upstream_thread or {}).get("files") or []
        new = [each for each in await context.uploads() if each.id not in sent]
        method, params = self._first(recalled, await uploads_of(context, new))
        if not self.line.knows_agents and params["source"] != wire.SELF:
            params = {**with_meta(params, {wire.SENDER: params["source"]}), "source": wire.SELF}
        if context.thread is not None:
            sent = [*sent, *(each.id for each in new)]
            await context.set_thread({"sessionId": context.thread.id, **({"files": sent} if sent else {})})
        try:
            for _ in range(MOST_ROUNDS):
                said = await self._answered(method, params)
                if said.kind != wire.REQUEST:
                    return await self._ended(said)
                content = await replied(self._run, said.payload)
                rest = {key: value for key, value in params.items() if key not in ("task", "wait")}
                method, params = wire.MESSAGE, {**rest, "content": content}
            raise AgentBroken(f"the agent asks on after {MOST_ROUNDS} answers")
        except AgentGone:
            await context.set_thread({})  # what it was told of the conversation has not arrived
            raise
        finally:
            self._asking.cancel()

    def _first(self, given: Recalled, uploads: Uploads) -> tuple[str, JsonObject]:
        delegates = self._how == "delegate"
        if self._how == "auto" and task_in(self._context) is not None:
            declared = self.line.capabilities
            delegates = any(mcp.declares(declared, wire.AGENT, key) for key in ("delegate", "coordination"))
        if delegates:
            return wire.DELEGATE, delegation(self._context, given, self._target, uploads)
        return wire.MESSAGE, message(self._context, given, self._target or "", uploads)

    async def _answered(self, method: str, params: JsonObject) -> answers.AgentWord:
        """The agent's last word: in its answer, or in a message after or even before it. Where it has acknowledged the
        message, the run's timeout bounds the wait.
        """
        asking = asyncio.ensure_future(self.line.request(method, params))
        either: tuple[asyncio.Future[Any], ...] = (asking, self._end)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._end.done() and not asking.done():
                await asyncio.wait([asking], timeout=ANSWER_SECONDS)
            if not self._end.done():
                said = answers.result_of(read(asking.result(), method))
                if said.kind == wire.UPDATE:
                    self._run.say(*self._updated(said.payload, {}))
                elif said.kind != answers.ACKNOWLEDGED:
                    return said
                if not self.line.lasting:
                    raise AgentBroken("the agent acknowledges the message, and has no connection to say more on")
                either = (self._end, self.line.closed)
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not self._end.done():
                    raise AgentGone.of(self.line.closed.result())
            return self._end.result()
        except asyncio.CancelledError:
            if asking.done() and not asking.cancelled() and asking.exception() is None:
                self.line.withdraw()
            raise
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait([asking])
            asking.cancelled() or asking.exception()  # where the agent has had its last word, that counts

    async def _ended(self, said: answers.AgentWord) -> e.Event:
        if said.error is not None:
            return answers.failed(said.error)
        payload = delta.sound(said.payload)
        if not payload or payload == {"messages": []}:  # all of it was told
            return e.RunFinished()
        if isinstance(payload, dict):
            self._run.say(*self._beside.files(payload.get("artifacts")))
        same = self._context.run.request.protocol == wire.PROTOCOL
        # a client of this protocol gets the payload with its files
        payload, made = (payload, []) if same else await self._without_files(payload)
        document = output_of(self._context.agent, payload)
        if made and self._context.agent.output_assumed and isinstance(document, dict):
            document = {**document, "artifacts": [{"name": file.name, "url": file.url} for file in made]}
        output = msgspec.json.encode(document)
        origin = {"payload": payload} if same else None
        return e.RunFinished(output=Raw(output) if output != b"null" else NULL, origin=origin)

    async def _without_files(self, payload: Json) -> tuple[Json, list[Artifact]]:
        """The payload of an answer without its files, which are the run's from now on. Raises AgentBroken for a file
        whose base64 is none.
        """
        schema = {} if self._context.agent.output_assumed else self._context.agent.output_schema
        try:
            rest, found = files.taken(nlip.plain(payload), schema.get("properties", ()))
        except Invalid as error:
            raise AgentBroken(f"the agent answers with a file that cannot be read: {error}") from error
        add = self._context.add_artifact
        added = [await add(each.name, each.content, media_type=each.media_type) for each in found]
        return (rest, added) if added else (payload, [])

    # --- what comes meanwhile ---------------------------------------------------------------------------------------

    def told(self, method: str, params: Raw) -> list[e.Event]:
        if self._end.done():
            self._context.lost("late_message")
            return []
        if method == wire.MESSAGE and (text := answers.plain_update(params)) is not None:
            return self._text.add(text) if text else []
        try:
            said = read(params or Raw(b"{}"), method, broken=False)
        except RpcError:
            return []
        if method == wire.MESSAGE:
            return self._heard(said, asks=True)
        if method == wire.ERROR:
            self._over(answers.broken(answers.error_of(said.get("error"))))
            return []
        return [] if method == mcp.PROGRESS and self.line.gateway else news(method, said)

    async def asked(self, method: str, params: Raw) -> Any:
        """The result of a message or error that comes as a request; of a question it is the answer. Raises RpcError."""
        said = read(params or Raw(b"{}"), method, broken=False)
        if method == wire.ERROR:
            self._over(answers.broken(answers.error_of(said.get("error"))))
            return RECEIVED
        found = answers.message_of(said)
        if found.kind == wire.REQUEST and not self._end.done():
            return {"content": await replied(self._run, found.payload)}
        self._run.say(*self._heard(said, asks=False))
        return RECEIVED

    def fail(self, error: AgentBroken) -> None:
        """It ends with the error, unless it has ended."""
        if not self._end.done():
            self._end.set_exception(error)
            self._end.exception()  # a run that is cancelled does not ask for it

    def again(self) -> None:
        self._text.again()
        self._beside.again()

    def _heard(self, params: JsonObject, *, asks: bool) -> list[e.Event]:
        said = answers.message_of(params)
        if said.kind == wire.UPDATE:
            return self._updated(said.payload, params)
        if said.kind == wire.REQUEST and asks:
            self._ask(said.payload)
        elif said.kind in (wire.RESPONSE, answers.BROKEN):
            self._over(said)
        return []

    def _updated(self, payload: Json, params: JsonObject) -> list[e.Event]:
        said, only_text = answers.told_in(payload)
        text = delta.sound(said)
        events = self._text.add(text) if text else []
        found = params.get(META)
        beside = self._beside.read(found) if isinstance(found, dict) else []
        if beside:
            events += beside
        elif not only_text:
            events += news(wire.MESSAGE, params)
        return events

    def _over(self, said: answers.AgentWord) -> None:
        if self._end.done():
            self._context.lost("late_message")
        else:
            self._end.set_result(said)

    def _ask(self, payload: Json) -> None:
        """A question that came as a notification; one too many is refused."""
        if len(self._asking) < MOST_ASKED:
            self._asking.start(self._answer(payload))
        else:
            error = RpcError(wire.UNAVAILABLE, "too many questions at once")
            self.line.tell(wire.ERROR, note(error, self.line.correlation, wire.SELF))

    async def _answer(self, payload: Json) -> None:
        content = await replied(self._run, payload)
        meta = {wire.CORRELATION: self.line.correlation}
        target = {} if self._target is None else {"target": self._target}
        self.line.tell(wire.MESSAGE, {"source": self.line.source, **target, "content": content, META: meta})


def news(method: str, params: JsonObject) -> list[e.Event]:
    """The events of a notification that only clients of the same protocol know; progress is everybody's."""
    said = delta.sound({key: value for key, value in params.items() if key != mcp.PROGRESS_TOKEN})
    if method == mcp.PROGRESS:
        return [e.Custom(name="progress", data={key: value for key, value in said.items() if key != META})]
    return [e.Custom(name=wire.PROTOCOL, data={"notification": method, "params": said})]


def read(raw: Raw, method: str, *, broken: bool = True) -> JsonObject:
    """Decode an object. Raises AgentBroken for a malformed answer, RpcError for a malformed request."""
    try:
        return jsonrpc.unpack(raw, dict[str, Any])
    except (ValueError, RecursionError) as error:
        if broken:
            raise AgentBroken(f"the answer to {method} is no object", detail=str(error)) from error
        raise RpcError(jsonrpc.INVALID_PARAMS, f"the params of {method} are no object") from error
