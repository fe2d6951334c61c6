"""`interlingua serve`: up, told of changes, down again."""

from __future__ import annotations

import contextlib
import inspect
import logging
import resource
import signal
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import uvicorn
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gateway.cli.serve import _of_the_stop
from tests.cli.conftest import TABLE, interlingua
from tests.support.curl import curl
from tests.support.processes import PROGRAM, Gateway, environment, free_port, start, url_answers


@pytest.fixture(scope="module")
def text(agents: dict[str, str]) -> str:
    return TABLE.format(**agents)


def names(gateway: Gateway) -> list[str]:
    found = httpx2.post(f"{gateway.url}/agent-connect/agents/search", json={}, trust_env=False).json()
    return [agent["metadata"]["ref"]["name"] for agent in found]


def test_it_says_where_it_is_and_what_to_try_once_it_is_up(text: str, tmp_path: Path) -> None:
    with Gateway(text, tmp_path, fresh=True) as gateway:
        process = gateway.process
        process.wait_until(lambda: "Try:" in process.stdout(), "announced")
        said = process.stdout()
        assert f"Interlingua is up at {gateway.url}\n" in said
        assert "mailcomposer, reporter, gone" in said
        assert f"{gateway.url}/agent-connect" in said


def test_the_front_page_has_calls_that_work_and_hides_agents_from_who_may_not_see_them(
    text: str, tmp_path: Path
) -> None:
    with Gateway(text, tmp_path) as gateway, httpx2.Client(trust_env=False, timeout=30) as client:
        page = client.get(gateway.url).json()
        assert page["agents"] == ["mailcomposer", "reporter", "gone"]
        calls = {door["protocol"]: door["call"] for door in page["protocols"]}
        assert calls["agent_client"].startswith("interlingua stdio mailcomposer ")
        assert curl(calls["agent_connect"]).json()["output"]["type"] == "result"
        html = client.get(gateway.url, headers={"accept": "text/html,*/*;q=0.1"})
        assert html.headers["content-type"].startswith("text/html") and "mailcomposer" in html.text
        assert "default-src 'none'" in html.headers["content-security-policy"]
        for via in ({"x-forwarded-for": "203.0.113.7"}, {"host": "evil.example"}):
            assert client.get(gateway.url, headers=via).json()["agents"] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order_with_exit_code_0(number: signal.Signals, text: str, tmp_path: Path) -> None:
    with Gateway(text, tmp_path) as gateway:
        gateway.process.signal(number)
        assert gateway.process.wait(60) == 0
        assert gateway.process.stderr().rstrip().endswith("stopped")


def test_an_open_stream_is_said_to_be_waited_for_and_its_end_is_no_failure(text: str, tmp_path: Path) -> None:
    with Gateway(f"{text}\nlimits: {{shutdown: 1s}}\n", tmp_path) as gateway, httpx2.Client(trust_env=False) as client:
        body = {"agent_id": "mailcomposer", "input": {"message": "word " * 3000}}
        with client.stream("POST", f"{gateway.url}/agent-connect/runs/stream", json=body, timeout=60) as stream:
            pieces = stream.iter_raw()
            next(pieces)
            gateway.process.signal(signal.SIGTERM)
            assert gateway.process.wait(60) == 0
        said = gateway.process.stderr()
        assert "stopping; open requests may go on for 1 s: 1" in said
        assert said.rstrip().endswith("stopped")
        assert "Traceback" not in said and "ERROR" not in said


def test_a_connection_to_an_agent_that_fails_is_logged_under_the_name_of_its_route(tmp_path: Path) -> None:
    at = f"127.0.0.1:{free_port()}"
    editor = f"{{protocol: agent_client, url: ws://{at}}}"
    server = f"{{protocol: agent_communication, url: http://{at}}}"
    routes = f"routes: [{{name: coder, target: {editor}}}, {{name: helper, target: {server}}}]"
    with Gateway(routes, tmp_path) as gateway:
        for agent in ("coder", "helper"):
            asked = {"agent_id": agent, "input": {"message": "x"}}
            assert httpx2.post(f"{gateway.url}/agent-connect/runs/wait", json=asked, timeout=60).status_code == 502
            told = f"WARNING gateway.transport.stdio.supervisor: {agent}: no connection could be made to {at}"
            gateway.process.wait_until(lambda told=told: told in gateway.process.stderr(), f"told of {agent}")


