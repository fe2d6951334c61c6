"""What no input may bring about, and what is a decision all the same."""

from __future__ import annotations

import json
import re
from typing import Any

INTERNAL = -32603

FAILURES = {
    "agent_failed": "the agent's own failure, which no JSON-RPC code but this one says",
    "agent_gone": "the agent went away",
    "agent_timeout": "the agent did not answer in time",
    "unavailable": "too much is under way, or the gateway stops: to be tried again",
}
"""`data.code` of a -32603 that is told by decision (the adapters' tables of errors), and why."""

STATUSES = {
    (501, "several messages in an array are not taken"): "the proposal of Streamable HTTP has 501 for a batch",
    (501, "Unsupported"): "an operation that the agent's protocol has no way to do",
    (503, "unavailable"): "too much is under way: to be tried again",
}
"""Statuses from 500 on that are told by decision, by a part of the body, and why."""

_BAD_RECORD = re.compile(
    r"^\S+ \S+ (ERROR|CRITICAL) .*|^Traceback .*|.*never awaited.*|.*Task exception.*", re.MULTILINE
)


def rpc_fault(message: Any) -> str | None:
    """What is wrong with an answer of a JSON-RPC door, if anything."""
    error = message.get("error") if isinstance(message, dict) else None
    if not isinstance(error, dict) or error.get("code") != INTERNAL:
        return None
    data = error.get("data")
    if isinstance(data, dict) and data.get("code") in FAILURES:
        return None
    return f"answered {json.dumps(error)[:300]}"


def http_fault(status: int, body: bytes) -> str | None:
    """What is wrong with an answer over HTTP."""
    text = body.decode(errors="replace")
    if status < 500 or any(status == known and part in text for known, part in STATUSES):
        return None
    return f"answered HTTP {status}: {text[:300]}"


def log_fault(log: str) -> str | None:
    """The first record at error level, or traceback, of a gateway's log, and what stands below it."""
    found = _BAD_RECORD.search(log)
    return None if found is None else "logged " + log[found.start() : found.start() + 4000]
