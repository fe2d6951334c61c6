"""A real gateway with governed agents made with a real SDK, and clients that look at what they are shown and when."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.governance.support import OPERATOR, SANDBOX, governance, manifest, policy, with_, write
from tests.support.forking import standing_in
from tests.support.peers import peer_python
from tests.support.processes import PEERS, Gateway, free_port, start, url_answers

PATIENCE = 60.0
STRIPPED = Path(__file__).with_name("stripped.py")
FREE, ASKED, NEVER, ONCE = "mail-draft", "smtp-send", "drop-all", "count-once"
"""Tools: one is allowed, one has to be approved (as all that no policy knows), one is denied, one is allowed once."""
TOOLS = [FREE, ASKED, NEVER, ONCE, *({"id": name} for name in ("fs.read", "fs.write"))]
ROUTES = ("aware", "brief", "boxed", "plain", "unrecorded")
"""What governs is the same in `aware`; in `brief`, whose memory is ephemeral; in `boxed`, in a sandbox and with a
skill; and in `unrecorded`, whose log is there for one test to break. Nothing governs `plain`, a manifest of the
lowest tier.
"""

Line = dict[str, Any]


def agent() -> list[str]:
    return standing_in([str(peer_python("agent-client-py")), str(PEERS / "agent_client_governed_agent.py")])


def documents(folder: Path, name: str) -> Path:
    """The manifest of a route, and all that it names, in a folder of its own."""
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "x").write_text("FILE BODY")
    (folder / "work" / "out").symlink_to(folder.parent)
    if name == "plain":
        return manifest(folder / "bridge", {"tier": "basic"}, kind="bridge")
    registered = [
        policy(folder, "free", match={"subject": FREE}, autonomy=3),
        policy(folder, "files", match={"subject": "fs.*"}, autonomy=3),
        policy(folder, "once", match={"subject": ONCE}, autonomy=3, budget={"max_per_day": 1}),
        policy(folder, "never", match={"subject": NEVER}, decision="deny"),
    ]
    governance(folder, policies=registered, autonomy={"level": 2, "defaultApproval": "on-mutate"})
    own = with_(OPERATOR, id="clerk", tools=TOOLS, governance={"audit_log": "audit:main", "autonomy": "autonomous"})
    own["memory"] = {"kind": "none" if name == "brief" else "thread"}
    write(folder / "operators/clerk/OPERATOR.md", own)
    bound: dict[str, Any] = {"tier": "governance-aware", "operator": "ws://operators/clerk"}
    if name == "boxed":
        write(folder / "SANDBOX.md", with_(SANDBOX, mounts=[{"source": "workspace", "at": str(folder / "work")}]))
        write(folder / "skills/voice/SKILL.md", {"name": "voice", "description": "How to write."}, "Be plain.\n")
        write(folder / "operators/clerk/OPERATOR.md", {**own, "skills": ["voice"]})
        bound |= {"tier": "sandboxed", "sandbox": "../SANDBOX.md"}
    return manifest(folder / "bridge", bound, kind="bridge", transport=["stdio", "websocket"])


@dataclass
class Room:
    """A running gateway. `folder` has a folder for each of ROUTES."""

    folder: Path
    url: str

    def work(self, route: str) -> Path:
        """Where sessions of that route may be."""
        return self.folder / route / "work"

    def log(self, route: str) -> list[Line]:
        """The audit log, line by line, without one that is being written."""
        file = self.folder / route / "audit-log.jsonl"
        whole, _, _ = (file.read_text() if file.exists() else "").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def acts(self, route: str, session: str) -> list[str]:
        """What the log says of a session: actions, with the tool where there is one."""
        return [short(line) for line in self.log(route) if audited(line).get("session") == session]

    def will_say(self, route: str, session: str, act: str) -> bool:
        """Whether the log says so of a session, now or soon: what nobody waits for may be written late."""
        until = time.monotonic() + PATIENCE
        while not (found := act in self.acts(route, session)) and time.monotonic() < until:
            time.sleep(0.01)
        return found

    @contextlib.contextmanager
    def editor(self, route: str, **capabilities: Any) -> Iterator[Editor]:
        """A client that has shaken hands."""
        with connect(f"{self.url.replace('http', 'ws')}/agent-client/{route}", max_size=None) as socket:
            found = Editor(self, route, socket)
            found.hello = found.ask("initialize", protocolVersion=1, clientCapabilities=capabilities)
            yield found


def audited(line: Line) -> Line:
    """What a line says in AIP-44's words."""
    found: Line = line.get("metadata", {}).get("aip44", {}).get("audit", {})
    return found


def short(line: Line) -> str:
    tool = audited(line).get("tool")
    return f"{line['action']} {tool}" if tool else str(line["action"])


