"""A long conversation with one JSON-RPC door: mostly wrong messages, and now and then one that must be answered."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.fuzz.doors import WITHIN, Closed, Door
from tests.fuzz.judging import http_fault, rpc_fault
from tests.fuzz.messages import ANSWERS, TOLD, Said
from tests.fuzz.mutation import ODD, Text, mutated, write

ROUND = 25
"""Wrong messages between two valid ones."""
VALID = 0.06
"""The share of messages that are sent as they should be."""


class Conversation:
    """With one connection at a time: a new one where the gateway ends it, as it must for some input.

    open: makes a Door. hello: the valid handshake, in order. prepare: called each round; what it returns are the
    valid messages of that round. settled: the method of a request that any state of the connection allows.
    """

    def __init__(
        self,
        rng: random.Random,
        open: Callable[[], Door],
        hello: Sequence[Said],
        prepare: Callable[[Conversation], Awaitable[list[Said]]],
        settled: Said,
    ) -> None:
        self.rng = rng
        self.faults: list[str] = []
        self.sent = 0
        self.answered = 0
        self.opened = 0
        self.methods: set[str] = set()
        self._open = open
        self._hello = hello
        self._prepare = prepare
        self._settled = settled
        self._door: Door | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._number = 0
        self._recent: collections.deque[bytes] = collections.deque(maxlen=2 * ROUND)

    async def round(self) -> None:
        """Some wrong messages, then one that must be answered. Raises AssertionError for a hang."""
        said = await self._again(lambda: self._prepare(self))
        try:
            for _ in range(ROUND):
                await self._wrong(*self.rng.choice(said))
        except Closed:
            await self._drop()
        await self._again(lambda: self.ask(*self._settled))

    async def ask(self, method: str, params: Any) -> Any:
        """A valid request, and its answer: the whole message. Raises Closed."""
        self._number += 1
        name = f"ask-{self._number}"
        future = self._waiting[name] = asyncio.get_running_loop().create_future()
        await self._send(write({"jsonrpc": "2.0", "id": name, "method": method, "params": params}))
        try:
            return await asyncio.wait_for(future, WITHIN)
        except TimeoutError:
            recent = "\n".join(repr(data[:400]) for data in self._recent)
            raise AssertionError(f"{method} was not answered within {WITHIN:g} s, after\n{recent}") from None
        finally:
            self._waiting.pop(name, None)

    async def close(self) -> None:
        """End the connection."""
        await self._drop()

    def told(self, count: int = 8) -> str:
        """The last messages, for who looks for the one that did it."""
        return "\n".join(repr(data[:600]) for data in list(self._recent)[-count:])

    async def _again(self, step: Callable[[], Awaitable[Any]]) -> Any:
        """The step, on a new connection if this one is ended meanwhile."""
        for _ in range(5):
            try:
                await self._connected()
                return await step()
            except Closed:
                await self._drop()
        raise AssertionError(f"the connection is ended again and again, after\n{self.told()}")

    async def _connected(self) -> None:
        if self._door is not None:
            return
        self._door = self._open()
        await asyncio.wait_for(self._door.open(), WITHIN)
        self.opened += 1
        self._reader = asyncio.create_task(self._read(self._door))
        for method, params in self._hello:
            if method in TOLD:
                await self._send(write({"jsonrpc": "2.0", "method": method, "params": params}))
            else:
                answer = await self.ask(method, params)
                assert "result" in answer, answer

    async def _drop(self) -> None:
        if self._door is not None:
            await asyncio.wait_for(self._door.close(), WITHIN)
            self._judge_statuses(self._door)
            self._door = None
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            self._reader = None

    async def _send(self, data: bytes) -> None:
        if self._door is None:
            raise Closed
        self._recent.append(data)
        await asyncio.wait_for(self._door.send(data), WITHIN)
        self._judge_statuses(self._door)

    def _judge_statuses(self, door: Door) -> None:
        while door.statuses:
            fault = http_fault(*door.statuses.pop())
            if fault is not None:
                self._fault(fault)

    async def _wrong(self, method: str, params: Any) -> None:
        rng = self.rng
        self.methods.add(method)
        self._number += 1
        if "progressToken" in params.get("_meta", {}):  # one that is in use is refused
            params = {**params, "_meta": {**params["_meta"], "progressToken": self._number}}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        if (method in TOLD) != (rng.random() < 0.1):
            del message["id"]
        if rng.random() < 0.04:  # an answer to nothing, or to something
            message = {"jsonrpc": "2.0", "id": rng.choice((1, 2, "x", None)), "result": rng.choice(ANSWERS)}
        self.sent += 1
        if rng.random() < VALID:
            await self._send(write(message))
        elif rng.random() < 0.6:  # the envelope is right
            changed = Text(mutated(rng, message.get("params", {}), whole=False).decode())
            await self._send(write({**message, "params": changed}))
        else:
            await self._send(mutated(rng, message))

    # --- what comes ---------------------------------------------------------------------------------------------

    async def _read(self, door: Door) -> None:
        while (data := await door.heard.get()) is not None:
            found = json.loads(data)
            for message in found if isinstance(found, list) else [found]:
                self.answered += 1
                fault = rpc_fault(message)
                if fault is not None:
                    self._fault(fault)
                if "method" in message and "id" in message:
                    await self._reply(door, message)
                elif isinstance(message.get("id"), str) and message["id"] in self._waiting:
                    future = self._waiting[message["id"]]
                    if not future.done():
                        future.set_result(message)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Closed())

    async def _reply(self, door: Door, asked: dict[str, Any]) -> None:
        """Answer what the gateway asks: rightly, wrongly, or in no way that can be read."""
        rng = self.rng
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": rng.choice(ANSWERS)}
        drawn = rng.random()
        if drawn < 0.2:
            data = write({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}})
        elif drawn < 0.5:
            data = write(answer)
        elif drawn < 0.8:
            data = write({**answer, "result": rng.choice(ODD)})
        else:
            data = write({**answer, "result": Text(mutated(rng, answer["result"] or {"a": 1}, whole=False).decode())})
        self._recent.append(data)
        with contextlib.suppress(Closed):
            await door.send(data)

    def _fault(self, fault: str) -> None:
        self.faults.append(f"{fault}\nafter\n{self.told()}")
