"""The console in a real browser."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import json
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bench.growth import copy_runs
from bench.stage import EDITORS_AGENT
from tests.support.agent_client import agent_client_agent_command
from tests.support.peers import BUILT, PEERS, node, peer_modules
from tests.support.processes import ROOT, Gateway, environment, free_port, start

FILES = ROOT / "gateway" / "admin" / "ui"
EXAMPLES = ROOT / "examples" / "agents"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> \u202etxt.exe \x1b[31m <b>bold</b>"


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Gateway]:
    """A gateway with five agents, its store in the folder."""
    port, other = free_port(), free_port()
    table = f"""
routes:
  - name: gardener
    target: {{protocol: agent_client, command: ["{sys.executable}", "{EXAMPLES / "gardener.py"}"]}}
  - name: composer
    target: {{protocol: agent_connect, url: "http://127.0.0.1:{port}", agent: mailcomposer}}
  - name: flood
    target: {{protocol: agent_client, command: {json.dumps(agent_client_agent_command("py"))}}}
  - name: torrent
    target: {{protocol: agent_client, command: {json.dumps(EDITORS_AGENT)}, cwd: "{ROOT}"}}
  - name: reporter
    target: {{protocol: agent_protocol, url: "http://127.0.0.1:{other}"}}
"""
    composer = [sys.executable, str(EXAMPLES / "mailcomposer.py"), "--port", str(port)]
    reporter = [sys.executable, str(EXAMPLES / "reporter.py"), "--port", str(other)]
    with start(composer, port=port), start(reporter, port=other), Gateway(table, folder) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with served(tmp_path_factory.mktemp("console")) as running:
        yield running


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=gateway.url, trust_env=False, timeout=120) as client:
        yield client


class Browser:
    """A browser, in a process of its own, that stays for all stories of this one."""

    def __init__(self) -> None:
        sdk = peer_modules("browser")
        scratch = BUILT / f"{sdk.name}-unpacked"
        scratch.mkdir(exist_ok=True)
        argv = [str(node()), str(PEERS / "browser_console.mjs"), "--sdk", str(sdk), "--scratch", str(scratch)]
        with (scratch / "lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)  # a browser that another test is unpacking cannot be started
            if not (scratch / "ready").exists():
                subprocess.run([*argv, "unpack"], check=True, timeout=120)
                (scratch / "ready").touch()
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, env=environment(), start_new_session=True)
        atexit.register(self.close)

    def do(self, **story: Any) -> dict[str, Any]:
        """What it answers."""
        asked, told = self._process.stdin, self._process.stdout
        assert asked is not None and told is not None
        asked.write(json.dumps(story).encode() + b"\n")
        asked.flush()
        if not select.select([told], [], [], 120)[0] or not (line := told.readline()):
            self.close()
            browser.cache_clear()
            raise AssertionError(f"the browser says nothing to {story}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """It ends by itself once nothing more is asked; killed, it would leave its children and their folders."""
        try:
            self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


browser = functools.cache(Browser)


def seen(gateway: Gateway, story: str, *words: str) -> dict[str, Any]:
    """What a person at the console saw (see the program)."""
    answer = browser().do(url=gateway.url, story=story, words=words)
    assert "seen" in answer, answer["error"]
    found: dict[str, Any] = answer["seen"]
    return found


def begun(http: httpx2.Client, agent: str, message: str) -> str:
    return str(
        http.post("/agent-connect/runs", json={"agent_id": agent, "input": {"message": message}}).json()["run_id"]
    )


def asking(http: httpx2.Client, message: str = "a rose") -> str:
    """The id of a run of the gardener's whose question waits."""
    run = begun(http, "gardener", message)
    assert http.get(f"/agent-connect/runs/{run}/wait", params={"timeout": 60}).json()["run"]["status"] == "interrupted"
    return run


