"""No process is left: whatever the agent does to stay, and whoever is killed."""

from __future__ import annotations

import asyncio
import os
import py_compile
import signal
import sys
from pathlib import Path

import pytest

from gateway.core.errors import AgentGone, AgentTimeout
from gateway.transport.stdio import Grace, process, spawn
from gateway.transport.stdio import pipe as stdio_pipe
from tests.support import aio, processes
from tests.transport.stdio_support import (
    PROGRAMS,
    QUICK,
    STUBBORN,
    STUBBORN_SAYS,
    agent,
    closing,
    marked,
    receive,
    start,
    until_async,
)

WITHOUT_SUBREAPER = """
import runpy, sys
sys.platform = "elsewhere"
runpy.run_path({path!r}, run_name="__main__")
"""


@pytest.fixture(autouse=True)
def moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a process ended is known within a moment of the end of its output, however slow the machine is."""
    monkeypatch.setattr(stdio_pipe, "SETTLE", 30.0)


def _our_zombies() -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and int(fields[1]) == os.getpid():
            found.append(int(name))
    return found


def _warden(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_nothing_is_left_of_an_agent_that_ignores_everything_and_hides_its_descendants() -> None:
    async def scene() -> None:
        with marked() as mark:
            pipe = await start(STUBBORN, grace=QUICK, env=mark.env)
            await receive(pipe, STUBBORN_SAYS)
            assert len(mark.pids()) > STUBBORN_SAYS
            async with asyncio.timeout(30):
                await pipe.aclose()
            assert mark.pids() == []
            assert str(pipe.exit) == "was ended by SIGKILL"
            assert await pipe.receive() == []

    aio.run(closing(scene()))


async def test_two_hundred_starts_and_ends_leave_no_process_and_no_open_file() -> None:
    async def one(gate: asyncio.Semaphore, env: dict[str, str], number: int) -> None:
        async with gate:
            command = STUBBORN if number % 10 == 0 else ["cat"]
            pipe = await spawn(command, name="agent", grace=Grace(eof=0.1, term=0.1), env=env)
            if command == ["cat"]:
                await pipe.send([b"%d" % number])
                assert await receive(pipe, 1) == [b"%d" % number]
            await pipe.aclose()

    with marked() as mark:
        files = len(os.listdir("/proc/self/fd"))
        gate = asyncio.Semaphore(8)
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(one(gate, mark.env, number))
        assert mark.pids() == []
        assert _our_zombies() == []
        assert len(os.listdir("/proc/self/fd")) == files
        assert len(asyncio.all_tasks()) == 1


def test_nothing_is_left_when_the_gateway_is_killed() -> None:
    with marked() as mark:
        argv = [sys.executable, str(PROGRAMS / "host.py"), str(STUBBORN_SAYS), *STUBBORN]
        with processes.start(argv, {**mark.env, "PYTHONPATH": str(processes.ROOT)}) as gateway:
            gateway.wait_until(lambda: gateway.stdout() == "ready\n")
            assert len(mark.pids()) > STUBBORN_SAYS + 2
            gateway.kill9()
            mark.wait_gone(30)


def test_nothing_is_left_when_the_warden_is_killed() -> None:
    async def scene() -> None:
        with marked() as mark:
            pipe = await start(["sh", "-c", "sleep 1000 & cat"], env=mark.env)
            os.kill(_warden(pipe.pid), signal.SIGKILL)
            with pytest.raises(AgentGone, match="agent was lost"):
                await pipe.receive()
            await pipe.aclose()
            mark.wait_gone(30)

    aio.run(closing(scene()))


def test_a_warden_that_is_told_to_end_ends_its_agent() -> None:
    async def scene() -> None:
        with marked() as mark:
            pipe = await start(["cat"], env=mark.env)
            os.kill(_warden(pipe.pid), signal.SIGTERM)
            with pytest.raises(AgentGone, match="ended by SIGTERM"):
                await pipe.receive()
            mark.wait_gone(30)

    aio.run(closing(scene()))


def test_a_warden_that_hangs_does_not_hold_up_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "KILL_TIMEOUT", 0.3)

    async def scene() -> None:
        with marked() as mark:
            pipe = await start(["sh", "-c", "sleep 1000 & cat"], env=mark.env, grace=QUICK)
            os.kill(_warden(pipe.pid), signal.SIGSTOP)
            async with asyncio.timeout(30):
                await pipe.aclose()
            mark.wait_gone(30)

    aio.run(closing(scene()))


def test_a_child_that_outlives_the_agent_and_holds_its_pipes_is_ended_with_it() -> None:
    async def scene() -> None:
        with marked() as mark:
            pipe = await start(agent("leave_child"), grace=Grace(eof=20, term=0.2), env=mark.env)
            assert await receive(pipe, 1) == [b"child"]
            await pipe.send([b"go"])
            with pytest.raises(AgentGone, match="exited with 0"):
                await pipe.receive()
            mark.wait_gone(30)

    aio.run(closing(scene()))


def test_the_process_group_is_ended_where_there_is_no_subreaper(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    warden = tmp_path / "warden.py"
    warden.write_text(WITHOUT_SUBREAPER.format(path=str(process.WARDEN)))
    monkeypatch.setattr(process, "WARDEN", warden)

    async def scene() -> None:
        with marked() as mark:
            hold = "trap '' TERM; echo up; while :; do sleep 1000; done"
            pipe = await start(["sh", "-c", f"({hold}) & {hold}"], grace=QUICK, env=mark.env)
            await receive(pipe, 2)
            async with asyncio.timeout(30):
                await pipe.aclose()
            assert mark.pids() == []
            pipe = await start(["sh", "-c", "sleep 1000 & exit 4"], grace=QUICK, env=mark.env)
            with pytest.raises(AgentGone, match="exited with 4"):
                await pipe.receive()
            mark.wait_gone(30)

    aio.run(closing(scene()))


async def test_a_start_that_was_cancelled_is_over_when_nothing_of_it_is_left() -> None:
    with marked() as mark:
        files = len(os.listdir("/proc/self/fd"))
        starting = asyncio.create_task(spawn(["cat"], name="agent", env=mark.env))
        await asyncio.sleep(0)  # the warden has been started, and has not been heard of
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        assert mark.pids() == [] and _our_zombies() == []
        assert len(os.listdir("/proc/self/fd")) == files


async def test_a_start_that_is_cancelled_twice_is_ended_all_the_same() -> None:
    with marked() as mark:
        files = len(os.listdir("/proc/self/fd"))
        starting = asyncio.create_task(spawn(["cat"], name="agent", env=mark.env))
        for _ in range(2):
            await asyncio.sleep(0)
            starting.cancel()
        await asyncio.wait([starting])
        await until_async(lambda: not mark.pids() and not _our_zombies(), 30)
        await until_async(lambda: len(os.listdir("/proc/self/fd")) == files, 30)


async def test_a_warden_that_does_not_get_to_it_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    warden = tmp_path / "warden.py"
    warden.write_text("import os, sys\nwhile os.read(int(sys.argv[1]), 1): pass\n")
    monkeypatch.setattr(process, "WARDEN", warden)
    monkeypatch.setattr(process, "START_TIMEOUT", 0.2)

    with marked() as mark:
        with pytest.raises(AgentTimeout, match="could not be started within"):
            await spawn(["cat"], name="agent", env=mark.env)
        await until_async(lambda: not mark.pids() and not _our_zombies(), 30)


async def test_what_breaks_in_the_warden_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    warden = tmp_path / "warden.py"
    warden.write_text("raise SystemExit('no library')\n")
    monkeypatch.setattr(process, "WARDEN", warden)

    with pytest.raises(AgentGone, match="its warden ended with 1") as caught:
        await spawn(["cat"], name="agent")
    assert "no library" in caught.value.detail


def test_bytecode_is_run_only_if_it_is_of_the_source_that_is_there(tmp_path: Path) -> None:
    source = tmp_path / "warden.py"
    source.write_text("pass\n")
    assert process._program(source) == str(source)
    compiled = py_compile.compile(str(source), doraise=True)
    assert process._program(source) == compiled
    source.write_text("pass  # changed\n")
    assert process._program(source) == str(source)
