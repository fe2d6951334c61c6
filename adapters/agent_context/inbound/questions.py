"""A run's questions, put to a client that is an agent by `agent/message`, type request. Others are asked as MCP asks.

The answer is a response whose payload has the answer under `answer`, or is it; `outcome` (declined, cancelled) refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Raw

from adapters.agent_context.codec import nlip
from adapters.agent_context.codec.content import PAYLOAD, spoken
from adapters.agent_context.wire import ACKNOWLEDGEMENTS, CORRELATION, MESSAGE, REQUEST, RESPONSE
from adapters.agent_context.wire.messages import read
from gateway.contract import reading
from gateway.core import delta
from gateway.core.errors import AgentGone, Invalid
from gateway.core.types import Answer, Interrupt, Json, JsonObject, Outcome
from gateway.mcp import versions
from gateway.mcp.runs import ELICITATION, keys, questions
from gateway.mcp.server.contract import McpCall, McpSession
from gateway.mcp.wire import META
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

ANSWER: Final = "answer"
OUTCOME: Final = "outcome"


class AgentAsker:
    """See `gateway.mcp.runs.Asker`. For one run, whose caller is an agent."""

    def __init__(self, pending: AcknowledgedQuestions, head: JsonObject, correlation: str, run_id: str) -> None:
        """`head`: source and target of the message."""
        self._pending = pending
        self._head = head
        self._correlation = correlation
        self._run_id = run_id

    def form(self, interrupt: Interrupt, call: McpCall) -> tuple[str, JsonObject] | None:
        """See `QuestionFormat`. In 2026-07-28 a client is asked what MCP knows only."""
        if versions.modern(call.client.version):
            return ELICITATION.form(interrupt, call)
        meta = {CORRELATION: self._correlation, keys.RESUME: questions.handle(self._run_id, interrupt.id)}
        return MESSAGE, {**self._head, "content": {"type": REQUEST, "payload": question(interrupt)}, META: meta}

    async def ask(self, call: McpCall, method: str, params: JsonObject) -> Raw:
        """See `QuestionFormat`. A client may acknowledge the question first, and answer by a message."""
        if method != MESSAGE:
            return await ELICITATION.ask(call, method, params)
        with self._pending.open(call.session, params[META]) as later:  # it may come right behind the answer
            result = await call.ask(method, params)
            return await later if _acknowledges(result) else result

    def again(self, params: JsonObject, why: str) -> JsonObject:
        content = params.get("content")
        if content is None:
            return ELICITATION.again(params, why)
        payload = content["payload"]
        messages = [{"text": why}, *payload["messages"]]
        return {**params, "content": {**content, "payload": {**payload, "messages": messages}}}

    def answer(self, interrupt: Interrupt, result: Json) -> Answer:
        if isinstance(result, dict) and "action" in result:
            return ELICITATION.answer(interrupt, result)
        content = result.get("content") if isinstance(result, dict) else None
        if not isinstance(content, dict) or content.get("type", RESPONSE) != RESPONSE or "payload" not in content:
            raise Invalid("the answer has no content of type response", path="/content")  # an acknowledgement, say
        return answer_in(interrupt, content["payload"])


def question(interrupt: Interrupt) -> JsonObject:
    payload: JsonObject = {
        "messages": [{"text": interrupt.message or f"The agent asks: {interrupt.kind}"}],
        "kind": interrupt.kind,
        "answerSchema": interrupt.answer_schema,
    }
    return payload if interrupt.payload is None else {**payload, "question": interrupt.payload}


def answer_in(interrupt: Interrupt, payload: Json, outcome: Json = None) -> Answer:
    """The answer that a payload gives; `outcome` counts before the payload's own. Raises Invalid for an unknown one.

    A bare choice, or another text, is taken for what it means (`gateway.contract.reading`), as is what NLIP says of it.
    """
    schema = interrupt.answer_schema
    if nlip.spoken(payload) and not questions.takes(interrupt, "format"):
        payload = nlip.plain(payload)
        payload = payload.get("input", payload) if isinstance(payload, dict) else payload
    said = payload.get(OUTCOME) if isinstance(payload, dict) and outcome is None else outcome
    if said is not None and not (isinstance(payload, dict) and questions.takes(interrupt, OUTCOME) and outcome is None):
        try:
            how = Outcome(said)
        except ValueError:
            known = ", ".join(Outcome)
            raise Invalid(f"{PAYLOAD}/{OUTCOME}: there is no outcome {said!r}, only {known}", path=PAYLOAD) from None
        if how is not Outcome.ANSWERED:
            return Answer(outcome=how)
    if not isinstance(payload, dict):
        return Answer(value=reading.answered(schema, payload))
    if ANSWER in payload and not questions.takes(interrupt, ANSWER):
        return Answer(value=reading.answered(schema, payload[ANSWER]))
    texts = spoken(payload.get("messages"))
    if texts is not None and not questions.takes(interrupt, "messages"):
        return Answer(value=reading.answered(schema, texts))
    if OUTCOME not in payload or questions.takes(interrupt, OUTCOME):
        return Answer(value=payload)
    return Answer(value={key: value for key, value in payload.items() if key != OUTCOME})


# --- questions that a client has acknowledged: it answers them later, by a message of type response ------------------


class AcknowledgedQuestions:
    """One per gateway process."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[McpSession, str], asyncio.Future[Raw]] = {}

    def answered(self, session: McpSession, params: Raw, other: Callable[[str], bool]) -> bool:
        """A message of a client: whether it was an answer that somebody waits for.

        Known by the handle that came with the question, or by its correlation id unless that is an `other`'s.
        """
        if not any(each is session for each, _ in self._waiting):
            return False
        try:
            message = read(params, "Message")
        except RpcError:
            return False
        meta = message.get(META) or {}
        future = self._waiting.get((session, str(meta.get(keys.RESUME))))
        if future is None and (known := meta.get(CORRELATION)) and not other(known):
            future = self._waiting.get((session, known))
        if message["content"]["type"] != RESPONSE or future is None or future.done():
            return False
        payload = message["content"]["payload"]
        future.set_result(Raw(delta.encode({"content": {"type": RESPONSE, "payload": payload}})))
        return True

    def left(self, session: McpSession) -> None:
        for (other, _), future in self._waiting.items():
            if other is session and not future.done():
                future.set_exception(AgentGone("the client has gone"))
                future.exception()  # whoever waits gets it; nobody may

    @contextlib.contextmanager
    def open(self, session: McpSession, meta: JsonObject) -> Iterator[asyncio.Future[Raw]]:
        """While the block lasts, the answer to the question with this `_meta` may come in a message."""
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        marks = [(session, str(meta[key])) for key in (keys.RESUME, CORRELATION) if key in meta]
        for key in marks:
            self._waiting[key] = future
        try:
            yield future
        finally:
            future.cancel()
            for key in marks:
                if self._waiting.get(key) is future:
                    del self._waiting[key]


def _acknowledges(result: Raw) -> bool:
    """Whether an answer says no more than that the question has come."""
    try:
        said = jsonrpc.unpack(result)
    except (ValueError, RecursionError):
        return False
    if not isinstance(said, dict) or said.keys() - {"status", META}:
        return False
    return "status" not in said or said["status"] in ACKNOWLEDGEMENTS
