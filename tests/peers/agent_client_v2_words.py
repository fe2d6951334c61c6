"""The turns of `agent_client_v2_agent.py`: what each word of a prompt does. The table of words is there."""

import asyncio
import base64
import json
import os
import uuid
from typing import Any

from acp import RequestError
from acp.experimental.v2 import schema

OPTIONS = [
    {"optionId": "ok", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string", "title": "Your name"}, "sure": {"type": "boolean"}},
    "required": ["name"],
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
STOPS = {"refuse": "refusal", "max": "max_tokens", "turns": "max_turn_requests"}
AFTER = ("later", "work", "busy", "mind", "again")
KEPT = set[asyncio.Task[Any]]()


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def name(what: str) -> str:
    return f"{what}_{uuid.uuid4().hex[:8]}"


def plain(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def background(work: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.ensure_future(work)
    KEPT.add(task)
    task.add_done_callback(KEPT.discard)
    return task


class Own:
    """Work of the agent's own: whether a prompt waits for its end, and whether that has come."""

    def __init__(self) -> None:
        self.wanted, self.done = asyncio.Event(), asyncio.Event()


class Session:
    """What outlives a turn. `history` holds [kind, message id, text]."""

    def __init__(self, cwd: str, id: str = "", **kept: Any) -> None:
        self.cwd, self.id = cwd, id or name("sess")
        self.mode, self.model = kept.get("mode", "ask"), kept.get("model", "small")
        self.loud = kept.get("loud", False)
        self.history: list[list[str]] = kept.get("history", [])

    def options(self) -> list[dict[str, Any]]:
        modes = [{"value": "ask", "name": "Ask"}, {"value": "code", "name": "Code"}]
        models = [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}]
        mode = {"configId": "how", "name": "Mode", "category": "mode", "currentValue": self.mode}
        model = {"configId": "model", "name": "Model", "currentValue": self.model}
        return [
            {"type": "select", **mode, "options": modes},
            {"type": "select", **model, "options": models},
            {"type": "boolean", "configId": "loud", "name": "Loud", "currentValue": self.loud},
        ]

    def choose(self, option: str, value: Any) -> bool:
        known = {"how": ("ask", "code"), "model": ("small", "large"), "loud": (True, False)}
        if value not in known.get(option, ()):
            return False
        setattr(self, "mode" if option == "how" else option, value)
        return True


class Turn:
    """One prompt's foreground work, and what is done after it."""

    def __init__(self, rig: Any, session: Session, prompt: list[Any], message: str) -> None:
        self.rig, self.session, self.message, self.answer = rig, session, message, name("msg")
        self.kinds = [block.type for block in prompt]
        self.words = " ".join(block.text for block in prompt if block.type == "text").split()
        self.cancelled = asyncio.Event()

    async def send(self, kind: str, /, **fields: Any) -> None:
        said = {"sessionId": self.session.id, "update": {"sessionUpdate": kind, **fields}}
        await self.rig.client._notify("session/update", schema.UpdateSessionNotification.model_validate(said))

    async def state(self, state: str, **fields: Any) -> None:
        await self.send("state_update", state=state, **fields)

    async def chunk(self, content: Any, message: str | None = None) -> None:
        await self.send("agent_message_chunk", messageId=message or self.answer, content=content)

    async def say(self, said: str) -> None:
        await self.chunk(text(said))

    async def insert(self) -> None:
        said = " ".join(self.words)
        self.session.history.append(["user_message", self.message, said])
        if "quiet" not in self.words:
            await self.send("user_message", messageId=self.message, content=[text(said)])

    async def run(self) -> None:
        """From the user's message to idle."""
        await self.insert()
        if "quiet" not in self.words:
            await self.state("running")
        try:
            ended = {"stopReason": await self.work()}
        except RequestError as error:
            ended = {"stopReason": "error", "error": {"code": error.code, "message": str(error), "data": error.data}}
        self.rig.turns.pop(self.session.id, None)
        self.rig.keep()
        if {"work", "busy", "mind"} & set(self.words):
            self.rig.own[self.session.id] = Own()
        await self.state("idle", **ended)
        for word in self.words:
            if word in AFTER:
                background(getattr(self, f"after_{word}")(ended))

    async def work(self) -> str:
        for word, after in zip(self.words, [*self.words[1:], ""], strict=True):
            if word in STOPS:
                return STOPS[word]
            if method := getattr(self, f"on_{word}", None):
                try:
                    await method(after)
                except RequestError as error:
                    if word == "fail":
                        raise
                    await self.say(f"{word} failed {error.code} ")
            if self.cancelled.is_set():
                return "cancelled"
        said = [word.upper() if self.session.loud else word for word in self.words]
        for word in said:
            await self.say(f"{word} ")
        self.session.history.append(["agent_message", self.answer, " ".join(said)])
        return "end_turn"

    async def on_think(self, _: str) -> None:
        await self.send("agent_thought_chunk", messageId=name("th"), content=text("hmm"))

    async def on_plan(self, _: str) -> None:
        first = {"content": "step one", "priority": "high", "status": "in_progress"}
        entries = [first, {"content": "step two", "priority": "medium", "status": "pending"}]
        await self.send("plan_update", plan={"type": "items", "planId": "plan-1", "entries": entries})

    async def on_plans(self, _: str) -> None:
        entry = {"content": "one thing", "priority": "low", "status": "pending"}
        for plan, status in (("a", "pending"), ("b", "pending"), ("a", "completed")):
            items = {"type": "items", "planId": plan, "entries": [{**entry, "status": status}]}
            await self.send("plan_update", plan=items)

    async def on_commands(self, _: str) -> None:
        web = {"name": "web", "description": "search", "input": {"type": "text", "hint": "what for"}}
        await self.send("available_commands_update", availableCommands=[web])

    async def on_usage(self, _: str) -> None:
        await self.send("usage_update", used=1200, size=200000, cost={"amount": 0.25, "currency": "USD"})

    async def on_title(self, _: str) -> None:
        await self.send("session_info_update", title="A title")

    async def on_mode(self, _: str) -> None:
        self.session.mode = "code"
        await self.send("config_option_update", configOptions=self.session.options())

    async def on_option(self, _: str) -> None:
        self.session.model = "large"
        await self.send("config_option_update", configOptions=self.session.options())

    async def on_whole(self, _: str) -> None:
        await self.send("agent_message", messageId=name("msg"), content=[text("said at once ")])

    async def on_rewrite(self, _: str) -> None:
        message = name("msg")
        await self.chunk(text("a draft "), message)
        await self.send("agent_message", messageId=message, content=[text("rewritten ")])
        await self.chunk(text("and more "), message)

    async def on_clear(self, _: str) -> None:
        message = name("msg")
        await self.chunk(text("a slip "), message)
        await self.send("agent_message", messageId=message, content=None)

    async def on_picture(self, _: str) -> None:
        await self.chunk({"type": "image", "data": PIXEL, "mimeType": "image/png"})

    async def on_link(self, _: str) -> None:
        await self.chunk({"type": "resource_link", "uri": f"file://{self.session.cwd}/x", "name": "x", "size": 1})

    async def on_strange(self, _: str) -> None:
        await self.send("_rig_thing", thing={"n": [1, None]})

    async def call(self, **fields: Any) -> None:
        await self.send("tool_call_update", toolCallId="call_1", **fields)

    async def begin(self) -> None:
        path = f"{self.session.cwd}/x"
        there = [{"path": path, "line": 3}]
        await self.call(title="Reading file", kind="read", status="pending", locations=there, rawInput={"path": path})

    async def complete(self) -> None:
        await self.call(status="in_progress")
        body = {"type": "content", "content": text("file ")}
        await self.send("tool_call_content_chunk", toolCallId="call_1", content=body)
        change = {"operation": "modify", "path": f"{self.session.cwd}/x", "fileType": "text"}
        patch = {"format": "git_patch", "text": "diff --git /x /x\n--- /x\n+++ /x\n@@ -1 +1 @@\n-old\n+new\n"}
        diff = {"type": "diff", "changes": [change], "patch": patch}
        await self.send("tool_call_content_chunk", toolCallId="call_1", content=diff)
        await self.call(status="completed", rawOutput={"ok": True})

    async def on_tool(self, _: str) -> None:
        await self.begin()
        await self.complete()

    async def on_display(self, _: str) -> None:
        shown = {"type": "terminal", "terminalId": "term_1"}
        about = {"title": "Terminal", "kind": "execute", "status": "in_progress", "content": [shown]}
        await self.send("tool_call_update", toolCallId="call_t", **about)
        first = {"data": base64.b64encode(b"hi ").decode()}
        await self.send("terminal_update", terminalId="term_1", command="echo hi", cwd=self.session.cwd, output=first)
        for piece in ("tä".encode()[:2], "tä".encode()[2:]):
            await self.send("terminal_output_chunk", terminalId="term_1", data=base64.b64encode(piece).decode())
        await self.send("terminal_update", terminalId="term_1", exitStatus={"exitCode": 0})
        await self.send("tool_call_update", toolCallId="call_t", status="completed")

    async def ask(self, subject: dict[str, Any] | None) -> None:
        asked = {"sessionId": self.session.id, "title": "May I?", "description": "It is harmless.", "options": OPTIONS}
        about = {"subject": subject} if subject is not None else {}
        request = schema.RequestPermissionRequest.model_validate({**asked, **about})
        asking = asyncio.ensure_future(self.rig.client._request("session/request_permission", request))
        await self.state("requires_action")
        outcome = plain((await asking).outcome)
        await self.state("running")
        if outcome["outcome"] == "cancelled":
            self.cancelled.set()
        await self.say(f"permission {json.dumps(outcome)} ")

    async def on_perm(self, _: str) -> None:
        await self.begin()
        await self.ask({"type": "tool_call", "toolCall": {"toolCallId": "call_1", "title": "Reading file"}})
        await self.complete()

    async def on_command(self, _: str) -> None:
        await self.ask({"type": "command", "command": "cargo test", "cwd": self.session.cwd})

    async def on_bare(self, _: str) -> None:
        await self.ask(None)

    async def on_elicit(self, _: str) -> None:
        form = schema.ElicitationSchema.model_validate(FORM)
        there = {"session_id": self.session.id, "requested_schema": form}
        answer = await self.rig.client.create_elicitation(message="Please tell me", mode="form", **there)
        await self.say(f"elicit {json.dumps(plain(answer))} ")

    async def on_ext(self, _: str) -> None:
        asked = {"sessionId": self.session.id, "question": "why"}
        await self.say(f"ext {json.dumps(await self.rig.client.send_extension_request('_rig/ask', asked))} ")
        note = {"sessionId": self.session.id, "note": [1, None]}
        await self.rig.client.send_extension_notification("_rig/note", note)

    async def on_fs(self, _: str) -> None:
        params = {"sessionId": self.session.id, "path": f"{self.session.cwd}/x"}
        await self.say(f"read {await self.rig.client._conn.send_request('fs/read_text_file', params)} ")

    async def on_wait(self, _: str) -> None:
        await self.state("requires_action")
        await self.state("running")

    async def on_blocks(self, _: str) -> None:
        await self.say(f"blocks {','.join(self.kinds)} ")

    async def on_where(self, _: str) -> None:
        await self.say(f"where {self.session.cwd} ")

    async def on_client(self, _: str) -> None:
        await self.say(f"client {json.dumps(self.rig.declared)} ")

    async def on_flood(self, count: str) -> None:
        for number in range(int(count)):
            await self.say(f"{number} ")

    async def on_slow(self, _: str) -> None:
        for number in range(600):
            await self.say(f"{number} ")
            try:
                await asyncio.wait_for(self.cancelled.wait(), 0.1)
                return
            except TimeoutError:
                continue

    async def on_linger(self, _: str) -> None:
        await self.cancelled.wait()
        await asyncio.sleep(0.3)
        await self.say("lingered ")

    async def on_stuck(self, _: str) -> None:
        await self.say("stuck ")
        await asyncio.Event().wait()

    async def on_fail(self, _: str) -> None:
        raise RequestError.internal_error({"details": "boom"})

    async def on_exit(self, _: str) -> None:
        await self.say("bye ")
        os._exit(3)

    async def after_later(self, _: Any) -> None:
        about = {"title": "In the background", "kind": "other", "status": "completed"}
        await self.send("tool_call_update", toolCallId="call_b", **about)
        await self.chunk(text("by the way "), name("msg"))

    async def after_work(self, _: Any) -> None:
        await self.own("of its own ")

    async def after_busy(self, _: Any) -> None:
        await self.own("busy ", "done ")

    async def after_mind(self, _: Any) -> None:
        self.answer = name("msg")
        await self.own("a thought ", asks=True)

    async def own(self, *said: str, asks: bool = False) -> None:
        """Work that nobody asked for; between what it says it waits for a prompt, which waits for its end."""
        work = self.rig.own[self.session.id]
        await self.state("running")
        for number, piece in enumerate(said):
            if number:
                await work.wanted.wait()
            await self.chunk(text(piece), name("msg"))
        if asks:
            await self.on_command("")
        await self.state("idle", stopReason="end_turn")
        del self.rig.own[self.session.id]
        work.done.set()

    async def after_again(self, ended: Any) -> None:
        self.rig.repeat[self.session.id] = ended
