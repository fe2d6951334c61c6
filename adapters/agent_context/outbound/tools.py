"""A plain MCP server: each of its tools is an agent, whose input are the tool's arguments."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import msgspec
from msgspec import Raw

from adapters.agent_context.outbound.links import AgentLine
from adapters.agent_context.outbound.messages import Say, meta, news, read
from adapters.agent_context.wire import HOPS, TOOLS_CALL, TOOLS_LIST
from gateway.contract import RunContext
from gateway.core import delta, files, projection
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentError, AgentFailed, Invalid
from gateway.core.types import Agent, AgentCapabilities, Failure, InterruptSpec, Json, JsonObject
from gateway.mcp import wire as mcp
from gateway.mcp.wire import META
from gateway.wire.jsonrpc import RpcError

TASKS_RESULT: Final = "tasks/result"
TASKS_CANCEL: Final = "tasks/cancel"
CANCEL_SECONDS: Final = 2.0
FILES: Final = "files"
MCP: Final = "mcp"
"""Key of `Agent.extra` with the tool as it is listed, of an agent that is one."""
ELICITATION: Final = InterruptSpec(
    kind="elicitation",
    payload_schema={"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    answer_schema={"type": "object"},
)
OBJECT: Final[JsonObject] = {"type": "object"}


def agent_of(tool: JsonObject, version: Json) -> Agent:
    """Describe a tool of `tools/list` as an agent; `version`: of its server. Raises AgentBroken for an invalid one."""
    tool = delta.sound(tool)
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise AgentBroken("the server lists a tool without a name", detail=repr(tool)[:200])
    input_schema, output_schema = tool.get("inputSchema"), tool.get("outputSchema")
    taken = input_schema if isinstance(input_schema, dict) else OBJECT
    given = output_schema if isinstance(output_schema, dict) else projection.MESSAGE_OUTPUT_SCHEMA
    description = tool.get("description") or tool.get("title")
    return Agent(
        name=name,
        version=str(version or "0.0.0"),
        description=description if isinstance(description, str) else "",
        input_schema=taken,
        output_schema=given,
        output_assumed=given is projection.MESSAGE_OUTPUT_SCHEMA,
        interrupts=(ELICITATION,),
        capabilities=AgentCapabilities(interrupts=True, cancel=True, custom_streaming=True, artifacts=True, tool=True),
        labels={"tools": [name]},
        text_input=projection.text_pointer(taken),
        text_output=projection.text_pointer(given),
        extra={MCP: tool},
    )


def is_tool(agent: Agent) -> bool:
    """Whether an agent is a tool of a plain MCP server, as far as it was described by one."""
    return MCP in agent.extra


def check(context: RunContext) -> None:
    if not isinstance(context.run.request.input, dict):
        raise Invalid("a tool's arguments are an object", path="/input")


class ToolRun:
    """One run over a line, made for it. `say` logs events; `name` is the tool's, None for the only one there is."""

    def __init__(self, context: RunContext, line: AgentLine, say: Say, name: str | None) -> None:
        self._context = context
        self._line = line
        self._say = say
        self._name = name

    async def go(self) -> e.Event:
        check(self._context)
        recalled = await self._context.recall(fresh=True)
        tool = self._context.agent.extra.get(MCP, {})
        params: JsonObject = {"name": await self._named(tool), "arguments": recalled.input}
        taken = (mcp.TEXTS | self._context.run.request.metadata.keys()) - {HOPS}
        sent = {key: value for key, value in meta(self._context).items() if key in taken}
        if sent:
            params[META] = sent
        execution = tool.get("execution")
        if isinstance(execution, dict) and execution.get("taskSupport") == "required":
            params["task"] = {}
        result = read(await self._line.request(TOOLS_CALL, params), TOOLS_CALL)
        task = result.get("task") if "task" in params else None
        return await self._ended(await self._of_task(task) if isinstance(task, dict) else result)

    def told(self, method: str, params: Raw) -> list[e.Event]:
        try:
            return news(method, read(params or Raw(b"{}"), method, broken=False))
        except RpcError:
            return []

    async def _named(self, tool: JsonObject) -> str:
        name = self._name or tool.get("name")
        if isinstance(name, str):
            return name
        tools = await self._line.list(TOOLS_LIST, "tools")
        if len(tools) != 1:
            raise AgentFailed(f"the server has {len(tools)} tools, and the route names none of them")
        return str(tools[0].get("name"))

    async def _of_task(self, task: JsonObject) -> JsonObject:
        """The result of a call that the server makes a task of (MCP 2025-11-25, tasks): asked for, which takes until
        there is one. A cancelled wait cancels the task.
        """
        params = {"taskId": task.get("taskId")}
        try:
            return read(await self._line.request(TASKS_RESULT, params), TASKS_RESULT)
        except asyncio.CancelledError:
            with contextlib.suppress(AgentError):
                await self._line.request(TASKS_CANCEL, params, timeout=CANCEL_SECONDS)
            raise

    async def _ended(self, result: JsonObject) -> e.Event:
        blocks = delta.sound(result.get("content"))
        found = [each for each in blocks if isinstance(each, dict)] if isinstance(blocks, list) else []
        links = [f"[{each.get('name') or each['uri']}]({each['uri']})" for each in found if _is_link(each)]
        texts = [each["text"] for each in found if each.get("type") == "text" and isinstance(each.get("text"), str)]
        text = "\n".join(texts) or "\n".join(links)
        if result.get("isError") is True:
            failure = Failure(code=AgentFailed.code, message=text or "the tool failed")
            return e.RunFailed(failure=failure, origin={"result": delta.sound(result)})
        for number, block in enumerate(found, 1):
            await self._file(block, number)
        return e.RunFinished(output=self._output(result.get("structuredContent"), text))

    def _output(self, structured: Json, text: str) -> Raw:
        """The structured result of a tool that has an output schema; else its text."""
        agent = self._context.agent
        document: Json = text or None
        if isinstance(structured, dict) and not (text and agent.output_assumed):
            document = delta.sound(structured)
        elif agent.text_output is not None:
            document = projection.wrap(text, agent.text_output, agent.output_schema, projection.ASSISTANT)
        return Raw(msgspec.json.encode(document))

    async def _file(self, block: JsonObject, number: int) -> None:
        kind = block.get("type")
        if _is_link(block):
            self._say(e.PartStarted(part=f"file-{number}", message=FILES, kind="file", value=block))
        held = block.get("resource") if kind == "resource" else block
        if kind not in ("image", "audio", "resource") or not isinstance(held, dict):
            return
        name, media = f"{kind}-{number}", held.get("mimeType")
        if not isinstance(media, str) or "/" not in media:
            media = "text/plain" if isinstance(held.get("text"), str) else "application/octet-stream"
        whole: Json = {"type": "resource", "resource": {**held, "mimeType": media}}
        try:
            if not files.is_file(whole):
                raise Invalid("it holds nothing")
            found = files.file_in(whole, name)
        except Invalid as error:
            raise AgentBroken(f"the tool answers with {name}, which is no file: {error}") from error
        name = found.name if kind == "resource" else name
        await self._context.add_artifact(name, found.content, media_type=found.media_type)


def _is_link(block: JsonObject) -> bool:
    return block.get("type") == "resource_link" and isinstance(block.get("uri"), str)
