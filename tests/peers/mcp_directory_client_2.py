"""The same as `mcp_directory_client_1.py`, made with the official Python SDK `mcp` 2.3.0.

One more option: `--mode MODE` (`auto`, the default: 2026-07-28 where the server speaks it; `legacy`: it initializes).
In 2026-07-28 it listens instead of subscribing.
"""

import asyncio
import contextlib
import json
import os
import sys
import warnings
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

WATCHED = ("agent://directory", "agent://tasks")


@contextlib.asynccontextmanager
async def streams(args: Any) -> AsyncIterator[tuple[Any, Any]]:
    if args.http:
        headers = {"Authorization": f"Bearer {args.token}"} if args.token else {}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=300)) as client,
            streamable_http_client(args.http, http_client=client) as found,
        ):
            yield found
    else:
        command, *rest = args.command
        async with stdio_client(StdioServerParameters(command=command, args=rest, env=dict(os.environ))) as found:
            yield found


async def look(args: Any) -> dict[str, Any]:
    told = asyncio.Event()
    updated: list[str] = []
    progress: list[str | None] = []

    async def heard(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            updated.append(str(message.params.uri))
            told.set()

    async def listen(changes: Any) -> None:
        async for change in changes:
            if hasattr(change, "uri"):
                updated.append(str(change.uri))
                told.set()

    async def progressed(done: float, total: float | None, message: str | None) -> None:
        progress.append(message)

    async with (
        Client(streams(args), mode=args.mode, message_handler=heard) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        listed = [str(each.uri) for each in (await client.list_resources()).resources]
        templates = [each.uri_template for each in (await client.list_resource_templates()).resource_templates]
        bodies = {}
        for uri in listed:
            (content,) = (await client.read_resource(uri)).contents
            bodies[uri] = json.loads(content.text)
        modern = client.protocol_version >= "2026"
        if modern:
            changes = await stack.enter_async_context(client.listen(resource_subscriptions=WATCHED))
            watching = asyncio.ensure_future(listen(changes))
            stack.callback(watching.cancel)
        else:
            for uri in WATCHED:
                await client.subscribe_resource(uri)
        tools = [each.name for each in (await client.list_tools()).tools]
        search = await client.call_tool("agentSearch", {"capabilities": args.capability})
        found = {"text": search.content[0].text, "structured": search.structured_content, "meta": search.meta}
        said = None
        if args.message:
            arguments = {"message": args.message, "capabilities": args.capability}
            task = await client.call_tool("taskAssign", arguments, progress_callback=progressed)
            said = {"text": task.content[0].text, "isError": task.is_error}
            async with asyncio.timeout(60):
                await told.wait()
        if not modern:
            for uri in WATCHED:
                await client.unsubscribe_resource(uri)
        return {
            "version": client.protocol_version,
            "capabilities": client.server_capabilities.model_dump(mode="json", by_alias=True, exclude_none=True),
            "resources": bodies,
            "templates": templates,
            "tools": tools,
            "found": found,
            "said": said,
            "progress": progress,
            "updated": updated,
        }


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of what 2026-07-28 deprecates, which is meant here
    parser = ArgumentParser()
    parser.add_argument("--http")
    parser.add_argument("--token")
    parser.add_argument("--message")
    parser.add_argument("--mode", default="auto")
    parser.add_argument("capability", nargs="*")
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    args = parser.parse_args(given[:cut])
    args.command = given[cut + 1 :]
    print(json.dumps(asyncio.run(look(args))))
