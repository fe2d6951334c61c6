"""`gateway.transport.rpc.Peer`: who asks is answered, in order, both ways at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from gateway.core.errors import AgentGone, AgentTimeout, Conflict
from gateway.transport.rpc import Peer, outgoing
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id, RpcError
from tests.support import aio
from tests.support.pipes import EagerPipe, pair
from tests.support.rpc import Recorder, hear, one, say, settled, two, value


def cancel_request(id: Id) -> tuple[str, Any]:
    return "$/cancel_request", {"requestId": id}


async def test_a_request_is_answered_with_the_result() -> None:
    async with two() as (a, b):
        assert value(await a.request("echo", {"n": 1})) == {"n": 1}
        assert value(await b.request("echo", Raw(b'{ "n": 1.10 }'))) == {"n": 1.1}
        assert value(await a.request("echo")) is None


async def test_the_same_id_lives_both_ways_and_is_never_confused() -> None:
    release = asyncio.Event()

    async def slow(params: Raw, id: Id) -> Any:
        assert id == 1
        await release.wait()
        return {"for": value(params)}

    async with two(Recorder(ask=slow), Recorder(ask=slow)) as (a, b):
        ours, theirs = asyncio.create_task(a.request("ask", "a")), asyncio.create_task(b.request("ask", "b"))
        await settled()
        release.set()
        assert value(await ours) == {"for": "a"}
        assert value(await theirs) == {"for": "b"}


async def test_a_request_whose_id_is_one_of_ours_is_no_answer() -> None:
    async with one() as (peer, far):
        ids: list[Id] = []
        asked = asyncio.create_task(peer.request("m", named=ids.append))
        assert await hear(far, 1) == [{"jsonrpc": "2.0", "id": 1, "method": "m"}]
        assert ids == [1]
        await say(far, {"jsonrpc": "2.0", "id": 1, "method": "echo", "params": "?", "result": "trap"})
        assert await hear(far, 1) == [{"jsonrpc": "2.0", "id": 1, "result": "?"}]
        assert not asked.done()
        await say(far, {"jsonrpc": "2.0", "id": 1, "result": "!"})
        assert value(await asked) == "!"


async def test_an_id_is_answered_with_its_type_and_ours_are_found_by_type() -> None:
    async with one() as (peer, far):
        for id in ("1", "b9e1", None, 1.5, 2**80):
            await say(far, {"jsonrpc": "2.0", "id": id, "method": "echo", "params": []})
            assert await hear(far, 1) == [{"jsonrpc": "2.0", "id": id, "result": []}]
        asked = asyncio.create_task(peer.request("m"))
        await hear(far, 1)
        await say(far, {"jsonrpc": "2.0", "id": "1", "result": "a string's"}, {"id": 1, "result": "ours"})
        assert value(await asked) == "ours"
        assert peer.counts.unknown == 1


async def test_an_answer_comes_after_the_notifications_before_it_and_before_those_after_it() -> None:
    heard = Recorder()
    async with one(heard) as (peer, far):

        async def ask() -> None:
            heard.heard.append(("answer", value(await peer.request("prompt"))))

        for slow in (False, True):
            heard.hold = asyncio.Event() if slow else None
            heard.heard.clear()
            asked = asyncio.create_task(ask())
            [request] = await hear(far, 1)
            before, after = ({"jsonrpc": "2.0", "method": "update", "params": n} for n in ("before", "after"))
            await say(far, before, before, {"jsonrpc": "2.0", "id": request["id"], "result": "end"}, after)
            await settled()
            if heard.hold:
                assert heard.heard == [("notify", "update", "before")]
                heard.hold.set()
            await asked
            await settled()
            assert [last for *_, last in heard.heard] == ["before", "before", "end", "after"]


async def test_a_request_has_run_to_its_first_wait_when_a_cancel_that_follows_it_is_handled() -> None:
    class Agent(Recorder):
        peer: Peer

        def notification(self, method: str, params: Raw) -> None:
            self.heard.append(("busy", dict(self.turns)))
            for turn in self.turns.values():
                turn.set_result("cancelled")

        def __init__(self) -> None:
            super().__init__(prompt=self.prompt)
            self.turns: dict[Id, asyncio.Future[str]] = {}

        async def prompt(self, params: Raw, id: Id) -> Any:
            turn = self.turns[id] = asyncio.get_running_loop().create_future()
            return {"stopReason": await turn}

    async with one(Agent()) as (_, far):
        prompt = {"jsonrpc": "2.0", "id": 5, "method": "prompt"}
        await say(far, prompt, {"jsonrpc": "2.0", "method": "cancel"})
        assert await hear(far, 1) == [{"jsonrpc": "2.0", "id": 5, "result": {"stopReason": "cancelled"}}]


async def test_a_question_that_waits_blocks_nobody_else() -> None:
    async def forever(params: Raw, id: Id) -> Any:
        await asyncio.Event().wait()

    async with two(right=Recorder(wait=forever)) as (a, b):
        waiting = [asyncio.create_task(a.request("wait")) for _ in range(50)]
        assert value(await a.request("echo", 1)) == 1
        assert value(await b.request("echo", 2)) == 2
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


# --- errors ------------------------------------------------------------------------------------------------------


async def test_an_error_answer_is_raised_whole_and_one_raised_is_answered_whole() -> None:
    async def refuse(params: Raw, id: Id) -> Any:
        raise RpcError(-32000, "log in first", {"methods": ["a"]})

    async with two(right=Recorder(m=refuse)) as (a, _):
        with pytest.raises(RpcError) as caught:
            await a.request("m")
        error = caught.value.error
        assert (error.code, error.message, value(error.data)) == (-32000, "log in first", {"methods": ["a"]})


def test_what_a_handler_raises_is_answered_as_the_adapter_says(caplog: pytest.LogCaptureFixture) -> None:
    async def conflict(params: Raw, id: Id) -> Any:
        raise Conflict("busy", detail="private")

    async def defect(params: Raw, id: Id) -> Any:
        raise KeyError("private")

    async def unsayable(params: Raw, id: Id) -> Any:
        return object()

    async def worse(params: Raw, id: Id) -> Any:
        raise RpcError(1, "x", object())

    handler = Recorder(conflict=conflict, defect=defect, unsayable=unsayable, worse=worse)

    def table(error: Exception) -> ErrorObject:
        return ErrorObject(-7, f"{type(error).__name__}")

    async def codes(**options: Any) -> list[tuple[int, str]]:
        async with one(handler, **options) as (_, far):
            found = []
            for method in ("conflict", "defect", "unsayable", "worse"):
                await say(far, {"jsonrpc": "2.0", "id": 1, "method": method})
                [answer] = await hear(far, 1)
                found.append((answer["error"]["code"], answer["error"]["message"]))
            return found

    internal = (jsonrpc.INTERNAL_ERROR, "internal error")
    assert aio.run(codes()) == [(jsonrpc.INTERNAL_ERROR, "busy"), internal, internal, (-32603, "x")]
    assert aio.run(codes(errors=table)) == [(-7, "Conflict"), (-7, "KeyError"), (-7, "TypeError"), (-32603, "x")]
    assert "KeyError: 'private'" in caplog.text


def test_a_notification_handler_that_fails_is_logged_and_the_next_message_handled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Faulty(Recorder):
        def notification(self, method: str, params: Raw) -> Any:
            raise ZeroDivisionError(method)

    async def main() -> None:
        async with two(right=Faulty()) as (a, _):
            a.notify("n")
            assert value(await a.request("echo", 1)) == 1

    aio.run(main())
    assert "ZeroDivisionError" in caplog.text


# --- giving up ---------------------------------------------------------------------------------------------------


async def test_a_request_that_is_not_answered_in_time_fails_and_says_so_if_told_to() -> None:
    async with one() as (peer, far):
        with pytest.raises(AgentTimeout, match=r"the right end did not answer m within 0\.01 seconds"):
            await peer.request("m", timeout=0.01)
        with pytest.raises(AgentTimeout):
            await peer.request("m", timeout=0.01, cancel=cancel_request)
        sent = await hear(far, 3)
        assert [m["method"] for m in sent] == ["m", "m", "$/cancel_request"]
        assert sent[2]["params"] == {"requestId": 2}
        await say(far, {"id": 2, "error": {"code": -32800, "message": "cancelled"}}, {"id": 77, "result": 1})
        await say(far, {"jsonrpc": "2.0", "id": 1, "method": "echo"})
        assert (await hear(far, 1))[0]["id"] == 1
        assert (peer.counts.late, peer.counts.unknown) == (1, 1)
        assert peer.pending == 0


@aio.on(aio.Still)
async def test_an_answer_that_comes_as_the_time_runs_out_is_taken() -> None:
    async with one() as (peer, far):
        asking = asyncio.create_task(peer.request("m", timeout=3, cancel=cancel_request))
        await hear(far, 1)
        far.inject(b'{"id":1,"result":"just in time"}')
        clock = asyncio.get_running_loop()
        assert isinstance(clock, aio.Clock)
        clock.ahead += 4  # both are due in the next turn of the loop
        assert value(await asking) == "just in time"
        await say(far, {"jsonrpc": "2.0", "id": 9, "method": "echo"})
        assert [m.get("id") for m in await hear(far, 1)] == [9]


async def test_who_is_cancelled_while_asking_tells_the_other_end_if_told_to() -> None:
    async with one() as (peer, far):
        asking = [asyncio.create_task(peer.request("m", cancel=how)) for how in (None, cancel_request)]
        await hear(far, 2)
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        assert all(task.cancelled() for task in asking)
        assert peer.pending == 0
        assert await hear(far, 1) == [{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 2}}]


async def test_an_answer_that_comes_with_the_cancel_is_not_cancelled_upstream() -> None:
    async with one() as (peer, far):
        asking = asyncio.create_task(peer.request("m", cancel=cancel_request))
        await hear(far, 1)
        await say(far, {"id": 1, "error": {"code": 1, "message": "no"}})
        await asyncio.sleep(0)  # the reader is woken
        await asyncio.sleep(0)  # and has answered; who asked has not run yet
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError, RpcError):
            await asking
        await say(far, {"jsonrpc": "2.0", "id": 9, "method": "echo"})
        assert [m.get("id") for m in await hear(far, 1)] == [9]


async def test_an_incoming_request_can_be_cancelled_and_is_answered() -> None:
    class Agent(Recorder):
        peer: Peer

        def notification(self, method: str, params: Raw) -> None:
            self.heard.append(("found", self.peer.cancel_incoming(value(params)["requestId"])))

    async def forever(params: Raw, id: Id) -> Any:
        await asyncio.Event().wait()

    cleaned = asyncio.Event()

    async def politely(params: Raw, id: Id) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await cleaned.wait()  # a second cancel must not hit this
            return {"stopReason": "cancelled"}

    agent = Agent(forever=forever, politely=politely)
    async with one(agent) as (peer, far):
        agent.peer = peer

        def cancel(id: Any) -> Any:
            return {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}}

        await say(far, {"jsonrpc": "2.0", "id": "1", "method": "forever"})
        await say(far, {"jsonrpc": "2.0", "id": 1, "method": "politely"})
        await say(far, cancel(True), cancel(2), cancel(1))
        await settled()
        await say(far, cancel(1))
        await settled()
        cleaned.set()
        assert await hear(far, 1) == [{"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "cancelled"}}]
        await say(far, cancel("1"), cancel("1"))
        [answer] = await hear(far, 1)
        assert (answer["id"], answer["error"]["code"]) == ("1", jsonrpc.REQUEST_CANCELLED)
        found = [found for kind, found, *_ in agent.heard if kind == "found"]
        assert found == [False, False, True, True, True, True]
        await settled()
        assert not peer.cancel_incoming("1")


async def test_a_cancelled_request_cleans_up_undisturbed_by_the_end_of_the_connection() -> None:
    cleaned, done = asyncio.Event(), asyncio.Event()

    async def politely(params: Raw, id: Id) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            await cleaned.wait()
            done.set()

    async with one(Recorder(politely=politely)) as (peer, far):
        await say(far, {"jsonrpc": "2.0", "id": 1, "method": "politely"})
        await settled()
        assert peer.cancel_incoming(1)
        closing = asyncio.create_task(peer.aclose())
        await settled()
        cleaned.set()
        await closing
        assert done.is_set()


# --- going out -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eager", [False, True])
async def test_what_a_turn_of_the_loop_says_goes_out_in_one_write_in_order(
    eager: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "PAUSE", 60.0)  # whatever this machine is at, no pause

    async with one(eager=eager) as (peer, far):
        assert isinstance(peer.pipe, type(far))
        peer.notify("n", ["first"])
        await hear(far, 1)
        peer.pipe.record = True
        for n in range(100):
            peer.notify("n", [n])
        asked = asyncio.create_task(peer.request("m"))
        await asyncio.sleep(0)
        peer.notify("n", ["last"])
        assert [m.get("params", ["asked"])[0] for m in await hear(far, 102)] == [*range(100), "asked", "last"]
        assert [len(messages) for messages in peer.pipe.sends] == [100, 2]
        asked.cancel()


async def test_what_is_said_after_a_pause_goes_out_at_once_and_what_follows_it_in_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outgoing, "PAUSE", 60.0)

    async with one(eager=True) as (peer, far):
        assert isinstance(peer.pipe, EagerPipe)
        peer.pipe.record = True
        await settled()
        for n in range(3):
            peer.notify("n", [n])
        assert [len(messages) for messages in peer.pipe.sends] == [1]
        await settled()
        assert [len(messages) for messages in peer.pipe.sends] == [1, 2]
        monkeypatch.setattr(outgoing, "PAUSE", 0.0)
        assert [m["params"] for m in await hear(far, 3)] == [[0], [1], [2]]


@pytest.mark.parametrize("eager", [False, True])
async def test_a_producer_waits_while_the_other_end_does_not_read_and_memory_stays_bounded(eager: bool) -> None:
    async with one(limit=1000, queue_bytes=10_000, grace=0.2, eager=eager) as (peer, far):
        said = 0

        async def produce() -> None:
            nonlocal said
            while True:
                peer.notify("n", "x" * 100)
                said += 1
                await peer.drain()

        producing = asyncio.create_task(produce())
        await settled(500)
        stuck = said
        await settled(500)
        assert said == stuck < 200
        await hear(far, stuck)
        await settled(50)
        assert said > stuck
        producing.cancel()
        await asyncio.wait([producing])


async def test_a_flood_of_notifications_waits_for_a_slow_handler_and_memory_stays_bounded() -> None:
    slow = Recorder()
    slow.hold = asyncio.Event()
    async with two(right=slow, limit=2000, queue_bytes=2000) as (a, b):

        async def flood() -> None:
            for n in range(2000):
                a.notify("n", n)
                await a.drain()

        flooding = asyncio.create_task(flood())
        await settled(300)
        assert len(slow.heard) == 1
        assert not flooding.done()
        slow.hold.set()
        await flooding
        assert value(await a.request("echo", 1)) == 1
        assert [n for _, _, n in slow.heard] == [*range(2000), 1]
        assert b.pipe.most_unread < 5000  # type: ignore[attr-defined]


async def test_what_an_eager_pipe_takes_needs_no_task_and_what_it_does_not_take_is_sent_in_order() -> None:
    async with one(limit=1000, eager=True) as (peer, far):
        assert isinstance(peer.pipe, EagerPipe)
        peer.pipe.record = True
        for n in range(3):
            peer.notify("n", ["x" * 600, n])
            await settled()
        large = "x" * (64 * 1024)
        peer.notify("n", [large, 3])
        peer.notify("n", ["", 4])
        assert [m["params"][1] for m in await hear(far, 5)] == [0, 1, 2, 3, 4]
        assert [len(messages) for messages in peer.pipe.sends] == [1, 1, 1, 2]
        far.cut()
        await settled()
        with pytest.raises(AgentGone):
            while True:
                peer.notify("n")
                await settled()


STEPS = st.lists(st.sampled_from(["ask", "tell", "fail", "turn", "slow"]), min_size=1, max_size=25)


@settings(deadline=None, max_examples=150)
@given(STEPS, STEPS, st.integers(20, 5000), st.booleans())
def test_whatever_two_peers_say_at_once_all_is_answered_and_in_order(
    left: Any, right: Any, limit: int, eager: bool
) -> None:
    async def fail(params: Raw, id: Id) -> Any:
        raise RpcError(value(params), "failed")

    async def slow(params: Raw, id: Id) -> Any:
        for _ in range(value(params) % 5):
            await asyncio.sleep(0)
        return params

    async def play(peer: Peer, steps: list[str]) -> list[Any]:
        answers: list[Any] = []

        async def ask(method: str, n: int) -> None:
            try:
                answers.append((n, value(await peer.request(method, n))))
            except RpcError as error:
                answers.append((n, error.error.code))

        async with asyncio.TaskGroup() as group:
            for n, step in enumerate(steps):
                if step == "turn":
                    await asyncio.sleep(0)
                elif step == "tell":
                    peer.notify(step, n)
                    await peer.drain()
                else:
                    group.create_task(ask(step, n))
                    await asyncio.sleep(0)
        return sorted(answers)

    async def main() -> None:
        handlers = [Recorder(fail=fail, slow=slow) for _ in range(2)]
        async with two(*handlers, limit=limit, queue_bytes=limit, eager=eager) as (a, b):
            for steps, answers in zip((left, right), await asyncio.gather(play(a, left), play(b, right)), strict=True):
                asked = [n for n, step in enumerate(steps) if step in ("ask", "fail", "slow")]
                assert answers == [(n, n) for n in asked]
            await asyncio.gather(a.request("done"), b.request("done"))
            for steps, handler in zip((right, left), handlers, strict=True):
                assert [n for *_, n in handler.heard[:-1]] == [n for n, step in enumerate(steps) if step != "turn"]
            assert (a.counts.late, a.counts.unknown, a.counts.unreadable) == (0, 0, 0)

    aio.run(main())


async def test_a_peer_that_was_never_started_closes_its_pipe() -> None:
    here, there = pair()
    peer = Peer(here, Recorder())
    peer.notify("lost")
    await peer.aclose()
    assert here.closed and peer.closed
    assert await there.receive() == []
    with pytest.raises(AgentGone):
        peer.notify("n")


async def test_what_is_sent_in_the_turn_of_the_loop_in_which_a_connection_is_closed_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outgoing, "PAUSE", 60.0)

    async with one(eager=True) as (peer, far):
        peer.notify("first")
        closing = asyncio.create_task(peer.aclose())
        asyncio.get_running_loop().call_soon(peer.notify, "last")
        assert [message["method"] for message in await hear(far, 2)] == ["first", "last"]
        await closing


async def test_every_line_that_goes_out_is_one_json_text() -> None:
    async with one() as (peer, far):
        peer.notify("n", Raw(b'{\n"a":\r\n"\\n"}'))
        [data] = await far.receive()
        assert isinstance(data, bytes)
        assert json.loads(data)["params"] == {"a": "\n"}
        assert len(data.splitlines()) == 1
