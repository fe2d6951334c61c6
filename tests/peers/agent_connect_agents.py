"""The agents that `agent_connect_agent.py` serves, and their descriptors.

| name | input message | behaviour |
|---|---|---|
| `echo` | any | its words one by one, each snapshot a word longer; on a thread `again` repeats the turn before |
| `slow` | `N seconds` | `tick 1 tick 2 ...`, ten a second, for N seconds, then `done` |
| `asker` | any | interrupts with type `approval`; the output tells the answer; `twice` in the message asks twice |
| `failer` | any | one snapshot `so far`, then the error 7, `it failed on purpose` |
| `chat`, `pal` | any | greets a `my name is NAME`, and says the name later, from the thread's state: messages |
| `writer` | any | a document `{title, sections: [{heading, text}], message}` that grows, with `custom` updates |

`config.configurable.pace` is the time between two snapshots in seconds (default: the server's `--pace`).
"""

import asyncio
import re
import uuid
from collections.abc import Iterable
from typing import Any

from agent_connect_runs import Document, Failure, Run, Work

PACE_SECONDS = 0.005

MESSAGE: Document = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
SECTION = {
    "type": "object",
    "properties": {"heading": {"type": "string"}, "text": {"type": "string"}},
    "required": ["heading", "text"],
}
DOCUMENT: Document = {
    "type": "object",
    "properties": {
        "message": {"type": "string"},
        "title": {"type": "string"},
        "sections": {"type": "array", "items": SECTION},
    },
    "required": ["message", "title", "sections"],
}
CONFIG: Document = {"type": "object", "properties": {"pace": {"type": "number", "minimum": 0}}}
STATE: Document = {"type": "object", "properties": {"turns": {"type": "integer"}, "last": {"type": "string"}}}
CHAT_STATE: Document = {
    "type": "object",
    "properties": {
        "messages": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "role": {"type": "string"},
                    "content": {"type": "string"},
                    "id": {"type": "string"},
                    "metadata": {"type": "object"},
                },
                "required": ["role", "content"],
            },
        }
    },
}
PROGRESS: Document = {"type": "object", "properties": {"words": {"type": "integer"}}, "required": ["words"]}
APPROVAL: Document = {
    "interrupt_type": "approval",
    "interrupt_payload": {
        "type": "object",
        "title": "Approval",
        "properties": {
            "interrupt_type": {"type": "string", "const": "approval"},
            "question": {"type": "string"},
            "text": {"type": "string"},
        },
        "required": ["question", "text"],
    },
    "resume_payload": {
        "type": "object",
        "title": "Approval answer",
        "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
        "required": ["approved"],
    },
}


def _said(run: Run) -> str:
    return str(run.creation["input"]["message"])


async def _pause(run: Run, at_least: float = 0.0) -> None:
    await asyncio.sleep(max(at_least, run.configurable.get("pace", PACE_SECONDS)))


async def _grow(run: Run, words: Iterable[str], at_least: float = 0.0) -> Document:
    """Snapshots that are a word longer each; the last is not sent but returned, to end the run with."""
    text = ""
    for number, word in enumerate(words):
        if number:
            run.values({"message": text})
            await _pause(run, at_least)
        text = f"{text} {word}" if text else word
    return {"message": text}


async def echo(run: Run) -> Document:
    said = _said(run)
    if run.thread and said == "again":
        said = str(run.thread.values.get("last", ""))
    return await _grow(run, said.split(" "))


async def chat(run: Run) -> Document:
    said = _said(run)
    before = run.thread.values.get("messages", []) if run.thread else []
    names = [found[1] for one in before if (found := re.search(r"my name is (\w+)", str(one["content"])))]
    if (found := re.search(r"my name is (\w+)", said)) is not None:
        answer = f"Hello {found[1]}, how can I help?"
    else:
        answer = f"Yes, your name is {names[-1]}" if names else "I do not know your name"
    told = [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]
    run.state = {"messages": [*before, *told]}
    return await _grow(run, answer.split(" "))


async def slow(run: Run) -> Document:
    found = re.search(r"\d+(\.\d+)?", _said(run))
    ticks = max(1, round(float(found.group()) * 10)) if found else 10
    words = [f"tick {number}" for number in range(1, ticks + 1)]
    return await _grow(run, [*words, "done"], at_least=0.1)


async def asker(run: Run) -> Document:
    said, answers = _said(run), []
    for question in ["Is it right?", "Really?"][: 2 if "twice" in said else 1]:
        payload = {"interrupt_type": "approval", "question": question, "text": said}
        answer = await run.ask(payload)
        verdict = "approved" if answer["approved"] else "declined"
        answers.append(f"{verdict} ({answer['reason']})" if answer.get("reason") else verdict)
    return {"message": f"{' and '.join(answers)}: {said}"}


async def failer(run: Run) -> Document:
    run.values({"message": "so far"})
    await _pause(run)
    raise Failure(7, "it failed on purpose")


async def writer(run: Run) -> Document:
    said = _said(run)
    document: Document = {"message": "", "title": said, "sections": []}
    words = 0
    for heading in ("Beginning", "Middle", "End"):
        section = {"heading": heading, "text": ""}
        document["sections"].append(section)
        for word in f"{heading.lower()} of {said}".split():
            section["text"] = f"{section['text']} {word}".strip()
            words += 1
            run.values(document)
            run.custom({"words": words})
            await _pause(run)
    return {**document, "message": f"{words} words about {said}"}


def _descriptor(name: str, about: str, output: Document, **specs: Any) -> Document:
    capabilities = {
        "threads": True,
        "interrupts": "interrupts" in specs,
        "callbacks": False,
        "streaming": {"values": True, "custom": "custom_streaming_update" in specs},
    }
    return {
        "metadata": {"ref": {"name": name, "version": "1.0.0"}, "description": about},
        "specs": {
            "capabilities": capabilities,
            "input": MESSAGE,
            "output": output,
            "config": CONFIG,
            "thread_state": STATE,
            **specs,
        },
    }


def _chatting(name: str) -> Document:
    return _descriptor(name, "Remembers what was said.", MESSAGE, thread_state=CHAT_STATE)


WORK: dict[str, Work] = {
    "echo": echo,
    "slow": slow,
    "asker": asker,
    "failer": failer,
    "writer": writer,
    "chat": chat,
    "pal": chat,
}
DESCRIPTORS: dict[str, Document] = {
    "echo": _descriptor("echo", "Says again what it is told.", MESSAGE),
    "slow": _descriptor("slow", "Takes as long as it is told.", MESSAGE),
    "asker": _descriptor("asker", "Asks for approval.", MESSAGE, interrupts=[APPROVAL]),
    "failer": _descriptor("failer", "Fails.", MESSAGE),
    "writer": _descriptor("writer", "Writes a document.", DOCUMENT, custom_streaming_update=PROGRESS),
    "chat": _chatting("chat"),
    "pal": _chatting("pal"),
}
IDS = {name: str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:test-agent:{name}")) for name in WORK}
NAMES = {agent_id: name for name, agent_id in IDS.items()}
