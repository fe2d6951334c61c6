"""Two gateway processes on one store: what is asked of one is done, whichever of them drives the run."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.e2e.conftest import routes
from tests.e2e.test_agents_that_join import context, read
from tests.support import agent_client
from tests.support.processes import Gateway, Process

PATIENCE = 60.0
LONG = "60 seconds"
ONE_AT_A_TIME = "inbound: {agent_connect: {}, agent_client: {}, agent_context: {coordinator: team, per_agent: 1}}\n"
_AGENT = agent_client.agent_client_agent_command("py", "--without", "load,resume")
CODER = f"""\
  - name: coder
    target: {{protocol: agent_client, command: {json.dumps(_AGENT)}}}
"""
"""An agent of an editor's that knows a session only in its own process."""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def gateways(
    request: pytest.FixtureRequest,
    agent_protocol_server: Process,
    agent_connect_agent: Process,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Gateway, Gateway]]:
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path_factory.mktemp('store') / 'shared.db'}"
        if request.param == "postgresql":
            url = request.getfixturevalue("postgres").database()
        table = routes(agent_protocol_server, agent_connect_agent) + CODER + f"store: {{url: '{url}'}}\n"
        yield (
            stack.enter_context(Gateway(table, tmp_path_factory.mktemp("one"))),
            stack.enter_context(Gateway(table, tmp_path_factory.mktemp("two"))),
        )


@pytest.fixture
def here(gateways: tuple[Gateway, Gateway]) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{gateways[0].url}/agent-connect", timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def there(gateways: tuple[Gateway, Gateway]) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{gateways[1].url}/agent-connect", timeout=PATIENCE) as client:
        yield client


def test_a_run_of_the_other_process_is_cancelled_interrupted_and_deleted_as_ones_own(
    here: httpx2.Client, there: httpx2.Client
) -> None:
    thread = here.post("/threads", json={}).json()["thread_id"]
    body = {"agent_id": "slow", "input": {"message": LONG}}

    def started(by: httpx2.Client, **more: Any) -> str:
        answer = by.post(f"/threads/{thread}/runs", json={**body, **more})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["run_id"])

    run = started(here)
    still = there.delete(f"/threads/{thread}")
    assert still.status_code == 422 and "active run" in still.text, still.text
    assert there.post(f"/threads/{thread}/runs/{run}/cancel", params={"wait": True}).status_code == 204
    assert here.get(f"/runs/{run}/wait").json()["run"]["status"] == "error", (
        "ended by a cancel, in this protocol's words"
    )

    before = started(here)
    newer = started(there, multitask_strategy="interrupt")
    assert here.get(f"/runs/{before}").json()["status"] == "error"
    assert here.get(f"/runs/{newer}").json()["status"] == "pending"
    assert here.delete(f"/threads/{thread}/runs/{newer}").status_code == 204
    assert there.get(f"/runs/{newer}").status_code == 404
    assert [one["run_id"] for one in there.get(f"/threads/{thread}/runs").json()] == [before, run]
    assert there.delete(f"/threads/{thread}").status_code == 204


def test_a_question_is_answered_in_the_other_process_once(here: httpx2.Client, there: httpx2.Client) -> None:
    run = here.post("/runs", json={"agent_id": "asker", "input": {"message": "go"}}).json()["run_id"]
    asked = there.get(f"/runs/{run}/wait").json()
    assert asked["run"]["status"] == "interrupted", asked
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda client: client.post(f"/runs/{run}", json={"approved": True}), [there, here] * 2))
    assert sorted(each.status_code for each in answers)[0] == 200, [each.text for each in answers]
    assert len([each for each in answers if each.status_code == 200]) == 1, [each.text for each in answers]
    ended = there.get(f"/runs/{run}/wait").json()
    assert ended["run"]["status"] == "success", ended


