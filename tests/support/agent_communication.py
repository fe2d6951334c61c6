"""The SDKs of agent_communication (BeeAI's pre-alpha) as peers, and those of MCP, which it extends.

Servers: `agents` made with the Python (`py`) and the TypeScript SDK (`ts`), and `mcp_agents` made with mcp 1.30.0 (`1`)
and 2.3.0 (`2`). Clients likewise; their steps and what they print are in `tests/peers/agent_communication_steps.py`.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tests.support.agent_client import asked, errors, results, told
from tests.support.forking import standing_in
from tests.support.peers import PEERS, by_conversation, lines_of, node, peer_modules, peer_python
from tests.support.processes import Process, free_port, start

__all__ = [
    "CLIENTS",
    "SDKS",
    "Client",
    "Line",
    "Sdk",
    "agents_command",
    "agents_server",
    "asked",
    "client",
    "clients",
    "conversation",
    "deltas",
    "errors",
    "mcp_agents_server",
    "results",
    "told",
    "waited_for",
]

Sdk = Literal["py", "ts"]
SDKS: tuple[Sdk, ...] = ("py", "ts")
"""acp-sdk 0.0.6 for Python; @i-am-bee/acp-sdk 0.0.6 for TypeScript."""

Mcp = Literal["1", "2"]
Client = Literal["py", "ts", "mcp-1", "mcp-2"]
CLIENTS: tuple[Client, ...] = ("py", "ts", "mcp-1", "mcp-2")

Line = dict[str, Any]
PROGRESS = "notifications/agents/run/progress"


def _program(environment: str, program: str) -> list[str]:
    if program.endswith(".mjs"):
        return [str(node()), str(PEERS / program), "--sdk", str(peer_modules(environment))]
    return [str(peer_python(environment)), str(PEERS / program)]


def agents_command(sdk: Sdk, *args: str) -> list[str]:
    """The agents on stdio: what a route's `target.command` is, or what comes after a client's `--`."""
    command = [*_agents(sdk), *args]
    return standing_in(command) if sdk == "py" else command


def _agents(sdk: Sdk) -> list[str]:
    suffix = {"py": "py", "ts": "mjs"}[sdk]
    return _program(f"agent-communication-{sdk}", f"agent_communication_agent.{suffix}")


@contextlib.contextmanager
def agents_server(sdk: Sdk, *args: str, port: int | None = None) -> Iterator[Process]:
    """The agents as a server: HTTP+SSE at `/sse` of its `.url`, and, from Python, WebSocket at `/ws`."""
    with _served([*_agents(sdk), *args], port) as process:
        yield process


@contextlib.contextmanager
def mcp_agents_server(version: Mcp, *args: str, port: int | None = None) -> Iterator[Process]:
    """An MCP server that declares `agents`: Streamable HTTP at `/mcp` of its `.url`."""
    with _served([*_program(f"mcp-{version}", f"mcp_agents_server_{version}.py"), *args], port) as process:
        yield process


@contextlib.contextmanager
def _served(command: Sequence[str], port: int | None) -> Iterator[Process]:
    number = port or free_port()
    with start([*command, "--http", str(number)], port=number) as process:
        yield process


def client(
    kind: Client,
    *steps: str,
    command: Sequence[str] | None = None,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
) -> list[Line]:
    """One conversation of the client with a server on stdio (`command`) or at `url`; what it printed.

    The address says the transport: one that ends in `/sse` is HTTP+SSE, `ws:` WebSocket (TypeScript alone has it), any
    other Streamable HTTP (mcp alone). AssertionError with all its output if the script did not run to its end.
    """
    with conversation(kind, *steps, command=command, url=url, env=env) as process:
        return lines_of(process)


@contextlib.contextmanager
def conversation(
    kind: Client,
    *steps: str,
    command: Sequence[str] | None = None,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Process]:
    """The same while it runs, for tests that do something meanwhile; `lines_of(process)` waits for its end."""
    with start([*_client(kind), *_words(steps, command, url)], env) as process:
        yield process


def clients(kind: Client, *conversations: Mapping[str, Any]) -> list[list[Line]]:
    """Several conversations in one process (not `ts`): each `{"steps": [...], "command" or "url": ...}`; their lines.

    Starting the SDK is what takes long.
    """
    words: list[str] = []
    for one in conversations:
        words += [*(["+"] if words else []), *_words(one["steps"], one.get("command"), one.get("url"))]
    with start([*_client(kind), *words]) as process:
        return by_conversation(lines_of(process), len(conversations))


def _words(steps: Sequence[str], command: Sequence[str] | None, url: str | None) -> list[str]:
    """One conversation's command line."""
    assert (command is None) != (url is None), "name either a command or a url"
    there: list[str] = []
    if url:
        option = "ws" if url.startswith("ws") else "sse" if url.split("?")[0].endswith("/sse") else "http"
        there = [f"--{option}", url]
    return [*there, *steps, *(["--", *command] if command else [])]


def _client(kind: Client) -> list[str]:
    if kind == "py":
        return _program("agent-communication-py", "agent_communication_client.py")
    if kind == "ts":
        return _program("agent-communication-ts", "agent_communication_client.mjs")
    return _program(kind, f"mcp_tools_client_{kind[-1]}.py")


def deltas(lines: Sequence[Line], token: Any = None) -> list[Any]:
    """The deltas that came with that progress token, or all, in order."""
    found = [params for params in told(lines, PROGRESS) if token is None or params["progressToken"] == token]
    return [params["delta"] for params in found]


def waited_for(file: Path, text: str, process: Process) -> None:
    """Returns when the file that a server was given as `--told` has the text; ProcessFailed if it never does."""
    process.wait_until(lambda: file.exists() and text in file.read_text(encoding="utf-8"), text, 150)
