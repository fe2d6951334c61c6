"""An agent joins one process, an editor is at another and a watcher at a third: of three gateways on one store, and of
one with three workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.cli.test_workers import workers_of
from tests.e2e.test_agents_that_join import active
from tests.e2e.test_two_gateways import PATIENCE, Editor, Mason, until
from tests.support.processes import Gateway

TABLE = """\
inbound: {{agent_connect: {{}}, agent_client: {{}}, agent_context: {{}}}}
routes: []
store: {{url: 'sqlite:///{store}'}}
limits: {{shutdown: 1s}}
"""


class ThreeProcesses:
    """Three processes that serve clients, by number."""

    def __init__(self, gateways: list[Gateway]) -> None:
        """`gateways`: three, or one with three workers."""
        self.gateways = gateways
        self._processes = [] if len(gateways) > 1 else sorted(workers_of(gateways[0]))

    def at(self, number: int) -> Gateway:
        return self.gateways[number if len(self.gateways) > 1 else 0]

    @contextlib.contextmanager
    def connected(self, number: int, path: str, subprotocol: str | None = None) -> Iterator[ClientConnection]:
        """A WebSocket at that process, once that knows of the agent."""
        offered = [Subprotocol(subprotocol)] if subprotocol else None
        url = f"{self.at(number).url.replace('http', 'ws')}/{path}"
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                line = connect(url, subprotocols=offered, proxy=None)
            except InvalidStatus:
                continue
            with line:
                if not self._processes or self._keeper(line.socket.getsockname()[1]) == self._processes[number]:
                    yield line
                    return
        raise AssertionError(f"process {number} takes no connection to {path}")

    def _keeper(self, port: int) -> int | None:
        """Which of the processes has the other end of a connection from a port."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
        ours = {f"socket:[{row[9]}]" for row in rows if int(row[2].rpartition(":")[2], 16) == port}
        for process in self._processes:
            with contextlib.suppress(OSError):  # it was killed, or has closed another of its files
                if any(os.readlink(each) in ours for each in Path(f"/proc/{process}/fd").iterdir()):
                    return process
        return None

    def kill(self, number: int) -> None:
        if self._processes:
            os.kill(self._processes[number], signal.SIGKILL)
        else:
            self.gateways[number].kill9()

    @contextlib.contextmanager
    def agent(self, number: int, name: str) -> Iterator[Mason]:
        with contextlib.ExitStack() as ends, self.connected(number, "agent-context/ws", "mcp") as line:
            agent = Mason(line, name)
            ends.callback(agent.may_go_on.set)
            until(lambda: all(name in active(each) for each in self.gateways[-2:]))  # the first may be killed
            yield agent

    @contextlib.contextmanager
    def editor(self, number: int, agent: str) -> Iterator[Editor]:
        with self.connected(number, f"agent-client/{agent}") as line:
            client = Editor(line)
            client.ask("initialize", protocolVersion=1, clientCapabilities={})
            yield client


@pytest.fixture(scope="module", params=["three gateways", "three workers"])
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeProcesses]:
    table = TABLE.format(store=tmp_path_factory.mktemp("store") / "shared.db")
    with contextlib.ExitStack() as stack:
        if request.param == "three workers":
            one = Gateway(table, tmp_path_factory.mktemp("workers"), args=["--workers", "3"])
            stack.enter_context(one)
            one.process.wait_until(lambda: "3 workers" in one.process.stdout(), "greeted", PATIENCE)
            yield ThreeProcesses([one])
        else:
            yield ThreeProcesses(
                [stack.enter_context(Gateway(table, tmp_path_factory.mktemp("gateway"))) for _ in range(3)]
            )


def said(editor: Editor, prompt: int) -> tuple[str, str]:
    """All text that an editor hears until its prompt is over, and why that is; "" where it is to be tried again."""
    text = ""
    while True:
        message = editor.next()
        if message.get("id") == prompt:
            if message.get("error", {}).get("data", {}).get("retryable"):
                return text, ""
            assert "result" in message, message
            return text, message["result"]["stopReason"]
        update = message.get("params", {}).get("update", {})
        if update.get("sessionUpdate") == "agent_message_chunk":
            text += update["content"]["text"]


def test_an_editor_s_prompts_are_done_cancelled_and_watched(three: ThreeProcesses, tmp_path: Path) -> None:
    with three.agent(0, "mason") as agent, three.editor(1, "mason") as editor:
        session = editor.ask("session/new", cwd=str(tmp_path), mcpServers=[])["result"]["sessionId"]
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "build"}]}
        first = editor.send("session/prompt", **prompt)
        until(lambda: agent.asked == ["build"])
        editor.notify("session/cancel", params={"sessionId": session})
        assert said(editor, first) == ("one ", "cancelled")
        agent.may_go_on.set()
        assert said(editor, editor.send("session/prompt", **prompt)) == ("one two", "end_turn")
        with three.editor(2, "mason") as watcher:
            loaded = watcher.send("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
            history = ""
            while (message := watcher.next()).get("id") != loaded:
                history += json.dumps(message.get("params", {}).get("update", {}).get("content", {}))
            assert history.count("build") == 2 and "two" in history


def test_a_run_is_created_watched_and_its_question_answered_at_three_processes(three: ThreeProcesses) -> None:
    with three.agent(0, "asking"), contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(
                httpx2.Client(base_url=f"{three.at(number).url}/agent-connect", timeout=PATIENCE, trust_env=False)
            )
            for number in range(3)
        ]
        run = clients[1].post("/runs", json={"agent_id": "asking", "input": {"message": "ask"}}).json()["run_id"]
        asked = clients[2].get(f"/runs/{run}/wait").json()
        assert asked["run"]["status"] == "interrupted" and "May I?" in json.dumps(asked), asked
        assert clients[1].post(f"/runs/{run}", json={"you": "may"}).status_code == 200
        ended = clients[2].get(f"/runs/{run}/wait").json()
        assert json.loads(ended["output"]["values"]["message"]) == {"you": "may"}, ended


def test_an_editor_hears_that_the_process_with_its_agent_was_killed_and_prompts_it_where_it_joins_then(
    three: ThreeProcesses, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        with three.agent(0, "mover") as agent:
            editor = stack.enter_context(three.editor(1, "mover"))
            session = editor.ask("session/new", cwd=str(tmp_path), mcpServers=[])["result"]["sessionId"]
            prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "build"}]}
            asked = editor.send("session/prompt", **prompt)
            until(lambda: agent.asked == ["build"])
            three.kill(0)
            assert "error" in editor.until("id", asked)
        with three.agent(2, "mover") as agent:
            agent.may_go_on.set()
            while (heard := said(editor, editor.send("session/prompt", **prompt))) == ("", ""):
                continue  # until its process knows that the agent has moved
            assert heard == ("one two", "end_turn") and agent.asked == ["build"]
