"""Agents that lie, stammer, stall and die: each gives the right error, in words, and nothing that came is lost."""

from __future__ import annotations

import json

import pytest

from adapters.agent_connect.outbound import follow
from adapters.agent_connect.wire import UPSTREAM_OUTPUT
from gateway.core import events as e
from gateway.core.errors import (
    AgentBroken,
    AgentBusy,
    AgentFailed,
    AgentGone,
    AgentTimeout,
    Conflict,
    InterlinguaError,
    Unsupported,
)
from tests.adapters.agent_connect.outbound_calls import calling
from tests.adapters.agent_connect.scripted_agent import (
    OTHER,
    REF,
    RUN,
    Handler,
    against,
    drops,
    ended,
    event,
    hangs,
    in_turn,
    raised,
    record,
    refuses,
    result,
    says,
    script,
    streams,
    text,
)
from tests.support.aio import Clock, later, run
from tests.support.context import DECLINED, FakeContext, context
from tests.support.raw_http import Exchange, Server, serving

# --- the stream ------------------------------------------------------------------------------------------------


def test_json_where_a_stream_was_asked_for_is_taken_if_it_is_the_output() -> None:
    ctx = ended(script(stream=says(result({"m": "whole"}))))
    assert ctx.output == {"m": "whole"}


def test_json_where_a_stream_was_asked_for_is_taken_if_it_is_the_run() -> None:
    ctx = ended(script(stream=says(text(record())), wait=says(result({"m": "awaited"}))))
    assert ctx.output == {"m": "awaited"}


def test_a_stream_that_is_labelled_json_is_read() -> None:
    ctx = ended(script(stream=streams(event({"m": "x"}, status="success"), kind="application/json")))
    assert ctx.output == {"m": "x"}


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (says(b"{}"), "POST /runs/stream answered with JSON that is neither a stream nor a run"),
        (says(b"[" * 9000), "POST /runs/stream answered with JSON that is neither a stream nor a run"),
        (says(b"<html></html>", kind="text/html"), "POST /runs/stream answered text/html where an event stream"),
        (streams(), "the stream of POST /runs/stream ended before it named a run"),
        (streams(b"nonsense\n\n"), "the stream of POST /runs/stream ended before it named a run"),
    ],
)
def test_an_answer_that_is_no_stream_is_said(stream: Handler, said: str) -> None:
    raised(script(stream=stream), AgentBroken, said)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b'data: {"type": "values", \n\n', "POST /runs/stream sent a message that is not JSON"),
        (b"data: 5\n\n", "POST /runs/stream sent a message that is not a JSON object"),
        (event({"m": "b"}, run_id=OTHER), f"POST /runs/stream sent a message of run {OTHER}, and is of run {RUN}"),
        (b"data: " + b"x" * (16 * 1024 * 1024 + 1), "the agent sent an event of more than 16777216 bytes"),
    ],
)
def test_broken_messages_end_the_run_and_keep_what_came(frame: bytes, said: str) -> None:
    ctx = raised(script(stream=streams(event({"m": "a"}) + frame)), AgentBroken, said)
    assert ctx.snapshots() == [{"m": "a"}]


@pytest.mark.parametrize(("before", "parts"), [(b"", 0), (event({"m": "a"}), 1)], ids=["in one message", "in two"])
def test_a_run_that_comes_whole_in_one_message_is_told_by_its_end_alone(before: bytes, parts: int) -> None:
    body = before + event({"m": "ab"}, status="success")

    async def whole(asked: Exchange) -> None:
        await asked.answer(body, content_type="text/event-stream")

    ctx = ended(script(stream=whole))
    assert ctx.output == {"m": "ab"} and isinstance(ctx.end, e.RunFinished)
    assert sum(isinstance(event, e.PartStarted) for event in ctx.events) == parts


def test_what_a_run_says_is_shown_at_once_while_its_stream_is_open() -> None:
    ctx = ended(script(stream=streams(event({"m": "ab"}, status="success"), then="hang")), idle_timeout=60)
    assert ctx.snapshots() == [{"m": "ab"}] and isinstance(ctx.end, e.RunFinished)


