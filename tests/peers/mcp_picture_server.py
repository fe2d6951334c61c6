"""An MCP server on stdio made with the official `mcp` 1.30.0 (its FastMCP), for tests of files.

| tool | arguments | what it says |
|---|---|---|
| `look` | `image` (base64), `question` | `WIDTHxHEIGHT, N bytes: QUESTION`, of a PNG |
| `words` | `question` | the question again: it takes no files |
"""

import base64
import struct

from mcp.server.fastmcp import FastMCP

server = FastMCP("pictures")


@server.tool()
def look(image: str, question: str) -> str:
    """Says how large a picture is."""
    content = base64.b64decode(image, validate=True)
    width, height = struct.unpack(">II", content[16:24])
    return f"{width}x{height}, {len(content)} bytes: {question}"


@server.tool()
def words(question: str) -> str:
    """Says the question again."""
    return question


if __name__ == "__main__":
    server.run()
