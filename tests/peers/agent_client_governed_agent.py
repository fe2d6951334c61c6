"""The agent of `agent_client_agent.py` with more words: tool calls as rules see them. Same SDK, same options.

| word | the turn |
|---|---|
| `want TOOL` | announces a call, asks permission (`ok`, `ever`, `no`), makes it if it may; says `want OUTCOME` |
| `sneak TOOL` | makes a call without asking |
| `late TOOL@FILE` | makes a call once there is that file, after the turn's answer; says `was late` |
| `steal PATH` | reads that file by the client, then writes `z` into it; says `stole CONTENT`, `wrote`, or `CODE` |
| `heard` | says the resources that came with the prompt, as JSON |
| `told` | says what it was sent in `_meta` with the prompt, as JSON |

A call has the tool's name in `_meta.aip44.tool` and arguments; names that begin with `run-` execute, all others edit.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import agent_client_agent
from acp import RequestError
from acp.schema import PermissionOption, ToolCallUpdate
from agent_client_words import Turn

OPTIONS = [
    PermissionOption(option_id="ok", name="Allow", kind="allow_once"),
    PermissionOption(option_id="ever", name="Always", kind="allow_always"),
    PermissionOption(option_id="no", name="Reject", kind="reject_once"),
]
STRAYS: set[asyncio.Task[None]] = set()
ARGUMENTS = {"to": ["a@example.com"], "password": "hush", "n": 1.5}


class Governed(Turn):
    """See `agent_client_words.Turn`."""

    made = 0

    async def call(self, tool: str, status: str) -> str:
        self.made += 1
        name = f"call-{self.made}"
        await self.send(
            "tool_call",
            toolCallId=name,
            title=f"Using {tool}",
            kind="execute" if tool.startswith("run-") else "edit",
            status=status,
            rawInput=ARGUMENTS,
            _meta={"aip44": {"tool": tool}, "rig/call": [1, {"deep": None}]},
        )
        return name

    async def done(self, name: str) -> None:
        await self.send("tool_call_update", toolCallId=name, status="in_progress")
        ended = {"status": "completed", "rawOutput": {"sent": True}, "_meta": {"aip44": {"cost": 2}, "rig/end": 1}}
        await self.send("tool_call_update", toolCallId=name, **ended)

    async def on_want(self, tool: str) -> None:
        name = await self.call(tool, "pending")
        answer = await self.client.request_permission(
            session_id=self.session.id, tool_call=ToolCallUpdate(tool_call_id=name), options=OPTIONS
        )
        chosen = getattr(answer.outcome, "option_id", "cancelled")
        if chosen in ("ok", "ever"):
            await self.done(name)
        else:
            await self.send("tool_call_update", toolCallId=name, status="failed")
        await self.say(f"want {chosen} ")

    async def on_sneak(self, tool: str) -> None:
        await self.done(await self.call(tool, "in_progress"))
        await self.say("sneaked ")

    async def on_late(self, told: str) -> None:
        tool, _, file = told.partition("@")

        async def later() -> None:
            while not Path(file).exists():  # noqa: ASYNC110, ASYNC240 - nobody tells
                await asyncio.sleep(0.01)
            await self.call(tool, "in_progress")
            await self.say("was late ")

        task = asyncio.create_task(later())
        STRAYS.add(task)
        task.add_done_callback(STRAYS.discard)

    async def on_steal(self, path: str) -> None:
        try:
            read = await self.client.read_text_file(session_id=self.session.id, path=path)
            await self.say(f"stole {read.content} ")
            await self.client.write_text_file(session_id=self.session.id, path=path, content="z")
            await self.say("wrote ")
        except RequestError as error:
            await self.say(f"{error.code} ")

    async def on_told(self, _: str) -> None:
        await self.say(f"told {json.dumps(self.meta, sort_keys=True)} ")

    async def on_heard(self, _: str) -> None:
        await self.say(f"heard {json.dumps(self.resources)} ")

    meta: Any = None
    resources: Any = None


class Rig(agent_client_agent.Rig):
    """Remembers the `_meta` and the resources of its prompts."""

    async def prompt(self, session_id: str, prompt: Any, **kwargs: Any) -> Any:
        Governed.meta = kwargs.get("field_meta", kwargs)
        Governed.resources = [[one.resource.uri, one.resource.text] for one in prompt if one.type == "resource"]
        return await super().prompt(session_id, prompt, **kwargs)


if __name__ == "__main__":
    agent_client_agent.Turn = Governed  # type: ignore[misc]
    agent_client_agent.Rig = Rig  # type: ignore[misc]
    agent_client_agent.main()
