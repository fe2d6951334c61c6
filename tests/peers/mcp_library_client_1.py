"""A client made with the official `mcp` 1.30.0 that reads the prompts and resources of a server: `URL`.

Prints one JSON object: `prompts`, `prompt`, `resources`, `templates`, `hours`, `cover`, `book`, `missing` (the error).
"""

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl


async def look(url: str) -> dict[str, Any]:
    async with streamable_http_client(url) as (reading, writing, _), ClientSession(reading, writing) as session:
        hello = await session.initialize()
        assert hello.capabilities.prompts is not None
        contents = {
            name: (await session.read_resource(AnyUrl(f"library://{name}"))).contents[0]
            for name in ("opening-hours", "cover", "books/Emma")
        }
        prompt = await session.get_prompt("review", {"title": "Emma"})
        missing = ""
        try:
            await session.read_resource(AnyUrl("library://nothing"))
        except McpError as error:
            missing = error.error.message
        return {
            "prompts": [each.name for each in (await session.list_prompts()).prompts],
            "prompt": getattr(prompt.messages[0].content, "text", None),
            "resources": [str(each.uri) for each in (await session.list_resources()).resources],
            "templates": [each.uriTemplate for each in (await session.list_resource_templates()).resourceTemplates],
            "contents": {name: each.model_dump(mode="json") for name, each in contents.items()},
            "missing": missing,
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(look(sys.argv[1]))))
