"""Calls between gateway processes on one store, each with an answer, through the store's mailbox.

A call is done at most once: it is taken out of the mailbox before it is done. What it raises there is raised here, as
the same error. A call that was not delivered raises Undelivered; one whose answer does not come raises Unanswered, and
may have been done. Who no longer waits for an answer has the call given up. Calls of one process to another begin in
the order in which they were made.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from gateway.core import errors
from gateway.core.errors import AgentError, InterlinguaError, Invalid, Unavailable
from gateway.core.types import NULL
from gateway.store import Message, Store, Undelivered
from gateway.store.records import new_id
from gateway.transport.tasks import TaskSet
from gateway.wire.jsonrpc import RpcError
from gateway.wire.jsonrpc.messages import ABSENT

ANSWER_SECONDS: Final = 15.0
"""How long an answer is waited for."""
ALIVE_SECONDS: Final = 1.0
"""How often whoever waits for an answer looks whether the other process is alive."""
LOOK_SECONDS, POLL_SECONDS = 5.0, 0.1
"""How often the mailbox is looked at with a bell, and without one."""

log = logging.getLogger(__name__)

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class Unanswered(Unavailable):
    """The other process died, or did not answer in time: whether it did what it was asked is not known."""


class Call(msgspec.Struct, frozen=True):
    """The body of a message that asks for something. `kind` names what `data` is; `quiet`: no answer is wanted."""

    kind: str
    data: msgspec.Raw
    quiet: bool = False


class CarriedError(msgspec.Struct, frozen=True):
    """An error of the tree, by the name of its class."""

    kind: str
    message: str
    path: str = ""
    detail: str = ""
    rpc: tuple[Any, ...] = ()
    """The code of an error answer in JSON-RPC, and its data if it has any."""
    retry_after: float | None = None

    @classmethod
    def of(cls, error: InterlinguaError) -> CarriedError:
        """The nearest class that all processes know."""
        if isinstance(error, RpcError):
            told = error.error
            data = () if told.data is ABSENT else (told.data,)
            return cls(RpcError.__name__, told.message, rpc=(told.code, *data))
        kind = next(each for each in type(error).__mro__ if KINDS.get(each.__name__) is each)
        return cls(kind.__name__, str(error), getattr(error, "path", ""), error.detail, retry_after=error.retry_after)

    def error(self) -> InterlinguaError:
        """The error again. One that only a newer version knows is of the root's class."""
        if self.rpc:
            code, *data = self.rpc
            return RpcError(code, self.message, *data)
        kind = KINDS.get(self.kind, InterlinguaError)
        if issubclass(kind, Invalid):
            return kind(self.message, path=self.path, detail=self.detail)
        if issubclass(kind, AgentError | Unavailable) and self.retry_after is not None:
            return kind(self.message, detail=self.detail, retry_after=self.retry_after)
        return kind(self.message, detail=self.detail)


KINDS: Final = {
    each.__name__: each
    for each in (*vars(errors).values(), Undelivered, Unanswered)
    if inspect.isclass(each) and issubclass(each, InterlinguaError)
}


class GiveUp(msgspec.Struct, frozen=True):
    """Gives up an earlier call: its caller no longer waits for the answer."""

    message: str


class PostReply(msgspec.Struct, frozen=True):
    """The body of a message that answers."""

    data: msgspec.Raw = NULL
    fault: CarriedError | None = None


_encode = msgspec.json.Encoder().encode
_call = msgspec.json.Decoder(Call).decode
_reply = msgspec.json.Decoder(PostReply).decode


