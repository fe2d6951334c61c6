"""`interlingua stdio --gateway`: the editor's pipe joined to the gateway's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.cli import stdio
from gateway.cli.stdio import PipeBridge
from gateway.transport.pipe import Unreadable
from tests.support.pipes import MemoryPipe, pair


def message(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **fields}).encode()


HELLO = message(id=0, method="initialize")
PROMPT = message(id="turn", method="session/prompt")
CHUNK = message(method="session/update", params={"result": 1})
ANSWERS = [message(id=0, result={}), message(id="turn", error={"code": -32603, "message": "no"})]


class Ends:
    """The editor's end and the gateway's, and what becomes of those who join them."""

    def __init__(self) -> None:
        self.editor, inner = pair()
        outer, self.gateway = pair()
        self.done = asyncio.create_task(PipeBridge(inner, outer).run())

    async def over(self) -> str | None:
        async with asyncio.timeout(30):
            return await self.done


@asynccontextmanager
async def ends() -> AsyncIterator[Ends]:
    made = Ends()
    try:
        yield made
    finally:
        made.done.cancel()
        await asyncio.wait([made.done])


async def told(end: MemoryPipe, count: int = 1) -> list[Any]:
    """The next messages that come at this end."""
    found: list[Any] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += [json.loads(each) for each in await end.receive() if isinstance(each, bytes)]
    return found


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is owed is waited for however long it takes."""
    monkeypatch.setattr(stdio, "LINGER_SECONDS", 3600.0)


async def test_what_one_says_the_other_is_told_as_it_is() -> None:
    async with ends() as made:
        await made.editor.send([HELLO, b"no json at all"])
        assert list(await made.gateway.receive()) == [HELLO, b"no json at all"]
        await made.gateway.send([ANSWERS[0], CHUNK])
        assert list(await made.editor.receive()) == [ANSWERS[0], CHUNK]


async def test_a_client_that_has_said_its_last_is_still_told_what_it_is_answered(patient: None) -> None:
    async with ends() as made:
        await made.editor.send([HELLO, PROMPT])
        made.editor.half_close()
        assert len(await made.gateway.receive()) == 2
        await made.gateway.send([ANSWERS[0]])
        await made.gateway.send([CHUNK])
        assert len(await told(made.editor, 2)) == 2
        assert not made.done.done(), "the prompt is not answered"
        await made.gateway.send([ANSWERS[1]])
        assert await made.over() is None
        assert (await told(made.editor))[0]["id"] == "turn"


async def test_so_is_one_whose_last_are_in_an_array(patient: None) -> None:
    async with ends() as made:
        await made.editor.send([b"[" + HELLO + b"," + PROMPT + b"]"])
        made.editor.half_close()
        assert await made.gateway.receive()
        await made.gateway.send([ANSWERS[1]])
        assert (await told(made.editor))[0]["id"] == "turn"
        assert not made.done.done(), "the other is not answered"
        await made.gateway.send([b"[" + ANSWERS[0] + b"]"])
        assert await made.over() is None
        assert (await told(made.editor))[0][0]["id"] == 0


async def test_an_answer_that_does_not_come_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "LINGER_SECONDS", 0.01)

    async with ends() as made:
        await made.editor.send([PROMPT])
        made.editor.half_close()
        assert await made.over() is None


async def test_a_client_that_is_owed_nothing_ends_it_at_once(patient: None) -> None:
    async with ends() as made:
        await made.editor.send([HELLO])
        await made.gateway.receive()
        await made.gateway.send([ANSWERS[0]])
        await made.editor.receive()
        made.editor.half_close()
        assert await made.over() is None


@pytest.mark.parametrize("speaks", [False, True])
async def test_a_gateway_that_is_gone_is_not_taken_for_a_client_that_has_finished(speaks: bool) -> None:
    async with ends() as made:
        made.gateway.cut()
        if speaks:
            made.editor.inject(PROMPT)
        assert await made.over() == "connection reset"


@pytest.mark.parametrize(
    ("orderly", "why"), [(True, "the gateway has closed the connection"), (False, "connection reset")]
)
async def test_who_waits_for_a_gateway_that_goes_is_told_why(orderly: bool, why: str) -> None:
    async with ends() as made:
        await made.editor.send([HELLO, PROMPT])
        await made.gateway.receive()
        await made.gateway.send([ANSWERS[0]])
        await made.editor.receive()
        if orderly:
            await made.gateway.aclose()
        else:
            made.gateway.cut()
        (failed,) = await told(made.editor)
        assert (failed["id"], failed["error"]) == ("turn", {"code": -32603, "message": why})
        assert await made.over() == why


async def test_whoever_waits_for_what_is_too_large_is_told_so() -> None:
    async with ends() as made:
        too_large = "longer than 10 bytes"
        made.editor.inject(Unreadable(too_large, PROMPT, 11))
        (refused,) = await told(made.editor)
        assert (refused["id"], refused["error"]) == ("turn", {"code": -32600, "message": too_large})
        made.editor.inject(Unreadable(too_large, message(id=7, result="the file"), 11))
        (failed,) = await told(made.gateway)
        assert (failed["id"], failed["error"]["message"]) == (7, too_large), "the agent need not wait for the file"
        made.gateway.inject(Unreadable(too_large, b'{"result":{"a":"', 11, b'"},"jsonrpc":"2.0","id":0}'))
        (failed,) = await told(made.editor)
        assert (failed["id"], failed["error"]["message"]) == (0, too_large)
