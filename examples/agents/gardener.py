"""A toy Agent Client agent: plants what it is told, if it may. Standard library only; speaks on stdin and stdout.

What an editor starts, and what the gateway starts here: one JSON object a line (Agent Client Protocol v1). A turn
streams its words, shows a plan, and asks permission before its one tool call.
"""

from __future__ import annotations

import itertools
import json
import queue
import sys
import threading
import time
import uuid
from typing import Any

OPTIONS = [
    {"optionId": "plant", "name": "Plant it", "kind": "allow_once"},
    {"optionId": "leave", "name": "Leave it", "kind": "reject_once"},
]
STEPS = ["Choose a place", "Dig", "Water"]

numbers = itertools.count()
answers: dict[int, queue.SimpleQueue[Any]] = {}
cancelled: dict[str, threading.Event] = {}
writing = threading.Lock()


def send(**message: Any) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def update(session: str, kind: str, /, **fields: Any) -> None:
    send(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": kind, **fields}})


def ask(method: str, params: dict[str, Any]) -> Any:
    number = next(numbers)
    answer = answers[number] = queue.SimpleQueue()
    send(id=number, method=method, params=params)
    return answer.get()


def say(session: str, text: str) -> None:
    for word in text.split(" "):
        if cancelled[session].is_set():
            return
        update(session, "agent_message_chunk", content={"type": "text", "text": word + " "})
        time.sleep(0.03)


def plan(session: str, done: int) -> None:
    states = ["completed" if at < done else "pending" for at in range(len(STEPS))]
    entries = [{"content": s, "status": state, "priority": "medium"} for s, state in zip(STEPS, states, strict=True)]
    update(session, "plan", entries=entries)


def turn(session: str, prompt: list[dict[str, Any]], number: Any) -> None:
    wanted = " ".join(block["text"] for block in prompt if block["type"] == "text") or "a surprise"
    cancelled[session] = threading.Event()
    plan(session, 0)
    say(session, f"I would plant {wanted}.")
    call = {"toolCallId": str(uuid.uuid4()), "name": "plant", "title": f"Plant {wanted}", "kind": "edit"}
    call["status"] = "pending"
    update(session, "tool_call", **call)
    answer = ask("session/request_permission", {"sessionId": session, "toolCall": call, "options": OPTIONS})
    chosen = answer.get("outcome", {}).get("optionId")
    status = "completed" if chosen == "plant" else "failed"
    update(session, "tool_call_update", toolCallId=call["toolCallId"], status=status)
    if not cancelled[session].is_set():
        plan(session, len(STEPS) if chosen == "plant" else 1)
        say(session, "It grows." if chosen == "plant" else "Then I leave the bed as it is.")
    stop = "cancelled" if cancelled[session].is_set() else "end_turn"
    send(id=number, result={"stopReason": stop})


def serve(message: dict[str, Any]) -> None:
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None:
        if number in answers:
            answers.pop(number).put(message.get("result") or {})
    elif method == "initialize":
        about = {"name": "gardener", "title": "Gardener", "version": "1.0.0"}
        send(id=number, result={"protocolVersion": 1, "agentCapabilities": {}, "authMethods": [], "agentInfo": about})
    elif method == "session/new":
        send(id=number, result={"sessionId": str(uuid.uuid4())})
    elif method == "session/prompt":
        work = (params["sessionId"], params["prompt"], number)
        threading.Thread(target=turn, args=work, daemon=True).start()
    elif method == "session/cancel":
        cancelled.setdefault(params["sessionId"], threading.Event()).set()
    elif number is not None:
        send(id=number, error={"code": -32601, "message": f"Method not found: {method}"})


for line in sys.stdin:
    serve(json.loads(line))
