"""The Agent Client Protocol's official SDKs as peers: a client and an agent made with each, and the SDKs' own examples.

`sdk` is one of `SDKS`. A client's steps and a prompt's words are the same for all; `tests/peers/agent_client_client.py`
lists the steps and what is printed, `tests/peers/agent_client_agent.py` the words and options.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tests.support.forking import standing_in
from tests.support.peers import PEERS, by_conversation, lines_of, node, peer_modules, peer_python
from tests.support.processes import Process, environment, free_port, start

Sdk = Literal["py", "ts-0", "ts-2"]
SDKS: tuple[Sdk, ...] = ("py", "ts-0", "ts-2")
"""Python 0.12.1; TypeScript 0.29.0; TypeScript 2.4.0."""

Line = dict[str, Any]
UPSTREAM = PEERS / "upstream" / "agent-client-protocol-0.12.1"
PACKAGE = Path("node_modules", "@agentclientprotocol", "sdk")


def _program(sdk: Sdk, name: str) -> list[str]:
    if sdk == "py":
        return [str(peer_python("agent-client-py")), str(PEERS / f"{name}.py")]
    return [str(node()), str(PEERS / f"{name}.mjs"), "--sdk", str(peer_modules(f"agent-client-{sdk}"))]


def agent_client_agent_command(sdk: Sdk, *args: str) -> list[str]:
    """The agent on stdio: what a route's `target.command` is, or what comes after a client's `--`."""
    command = [*_program(sdk, "agent_client_agent"), *args]
    return standing_in(command) if sdk == "py" else command


@contextlib.contextmanager
def agent_client_agent_server(sdk: Sdk, *args: str) -> Iterator[Process]:
    """The agent as a server: Streamable HTTP and WebSocket on every path of its `.url`."""
    number = free_port()
    with start([*_program(sdk, "agent_client_agent"), "--http", str(number), *args], port=number) as process:
        yield process


def agent_client_client(
    sdk: Sdk,
    *steps: str,
    command: Sequence[str] | None = None,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
) -> list[Line]:
    """One conversation of the client with an agent on stdio (`command`) or at `url` (`http:`, `ws:`); what it printed.

    AssertionError with all its output if the script did not run to its end.
    """
    with agent_client_conversation(sdk, *steps, command=command, url=url, env=env) as process:
        return lines_of(process)


@contextlib.contextmanager
def agent_client_conversation(
    sdk: Sdk,
    *steps: str,
    command: Sequence[str] | None = None,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Process]:
    """The same while it runs, for tests that do something meanwhile; `lines_of(process)` waits for its end."""
    with start([*_program(sdk, "agent_client_client"), *words_of(steps, command, url)], env) as process:
        yield process


def agent_client_conversations(sdk: Sdk, *conversations: Mapping[str, Any]) -> list[list[Line]]:
    """Several conversations in one process, each `{"steps": [...], "command" or "url": ...}`; what each printed.

    Starting the SDK is what takes long. AssertionError as `agent_client_client` has it.
    """
    words: list[str] = []
    for one in conversations:
        words += [*(["+"] if words else []), *words_of(one["steps"], one.get("command"), one.get("url"))]
    with start([*_program(sdk, "agent_client_client"), *words]) as process:
        return by_conversation(lines_of(process), len(conversations))


def words_of(steps: Sequence[str], command: Sequence[str] | None, url: str | None) -> list[str]:
    """One conversation's command line."""
    assert (command is None) != (url is None), "name either a command or a url"
    there: list[str] = []
    if url:
        there = ["--ws" if url.startswith("ws") else "--http", url]
    return [*there, *steps, *(["--", *command] if command else [])]


def results(lines: Sequence[Line], op: str) -> list[Any]:
    """The results of all requests of one method."""
    return [line["result"] for line in lines if line["op"] == op and "result" in line]


def errors(lines: Sequence[Line], op: str) -> list[Any]:
    """What went wrong with requests of one method."""
    return [line["error"] for line in lines if line["op"] == op and "error" in line]


def asked(lines: Sequence[Line], op: str) -> list[Any]:
    """The params of what the agent asked."""
    return [line["asked"] for line in lines if line["op"] == op and "asked" in line]


def told(lines: Sequence[Line], op: str) -> list[Any]:
    """The params of notifications other than `session/update`."""
    return [line["told"] for line in lines if line["op"] == op and "told" in line]


def updates(lines: Sequence[Line], kind: str | None = None) -> list[Any]:
    """The updates of that kind, or of all, in order."""
    found = [line["params"]["update"] for line in lines if line["op"] == "session/update"]
    return [one for one in found if kind is None or one["sessionUpdate"] == kind]


