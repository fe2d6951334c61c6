"""StdioPipe with real processes, on both event loops that the gateway may run on."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import uvloop

from gateway.core.errors import AgentGone
from gateway.transport.pipe import Unreadable
from gateway.transport.stdio import Grace, StdioPipe
from gateway.transport.stdio import pipe as stdio_pipe
from gateway.transport.stdio.stderr import LONGEST, shown
from tests.support import aio
from tests.transport.stdio_support import QUICK, agent, closing, receive, start, until_async

Run: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a process ended is known within a moment of the end of its output, however slow the machine is."""
    monkeypatch.setattr(stdio_pipe, "SETTLE", 30.0)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return lambda coro: aio.run(closing(coro), loop_factory=request.param)


async def _end(pipe: StdioPipe) -> str:
    """Why `receive` ends, after all there was."""
    with pytest.raises(AgentGone) as caught:
        while await pipe.receive():
            pass
    return str(caught.value)


def test_messages_arrive_whole_and_in_order(run: Run) -> None:
    async def scene() -> None:
        pipe = await start(["cat"])
        await pipe.send([b'{"n":1}', b'{"n":2}'])
        await pipe.send([b'{\n"n":3}'])
        assert await receive(pipe, 3) == [b'{"n":1}', b'{"n":2}', b'{ "n":3}']

    run(scene())


def test_many_writers_at_once_never_mix_their_messages(run: Run) -> None:
    async def scene() -> None:
        pipe = await start(["cat"])
        messages = [b"%d" % n * 20_000 for n in range(40)]
        sending = asyncio.gather(*(pipe.send([message]) for message in messages))
        assert await receive(pipe, 40) == messages
        await sending

    run(scene())


def test_a_message_of_16_mib_passes_both_ways(run: Run) -> None:
    async def scene() -> None:
        pipe = await start(["cat"])
        message = b'"' + os.urandom(8 * MIB).hex().encode() + b'"'
        sending = asyncio.create_task(pipe.send([message, b"small"]))
        assert await receive(pipe, 2) == [message, b"small"]
        await sending

    run(scene())


def test_a_line_over_the_limit_is_reported_and_the_next_one_arrives(run: Run) -> None:
    async def scene() -> None:
        pipe = await start(agent("big", 3 * MIB), limit=2 * MIB)
        long, after = await receive(pipe, 2)
        assert isinstance(long, Unreadable)
        assert (long.size, long.start, after) == (3 * MIB, b"x" * 200, b"after")
        assert "limit" in long.reason

    run(scene())


def test_garbage_is_reported_and_survived(run: Run) -> None:
    async def scene() -> None:
        pipe = await start(["printf", r"\377\376\000\n{}\r\n\n\303\n[]"])
        lines = await receive(pipe, 4)
        assert [line if isinstance(line, bytes) else line.start for line in lines] == [
            b"\xff\xfe\0",
            b"{}",
            b"\xc3",
            b"[]",
        ]
        assert "UTF-8" in getattr(lines[0], "reason", "")

    run(scene())


def test_a_writer_who_is_held_up_does_not_hold_up_the_reader(run: Run) -> None:
    async def scene() -> None:
        pipe = await start(agent("deaf"), grace=QUICK)
        sending = asyncio.create_task(pipe.send([b"x" * MIB]))
        assert len(await receive(pipe, 50_000)) >= 50_000
        assert not sending.done()
        await pipe.aclose()
        with pytest.raises(AgentGone, match="closed"):
            await sending

    run(scene())


def test_a_cancelled_send_is_written_whole_or_not_at_all(run: Run) -> None:
    async def scene() -> None:
        pipe = await start(agent("late"))
        await receive(pipe, 1)
        first, second = b"1" * MIB, b"2" * MIB
        begun = asyncio.create_task(pipe.send([first]))
        waiting = asyncio.create_task(pipe.send([second]))
        third = asyncio.create_task(pipe.send([b"3"]))
        await asyncio.wait([begun, waiting, third], timeout=0.1)
        begun.cancel()
        waiting.cancel()
        await asyncio.wait([begun, waiting])
        os.kill(pipe.pid, signal.SIGUSR1)
        assert await receive(pipe, 2) == [first, b"3"]
        await third

    run(scene())