def test_a_question_is_answered_and_its_run_watched_to_the_end(gateway: Gateway, http: httpx2.Client) -> None:
    run = asking(http)
    found = seen(gateway, "answer", run, "Plant it")
    assert found["choices"] == ["Plant it", "Leave it"] and found["left"] == 0
    rows = "\n".join(found["rows"])
    assert "tool:" in rows and "plan:" in rows and "answered" in rows and "rose" in rows
    assert http.get(f"/admin/runs/{run}").json()["status"] == "success"


def test_a_run_is_cancelled(gateway: Gateway, http: httpx2.Client) -> None:
    run = asking(http)
    assert seen(gateway, "cancel", run) == {"cancellable": False}
    assert http.get(f"/admin/runs/{run}").json()["cancel_reason"] == "cancelled by the operator"


def test_focus_and_what_was_entered_stay_while_others_answer_and_a_run_ends(
    gateway: Gateway, http: httpx2.Client
) -> None:
    run = begun(http, "flood", "twoperm")
    http.get(f"/agent-connect/runs/{run}/wait", params={"timeout": 60})
    found = seen(gateway, "redrawn", run)
    thread = {"agent": "gardener", "thread": "half a thread"}
    assert found == {
        "asked": ["SELECT", "2", 1],
        "listed": ["A", f"#/run/{run}"],
        "filtered": [thread, "INPUT", thread, "#/runs?agent=gardener&thread=half+a+thread", {"agent": "gardener"}],
        "tried": ["SELECT", "gardener", "Try gardener · Interlingua", "hers", "agent_context"],
    }


def test_every_page_is_reached_by_the_keyboard_and_every_field_has_a_label(gateway: Gateway) -> None:
    _, agents, _, protocols = seen(gateway, "keys")["seen"]
    assert "gardener" in agents and "Agent Connect Protocol" in protocols and "agent_client" in agents
    assert "clients \\ agents" in protocols and protocols.count("nothing is lost") == 5, "each protocol with itself"


def test_what_clients_and_agents_say_is_text(gateway: Gateway, http: httpx2.Client) -> None:
    found = seen(gateway, "hostile", asking(http, HOSTILE))
    assert found["elements"] == 0
    assert "<script>alert(2)</script>" in found["text"] and "\\u202etxt.exe" in found["text"]
    assert "\u202e" not in found["text"] and "\x1b" not in found["text"]


def test_an_operator_enters_a_token_which_no_cookie_keeps(tmp_path: Path) -> None:
    table = "operators: {clients: [{name: olga, token: of-olga}]}\nroutes: []\n"
    with Gateway(table, tmp_path) as gateway:
        assert seen(gateway, "token", "of-nobody", "of-olga") == {"cookies": 0}


def test_an_agent_that_cannot_start_says_why(tmp_path: Path) -> None:
    script = "import sys; sys.exit('no model is configured')"
    target = f"{{protocol: agent_client, command: {json.dumps([sys.executable, '-c', script])}}}"
    tools = f"{{protocol: agent_context, command: {json.dumps([sys.executable, '-c', script])}, agents: '*'}}"
    table = f"routes:\n  - name: coder\n    target: {target}\n  - name: tools\n    target: {tools}\n"
    with Gateway(table, tmp_path) as running:
        begun_at = httpx2.post(
            f"{running.url}/agent-connect/runs", json={"agent_id": "coder", "input": {"message": "hello"}}, timeout=60
        )
        assert "no model is configured" in begun_at.text
        for agent in ("coder", "tools"):  # one of them stands for many, of which none is known
            assert "exited with 1: no model is configured" in seen(running, "readiness", agent)["cell"]


def test_a_run_of_very_many_events_is_seen_at_once_and_held_in_few_rows(gateway: Gateway, http: httpx2.Client) -> None:
    prompt = json.dumps({"chunks": 100_000, "burst": 1000})
    body = {"agent_id": "torrent", "input": {"message": prompt}}
    assert http.post("/agent-connect/runs/wait", json=body).json()["output"]["type"] == "result"
    run = http.get("/admin/runs", params={"agent": "torrent", "limit": 1}).json()["runs"][0]["id"]
    found = seen(gateway, "long", run)
    assert min(found["seconds"]) < 1 and found["rows"] < 50 and found["heap"] < 100e6, json.dumps(found)