def test_a_stream_is_joined_where_it_broke() -> None:
    there: list[Server] = []
    broken = streams(
        event({"m": "a"}), b'id: 7\ndata: {"type": "heartbeat", "run_id": "%b"}\n\n' % RUN.encode(), then="reset"
    )
    ended(script(stream=broken, join=streams(event({"m": "ab"}, status="success"))), server=there)
    (joined,) = [asked for asked in there[0].seen if asked.method == "GET" and asked.target.endswith("/stream")]
    assert joined.headers["last-event-id"] == "7"


def test_a_stream_that_breaks_before_it_names_the_run_is_no_run() -> None:
    raised(script(stream=streams(b": ping\n\n", then="reset")), AgentGone, "closed the connection in mid-answer")


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_run_whose_name_fits_no_path_is_refused(name: str) -> None:
    raised(script(create=says(text(record(run_id=name)))), AgentBroken, "the agent named the run", stream="never")


def test_a_stream_that_breaks_every_time_is_given_up_for_a_wait() -> None:
    broken = streams(event({"m": "a"}), then="reset")
    there: list[Server] = []
    agent = script(stream=broken, join=drops, wait=says(result({"m": "all"})))
    ctx = ended(agent, server=there, reconnect_timeout=60, idle_timeout=60)
    assert ctx.output == {"m": "all"}
    assert sum(asked.target.endswith("/stream") for asked in there[0].seen) == 4


def test_a_wait_that_breaks_every_time_is_given_up_for_single_looks() -> None:
    async def once_it_is_over(asked: Exchange) -> None:
        await (says(result({"m": "all"})) if looks else drops)(asked)

    async def look(asked: Exchange) -> None:
        looks.append(1)
        await says(text(record("success")))(asked)

    looks: list[int] = []
    ctx = ended(script(create=says(text(record())), wait=once_it_is_over, get=look), stream="never")
    assert ctx.output == {"m": "all"} and looks == [1]


def test_a_stream_that_ends_inside_an_event_is_not_believed() -> None:
    cut = streams(event({"m": "a"}, status="success") + b'data: {"type": "val')
    ctx = ended(script(stream=cut, wait=says(result({"m": "the truth"}))))
    assert ctx.output == {"m": "the truth"}


def test_a_silent_stream_is_left_when_the_run_is_over() -> None:
    silent = streams(event({"m": "a"}), then="hang")
    wait = in_turn(says(b"", "204 No Content"), says(result({"m": "ab"})))
    ctx = ended(script(stream=silent, wait=wait), idle_timeout=0.1)
    assert ctx.output == {"m": "ab"}


def test_a_stream_that_stays_open_after_success_is_left() -> None:
    silent = streams(event({"m": "a"}, status="success"), b": ping\n\n", then="hang")
    ctx = ended(script(stream=silent, wait=says(result({"m": "a"}))), idle_timeout=60)
    assert ctx.output == {"m": "a"}


def test_a_stream_that_goes_on_after_success_is_read_to_its_end() -> None:
    async def speaks_again(asked: Exchange) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        await asked.say(head, event({"m": "a"}, status="success"))
        await later(0.5)
        await asked.say(event({"m": "ab"}))
        await later(0)
        await later(100)
        await asked.say(event({"m": "abc"}, status="success"))
        asked.writer.close()

    ctx = run(against(script(stream=speaks_again), idle_timeout=900), 10_000, loop_factory=Clock)
    assert ctx.snapshots() == [{"m": "a"}, {"m": "ab"}, {"m": "abc"}] and isinstance(ctx.end, e.RunFinished)


def test_an_error_event_is_believed_if_the_agent_knows_no_better() -> None:
    said = text({"type": "error", "run_id": RUN, "errcode": 3, "description": "broke", "status": "error"})
    stream = streams(b"data: " + said + b"\n\n", then="hang")
    ctx = ended(script(stream=stream, wait=refuses("501 No"), get=says(text(record("pending")))))
    assert isinstance(ctx.end, e.RunFailed)
    assert ctx.end.failure.message == "broke" and ctx.end.origin == {"errcode": 3}