def test_what_is_offered_is_written_in_order_and_refused_while_the_agent_is_behind(run: Run) -> None:
    async def scene() -> None:
        pipe = await start(agent("late"))
        await receive(pipe, 1)
        said = 0
        while pipe.offer([b"%05d" % said + b"x" * 10_000]):
            said += 1
        assert 3 < said < 100
        sending = asyncio.create_task(pipe.send([b"last"]))
        await asyncio.wait([sending], timeout=0.05)
        assert not sending.done() and not pipe.offer([b"refused"])
        os.kill(pipe.pid, signal.SIGUSR1)
        lines = await receive(pipe, said + 1)
        assert [line[:5] for line in lines] == [*(b"%05d" % n for n in range(said)), b"last"]  # type: ignore[index]
        await sending
        assert pipe.offer([b"once more"])
        assert await receive(pipe, 1) == [b"once more"]
        await pipe.aclose()
        assert not pipe.offer([b"closed"])

    run(scene())


def test_an_agent_that_floods_is_held_up_until_its_lines_are_taken(run: Run) -> None:
    async def scene() -> None:
        count = 200_000
        pipe = await start(agent("gush", count))
        done, _ = await asyncio.wait([asyncio.create_task(until_async(lambda: pipe.exit is not None, 0.5))])
        assert isinstance(done.pop().exception(), TimeoutError)
        lines = await receive(pipe, count)
        assert [b'"n":%d,' % n in line for n, line in enumerate(lines) if isinstance(line, bytes)] == [True] * count
        assert await _end(pipe) == "agent exited with 0"

    run(scene())


def test_a_cancelled_receive_loses_nothing(run: Run) -> None:
    async def scene() -> None:
        pipe = await start(["cat"])
        waiting = asyncio.create_task(pipe.receive())
        await asyncio.wait([waiting], timeout=0.01)
        await pipe.send([b"1"])
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert await receive(pipe, 1) == [b"1"]

    run(scene())


def test_what_an_agent_said_before_it_died_arrives_before_the_error(run: Run) -> None:
    async def scene() -> None:
        pipe = await start(["sh", "-c", "echo one; echo 'no such model' >&2; printf two; exit 3"])
        await until_async(lambda: pipe.exit is not None, 30)
        assert await receive(pipe, 2) == [b"one", b"two"]
        for _ in range(2):
            assert await _end(pipe) == "agent exited with 3: no such model"
        with pytest.raises(AgentGone, match="exited with 3: no such model"):
            await pipe.send([b"late"])
        await pipe.aclose()
        assert await pipe.receive() == []

    run(scene())


NODE = """\
node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module '/agents/coder.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v20.20.2
"""
RUST = "\nthread 'main' (4711) panicked at src/main.rs:2:5:\nno such model\nnote: run with `RUST_BACKTRACE=1` ..."
GO = "panic: no such model\n\ngoroutine 1 [running]:\nmain.main()\n\t/agents/main.go:4 +0x25\nexit status 2"
JAVA = 'Exception in thread "main" java.lang.RuntimeException: no such model\n\tat A.main(A.java:1)'
BAR = "import sys; sys.stderr.write(''.join(f'{n} %\\r' for n in range(9999)) + 'no such model'); sys.exit(1)"
DENO = "error: Uncaught (in promise) Error: no such model\n      ^\n    at file:///agents/x.ts:1:7"
BUN = "1 | throw new Error()\n          ^\nerror: no such model\n      at /agents/x.ts:1:7\n\nBun v1.2.3 (Linux x64)"
LONG = "class Error_(Exception): pass\nraise Error_('2 faults in Settings\\nmodel\\n  is missing\\nSee x.example')"
GROUP = "raise ExceptionGroup('unhandled errors in a TaskGroup', [ValueError('no such model')])"

