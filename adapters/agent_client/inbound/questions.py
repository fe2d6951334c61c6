"""Asks one client the open questions of one run.

Each that the client has a form for is asked in a task of its own; an answer from elsewhere withdraws it. What no form
can show is told as text: that ends the turn, and the next prompt is the answer.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from adapters.agent_client.codec import questions as codec
from adapters.agent_client.inbound.context import SessionContext
from adapters.agent_client.inbound.updates import RunUpdates, SessionUpdates
from gateway.core import events as e
from gateway.core.errors import AgentBroken, Denied, InterlinguaError, Invalid, Unavailable
from gateway.core.types import Answer, Interrupt, JsonObject, Outcome
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)

TRIES = 3
"""How often a form is shown whose answers do not fit the question; then it is declined."""
UNKNOWN_TO_CLIENT = (jsonrpc.METHOD_NOT_FOUND,)


class RunQuestions:
    """Told of every interrupt and answer of the run in order; calls nobody before `ask` is called."""

    def __init__(
        self,
        session: SessionContext,
        updates: SessionUpdates,
        run_id: str,
        run_updates: RunUpdates,
        told: Callable[[], None],
    ) -> None:
        """`told` is called when the client has been told a question that its next prompt answers."""
        self._session = session
        self._updates = updates
        self._version = updates.version
        self._run_id = run_id
        self._governed = session.governor is not None
        """Then no tool call is told but those of the agent's: a question goes without one."""
        self._run_updates = run_updates
        self._told = told
        self.open: dict[str, Interrupt] = {}
        """Those that are not answered, by id."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asked: set[str] = set()
        self._answering: set[str] = set()
        self._by_text: set[str] = set()
        self._shown: set[str] = set()
        self._left = False

    @property
    def waiting(self) -> Interrupt | None:
        """The question whose answer the next prompt is: the oldest that has no form, once no form is open."""
        if self._tasks:
            return None
        return next((i for i in self.open.values() if i.id not in self._answering and self._form(i) is None), None)

    def opened(self, event: e.Interrupted) -> list[bytes]:
        """A question has come. Returns what the client is told of it now."""
        interrupt = event.interrupt
        self.open[interrupt.id] = interrupt
        found = self._form(interrupt)
        told = found is not None and found[0] == codec.PERMISSION and not self._governed and self._version.asks_as_calls
        call = codec.asked_call(interrupt) if told else None
        return [] if call is None else [call]

    def closed(self, event: e.Resumed) -> list[bytes]:
        """It has been answered, here or elsewhere. Returns what the client is told of that."""
        interrupt = self.open.pop(event.interrupt, None)
        if interrupt is None:
            return []
        task = self._tasks.get(interrupt.id)
        here = interrupt.id in self._answering
        if task is not None and not here:
            task.cancel()
        self._answering.discard(interrupt.id)
        found = self._form(interrupt)
        resumed = self._run_updates.resumed(event.answer, open=bool(self.open))
        if found is not None:
            is_told = found[0] == codec.PERMISSION and not self._governed and self._version.asks_as_calls
            call = codec.answered_call(interrupt, event.answer) if is_told else None
            return [*resumed, *([] if call is None else [call])]
        told = [] if interrupt.id in self._shown else self._question(interrupt)
        return [*told, *self._run_updates.replied(interrupt, _said(event.answer), here=here), *resumed]

    def ask(self) -> None:
        """Ask what is open. To be called when the client has been told everything that came before."""
        if not self.open:
            return
        for interrupt in self.open.values():
            found = self._form(interrupt)
            if found is not None and interrupt.id not in self._asked:
                self._asked.add(interrupt.id)
                task = asyncio.create_task(self._ask(interrupt, found), name=f"question {interrupt.id}")
                self._tasks[interrupt.id] = task
                task.add_done_callback(functools.partial(self._over, interrupt.id))
                self._run_updates.waiting()
        self._tell()

    async def answer(self, interrupt: Interrupt, text: str) -> None:
        """Take a prompt as the answer to `waiting`. Raises Invalid, and then it stays open; Conflict."""
        answer = codec.answer_from_text(interrupt, text)
        self._answering.add(interrupt.id)
        try:
            await self._hand_on(interrupt, answer)
        except InterlinguaError:
            self._answering.discard(interrupt.id)
            raise

    def again(self, interrupt: Interrupt, why: Invalid) -> list[bytes]:
        """The client's prompt was no answer: what it is told of that, with the question again."""
        said = f"{why}\n\n{codec.as_text(interrupt)}"
        return self._version.text(said, f"{self._run_id}-question-{uuid.uuid4().hex}")

    def leave(self) -> None:
        """Stop asking. Open questions stay open."""
        self._left = True
        for task in self._tasks.values():
            task.cancel()

    # --- inside -----------------------------------------------------------------------------------------------

    def _form(self, interrupt: Interrupt) -> codec.Form | None:
        if interrupt.id in self._by_text:
            return None
        return self._version.form(interrupt, codec.elicitation_modes(self._session.client.capabilities))

    def _question(self, interrupt: Interrupt) -> list[bytes]:
        """The question in words."""
        return self._version.text(codec.as_text(interrupt), f"{self._run_id}-question-{interrupt.id}")

    def _over(self, interrupt_id: str, task: asyncio.Task[None]) -> None:
        del self._tasks[interrupt_id]
        if not self._left:
            self._tell()

    def _tell(self) -> None:
        """Tell the oldest question that only text can put, once nothing else waits for the client."""
        interrupt = self.waiting
        if interrupt is None:
            return
        if interrupt.id not in self._shown:
            self._shown.add(interrupt.id)
            self._updates.say(*self._question(interrupt))
        self._told()

    async def _ask(self, interrupt: Interrupt, found: codec.Form) -> None:
        method, params, read = found
        for _ in range(TRIES):
            answer = await self._answer_to(interrupt, method, params, read)
            refused = await self._commit(interrupt, answer) if answer is not None else None
            if refused is None:
                return
            if "message" in params:
                params = {**params, "message": f"{refused}\n\n{found[1]['message']}"}
        await self._commit(interrupt, Answer(outcome=Outcome.DECLINED))

    async def _answer_to(
        self, interrupt: Interrupt, method: str, params: JsonObject, read: Callable[[Interrupt, Any], Answer]
    ) -> Answer | None:
        """The client's answer. None if it cannot answer: the question stays open. Anything unclear is a refusal."""
        session = self._session
        try:
            result = await session.client.put(method, jsonrpc.raw({"sessionId": session.id, **params}))
            return read(interrupt, jsonrpc.unpack(result))
        except Unavailable:
            return None  # the client has gone
        except RpcError as error:
            if error.error.code in UNKNOWN_TO_CLIENT:
                self._by_text.add(interrupt.id)
                return None
            log.info("session %s: %s was answered %s", session.id, method, error)
        except (AgentBroken, ValueError) as error:
            log.info("session %s: the answer to %s cannot be read: %s", session.id, method, error)
        return Answer(outcome=Outcome.DECLINED)

    async def _commit(self, interrupt: Interrupt, answer: Answer) -> Invalid | None:
        """Hand the answer on; Invalid where it does not fit, which leaves the question open."""
        self._answering.add(interrupt.id)
        try:
            await self._hand_on(interrupt, answer)
        except Invalid as error:
            self._answering.discard(interrupt.id)
            return error
        except Denied as error:  # somebody else may answer it
            self._answering.discard(interrupt.id)
            self._updates.say(*self._version.text(str(error), f"{self._run_id}-question-{uuid.uuid4().hex}"))
        except InterlinguaError as error:
            self._answering.discard(interrupt.id)
            log.info("session %s: an answer came to nothing: %s", self._session.id, error)
        return None

    async def _hand_on(self, interrupt: Interrupt, answer: Answer) -> None:
        session = self._session
        answer = replace(answer, by=session.client.visitor.identity)
        await session.client.clients.whole(session.gateway.runs.answer(self._run_id, answer, interrupt.id))


def _said(answer: Answer) -> str | None:
    """An answer that came from elsewhere, as a person would have typed it here."""
    if answer.outcome is not Outcome.ANSWERED:
        return None
    if isinstance(answer.value, str):
        return answer.value
    return bytes(jsonrpc.raw(answer.value)).decode()