def test_an_error_event_is_believed_if_the_agent_keeps_no_runs() -> None:
    said = text({"type": "error", "run_id": RUN, "errcode": 3, "description": "broke", "status": "error"})
    ctx = ended(
        script(
            stream=streams(event({"m": "a"}), b"data: " + said + b"\n\n"), wait=refuses("404 No"), get=refuses("404 No")
        )
    )
    assert isinstance(ctx.end, e.RunFailed) and ctx.end.failure.message == "broke"


def test_a_question_of_an_agent_that_keeps_no_runs_cannot_be_answered() -> None:
    said = text({"type": "interrupt", "run_id": RUN, "status": "interrupted", "interrupt": {"q": "Why?"}})
    stream = streams(event({"m": "a"}), b"data: " + said + b"\n\n")
    raised(
        script(stream=stream, wait=refuses("404 No"), get=refuses("404 No")),
        AgentGone,
        "does not know the run any more",
    )


def test_an_error_before_the_run_has_a_name_is_the_runs_error() -> None:
    ctx = ended(script(stream=streams(b'data: {"type": "error", "description": "broke"}\n\n')))
    assert isinstance(ctx.end, e.RunFailed) and ctx.end.failure.message == "broke"


def unnamed(status: str) -> bytes:
    return b"data: " + text({"type": "values", "status": status, "values": {"m": "all"}}) + b"\n\n"


@pytest.mark.parametrize("then", ["end", "hang"])
def test_a_whole_stream_that_ends_in_success_needs_no_name(then: str) -> None:
    ctx = ended(script(stream=streams(unnamed("pending"), unnamed("success"), then=then)), idle_timeout=60)
    assert isinstance(ctx.end, e.RunFinished) and ctx.output == {"m": "all"}


@pytest.mark.parametrize(
    ("stream", "then"),
    [
        (unnamed("pending"), "end"),
        (unnamed("interrupted"), "end"),
        (unnamed("interrupted"), "hang"),
        (unnamed("success") + b"data: {", "end"),
    ],
)
def test_a_run_without_a_name_whose_stream_leaves_something_open_is_the_agents_fault(stream: bytes, then: str) -> None:
    raised(script(stream=streams(stream, then=then)), AgentBroken, "ended before it named a run")


@pytest.mark.parametrize("data", [b"", b"not JSON", b"5", b'{"type": "error", "description": "broke"}'])
def test_events_of_other_names_are_not_read(data: bytes) -> None:
    other = b"event: ping\ndata: " + data + b"\n\n"
    ctx = ended(script(stream=streams(other, event({"m": "a"}) + other, event({"m": "ab"}, status="success"), other)))
    assert ctx.snapshots() == [{"m": "a"}, {"m": "ab"}] and isinstance(ctx.end, e.RunFinished)


def test_an_event_that_was_cut_off_comes_again_when_the_stream_is_joined() -> None:
    there: list[Server] = []
    cut = event({"m": "ab"}).replace(b"id: 1", b"id: 2")[:-9]
    broken = streams(event({"m": "a"}) + cut, then="reset")
    again = streams(b"data: " + text({"type": "own", "run_id": RUN}) + b"\n\n", then="reset")
    joined = in_turn(again, streams(event({"m": "ab"}, status="success")))
    ended(script(stream=broken, join=joined), server=there)
    heads = [asked.headers for asked in there[0].seen if asked.method == "GET" and asked.target.endswith("/stream")]
    assert [head["last-event-id"] for head in heads] == ["1", "1"]


def test_an_interrupt_event_is_asked_even_if_nobody_can_wait() -> None:
    said = text({"type": "interrupt", "run_id": RUN, "status": "interrupted", "interrupt": {"q": "Why?"}})
    agent = script(
        stream=streams(event({"m": "a"}), b"data: " + said + b"\n\n"),
        wait=refuses("404 Not Found"),
        get=says(text(record("interrupted"))),
        resume=says(text(record())),
        join=streams(event({"m": "because"}, status="success")),
    )
    ctx = ended(agent, answers=["because"])
    assert [i.message for i in ctx.asked] == ["Why?"] and ctx.output == {"m": "because"}