def test_what_both_patch_of_one_thread_at_the_same_time_is_all_there(here: httpx2.Client, there: httpx2.Client) -> None:
    thread = here.post("/threads", json={"metadata": {"first": True}}).json()["thread_id"]
    run = here.post(f"/threads/{thread}/runs", json={"agent_id": "echo", "input": {"message": "hi"}}).json()["run_id"]

    def patch(number: int) -> None:
        client = (here, there)[number % 2]
        answer = client.patch(f"/threads/{thread}", json={"metadata": {f"key{number}": number}})
        assert answer.status_code == 200 and answer.json()["metadata"][f"key{number}"] == number

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(patch, range(40)))
    assert there.get(f"/runs/{run}/wait").json()["run"]["status"] == "success"
    found = there.get(f"/threads/{thread}").json()
    assert found["metadata"] == {"first": True, **{f"key{number}": number for number in range(40)}}
    assert found["status"] == "idle" and [one["content"] for one in found["messages"]] == ["hi", "hi"]


def test_the_wire_of_a_run_is_told_by_the_process_that_does_not_drive_it(
    gateways: tuple[Gateway, Gateway], here: httpx2.Client, there: httpx2.Client
) -> None:
    driver, asked = (f"{gateway.url}/admin" for gateway in gateways)
    unrecorded = here.post("/runs", json={"agent_id": "slow", "input": {"message": "0 seconds"}}).json()["run_id"]
    wish = {"agent": "slow", "record": True, "seconds": 600}
    turned = there.post(f"{asked}/recording", json=wish).json()
    assert turned["agents"]["slow"] and turned["unheard"] == 0, turned
    assert here.get(f"{driver}/recording").json()["agents"]["slow"]

    run = here.post("/runs", json={"agent_id": "slow", "input": {"message": LONG}}).json()["run_id"]
    found, last = [], 0
    with there.stream("GET", f"{asked}/runs/{run}/wire", headers={"accept": "text/event-stream"}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {") and line != "data: {}":
                found.append(json.loads(line.removeprefix("data: ")))
                if len(found) == 1:
                    assert here.post(f"/runs/{run}/cancel", params={"wait": True}).status_code == 204
            if line == "event: over":
                break
        else:
            pytest.fail("the stream has no end")
    titles = {entry["title"] for entry in found if entry["kind"] == "message" and entry["side"] == "client"}
    assert {"POST /agent-connect/runs", f"POST /agent-connect/runs/{run}/cancel?wait=true"} <= titles, found
    assert any(entry["kind"] == "message" and entry["side"] == "agent" for entry in found), found

    paged = []
    while entries := (page := there.get(f"{asked}/runs/{run}/wire", params={"after": last}).json())["entries"]:
        paged, last = paged + entries, page["last"]
    assert [entry["n"] for entry in found] == [entry["n"] for entry in paged] == list(range(1, len(found) + 1))
    assert there.get(f"{asked}/runs/{run}").json()["recorded"] is True
    assert there.get(f"{asked}/runs/{unrecorded}").json()["recorded"] is False
    assert there.get(f"{asked}/runs/{unrecorded}/wire").status_code == 404

    here.post(f"{driver}/recording", json={**wish, "record": False, "seconds": 1})
    assert not there.get(f"{asked}/recording").json()["agents"]["slow"]


def test_a_recording_is_gone_with_its_process_and_its_follower_elsewhere_is_told_the_end_but_a_wish_outlives_it(
    agent_connect_agent: Process, tmp_path: Path
) -> None:
    table = f"""
routes:
  - {{name: slow, record: wire, target: {{protocol: agent_connect, url: "{agent_connect_agent.url}", agent: slow}}}}
store: {{url: 'sqlite:///{tmp_path / "shared.db"}'}}
inbound: {{agent_connect: {{}}}}
"""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with (
        Gateway(table, tmp_path / "one") as driver,
        Gateway(table, tmp_path / "two") as asked,
        httpx2.Client(timeout=PATIENCE) as http,
    ):
        body = {"agent_id": "slow", "input": {"message": LONG}}
        short = {"agent_id": "slow", "input": {"message": "0 seconds"}}
        ended = http.post(f"{driver.url}/agent-connect/runs/wait", json=short).json()["run"]["run_id"]
        url = f"{asked.url}/admin/runs/{ended}"
        assert "POST /agent-connect/runs" in http.get(f"{url}/wire").text
        going_on = http.post(f"{driver.url}/agent-connect/runs", json=body).json()["run_id"]
        wire = f"{asked.url}/admin/runs/{going_on}/wire"
        assert "POST /agent-connect/runs" in http.get(wire).text
        with http.stream("GET", wire, headers={"accept": "text/event-stream"}) as stream:
            lines = stream.iter_lines()
            assert any(line.startswith("data: ") for line in lines)
            driver.kill9()
            assert "event: over" in list(lines)
        assert http.get(f"{url}/wire").status_code == 404
        assert http.get(url).json()["recorded"] is False
        assert "POST /agent-connect/runs" not in http.get(wire).text, "who takes it up records it from there"
        http.post(f"{asked.url}/admin/recording", json={"record": True})
        told = http.post(f"{asked.url}/admin/recording", json={"record": False}).json()
        assert told["unheard"] == 0, "who is dead need not hear"
        with Gateway(table, tmp_path / "one") as later:
            assert http.get(f"{later.url}/admin/recording").json()["wishes"] == told["wishes"]
            unrecorded = http.post(f"{later.url}/agent-connect/runs/wait", json=short).json()["run"]["run_id"]
            assert http.get(f"{asked.url}/admin/runs/{unrecorded}").json()["recorded"] is False
    with Gateway(table, tmp_path / "two") as last, httpx2.Client(timeout=PATIENCE) as http:
        assert http.get(f"{last.url}/admin/recording").json()["wishes"] == told["wishes"], "though all had stopped"


def test_a_task_that_both_are_given_at_once_is_one(gateways: tuple[Gateway, Gateway]) -> None:
    def assign(number: int) -> str:
        arguments = {"id": f"once-{number // 4}", "message": "build", "agentId": "echo"}
        answer = context(gateways[number % 2], "tools/call", name="taskAssign", arguments=arguments)
        assert answer["content"][0]["text"] == "build", answer
        return str(answer["_meta"]["interlingua/run"])

    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(assign, range(32)))
    tasks = [each["id"] for each in read(gateways[1], "agent://tasks")["tasks"] if each["id"].startswith("once-")]
    assert sorted(tasks) == sorted({f"once-{number}" for number in range(8)})
    assert len(set(runs)) == 8
    other = {"id": "once-0", "message": "something else", "agentId": "echo"}
    with pytest.raises(AssertionError, match="was delegated before, and is another"):
        context(gateways[1], "tools/call", name="taskAssign", arguments=other)


class Editor:
    """A client of the Agent Client Protocol, by hand."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._id = 0

    def notify(self, method: str, **more: Any) -> None:
        self._connection.send(json.dumps({"jsonrpc": "2.0", "method": method, **more}))

    def send(self, method: str, **params: Any) -> int:
        self._id += 1
        self.notify(method, id=self._id, params=params)
        return self._id

    def next(self) -> dict[str, Any]:
        """The next message."""
        message: dict[str, Any] = json.loads(self._connection.recv(timeout=PATIENCE))
        return message

    def until(self, key: str, value: Any) -> dict[str, Any]:
        """The next message that has this."""
        while True:
            if (message := self.next()).get(key) == value:
                return message

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.until("id", self.send(method, **params))


@contextlib.contextmanager
def editor(gateway: Gateway, agent: str = "slow") -> Iterator[Editor]:
    with connect(f"{gateway.url.replace('http', 'ws')}/agent-client/{agent}", proxy=None) as connection:
        client = Editor(connection)
        able = {"fs": {"readTextFile": True, "writeTextFile": True}}
        client.ask("initialize", protocolVersion=1, clientCapabilities=able)
        yield client


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
def test_a_session_whose_prompt_runs_in_the_other_process_is_closed_and_deleted_from_here(
    gateways: tuple[Gateway, Gateway], tmp_path: Path, method: str
) -> None:
    with editor(gateways[0]) as one, editor(gateways[1]) as two:
        session = one.ask("session/new", cwd=str(tmp_path), mcpServers=[])["result"]["sessionId"]
        prompt = one.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": LONG}])
        one.until("method", "session/update")
        if method == "session/close":
            assert "result" in two.ask("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        answer = two.ask(method, sessionId=session)
        assert "result" in answer, answer
        assert one.until("id", prompt)["result"]["stopReason"] == "cancelled"


def of_sdk(gateway: Gateway, session: str, cwd: Path, *steps: str) -> list[dict[str, Any]]:
    """What an editor of the official SDK hears that has loaded the session there."""
    load = f"load {json.dumps({'cwd': str(cwd), 'mcpServers': []})}"
    url = f"{gateway.url.replace('http', 'ws')}/agent-client/coder"
    way = ("--bare", "--root", str(cwd), "--do", "initialize", "--session", session, "--do", load)
    return agent_client.agent_client_client("py", *way, *steps, url=url)


def test_an_editor_of_one_gateway_goes_on_with_an_agent_s_session_that_is_open_at_the_other(
    gateways: tuple[Gateway, Gateway], tmp_path: Path
) -> None:
    with editor(gateways[0], "coder") as one:
        opened = one.ask("session/new", cwd=str(tmp_path), mcpServers=[])
        session = opened["result"]["sessionId"]
        one.ask("session/set_config_option", sessionId=session, configId="loud", type="boolean", value=True)
        (tmp_path / "x").write_text("of the editor", encoding="utf-8")
        heard = of_sdk(gateways[1], session, tmp_path, "--permission", "allow", "--say", "hello fs perm")
        assert agent_client.results(heard, "session/prompt")[0]["stopReason"] == "end_turn", heard
        said = agent_client.text(heard)
        assert "HELLO" in said, "it is the session that the other editor has set to be loud"
        assert "read of the editor" in said and 'permission {"optionId":"ok"' in said, said
        assert agent_client.asked(heard, "fs/read_text_file") and agent_client.asked(
            heard, "session/request_permission"
        )
        assert (tmp_path / "y").exists()
        while "HELLO" not in json.dumps(one.until("method", "session/update")):
            continue  # it is told of the other's prompt


def test_a_prompt_of_one_gateway_s_editor_is_cancelled_by_an_editor_of_the_other(
    gateways: tuple[Gateway, Gateway], tmp_path: Path
) -> None:
    with editor(gateways[0], "coder") as one:
        session = one.ask("session/new", cwd=str(tmp_path), mcpServers=[])["result"]["sessionId"]
        prompt = one.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "slow"}])
        one.until("method", "session/update")
        of_sdk(gateways[1], session, tmp_path, "--do", "cancel")
        assert one.until("id", prompt)["result"]["stopReason"] == "cancelled"


class Mason:
    """An agent that joins a gateway: it says `one `, and `two` once it may go on. Told `ask`, it asks instead, and says
    what it is answered.
    """

    def __init__(self, connection: ClientConnection, name: str = "mason") -> None:
        """`name` is what it is called, and what it can do."""
        self.may_go_on = threading.Event()
        self._name = name
        self.asked: list[str] = []
        self.busy = self.most_busy = 0
        self._answers: queue.Queue[str] = queue.Queue()
        self._connection = connection
        capabilities = {"tools": [], "models": [], "specializations": [name], "protocols": ["ACP-0.1"]}
        agent = {"id": name, "name": name.title(), "capabilities": capabilities}
        hello = {
            "protocolVersion": "ACP-0.1",
            "capabilities": {"agent": {}},
            "clientInfo": {"name": "m", "version": "1"},
        }
        self._send(id="hello", method="initialize", params=hello)
        self._send(id="join", method="agent/register", params={"agent": agent})
        while (message := json.loads(connection.recv(timeout=PATIENCE))).get("id") != "join":
            pass
        assert "result" in message, message
        self._serving = threading.Thread(target=self._serve, daemon=True)
        self._serving.start()

    def _send(self, **message: Any) -> None:
        self._connection.send(json.dumps({"jsonrpc": "2.0", **message}))

    def _serve(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            for line in self._connection:
                message = json.loads(line)
                if message.get("method") == "agent/message" and "id" in message:
                    threading.Thread(target=self._work, args=[message], daemon=True).start()
                elif "method" in message and "id" in message:
                    self._send(id=message["id"], result={})
                elif message.get("id") == "question":
                    self._answers.put(json.dumps(message["result"]["content"]["payload"]["answer"]))

    def _work(self, message: dict[str, Any]) -> None:
        params, meta = message["params"], message["params"]["_meta"]
        self.asked.append(params["content"]["payload"]["messages"][0]["text"])
        if self.asked[-1] == "ask":
            question = {"messages": [{"text": "May I?"}], "answerSchema": {"type": "object"}}
            asked = {"source": self._name, "content": {"type": "request", "payload": question}, "_meta": meta}
            self._send(id="question", method="agent/message", params=asked)
            said = {"type": "response", "payload": {"messages": [{"text": self._answers.get(timeout=PATIENCE)}]}}
            self._send(id=message["id"], result={"content": said, "_meta": meta})
            return
        self.busy += 1
        self.most_busy = max(self.busy, self.most_busy)
        with contextlib.suppress(ConnectionClosed):
            for word in ("one ", "two"):
                said = {"type": "update", "payload": {"messages": [{"text": word}]}}
                self._send(method="agent/message", params={"source": self._name, "content": said, "_meta": meta})
                if word == "one ":
                    self.may_go_on.wait()
            self.busy -= 1
            said = {"type": "response", "payload": {"messages": [{"text": "one two"}]}}
            self._send(id=message["id"], result={"content": said, "_meta": meta})


@contextlib.contextmanager
def mason(gateway: Gateway, name: str = "mason") -> Iterator[Mason]:
    url = f"{gateway.url.replace('http', 'ws')}/agent-context/ws"
    with contextlib.ExitStack() as ends, connect(url, subprotocols=[Subprotocol("mcp")], proxy=None) as line:
        agent = Mason(line, name)
        ends.callback(agent.may_go_on.set)
        yield agent


def listed(gateway: Gateway, name: str = "mason") -> bool:
    found = httpx2.post(f"{gateway.url}/agent-connect/agents/search", json={}, timeout=PATIENCE).json()
    return name in json.dumps(found)


def until(true: Callable[[], bool], found: Callable[[], object] = lambda: "") -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"it does not come true: {found()}"
        time.sleep(0.02)


def values(gateway: Gateway, run: str, after: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of a run's stream from one on, as long as the gateway lives."""
    headers = {} if after is None else {"last-event-id": after}
    client = httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=PATIENCE)
    with client, client.stream("GET", f"/runs/{run}/stream", headers=headers) as response:
        number = ""
        for line in response.iter_lines():
            if line.startswith("id: "):
                number = line[4:]
            elif line.startswith("data: "):
                yield number, json.loads(line[6:])