STACK = "".join(f"\n  {n}: agent::step\n      at /agents/main.rs:{n}:5" for n in range(40))
PANIC = f"\nthread 'main' (4711) panicked at a.rs:2:5:\nno such model\nstack backtrace:{STACK}\nnote: Some details ..."
ANYHOW = f"Error: no such model\n\nCaused by:\n    No such file (os error 2)\n\nStack backtrace:{STACK}"
CAUSED = NODE.replace("\n  code:", "\n    at step (/agents/coder.js:7:1)" * 40 + "\n  code:")
DEEP = "panic: no such model\n\ngoroutine 1 [running]:" + "\nmain.step()\n\t/agents/main.go:4 +0x25" * 40 + "\nend"
CAUGHT = "Error: no such model\n    at main (/agents/coder.js:4:1) {\n  errno: -2,\n  path: '/agents/m'\n}\n"
LATER = "panic: and recovered" + "\nmade a step" * 40 + "\nno such model"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["sh", "-c", 'printf %s "$0" >&2; exit 1', PANIC], "no such model"),
        (["sh", "-c", 'printf %s "$0" >&2; exit 1', ANYHOW], "Error: no such model"),
        (["sh", "-c", 'printf %s "$0" >&2; exit 1', CAUSED], "Error: Cannot find module '/agents/coder.js'"),
        (["sh", "-c", 'printf %s "$0" >&2; exit 1', DEEP], "panic: no such model"),
        (["sh", "-c", 'printf %s "$0" >&2; exit 1', CAUGHT], "Error: no such model"),
        (["sh", "-c", 'printf %s "$0" >&2; exit 1', LATER], "no such model"),
        (["sh", "-c", 'printf %s "$0" >&2; exit 1', NODE], "Error: Cannot find module '/agents/coder.js'"),
        (["sh", "-c", "echo 'Node.js v18 is too old\nNode.js v20.20.2' >&2; exit 1"], "Node.js v18 is too old"),
        ([sys.executable, "-c", GROUP], "ValueError: no such model"),
        ([sys.executable, "-c", LONG], "Error_: 2 faults in Settings"),
        (["sh", "-c", 'printf %s "$0" >&2; exit 1', RUST], "no such model"),
        (["sh", "-c", 'printf %s "$0" >&2; exit 1', GO], "panic: no such model"),
        ([sys.executable, "-c", BAR], "no such model"),
        (["sh", "-c", 'printf %s "$0" >&2; exit 1', JAVA], JAVA.splitlines()[0]),
        (["sh", "-c", 'printf %s "$0" >&2; exit 1', DENO], DENO.splitlines()[0]),
        (["sh", "-c", 'printf %s "$0" >&2; exit 1', BUN], "error: no such model"),
    ],
)
def test_what_an_agent_died_of_is_said_whatever_its_runtime_draws_around_it(
    run: Run, command: list[str], told: str
) -> None:
    async def scene() -> None:
        pipe = await start(command)
        await until_async(lambda: pipe.exit is not None, 30)
        assert await _end(pipe) == f"agent exited with 1: {told}"

    run(scene())


