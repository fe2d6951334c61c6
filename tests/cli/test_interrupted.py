"""Ctrl-C and SIGTERM while a command waits: one word, the exit code of what is cancelled, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.cli.test_terminal import terminal
from tests.support.processes import PROGRAM, Gateway, start

TABLE = "routes: [{{name: mute, target: {{protocol: agent_connect, url: '{mute}'}}}}]\n"


@pytest.fixture
def mute() -> Iterator[socket.socket]:
    """Accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        yield listener


@pytest.mark.parametrize(
    "arguments",
    [
        "agents mute",
        "run mute hello",
        "check --connect",
        "manifest mute",
        "agents --gateway {mute}",
        "run mute hello --gateway {mute}",
        "revoke mute --gateway {mute}",
        "runs --gateway {mute}",
        "top --gateway {mute}",
        "watch 0123 --gateway {mute}",
        "audit verify log --store postgresql://{mute.netloc}/runs",
    ],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_waits_ends_as_cancelled(
    number: signal.Signals, arguments: str, mute: socket.socket, tmp_path: Path
) -> None:
    host, port = mute.getsockname()
    url = f"http://{host}:{port}"
    (tmp_path / "routes.yaml").write_text(TABLE.format(mute=url))
    given = arguments.replace("{mute.netloc}", f"{host}:{port}").replace("{mute}", url)
    with start([*PROGRAM, *given.split()], cwd=tmp_path) as running:
        asking, _ = mute.accept()
        with asking:
            running.signal(number)
            assert running.wait(60) == 130
        assert running.stderr() == "cancelled\n"


def test_a_run_whose_agent_has_said_nothing_yet_is_cancelled_at_the_gateway(
    mute: socket.socket, tmp_path: Path
) -> None:
    host, port = mute.getsockname()
    table = f"routes: [{{name: mute, target: {{protocol: example, url: 'http://{host}:{port}'}}}}]\n"
    with (
        Gateway(table, tmp_path) as gateway,
        start([*PROGRAM, "run", "mute", "hello", "--gateway", gateway.url]) as running,
    ):
        asking, _ = mute.accept()
        with asking:
            running.signal(signal.SIGINT)
            assert running.wait(60) == 130
            (run,) = httpx2.get(f"{gateway.url}/admin/runs", trust_env=False).json()["runs"]
            assert run["status"] == "cancelled"


AGENT = """\
import os, signal, socket, sys

if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
line.sendall(str(os.getpid()).encode())
sys.stdin.read()
while "stubborn" in sys.argv:
    signal.pause()
"""


def of_a_program(mute: socket.socket, directory: Path, *words: str) -> Path:
    """A route table of an agent that tells `mute` its process id and nothing more. Only SIGKILL ends one that is
    `stubborn`.
    """
    (directory / "agent.py").write_text(AGENT)
    command = [sys.executable, str(directory / "agent.py"), str(mute.getsockname()[1]), *words]
    table = directory / "routes.yaml"
    target = f"{{protocol: agent_client, command: {command}, stop_timeout: 60}}"
    table.write_text(f"routes: [{{name: mute, target: {target}}}]\n")
    return table


@pytest.mark.parametrize("arguments", ["check --connect", "manifest mute", "agents mute", "run mute hello"])
def test_sigterm_leaves_neither_an_agent_nor_a_folder(arguments: str, mute: socket.socket, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    of_a_program(mute, tmp_path)
    env = {"TMPDIR": str(folder)}
    with start([*PROGRAM, *arguments.split()], env, cwd=tmp_path, fresh=True) as running:
        agent, _ = mute.accept()
        with agent:
            agent.settimeout(60)
            assert agent.recv(20)
            assert list(folder.iterdir()), "there is something to leave behind"
            running.signal(signal.SIGTERM)
            assert running.wait(60) == 130
            assert agent.recv(20) == b"", "the agent has ended"
        assert not list(folder.iterdir())


@pytest.mark.parametrize("arguments", ["manifest mute", "run mute hello"])
def test_a_terminal_is_told_what_ctrl_c_waits_for_and_a_second_one_does_not_wait(
    arguments: str, mute: socket.socket, tmp_path: Path
) -> None:
    table = of_a_program(mute, tmp_path, "stubborn")
    with terminal(*arguments.split(), "--routes", str(table)) as screen, contextlib.ExitStack() as stack:
        agent, _ = mute.accept()
        stack.enter_context(agent)
        agent.settimeout(60)
        stack.callback(os.kill, int(agent.recv(20)), signal.SIGKILL)
        screen.interrupt()
        screen.until("stopping; agents may take some seconds (Ctrl-C again does not wait for them)")
        screen.interrupt()
        assert screen.ended() == 130
        assert screen.shown.count("cancelled") == 1 and "Traceback" not in screen.shown
        assert "closing failed" not in screen.shown, "it would have waited for five seconds"


@pytest.mark.parametrize(("command", "code", "told"), [("manifest", 130, "cancelled\n"), ("serve", 0, "")])
def test_ctrl_c_while_a_command_is_imported_is_no_traceback(command: str, code: int, told: str, tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    with start([*PROGRAM, command, "mute"], {"PYTHONPATH": str(tmp_path)}, fresh=True) as running:
        assert running.wait(60) == code
        assert running.stderr() == told