def test_a_question_that_was_answered_is_not_asked_again_by_a_stream_that_says_nothing_more() -> None:
    said = text({"type": "interrupt", "run_id": RUN, "status": "interrupted", "interrupt": {"q": "Why?"}})
    agent = script(
        stream=streams(event({"m": "a"}), b"data: " + said + b"\n\n"),
        wait=in_turn(says(b"", "204 No Content"), says(b"", "204 No Content"), says(result({"m": "because"}))),
        resume=says(text(record())),
        join=streams(),
    )
    ctx = ended(agent, answers=["because"])
    assert len(ctx.asked) == 1 and ctx.output == {"m": "because"}


def test_a_run_that_is_only_begun_may_be_silent_and_one_that_is_joined_may_not() -> None:
    async def slowly(asked: Exchange) -> None:
        await later(200)
        await streams(event({"m": "a"}), then="reset")(asked)

    agent = script(stream=slowly, join=hangs, wait=says(result({"m": "awaited"})))
    ctx = run(against(agent, idle_timeout=0.2), 10_000, loop_factory=Clock)
    assert ctx.output == {"m": "awaited"}


def test_a_stream_is_read_no_faster_than_what_it_says_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    drained: list[int] = []

    async def drain(self: FakeContext) -> None:
        drained.append(len(self.snapshots()))

    async def speaks(asked: Exchange) -> None:
        await asked.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for count in (1, 2):
            await asked.say(event({"m": "x" * count}))
            await later(1)
        await asked.say(event({"m": "xxx"}, status="success"))
        asked.writer.close()

    monkeypatch.setattr(follow, "DRAIN_BYTES", 50)  # an event has more
    monkeypatch.setattr(FakeContext, "flowing", False)
    monkeypatch.setattr(FakeContext, "drain", drain)
    run(against(script(stream=speaks)), 10_000, loop_factory=Clock)
    assert {1, 2} <= set(drained)


def test_one_burst_of_the_network_is_one_burst_of_events() -> None:
    many = b"".join(event({"m": ["x"] * n}) for n in range(1, 40)) + event({"m": ["x"] * 40}, status="success")
    ctx = ended(script(stream=streams(many)))
    assert ctx.output == {"m": ["x"] * 40}
    assert len(ctx.bursts) <= 3 and max(ctx.bursts) >= 40


def test_a_text_that_grows_in_one_burst_of_the_network_is_not_told_piece_by_piece() -> None:
    many = b"".join(event({"m": "x" * n}) for n in range(1, 40)) + event({"m": "x" * 40}, status="success")
    ctx = ended(script(stream=streams(many)))
    assert ctx.output == {"m": "x" * 40}
    assert sum(ctx.bursts) < 10


# --- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "error", "said"),
    [
        (
            says(b"Internal Server Error", "500 E", "text/plain"),
            AgentFailed,
            "POST /runs/stream answered 500: Internal",
        ),
        (says(b"<html><p>x</p></html>", "500 E", "text/html"), AgentFailed, "POST /runs/stream answered 500$"),
        (
            says(b"<html><title>database is\nlocked &amp; so on</title>x", "500 E", "text/html; charset=utf-8"),
            AgentFailed,
            "POST /runs/stream answered 500: database is locked & so on$",
        ),
        (says(text({"detail": "busy"}), "409 C"), Conflict, "the agent is busy: POST /runs/stream answered 409: busy"),
        (says(text({"message": "later"}), "503 U"), AgentGone, "POST /runs/stream answered 503: later"),
        (says(text({"message": "later"}), "429 M"), AgentBusy, "POST /runs/stream answered 429: later"),
        (says(b"", "504 T"), AgentTimeout, "POST /runs/stream answered 504$"),
        (says(b"", "302 Found"), AgentBroken, "POST /runs/stream answered 302: it redirects; the address"),
        (says(text("x" * 1000), "400 B"), AgentFailed, "answered 400: x{300}[.]{3}$"),
        (
            says(text({"detail": [{"loc": ["body", "input"], "msg": "bad", "input": "sekret"}]}), "422 U"),
            AgentFailed,
            "POST /runs/stream answered 422: body/input: bad$",
        ),
    ],
)
def test_a_refusal_says_what_was_asked_and_why_not(refusal: Handler, error: type[InterlinguaError], said: str) -> None:
    raised(script(stream=refusal), error, said)


