"""Two toy BeeAI agents on one MCP server: a librarian and a counter. Standard library only; speaks on stdin and stdout.

One JSON object a line (Model Context Protocol 2024-11-05 with the pre-alpha `agents` capability). Both stream deltas
where progress is asked for: the librarian's answer is a text and a growing list, the counter's a number.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

BOOKS = [
    {"title": "The Tower of Babel", "author": "Pieter Bruegel"},
    {"title": "A Grammar of Many Tongues", "author": "Anna Lingua"},
    {"title": "Protocols and Their Names", "author": "A. C. Pike"},
]
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
FOUND = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "books": {"type": "array", "items": {"type": "object"}}},
    "required": ["text", "books"],
}
COUNTED = {"type": "object", "properties": {"words": {"type": "integer"}}, "required": ["words"]}

writing = threading.Lock()
cancelled: dict[Any, threading.Event] = {}

Delta = dict[str, Any]


def librarian(text: str) -> Iterator[Delta]:
    for word in f"On {text.strip() or 'everything'} we have:".split(" "):
        yield {"text": f"{word} "}
    for book in BOOKS:
        yield {"text": f"{book['title']}. ", "books": [None, book]}


def counter(text: str) -> Iterator[Delta]:
    yield {"words": 0}
    for _ in text.split():
        yield {"words": 1}


AGENTS: dict[str, tuple[Callable[[str], Iterator[Delta]], Delta, dict[str, Any]]] = {
    "librarian": (librarian, {"text": "", "books": []}, {"description": "Finds books.", "outputSchema": FOUND}),
    "counter": (counter, {"words": 0}, {"description": "Counts words.", "outputSchema": COUNTED}),
}


def send(**message: Any) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def added(output: Delta, delta: Delta) -> Delta:
    """What the output is with the delta: numbers and strings are added, a list grows by what follows the null."""
    return {**output, **{key: output[key] + (d[1:] if isinstance(d, list) else d) for key, d in delta.items()}}


def run(number: Any, name: str, text: str, token: Any) -> None:
    deltas, output, _ = AGENTS[name]
    for delta in deltas(text):
        if cancelled[number].is_set():
            send(id=number, error={"code": 0, "message": "Request cancelled"})
            return
        output = added(output, delta)
        if token is not None:
            params = {"progressToken": token, "delta": delta}
            send(method="notifications/agents/run/progress", params=params)
        time.sleep(0.03)
    send(id=number, result={"output": output})


def serve(message: dict[str, Any]) -> None:
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        about = {"name": "library", "version": "1.0.0"}
        send(id=number, result={"protocolVersion": "2024-11-05", "capabilities": {"agents": {}}, "serverInfo": about})
    elif method == "ping":
        send(id=number, result={})
    elif method == "agents/list":
        agents = [{"name": name, "inputSchema": TEXT, **said} for name, (_, _, said) in AGENTS.items()]
        send(id=number, result={"agents": agents})
    elif method == "agents/run" and params.get("name") in AGENTS:
        cancelled[number] = threading.Event()
        token = (params.get("_meta") or {}).get("progressToken")
        work = (number, params["name"], str(params.get("input", {}).get("text", "")), token)
        threading.Thread(target=run, args=work, daemon=True).start()
    elif method == "notifications/cancelled" and params.get("requestId") in cancelled:
        cancelled[params["requestId"]].set()
    elif number is not None:
        known = method == "agents/run"
        why = f"Unknown agent: {params.get('name')}" if known else f"Method not found: {method}"
        send(id=number, error={"code": -32602 if known else -32601, "message": why})


for line in sys.stdin:
    serve(json.loads(line))
