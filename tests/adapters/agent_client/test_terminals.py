"""Commands run in a workspace: what they print, how they end, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.agent_client.options import Workspace
from adapters.agent_client.outbound.workspace import Files, Terminals, exit_status, output
from gateway.core.errors import Conflict, Invalid, NotFound
from gateway.transport.stdio.process import NewestOutput
from tests.support.scripted import until


@contextlib.asynccontextmanager
async def terminals(root: Path) -> AsyncIterator[Terminals]:
    made = Terminals(Files(Workspace(root=root, terminals=True)))
    try:
        yield made
    finally:
        await made.aclose()


async def said(here: Terminals, name: str) -> str:
    """What a command has printed once it has ended."""
    await here.find(name).wait()
    return str(output(here.find(name))["output"])


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it may go while it is read
        return False
    return "Z" not in stat.rpartition(")")[2].split()[0]


async def test_a_command_runs_and_its_output_and_exit_are_told(tmp_path: Path) -> None:
    async with terminals(tmp_path) as here:
        name = await here.create("sh", ["-c", "echo out; echo err >&2; exit 3"])
        assert await exit_status(here.find(name)) == {"exitCode": 3, "signal": None}
        told = output(here.find(name))
        assert sorted(told["output"].split()) == ["err", "out"]
        assert told["truncated"] is False
        assert told["exitStatus"] == {"exitCode": 3, "signal": None}


async def test_output_is_told_while_the_command_runs(tmp_path: Path) -> None:
    async with terminals(tmp_path) as here:
        name = await here.create("sh", ["-c", "printf 'caf\\303'; sleep 60"])
        async with asyncio.timeout(30):
            while "caf" not in (told := output(here.find(name)))["output"]:  # noqa: ASYNC110 - the command's
                await asyncio.sleep(0.01)
        assert told == {"output": "caf", "truncated": False}  # half a character is not told yet


async def test_a_line_for_the_shell_is_run_by_a_shell(tmp_path: Path) -> None:
    async with terminals(tmp_path) as here:
        assert await said(here, await here.create("echo a && echo b | tr b c")) == "a\nc\n"


async def test_its_input_is_empty(tmp_path: Path) -> None:
    async with terminals(tmp_path) as here:
        assert await said(here, await here.create("sh", ["-c", "cat; echo done"])) == "done\n"


async def test_it_runs_inside_of_the_root_with_the_variables_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_TOKEN", "a secret of the gateway's")
    (tmp_path / "sub").mkdir()

    async with terminals(tmp_path) as here:
        script = "import os; print(os.getcwd(), os.environ.get('MAIL_TOKEN'), os.environ['ASKED'])"
        args = ["-c", script]
        name = await here.create(sys.executable, args, env={"ASKED": "for"}, cwd=f"{tmp_path}/sub")
        assert await said(here, name) == f"{tmp_path}/sub None for\n"
        assert await said(here, await here.create("pwd", ["-P"])) == f"{tmp_path}\n"


async def test_a_folder_outside_and_a_command_that_is_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()

    async with terminals(tmp_path / "root") as here:
        for cwd in (str(tmp_path), "/", f"{tmp_path}/root/..", "root"):
            with pytest.raises(Invalid):
                await here.create("pwd", cwd=cwd)
        with pytest.raises(Invalid, match="command not found"):
            await here.create("no-such-program", ["x"])


async def test_a_command_is_killed_with_all_that_it_started_and_its_output_stays(tmp_path: Path) -> None:
    async with terminals(tmp_path) as here:
        script = "trap '' TERM; setsid sleep 300 & echo $! $$; wait"
        name = await here.create("sh", ["-c", script])
        await until(lambda: bool(output(here.find(name))["output"]))
        text = output(here.find(name))["output"]
        pids = [int(word) for word in text.split()]
        assert all(map(alive, pids))
        await here.find(name).kill()
        assert not any(map(alive, pids))
        assert await exit_status(here.find(name)) == {"exitCode": None, "signal": "SIGKILL"}
        assert output(here.find(name))["output"] == text


@pytest.mark.parametrize("how", ["release", "session"])
async def test_nothing_is_left_of_a_released_terminal_or_of_an_ended_session(tmp_path: Path, how: str) -> None:
    here = Terminals(Files(Workspace(root=tmp_path, terminals=True)))
    gc.collect()  # else files that other tests left behind may go meanwhile
    before = len(os.listdir("/proc/self/fd"))
    name = await here.create("sh", ["-c", "echo $$; sleep 300"])
    await until(lambda: bool(output(here.find(name))["output"]))
    text = output(here.find(name))["output"]
    waiting = asyncio.create_task(exit_status(here.find(name)))
    await (here.release(name) if how == "release" else here.aclose())
    assert not alive(int(text))
    assert (await waiting)["signal"] == "SIGTERM"
    with pytest.raises(NotFound):
        here.find(name)
    await here.aclose()
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)
    with pytest.raises(Conflict):
        await here.create("pwd")


async def test_the_number_of_terminals_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.agent_client.outbound.workspace.MAX_TERMINALS", 2)

    async with terminals(tmp_path) as here:
        made = [await here.create("true", ["x"]) for _ in range(2)]
        with pytest.raises(Conflict):
            await here.create("true")
        await here.release(made[0])
        await here.create("true")


async def test_a_flood_is_kept_to_the_limit_and_blocks_nobody(tmp_path: Path) -> None:
    async with terminals(tmp_path) as here:
        name = await here.create("sh", ["-c", "head -c 20000000 /dev/zero | tr '\\0' x; echo end"], limit=100)
        text = await said(here, name)
        assert text == "x" * 96 + "end\n"
        assert output(here.find(name))["truncated"] is True


@pytest.mark.parametrize(
    ("limit", "kept"), [(10, "aé€😀"), (9, "é€😀"), (8, "€😀"), (7, "€😀"), (6, "😀"), (3, ""), (0, "")]
)
def test_output_is_cut_at_a_character(limit: int, kept: str) -> None:
    buffer = NewestOutput(limit)
    for letter in "aé€😀":
        buffer.add(letter)
    assert (buffer.text, buffer.truncated) == (kept, limit < 10)