def test_that_requests_are_ended_by_the_stop_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    uvicorns = "Cancel %s running task(s), timeout graceful shutdown exceeded"
    assert uvicorns in inspect.getsource(uvicorn.Server.shutdown), "or it says something else now"
    assert not _of_the_stop(logging.makeLogRecord({"msg": uvicorns, "args": (2,), "levelno": logging.ERROR}))
    assert [(each.levelname, each.message) for each in caplog.records] == [("INFO", "open requests were ended: 2")]
    assert _of_the_stop(logging.makeLogRecord({"msg": "Exception in ASGI application"}))


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/agent-communication", "GET /agent-communication/ is no operation of this protocol; / shows what is served"),
        ("/agent-conect/runs", "GET /agent-conect/runs is no operation of this gateway; / shows what is served"),
        ("/agent-connect/runs/wait", "GET /agent-connect/runs/wait is no operation of this protocol"),
    ],
)
def test_a_path_that_there_is_not_is_told_with_where_to_look(gateway: Gateway, path: str, told: str) -> None:
    answer = httpx2.get(f"{gateway.url}{path}", trust_env=False, timeout=30)
    assert answer.status_code in (404, 405) and told in answer.text
    assert (answer.status_code == 404) == ("; / shows" in answer.text)


def test_where_only_this_machine_reaches_it_no_other_name_leads_to_it(gateway: Gateway) -> None:
    evil, search = {"host": "evil.example"}, f"{gateway.url}/agent-connect/agents/search"
    with httpx2.Client(trust_env=False, timeout=30) as client:
        assert client.post(search, json={}, headers=evil).status_code == 403
        assert client.post(search, json={}).status_code == 200
        assert "agents" not in client.get(f"{gateway.url}/readyz", headers=evil).json()
        assert "gone" in client.get(f"{gateway.url}/readyz").json()["agents"]
    door = "/agent-client/mailcomposer"
    with socket.create_connection(("127.0.0.1", gateway.port)) as led, pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://evil.example:{gateway.port}{door}", sock=led)
    with connect(f"{gateway.url.replace('http', 'ws', 1)}{door}"):
        pass