@pytest.mark.parametrize("status", ["404 Not Found", "405 No", "501 Not Implemented"])
def test_a_server_without_streams_runs_in_the_background(status: str) -> None:
    agent = script(stream=refuses(status), create=says(text(record())), wait=says(result({"m": "ok"})))
    assert ended(agent).output == {"m": "ok"}


def test_a_stream_that_is_not_implemented_is_run_in_the_background() -> None:
    refusal = says(text({"detail": "Not implemented"}), "500 E")
    agent = script(stream=refusal, create=says(text(record())), wait=says(result({"m": "ok"})))
    assert ended(agent).output == {"m": "ok"}


def test_an_agent_that_says_it_has_threads_but_has_not_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="the agent says that it has threads, but POST /threads answered 404"):
        ended(script(), thread="t-1")


def test_an_agent_that_moved_is_found_under_its_new_id() -> None:
    def listed(agent_id: str) -> Handler:
        return says(text([{"agent_id": agent_id, "metadata": {"ref": REF, "description": ""}}]))

    async def known_by_its_new_id(asked: Exchange) -> None:
        moved = json.loads(asked.body)["agent_id"] == "b"
        good = streams(event({"m": "moved"}, status="success"))
        await (good if moved else refuses("404 Not Found"))(asked)

    agent = script(search=in_turn(listed("a"), listed("b")), stream=known_by_its_new_id)
    assert ended(agent).output == {"m": "moved"}


# --- waits and looks -------------------------------------------------------------------------------------------


def never(**handlers: Handler) -> Handler:
    return script(create=says(text(record())), **handlers)


@pytest.mark.parametrize(
    ("wait", "said"),
    [
        (says(event({"m": 1}), kind="text/event-stream"), f"GET /runs/{RUN}/wait answered something that is not JSON"),
        (says(b"oops", kind="text/plain"), f"GET /runs/{RUN}/wait answered something that is not JSON"),
        (
            says(text({"run": record(run_id=OTHER), "output": {"type": "result", "values": {}}})),
            f"GET /runs/{RUN}/wait answered with run {OTHER}",
        ),
    ],
)
def test_a_wait_that_answers_nonsense_is_the_agents_fault(wait: Handler, said: str) -> None:
    raised(never(wait=wait), AgentBroken, said, stream="never")


def test_a_run_is_polled_where_it_cannot_be_awaited() -> None:
    looks: list[int] = []

    async def late(asked: Exchange) -> None:
        await (refuses("405 No") if len(looks) < 3 else says(result({"m": "polled"})))(asked)

    async def look(asked: Exchange) -> None:
        looks.append(1)
        await says(text(record("success" if len(looks) == 3 else "pending")))(asked)

    assert ended(never(wait=late, get=look), stream="never").output == {"m": "polled"}


def test_a_large_event_that_takes_long_to_come_is_no_silence() -> None:
    """Nothing but the stream knows this run: asking anybody else would lose it."""
    whole = event({"m": "x" * 20_000}, status="success")

    async def slowly(asked: Exchange) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        await asked.say(head, event({"m": "x"}))
        for start in range(0, len(whole), 2000):
            await later(100)  # the pace of a slow line
            await asked.say(whole[start : start + 2000])
            await later(0)
        asked.writer.close()

    ctx = run(against(script(stream=slowly), idle_timeout=900), 10_000, loop_factory=Clock)
    assert len(ctx.output["m"]) == 20_000


def test_a_run_that_succeeded_but_never_tells_its_output_is_the_agents_fault() -> None:
    agent = never(wait=refuses("405 No"), get=says(text(record("success"))))
    raised(agent, AgentBroken, "says success, but its /wait does not say what came of it", stream="never")


def test_the_last_snapshot_is_the_output_where_nobody_else_tells_it() -> None:
    agent = script(stream=streams(event({"m": "streamed"})), wait=refuses("405 No"), get=says(text(record("success"))))
    assert ended(agent).output == {"m": "streamed"}


def test_what_an_output_says_beyond_the_core_is_kept_with_the_run() -> None:
    output = {"type": "result", "values": {"m": 1}, "own": [1]}
    ctx = ended(never(wait=says(text({"run": record("success"), "output": output}))), stream="never")
    assert ctx.run.upstream is not None and ctx.run.upstream[UPSTREAM_OUTPUT] == {"own": [1]}


