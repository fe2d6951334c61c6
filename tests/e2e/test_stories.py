"""The table of stories in docs/conversations.md: three prompts by each door to each kind of agent, the gateway killed
before the last. The clients and the agents are the official SDKs; of Agent Context there is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import interlingua
from tests.e2e.doors import way
from tests.support import agent_client, agent_context
from tests.support.agent_client import agent_client_agent_command, agent_client_conversations
from tests.support.agent_communication import agents_server, clients
from tests.support.peers import agent_connect_conversations, agent_protocol_client, peer_python
from tests.support.processes import PEERS, Gateway, Process

Lines = list[dict[str, Any]]

WORDS = ("one alpha", "one beta", "one gamma")
BEFORE, NEXT = "This conversation so far:", "The next message:"
DOORS = ("agent_client", "agent_connect", "agent_protocol", "agent_context")
"""Those whose clients have conversations."""
CALLS = ("agents/run", "tools/call", "interlingua run")
"""Those of which each call stands alone."""
KINDS = ("editor", "connect", "task", "messages", "text", "tool", "context")


@dataclass(frozen=True)
class Told:
    """What a client was told in answer to a prompt."""

    text: str
    losses: tuple[str, ...]


Story = tuple[Told, Told, Told]


def agent(kind: str, door: str) -> str:
    """The name of the agent of a kind that a door's client talks to."""
    return f"editor-{door}" if kind == "editor" else kind


def given(kind: str, words: str) -> str:
    """The input of an agent as a document."""
    key = {"text": "prompt", "tool": "question"}.get(kind, "message")
    if kind == "messages":
        return json.dumps({"messages": [{"role": "user", "content": words}]})
    return json.dumps({key: words})


def said_in(values: Any) -> str:
    """The text of an output document."""
    if not isinstance(values, dict):
        return str(values)
    if isinstance(values.get("messages"), list):
        return "\n".join(one.get("content") or one.get("text") for one in values["messages"])
    return str(values.get("message") or values.get("text") or values.get("result") or values)


@pytest.fixture(scope="module")
def stories(
    agent_protocol_server: Process, agent_connect_agent: Process, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Story]]:
    """By door and kind of agent."""
    folder = tmp_path_factory.mktemp("stories")
    tools = [str(peer_python("mcp-1")), "-P", str(PEERS / "mcp_picture_server.py")]
    with ExitStack() as stack:
        bee = f"{stack.enter_context(agents_server('py')).url}/sse"
        native = f"{stack.enter_context(agent_context.agents_server()).url}/mcp"
        targets: dict[str, dict[str, Any]] = {
            "connect": {"protocol": "agent_connect", "url": agent_connect_agent.url, "agent": "echo"},
            "task": {"protocol": "agent_protocol", "url": agent_protocol_server.url},
            "messages": {"protocol": "agent_communication", "url": bee, "agent": "chat"},
            "text": {"protocol": "agent_communication", "url": bee, "agent": "echo"},
            "tool": {"protocol": "agent_context", "command": tools, "agent": "words"},
            "context": {"protocol": "agent_context", "url": native, "agent": "echo"},
        }
        for door in DOORS:  # each with an agent's process of its own, which keeps its sessions in a file
            command = agent_client_agent_command("py", "--state", str(folder / f"{door}.json"))
            targets[agent("editor", door)] = {"protocol": "agent_client", "command": command}
        routes = [{"name": name, "target": target} for name, target in targets.items()]
        gateway = stack.enter_context(Gateway(json.dumps({"routes": routes}), folder))
        calls = Calls(gateway)
        doors = {
            "agent_client": Editors(),
            "agent_connect": Connect(),
            "agent_protocol": Tasks(),
            "agent_context": Context(),
        }
        before = {name: door.begin(gateway) for name, door in doors.items()}
        called = [calls.all(words) for words in WORDS[:2]]
        gateway.kill9()
        gateway.restart()
        after = {name: door.go_on(gateway) for name, door in doors.items()}
        called.append(calls.all(WORDS[2]))
        told = {(door, kind): (*before[door][kind], after[door][kind]) for door in doors for kind in KINDS}
        yield {**told, **{key: (called[0][key], called[1][key], called[2][key]) for key in called[0]}}


