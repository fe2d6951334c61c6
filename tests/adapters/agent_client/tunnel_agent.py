"""An agent as a program, standard library only, that does what its prompts say: JSON lists of steps.

| step | does, and gives as its result |
|---|---|
| `["ask", METHOD, PARAMS]` | a request to the client; its answer, whole |
| `["begin", METHOD, PARAMS]`, `["answer", N]` | the same without waiting; the N-th of these, later |
| `["drop", N]` | cancels that |
| `["tell", METHOD, PARAMS]` | a notification |
| `["hear"]` | the next `mcp/message` that came; a request is answered `{"heard": METHOD}` |
| `["servers"]` | the `mcpServers` of the session |
| `["open", N]` | starts the N-th of them; the number of the connection |
| `["write", C, MESSAGE]`, `["read", C]` | a line to it, the next line from it; None at its end |
| `["close", C]` | closes its input, waits; its exit code |
| `["pid", C]`, `["code", C]` | its process; its exit code once it has ended |
| `["exit"]` | ends the agent |

In PARAMS and MESSAGE `{"$": [STEP, KEY, ...]}` is what that step of the same prompt gave. Every prompt is answered with
a chunk of all results as JSON. Started with `native` it declares that it takes servers over the connection.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any


def filled(value: Any, results: list[Any]) -> Any:
    """A value with what it refers to."""
    if isinstance(value, dict) and "$" in value:
        step, *keys = value["$"]
        found = results[step]
        for key in keys:
            found = found[key]
        return found
    if isinstance(value, dict):
        return {key: filled(each, results) for key, each in value.items()}
    return [filled(each, results) for each in value] if isinstance(value, list) else value


class Agent:
    """The program."""

    def __init__(self, *transports: str, out: Callable[[str], Any] = lambda line: print(line, flush=True)) -> None:
        self.transports = transports
        self.out = out
        self.number = 0
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.begun: list[int] = []
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self.sessions: dict[str, Any] = {}
        self.children: list[asyncio.subprocess.Process] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def say(self, **message: Any) -> None:
        self.out(json.dumps({"jsonrpc": "2.0", **message}))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            self.take(json.loads(line))

    def take(self, message: dict[str, Any]) -> None:
        """What the client says."""
        if "method" not in message:
            self.waiting[message["id"]].set_result(message)
        elif message["method"] == "mcp/message":
            self.heard.put_nowait(message)
            if "id" in message:
                self.say(id=message["id"], result={"heard": message["params"]["method"]})
        elif message["method"] == "$/cancel_request":
            self.heard.put_nowait(message)
        elif "id" in message:
            task = asyncio.ensure_future(self.serve(message))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def serve(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message["params"]
        if method == "initialize":
            can: dict[str, Any] = {"sessionCapabilities": {"close": {}, "resume": {}}}
            if self.transports:
                can["mcpCapabilities"] = dict.fromkeys(self.transports, True)
            self.say(id=message["id"], result={"protocolVersion": 1, "agentCapabilities": can})
        elif method in ("session/new", "session/resume"):
            name = params.get("sessionId") or f"s{len(self.sessions)}"
            self.sessions[name] = params["mcpServers"]
            self.say(id=message["id"], result={"sessionId": name} if method == "session/new" else {})
        elif method == "session/close":
            self.say(id=message["id"], result={})
        elif method == "session/prompt":
            results: list[Any] = []
            for step in json.loads(params["prompt"][0]["text"]):
                results.append(await self.step(params["sessionId"], filled(step, results)))
            text = {"type": "text", "text": json.dumps(results)}
            update = {"sessionUpdate": "agent_message_chunk", "content": text}
            self.say(method="session/update", params={"sessionId": params["sessionId"], "update": update})
            self.say(id=message["id"], result={"stopReason": "end_turn"})

    def ask(self, method: str, params: Any) -> int:
        self.number += 1
        self.waiting[self.number] = asyncio.get_running_loop().create_future()
        self.say(id=self.number, method=method, params=params)
        return self.number

    async def step(self, session: str, step: list[Any]) -> Any:
        what, *rest = step
        if what == "ask":
            return await self.waiting[self.ask(*rest)]
        if what == "begin":
            self.begun.append(self.ask(*rest))
            return None
        if what == "answer":
            return await self.waiting[self.begun[rest[0]]]
        if what in ("tell", "drop"):
            method, params = rest if what == "tell" else ("$/cancel_request", {"requestId": self.begun[rest[0]]})
            self.say(method=method, params=params)
            return None
        if what == "exit":
            os._exit(3)
        if what == "hear":
            return await self.heard.get()
        if what == "servers":
            return self.sessions[session]
        if what == "open":
            server = self.sessions[session][rest[0]]
            pipe = asyncio.subprocess.PIPE
            env = {each["name"]: each["value"] for each in server["env"]}
            child = await asyncio.create_subprocess_exec(
                server["command"], *server["args"], stdin=pipe, stdout=pipe, env=env, limit=64 * 1024 * 1024
            )
            self.children.append(child)
            return len(self.children) - 1
        child = self.children[rest[0]]
        assert child.stdin is not None and child.stdout is not None
        if what == "write":
            child.stdin.write(json.dumps(rest[1]).encode() + b"\n")
            return None
        if what == "read":
            line = await child.stdout.readline()
            return json.loads(line) if line else None
        if what == "close":
            child.stdin.close()
        return child.pid if what == "pid" else await child.wait()


if __name__ == "__main__":
    asyncio.run(Agent(*(["acp"] if "native" in sys.argv else [])).run())