def test_what_an_agent_said_long_before_is_no_reason_for_its_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        pipe = await start(["sh", "-c", "echo 'a model is deprecated' >&2; kill -9 $$"])
        await until_async(lambda: pipe.exit is not None, 30)
        monkeypatch.setattr("gateway.transport.stdio.pipe.SAID_SECONDS", 0.0)  # as if they had passed
        assert await _end(pipe) == "agent was ended by SIGKILL"
        with pytest.raises(AgentGone) as raised:
            await pipe.receive()
        assert raised.value.detail == "a model is deprecated"

    run(scene())


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo; echo 'usage: agent [--acp]'; echo '  {a,b}'", "; its output is no message: usage: agent [--acp]"),
        ("echo 'usage: agent'; echo why >&2", ": why"),
        ('echo hello; echo \'{"jsonrpc": "2.0"}\'', ""),
    ],
)
def test_an_agent_that_prints_its_usage_and_leaves_is_told_by_it(run: Run, script: str, told: str) -> None:
    async def scene() -> None:
        pipe = await start(["sh", "-c", script])
        await until_async(lambda: pipe.exit is not None, 30)
        with pytest.raises(AgentGone) as raised:
            while await pipe.receive():
                pass
        assert str(raised.value) == f"agent exited with 0{told}"

    run(scene())


def test_a_send_that_fails_because_the_agent_is_dying_says_how_it_died(run: Run) -> None:
    async def scene() -> None:
        pipe = await start(["sh", "-c", "exec <&-; echo ready; sleep 0.1; exit 9"])
        await receive(pipe, 1)
        with pytest.raises(AgentGone, match="exited with 9"):
            await pipe.send([b"hello"])

    run(scene())


def test_an_agent_that_was_killed_is_reported_with_the_signal(run: Run) -> None:
    async def scene() -> None:
        pipe = await start(["cat"])
        os.kill(pipe.pid, signal.SIGSEGV)
        assert await _end(pipe) == "agent was ended by SIGSEGV"

    run(scene())


def test_an_agent_may_close_its_output_and_listen_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio_pipe, "SETTLE", 0.05)  # which it outlives

    async def scene() -> None:
        pipe = await start(agent("mute"))
        assert await pipe.receive() == []
        await pipe.send([b"hello"])
        await until_async(lambda: pipe.stderr() == ["heard hello"], 30)
        assert pipe.exit is None

    run(scene())


def test_an_agent_may_close_its_input_and_speak_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio_pipe, "SETTLE", 0.05)  # which it outlives

    async def scene() -> None:
        pipe = await start(agent("closed_input"), grace=QUICK)
        await receive(pipe, 1)
        with pytest.raises(AgentGone, match="has closed its input"):
            await pipe.send([b"hello"])
        os.kill(pipe.pid, signal.SIGUSR1)
        assert await receive(pipe, 1) == [b"still talking"]

    run(scene())


