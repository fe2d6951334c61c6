"""What clients of version 2 are told of a run, whenever they come, however slowly they read, and whoever cancels it.

Folded by the protocol's rules it is the run's document, for each of them; and it ends as the run does.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core import projection
from gateway.core.errors import AgentFailed
from gateway.core.output import SEPARATOR
from gateway.core.types import Interrupt, Run, RunStatus
from tests.adapters.agent_client.codec_v2_client import Client
from tests.adapters.agent_client.inbound_rig import Rig, rig, scripted
from tests.adapters.agent_client.v2_editor import EditorV2, connect
from tests.support.aio import run
from tests.support.examples import EXAMPLES
from tests.support.scripted import until

ASKED = "-question-"
"""In the id of a message that is a question of the gateway's."""
CHOICE = {"enum": ["red", "blue"]}
_PARTS = st.sampled_from([("p1", "m1"), ("p2", "m1"), ("p3", "m2"), ("p4", "m3")])
_TEXTS = st.sampled_from(["", "a ", "bc ", "d" * 300]) | st.text("xé𝄞", max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("say"), _PARTS, _TEXTS),
    st.tuples(st.just("say"), _PARTS, _TEXTS),
    st.tuples(st.just("think"), _PARTS, _TEXTS),
    st.tuples(st.just("rewrite"), _PARTS, _TEXTS),
    st.tuples(st.sampled_from(["call", "drain", "drain", "choose", "write"])),
    st.tuples(st.sampled_from(["join", "join late", "resume", "sleep", "wake", "cancel"])),
)
ENDS = st.sampled_from(["end", "end", "fail"])
_FIRST = ("p1", "m1")


def _said(text: str) -> tuple[str, tuple[str, str], str]:
    return ("say", _FIRST, text)


class Story:
    """One run, and those who are told of it."""

    def __init__(self, gateway: Rig) -> None:
        self.gateway = gateway
        self.session = ""
        self.whole: list[EditorV2] = []
        """Who has been told all of it."""
        self.late: list[EditorV2] = []
        """Who has come without asking for what was."""
        self.names: list[str] = []
        """The messages that prompts became."""
        self.begun: dict[str, str] = {}
        """Parts, with their messages."""
        self.calls = 0
        self.cancelled = False

    async def act(self, step: Any, context: RunContext) -> None:
        match step:
            case "say", (part, message), text:
                if self.begins(context, text, part, message):
                    context.emit(e.PartDelta(part=part, delta=text))
            case "think", (part, message), text:
                if self.begins(context, text, f"t{part}", message, "thought"):
                    context.emit(e.PartDelta(part=f"t{part}", delta=text))
            case "rewrite", (part, message), text:
                if self.begins(context, text, part, message):
                    context.emit(e.PartReplaced(part=part, value=text))
            case ("call",):
                self.calls += 1
                context.emit(e.ToolCallStarted(call=f"c{self.calls}", name="look"))
                context.emit(e.ToolCallEnded(call=f"c{self.calls}"))
            case ("drain",):
                await context.drain()
            case ("choose",):
                await self.ask(context, CHOICE)
            case ("write",):
                await self.ask(context, {"type": "string"})
            case ("cancel",):
                self.cancelled = True
                await self.whole[0].notify("session/cancel", {"sessionId": self.session})
                await until(lambda: context.cancelled)
            case ("sleep",):
                self.whole[1].reads.clear()
            case ("wake",):
                self.whole[1].reads.set()
            case ("join",):
                self.whole.append(await connect(self.gateway))
                await self.whole[-1].load(self.session)
            case ("join late",):
                self.late.append(await connect(self.gateway))
                await self.late[-1].resume(self.session)
            case ("resume",):
                await self.whole[0].load(self.session)

    def begins(self, context: RunContext, text: str, part: str, message: str, kind: Any = "text") -> bool:
        """Whether there is that part, which begins if it has not. A message that is over has no further ones."""
        if part not in self.begun:
            over = message in self.begun.values() and message != next(reversed(self.begun.values()))
            if over or not text:
                return False
            self.begun[part] = message
            context.emit(e.PartStarted(part=part, message=message, kind=kind))
        return True

    async def ask(self, context: RunContext, schema: dict[str, Any]) -> None:
        """The first client answers; in words it does once it is told the question."""
        self.calls += 1
        question = Interrupt(id=f"q{self.calls}", kind="input", message="?", answer_schema=schema)
        if schema is CHOICE:
            await context.ask(question)
            return
        asking = asyncio.ensure_future(context.ask(question))
        writing = asyncio.ensure_future(self.write(question.id))
        await asking
        writing.cancel()
        await asyncio.wait([writing])
        if not writing.cancelled():
            writing.result()

    async def write(self, question: str) -> None:
        first = self.whole[0]
        await first.until(lambda: any(str(each.get("messageId")).endswith(ASKED + question) for each in first.updates))
        prompt = {"sessionId": self.session, "prompt": [{"type": "text", "text": "as you like"}]}
        self.names.append((await first.request("session/prompt", prompt))["messageId"])

    def judge(self, ended: Run) -> None:
        document = msgspec.json.decode(ended.output)
        text = (projection.text_of(document, "/message") or "").replace(SEPARATOR, "")
        reasons = [None, "error" if ended.status is RunStatus.ERROR else "end_turn"]
        reasons += ["cancelled"] if self.cancelled else []
        stories = [folded(editor.updates, ended.id) for editor in self.whole]
        for editor, story in zip(self.whole, stories, strict=True):
            assert story["agent_message"] == text, (story, text)
            assert story == stories[-1], (editor.updates, self.whole[-1].updates)
            states = editor.of("state_update")
            assert states[-1]["state"] == "idle" and states[-1].get("stopReason") in reasons, (ended.status, states)
            known = {each["messageId"] for each in editor.of("user_message")}
            assert set(self.names) <= known
        for editor in self.late:
            assert editor.states()[-1] == "idle"


