"""`interlingua serve --workers 2`: one supervisor and two processes on one port."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import TABLE, interlingua
from tests.support.processes import ROOT, Gateway

WITHIN = 60.0


def workers_of(gateway: Gateway) -> set[int]:
    pid = gateway.process.pid
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


OPEN_REQUEST = (
    b"POST /agent-connect/runs HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
    b"content-type: application/json\r\ncontent-length: 100\r\n\r\n"
)
"""A request whose client has more to say."""


def up(gateway: Gateway, other_than: set[int]) -> bool:
    """Whether two workers are there, all of them new."""
    now = workers_of(gateway)
    return len(now) == 2 and not now & other_than


def figures(url: str) -> str:
    """The page of metrics, once it has the figures of all workers as they are now.

    A worker that a busy machine keeps waiting for half a second is told with those that it had before.
    """
    with httpx2.Client(trust_env=False, timeout=WITHIN) as client:
        while "does not answer" in (page := client.get(f"{url}/metrics").text):
            continue
    return page


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


class Load:
    """New connections, a hundred a second from each of four threads, each with a request."""

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
        while not self._over.wait(0.01):
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
    return f"{TABLE.format(**agents)}\nlimits: {{shutdown: 1s, silence: 10m}}\n"


@pytest.fixture(scope="module")
def gateway(text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(text, tmp_path_factory.mktemp("workers"), args=["--workers", "2"]) as running:
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


def test_a_session_over_http_is_known_to_both_whichever_is_asked(gateway: Gateway) -> None:
    asked = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    began = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}
    url = f"{gateway.url}/agent-communication/mcp"
    with httpx2.Client(trust_env=False, timeout=30, headers={**asked, "connection": "close"}) as http:
        opened = {http.post(url, json=began).headers["mcp-session-id"] for _ in range(20)}
        assert len({session[-3:] for session in opened}) == 2
        for session in opened:
            own = {"mcp-session-id": session}
            for _ in range(4):
                answer = http.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers=own)
                assert answer.status_code == 200 and answer.json()["result"]["tools"]
            assert [http.delete(url, headers=own).status_code for _ in range(2)] == [200, 404]


class Clients:
    """Each request on a connection of its own, so by chance at any worker."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def get(self, path: str) -> httpx2.Response:
        with httpx2.Client(trust_env=False, timeout=30) as client:
            return client.get(f"{self._gateway.url}{path}")

    @contextlib.contextmanager
    def elsewhere(self) -> Iterator[httpx2.Client]:
        """A connection to a worker that answers, while others hang."""
        for _ in range(50):
            with (
                contextlib.suppress(httpx2.TimeoutException),
                httpx2.Client(base_url=self._gateway.url, trust_env=False, timeout=WITHIN) as client,
            ):
                client.get("/healthz", timeout=2)
                yield client
                return
        raise AssertionError("no worker answers")

    def runs(self, count: int) -> None:
        """So many at once: the agent takes its time over each."""
        body = {"agent_id": "mailcomposer", "input": {"message": "invite Ada to lunch"}}

        def run(_: int) -> httpx2.Response:
            return httpx2.post(f"{self._gateway.url}/agent-connect/runs/wait", json=body, trust_env=False, timeout=30)

        with ThreadPoolExecutor(count) as pool:
            assert [answer.status_code for answer in pool.map(run, range(count))] == [200] * count

    def never_fall(self, over: Callable[[], bool]) -> None:
        """Scrape until it is `over`."""
        before: dict[str, float] = {}

        def scraped() -> bool:
            nonlocal before
            if (page := self.get("/metrics")).status_code != 503:  # as on a busy machine
                now = _samples(page.text)
                assert not _fell(before, now)
                before = now
            return over()

        self._gateway.process.wait_until(scraped, "it is over", WITHIN)

    def started(self) -> float:
        return _samples(figures(self._gateway.url))[
            'interlingua_runs_started_total{agent="mailcomposer",protocol="agent_connect"}'
        ]


def _samples(page: str) -> dict[str, float]:
    found = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in found}