def test_a_list_of_ten_thousand_runs_is_seen_at_once_and_paged(tmp_path: Path) -> None:
    with served(tmp_path) as gateway:
        body = {"agent_id": "torrent", "input": {"message": "hello"}}
        httpx2.post(f"{gateway.url}/agent-connect/runs/wait", json=body, trust_env=False, timeout=60)
        gateway.process.terminate(60)
        copy_runs(tmp_path / "interlingua.db", 9_999)
        gateway.restart()
        found = seen(gateway, "list", "gardener")
    assert found["counted"] == "10000 runs" and found["seconds"] < 5, found["seconds"]
    assert len(found["first"]) == len(found["second"]) == 50
    assert not set(found["first"]) & set(found["second"]) and found["filtered"] == 0


def test_a_run_is_watched_and_answered_after_its_route_is_gone(tmp_path: Path) -> None:
    with served(tmp_path) as gateway, httpx2.Client(base_url=gateway.url, trust_env=False, timeout=120) as http:
        run = asking(http)
        table = f"""
routes:
  - name: successor
    target: {{protocol: agent_client, command: ["{sys.executable}", "{EXAMPLES / "gardener.py"}"]}}
"""
        found = seen(gateway, "gone", run, str(gateway.file), table)
        assert found == {"agents": ["successor"], "left": 0}
        assert http.get(f"/admin/runs/{run}").json()["status"] == "success"


def test_the_page_is_guarded_and_light(gateway: Gateway, http: httpx2.Client) -> None:
    page = http.get("/ui/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    sizes = seen(gateway, "weight")["sizes"]
    assert sum(sizes.values()) < 150_000, sizes
    assert {path.stem for path in FILES.rglob("*.js")} == {Path(path).stem for path in sizes if path.endswith(".js")}
    assert http.get("/ui/", headers={"host": "evil.example"}).status_code == 403
    assert http.get("/ui/../api.py").status_code == 404


def pictures(gateway: Gateway, http: httpx2.Client, folder: Path) -> list[Path]:
    """Take the README's pictures into `folder`."""
    runs, question, wire = (folder / f"console-{name}.png" for name in ("runs", "question", "wire"))
    for guest in ("Ada", "Grace", "Alan"):
        run = begun(http, "composer", f"invite {guest} to lunch")
        http.get(f"/agent-connect/runs/{run}/wait", params={"timeout": 60})
    asked = asking(http)
    seen(gateway, "picture", "runs", str(runs), "td .interrupted")
    seen(gateway, "dark", f"run/{asked}", str(question), ".question select")
    seen(
        gateway, "picture", f"run/{told(http)}", str(wire), ".columns :text('run finished')", "h2:text('What was said')"
    )
    return [runs, question, wire]


def told(http: httpx2.Client) -> str:
    """The id of a recorded run of the gardener's, which a client has streamed to its end."""
    http.post("/admin/recording", json={"agent": "gardener", "record": True})
    body = {"agent_id": "gardener", "input": {"message": "a rose"}, "stream_mode": "values"}
    http.post("/agent-connect/runs/stream", json=body)
    run = str(http.get("/admin/runs", params={"agent": "gardener", "limit": 1}).json()["runs"][0]["id"])
    http.post(f"/admin/runs/{run}/answer", json={"value": {"optionId": "plant"}})
    http.get(f"/agent-connect/runs/{run}/stream")
    http.post("/admin/recording", json={"agent": "gardener", "record": False})
    return run


def test_the_readme_shows_the_pictures_that_are_taken(gateway: Gateway, http: httpx2.Client, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for picture in pictures(gateway, http, tmp_path):
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert f"](docs/pictures/{picture.name})" in readme and (ROOT / "docs" / "pictures" / picture.name).exists()