def test_a_wait_that_takes_long_is_asked_again() -> None:
    agent = never(wait=in_turn(hangs, says(b"", "204 N"), says(text(record())), says(result({"m": "late"}))))
    assert ended(agent, stream="never", poll_timeout=0.2).output == {"m": "late"}


def test_an_answer_is_not_sent_twice_after_a_broken_connection() -> None:
    asking = text({"run": record("interrupted"), "output": {"type": "interrupt", "interrupt": "Go?"}})
    resumed: list[bytes] = []

    async def resume(asked: Exchange) -> None:
        resumed.append(asked.body)
        asked.writer.close()

    agent = never(
        wait=in_turn(says(asking), says(result({"m": "went"}))), resume=resume, get=says(text(record("pending")))
    )
    ctx = ended(agent, stream="never", answers=["yes"])
    assert ctx.output == {"m": "went"} and resumed == [b'"yes"']


def test_an_answer_that_got_lost_is_sent_again_while_the_agent_waits_for_it() -> None:
    asking = text({"run": record("interrupted"), "output": {"type": "interrupt", "interrupt": "Go?"}})
    agent = never(
        wait=in_turn(says(asking), says(result({"m": "went"}))),
        resume=in_turn(drops, says(text(record()))),
        get=says(text(record("interrupted"))),
    )
    there: list[Server] = []
    ctx = ended(agent, stream="never", answers=["yes"], server=there)
    assert ctx.output == {"m": "went"}
    assert [asked.body for asked in there[0].seen if asked.method == "POST"][-2:] == [b'"yes"', b'"yes"']


@pytest.mark.parametrize("status", ["400 B", "409 C"])
def test_an_answer_that_is_refused_was_taken_before_unless_the_agent_still_asks(status: str) -> None:
    asking = says(text({"run": record("interrupted"), "output": {"type": "interrupt", "interrupt": "Go?"}}))

    def agent(then: str) -> Handler:
        wait = in_turn(asking, says(result({"m": "went"})))
        return never(wait=wait, resume=refuses(status), get=says(text(record(then))))

    assert ended(agent("pending"), stream="never", answers=["yes"]).output == {"m": "went"}
    with pytest.raises(InterlinguaError, match=f"POST /runs/{RUN} answered"):
        ended(agent("interrupted"), stream="never", answers=["yes"])


@pytest.mark.parametrize(
    ("status", "lost"),
    [("200 OK", 0), ("400 B", 0), ("404 N", 0), ("409 C", 0), ("405 M", 1), ("500 E", 1), ("501 N", 1)],
)
def test_a_cancel_that_comes_too_late_is_none_and_one_that_the_agent_does_not_know_is_a_loss(
    status: str, lost: int
) -> None:
    asking = says(text({"run": record("interrupted"), "output": {"type": "interrupt", "interrupt": "Go?"}}))
    ctx = ended(never(wait=asking, cancel=refuses(status)), stream="never", answers=[DECLINED])
    assert isinstance(ctx.end, e.RunCancelled) and ctx.losses["cancel_unsupported"] == lost


@pytest.mark.parametrize("status", ["300 Multiple", "403 F"])
def test_a_cancel_that_the_agent_refuses_is_said(status: str) -> None:
    asking = says(text({"run": record("interrupted"), "output": {"type": "interrupt", "interrupt": "Go?"}}))
    with pytest.raises(InterlinguaError, match=f"POST /runs/{RUN}/cancel answered"):
        ended(never(wait=asking, cancel=refuses(status)), stream="never", answers=[DECLINED])


def test_a_question_in_the_older_words_is_answered_in_them() -> None:
    old = {"type": "interrupt", "interrupt_type": "approval", "interrupt_payload": {"subject": "s"}}
    agent = never(
        wait=in_turn(says(text({"run": record("interrupted"), "output": old})), says(result({}))),
        resume=says(text(record())),
    )
    there: list[Server] = []
    ctx = ended(agent, stream="never", answers=[{"approved": True}], server=there)
    assert ctx.asked[0].kind == "approval"
    (sent,) = [json.loads(a.body) for a in there[0].seen if a.target == f"/runs/{RUN}"]
    assert sent == {"interrupt_type": "approval", "resume_payload": {"approved": True}}