def _fell(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """Samples of what only grows that did not."""
    gauges = ("interlingua_runs_active", "interlingua_watchers", "interlingua_target_state", "interlingua_routes")
    return [name for name, value in before.items() if not name.startswith(gauges) and now.get(name, 0.0) < value]


def test_every_worker_tells_the_figures_of_all_and_those_of_a_replaced_one_are_kept(gateway: Gateway) -> None:
    clients = Clients(gateway)
    clients.runs(30)
    assert [clients.started() for _ in range(8)] == [30.0] * 8

    def told() -> tuple[int, dict[str, int]]:
        agents = {each["name"]: each for each in clients.get("/admin/agents").json()["agents"]}
        return agents["mailcomposer"]["started"], agents["mailcomposer"]["ended"]

    gateway.process.wait_until(lambda: told() == (30, {"success": 30}), "told to an operator", WITHIN)
    replaced = gateway.process.stderr().count("is up in place of")
    os.kill(min(workers_of(gateway)), signal.SIGKILL)
    clients.never_fall(lambda: gateway.process.stderr().count("is up in place of") > replaced)
    clients.runs(10)
    restarted = gateway.process.stderr().count("all workers are restarted")
    gateway.process.signal(signal.SIGUSR2)
    clients.never_fall(lambda: gateway.process.stderr().count("all workers are restarted") > restarted)
    assert [clients.started() for _ in range(8)] == [40.0] * 8


def test_what_a_worker_counted_is_kept_and_exit_code_1_tells_of_it_where_the_store_is_lost(
    text: str, tmp_path: Path
) -> None:
    with Gateway(f"{text}\nstore: {{url: sqlite:///kept.db}}\n", tmp_path, args=["--workers", "2"]) as gateway:
        gateway.process.wait_until(lambda: "2 workers" in gateway.process.stdout(), "greeted", WITHIN)
        Clients(gateway).runs(10)
        (tmp_path / "kept.db").unlink()
        both = "was removed or replaced while it was in use"
        body = {"agent_id": "mailcomposer", "input": {"message": "hello"}}
        while gateway.process.stderr().count(both) < 2:
            refused = httpx2.post(f"{gateway.url}/agent-connect/runs", json=body, trust_env=False, timeout=WITHIN)
            assert refused.status_code == 503
        ended = min(workers_of(gateway))
        os.kill(ended, signal.SIGTERM)
        told = f"(process {ended}) has ended (exit code 1)"
        gateway.process.wait_until(lambda: told in gateway.process.stderr(), "it has ended", WITHIN)
        assert Clients(gateway).started() >= 10
        gateway.process.signal(signal.SIGTERM)
        assert gateway.process.wait(WITHIN) == 1
        assert "Traceback" not in gateway.process.stderr(), "the other one was told to take over what it left"


def test_no_connection_waits_for_a_worker_that_accepts_none(text: str, tmp_path: Path) -> None:
    """One that hangs, though nobody asks how it is; and one that was told to stop, while its requests go on."""
    text = text.replace("shutdown: 1s, silence: 10m", "shutdown: 10m, silence: 12s")
    with Gateway(text, tmp_path, args=["--workers", "2"]) as gateway, contextlib.ExitStack() as open_requests:
        gateway.process.wait_until(lambda: "2 workers" in gateway.process.stdout(), "greeted", WITHIN)

        def all_answered() -> bool:
            """Of new connections, each by chance at either worker's place."""
            with contextlib.suppress(OSError):
                return all(_answered(gateway.port, 0.5) for _ in range(24))
            return False

        hangs = min(workers_of(gateway))
        os.kill(hangs, signal.SIGSTOP)
        gateway.process.wait_until(all_answered, "the other one accepts for it", WITHIN)
        assert hangs in workers_of(gateway), "it is killed later"
        os.kill(hangs, signal.SIGCONT)
        for _ in range(16):
            client = open_requests.enter_context(socket.create_connection(("127.0.0.1", gateway.port), WITHIN))
            client.sendall(OPEN_REQUEST)
            assert client.recv(12) == b"HTTP/1.1 100"
        os.kill(hangs, signal.SIGTERM)
        gateway.process.wait_until(lambda: "open requests may go on" in gateway.process.stderr(), "it leaves", WITHIN)
        assert all(_answered(gateway.port, WITHIN) for _ in range(24))
        open_requests.close()


def _answered(port: int, seconds: float) -> bool:
    """Raises OSError if a new connection has no answer in time."""
    with socket.create_connection(("127.0.0.1", port), seconds) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        return connection.recv(100).startswith(b"HTTP/1.1 200")


def test_a_worker_that_hangs_holds_up_no_answer_and_its_last_figures_are_said_to_be_old(gateway: Gateway) -> None:
    clients = Clients(gateway)
    clients.runs(8)
    before = clients.started()
    hanging = min(workers_of(gateway))
    os.kill(hanging, signal.SIGSTOP)
    try:
        with clients.elsewhere() as client:

            def ready() -> int:
                answer = client.get("/readyz")
                assert answer.status_code == 200 and answer.json()["workers"]["all"] == 2
                return int(answer.json()["workers"]["ready"])

            gateway.process.wait_until(lambda: ready() == 1, "one is known to hang", WITHIN)
            first, *page = client.get("/metrics").text.splitlines()
            assert "does not answer: its figures are" in first
            started = 'interlingua_runs_started_total{agent="mailcomposer",protocol="agent_connect"}'
            assert f"{started} {before:.0f}" in page
            os.kill(hanging, signal.SIGCONT)
            gateway.process.wait_until(lambda: ready() == 2, "both answer", WITHIN)
            figures(gateway.url)
    finally:
        os.kill(hanging, signal.SIGCONT)


def test_while_the_supervisor_hangs_no_counter_goes_back_and_it_is_as_ready_as_it_was(gateway: Gateway) -> None:
    clients = Clients(gateway)
    figures(gateway.url)
    os.kill(gateway.process.pid, signal.SIGSTOP)
    try:
        for _ in range(2):
            answer = clients.get("/metrics")
            assert answer.status_code == 503 and "the supervisor does not answer" in answer.text
        assert any(clients.get("/readyz").status_code == 200 for _ in range(20))
    finally:
        os.kill(gateway.process.pid, signal.SIGCONT)
    figures(gateway.url)


def test_workers_that_hang_are_killed_one_at_a_time_and_replaced_and_their_runs_are_taken_over(tmp_path: Path) -> None:
    table = HOUSE.replace("shutdown: 1s", "shutdown: 1s, silence: 2s")
    with Gateway(table, tmp_path, args=["--workers", "2"]) as gateway:
        gateway.process.wait_until(lambda: "2 workers" in gateway.process.stdout(), "greeted", WITHIN)
        said, before = gateway.process.stderr, workers_of(gateway)
        body = {"agent_id": "gardener", "input": {"message": "a rose"}}
        with httpx2.Client(base_url=f"{gateway.url}/agent-connect", trust_env=False, timeout=WITHIN) as client:
            run = client.post("/runs", json=body).json()["run_id"]
            assert client.get(f"/runs/{run}/wait").json()["run"]["status"] == "interrupted"
        everybody = (gateway.process.pid, *before)
        for each in everybody:
            os.kill(each, signal.SIGSTOP)
        slept = time.monotonic()
        gateway.process.wait_until(lambda: time.monotonic() > slept + 2.5, "the machine slept", WITHIN)
        for each in everybody:
            os.kill(each, signal.SIGCONT)
        Clients(gateway).get("/healthz")
        assert "is killed" not in said() and workers_of(gateway) == before
        for each in before:
            os.kill(each, signal.SIGSTOP)
        gateway.process.wait_until(lambda: up(gateway, before), "both are replaced", WITHIN)
        gateway.process.wait_until(lambda: said().count("is up in place of worker") == 2, "both are up", WITHIN)
        assert said().count("has said nothing for 2 s: it is killed") == 2
        between = said().partition("is killed")[2].partition("is killed")[0]
        assert "has ended (SIGKILL); another is started" in between, "the other one gets its time again"
        ended = Clients(gateway).get(f"/agent-connect/runs/{run}/wait").json()
        assert ended["run"]["status"] == "error", ended


def test_a_restart_one_by_one_refuses_and_cuts_no_connection_and_an_operators_wish_holds(gateway: Gateway) -> None:
    before, clients = workers_of(gateway), Clients(gateway)
    httpx2.post(f"{gateway.url}/admin/recording", json={"record": True, "seconds": 3600}, trust_env=False)
    restarted = gateway.process.stderr().count("all workers are restarted")
    with Load(gateway.port) as load:
        gateway.process.signal(signal.SIGUSR2)
        gateway.process.wait_until(
            lambda: gateway.process.stderr().count("all workers are restarted") > restarted, "restarted", WITHIN
        )
    assert up(gateway, before)
    assert not load.refused and not load.cut and load.answered > 100
    assert all(clients.get("/admin/recording").json()["agents"]["mailcomposer"] for _ in range(8))
    httpx2.post(f"{gateway.url}/admin/recording", json={"record": False, "seconds": 1}, trust_env=False)


def test_a_worker_that_is_killed_is_replaced_and_no_connection_is_refused_meanwhile(gateway: Gateway) -> None:
    killed = min(workers_of(gateway))
    replaced = gateway.process.stderr().count("is up in place of")
    with Load(gateway.port) as load:
        os.kill(killed, signal.SIGKILL)
        gateway.process.wait_until(
            lambda: (
                f"(process {killed}) has ended (SIGKILL)" in gateway.process.stderr()
                and gateway.process.stderr().count("is up in place of") > replaced
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


def test_nothing_is_left_of_a_supervisor_that_is_killed_and_the_next_one_has_the_port_at_once(
    text: str, tmp_path: Path
) -> None:
    """Though requests are open at its workers, which end them in order."""
    text = text.replace("shutdown: 1s", "shutdown: 1m")
    with Gateway(text, tmp_path, args=["--workers", "2"]) as gateway, contextlib.ExitStack() as open_requests:
        gateway.process.wait_until(lambda: "2 workers" in gateway.process.stdout(), "greeted", WITHIN)
        workers = workers_of(gateway)
        assert len(workers) == 2
        clients = [
            open_requests.enter_context(socket.create_connection(("127.0.0.1", gateway.port))) for _ in range(16)
        ]
        for client in clients:
            client.sendall(OPEN_REQUEST)
            assert client.recv(12) == b"HTTP/1.1 100"
        gateway.kill9()
        gateway.restart()
        assert any(map(alive, workers)), "they let requests go on"
        open_requests.close()
        until = time.monotonic() + WITHIN
        while any(map(alive, workers)) and time.monotonic() < until:
            threading.Event().wait(0.05)
        assert not any(map(alive, workers))


def stops_all(number: signal.Signals, gateway: Gateway) -> None:
    """One signal to the supervisor: all end in order."""
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
    far = tmp_path / ("folder" * 15)
    far.mkdir()
    done = interlingua(
        "serve", str(file), "--port", "0", "--workers", "2", cwd=tmp_path, env={"TMPDIR": str(far)}, fresh=True
    )
    assert done.returncode == 2 and done.stderr.count("workers cannot reach each other at") == 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = interlingua("serve", str(file), "--port", str(port), "--workers", "2", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"cannot listen on 127.0.0.1:{port}: address already in use\n")


HOUSE = """
store: {url: "sqlite:///store.db"}
limits: {shutdown: 1s, client: {runs: 5}}
routes:
  - name: gardener
    target: {protocol: agent_client, command: [python3, GARDENER], warm: 1}
    limits: {runs: 2}
""".replace("GARDENER", str(ROOT / "examples/agents/gardener.py"))


def gardeners(workers: set[int]) -> list[int]:
    """How many processes of the agent each worker has."""
    found = dict.fromkeys(workers, 0)
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"examples/agents/gardener.py" in (folder / "cmdline").read_bytes() and (
                above := _worker_of(int(folder.name), workers)
            ):
                found[above] += 1
    return sorted(found.values())


def _worker_of(pid: int, workers: set[int]) -> int | None:
    while pid > 1 and pid not in workers:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid if pid in workers else None


def test_an_operator_is_served_by_whichever_worker_is_asked_and_one_sigterm_stops_all(tmp_path: Path) -> None:
    text = HOUSE.replace("{runs: 2}", "{runs: 20}")
    with Gateway(text, tmp_path, args=["--workers", "2"]) as gateway:
        gateway.process.wait_until(lambda: "2 workers" in gateway.process.stdout(), "greeted", WITHIN)

        def ask(method: str, path: str, body: object = None) -> httpx2.Response:
            """On a connection of its own, so by chance of either."""
            with httpx2.Client(trust_env=False, timeout=30) as client:
                return client.request(method, f"{gateway.url}{path}", json=body)

        def status(run: str) -> str:
            return str(ask("GET", f"/admin/runs/{run}").json()["status"])

        def follow(run: str, told: list[str]) -> None:
            with httpx2.Client(trust_env=False, timeout=60) as client:
                stream = {"accept": "text/event-stream"}
                with client.stream("GET", f"{gateway.url}/admin/runs/{run}/events", headers=stream) as answer:
                    told.append(answer.read().decode())

        runs = []
        for _ in range(8):
            body = {"agent_id": "gardener", "input": {"message": "a rose"}}
            runs.append(ask("POST", "/agent-connect/runs", body).json()["run_id"])
        told: list[str] = []
        watching = [threading.Thread(target=follow, args=(run, told)) for run in runs]
        for thread in watching:
            thread.start()
        for run in runs:
            gateway.process.wait_until(lambda run=run: status(run) == "interrupted", "it asks", WITHIN)  # type: ignore[misc]
        for run in runs[:4]:
            answer = ask("POST", f"/admin/runs/{run}/answer", {"value": {"outcome": "selected", "optionId": "plant"}})
            assert answer.status_code == 200, answer.text
        for run in runs[4:]:
            assert ask("POST", f"/admin/runs/{run}/cancel", {"reason": "enough"}).status_code == 200
        for thread in watching:
            thread.join()
        assert [status(run) for run in runs] == ["success"] * 4 + ["cancelled"] * 4
        assert len(told) == 8 and all("event: run\n" in one for one in told)

        def counts() -> tuple[int, int, dict[str, int]]:
            (agent,) = ask("GET", "/admin/agents").json()["agents"]
            return agent["started"], agent["active"], agent["ended"]

        wanted = (8, 0, {"success": 4, "cancelled": 4})
        gateway.process.wait_until(lambda: [counts() for _ in range(6)] == [wanted] * 6, "told by both", WITHIN)
        assert ask("POST", "/admin/reload").status_code == 200
        why = "an operator asks for it; routes reloaded: gardener"
        gateway.process.wait_until(lambda: gateway.process.stderr().count(why) == 2, "all have reloaded", WITHIN)
        stops_all(signal.SIGTERM, gateway)


def test_what_an_agent_may_have_is_divided_among_the_workers_and_one_sigint_stops_all(tmp_path: Path) -> None:
    with Gateway(HOUSE, tmp_path, args=["--workers", "2"]) as gateway:
        gateway.process.wait_until(lambda: "2 workers" in gateway.process.stdout(), "greeted", WITHIN)
        workers = workers_of(gateway)
        gateway.process.wait_until(lambda: sum(gardeners(workers)) > 0, "one is started unasked", WITHIN)
        codes = []
        for _ in range(60):  # by chance at either
            body = {"agent_id": "gardener", "input": {"message": "a rose"}}
            with httpx2.Client(trust_env=False, timeout=30) as client:
                codes.append(client.post(f"{gateway.url}/agent-connect/runs", json=body).status_code)
        assert (codes.count(200), codes.count(503)) == (2, 58), "each worker takes one, for it waits for an answer"
        assert 0 not in gardeners(workers), "each has one of its own for its run"
        assert "each of 2 workers starts this program" in gateway.process.stderr()
        assert "limits.client: each of 2 workers counts for itself" in gateway.process.stderr()
        stops_all(signal.SIGINT, gateway)


def test_check_says_what_is_not_the_same_with_several_workers(tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text(HOUSE)
    assert "workers" not in interlingua("check", cwd=tmp_path).stdout
    done = interlingua("check", "--workers", "4", cwd=tmp_path)
    assert done.returncode == 0
    for what in (
        "routes[0].target.command: each of 4 workers starts this program",
        "routes[0].limits.runs: 2 cannot be divided among 4 workers: each takes one",
        "limits.client: each of 4 workers counts for itself: together they take up to 4 times as much",
    ):
        assert what in done.stdout
    (tmp_path / "routes.yaml").write_text(HOUSE.replace("sqlite:///store.db", "sqlite://"))
    wrong = "store.url: a store in memory is of one process"
    for command, code in ((["check"], 1), (["serve", "--port", "0"], 2)):
        done = interlingua(*command, "--workers", "2", cwd=tmp_path, fresh=True)
        assert done.returncode == code and wrong in done.stderr
    assert interlingua("check", cwd=tmp_path).returncode == 0
