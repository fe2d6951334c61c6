"""Sessions over HTTP at a gateway of three workers, with the real SDKs: each request reaches any of them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.test_workers import figures, workers_of
from tests.e2e.test_tools_of_editors import ACCEPTED, STEPS, held, printed, py, texts, used
from tests.support.agent_client import SDKS, Sdk, agent_client_agent_command, agent_client_client, text, turns
from tests.support.agent_communication import Client, agents_server, asked, client, conversation, errors, results
from tests.support.peers import lines_of, run_program
from tests.support.processes import ROOT, Gateway, Process, free_port, start

ROUTES = """\
routes:
  - name: echo
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: echo}}
  - name: asker
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: asker}}
  - name: editor
    target: {{protocol: agent_client, command: {agent_client}}}
  - name: slow
    target: {{protocol: agent_communication, url: "{bee}/sse", agent: slow}}
  - name: remote
    target: {{protocol: agent_client, url: "{remote}/acp"}}
  - name: bee
    target: {{protocol: agent_communication, url: "{bee}/sse", agent: stream}}
limits: {{shutdown: 1s}}
"""
WITHIN = 120.0
_SESSION = re.compile(rb"\r\nmcp-session-id: ([^\r]*)", re.IGNORECASE)
_CONNECTION = re.compile(rb"\r\nconnection:[^\r]*", re.IGNORECASE)


class OneRequestEach:
    """A proxy in front of the gateway with a connection for each request, so that each reaches a worker by chance."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.sessions: list[str] = []
        """Named by requests."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> OneRequestEach:
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(WITHIN)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(WITHIN)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, OSError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.sessions += [each.decode() for each in _SESSION.findall(head)]
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
            with contextlib.closing(back):
                back.write(_CONNECTION.sub(b"", head[:-4]) + b"\r\nconnection: close\r\n\r\n")
                up = asyncio.create_task(_pass(reader, back))
                down = asyncio.create_task(_pass(there, writer))
                await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
                if not down.done() and not writer.is_closing() and not reader.at_eof():
                    await down
                for task in (up, down):
                    task.cancel()
                await asyncio.gather(up, down, return_exceptions=True)


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        sink.write(data)
        await sink.drain()


@pytest.fixture(scope="module")
def bee() -> Iterator[Process]:
    with agents_server("py") as process:
        yield process


@pytest.fixture(scope="module")
def both(
    bee: Process, agent_connect_agent: Process, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Gateway, OneRequestEach]]:
    port, command = free_port(), json.dumps(agent_client_agent_command("ts-2"))
    argv = py("agent-client-py", "agent_client_mcp_agent.py", "--http", str(port))
    with start(argv, port=port) as remote:
        table = ROUTES.format(
            agent_connect=agent_connect_agent.url, agent_client=command, bee=bee.url, remote=remote.url
        )
        gateway = Gateway(table, tmp_path_factory.mktemp("workers"), args=["--workers", "3"])
        with OneRequestEach(gateway.port) as proxy:
            gateway.rewrite(f"{table}\npublic_url: {proxy.url}\n")
            with gateway as running:
                running.process.wait_until(lambda: "3 workers" in running.process.stdout(), "greeted", WITHIN)
                yield running, proxy


@pytest.fixture(scope="module")
def gateway(both: tuple[Gateway, OneRequestEach]) -> Gateway:
    return both[0]


@pytest.fixture(scope="module")
def there(both: tuple[Gateway, OneRequestEach]) -> OneRequestEach:
    return both[1]


class McpOverHttp:
    """A client of MCP without an SDK: each request on a connection of its own."""

    def __init__(self, url: str) -> None:
        asked = {"accept": "application/json, text/event-stream", "connection": "close"}
        self.http = httpx2.Client(trust_env=False, timeout=WITHIN, headers=asked)
        self._url = url
        answer = self.http.post(url, json=self.message("initialize", **CLIENT))
        assert answer.status_code == 200, answer.text
        self.session = answer.headers["mcp-session-id"]
        self.http.headers |= {"mcp-session-id": self.session, "mcp-protocol-version": CLIENT["protocolVersion"]}

    @property
    def worker(self) -> int:
        return int(self.session.rpartition("-w")[2])

    def message(self, method: str, id: int = 1, **params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    def ping(self) -> int:
        return self.http.post(self._url, json=self.message("ping")).status_code

    def send(self, **message: Any) -> Any:
        answer = self.http.post(self._url, json={"jsonrpc": "2.0", **message})
        assert answer.status_code in (200, 202), answer.text
        return answer.json() if answer.status_code == 200 else None

    def listening(self) -> contextlib.AbstractContextManager[httpx2.Response]:
        return self.http.stream("GET", self._url)

    def leave(self) -> int:
        return self.http.delete(self._url).status_code

    def resuming(self, last: str) -> contextlib.AbstractContextManager[httpx2.Response]:
        return self.http.stream("GET", self._url, headers={"last-event-id": last})

    def calling(self, agent: str, message: str) -> contextlib.AbstractContextManager[httpx2.Response]:
        call = {"name": agent, "arguments": {"message": message}, "_meta": {"progressToken": "p"}}
        return self.http.stream("POST", self._url, json=self.message("tools/call", 7, **call))


CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def events(answer: httpx2.Response) -> Iterator[tuple[str, Any]]:
    """The id and the message of each event of a stream that has one."""
    id = ""
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            id = value
        elif name == "data" and value:
            yield id, json.loads(value)


def until_cut(told: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The events of a stream, to its end or until its connection is cut."""
    with contextlib.suppress(httpx2.RemoteProtocolError):
        yield from told


