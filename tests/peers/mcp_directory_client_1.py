"""A client made with the official Python SDK `mcp` 1.30.0 that knows nothing but MCP: it looks what a server has.

`mcp_directory_client_1.py [--token TOKEN] [--message TEXT] (--http URL | -- COMMAND ARG...) [CAPABILITY...]` lists
resources, templates and tools, reads every resource, subscribes to `agent://directory` and `agent://tasks`, searches
agents with the capabilities, and with `--message` has one of those do a task. Prints one JSON object: `version`,
`capabilities`, `resources` (by URI: its text as JSON), `templates`, `tools`, `found` (what `agentSearch` gave), `said`
(the text of the task's result), `progress`, `updated` (resources that it was told have changed; after a task it waits
for the first).
"""

import asyncio
import contextlib
import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from typing import Any

import httpx
from mcp import ClientSession, StdioServerParameters, stdio_client, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

WATCHED = ("agent://directory", "agent://tasks")


@contextlib.asynccontextmanager
async def streams(args: Any) -> AsyncIterator[tuple[Any, Any]]:
    if args.http:
        headers = {"Authorization": f"Bearer {args.token}"} if args.token else {}
        async with (
            httpx.AsyncClient(headers=headers, timeout=httpx.Timeout(30, read=300)) as client,
            streamable_http_client(args.http, http_client=client) as (reading, writing, _),
        ):
            yield reading, writing
    else:
        command, *rest = args.command
        async with stdio_client(StdioServerParameters(command=command, args=rest, env=dict(os.environ))) as found:
            yield found


async def look(args: Any) -> dict[str, Any]:
    told = asyncio.Event()
    updated: list[str] = []
    progress: list[str | None] = []

    async def heard(message: Any) -> None:
        if isinstance(message, types.ServerNotification) and isinstance(
            message.root, types.ResourceUpdatedNotification
        ):
            updated.append(str(message.root.params.uri))
            told.set()

    async def progressed(done: float, total: float | None, message: str | None) -> None:
        progress.append(message)

    async with streams(args) as (reading, writing), ClientSession(reading, writing, message_handler=heard) as session:
        hello = await session.initialize()
        listed = [str(each.uri) for each in (await session.list_resources()).resources]
        templates = [each.uriTemplate for each in (await session.list_resource_templates()).resourceTemplates]
        bodies = {}
        for uri in listed:
            (content,) = (await session.read_resource(AnyUrl(uri))).contents
            assert isinstance(content, types.TextResourceContents)
            bodies[uri] = json.loads(content.text)
        for uri in WATCHED:
            await session.subscribe_resource(AnyUrl(uri))
        tools = [each.name for each in (await session.list_tools()).tools]
        search = await session.call_tool("agentSearch", {"capabilities": args.capability})
        found = {
            "text": getattr(search.content[0], "text", None),
            "structured": search.structuredContent,
            "meta": search.meta,
        }
        said = None
        if args.message:
            arguments = {"message": args.message, "capabilities": args.capability}
            task = await session.call_tool("taskAssign", arguments, progress_callback=progressed)
            said = {"text": getattr(task.content[0], "text", None), "isError": task.isError}
            async with asyncio.timeout(60):
                await told.wait()
        for uri in WATCHED:
            await session.unsubscribe_resource(AnyUrl(uri))
        return {
            "version": hello.protocolVersion,
            "capabilities": hello.capabilities.model_dump(mode="json", exclude_none=True),
            "resources": bodies,
            "templates": templates,
            "tools": tools,
            "found": found,
            "said": said,
            "progress": progress,
            "updated": updated,
        }


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--http")
    parser.add_argument("--token")
    parser.add_argument("--message")
    parser.add_argument("capability", nargs="*")
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    args = parser.parse_args(given[:cut])
    args.command = given[cut + 1 :]
    print(json.dumps(asyncio.run(look(args))))
