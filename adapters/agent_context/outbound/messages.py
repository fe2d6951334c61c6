"""A run of an agent of this protocol: `agent/message` or `agent/delegate`, and what belongs to it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw

from adapters.agent_context.codec import files, nlip
from adapters.agent_context.codec.content import output_of
from adapters.agent_context.codec.errors import note
from adapters.agent_context.codec.files import Uploads
from adapters.agent_context.outbound import answers, message_heads, request
from adapters.agent_context.outbound.link import AgentLine
from adapters.agent_context.outbound.sessions import UNWANTED
from adapters.agent_context.outbound.turn import AgentContextTurn, failed
from adapters.agent_context.outbound.update_events import GrowingText, SideEvents
from adapters.agent_context.wire.constants import (
    AGENT,
    DELEGATE,
    ERROR,
    MESSAGE,
    META,
    PROTOCOL,
    SELF,
    SENDER,
    UNAVAILABLE,
)
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentGone, Invalid
from gateway.core.memory import Recalled
from gateway.core.types import NULL, Artifact, Json, JsonObject
from gateway.mcp.wire import PROGRESS, PROGRESS_TOKEN
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)

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


class NativeRun:
    """See `turn.Way`. `target` is the agent's id there."""

    def __init__(self, turn: AgentContextTurn, target: str | None, how: How) -> None:
        self._turn = turn
        self._context = turn.context
        self._target = target
        self._how = how
        self._beside = SideEvents()
        self._text = GrowingText(OUTPUT)
        self._end: asyncio.Future[answers.SaidResponse | answers.SaidFailed] = (
            asyncio.get_running_loop().create_future()
        )
        self._line: AgentLine | None = None
        self._asking = TaskSet(lambda error: log.warning("a question of the agent's failed: %r", error))
        self._source = SELF

    def check(self) -> None:
        request.message(self._context, Recalled(input=self._context.run.request.input), self._target or "")

    async def go(self, line: AgentLine) -> e.Event:
        self._line = line
        context = self._context
        recalled = await context.recall(fresh=not context.upstream_thread)
        uploads, told = await self._uploads()
        method, params = self._first(line, recalled, uploads)
        if not line.knows_agents and params["source"] != SELF:
            params = {**params, "source": SELF, META: {**params[META], SENDER: params["source"]}}
        self._source = params["source"]
        if context.thread is not None:
            await context.set_thread({"sessionId": context.thread.id, **({"files": told} if told else {})})
        try:
            for _ in range(MOST_ROUNDS):
                said = await self._answered(line, method, params)
                if not isinstance(said, answers.SaidQuestion):
                    return await self._ended(said)
                content = await self._turn.asks.message(said.payload)
                method, params = MESSAGE, {**self._next(params), "content": content}
            raise AgentBroken(f"the agent asks on after {MOST_ROUNDS} answers")
        except AgentGone:
            await context.set_thread({})  # what it was told of the conversation has not arrived
            raise
        finally:
            self._asking.cancel()

    async def _uploads(self) -> tuple[Uploads, list[str]]:
        """The files of clients that the agent has not been sent yet, and the ids of all that it has been by now."""
        known = (self._context.upstream_thread or {}).get("files") or []
        new = [each for each in await self._context.uploads() if each.id not in known]
        return await request.uploads_of(self._context, new), [*known, *(each.id for each in new)]

    def _first(self, line: AgentLine, given: Recalled, uploads: Uploads) -> tuple[str, JsonObject]:
        delegates = self._how == "delegate"
        if self._how == "auto" and request.task_in(self._context) is not None:
            delegates = takes_tasks(line.capabilities)
        if delegates:
            return DELEGATE, request.delegation(self._context, given, self._target, uploads)
        return MESSAGE, request.message(self._context, given, self._target or "", uploads)

    @staticmethod
    def _next(params: JsonObject) -> JsonObject:
        return {key: value for key, value in params.items() if key not in ("task", "wait")}

    async def _answered(self, line: AgentLine, method: str, params: JsonObject) -> answers.Said:
        """The agent's last word: in its answer, or in a message after or even before it."""
        asking = asyncio.ensure_future(line.request(method, params))
        either: tuple[asyncio.Future[Any], ...] = (asking, self._end)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._end.done() and not asking.done():
                await asyncio.wait([asking], timeout=ANSWER_SECONDS)
        except asyncio.CancelledError:
            if asking.done() and not asking.cancelled() and asking.exception() is None:
                line.withdraw(UNWANTED)
            raise
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait([asking])
        if self._end.done():
            asking.cancelled() or asking.exception()  # it has said so already
            return self._end.result()
        said = answers.result_of(read(asking.result(), method))
        if isinstance(said, answers.SaidUpdate):
            self._turn.say(*self._updated(said.payload, {}))
        return await self._later(line) if isinstance(said, answers.SaidUpdate | answers.SaidAcknowledged) else said

    async def _later(self, line: AgentLine) -> answers.Said:
        """Wait for the response of an agent that has acknowledged the message; the run's timeout bounds it."""
        if not line.lasting:
            raise AgentBroken("the agent acknowledges the message, and has no connection to say more on")
        either: tuple[asyncio.Future[Any], ...] = (self._end, line.closed)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            line.withdraw(UNWANTED)
            raise
        if self._end.done():
            return self._end.result()
        why = line.closed.result()
        raise AgentGone(str(why), detail=why.detail)

    async def _ended(self, said: answers.Said) -> e.Event:
        if isinstance(said, answers.SaidFailed):
            return failed(said.error)
        payload = delta.sound(said.payload) if isinstance(said, answers.SaidResponse) else None
        if not payload or payload == {"messages": []}:  # all of it was told
            return e.RunFinished()
        if isinstance(payload, dict):
            self._turn.say(*self._beside.files(payload.get("artifacts")))
        same = self._context.run.request.protocol == PROTOCOL
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
        if method == MESSAGE and (text := message_heads.plain_update(params)) is not None:
            return self._text.add(text) if text else []
        try:
            said = jsonrpc.unpack(params) if params else {}
        except (ValueError, RecursionError):
            log.debug("%s that cannot be read", method)
            return []
        if not isinstance(said, dict):
            return []
        if method == MESSAGE:
            return self._heard(said, asks=True)
        if method == ERROR:
            self._over(answers.SaidFailed(answers.error_of(said.get("error"))))
            return []
        said.pop(PROGRESS_TOKEN, None)
        said = delta.sound(said)
        if method == PROGRESS and self._line is not None and self._line.gateway:
            return []
        if method == PROGRESS:
            return [e.Custom(name="progress", data={key: value for key, value in said.items() if key != META})]
        return [e.Custom(name=PROTOCOL, data={"notification": method, "params": said})]

    async def asked(self, method: str, params: Raw) -> Any:
        """See `Way`. Messages may come as requests: then they are answered, and a question with its answer."""
        if method not in (MESSAGE, ERROR):
            return await self._turn.asks.answer(method, params)
        said = read(params or Raw(b"{}"), method, broken=False)
        if method == ERROR:
            self._over(answers.SaidFailed(answers.error_of(said.get("error"))))
            return RECEIVED
        found = answers.message_of(said)
        if isinstance(found, answers.SaidQuestion) and not self._end.done():
            return {"content": await self._turn.asks.message(found.payload)}
        self._turn.say(*self._heard(said, asks=False))
        return RECEIVED

    def again(self) -> None:
        self._text.again()

    def _heard(self, params: JsonObject, *, asks: bool) -> list[e.Event]:
        said = answers.message_of(params)
        if isinstance(said, answers.SaidUpdate):
            return self._updated(said.payload, params)
        if isinstance(said, answers.SaidQuestion) and asks:
            self._ask(said.payload)
        elif isinstance(said, answers.SaidResponse | answers.SaidFailed):
            self._over(said)
        return []

    def _updated(self, payload: Json, params: JsonObject) -> list[e.Event]:
        text = delta.sound(answers.text_in(payload))
        events = self._text.add(text) if text else []
        found = params.get(META)
        beside = self._beside.read(found) if isinstance(found, dict) else []
        if beside:
            events += beside
        elif not answers.only_text(payload):
            events.append(e.Custom(name=PROTOCOL, data={"notification": MESSAGE, "params": delta.sound(params)}))
        return events

    def _over(self, said: answers.SaidResponse | answers.SaidFailed) -> None:
        """The first word that ends it holds."""
        if self._end.done():
            self._context.lost("late_message")
        else:
            self._end.set_result(said)

    def _ask(self, payload: Json) -> None:
        """A question that came as a notification; one too many is refused."""
        if len(self._asking) < MOST_ASKED:
            self._asking.start(self._answer(payload))
        elif self._line is not None:
            error = RpcError(UNAVAILABLE, "too many questions at once")
            self._line.tell(ERROR, note(error, self._line.correlation, SELF))

    async def _answer(self, payload: Json) -> None:
        """A question that came as a notification is answered by one."""
        assert self._line is not None
        content = await self._turn.asks.message(payload)
        meta = {"correlationId": self._line.correlation}
        target = {} if self._target is None else {"target": self._target}
        self._line.tell(MESSAGE, {"source": self._source, **target, "content": content, META: meta})


def takes_tasks(capabilities: JsonObject) -> bool:
    """Whether the other end has declared that it takes `agent/delegate`."""
    agent = capabilities.get(AGENT)
    return isinstance(agent, dict) and any(agent.get(key) not in (None, False) for key in ("delegate", "coordination"))


def read(raw: Raw, method: str, *, broken: bool = True) -> JsonObject:
    """Decode an object. Raises AgentBroken for a malformed answer, RpcError for a malformed request."""
    try:
        return jsonrpc.unpack(raw, dict[str, Any])
    except (ValueError, RecursionError) as error:
        if broken:
            raise AgentBroken(f"the answer to {method} is no object", detail=str(error)) from error
        raise RpcError(jsonrpc.INVALID_PARAMS, f"the params of {method} are no object") from error