def number_of(pid: int) -> int | None:
    """The number of the worker with that process id. None if it is one that the supervisor has only just forked."""
    given = re.search(rb"INTERLINGUA_WORKER=([^\0]*)", Path(f"/proc/{pid}/environ").read_bytes())
    return None if given is None else int(json.loads(given[1])["number"])


def pid_of(gateway: Gateway, worker: int) -> int:
    return next(pid for pid in workers_of(gateway) if number_of(pid) == worker)


def agents_of(gateway: Gateway) -> str:
    """The list of all agents at a worker by chance."""
    where = f"{gateway.url}/agent-connect/agents/search"
    return httpx2.post(where, json={"limit": 100}, trust_env=False, timeout=WITHIN).text


ANSWERS = ("--elicitation", '{"approved": true, "reason": "blue"}', "--sampling", "a word")
INPUTS = ('echo {"message": "hello"}', 'bee {"prompt": "hello"}', 'asker {"message": "hello"}')
"""The TypeScript SDK, which cannot be asked, has the first two alone."""
SAID = ("hello", "hello ", "approved (blue): hello")


@pytest.mark.parametrize(
    ("kind", "door", "more"),
    [
        ("mcp-1", "mcp", ()),
        ("mcp-1", "sse", ()),
        ("mcp-2", "mcp", ("--mode", "legacy")),
        ("mcp-2", "mcp", ()),  # without sessions: the question is answered by another call
        ("ts", "sse", ()),
    ],
)
def test_many_clients_of_mcp_at_once_notice_nothing(
    kind: Client, door: str, more: tuple[str, ...], there: OneRequestEach
) -> None:
    """They list and call agents, answer questions, and cancel: by POST, on whichever connection."""
    op, step = ("agents/run", "--run") if kind == "ts" else ("tools/call", "--tool")
    slow = ("--cancel-after", "2", step, 'slow {"prompt": "x"}') if kind == "ts" else ()
    inputs = INPUTS[:2] if kind == "ts" else INPUTS
    runs = [word for _ in range(3) for each in inputs for word in (step, each)]
    with ThreadPoolExecutor() as pool:
        url = f"{there.url}/agent-communication/{door}"
        told = list(pool.map(lambda _: client(kind, *more, *ANSWERS, *runs, *slow, url=url), range(3)))
    for lines in told:
        got = [json.dumps(each) for each in results(lines, op)]
        wanted = 3 * SAID[: len(inputs)]
        assert len(got) == len(wanted) and all(said in each for said, each in zip(wanted, got, strict=True)), got
        assert [each["message"] for each in errors(lines, op)] == ["told to"] * bool(slow), "as the client gave it up"


def test_clients_of_the_directory_hear_what_changes_whichever_worker_they_ask(
    gateway: Gateway, there: OneRequestEach
) -> None:
    """What they subscribe to is told on a GET, which another worker may pass on."""
    address = f"ws://127.0.0.1:{gateway.port}/agent-context/ws"
    joining = [sys.executable, str(ROOT / "examples/joining/analyst.py"), address]
    with start(joining) as analyst, ThreadPoolExecutor() as pool:
        analyst.wait_until(lambda: "registered" in analyst.stdout(), "registered")
        analyst.wait_until(lambda: all("analyst" in agents_of(gateway) for _ in range(20)), "known to all", WITHIN)
        argv = ("--http", f"{there.url}/agent-context", "--message", "one two three", "word-count")
        programs = [(f"mcp-{version}", f"mcp_directory_client_{version}.py") for version in (1, 2)]
        asking = [pool.submit(run_program, *program, *argv) for program in programs]
        for seen in (each.result()[0] for each in asking):
            assert "3" in seen["said"]["text"] and seen["updated"], seen