def test_a_port_in_use_is_one_clear_line_and_exit_code_2(text: str, tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = interlingua("serve", "routes.yaml", "--port", str(port), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"cannot listen on 127.0.0.1:{port}: address already in use\n"
    assert not (tmp_path / "interlingua.db").exists()


@pytest.mark.parametrize("host", ["no.such.host.invalid", "no..host"])
def test_a_host_that_does_not_exist_is_one_clear_line(host: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text(text)
    done = interlingua("serve", "routes.yaml", "--host", host, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"cannot listen on {host}:8080: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_file_is_its_mistakes_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text("routes:\n  - {name: a, target: {protocol: mpc}}\n  - {}\n")
    done = interlingua("serve", cwd=tmp_path)
    assert done.returncode == 2
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == [
        "routes.yaml:2 routes[0].target.protocol",
        "routes.yaml:3 routes[1].name",
        "routes.yaml:3 routes[1].target",
    ]


def test_a_store_that_cannot_be_opened_is_one_clear_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text(f"{text}\nstore: {{url: sqlite:///no/such/folder/x.db}}\n")
    done = interlingua("serve", "--port", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("the gateway cannot start: ")
    assert "Traceback" not in done.stderr


def test_a_store_that_was_removed_under_it_is_told_when_it_stops_with_exit_code_1(text: str, tmp_path: Path) -> None:
    with Gateway(f"{text}\nstore: {{url: sqlite:///kept.db}}\n", tmp_path) as gateway:
        (tmp_path / "kept.db").unlink()
        body = {"agent_id": "mailcomposer", "input": {"message": "hello"}}
        refused = httpx2.post(f"{gateway.url}/agent-connect/runs", json=body, trust_env=False, timeout=60)
        assert refused.status_code == 503
        gateway.process.signal(signal.SIGTERM)
        assert gateway.process.wait(60) == 1
        assert "the gateway has stopped, and not all that happened is stored: " in gateway.process.stderr()


def readiness(gateway: Gateway) -> tuple[int, str | None]:
    """The status of `/readyz`, and its reason."""
    answer = httpx2.get(f"{gateway.url}/readyz", trust_env=False, timeout=60)
    return answer.status_code, answer.json().get("reason")


def test_a_gateway_that_cannot_write_is_not_ready_and_says_why_until_it_can(text: str, tmp_path: Path) -> None:
    with Gateway(text, tmp_path) as gateway:
        assert readiness(gateway) == (200, None)
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        failed = (503, "the store failed: its disk fails, or takes no writes any more")
        gateway.process.wait_until(lambda: readiness(gateway) == failed, "seen though no client writes", 60)
        body = {"agent_id": "mailcomposer", "input": {"message": "hello"}}
        refused = httpx2.post(f"{gateway.url}/agent-connect/runs", json=body, trust_env=False, timeout=60)
        assert (refused.status_code, refused.json()) == failed
        assert readiness(gateway) == failed
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        gateway.process.wait_until(lambda: readiness(gateway) == (200, None), "recovered", 60)


def test_a_gateway_whose_store_is_damaged_is_not_ready_and_says_so_until_it_is_mended(
    text: str, tmp_path: Path
) -> None:
    with Gateway(f"{text}\nstore: {{url: sqlite:///kept.db}}\n", tmp_path) as gateway:
        with contextlib.closing(sqlite3.connect(tmp_path / "kept.db")) as store:
            (table,) = store.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'runs'").fetchone()
            store.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        whole = (tmp_path / "kept.db").read_bytes()[(table - 1) * 4096 : table * 4096]

        def put(page: bytes) -> None:
            with (tmp_path / "kept.db").open("r+b") as file:
                file.seek((table - 1) * 4096)
                file.write(page)

        put(b"\xa5" * 4096)
        body = {"agent_id": "mailcomposer", "input": {"message": "hello"}}
        refused = httpx2.post(f"{gateway.url}/agent-connect/runs", json=body, trust_env=False, timeout=60)
        assert refused.status_code == 503
        assert readiness(gateway) == (503, "the store failed: it is damaged")
        put(whole)
        gateway.process.wait_until(lambda: readiness(gateway) == (200, None), "mended", 60)
        created = httpx2.post(f"{gateway.url}/agent-connect/runs", json=body, trust_env=False, timeout=60)
        assert created.status_code == 200


def test_a_header_that_was_overwritten_is_in_the_log_of_the_store_or_the_next_start_says_so_and_ends(
    text: str, tmp_path: Path
) -> None:
    def overwrite() -> None:
        with (tmp_path / "kept.db").open("r+b") as file:
            file.write(b"\xa5" * 100)

    with Gateway(f"{text}\nstore: {{url: sqlite:///kept.db}}\n", tmp_path) as gateway:
        body = {"agent_id": "mailcomposer", "input": {"message": "hello"}}
        runs = f"{gateway.url}/agent-connect/runs"
        run = httpx2.post(runs, json=body, trust_env=False, timeout=60).json()["run_id"]
        overwrite()
        gateway.kill9()
        gateway.restart()
        assert httpx2.get(f"{runs}/{run}", trust_env=False, timeout=60).status_code == 200
        with contextlib.closing(sqlite3.connect(tmp_path / "kept.db")) as store:
            store.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        overwrite()
        gateway.kill9()
        done = interlingua("serve", str(gateway.file), "--port", "0")
        assert done.returncode == 2
        assert done.stderr.endswith(f"cannot open the store {tmp_path}/kept.db: file is not a database\n")


@pytest.fixture(scope="module")
def running(text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(text, tmp_path_factory.mktemp("reloaded")) as gateway:
        yield gateway


@pytest.fixture
def reloaded(running: Gateway, text: str) -> Gateway:
    """A gateway on that table, which one test after the other changes."""
    running.rewrite(text)
    running.process.wait_until(lambda: names(running) == ["mailcomposer", "reporter", "gone"], "as at first")
    return running


def test_a_changed_file_is_taken_without_being_asked(text: str, reloaded: Gateway) -> None:
    reloaded.rewrite(text.replace("name: gone", "name: found"))
    reloaded.process.wait_until(lambda: names(reloaded)[-1] == "found", "reloaded")


def test_a_command_that_is_not_there_is_warned_of_once_when_its_route_comes(text: str, reloaded: Gateway) -> None:
    coder = "  - {name: coder, target: {protocol: agent_client, command: [no-such-program]}}\n"
    reloaded.rewrite(f"{text.rstrip()}\n{coder}")
    told = "].target.command: no-such-program was not found on the PATH"
    reloaded.process.wait_until(lambda: told in reloaded.process.stderr(), "told of the command")
    for name in ("first", "second"):
        reloaded.rewrite(f"# {name}\n{text.rstrip().replace('name: gone', f'name: {name}')}\n{coder}")
        reloaded.process.wait_until(
            lambda name=name: f"routes reloaded: mailcomposer, reporter, {name}" in reloaded.process.stderr(), name
        )
    assert reloaded.process.stderr().count(told) == 1


def test_a_file_that_is_swapped_as_a_mounted_configmap_is_taken(text: str, tmp_path: Path) -> None:
    for folder, content in (("one", text), ("two", text.replace("name: gone", "name: found"))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "routes.yaml").write_text(content)
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "routes.yaml").symlink_to("..data/routes.yaml")
    port = free_port()
    argv = [*PROGRAM, "serve", str(tmp_path / "routes.yaml"), "--port", str(port)]
    ready = url_answers(f"http://127.0.0.1:{port}/readyz")
    with start(argv, environment(), port=port, ready=ready) as process:
        (tmp_path / "new").symlink_to("two")
        (tmp_path / "new").replace(tmp_path / "..data")
        process.wait_until(lambda: "found" in process.stderr(), "reloaded")


def test_sighup_reloads_where_the_file_is_not_watched(text: str, tmp_path: Path) -> None:
    with Gateway(text, tmp_path, args=["--no-watch"]) as gateway:
        gateway.rewrite(text.replace("name: gone", "name: found"))
        assert names(gateway)[-1] == "gone"
        gateway.process.signal(signal.SIGHUP)
        gateway.process.wait_until(lambda: names(gateway)[-1] == "found", "reloaded")


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("routes: 3\n", "routes.yaml:1 routes: should be a list"),
        ("routes: [\n", "not YAML"),
        ("", "routes.yaml: the file is empty"),
    ],
)
def test_a_bad_file_is_refused_its_mistakes_are_logged_and_the_old_routes_stay(
    bad: str, told: str, text: str, reloaded: Gateway
) -> None:
    reloaded.rewrite(bad)
    reloaded.process.wait_until(lambda: told in reloaded.process.stderr(), "told of the mistake")
    assert names(reloaded) == ["mailcomposer", "reporter", "gone"]
    assert "\ninterlingua_routes_current 0\n" in httpx2.get(f"{reloaded.url}/metrics", trust_env=False).text
    reloaded.rewrite(text.replace("name: gone", "name: found"))
    reloaded.process.wait_until(lambda: names(reloaded)[-1] == "found", "reloaded")
    assert "\ninterlingua_routes_current 1\n" in httpx2.get(f"{reloaded.url}/metrics", trust_env=False).text


def test_a_run_in_progress_survives_a_reload_that_removes_its_route(text: str, reloaded: Gateway) -> None:
    words = "word " * 30
    with httpx2.Client(timeout=30, trust_env=False) as client:
        door = f"{reloaded.url}/agent-connect"
        body = {"agent_id": "mailcomposer", "input": {"message": words}, "on_disconnect": "continue"}
        run = client.post(f"{door}/runs", json=body).json()["run_id"]
        reloaded.rewrite("\n".join(line for line in text.splitlines() if "name: mailcomposer" not in line))
        reloaded.process.wait_until(lambda: "mailcomposer" not in names(reloaded), "reloaded")
        done = client.get(f"{door}/runs/{run}/wait").json()
        assert done["output"]["type"] in ("result", "interrupt"), done