@pytest.fixture(params=["sqlite", "postgresql"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Gateway, Gateway]]:
    """Two that may be killed."""
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'shared.db'}"
        if request.param == "postgresql":
            url = request.getfixturevalue("postgres").database()
        made = []
        for name in ("one", "two"):
            (folder := tmp_path / name).mkdir()
            table = f"{ONE_AT_A_TIME}routes:\n{CODER}store: {{url: '{url}'}}\n"
            made.append(stack.enter_context(Gateway(table, folder)))
        yield made[0], made[1]


def test_a_client_of_one_gateway_hears_that_the_one_with_the_agent_was_killed_and_the_agent_joins_its_own(
    pair: tuple[Gateway, Gateway],
) -> None:
    joined, asked = pair
    body = {"agent_id": "mason", "input": {"message": "build"}, "on_disconnect": "continue"}
    with mason(joined) as agent:
        until(lambda: listed(asked))
        run = httpx2.post(f"{asked.url}/agent-connect/runs", json=body, timeout=PATIENCE).json()["run_id"]
        stream = values(asked, run)
        assert next(event["values"]["message"] for _, event in stream if event.get("values")) == "one "
        joined.kill9()
        last = [event for _, event in stream][-1]
        assert last["status"] == "error", last
        assert agent.asked == ["build"]
    refused = httpx2.post(f"{asked.url}/agent-connect/runs/wait", json=body, timeout=PATIENCE)
    assert "not connected" in refused.text or refused.status_code == 503, refused.text
    with mason(asked) as agent:
        agent.may_go_on.set()
        answer = httpx2.post(f"{asked.url}/agent-connect/runs/wait", json=body, timeout=PATIENCE).json()
        assert answer["output"]["values"]["message"] == "one two", answer