# --- descriptions ----------------------------------------------------------------------------------------------


def test_a_descriptor_without_specs_is_an_agent_that_takes_a_message() -> None:
    agent = script(
        descriptor=says(text({"metadata": {"ref": REF}})),
        create=says(text(record())),
        wait=says(result({"message": "plain"})),
    )
    ctx = ended(agent)
    assert ctx.agent.input_schema["required"] == ["message"] and ctx.output == {"message": "plain"}


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"descriptor": says(b"[]")}, "GET /agents/a/descriptor did not answer with a descriptor"),
        (
            {"descriptor": says(b"<html>", kind="text/html")},
            "GET /agents/a/descriptor answered text/html that is not JSON",
        ),
        ({"search": says(b"{}")}, "POST /agents/search did not answer with a list of agents"),
        ({"search": says(b'[{"id": 1}]')}, "POST /agents/search listed an agent without an agent_id"),
    ],
)
def test_a_description_that_makes_no_sense_is_the_agents_fault(part: dict[str, Handler], said: str) -> None:
    with pytest.raises(AgentBroken, match=said):
        ended(script(**part))


# --- threads -----------------------------------------------------------------------------------------------------


def test_a_run_on_a_thread_that_was_started_behind_a_500_is_found_and_not_sent_again() -> None:
    sent: list[str] = []

    def counted(name: str, handler: Handler) -> Handler:
        async def answer(asked: Exchange) -> None:
            sent.append(name)
            await handler(asked)

        return answer

    async def on_the_thread(asked: Exchange) -> None:
        if asked.method == "GET":
            await says(text([record()]))(asked)
        else:
            await counted("background", refuses("500 Internal Server Error"))(asked)

    agent = script(
        **{
            "/threads": says(text({"thread_id": "t"})),
            "/threads/t/runs/stream": counted("stream", refuses("500 Internal Server Error")),
            "/threads/t/runs": on_the_thread,
            "/threads/t/runs/wait": counted("wait", refuses("500 Internal Server Error")),
            f"/threads/t/runs/{RUN}/stream": streams(event({"m": "it ran"}, status="success")),
        }
    )
    assert ended(agent, thread="t-1").output == {"m": "it ran"}
    assert sent == ["stream"]


@pytest.mark.parametrize("listed_before", [True, False])
def test_a_run_of_an_earlier_turn_is_not_taken_for_one_that_a_500_did_not_tell_of(listed_before: bool) -> None:
    async def on_the_thread(asked: Exchange) -> None:
        if asked.method == "GET" and (listed_before or known):
            await says(text([record("pending", run_id=OTHER)]))(asked)
        else:
            await refuses("500 Internal Server Error")(asked)
        known.append(asked.method)

    known: list[str] = []
    failing = refuses("500 Internal Server Error")
    below = {"/threads/t/runs": on_the_thread, "/threads/t/runs/stream": failing, "/threads/t/runs/wait": failing}
    ctx = raised(script(**below), AgentFailed, "500", thread="t-1", upstream_thread={"thread_id": "t"})
    assert ctx.run.upstream is None and not ctx.asked


def test_a_server_that_runs_on_threads_is_not_asked_what_is_there_before_and_its_500_is_a_failure() -> None:
    tried: list[str] = []

    async def on_the_thread(asked: Exchange) -> None:
        tried.append(f"{asked.method} {asked.target}")
        await (streams(event({"m": "it ran"}, status="success")) if len(tried) < 4 else refuses("500 E"))(asked)

    names = ("stream", "wait")
    below = {"/threads/t/runs": on_the_thread, **{f"/threads/t/runs/{name}": on_the_thread for name in names}}

    async def thrice() -> None:
        async with serving(script(**below)) as there, calling(there.url, "bad") as outbound:
            agent = await outbound.describe()
            for _ in range(3):
                await outbound.run(context(agent, "hi", thread="t-1", upstream_thread={"thread_id": "t"}))

    with pytest.raises(AgentFailed, match="POST /threads/t/runs/stream answered 500"):
        run(thrice())
    stream = "POST /threads/t/runs/stream"
    assert tried == ["GET /threads/t/runs", stream, stream, stream]