def test_a_request_is_counted_where_it_ends_and_there_alone(gateway: Gateway) -> None:
    def counted() -> float:
        name = 'interlingua_requests_total{protocol="agent_communication",status="200"} '
        lines = figures(gateway.url).splitlines()
        return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))

    mcp = McpOverHttp(f"{gateway.url}/agent-communication/mcp")
    before = counted()
    assert [mcp.ping() for _ in range(30)] == [200] * 30
    assert counted() == before + 30


class JoinedOverHttp:
    """An agent that has registered over Streamable HTTP: it is asked on its GET, and answers by POST."""

    def __init__(self, gateway: Gateway, name: str) -> None:
        self._mcp = McpOverHttp(f"{gateway.url}/agent-context")
        self._name = name
        self._heard = threading.Event()
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> int:
        """Its worker."""
        self._thread.start()
        assert self._heard.wait(WITHIN)
        able = {"tools": [], "models": [], "specializations": ["shouting"], "protocols": ["ACP-0.1"]}
        agent = {"id": self._name, "name": self._name, "capabilities": able, "costMetrics": {"costPerToken": 0.1}}
        assert "result" in self._mcp.send(id="join", method="agent/register", params={"agent": agent})
        return self._mcp.worker

    def __exit__(self, *_: object) -> None:
        assert self._mcp.leave() == 200, "which ends its stream"
        self._thread.join(WITHIN)

    def _listen(self) -> None:
        with self._mcp.listening() as stream:
            self._heard.set()
            for _, message in events(stream):
                if message.get("method") == "agent/message" and "id" in message:
                    (asked,) = message["params"]["content"]["payload"]["messages"]
                    said = {"type": "response", "payload": {"messages": [{"text": asked["text"].upper()}]}}
                    self._mcp.send(id=message["id"], result={"content": said})


def test_an_agent_that_joined_over_http_is_asked_and_answers_by_any_worker(gateway: Gateway) -> None:
    url, kept = f"{gateway.url}/agent-connect/runs/wait", httpx2.Limits(max_keepalive_connections=0)
    names: list[str] = []
    workers = set[int]()
    with contextlib.ExitStack() as stack, httpx2.Client(trust_env=False, timeout=WITHIN, limits=kept) as http:
        while len(workers) < 2:
            names.append(f"shouter{len(names)}")
            workers.add(stack.enter_context(JoinedOverHttp(gateway, names[-1])))
        gateway.process.wait_until(
            lambda: all(name in agents_of(gateway) for _ in range(20) for name in names), "known to all", WITHIN
        )
        for name in 6 * names:
            answer = http.post(url, json={"agent_id": name, "input": {"message": "hello"}}).json()
            assert "HELLO" in json.dumps(answer), answer


@pytest.mark.parametrize("sdk", SDKS)
def test_an_editor_over_http_notices_nothing(sdk: Sdk, there: OneRequestEach) -> None:
    """Its streams, what it POSTs, and what it answers each come to a worker by chance."""
    lines = agent_client_client(
        sdk,
        *("--say", "hello", "--permission", "allow", "--say", "tool perm"),
        *("--start", "slow please", "--await", "1 ", "--do", "cancel", "--finish"),
        *("--say", "flood 300 done", "--say", f"big {3 << 20}", "--do", "new", "--say", "again"),
        url=f"{there.url}/agent-client/editor",
    )
    first, second, third, fourth, fifth, last = turns(lines)
    assert text(first).endswith("hello ")
    assert asked(second, "session/request_permission") and "permission" in text(second)
    assert text(third).startswith("0 1 ")
    assert text(fourth).startswith("".join(f"{number} " for number in range(300)))
    assert len(text(fifth)) >= 3 << 20
    assert text(last).endswith("again ")
    ends = [turn["stopReason"] for turn in results(lines, "session/prompt")]
    assert ends == ["end_turn"] * 2 + ["cancelled"] + ["end_turn"] * 3


