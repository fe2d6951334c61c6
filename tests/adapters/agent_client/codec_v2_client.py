"""A client of version 2, as far as updates go: it keeps what it is told by the protocol's rules (docs: migration).

Omitted leaves what is, null clears, a value replaces, chunks append.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

PATCHED = ("title", "kind", "status", "content", "locations", "rawInput", "rawOutput", "_meta")
LISTS = ("content", "locations")


class Client:
    """`messages`, `calls`, `plans` and `terminals` by id, in the order in which they were first heard of."""

    def __init__(self, updates: Iterable[Any] = ()) -> None:
        self.messages: dict[str, dict[str, Any]] = {}
        self.calls: dict[str, dict[str, Any]] = {}
        self.plans: dict[str, Any] = {}
        self.terminals: dict[str, dict[str, Any]] = {}
        self.states: dict[str, Any] = {}
        self.unknown: list[Any] = []
        for update in updates:
            self.apply(update)

    @property
    def seen(self) -> tuple[Any, ...]:
        """All that it shows."""
        return (self.messages, self.calls, self.plans, self.terminals, self.states, self.unknown)

    def apply(self, update: Any) -> None:
        """One update."""
        kind = update["sessionUpdate"]
        said = {key: value for key, value in update.items() if key != "sessionUpdate"}
        if kind in ("agent_message", "agent_thought", "user_message"):
            message = self._message(kind, said["messageId"])
            if "content" in said:
                message["content"] = joined(said["content"] or [])
            if "_meta" in said:
                message["_meta"] = said["_meta"]
        elif kind in ("agent_message_chunk", "agent_thought_chunk", "user_message_chunk"):
            message = self._message(kind.removesuffix("_chunk"), said["messageId"])
            message["content"] = joined([*message["content"], said["content"]])
        elif kind == "tool_call_update":
            call = self.calls.setdefault(said["toolCallId"], {})
            for key in PATCHED:
                if key in said:
                    call[key] = said[key] if said[key] is not None or key not in LISTS else []
        elif kind == "tool_call_content_chunk":
            call = self.calls.setdefault(said["toolCallId"], {})
            call["content"] = [*call.get("content", []), said["content"]]
        elif kind == "plan_update":
            self.plans[said["plan"]["planId"]] = said["plan"]
        elif kind == "plan_removed":
            self.plans.pop(said["planId"], None)
        elif kind == "terminal_update":
            terminal = self.terminals.setdefault(said["terminalId"], {"output": b""})
            for key in ("command", "cwd", "exitStatus", "_meta"):
                if key in said:
                    terminal[key] = said[key]
            if "output" in said:
                terminal["output"] = base64.b64decode(said["output"]["data"]) if said["output"] else b""
        elif kind == "terminal_output_chunk":
            terminal = self.terminals.setdefault(said["terminalId"], {"output": b""})
            terminal["output"] += base64.b64decode(said["data"])
        elif kind in STATES:
            self.states[kind] = said
        else:
            self.unknown.append(update)

    def text(self, kind: str = "agent_message") -> str:
        """All text of one kind of message, messages a blank line apart."""
        messages = [message for message in self.messages.values() if message["kind"] == kind]
        said = ["".join(block.get("text", "") for block in message["content"]) for message in messages]
        return "\n\n".join(text for text in said if text)

    def _message(self, kind: str, id: str) -> dict[str, Any]:
        return self.messages.setdefault(f"{kind} {id}", {"kind": kind, "content": []})


STATES = ("available_commands_update", "config_option_update", "session_info_update", "usage_update", "state_update")


def joined(blocks: list[Any]) -> list[Any]:
    """Neighbouring plain texts as one: how they were cut is not shown."""
    out: list[Any] = []
    for block in blocks:
        if out and _is_plain(block) and _is_plain(out[-1]):
            out[-1] = {"type": "text", "text": out[-1]["text"] + block["text"]}
        elif not (_is_plain(block) and not block["text"]):
            out.append(block)
    return out


def _is_plain(block: Any) -> bool:
    return bool(block.keys() == {"type", "text"} and block["type"] == "text")