class Editors:
    """Sessions of the Agent Client Protocol's Python SDK."""

    def begin(self, gateway: Gateway) -> dict[str, tuple[Told, Told]]:
        steps = ("--say", WORDS[0], "--say", WORDS[1])
        lines = agent_client_conversations("py", *({"steps": steps, **self._way(gateway, kind)} for kind in KINDS))
        self.sessions = [agent_client.results(one, "session/new")[0]["sessionId"] for one in lines]
        return {kind: self._told(agent_client.turns(one)) for kind, one in zip(KINDS, lines, strict=True)}

    def go_on(self, gateway: Gateway) -> dict[str, Told]:
        loads = [("--bare", "--do", "initialize", "--session", one, "--do", "load") for one in self.sessions]
        lines = agent_client_conversations(
            "py",
            *(
                {"steps": (*load, "--say", WORDS[2]), **self._way(gateway, kind)}
                for kind, load in zip(KINDS, loads, strict=True)
            ),
        )
        found = {}
        for kind, one in zip(KINDS, lines, strict=True):
            loaded = next(at for at, line in enumerate(one) if line["op"] == "session/load" and "result" in line)
            found[kind] = self._told([one[loaded + 1 :]])[0]
        return found

    def _way(self, gateway: Gateway, kind: str) -> dict[str, Any]:
        return way(gateway, "ws", agent(kind, "agent_client"))

    def _told(self, turns: list[Lines]) -> Any:
        found = []
        for turn in turns:
            (answer,) = agent_client.results(turn, "session/prompt")
            losses = tuple(((answer.get("_meta") or {}).get("interlingua") or {}).get("lost") or ())
            found.append(Told(agent_client.text(turn).strip(), losses))
        return tuple(found)


class Connect:
    """Threads of the Agent Connect SDK."""

    def begin(self, gateway: Gateway) -> dict[str, tuple[Told, Told]]:
        said = [
            one for kind in KINDS for one in (self._say(kind, WORDS[0]), [*self._say(kind, WORDS[1]), "--thread", "-"])
        ]
        lines = agent_connect_conversations(f"{gateway.url}/agent-connect", *said)
        self.threads = [self._results(one, "create_thread")[0]["thread_id"] for one in lines[::2]]
        told = [self._told(one) for one in lines]
        return {kind: (told[2 * at], told[2 * at + 1]) for at, kind in enumerate(KINDS)}

    def go_on(self, gateway: Gateway) -> dict[str, Told]:
        said = [
            [*self._say(kind, WORDS[2]), "--thread", thread] for kind, thread in zip(KINDS, self.threads, strict=True)
        ]
        lines = agent_connect_conversations(f"{gateway.url}/agent-connect", *said)
        return {kind: self._told(one) for kind, one in zip(KINDS, lines, strict=True)}

    def _say(self, kind: str, words: str) -> list[str]:
        return ["say", "--name", agent(kind, "agent_connect"), "--input", given(kind, words)]

    def _results(self, lines: Lines, op: str) -> list[Any]:
        found = [line["result"] for line in lines if line["op"] == op and "result" in line]
        assert found, [line for line in lines if "error" in line]
        return found

    def _told(self, lines: Lines) -> Told:
        values = self._results(lines, "wait_for_thread_run_output")[0]["output"]["values"]
        said = self._results(lines, "headers")[0].get("x-interlingua-losses")
        losses = tuple(sorted(one.partition("=")[0] for one in said.split(", "))) if said else ()
        return Told(said_in(values), losses)


class Tasks:
    """Tasks of the `agent-protocol` client: each further prompt is a step after the last."""

    def begin(self, gateway: Gateway) -> dict[str, tuple[Told, Told]]:
        self.tasks: dict[str, str] = {}
        found = {}
        for kind in KINDS:
            lines = agent_protocol_client("steps", self._url(gateway, kind), "--input", WORDS[0])
            self.tasks[kind] = lines[0]["result"]["task_id"]
            found[kind] = (self._told(lines), self._step(gateway, kind, WORDS[1]))
        return found

    def go_on(self, gateway: Gateway) -> dict[str, Told]:
        return {kind: self._step(gateway, kind, WORDS[2]) for kind in KINDS}

    def _url(self, gateway: Gateway, kind: str) -> str:
        return f"{gateway.url}/agent-protocol/{agent(kind, 'agent_protocol')}"

    def _step(self, gateway: Gateway, kind: str, words: str) -> Told:
        there = ("--task", self.tasks[kind], "--step-input", words)
        return self._told(agent_protocol_client("steps", self._url(gateway, kind), *there))

    def _told(self, lines: Lines) -> Told:
        step = lines[-1]["result"]
        assert step["is_last"], step
        return Told(step["output"].strip(), tuple(sorted((step["additional_output"] or {}).get("losses") or ())))


