"""A run as the agent's client sees it: the session is opened, its options are set, the prompt is sent and ends."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from adapters.agent_client.codec import content, turn
from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.outbound.connection import AgentConnection
from adapters.agent_client.outbound.governed import preface
from adapters.agent_client.outbound.prompts import AcknowledgedPrompt, AnsweredPrompt
from adapters.agent_client.outbound.session import AgentSession
from adapters.agent_client.outbound.sessions import AgentSessions, Opening
from adapters.agent_client.outbound.turn import AgentTurn
from adapters.agent_client.wire import PROTOCOL, as_object, cancel_request, taken_in_prompts
from gateway.contract import RunContext, governing
from gateway.core import events as e
from gateway.core.errors import AgentTimeout, Conflict, Invalid, Unsupported
from gateway.core.types import Artifact, Json, JsonObject
from gateway.transport.waiting import Flag
from gateway.wire import jsonrpc

T = TypeVar("T")

INLINE_BYTES = 16_000_000
"""Of clients' files that are sent in one prompt; more of them are links, where the gateway has an address."""


class PromptedRun:
    """One run. `run` is its whole life, `cancel` may come at any time."""

    _connection: AgentConnection | None = None
    """Where the session was opened. What has become of that by the time it is prompted is not taken for it."""
    _prompt: AnsweredPrompt | AcknowledgedPrompt | None = None
    _stop = _told = _forgotten = False
    _opening: Opening | None = None
    """The session that the agent makes for the run."""

    def __init__(self, target: AgentClientTarget, sessions: AgentSessions, context: RunContext) -> None:
        self.context = context
        self._request = context.run.request
        self._target = target
        self._sessions = sessions
        self._session = sessions.of(context)
        self._turn = AgentTurn(context, self._session.note, self._session.calls)
        self._opened = Flag()
        """Set when what is awaited before the prompt has come, or the run is cancelled."""

    def begin(self) -> bool:
        """Have the agent make the run's session, which is not one of a thread; False where that has to wait."""
        self._opening = self._sessions.begin(self._session, self.context, self._opened.set)
        return self._opening is not None

    def drop(self) -> None:
        if self._opening is not None:
            self._sessions.give_up(self._opening)
        self._sessions.end(self._session)

    async def run(self) -> None:
        session = self._session
        session.enter(self._turn)
        session.lease.take()
        try:
            try:
                end = await self._ended(session)
            except jsonrpc.RpcError as error:  # the agent's own words, which a client of its protocol gets to hear
                end = [self._cancelled() if self._stop else turn.failed(error)]
            self._turn.finish(end)
            if self._turn.calls is not None:  # calls that wait for somebody come before the end
                await self.context.drain()
        except BaseException:
            self._leave()
            raise
        self.context.afterwards(self._leave)

    def _leave(self) -> None:
        """The run is over: the session is free, and what the agent said behind the end is told behind it."""
        session = self._session
        session.leave(self._turn)
        if session.thread is not None:
            session.lease.give_back()
        else:
            self.drop()

    async def cancel(self) -> None:
        self._stop = True
        self._opened.set()
        if self._prompt is not None:
            self._tell_cancel(self._prompt)
            if self._connection is not None:
                await self._connection.drain()

    # --- the prompt --------------------------------------------------------------------------------------------------

    async def _ended(self, session: AgentSession) -> list[e.Event]:
        if self._stopped or (connection := await self._open(session)) is None:
            return [self._cancelled()]
        self._connection = connection
        self._turn.speak(connection.version, session.spoken)
        rules = self._turn.rules
        if self._forgotten and rules is not None:
            await rules.forgotten()
        blocks = self._blocks(connection)
        config, patience = self._request.config, self._target.request_timeout
        if config and await self._unless_stopped(_configured(session, connection, config, patience)) is None:
            return [self._cancelled()]
        await self.context.set_upstream({"session": session.name}, finds=False)
        if session.turn is not None:
            raise Conflict(f"session {session.name} is busy with another prompt")
        recalled = await self.context.recall(fresh=session.record.fresh)
        earlier = [content.block_of(recalled.before)] if recalled.before else []
        uploads, record = await self.context.uploads(), session.record
        given = [file for file in uploads if file.id not in record.files] if uploads else []
        if given or record.fresh:
            await self._sessions.told(session, [file.id for file in given])
        skills = preface(rules, taken_in_prompts(connection.initialized)) if rules is not None else ()
        blocks = [*skills, *earlier, *blocks, *(await self._files(given, connection) if given else ())]
        if self._stop:
            return [self._cancelled()]
        if session.work is None:
            prompt: AnsweredPrompt | AcknowledgedPrompt = AnsweredPrompt(session, self._turn)
        else:
            prompt = AcknowledgedPrompt(session, self._turn, session.work)
        self._prompt = prompt
        try:
            prompt.send(connection, self._prompted(session, blocks))
            *before, end = await prompt.end()
        except asyncio.CancelledError:
            self._give_up(prompt)
            raise
        return [*before, self._cancelled() if self._stop and isinstance(end, e.RunFinished) else end]

    async def _open(self, session: AgentSession) -> AgentConnection | None:
        """The session's connection; None if the run is cancelled first."""
        if self._opening is not None and not self._opening.connection.alive:  # since it was asked
            self._sessions.give_up(self._opening)
            self._opening = None
            self._opened.clear()
        if self._opening is None and session.thread is None:
            self.begin()
        if (opening := self._opening) is None:
            there = self._sessions.there(session, self.context)
            return there or await self._unless_stopped(self._sessions.open(session, self.context, self._lost))
        if opening.answer is None:
            patience = self._target.request_timeout
            try:
                async with asyncio.timeout(patience):
                    await self._opened.wait()
            except TimeoutError:
                if opening.answer is None:
                    name = opening.connection.name
                    raise AgentTimeout(f"{name} did not answer session/new within {patience:g} seconds") from None
        if self._stopped:
            return None
        self._opening = None
        return self._sessions.begun(opening)

    def _lost(self, what: str) -> None:
        self._forgotten = True
        self.context.lost(what)

    def _give_up(self, prompt: AnsweredPrompt | AcknowledgedPrompt) -> None:
        """The end is waited for no more; until it comes, the agent is busy with what was asked."""
        self._stop = True
        self._turn.flush()
        if (owed := prompt.owed()) is not None:
            self._tell_cancel(prompt)
            if not prompt.answered and self._connection is not None:  # the answer is still its end
                self._connection.tell(*cancel_request(prompt.asked))
            self._session.give_up(self._turn, owed)

    def _tell_cancel(self, prompt: AnsweredPrompt | AcknowledgedPrompt) -> None:
        if not self._told and self._connection is not None:
            self._told = True
            self._connection.tell("session/cancel", {"sessionId": self._session.name})
            prompt.cancelling()

    def _cancelled(self) -> e.RunCancelled:
        return e.RunCancelled(reason=self.context.run.cancel_reason or "")

    @property
    def _stopped(self) -> bool:
        return self._stop or self.context.cancelled

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Await the work and return its result; None if the run is cancelled first. The work goes on for others."""
        task = asyncio.ensure_future(work)
        if not self._stop:
            self._opened.clear()
        task.add_done_callback(lambda _: self._opened.set())
        try:
            await self._opened.wait()
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not self._stopped:
            return task.result()
        if self._session.thread is None:
            task.cancel()
            await asyncio.wait([task])
        self._session.lease.leave(task)
        return None

    def _blocks(self, connection: AgentConnection) -> list[JsonObject]:
        blocks_of = functools.partial(content.blocks_of, self._request, self.context.agent.text_input)
        try:
            return blocks_of(lambda: self._may_take(connection))
        except Invalid as error:
            blocks_of(lambda: content.EVERYTHING)
            raise Unsupported(str(error), detail=error.detail) from error

    def _may_take(self, connection: AgentConnection) -> JsonObject:
        """The kinds of content that the agent takes; on a governed route those of them that are promised."""
        declared, governor = taken_in_prompts(connection.initialized), governing.governor_of(self.context)
        if governor is None:
            return declared
        promised = governor.effective({"agent": {"promptCapabilities": declared}})
        found: JsonObject = promised.get("agent", {}).get("promptCapabilities", {})
        return found

    async def _files(self, given: Sequence[Artifact], connection: AgentConnection) -> list[JsonObject]:
        """Blocks for files that clients gave. What cannot be sent at all is counted."""
        blocks: list[JsonObject] = []
        left, capabilities = INLINE_BYTES, self._may_take(connection)
        for file in given:
            left -= file.size
            contents = await self.context.contents([file.id]) if left >= 0 or not content.is_link(file) else {}
            block = content.block_for(file, contents.get(file.id), capabilities)
            if block is None:
                self.context.lost("file_not_sent")
            else:
                blocks.append(block)
        return blocks

    def _prompted(self, session: AgentSession, blocks: list[JsonObject]) -> JsonObject:
        creation = self._request.creation if self._request.protocol == PROTOCOL else {}
        meta = dict(as_object(creation.get("_meta")))
        if self.context.traceparent is not None:
            meta["traceparent"] = self.context.traceparent
        params = {**creation, "sessionId": session.name, "prompt": blocks}
        return {**params, "_meta": meta} if meta else params


async def _configured(
    session: AgentSession, connection: AgentConnection, config: Mapping[str, Any], timeout: float
) -> bool:
    """Set the mode and options that a run's `config` names, where they are not so already (docs: session-modes,
    session-config-options). True.

    Raises Invalid for what the agent does not take, RpcError, and the errors of the tree.
    """
    for name, value in config.items():
        option = next((each for each in session.settings.options or () if _named(each, name)), None)
        if option is not None and option.get("currentValue") == value and type(value) in (str, bool):
            continue
        if option is None and name == "mode" and session.settings.modes is not None:
            if session.settings.modes.get("currentModeId") == value:
                continue
            method, params = "session/set_mode", {"modeId": value}
        else:
            method, params = "session/set_config_option", {"configId": name, **_value(name, value)}
        try:
            result = await connection.ask(method, {"sessionId": session.name, **params}, timeout=timeout)
        except jsonrpc.RpcError as error:
            if error.error.code not in (jsonrpc.INVALID_PARAMS, jsonrpc.METHOD_NOT_FOUND):
                raise
            raise Invalid(f"the agent does not take {name}: {error}", path=f"/config/{name}") from error
        session.settle(jsonrpc.unpack(result), in_run=True)
    return True


def _named(option: Any, name: str) -> bool:
    return isinstance(option, dict) and option.get("id") == name


def _value(name: str, value: Json) -> JsonObject:
    if isinstance(value, bool):
        return {"type": "boolean", "value": value}
    if isinstance(value, str):
        return {"value": value}
    raise Invalid(f"option {name} is a text or a boolean", path=f"/config/{name}")
