"""One run: what the agent says until it is done becomes events of the run, and ends it exactly once.

    native agent       messages.py   agent/message or agent/delegate, updates, questions, a response now or later
    plain MCP server   tools.py      tools/call

A run whose connection ends, or whose gateway dies, is not taken up again: not even one that was acknowledged, since the
agent would have to say the rest on another connection, of which nothing tells that the same agent is at its end.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from msgspec import Raw

from adapters.agent_context.codec.errors import data_of, tree_error
from adapters.agent_context.outbound.answers import text_in
from adapters.agent_context.outbound.link import AgentLine, ContextLink
from adapters.agent_context.outbound.pools import QUESTIONS
from adapters.agent_context.outbound.request import correlation
from adapters.agent_context.wire.constants import PROTOCOL, RESPONSE
from gateway.contract import Caller, RunContext
from gateway.core import delta, projection
from gateway.core import events as e
from gateway.core.types import Answer, Failure, Interrupt, Json, JsonObject, Outcome
from gateway.mcp.client import called_run as calls
from gateway.mcp.client import server_requests
from gateway.wire.jsonrpc import ErrorObject, RpcError


class RunWay(Protocol):
    """How an agent is run over a line. Made for one run."""

    def check(self) -> None:
        """Raises Invalid for a run that it cannot be told, before anything is started."""

    async def go(self, line: AgentLine) -> e.Event:
        """To its end: the last event. Raises RpcError with the agent's own error, and errors of the tree."""

    def told(self, method: str, params: Raw) -> list[e.Event]:
        """The events that a notification means."""

    async def asked(self, method: str, params: Raw) -> Any:
        """The result of a request of the agent's. Raises RpcError."""

    def again(self) -> None:
        """See `gateway.mcp.client.contract.Listener.again`."""


class WayChooser(Protocol):
    """Which way an agent is run. `native`: whether it speaks this protocol, None while that can only be guessed."""

    def __call__(self, turn: AgentContextTurn, *, native: bool | None) -> RunWay: ...


class AgentContextTurn(calls.CalledRun):
    """See `gateway.mcp.client.called_run`. Its CallListener is the line's."""

    def __init__(self, context: RunContext, link: ContextLink, choose: WayChooser) -> None:
        super().__init__(context)
        self._declared = capabilities(context.caller)
        self.asks = AgentQuestions(self.ask, lambda: context.caller, self._declared)
        self._link = link
        self._choose = choose
        self._way: RunWay | None = None

    async def called(self) -> e.Event:
        """The way that the agent is run, to its end."""
        self._choose(self, native=None).check()
        async with self._link.open(correlation(self.context), self, self._declared) as line:
            self._way = self._choose(self, native=line.native)
            try:
                end = await self._way.go(line)
            finally:
                self.over = True
            return end

    def failed(self, error: RpcError) -> e.RunFailed:
        """The end of a run whose agent has answered with an error."""
        return failed(error.error)

    # --- what comes meanwhile ---------------------------------------------------------------------------------------

    def told(self, method: str, params: Raw) -> list[e.Event]:
        """The events that a notification means."""
        if self._way is None:
            self.context.lost(self.late)
            return []
        return self._way.told(method, params)

    def again(self) -> None:
        if self._way is not None:
            self._way.again()

    async def asked(self, method: str, params: Raw) -> Any:
        if self._way is None:
            return await self.asks.answer(method, params)
        return await self._way.asked(method, params)


class AgentContextRuns(calls.CalledRuns):
    """All runs of one agent. See `gateway.contract.Outbound` and `Supervised`, of which it has what concerns runs."""

    def __init__(self, link: ContextLink, choose: WayChooser) -> None:
        super().__init__(lambda context: AgentContextTurn(context, link, choose))
        self._link = link

    @property
    def reachable(self) -> bool | None:
        return self._link.reachable


def failed(error: ErrorObject) -> e.RunFailed:
    """The end of a run that the agent says has failed; clients of the same protocol hear it in the agent's words."""
    known = tree_error(error)
    data = data_of(error)
    retryable = data.get("retryable") if data else None
    origin: JsonObject = {"code": error.code, "message": delta.sound(error.message)}
    if data:
        origin["data"] = data
    failure = Failure(
        code=known.code,
        message=delta.sound(str(known)) or "the agent failed",
        retryable=retryable if isinstance(retryable, bool) else known.retryable,
    )
    return e.RunFailed(failure=failure, origin={"error": origin})


# --- what an agent asks while it runs --------------------------------------------------------------------------------


INPUT: Final = "input"
"""Kind of an interrupt that the agent did not name."""


def capabilities(caller: Caller | None) -> JsonObject:
    """The capabilities declared for a run: messages, questions, and those of the run's client if it speaks this
    protocol.
    """
    return server_requests.capabilities(caller, PROTOCOL, QUESTIONS)


class AgentQuestions(server_requests.ServerRequests):
    """Answers the requests that belong to one run."""

    async def message(self, payload: Json) -> JsonObject:
        """The content that answers a message of type request."""
        interrupt = question(payload, self.numbered("question"))
        return answered(interrupt, await self._ask(interrupt))


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
        message=text_in(payload),
        answer_schema=schema if isinstance(schema, dict) else projection.MESSAGE_SCHEMA,
    )


def answered(interrupt: Interrupt, answer: Answer) -> JsonObject:
    """The content that answers it: the value under `answer`, its text as a message; or the outcome."""
    if answer.outcome is not Outcome.ANSWERED:
        return {"type": RESPONSE, "payload": {"outcome": answer.outcome.value}}
    payload: JsonObject = {"answer": answer.value}
    text = projection.text_of(answer.value, projection.text_pointer(interrupt.answer_schema))
    if text is not None:
        payload = {"messages": [{"text": text}], **payload}
    return {"type": RESPONSE, "payload": payload}