class Context:
    """Messages with a `sessionId`, each a POST of its own."""

    def begin(self, gateway: Gateway) -> dict[str, tuple[Told, Told]]:
        return {kind: (self._say(gateway, kind, WORDS[0]), self._say(gateway, kind, WORDS[1])) for kind in KINDS}

    def go_on(self, gateway: Gateway) -> dict[str, Told]:
        return {kind: self._say(gateway, kind, WORDS[2]) for kind in KINDS}

    def _say(self, gateway: Gateway, kind: str, words: str) -> Told:
        payload = {"messages": [{"text": words}], "context": {"sessionId": "stories"}}
        params = {"target": agent(kind, "agent_context"), "content": {"type": "request", "payload": payload}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "agent/message", "params": params}
        said = httpx2.post(f"{gateway.url}/agent-context", json=body, timeout=60).json()
        found = said["result"]
        words = "\n".join(one["text"] for one in found["content"]["payload"]["messages"])
        return Told(words.strip(), lost_in(found))


class Calls:
    """Calls of agents and of tools by the SDKs of BeeAI and of MCP, and the command line."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    def all(self, words: str) -> dict[tuple[str, str], Told]:
        """What each kind of agent says in answer to one call, by call."""
        asked = {kind: (agent(kind, "agent_connect"), given(kind, words)) for kind in KINDS}
        runs = [word for name, document in asked.values() for word in ("--run", f"{name} {document}")]
        tools = [word for name, document in asked.values() for word in ("--tool", f"{name} {document}")]
        (ran,) = clients("py", {"steps": runs, "url": f"{self.gateway.url}/agent-communication/sse"})
        (called,) = clients("mcp-2", {"steps": tools, "url": f"{self.gateway.url}/agent-communication/mcp"})
        found = {}
        for kind, result in zip(KINDS, agent_client.results(ran, "agents/run"), strict=True):
            found["agents/run", kind] = Told(said_in(result["output"]), lost_in(result))
        for kind, result in zip(KINDS, agent_client.results(called, "tools/call"), strict=True):
            found["tools/call", kind] = Told(result["content"][0]["text"], lost_in(result))
        for kind, (name, _) in asked.items():
            done = interlingua("run", name, words, "--gateway", self.gateway.url)
            found["interlingua run", kind] = Told(done.stdout, tuple(re.findall(r"earlier_turns", done.stderr)))
        return found


def lost_in(result: Any) -> tuple[str, ...]:
    """What the answer of a call says that was lost."""
    return tuple(sorted((result.get("_meta") or {}).get("interlingua/lost") or ()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("door", DOORS)
def test_a_story(stories: dict[tuple[str, str], Story], door: str, kind: str) -> None:
    story = stories[door, kind]
    one, two, three = (" ".join(told.text.split()) for told in story)
    assert [one, two, three] == [" ".join(said.split()) for said in EXPECTED[kind](one, two, three)]
    assert [told.losses for told in story] == [(), LOST.get(kind, ()), ()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_stands_alone(stories: dict[tuple[str, str], Story], call: str, kind: str) -> None:
    for words, told in zip(WORDS, stories[call, kind], strict=True):
        alone = {"messages": f"1 (user: {words})", "task": f"step 1 of 1: {words}"}.get(kind, words)
        first, *_ = told.text.strip().splitlines()
        assert (first.strip(), told.losses) == (alone, ())


def _remembered(*_: str) -> tuple[str, str, str]:
    """It is told each prompt alone, and remembers the rest itself, if it is no plain tool."""
    return WORDS


def _as_messages(one: str, two: str, three: str) -> tuple[str, str, str]:
    said = f"user: {WORDS[0]} / assistant: {one} / user: {WORDS[1]}"
    return f"1 (user: {WORDS[0]})", f"3 ({said})", f"5 ({said} / assistant: {two} / user: {WORDS[2]})"


def _as_text(one: str, two: str, three: str) -> tuple[str, str, str]:
    first = f"{BEFORE} user: {WORDS[0]} assistant: {one}"
    return WORDS[0], f"{first} {NEXT} {WORDS[1]}", f"{first} user: {WORDS[1]} assistant: {two} {NEXT} {WORDS[2]}"


def _as_tasks(one: str, two: str, three: str) -> tuple[str, str, str]:
    """Each is a new task, told of the ones before and where to find their files."""
    links = [re.findall(r"\[file output\.txt: http\S+\]", told) for told in (two, three)]
    first = f"step 1 of 1: {BEFORE} user: {WORDS[0]} assistant: {one} {links[0][0]}"
    second = f"{first} user: {WORDS[1]} assistant: {two} {links[1][-1]}"
    return f"step 1 of 1: {WORDS[0]}", f"{first} {NEXT} {WORDS[1]}", f"{second} {NEXT} {WORDS[2]}"


EXPECTED: dict[str, Callable[[str, str, str], tuple[str, str, str]]] = {
    "editor": _remembered,
    "connect": _remembered,
    "task": _as_tasks,
    "messages": _as_messages,
    "text": _as_text,
    "tool": _remembered,
    "context": _remembered,
}
LOST = {"tool": ("earlier_turns",)}
"""By kind, what a client is told with its second prompt that was lost."""