def text(lines: Sequence[Line], kind: str = "agent_message_chunk") -> str:
    """All the text of those chunks, as an editor would show it."""
    contents = [one["content"] for one in updates(lines, kind)]
    return "".join(one["text"] for one in contents if one["type"] == "text")


def turns(lines: Sequence[Line]) -> list[list[Line]]:
    """The lines up to the answer of each prompt, one list a prompt."""
    found: list[list[Line]] = [[]]
    for line in lines:
        found[-1].append(line)
        if line["op"] == "session/prompt":
            found.append([])
    return found[:-1]


def example_agent_command(sdk: Sdk) -> list[str]:
    """The SDK's own example agent on stdio."""
    if sdk == "py":
        return standing_in([str(peer_python("agent-client-py")), str(UPSTREAM / "agent.py")])
    return [str(node()), str(_typescript_examples(sdk) / "agent.js")]


def example_client(sdk: Sdk, command: Sequence[str], stdin: str) -> str:
    """What the SDK's own example client on stdio prints when it drives `command` and is typed `stdin`.

    Python: each line typed is a prompt. TypeScript: one prompt, and each line chooses an option by its number; its
    example starts its agent with `npx`, so the `npx` that it finds on its path is `command`.
    """
    if sdk == "py":
        argv = [str(peer_python("agent-client-py")), str(UPSTREAM / "client.py"), *command]
        return _typed(argv, stdin, {})
    with tempfile.TemporaryDirectory() as folder:
        npx = Path(folder, "npx")
        npx.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n", encoding="utf-8")
        npx.chmod(0o755)
        path = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        return _typed([str(node()), str(_typescript_examples(sdk) / "client.js")], stdin, path)


def example_remote_client(sdk: Sdk, url: str) -> str:
    """What the SDK's own example client prints at `url`, over Streamable HTTP (`http:`) or WebSocket (`ws:`)."""
    scheme, _, address = url.partition("://")
    socket = scheme == "ws"
    if sdk == "py":
        program = UPSTREAM / ("ws_client.py" if socket else "http_client.py")
        argv = [str(peer_python("agent-client-py")), str(PEERS / "agent_client_address.py"), str(program), address]
        return _typed(argv, "", {})
    program = _typescript_examples(sdk) / ("ws-client.js" if socket else "http-client.js")
    there = {"ACP_WS_URL" if socket else "ACP_HTTP_URL": url}
    try:
        return _typed([str(node()), str(program)], "", there)
    except AssertionError as error:
        # the example's last act is to close its stream, whose lock the SDK has not always given back by then
        if "Done: end_turn" in str(error) and "WritableStream is locked" in str(error):
            return str(error)
        raise


def _typed(argv: Sequence[str], stdin: str, env: Mapping[str, str]) -> str:
    done = subprocess.run(
        argv, input=stdin, text=True, capture_output=True, check=False, env=environment(env), timeout=150
    )
    shown = f"$ {shlex.join(argv)}   [exit code {done.returncode}]\n{done.stdout}\n--- stderr\n{done.stderr}"
    assert done.returncode == 0, shown
    return done.stdout


SHIMS = {
    "acp.js": "",
    "http-stream.js": "/experimental/http-client",
    "ws-stream.js": "/experimental/ws-client",
    "node-adapter.js": "/experimental/node",
    "server.js": "/experimental/server",
}
"""What the examples import beside them in 0.29.0, and which entry of the package it is."""


def _typescript_examples(sdk: Sdk) -> Path:
    """The folder of the examples. 2.4.0 ships none, so it runs those of 0.29.0, as they are, on itself."""
    shipped = peer_modules("agent-client-ts-0") / PACKAGE / "dist" / "examples"
    if sdk == "ts-0":
        return shipped
    home = peer_modules(f"agent-client-{sdk}")
    laid = home / "example"
    if not laid.exists():
        with tempfile.TemporaryDirectory(dir=home) as folder:
            scratch = Path(folder, "example")
            shutil.copytree(shipped, scratch / "examples")
            (scratch / "package.json").write_text('{"type": "module"}\n', encoding="utf-8")
            for name, entry in SHIMS.items():
                source = f'export * from "@agentclientprotocol/sdk{entry}";\n'
                (scratch / name).write_text(source, encoding="utf-8")
            with contextlib.suppress(OSError):  # another worker was first
                scratch.rename(laid)
    return laid / "examples"
