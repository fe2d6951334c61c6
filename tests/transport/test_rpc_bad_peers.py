"""`gateway.transport.rpc.Peer` with an other end that prints garbage, floods, half-closes or dies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from gateway.core.errors import AgentBroken, AgentGone
from gateway.transport.pipe import Unreadable
from gateway.transport.rpc import Peer
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id, Request, RpcError
from tests.support import aio
from tests.support.pipes import pair
from tests.support.rpc import Recorder, hear, one, say, settled, two, value


async def forever(params: Raw, id: Id) -> Any:
    await asyncio.Event().wait()


ECHO = {"jsonrpc": "2.0", "id": "e", "method": "echo", "params": 1}
ECHOED = {"jsonrpc": "2.0", "id": "e", "result": 1}

# name: (what comes, the code and id that it is answered with, if garbage is answered)
GARBAGE: dict[str, tuple[bytes, tuple[int, Any]]] = {
    "words": (b"Starting up...", (jsonrpc.PARSE_ERROR, None)),
    "a log line in JSON": (b'{"level":"info"}', (jsonrpc.INVALID_REQUEST, None)),
    "only an id": (b'{"id":12}', (jsonrpc.INVALID_REQUEST, None)),
    "an array": (b'[{"jsonrpc":"2.0","id":1,"method":"echo"}]', (jsonrpc.INVALID_REQUEST, None)),
    "too deep": (b"[" * 50_000, (jsonrpc.PARSE_ERROR, None)),
}
# the same of what is answered in any case
REQUESTS: dict[str, tuple[bytes | Unreadable, tuple[int, Any]]] = {
    "a batch of no request": (b" [ ]", (jsonrpc.INVALID_REQUEST, None)),
    "a request without version": (b'{"id":3,"method":"echo"}', (jsonrpc.INVALID_REQUEST, 3)),
    "a request that is no UTF-8": (
        b'{"jsonrpc":"2.0","id":"3","method":"echo","params":"\xff"}',
        (jsonrpc.PARSE_ERROR, "3"),
    ),
    "a request over the limit": (
        Unreadable("over the limit", b'{"jsonrpc":"2.0","id":3,"method":"echo","params":{"a":"', 10**8),
        (jsonrpc.INVALID_REQUEST, 3),
    ),
    "a request over the limit with its id last": (
        Unreadable("over the limit", b'{"method":"echo","params":{"a":"', 10**8, b'"},"jsonrpc":"2.0","id":3}'),
        (jsonrpc.INVALID_REQUEST, 3),
    ),
    "a request that is no UTF-8 with its id last": (
        b'{"method":"echo","params":{"a":"\xff"},"jsonrpc":"2.0","id":3}',
        (jsonrpc.PARSE_ERROR, 3),
    ),
}


@pytest.mark.parametrize("name", [*GARBAGE, *REQUESTS])
async def test_garbage_is_answered_where_it_is_safe_and_reported_and_survived(name: str) -> None:
    data, (code, id) = (GARBAGE | REQUESTS)[name]

    for answered in (True, False):
        handler = Recorder()
        async with one(handler, answer_garbage=answered) as (peer, far):
            far.inject(data)
            if answered or name in REQUESTS:
                [answer] = await hear(far, 1)
                assert (answer["error"]["code"], answer["id"]) == (code, id)
            await say(far, ECHO)
            assert await hear(far, 1) == [ECHOED]
            assert [kind for kind, *_ in handler.heard] == ["unreadable", "request"]
            assert peer.counts.unreadable == 1


async def test_a_batch_of_no_request_is_answered_by_one_error_and_no_array_whether_batches_are_taken_or_not() -> None:
    for taken in (True, False):
        async with one(answer_garbage=False, batches=taken) as (_, far):
            far.inject(b"[]")
            error = {"code": jsonrpc.INVALID_REQUEST, "message": "an empty array"}
            assert await hear(far, 1) == [{"jsonrpc": "2.0", "id": None, "error": error}]


async def test_what_is_no_json_at_all_over_the_limit_is_only_reported() -> None:
    handler = Recorder()
    async with one(handler) as (_, far):
        far.inject(Unreadable("over the limit", b"\x89PNG", 10**8))
        far.inject(Unreadable("a binary message", b"", 10))
        await say(far, ECHO)
        assert await hear(far, 1) == [ECHOED]
        assert [reason for _, reason, *_ in handler.heard] == ["over the limit", "a binary message", "echo"]


async def test_an_answer_that_cannot_be_read_fails_who_waits_for_it_and_nobody_else() -> None:
    unreadable: list[bytes | Unreadable] = [
        b'{"jsonrpc":"2.0","id":%d,"result":"\xff"}',
        b'{"jsonrpc":"2.0","id":%d,"result":{"a":1',
        b'{"jsonrpc":"2.0","id":%d,"result":{"a":[1e400]}}',
        rb'{"jsonrpc":"2.0","id":%d,"result":["\ud83d",-1e400]}',
        b'{"result":"\xff","jsonrpc":"2.0","id":%d}',
        b'{"result":' + b"[" * 100_000 + b"]" * 100_000 + b',"id":%d}',
        Unreadable("over the limit", b'{"jsonrpc":"2.0","id":%d,"result":{"content":"', 10**8),
    ]

    async with one() as (peer, far):
        other = asyncio.create_task(peer.request("m"))
        await hear(far, 1)
        for bad in unreadable:
            asking = asyncio.create_task(peer.request("m"))
            id = (await hear(far, 1))[0]["id"]
            far.inject(bad % id if isinstance(bad, bytes) else Unreadable(bad.reason, bad.start % id, bad.size))
            with pytest.raises(AgentBroken, match="cannot be read"):
                await asking
        far.inject(b'{"jsonrpc":"2.0","id":99,"result":"\xff"}')
        assert not other.done()
        await say(far, {"id": 1, "result": 1})
        assert value(await other) == 1


async def test_odd_answers_are_answers() -> None:
    async with one() as (peer, far):
        for odd, expected in (({}, None), ({"result": 1, "error": None}, 1)):
            asking = asyncio.create_task(peer.request("m"))
            id = (await hear(far, 1))[0]["id"]
            await say(far, {"jsonrpc": "2.0", "id": id, **odd})
            assert value(await asking) == expected
        asking = asyncio.create_task(peer.request("m"))
        id = (await hear(far, 1))[0]["id"]
        await say(far, {"id": id, "error": "boom"})
        with pytest.raises(RpcError, match="boom"):
            await asking


async def test_a_second_answer_and_one_to_nothing_are_counted_and_nothing_else() -> None:
    async with one() as (peer, far):
        asking = asyncio.create_task(peer.request("m"))
        await hear(far, 1)
        await say(far, {"id": 1, "result": 1}, {"id": 1, "result": 2}, {"id": "x", "result": 3}, ECHO)
        assert value(await asking) == 1
        assert await hear(far, 1) == [ECHOED]
        assert (peer.counts.late, peer.counts.unknown) == (1, 1)


async def test_a_batch_is_answered_by_one_array_when_the_last_of_it_has_been_answered() -> None:
    gate = asyncio.Event()

    async def wait(params: Raw, id: Id) -> Any:
        await gate.wait()

    handler = Recorder(wait=wait)
    async with one(handler, batches=True) as (_, far):
        slow = {"jsonrpc": "2.0", "id": "slow", "method": "wait"}
        await say(far, [slow, {"jsonrpc": "2.0", "method": "n"}, ECHO, 1, []], {**ECHO, "id": "next"})
        assert [answer["id"] for answer in await hear(far, 1)] == ["next"]
        gate.set()
        (answers,) = await hear(far, 1)
        assert ECHOED in answers and len(answers) == 4
        assert [a["error"]["code"] for a in answers if "error" in a] == [-32600, -32600]
        assert [a["id"] for a in answers if "result" in a] == [ECHO["id"], "slow"]


async def test_a_batch_of_notifications_is_answered_by_nothing() -> None:
    handler = Recorder()
    async with one(handler, batches=True) as (_, far):
        await say(far, [{"jsonrpc": "2.0", "method": "n"}, {"jsonrpc": "2.0", "method": "m"}], ECHO)
        assert await hear(far, 1) == [ECHOED]
        assert [heard[1] for heard in handler.heard if heard[0] == "notify"] == ["n", "m"]


async def test_an_answer_in_a_batch_that_is_refused_is_still_an_answer() -> None:
    async with one() as (peer, far):
        asking = asyncio.create_task(peer.request("m"))
        await hear(far, 1)
        await say(far, [{"id": 1, "result": 7}, ECHO])
        assert value(await asking) == 7
        assert (await hear(far, 1))[0]["error"]["code"] == jsonrpc.INVALID_REQUEST


async def test_more_requests_than_may_be_under_way_are_answered_with_an_error() -> None:
    async with one(Recorder(wait=forever), concurrency=3) as (peer, far):
        await say(far, *({"jsonrpc": "2.0", "id": n, "method": "wait"} for n in range(5)))
        answers = await hear(far, 2)
        assert [(a["id"], a["error"]["code"]) for a in answers] == [(3, -32603), (4, -32603)]
        assert peer.counts.refused == 2
        assert peer.cancel_incoming(0)
        await hear(far, 1)
        await say(far, ECHO)
        assert await hear(far, 1) == [ECHOED]


async def test_a_handler_that_traces_requests_is_told_of_one_that_is_refused() -> None:
    class Witness(Recorder):
        def refused(self, request: Request, error: ErrorObject) -> None:
            self.heard.append(("refused", request.method, error.code))

    handler = Witness(wait=forever)
    async with one(handler, concurrency=1) as (_, far):
        await say(far, *({"jsonrpc": "2.0", "id": n, "method": name} for n, name in enumerate(("wait", "echo"))))
        await hear(far, 1)
        assert ("refused", "echo", -32603) in handler.heard


@pytest.mark.parametrize("flood", ["requests", "garbage"])
async def test_who_floods_and_reads_nothing_is_given_up(flood: str) -> None:
    message = b'{"jsonrpc":"2.0","id":1,"method":"wait"}' if flood == "requests" else b"garbage"
    async with one(Recorder(wait=forever), concurrency=5, limit=500, queue_bytes=500, grace=0.05) as (peer, far):
        with pytest.raises(AgentGone):
            while True:
                await far.send([message])
        why = await peer.wait_closed()
        assert "does not read" in str(why)
        assert far.most_unread < 1000


async def test_answers_to_who_reads_nothing_are_bounded_by_the_requests_under_way() -> None:
    handler = Recorder()
    async with one(handler, concurrency=10, limit=500, queue_bytes=500, grace=0.05) as (peer, far):
        with pytest.raises(AgentGone):
            while True:
                await far.send([b'{"jsonrpc":"2.0","id":1,"method":"echo","params":"%b"}' % (b"x" * 100)])
        await peer.wait_closed()
        assert len(handler.heard) < 40


# --- the end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closes", "breaks"])
async def test_when_the_other_end_goes_all_who_wait_learn_why(how: str) -> None:
    cancelled = asyncio.Event()

    async def work(params: Raw, id: Id) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with one(Recorder(work=work)) as (peer, far):
        asking = [asyncio.create_task(peer.request("m")) for _ in range(3)]
        await hear(far, 3)
        await say(far, {"jsonrpc": "2.0", "id": 1, "method": "work"})
        await settled()
        if how == "closes":
            await far.aclose()
        else:
            far.cut("connection reset")
        for task in asking:
            with pytest.raises(AgentGone, match="closed the connection" if how == "closes" else "reset"):
                await task
        why = await peer.wait_closed()
        assert peer.closed and peer.gone is why and cancelled.is_set() and peer.pipe.closed  # type: ignore[attr-defined]
        with pytest.raises(AgentGone):
            await peer.request("m")
        with pytest.raises(AgentGone):
            peer.notify("m")
        with pytest.raises(AgentGone):
            await peer.drain()


async def test_what_arrived_before_the_end_is_handled() -> None:
    handler = Recorder()
    async with one(handler) as (peer, far):
        asking = asyncio.create_task(peer.request("m"))
        await hear(far, 1)
        await say(far, {"jsonrpc": "2.0", "method": "n", "params": 1}, {"id": 1, "result": 2})
        await far.aclose()
        assert value(await asking) == 2
        assert handler.heard == [("notify", "n", 1)]


async def test_what_an_agent_said_before_it_stopped_listening_is_still_read() -> None:
    async with one(grace=5.0) as (peer, far):
        asking = asyncio.create_task(peer.request("prompt"))
        await hear(far, 1)
        far.deafen()
        peer.notify("cancel")
        await settled()
        with pytest.raises(AgentGone):
            peer.notify("cancel")
        await say(far, {"id": 1, "result": "done"})
        assert value(await asking) == "done"


async def test_an_agent_that_stopped_listening_and_says_nothing_is_given_up_after_a_while() -> None:
    async with one(grace=0.05) as (peer, far):
        asking = asyncio.create_task(peer.request("prompt"))
        await hear(far, 1)
        far.deafen()
        peer.notify("cancel")
        with pytest.raises(AgentGone):
            await asking
        await peer.wait_closed()


async def test_a_client_that_half_closes_gets_its_answers_if_told_to_linger() -> None:
    async def slow(params: Raw, id: Id) -> Any:
        await asyncio.sleep(0.02)
        return params

    async with one(Recorder(slow=slow), linger=5.0) as (peer, far):
        await say(far, {"jsonrpc": "2.0", "id": 1, "method": "slow", "params": 5})
        far.half_close()
        assert await hear(far, 1) == [{"jsonrpc": "2.0", "id": 1, "result": 5}]
        await peer.wait_closed()

    async with one(Recorder(wait=forever), linger=0.02) as (peer, far):
        await say(far, {"jsonrpc": "2.0", "id": 1, "method": "wait"})
        far.half_close()
        await peer.wait_closed()
        assert await hear(far, 1) == []


async def test_closing_writes_what_waits_and_cuts_short_what_lingers() -> None:
    async with one(Recorder(wait=forever), linger=60.0) as (peer, far):
        await say(far, {"jsonrpc": "2.0", "id": 1, "method": "wait"})
        far.half_close()
        await settled()
        peer.notify("last")
        await peer.aclose()
        assert [m["method"] for m in await hear(far, 1)] == ["last"]


async def test_closing_cuts_short_what_an_answered_request_has_begun() -> None:
    async with one(linger=1000.0) as (peer, far):
        begun = asyncio.get_running_loop().create_future()
        peer.linger_for(begun)
        far.half_close()
        await settled()
        assert peer.gone is not None and not peer.closed
        async with asyncio.timeout(20.0):
            await peer.aclose()
        assert not begun.done(), "whoever began it ends it"


async def test_closing_waits_for_a_reader_that_is_slow_but_reads() -> None:
    async with one(limit=10) as (peer, far):
        said = ["a" * 100, "b" * 100]
        for method in said:
            peer.notify(method)
        await settled()  # the first two are on their way, and stuck
        peer.notify("c")
        closing = asyncio.create_task(peer.aclose())
        await settled()
        assert [m["method"] for m in await hear(far, 3)] == [*said, "c"]
        await closing


async def test_a_handler_may_close_its_own_connection() -> None:
    class Closer(Recorder):
        peer: Peer

        async def request(self, method: str, params: Raw, id: Id) -> Any:
            await self.peer.aclose()

        def notification(self, method: str, params: Raw) -> Any:
            return self.peer.aclose()

    for message in ({"jsonrpc": "2.0", "id": 1, "method": "m"}, {"jsonrpc": "2.0", "method": "m"}):
        handler = Closer()
        async with one(handler) as (peer, far):
            handler.peer = peer
            await say(far, message)
            assert await far.receive() == []
            await peer.wait_closed()


def test_closing_is_bounded_though_nobody_reads_and_a_handler_will_not_end(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()

    async def stubborn(params: Raw, id: Id) -> Any:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        async with one(Recorder(wait=stubborn), limit=10, grace=0.05) as (peer, far):
            await say(far, {"jsonrpc": "2.0", "id": 1, "method": "wait"})
            await settled()
            peer.notify("a" * 100)
            peer.notify("b" * 100)
            await asyncio.wait_for(peer.aclose(), 30)
            release.set()

    aio.run(main())
    assert "ignores its cancellation" in caplog.text


async def test_run_sees_a_connection_to_its_end_and_closes_it_when_cancelled() -> None:
    here, there = pair()
    running = asyncio.create_task(Peer(here, Recorder(), grace=0.5).run())
    await say(there, ECHO)
    assert await hear(there, 1) == [ECHOED]
    await there.aclose()
    assert "closed the connection" in str(await running)

    here, there = pair()
    running = asyncio.create_task(Peer(here, Recorder(), grace=0.5).run())
    await settled()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert here.closed


async def test_a_pipe_that_takes_its_time_to_close_is_waited_for() -> None:
    here, _ = pair()
    close, go, closed = here.aclose, asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        await go.wait()
        await close()
        closed.set()

    here.aclose = slowly  # type: ignore[method-assign]
    peer = Peer(here, Recorder(), grace=0.001)
    peer.start()
    closing = asyncio.ensure_future(peer.aclose())
    await asyncio.wait([closing], timeout=0.1)
    assert not closing.done()
    go.set()
    await asyncio.wait_for(closing, 30)
    assert closed.is_set()


def test_a_pipe_that_fails_in_its_own_way_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        for broken in ("receive", "send"):
            here, there = pair()

            async def fail(*_: Any) -> Any:
                raise ZeroDivisionError

            setattr(here, broken, fail)
            peer = Peer(here, Recorder(), grace=0.05)
            async with peer:
                with pytest.raises(AgentGone, match="failed"):
                    await peer.request("m")
                await peer.wait_closed()
            assert await there.receive() in ([], [jsonrpc.request(1, "m")])

    aio.run(main())
    assert "ZeroDivisionError" in caplog.text


async def test_many_connections_come_and_go_and_leave_nothing() -> None:
    async def talk() -> None:
        async with two() as (a, b):
            await asyncio.gather(a.request("echo"), b.request("echo"))

    for _ in range(50):
        await talk()
