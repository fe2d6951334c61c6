"""The turns of `agent_client_agent.py`: what each word of a prompt does. The table of words is there."""

import asyncio
import json
import os
import uuid
from datetime import UTC, datetime
from typing import Any

from acp import RequestError
from acp.schema import ElicitationFormSessionMode, PermissionOption, SessionNotification, ToolCallUpdate

OPTIONS = [
    PermissionOption(option_id="ok", name="Allow", kind="allow_once"),
    PermissionOption(option_id="no", name="Reject", kind="reject_once"),
]
FORM = {
    "type": "object",
    "title": "Some questions",
    "properties": {
        "name": {"type": "string", "title": "Your name"},
        "colour": {"type": "string", "enum": ["red", "green"]},
        "sure": {"type": "boolean", "default": False},
        "count": {"type": "integer", "minimum": 1},
    },
    "required": ["name"],
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
STOPS = {"refuse": "refusal", "max": "max_tokens", "turns": "max_turn_requests"}


def update(kind: str, /, **fields: Any) -> Any:
    """The SDK's model of an update, from its fields on the wire."""
    wire = {"sessionId": "", "update": {"sessionUpdate": kind, **fields}}
    return SessionNotification.model_validate(wire).update


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class Session:
    """What outlives a turn. `history` holds pairs of an update's kind and its text."""

    def __init__(
        self,
        *,
        cwd: str,
        id: str | None = None,
        mode: str = "ask",
        model: str = "small",
        loud: bool = False,
        title: str | None = None,
        touched: str | None = None,
        history: list[list[str]] | None = None,
    ) -> None:
        self.cwd, self.id = cwd, id or f"sess_{uuid.uuid4().hex[:12]}"
        self.mode, self.model, self.loud, self.title = mode, model, loud, title
        self.touched = touched or datetime.now(UTC).isoformat()
        self.history = history or []

    def fields(self) -> dict[str, Any]:
        return dict(vars(self))

    def listed(self) -> dict[str, Any]:
        title = {"title": self.title} if self.title else {}
        return {"sessionId": self.id, "cwd": self.cwd, "updatedAt": self.touched, **title}

    def config_options(self, models: Any) -> list[dict[str, Any]]:
        model = {"id": "model", "name": "Model", "category": "model", "type": "select"}
        loud = {"id": "loud", "name": "Loud", "type": "boolean", "currentValue": self.loud}
        return [{**model, "currentValue": self.model, "options": models}, loud]


class Turn:
    """One prompt being answered; `run` gives the stop reason."""

    def __init__(self, client: Any, session: Session, prompt: Any, declared: dict[str, Any], models: Any) -> None:
        self.client, self.session, self.declared, self.models = client, session, declared, models
        self.kinds = [block.type for block in prompt]
        self.text = " ".join(block.text for block in prompt if block.type == "text")
        self.cancelled = asyncio.Event()

    def cancel(self) -> None:
        self.cancelled.set()

    async def send(self, kind: str, /, **fields: Any) -> None:
        await self.client.session_update(self.session.id, update(kind, **fields))

    async def say(self, text: str) -> None:
        await self.send("agent_message_chunk", content={"type": "text", "text": text})

    async def run(self) -> Any:
        self.session.touched = datetime.now(UTC).isoformat()
        self.session.history.append(["user_message_chunk", self.text])
        words = self.text.split()
        for word, after in zip(words, [*words[1:], ""], strict=True):
            if word in STOPS:
                return STOPS[word]
            if method := getattr(self, f"on_{word}", None):
                try:
                    await method(after)
                except RequestError as error:
                    if word in ("fail", "locked"):
                        raise
                    await self.say(f"{word} failed {error.code} ")
            if self.cancelled.is_set():
                return "cancelled"
        said = [word.upper() if self.session.loud else word for word in words]
        for word in said:
            await self.say(f"{word} ")
        self.session.history.append(["agent_message_chunk", " ".join(said)])
        return "end_turn"

    async def on_think(self, _: str) -> None:
        await self.send("agent_thought_chunk", content={"type": "text", "text": "hmm"})

    async def on_plan(self, _: str) -> None:
        first = {"content": "step one", "priority": "high", "status": "in_progress"}
        await self.send("plan", entries=[first, {"content": "step two", "priority": "medium", "status": "pending"}])

    async def on_commands(self, _: str) -> None:
        web = {"name": "web", "description": "search", "input": {"hint": "what for"}}
        await self.send("available_commands_update", availableCommands=[web])

    async def on_usage(self, _: str) -> None:
        await self.send("usage_update", used=1200, size=200000, cost={"amount": 0.25, "currency": "USD"})

    async def on_title(self, _: str) -> None:
        self.session.title = "A title"
        await self.send("session_info_update", title="A title", updatedAt=self.session.touched)

    async def on_mode(self, _: str) -> None:
        self.session.mode = "code"
        await self.send("current_mode_update", currentModeId="code")

    async def on_option(self, _: str) -> None:
        self.session.model = "large"
        await self.send("config_option_update", configOptions=self.session.config_options(self.models))

    async def on_mirror(self, _: str) -> None:
        await self.send("user_message_chunk", content={"type": "text", "text": self.text})

    async def begin(self, call: str) -> None:
        await self.send(
            "tool_call",
            toolCallId=call,
            title="Reading file",
            kind="read",
            status="pending",
            locations=[{"path": f"{self.session.cwd}/x", "line": 3}],
            rawInput={"path": f"{self.session.cwd}/x"},
        )

    async def complete(self, call: str) -> None:
        await self.send("tool_call_update", toolCallId=call, status="in_progress")
        body = {"type": "content", "content": {"type": "text", "text": "file body"}}
        diff = {"type": "diff", "path": f"{self.session.cwd}/x", "oldText": "old", "newText": "new"}
        ended = {"status": "completed", "content": [body, diff], "rawOutput": {"ok": True}}
        await self.send("tool_call_update", toolCallId=call, **ended)

    async def on_tool(self, _: str) -> None:
        await self.begin("call_1")
        await self.complete("call_1")

    async def ask(self, call: str, **said: Any) -> dict[str, Any]:
        """Asks permission for a tool call that was begun, and ends it as it was answered; the outcome."""
        about = ToolCallUpdate.model_validate({"toolCallId": call, **said})
        answer = await self.client.request_permission(session_id=self.session.id, tool_call=about, options=OPTIONS)
        outcome: dict[str, Any] = answer.outcome.model_dump(mode="json", by_alias=True, exclude_none=True)
        if outcome["outcome"] == "cancelled":
            self.cancel()
        elif outcome["optionId"] == "ok":
            await self.complete(call)
        else:
            await self.send("tool_call_update", toolCallId=call, status="failed")
        return outcome

    async def on_perm(self, _: str) -> None:
        await self.begin("call_1")
        await self.say(f"permission {compact(await self.ask('call_1'))} ")

    async def on_vague(self, _: str) -> None:
        await self.begin("call_1")
        said = {"type": "content", "content": {"type": "text", "text": "Requesting approval to Running: rm -rf build"}}
        await self.say(f"permission {compact(await self.ask('call_1', title='Bash', content=[said]))} ")

    async def on_edit(self, _: str) -> None:
        file = f"{self.session.cwd}/notes"
        diff = {"type": "diff", "path": file, "oldText": "one\ntwo\n", "newText": "one\n2\n"}
        await self.send("tool_call", toolCallId="call_e", title="Edit notes", kind="edit", content=[diff])
        await self.say(f"permission {compact(await self.ask('call_e'))} ")

    async def on_late(self, _: str) -> None:
        await self.send("tool_call", toolCallId="call_l", title="Edit", kind="edit", rawInput={})
        said = {"title": "Edit: notes", "status": "in_progress", "rawInput": {"file": "notes"}}
        await self.send("tool_call_update", toolCallId="call_l", **said)
        await self.complete("call_l")

    async def on_twoperm(self, _: str) -> None:
        for call in ("call_2", "call_3"):
            await self.begin(call)
        first, second = await asyncio.gather(self.ask("call_2"), self.ask("call_3"))
        await self.say(f"permissions {compact(first)} {compact(second)} ")

    async def on_fs(self, _: str) -> None:
        folder, name = self.session.cwd, self.session.id
        read = await self.client.read_text_file(session_id=name, path=f"{folder}/x", line=1, limit=5)
        await self.say(f"read {read.content} ")
        await self.client.write_text_file(session_id=name, path=f"{folder}/y", content="z")

    async def on_term(self, _: str) -> None:
        name = self.session.id
        made = await self.client.create_terminal(session_id=name, command="echo", args=["hi"])
        there = {"session_id": name, "terminal_id": made.terminal_id}
        content = [{"type": "terminal", "terminalId": made.terminal_id}]
        running = {"kind": "execute", "status": "in_progress", "content": content}
        await self.send("tool_call", toolCallId="call_t", title="Terminal", **running)
        ended = await self.client.wait_for_terminal_exit(**there)
        output = await self.client.terminal_output(**there)
        await self.client.release_terminal(**there)
        await self.send("tool_call_update", toolCallId="call_t", status="completed")
        await self.say(f"term {ended.exit_code} {output.output} ")

    async def on_termkill(self, _: str) -> None:
        name = self.session.id
        made = await self.client.create_terminal(session_id=name, command="sleep", args=["600"])
        there = {"session_id": name, "terminal_id": made.terminal_id}
        await self.client.kill_terminal(**there)
        ended = await self.client.wait_for_terminal_exit(**there)
        await self.client.release_terminal(**there)
        await self.say(f"killed {ended.exit_code is None or ended.exit_code != 0} ")

    async def elicit(self, mode: Any) -> None:
        answer = await self.client.create_elicitation(message="Please tell me", mode=mode)
        await self.say(f"elicit {compact(answer.model_dump(mode='json', by_alias=True, exclude_none=True))} ")

    async def on_elicit(self, _: str) -> None:
        form = {"sessionId": self.session.id, "requestedSchema": FORM}
        await self.elicit(ElicitationFormSessionMode.model_validate(form))

    async def on_ext(self, _: str) -> None:
        answer = await self.client.ext_method("rig/ask", {"sessionId": self.session.id, "question": "why"})
        await self.say(f"ext {compact(answer)} ")
        await self.client.ext_notification("rig/note", {"sessionId": self.session.id, "note": [1, None]})

    async def on_blocks(self, _: str) -> None:
        await self.say(f"blocks {','.join(self.kinds)} ")

    async def on_picture(self, _: str) -> None:
        await self.send("agent_message_chunk", content={"type": "image", "data": PIXEL, "mimeType": "image/png"})

    async def on_link(self, _: str) -> None:
        link = {"type": "resource_link", "uri": f"file://{self.session.cwd}/x", "name": "x", "size": 1}
        await self.send("agent_message_chunk", content=link)

    async def on_embed(self, _: str) -> None:
        inner = {"uri": "memory://note", "mimeType": "text/plain", "text": "embedded text"}
        await self.send("agent_message_chunk", content={"type": "resource", "resource": inner})

    async def on_meta(self, _: str) -> None:
        content = {"type": "text", "text": "meta ", "_meta": {"rig/content": 1}}
        chunk = update("agent_message_chunk", content=content, _meta={"rig/update": 2})
        await self.client.session_update(self.session.id, chunk, **{"rig/params": 3})

    async def on_where(self, _: str) -> None:
        await self.say(f"where {self.session.cwd} ")

    async def on_client(self, _: str) -> None:
        await self.say(f"client {compact(self.declared)} ")

    async def on_flood(self, count: str) -> None:
        for number in range(int(count)):
            await self.say(f"{number} ")

    async def on_big(self, count: str) -> None:
        await self.say("x" * int(count))

    async def on_slow(self, _: str) -> None:
        for number in range(600):
            await self.say(f"{number} ")
            try:
                await asyncio.wait_for(self.cancelled.wait(), 0.1)
                return
            except TimeoutError:
                continue

    async def on_stuck(self, _: str) -> None:
        await self.say("stuck ")
        await asyncio.Event().wait()

    async def on_noise(self, _: str) -> None:
        os.write(1, b"this is no JSON\n")

    async def on_fail(self, _: str) -> None:
        raise RequestError.internal_error({"details": "boom"})

    async def on_locked(self, _: str) -> None:
        raise RequestError.auth_required({"method": "key"})

    async def on_exit(self, _: str) -> None:
        await self.say("bye ")
        os._exit(3)