def test_an_agent_reaches_an_editors_mcp_server_at_whichever_worker(gateway: Gateway, there: OneRequestEach) -> None:
    """The server is reached over HTTP, at the worker that the editor is connected to."""
    there.sessions.clear()
    for _ in range(3):
        said, _ = held(gateway, "remote", 1, used(1, "--do", "tools", *STEPS))
        assert texts(printed(said[0], "tools/call"))[:2] == ["2", ACCEPTED], said
    assert len(there.sessions) > 15, "its requests passed here"


def test_a_stream_that_broke_off_goes_on_at_another_worker(gateway: Gateway) -> None:
    workers = set()
    for _ in range(12):
        mcp = McpOverHttp(f"{gateway.url}/agent-communication/mcp")
        workers.add(mcp.worker)
        with mcp.calling("editor", "flood 50 done") as answer:
            last, message = next(events(answer))
        heard = [message]
        while "result" not in heard[-1]:  # two events at a time, each two from whom it may be
            with mcp.resuming(last) as answer:
                assert answer.status_code == 200
                for id, message in itertools.islice(events(answer), 2):
                    last = id
                    heard.append(message)
        said = heard[-1]["result"]["content"][0]["text"]
        assert said.startswith("".join(f"{number} " for number in range(50)))
        assert mcp.leave() == 200
        assert mcp.ping() == 404
    assert len(workers) > 1


def test_the_sessions_of_a_worker_that_is_killed_end_in_the_protocols_words_and_no_others(gateway: Gateway) -> None:
    opened = [McpOverHttp(f"{gateway.url}/agent-communication/mcp") for _ in range(12)]
    dead = opened[0].worker
    with opened[0].calling("editor", "slow please") as answer:
        told = events(answer)
        next(told)
        os.kill(pid_of(gateway, dead), signal.SIGKILL)
        with pytest.raises(httpx2.RemoteProtocolError):
            list(told)
    for mcp in opened:
        for _ in range(6):  # also once another worker has its place
            assert mcp.ping() == (404 if mcp.worker == dead else 200)
    assert McpOverHttp(f"{gateway.url}/agent-context").ping() == 200, "and new ones are opened"


@pytest.mark.parametrize(("kind", "more"), [("mcp-1", ()), ("mcp-2", ("--mode", "legacy"))])
def test_an_sdk_whose_worker_is_killed_says_so_and_a_new_client_is_served(
    kind: Client, more: tuple[str, ...], gateway: Gateway, there: OneRequestEach
) -> None:
    url = f"{there.url}/agent-communication/mcp"
    there.sessions.clear()
    said = '"op":"progress","run":2,'
    slow = (
        "--tool",
        'editor {"message": "hello"}',  # whose process is there then
        "--within",
        "10",
        "--token",
        "auto",
        "--start-tool",
        'editor {"message": "slow please"}',
        "--await",
        said,
    )
    with conversation(kind, *more, *slow, "--finish", "--do", "tools", url=url) as talking:
        talking.wait_until(lambda: said in talking.stdout(), "called", WITHIN)
        (session,) = set(there.sessions)
        os.kill(pid_of(gateway, int(session.rpartition("-w")[2])), signal.SIGKILL)
        lines = lines_of(talking, WITHIN)
    assert len(errors(lines, "tools/call")) == 1, "the call that was cut off: by mcp 1 once its caller waits no more"
    (ended,) = errors(lines, "tools/list")
    assert ended["message"] in ("Session terminated", "no such session; it may have ended")
    assert results(client(kind, *more, "--do", "tools", url=url), "tools/list")


def test_a_restart_one_by_one_ends_sessions_as_a_stop_does(gateway: Gateway) -> None:
    opened = [McpOverHttp(f"{gateway.url}/agent-communication/mcp") for _ in range(6)]
    restarted = gateway.process.stderr().count("all workers are restarted")
    heard: list[tuple[str, Any]] = []
    with opened[0].calling("editor", "slow please") as answer:
        for event in until_cut(events(answer)):
            if not heard:
                gateway.process.signal(signal.SIGUSR2)
            heard.append(event)
    while "error" not in heard[-1][1]:  # it came through a worker that stopped before: the rest comes through another
        with opened[0].resuming(heard[-1][0]) as answer:
            assert answer.status_code == 200
            heard += until_cut(events(answer))
    assert heard[-1][1]["error"]["message"] == "the gateway is stopping"
    gateway.process.wait_until(
        lambda: gateway.process.stderr().count("all workers are restarted") > restarted, "restarted", WITHIN
    )
    assert [mcp.ping() for mcp in opened] == [404] * 6
    assert McpOverHttp(f"{gateway.url}/agent-communication/mcp").ping() == 200
