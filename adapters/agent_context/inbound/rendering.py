"""A run in the words of who sent the message that started it. tasks.py has those of a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

from msgspec.structs import replace

from adapters.agent_context.codec import content, nlip
from adapters.agent_context.codec.errors import failure_error, to_rpc
from adapters.agent_context.inbound.environment import Environment, Limit
from adapters.agent_context.inbound.notifications import RunNotifications
from adapters.agent_context.wire.constants import (
    CANCELLED,
    COMPLETED,
    CORRELATION,
    META,
    RESPONSE,
)
from gateway.contract import Snapshot
from gateway.core import events as e
from gateway.core.errors import AgentFailed, InterlinguaError
from gateway.core.types import Agent, Artifact, Interrupt, JsonObject, Run, RunStatus
from gateway.mcp.runs import Events, keys, questions
from gateway.wire.jsonrpc import RpcError


class RunWords:
    """The part of `gateway.mcp.runs.Rendering` that all answers of this protocol share."""

    def __init__(self, telling: RunNotifications, correlation: str) -> None:
        self.losses: Counter[str] = Counter()
        self._telling = telling
        self._correlation = correlation

    @property
    def tells(self) -> bool:
        return self._telling.on

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        return self._telling.feed(events)

    def last(self, run: Run) -> list[bytes]:
        return []

    def interrupted(self, run: Run, interrupt: Interrupt, output: bytes) -> Any:
        raise waits(run, interrupt, self._correlation)


class MessageWords(RunWords):
    """The answer of `agent/message`, and what a response says.

    losses: what of the message itself could not be said, counted already. conversation: its token, for a client that
    speaks NLIP.
    """

    def __init__(
        self,
        env: Environment,
        agent: Agent,
        telling: RunNotifications,
        correlation: str,
        limit: Limit,
        *,
        losses: Sequence[str] = (),
        conversation: str | None = None,
    ) -> None:
        super().__init__(telling, correlation)
        self._before = Counter(losses)
        self._conversation = conversation
        self._env = env
        self._agent = agent
        self._limit = limit

    @property
    def tells(self) -> bool:
        """See `Rendering`. What a run uses is looked at as it is reported."""
        return super().tells or self._limit.max_tokens is not None

    def feed(self, events: Events, snapshot: Snapshot | None) -> list[bytes]:
        if (most := self._limit.max_tokens) is not None:
            reports = (event.output_tokens for _, event in events if isinstance(event, e.UsageReported))
            used = max((each for each in reports if each is not None), default=0)
            if used > most:
                self._limit.end(AgentFailed(f"the message took {used} tokens, more than its limit of {most}"))
        return super().feed(events, snapshot)

    async def result(self, run: Run, end: e.Event | None) -> JsonObject:
        if run.failure is not None:
            self._env.directory.conduct.failed(run.agent, run.failure.code)
        if run.status is not RunStatus.SUCCESS:
            refuse(run, self._correlation, self._limit.passed)
        payload = content.payload_of(self._agent, bytes(run.output))
        files = [file_of(each) for each in await self._env.gateway.files.list(run=run.id) if each.agent_created]
        if files:
            payload.setdefault("artifacts", files)
        if self._conversation is not None:
            payload = nlip.of(payload, self._conversation)
        run = replace(run, losses={**(Counter(run.losses) | self._before)})
        meta = {**keys.told(run), CORRELATION: self._correlation}
        return {"status": COMPLETED, "content": {"type": RESPONSE, "payload": payload}, META: meta}


def refuse(run: Run, correlation: str, passed: InterlinguaError | None = None) -> NoReturn:
    """Raise the error answer for a run that has ended without success. `passed`: the limit that ended it."""
    beside = {keys.RUN_ID: run.id, CORRELATION: correlation}
    if passed is not None:
        error = to_rpc(passed, correlation).error
        raise RpcError(error.code, error.message, {**error.data, **beside})
    if run.status is RunStatus.CANCELLED:
        said = f"cancelled: {run.cancel_reason}" if run.cancel_reason else "cancelled"
        raise RpcError(CANCELLED, said, {"code": "cancelled", "retryable": False, **beside})
    raise failure_error(run.failure, **beside)


def waits(run: Run, interrupt: Interrupt, correlation: str) -> RpcError:
    """The error that carries a question to a client that cannot be asked, and a handle to answer with."""
    error = questions.interrupted_error(run, interrupt).error
    details = {
        "expected": f"the same method with the answer as its payload and _meta {keys.RESUME}",
        "received": "no way to ask the client",
    }
    more = {"code": "interrupted", "retryable": False, "details": details, CORRELATION: correlation}
    return RpcError(error.code, error.message, {**error.data, **more})


def file_of(artifact: Artifact) -> JsonObject:
    """A file, as part of a payload."""
    named: dict[str, Any] = {"name": artifact.name, "url": artifact.url, "mimeType": artifact.media_type}
    return {**named, "size": artifact.size}