class PostOffice:
    """The calls of this process to others, and of others to this one. One per engine."""

    def __init__(self, store: Store, rung: Callable[[str | None], None]) -> None:
        """`rung` is called with a run that the bell was rung for, or with None for all (see `Mailbox.listen`)."""
        self._store = store
        self._rung = rung
        self._kinds: dict[str, tuple[type[msgspec.Struct], Callable[[str, Any], Awaitable[Any]]]] = {}
        self._asked: dict[str, asyncio.Future[PostReply]] = {}
        self._doing = TaskSet()
        self._answering: dict[str, asyncio.Task[None]] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        """The newest of what is told each process without waiting."""
        self._woken = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        store.mailbox.listen(self._hears)
        self.serve(GiveUp, self._given_up)

    def serve(self, kind: type[S], do: Callable[[str, S], Awaitable[Any]]) -> None:
        """Have calls of a kind done by `do`, which is given the asking process and the call, and returns the answer."""
        self._kinds[kind.__name__] = (kind, do)

    def open(self) -> None:
        """Begin to read the mailbox. The store is open."""
        self._serving = asyncio.create_task(self._serve(), name="post")

    async def close(self) -> None:
        """Read no more, and give up what is being done. Idempotent."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        self._doing.cancel()
        await self._doing.settled()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(Unanswered("the gateway is shutting down"))

    async def ask(
        self, owner: str, call: msgspec.Struct, answer: type[T], *, within: float | None = ANSWER_SECONDS
    ) -> T:
        """Have a process do something, and wait for its answer, as long as it lives if `within` is None. Raises what it
        raises, Undelivered, Unanswered.
        """
        if owner == self._store.owner:
            _, do = self._kinds[type(call).__name__]
            return await do(owner, call)  # type: ignore[no-any-return]
        message = self._message(Call(type(call).__name__, msgspec.Raw(_encode(call))))
        reply = self._asked[message.id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(within):
                if (before := self._sending.get(owner)) is not None:
                    await asyncio.wait([before])
                await self._store.mailbox.send(owner, message, seconds=within or ANSWER_SECONDS)
                said = await self._answer(owner, reply)
        except TimeoutError:
            raise Unanswered("another gateway process does not answer; try again", detail=owner) from None
        except asyncio.CancelledError:
            self.tell(owner, GiveUp(message.id))
            raise
        finally:
            del self._asked[message.id]
        if said.fault is not None:
            raise said.fault.error()
        return msgspec.json.decode(said.data, type=answer)

    def tell(self, owner: str, call: msgspec.Struct) -> None:
        """Have a process do something; whether it does is not told."""
        message = self._message(Call(type(call).__name__, msgspec.Raw(_encode(call)), quiet=True))
        sending = self._doing.start(self._send(owner, message, self._sending.get(owner)))
        self._sending[owner] = sending
        sending.add_done_callback(lambda done: self._sent(owner, done))

    async def _send(self, owner: str, message: Message, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await self._store.mailbox.send(owner, message, seconds=ANSWER_SECONDS)
        except InterlinguaError as error:
            log.debug("%s is not told: %s", owner, error)

    def _sent(self, owner: str, done: asyncio.Task[None]) -> None:
        if self._sending.get(owner) is done:
            del self._sending[owner]

    def _message(self, body: msgspec.Struct, answers: str = "") -> Message:
        return Message(id=new_id(), sender=self._store.owner, body=_encode(body), answers=answers)

    async def _answer(self, owner: str, reply: asyncio.Future[PostReply]) -> PostReply:
        while not reply.done():
            await asyncio.wait([reply], timeout=ALIVE_SECONDS)
            if not reply.done() and not await self._store.lives(owner):
                await self._receive()  # its last word
                if not reply.done():
                    raise Unanswered("another gateway process has died; try again", detail=owner)
        return reply.result()

    # --- the mailbox ------------------------------------------------------------------------------------------------

    def _hears(self, name: str | None) -> None:
        if not name:
            self._woken.set()
        if name != "":
            self._rung(name)

    async def _serve(self) -> None:
        while True:
            await self._receive()
            try:
                async with asyncio.timeout(LOOK_SECONDS if self._store.mailbox.has_bell else POLL_SECONDS):
                    await self._woken.wait()
            except TimeoutError:
                continue
            self._woken.clear()

    async def _receive(self) -> None:
        try:
            messages = await self._store.mailbox.receive()
        except InterlinguaError as error:  # of a store that is away its writer tells
            log.debug("the mailbox cannot be read: %s", error)
            return
        for message in messages:
            if not message.answers:
                self._answering[message.id] = self._doing.start(self._do(message))
            elif (asked := self._asked.get(message.answers)) is not None and not asked.done():
                asked.set_result(_reply(message.body))

    async def _do(self, message: Message) -> None:
        """Do what is asked, and answer it if an answer is wanted."""
        try:
            call = _call(message.body)
            reply = await self._done(call, message.sender)
            if not call.quiet:
                answer = self._message(reply, message.id)
                await self._store.mailbox.send(message.sender, answer, seconds=ANSWER_SECONDS)
        except InterlinguaError as error:
            log.warning("what %s asked is not answered: %s", message.sender, error)
        except Exception:
            log.exception("what %s asked could not be done", message.sender)
        finally:
            self._answering.pop(message.id, None)

    async def _given_up(self, _: str, call: GiveUp) -> None:
        if (doing := self._answering.get(call.message)) is not None:
            doing.cancel()

    async def _done(self, call: Call, sender: str) -> PostReply:
        try:
            try:
                kind, do = self._kinds[call.kind]
                asked = msgspec.json.decode(call.data, type=kind)
            except (KeyError, msgspec.ValidationError) as error:
                other = f"another gateway process is of a version that does not take this {call.kind}; try again"
                raise Unavailable(other, detail=repr(error)) from error
            return PostReply(msgspec.Raw(_encode(await do(sender, asked))))
        except InterlinguaError as error:
            return PostReply(fault=CarriedError.of(error))
        except Exception:
            log.exception("what %s asked could not be done: %s", sender, call.kind)
            return PostReply(fault=CarriedError.of(InterlinguaError("internal error")))
