"""`interlingua serve --workers 2`: one supervisor and two processes on one port."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import TABLE, interlingua
from tests.support.processes import Gateway

WITHIN = 60.0


def workers_of(gateway: Gateway) -> set[int]:
    pid = gateway.process.pid
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def up(gateway: Gateway, other_than: set[int]) -> bool:
    """Whether two workers are there, all of them new."""
    now = workers_of(gateway)
    return len(now) == 2 and not now & other_than


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


class Load:
    """New connections, one after the other from each of four threads, each with a request."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(4)]
        self.refused: list[OSError] = []
        self.answered = self.cut = 0

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                connection = socket.create_connection(("127.0.0.1", self._port), timeout=30)
            except OSError as error:
                self.refused.append(error)
                continue
            with connection:
                try:
                    connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                    answer = connection.recv(100)
                except OSError:
                    answer = b""
            if answer.startswith(b"HTTP/1.1 200"):
                self.answered += 1
            else:
                self.cut += 1


@pytest.fixture(scope="module")
def text(agents: dict[str, str]) -> str:
    return f"{TABLE.format(**agents)}\nlimits: {{shutdown: 1s}}\n"


@pytest.fixture(scope="module")
def gateway(text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(text, tmp_path_factory.mktemp("workers"), args=["--workers", "2"], fresh=True) as running:
        running.process.wait_until(lambda: "2 workers" in running.process.stdout(), "greeted", WITHIN)
        yield running


def test_two_processes_serve_one_port_and_greet_once(gateway: Gateway) -> None:
    said = gateway.process.stdout()
    assert said.count("Interlingua is up at") == 1
    assert len(workers_of(gateway)) == 2
    with httpx2.Client(trust_env=False, timeout=30) as client:
        processes = set()
        for _ in range(60):  # each on a connection of its own, so by chance at either
            answer = client.get(f"{gateway.url}/admin", headers={"connection": "close"})
            processes.add(answer.json()["process"])
    assert len(processes) == 2


def test_a_restart_one_by_one_refuses_and_cuts_no_connection(gateway: Gateway) -> None:
    before = workers_of(gateway)
    with Load(gateway.port) as load:
        gateway.process.signal(signal.SIGUSR2)
        gateway.process.wait_until(lambda: "all workers are restarted" in gateway.process.stderr(), "restarted", WITHIN)
    assert up(gateway, before)
    assert not load.refused and not load.cut and load.answered > 100


def test_a_worker_that_is_killed_is_replaced_and_no_connection_is_refused_meanwhile(gateway: Gateway) -> None:
    killed = min(workers_of(gateway))
    with Load(gateway.port) as load:
        os.kill(killed, signal.SIGKILL)
        gateway.process.wait_until(
            lambda: (
                f"(process {killed}) has ended (SIGKILL)" in gateway.process.stderr()
                and gateway.process.stderr().count("is up in place of") >= 3
            ),
            "replaced",
            WITHIN,
        )
    assert killed not in workers_of(gateway) and len(workers_of(gateway)) == 2
    assert not load.refused and load.answered > 100
    assert load.cut <= 4, "only what the killed one had taken"


def test_a_bad_file_is_refused_by_all_and_the_next_good_one_is_taken_by_all(gateway: Gateway, text: str) -> None:
    def said(what: str) -> int:
        return gateway.process.stderr().count(what)

    gateway.rewrite("routes: [")
    gateway.process.wait_until(lambda: said("the file is refused and the old routes stay") == 2, "refused", WITHIN)
    gateway.rewrite(text.replace("name: gone", "name: back"))
    gateway.process.wait_until(lambda: said("routes reloaded: mailcomposer, reporter, back") == 2, "taken", WITHIN)
    gateway.process.signal(signal.SIGHUP)
    gateway.process.wait_until(lambda: said("SIGHUP; routes reloaded") == 2, "asked by a signal", WITHIN)


def test_a_worker_that_cannot_start_leaves_the_restart_to_the_old_ones(gateway: Gateway, text: str) -> None:
    before = workers_of(gateway)
    gateway.rewrite("routes: [")
    gateway.process.signal(signal.SIGUSR2)
    gateway.process.wait_until(lambda: "the restart is given up" in gateway.process.stderr(), "given up", WITHIN)
    assert workers_of(gateway) == before
    assert httpx2.get(f"{gateway.url}/healthz", trust_env=False).status_code == 200
    gateway.rewrite(text)


def test_nothing_is_left_of_a_supervisor_that_is_killed(text: str, tmp_path: Path) -> None:
    with Gateway(text, tmp_path, args=["--workers", "2"], fresh=True) as gateway:
        gateway.process.wait_until(lambda: "2 workers" in gateway.process.stdout(), "greeted", WITHIN)
        workers = workers_of(gateway)
        assert len(workers) == 2
        gateway.kill9()
        until = time.monotonic() + WITHIN
        while any(map(alive, workers)) and time.monotonic() < until:
            threading.Event().wait(0.05)
        assert not any(map(alive, workers))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_stops_all_with_exit_code_0(number: signal.Signals, text: str, tmp_path: Path) -> None:
    with Gateway(text, tmp_path, args=["--workers", "2"], fresh=True) as gateway:
        gateway.process.wait_until(lambda: "2 workers" in gateway.process.stdout(), "greeted", WITHIN)
        workers = workers_of(gateway)
        gateway.process.signal(number)
        assert gateway.process.wait(WITHIN) == 0
        assert gateway.process.stderr().rstrip().endswith("stopped")
        assert not any(map(alive, workers))


def test_what_is_wrong_at_the_start_is_said_once_with_exit_code_2(text: str, tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text("routes: 1\n")
    alone = interlingua("serve", str(file), "--port", "0", cwd=tmp_path)
    several = interlingua("serve", str(file), "--port", "0", "--workers", "3", cwd=tmp_path, fresh=True)
    assert alone.returncode == 2 and alone.stderr
    assert (several.returncode, several.stderr) == (2, alone.stderr)
    file.write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = interlingua("serve", str(file), "--port", str(port), "--workers", "2", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"cannot listen on 127.0.0.1:{port}: address already in use\n")