def test_a_flood_on_stderr_neither_holds_up_the_agent_nor_fills_the_log(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        pipe = await start(agent("complain", 200_000), name="loud")
        assert await receive(pipe, 1) == [b"done"]
        assert await _end(pipe) == "loud exited with 7: complaint 199999"
        assert pipe.stderr() == [f"complaint {n}" for n in range(199_980, 200_000)]

    run(scene())
    records = [record for record in caplog.records if record.name == "interlingua.agent.loud"]
    assert records[0].getMessage() == "complaint 0"
    assert len(records) < 1000
    left_out = [int(record.getMessage().split()[0]) for record in records if record.levelno == logging.WARNING]
    assert sum(left_out) + len(records) - len(left_out) == 200_000


def test_a_complaint_is_cut_and_cannot_steer_the_terminal(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        script = r"printf '\033[31mred\033[0m\tand\rblue\n%09000d\nrest' 1 >&2"
        pipe = await start(["sh", "-c", script])
        await _end(pipe)

    run(scene())
    first, long, rest = (r.getMessage() for r in caplog.records if r.name == "interlingua.agent.agent")
    assert first == "red and blue"
    assert len(long) < 2100
    assert rest == "rest"


def test_a_complaint_of_unfinished_escapes_costs_no_more_than_one_of_colours() -> None:
    def cost(line: bytes) -> float:
        begun = time.process_time()
        shown(line[:LONGEST])
        return time.process_time() - begun

    hostile, usual = (min(cost(line * LONGEST) for _ in range(5)) for line in (b"\x1b]", b"\x1b[0m"))
    assert hostile < 20 * usual
    assert shown(b"\x1b]0;a title\x07one \x1b]8;;file:///a\x1b\\two\x1b]8;;\x1b\\ three") == "one two three"


def test_an_agent_is_born_with_its_pipes_and_nothing_of_the_gateway(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        pipe = await start(agent("inherited"), env={"GIVEN": "yes"}, cwd=tmp_path)
        assert await receive(pipe, 1) == [f"[0, 1, 2] True yes {tmp_path}".encode()]

    run(scene())


def test_signals_that_the_gateway_ignores_are_not_ignored_by_the_agent(run: Run) -> None:
    async def scene() -> None:
        before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        try:
            pipe = await start(["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"])
        finally:
            signal.signal(signal.SIGUSR2, before)
        masks = [int(line.split()[1], 16) for line in await receive(pipe, 2) if isinstance(line, bytes)]
        assert [mask % (1 << 31) for mask in masks] == [0, 0]  # libc has ideas of its own about 32 and 33

    run(scene())


def test_an_agent_that_leaves_at_the_end_of_input_gets_no_signal(run: Run) -> None:
    async def scene() -> None:
        script = "while read line; do :; done; i=0; while [ $i -lt 20000 ]; do echo bye; i=$((i+1)); done; exit 5"
        pipe = await start(["sh", "-c", script])
        pending = asyncio.create_task(pipe.receive())
        await pipe.send([b"hello"])
        await pipe.aclose()
        assert str(pipe.exit) == "exited with 5"
        assert await pending == []

    run(scene())


def test_what_was_sent_just_before_the_end_still_arrives(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio_pipe, "FLUSH", 30.0)

    async def scene() -> None:
        pipe = await start(["sh", "-c", "sleep 0.1; cat > heard"], cwd=tmp_path)
        sending = asyncio.create_task(pipe.send([b"x" * 200_000]))
        await asyncio.wait([sending], timeout=0.01)
        await asyncio.gather(pipe.aclose(), pipe.aclose())
        await sending
        assert (tmp_path / "heard").stat().st_size == 200_001
        with pytest.raises(AgentGone):
            await pipe.send([b"too late"])

    run(scene())


def test_closing_goes_on_when_the_one_who_closes_is_cancelled(run: Run) -> None:
    async def scene() -> None:
        pipe = await start(agent("closed_input"), grace=Grace(eof=0.1, term=5))
        closing = asyncio.create_task(pipe.aclose())
        await asyncio.wait([closing], timeout=0.01)
        closing.cancel()
        await until_async(lambda: pipe.exit is not None, 30)
        assert str(pipe.exit) == "was ended by SIGTERM"

    run(scene())


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (None, 0, "command not found"),
        ("#!/bin/sh\n", 0o600, "not executable"),
        ("#!/no/such/interpreter\n", 0o700, "its interpreter was not found"),
        ("echo hello\n", 0o700, "not a program"),
    ],
)
def test_a_program_that_cannot_run_is_refused_with_the_reason(
    run: Run, tmp_path: Path, content: str | None, mode: int, reason: str
) -> None:
    if content is not None:
        (tmp_path / "program").write_text(content)
        (tmp_path / "program").chmod(mode)

    async def scene() -> None:
        with pytest.raises(AgentGone, match=f"^agent cannot be started: .*program: {reason}"):
            await start([str(tmp_path / "program")])
        with pytest.raises(AgentGone, match=reason):
            await start(["./program"], cwd=tmp_path)
        with pytest.raises(AgentGone, match=reason):
            await start(["program"], env={"PATH": str(tmp_path)})

    run(scene())


def test_a_start_that_makes_no_sense_is_refused(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        with pytest.raises(AgentGone, match="working directory: No such file"):
            await start(["cat"], cwd=tmp_path / "nowhere")
        with pytest.raises(AgentGone, match="null byte"):
            await start(["cat", "a\0b"])
        with pytest.raises(AgentGone, match="no command"):
            await start([])

    run(scene())