def test_a_run_goes_on_at_its_agent_when_the_gateway_that_was_asked_for_it_is_killed(
    pair: tuple[Gateway, Gateway],
) -> None:
    joined, asked = pair
    body = {"agent_id": "mason", "input": {"message": "build"}, "on_disconnect": "continue"}
    with mason(joined) as agent:
        until(lambda: listed(asked))
        run = httpx2.post(f"{asked.url}/agent-connect/runs", json=body, timeout=PATIENCE).json()["run_id"]
        stream = values(asked, run)
        seen, _ = next((number, event) for number, event in stream if event.get("values"))
        asked.kill9()
        with contextlib.suppress(httpx2.TransportError):
            assert not list(stream), "nothing is said after the cut"
        agent.may_go_on.set()
        rest = list(values(joined, run, seen))
        assert rest[-1][1]["status"] == "success" and rest[-1][1]["values"]["message"] == "one two", rest
        assert agent.asked == ["build"], "it was asked once"


def test_an_editor_hears_that_the_gateway_with_its_agent_was_killed_and_goes_on_with_an_agent_of_its_own(
    pair: tuple[Gateway, Gateway], tmp_path: Path
) -> None:
    with editor(pair[0], "coder") as one, editor(pair[1], "coder") as two:
        session = one.ask("session/new", cwd=str(tmp_path), mcpServers=[])["result"]["sessionId"]
        assert "result" in two.ask("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        prompt = two.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "slow"}])
        while "agent_message_chunk" not in json.dumps(two.until("method", "session/update")):
            continue
        pair[0].kill9()
        answer = two.until("id", prompt)
        assert "was stopped while the agent worked" in answer.get("error", {}).get("message", ""), answer
        again = two.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "hello"}])
        assert two.until("id", again)["result"]["stopReason"] == "end_turn"