def folded(updates: list[dict[str, Any]], run_id: str) -> dict[str, str]:
    """All text of each kind of message: of the pieces that an answer has cut a message into, as of one message."""
    texts: dict[str, dict[str, str]] = {"agent_message": {}, "agent_thought": {}}
    starts = [at for at, update in enumerate(updates) if update.get("messageId") == f"{run_id}-user"]
    for name, message in Client(updates[starts[-1] :]).messages.items():  # what came before was on its way
        kind, _, id = name.partition(" ")
        if kind not in texts or ASKED in id:
            continue
        words = id.removeprefix(f"{run_id}-").split("-")
        base = "-".join(word for word in words if not word.isdecimal())
        said = "".join(block["text"] for block in message["content"])
        texts[kind][base] = texts[kind].get(base, "") + said
    return {kind: "".join(found.values()) for kind, found in texts.items()}


@example([("choose",), _said("x"), ("rewrite", _FIRST, "a "), _said("y")], "end")
@example([_said("x"), ("choose",), _said("y"), ("rewrite", _FIRST, "a "), ("choose",), _said("z"), ("join",)], "fail")
@example([_said("x"), ("sleep",), _said("y"), ("join late",), ("cancel",), _said("z"), ("resume",)], "end")
@settings(max_examples=max(EXAMPLES // 2, 1))
@given(st.lists(STEPS, max_size=14), ENDS)
def test_each_client_of_version_2_ends_with_the_run_s_document(steps: list[Any], end: str) -> None:
    async def main() -> None:
        stories: list[Story] = []

        async def script(context: RunContext) -> None:
            (story,) = stories
            for step in steps:
                if not (context.cancelled and step[0] in ("choose", "write", "cancel")):  # but it may say more
                    await story.act(step, context)
            if end == "fail":
                raise AgentFailed("no luck")
            context.emit(e.RunFinished())
            await context.drain()

        async with rig(scripted(script), v2=True) as gateway:
            story = Story(gateway)
            stories.append(story)
            first = await connect(gateway)
            first.on_ask = lambda asked: {"outcome": {"outcome": "selected", "optionId": "red"}}
            story.session = await first.new()
            slow = await connect(gateway, limit=2)
            await slow.resume(story.session)
            story.whole += [first, slow]
            story.names.append((await first.request("session/prompt", prompt(story.session)))["messageId"])
            async with asyncio.timeout(30):
                while not (ended := await gateway.run(story.session)).status.ended:  # noqa: ASYNC110 - as in `run`
                    await asyncio.sleep(0.001)
            slow.reads.set()
            for told in gateway.inbound.clients.open(story.session):
                await told.up_to_date()
            for editor in (*story.whole, *story.late):
                await editor.request("session/list", {})  # whose answer comes behind all that
            story.whole.append(await connect(gateway))
            await story.whole[-1].load(story.session)
            story.judge(ended)

    run(main())


def prompt(session: str) -> dict[str, Any]:
    return {"sessionId": session, "prompt": [{"type": "text", "text": "hello"}]}