@dataclass
class Editor:
    """A client. `seen`: every message from the gateway, with what the log said of the session when it came."""

    room: Room
    route: str
    socket: ClientConnection
    hello: Line = field(default_factory=dict)
    session: str = ""
    choose: Callable[[list[Line]], str] = lambda options: str(options[0]["optionId"])
    seen: list[tuple[Line, list[str]]] = field(default_factory=list)
    _last: int = -1

    def request(self, method: str, **params: Any) -> Line:
        """The answer, `result` or `error`; what comes before it is seen, and questions are answered."""
        self._last += 1
        self._send(id=self._last, method=method, params=params)
        while True:
            message = self.next()
            if "method" not in message and message.get("id") == self._last:
                return message

    def ask(self, method: str, **params: Any) -> Line:
        """The result."""
        answer = self.request(method, **params)
        assert "result" in answer, answer
        return answer["result"] or {}

    def new(self, cwd: Path | None = None) -> str:
        """A session; its id."""
        opened = self.ask("session/new", cwd=str(cwd or self.room.work(self.route)), mcpServers=[])
        self.session = opened["sessionId"]
        return self.session

    def prompt(self, text: str) -> Line:
        """The answer to a prompt."""
        words = [{"type": "text", "text": text}]
        return self.request("session/prompt", sessionId=self.session, prompt=words)

    def next(self) -> Line:
        """The next message; one that asks is answered."""
        message: Line = json.loads(self.socket.recv(PATIENCE))
        log = self.room.acts(self.route, message.get("params", {}).get("sessionId") or self.session)
        self.seen.append((message, log))
        if "method" in message and "id" in message:
            self._send(id=message["id"], **self._answer(message["method"], message["params"]))
        return message

    def updates(self, *kinds: str) -> list[Line]:
        """The updates of those kinds."""
        told = [message["params"]["update"] for message, _ in self.seen if message.get("method") == "session/update"]
        return [update for update in told if update["sessionUpdate"] in kinds]

    def when(self, kind: str) -> list[str]:
        """What the log said when the first update of the kind came."""
        for message, log in self.seen:
            if message.get("params", {}).get("update", {}).get("sessionUpdate") == kind:
                return log
        raise AssertionError(f"no {kind} in {self.seen}")

    def questions(self) -> list[tuple[Line, list[str]]]:
        """What the client was asked to permit, and what the log said then."""
        found = [(message, log) for message, log in self.seen if message.get("method") == "session/request_permission"]
        return [(message["params"], log) for message, log in found]

    def said(self) -> str:
        """The text of the agent."""
        return "".join(update["content"].get("text", "") for update in self.updates("agent_message_chunk"))

    def _answer(self, method: str, params: Line) -> Line:
        if method == "session/request_permission":
            return {"result": {"outcome": {"outcome": "selected", "optionId": self.choose(params["options"])}}}
        if method == "fs/read_text_file":
            path = Path(params["path"])
            return {"result": {"content": path.read_text() if path.exists() else "nothing"}}
        if method == "fs/write_text_file":
            Path(params["path"]).write_text(params["content"])
            return {"result": {}}
        return {"error": {"code": -32601, "message": method}}

    def _send(self, **message: Any) -> None:
        self.socket.send(json.dumps({"jsonrpc": "2.0", **message}))


def yes(options: list[Line]) -> str:
    return str(next(option["optionId"] for option in options if option["kind"] == "allow_once"))


def no(options: list[Line]) -> str:
    return str(next(option["optionId"] for option in options if option["kind"] == "reject_once"))


def table(folder: Path) -> str:
    """A route for each of ROUTES; the route's own policy would permit everything."""
    target = {"protocol": "agent_client", "command": agent(), "permissions": {"default": "allow"}}
    routes = [
        {"name": name, "manifest": str(documents(folder / name, name).relative_to(folder)), "target": target}
        for name in ROUTES
    ]
    return json.dumps({"routes": routes})


@contextlib.contextmanager
def room(folder: Path) -> Iterator[Room]:
    """The gateway as it is."""
    with Gateway(table(folder), folder) as gateway:
        yield Room(folder, gateway.url)


@contextlib.contextmanager
def stripped_room(folder: Path) -> Iterator[tuple[Room, Callable[[str], None]]]:
    """A gateway of which any check can be taken out by its name, and put back by none (see `stripped.py`)."""
    file = folder / "routes.yaml"
    file.write_text(table(folder))
    for pipe in ("commands", "done"):
        os.mkfifo(folder / pipe)
    port = free_port()
    argv = [sys.executable, str(STRIPPED), str(folder), "serve", str(file), "--host", "127.0.0.1", "--port", str(port)]
    ready = url_answers(f"http://127.0.0.1:{port}/readyz")
    with (
        start(standing_in(argv), port=port, ready=ready) as process,
        (folder / "commands").open("w", buffering=1) as commands,
        (folder / "done").open() as done,
    ):

        def strip(check: str) -> None:
            commands.write(f"{check}\n")
            assert done.readline() == f"{check}\n", process.describe()

        yield Room(folder, process.url), strip