def test_an_agent_is_told_that_its_editor_has_gone_when_the_gateway_of_that_is_killed(
    pair: tuple[Gateway, Gateway], tmp_path: Path
) -> None:
    with editor(pair[0], "coder") as one, editor(pair[1], "coder") as two:
        session = one.ask("session/new", cwd=str(tmp_path), mcpServers=[])["result"]["sessionId"]
        assert "result" in two.ask("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        two.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "fs"}])
        two.until("method", "fs/read_text_file")
        pair[1].kill9()
        while "fs failed" not in json.dumps(one.until("method", "session/update")):
            continue


def test_an_agent_has_no_more_tasks_than_it_may_from_all_gateways_together_and_none_is_lost_with_the_one_that_counts(
    pair: tuple[Gateway, Gateway],
) -> None:
    def work(capability: str) -> dict[str, Any]:
        asked = {"message": "build", "capabilities": [capability]}
        return {"agent_id": "team", "input": asked, "on_disconnect": "continue"}

    def assigned(gateway: Gateway, capability: str, how: str = "runs") -> httpx2.Response:
        return httpx2.post(f"{gateway.url}/agent-connect/{how}", json=work(capability), timeout=PATIENCE)

    def left(gateway: Gateway) -> list[str]:
        tasks = read(gateway, "agent://tasks")["tasks"]
        return sorted(task["status"] for task in tasks if task["status"] != "completed")

    def wait_their_turn(gateway: Gateway) -> None:
        """Tasks of another agent are done before and after."""
        for _ in range(2):
            assert assigned(gateway, "carpenter", "runs/wait").json()["run"]["status"] == "success"
        wanted = ["pending"] * 3 + ["running"]
        until(lambda: left(gateway) == wanted, lambda: read(gateway, "agent://tasks"))  # asked, then told of
        assert len(agent.asked) == 1

    with mason(pair[1]) as agent, mason(pair[1], "carpenter") as other:
        other.may_go_on.set()
        until(lambda: listed(pair[0]) and listed(pair[0], "carpenter"))
        each = (pair[0], pair[1], pair[1], pair[0])
        runs = [assigned(gateway, "mason").json()["run_id"] for gateway in each]
        until(lambda: len(agent.asked) == 1)
        for gateway in pair:
            wait_their_turn(gateway)
        pair[0].kill9()
        while (answer := assigned(pair[1], "carpenter")).status_code == 503:
            continue  # until it is known who counts now
        wait_their_turn(pair[1])
        agent.may_go_on.set()
        for run in [*runs, answer.json()["run_id"]]:
            ended = httpx2.get(f"{pair[1].url}/agent-connect/runs/{run}/wait", timeout=PATIENCE).json()
            assert ended["run"]["status"] == "success", ended
        assert len(agent.asked) == len(runs) and agent.most_busy == 1
