"""The same as `mcp_library_client_1.py`, made with the official `mcp` 2.3.0: in 2026-07-28, without sessions."""

import asyncio
import json
import sys
import warnings
from typing import Any

from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client


async def look(url: str) -> dict[str, Any]:
    async with Client(streamable_http_client(url)) as client:
        assert client.server_capabilities.prompts is not None
        contents = {
            name: (await client.read_resource(f"library://{name}")).contents[0]
            for name in ("opening-hours", "cover", "books/Emma")
        }
        prompt = await client.get_prompt("review", {"title": "Emma"})
        missing = ""
        try:
            await client.read_resource("library://nothing")
        except MCPError as error:
            missing = error.error.message
        templates = (await client.list_resource_templates()).resource_templates
        return {
            "prompts": [each.name for each in (await client.list_prompts()).prompts],
            "prompt": prompt.messages[0].content.text,
            "resources": [str(each.uri) for each in (await client.list_resources()).resources],
            "templates": [each.uri_template for each in templates],
            "contents": {name: each.model_dump(mode="json", by_alias=True) for name, each in contents.items()},
            "missing": missing,
        }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(asyncio.run(look(sys.argv[1]))))
