"""Ctrl-C while a command waits for somebody who says nothing: one word, and the exit code of what is cancelled."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

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
def test_a_command_that_waits_ends_as_cancelled(arguments: str, mute: socket.socket, tmp_path: Path) -> None:
    host, port = mute.getsockname()
    url = f"http://{host}:{port}"
    (tmp_path / "routes.yaml").write_text(TABLE.format(mute=url))
    given = arguments.replace("{mute.netloc}", f"{host}:{port}").replace("{mute}", url)
    with start([*PROGRAM, *given.split()], cwd=tmp_path) as running:
        asking, _ = mute.accept()
        with asking:
            running.signal(signal.SIGINT)
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
